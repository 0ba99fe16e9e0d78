//! The commit of a chosen write: every replica receives it, and the client is answered when enough of them have acknowledged it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use paxos::{Proposal, Reply, Request};
use rt::sync::Notify;
use rt::{Group, Instant};
use topology::{NodeIndex, Replicas};

use super::codec::{Place, Value};
use super::driver::Driver;
use super::lwt::Lwt;
use crate::admission::Admission;
use crate::contact::Tally;
use crate::message;
use crate::ongoing::write_error;
use crate::peer_error::{self, PeerError};
use crate::replication_map::{EffectiveReplicationMap, targets};
use crate::{Consistency, RequestError, WriteKind, WriteOptions};

/// A commit on its way. Continues after the client has been answered.
struct Committing {
    lwt: Lwt,
    erm: Rc<EffectiveReplicationMap>,
    proposal: Proposal<Value>,
    tally: RefCell<Tally>,
    errors: RefCell<Vec<(NodeIndex, PeerError)>>,
    /// ANY: a hint was kept, which is enough.
    hinted: Cell<bool>,
    changed: Notify,
    deadline: Instant,
    /// The begin of the write of the chosen value ([`Context::begin_write`](crate::context::Context::begin_write)).
    begun_micros: i64,
}

impl Driver<'_> {
    /// Has every replica commit, and waits for as many as the level asks for.
    pub(super) async fn commit(
        &self,
        proposal: Proposal<Value>,
        consistency: Consistency,
    ) -> Result<(), RequestError> {
        let mut erm = self.erm.clone();
        loop {
            let ring = erm.view.topology_version();
            let (committing, ended) = self.commit_by(erm, proposal.clone(), consistency).await;
            let Err(error) = ended else { return Ok(()) };
            let deadline = self.options.deadline;
            if !committing.saw_newer_topology()
                || !Admission(&self.lwt.context).catch_up(ring, deadline).await
            {
                return Err(error);
            }
            erm = self.lwt.context.maps().of(self.table())?;
        }
    }

    async fn commit_by(
        &self,
        erm: Rc<EffectiveReplicationMap>,
        proposal: Proposal<Value>,
        consistency: Consistency,
    ) -> (Rc<Committing>, Result<(), RequestError>) {
        assert!(proposal.value.is_some(), "what is committed is a write");
        let view = erm.view.clone();
        let (replicas, needs) = targets(&erm, self.key.token, consistency);
        let (live, away): (Replicas, Replicas) = replicas.into_iter().partition(|node| view.is_alive(*node));
        assert!(!away.contains(&view.own()), "a node is not down to itself");
        let committing = Rc::new(Committing {
            lwt: self.lwt.clone(),
            tally: RefCell::new(Tally::new(&needs, &view, &live)),
            erm,
            proposal,
            errors: RefCell::default(),
            hinted: Cell::new(false),
            changed: Notify::new(),
            deadline: self.options.deadline,
            begun_micros: self.lwt.context.hinting().begin_write(),
        });
        let own = view.own();
        let proposal = &committing.proposal;
        self.lwt
            .context
            .record(|| format!("Committing proposal {} at {}", proposal.ballot, consistency.name()));
        for node in live.iter().copied().filter(|node| *node != own) {
            let committing = committing.clone();
            let send = async move { committing.send(node).await };
            self.lwt.context.rt().spawn(Group::Statement, send).detach();
        }
        away.iter().for_each(|node| committing.hint(*node));
        if self.erm.injected.early_commit {
            return (committing, Ok(()));
        }
        if live.contains(&own) {
            committing.send(own).await;
        }
        let ended = committing.ended(consistency).await;
        (committing, ended)
    }
}

impl Committing {
    async fn send(&self, node: NodeIndex) {
        let Some(update) = self.proposal.value.clone() else { return };
        let place = Place { table: &update.table, key: &update.key };
        let request = Request::Commit(self.proposal.clone());
        let view = &self.erm.view;
        let reply = self.lwt.vote_of(view, node, &place, request, self.deadline).await;
        let datacenter = view.datacenter(node);
        match reply {
            Ok(Reply::Committed) => self.tally.borrow_mut().acknowledge(node, datacenter),
            // It has truncated the table since the write's round. A hint would bring truncated rows back.
            Ok(Reply::Refused { .. }) => {
                let truncated = PeerError::Silent("it has truncated the table since".to_owned());
                self.errors.borrow_mut().push((node, truncated));
                self.tally.borrow_mut().fail(node, datacenter);
            }
            other => {
                let strange = || PeerError::Silent("it answered something else".to_owned());
                self.errors.borrow_mut().push((node, other.err().unwrap_or_else(strange)));
                self.tally.borrow_mut().fail(node, datacenter);
                if node != view.own() {
                    self.hint(node);
                }
            }
        }
        self.changed.notify_all();
    }

    /// Whether a replica has refused it, for it uses a stale topology version.
    fn saw_newer_topology(&self) -> bool {
        self.errors.borrow().iter().any(|(_, error)| matches!(error, PeerError::StaleTopology(_)))
    }

    /// Keeps the write for a replica that is down. Its voter learns of it from the next round.
    fn hint(&self, node: NodeIndex) {
        assert_ne!(node, self.erm.view.own(), "hints are kept for other nodes");
        let Some(update) = &self.proposal.value else { return };
        if self.proposal.id <= self.lwt.truncation_floor(update.table.id) {
            return;
        }
        let body = message::encode_updates(std::slice::from_ref(&**update));
        let host = self.erm.view.node(node).host;
        if self.lwt.context.keep_hint(host, &update.table, body, self.begun_micros) {
            self.hinted.set(true);
            self.changed.notify_all();
        }
    }

    async fn ended(&self, consistency: Consistency) -> Result<(), RequestError> {
        let rt = self.lwt.context.rt();
        loop {
            let changed = self.changed.notified();
            {
                let tally = self.tally.borrow();
                if tally.is_met() || (consistency == Consistency::Any && self.hinted.get()) {
                    return Ok(());
                }
                if tally.gives_up(peer_error::all_silent(&self.errors.borrow())) {
                    return Err(self.error(consistency, &tally));
                }
            }
            if rt.timeout_at(self.deadline, changed).await.is_err() {
                return Err(self.error(consistency, &self.tally.borrow()));
            }
        }
    }

    /// The value is chosen in any case: a plain write has failed.
    fn error(&self, consistency: Consistency, tally: &Tally) -> RequestError {
        let options = WriteOptions { consistency, kind: WriteKind::Simple, deadline: self.deadline };
        write_error(&self.erm, &self.errors.borrow(), options, (tally.received(), tally.required()))
    }
}
