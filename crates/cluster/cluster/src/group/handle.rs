//! [`Group`]: the interface of the cluster's log for the rest of the node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use raft::ENTRY_BYTES_MAX;
use rpc::{RpcError, Target, Verb};
use rt::sync::{WatchReader, oneshot};
use rt::{DiskError, Instant, Task};
use schema::{Schema, TableId};
use topology::HostId;

use super::error::ProposeError;
use super::inner::{Applied, Inner, Input, Proposed};
use super::wire::{self, Forward, code};
use crate::state::{
    Command, CommandId, Member, MemberStatus, Outcome, Proposal, Refused, STATE_VERSION_OF_ANALYZERS,
    STATE_VERSION_OF_ATTRIBUTE_VECTORS, STATE_VERSION_OF_CDC, STATE_VERSION_OF_CIDR_GROUPS,
    STATE_VERSION_OF_CONSTRAINTS, STATE_VERSION_OF_IDENTITIES, STATE_VERSION_OF_LOCAL_INDEXES,
    STATE_VERSION_OF_MASKS, STATE_VERSION_OF_ORDERED_INDEXES, STATE_VERSION_OF_REDUCE_FUNCTIONS,
    STATE_VERSION_OF_ROLES, STATE_VERSION_OF_ROW_TTL,
};
use crate::{DroppedTable, SchemaEdit};

/// How long a member that is believed to be alive has to answer before the request is sent again.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);

/// This node's part in the cluster's log. Lives on shard 0; cheap to clone.
#[derive(Clone)]
pub struct Group {
    pub(crate) inner: Rc<Inner>,
    pub(crate) tasks: Rc<std::cell::RefCell<Vec<Task<()>>>>,
}

/// A schema change that is in the log, and the nodes that use it.
#[derive(Clone, Debug)]
pub struct SchemaAgreement {
    /// The schema since.
    pub schema: Arc<Schema>,
    /// Its number.
    pub number: u64,
    /// Live members that did not report in time that all their shards use it. They will.
    pub behind: Vec<HostId>,
    /// Members that reported that all their shards use it.
    pub confirmed: BTreeSet<HostId>,
}

/// A member's part in an agreement on a schema.
enum Report {
    Confirmed,
    /// It did not report in time.
    Behind,
    /// It is down, or no member any more.
    Gone,
}

/// A schema change that was not made, or may not have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeSchemaError {
    /// The schema is not the one that the change was planned against; plan again.
    #[error("the schema changed meanwhile")]
    Moved,
    /// The change does not fit the schema.
    #[error("{0}")]
    Invalid(String),
    /// It was not decided.
    #[error(transparent)]
    Propose(#[from] ProposeError),
}

/// The state of a node in its group.
#[derive(Clone, Debug)]
pub struct GroupStatus {
    /// The state of its log.
    pub log: raft::Status,
    /// The leader, as far as the node knows.
    pub leader: Option<HostId>,
    /// Voters and learners.
    pub membership: raft::Membership,
}

/// Why some member could not decode these edits; none when all can. A member that cannot would stop.
fn unreadable_for<'m>(
    edits: &[SchemaEdit],
    members: impl Iterator<Item = &'m Member> + Clone,
) -> Option<String> {
    let lacks = |what: &str, version: u32, is_about: fn(&SchemaEdit) -> bool| {
        if !edits.iter().any(is_about) {
            return None;
        }
        let old = members
            .clone()
            .find(|member| member.status != MemberStatus::Left && member.info.state_version < version)?;
        Some(format!(
            "Node {} runs version {}, which does not know {what}; upgrade every node first",
            old.info.internode, old.info.release_version
        ))
    };
    let features: [(&str, u32, fn(&SchemaEdit) -> bool); 12] = [
        ("roles", STATE_VERSION_OF_ROLES, SchemaEdit::is_about_roles),
        ("the capture of changes", STATE_VERSION_OF_CDC, SchemaEdit::is_about_cdc),
        ("masks of columns", STATE_VERSION_OF_MASKS, SchemaEdit::is_about_masks),
        (
            "constraints, comments and security labels",
            STATE_VERSION_OF_CONSTRAINTS,
            SchemaEdit::is_about_constraints,
        ),
        ("REDUCEFUNC", STATE_VERSION_OF_REDUCE_FUNCTIONS, SchemaEdit::is_about_reduce_functions),
        ("TTL columns", STATE_VERSION_OF_ROW_TTL, SchemaEdit::is_about_row_ttl),
        ("local indexes", STATE_VERSION_OF_LOCAL_INDEXES, SchemaEdit::is_about_local_indexes),
        ("identities of certificates", STATE_VERSION_OF_IDENTITIES, SchemaEdit::is_about_identities),
        ("analyzers of an index", STATE_VERSION_OF_ANALYZERS, SchemaEdit::is_about_analyzers),
        ("CIDR groups", STATE_VERSION_OF_CIDR_GROUPS, SchemaEdit::is_about_cidr_groups),
        (
            "vector indexes of the DynamoDB API",
            STATE_VERSION_OF_ATTRIBUTE_VECTORS,
            SchemaEdit::is_about_attribute_vectors,
        ),
        (
            "ordered indexes of the DynamoDB API",
            STATE_VERSION_OF_ORDERED_INDEXES,
            SchemaEdit::is_about_ordered_indexes,
        ),
    ];
    features.into_iter().find_map(|(what, version, is_about)| lacks(what, version, is_about))
}

impl Group {
    /// The state as of the last entry that this node has applied.
    pub fn applied(&self) -> Applied {
        self.inner.applied.get().clone()
    }

    /// Follows the state.
    pub fn subscribe(&self) -> WatchReader<Applied> {
        self.inner.applied.reader()
    }

    /// Follows why this node's part has ended, if it has: nothing is decided here from then on, and the node should stop.
    pub fn ended(&self) -> WatchReader<Option<Rc<str>>> {
        self.inner.ended.reader()
    }

    /// Whether this node was removed from the cluster, as far as it knows: by the log, or because another node has refused it.
    pub fn was_removed(&self) -> bool {
        *self.inner.removed.get() || self.inner.state().was_removed(self.inner.config.host)
    }

    /// Follows whether another node has said that this one was removed.
    pub fn removal(&self) -> WatchReader<bool> {
        self.inner.removed.reader()
    }

    /// Asks every member, and the nodes at `addresses`, whether this node was removed; whether one has said so before the deadline. Each is
    /// asked until it answers.
    pub async fn ask_whether_removed(&self, addresses: &[SocketAddr], deadline: Instant) -> bool {
        let own = &self.inner.config;
        let hosts: Vec<HostId> = self.inner.state().members.keys().copied().collect();
        let hosts = hosts.into_iter().filter(|host| *host != own.host);
        let addresses = addresses.iter().filter(|address| **address != own.info.internode);
        let targets = hosts.map(|host| Target::Host { host, shard: 0 });
        let targets = targets.chain(addresses.map(|address| Target::Address(*address)));
        let ask = async |target| {
            while self.inner.rt.now() < deadline && !self.was_removed() {
                match self.inner.ask_whether_removed(target, deadline).await {
                    Some(true) => self.inner.end_removed(),
                    Some(false) => return,
                    None => self.pause(deadline).await,
                }
            }
        };
        futures_util::future::join_all(targets.map(ask)).await;
        self.was_removed()
    }

    /// The state of this node.
    pub fn status(&self) -> Option<GroupStatus> {
        let log = self.inner.status.get()?;
        let membership = self.inner.membership.borrow().clone();
        Some(GroupStatus { log, leader: self.inner.leader.get(), membership })
    }

    /// Puts a command into the log, through the leader, and waits until it is applied at this node (or the deadline). It is
    /// applied once, however often messages are lost.
    ///
    /// # Errors
    /// [`ProposeError::NoLeader`] when no leader accepted it before the deadline; it will not be applied.
    /// [`ProposeError::Unknown`] when one may have. [`ProposeError::Unreadable`] and [`ProposeError::TooLarge`] before
    /// anything was sent; [`ProposeError::Stopped`] when this node's part of the group has ended.
    pub async fn propose(&self, command: Command, deadline: Instant) -> Result<Outcome, ProposeError> {
        let mut id = [0; 16];
        self.inner.rt.fill_random(&mut id);
        let id = CommandId(id);
        let encoded = Box::pin(Proposal { id, command }.encode_checked()).await;
        let bytes = Bytes::from(encoded.map_err(|error| ProposeError::Unreadable(error.to_string()))?);
        if bytes.len() > ENTRY_BYTES_MAX {
            return Err(ProposeError::TooLarge { len: bytes.len() });
        }
        let mut maybe = false;
        while self.inner.rt.now() < deadline {
            self.check_running()?;
            match self.propose_once(id, &bytes, deadline).await {
                Proposed::Applied { index, outcome } => {
                    // Applied at the leader; here a moment later.
                    let here = self.wait_for(deadline, |applied| applied.index >= index);
                    let _ = here.await;
                    return Ok(outcome);
                }
                Proposed::Lost => maybe = true,
                Proposed::NotLeader | Proposed::Busy => {}
            }
            self.pause(deadline).await;
        }
        Err(if maybe { ProposeError::Unknown } else { ProposeError::NoLeader })
    }

    async fn propose_once(&self, id: CommandId, bytes: &Bytes, deadline: Instant) -> Proposed {
        let Some(leader) = self.leader_or_anybody() else { return Proposed::NotLeader };
        if leader == self.inner.config.host {
            return propose_here(&self.inner, id, bytes.clone(), deadline).await;
        }
        let body = Forward::Propose(bytes.clone()).encode();
        match self.ask(leader, body, deadline).await {
            Ok(answer) => match wire::decode_applied(&answer) {
                Ok((index, outcome)) => Proposed::Applied { index, outcome },
                Err(_) => Proposed::Lost,
            },
            Err(RpcError::Refused(refusal)) if refusal.code == code::NOT_LEADER => Proposed::NotLeader,
            Err(RpcError::Refused(refusal)) if refusal.code == code::BUSY => Proposed::Busy,
            Err(RpcError::Connect(_) | RpcError::UnknownHost | RpcError::Mismatch(_)) => Proposed::NotLeader,
            Err(RpcError::Overloaded) => Proposed::Busy,
            Err(_) => Proposed::Lost,
        }
    }

    /// Waits until this node has applied everything that was acknowledged, anywhere, before this call.
    ///
    /// # Errors
    /// [`ProposeError::NoLeader`] when no majority confirms the leader before the deadline; [`ProposeError::Stopped`]
    /// when this node's part of the group has ended.
    pub async fn barrier(&self, deadline: Instant) -> Result<Applied, ProposeError> {
        while self.inner.rt.now() < deadline {
            self.check_running()?;
            if let Some(index) = self.read_index(deadline).await
                && let Some(applied) = self.wait_for(deadline, |applied| applied.index >= index).await
            {
                return Ok(applied);
            }
            self.pause(deadline).await;
        }
        Err(ProposeError::NoLeader)
    }

    async fn read_index(&self, deadline: Instant) -> Option<u64> {
        let leader = self.leader_or_anybody()?;
        if leader == self.inner.config.host {
            return read_here(&self.inner, deadline).await;
        }
        let answer = self.ask(leader, Forward::Read.encode(), deadline).await.ok()?;
        wire::decode_number(&answer).ok()
    }

    /// Changes the schema, if it is still the one with version `base`: in the log, applied here, and in use on all shards of every
    /// member for which `alive` holds. Returns at the deadline with those that did not answer.
    ///
    /// # Errors
    /// [`ChangeSchemaError::Moved`] when the schema has another version, [`ChangeSchemaError::Invalid`] when an edit
    /// does not fit it or a member cannot decode it, [`ChangeSchemaError::Propose`] when the log did not decide in
    /// time.
    pub async fn change_schema(
        &self,
        base: [u8; 16],
        edits: Vec<SchemaEdit>,
        deadline: Instant,
        alive: impl Fn(HostId) -> bool,
    ) -> Result<SchemaAgreement, ChangeSchemaError> {
        if let Some(why) = unreadable_for(&edits, self.inner.state().members.values()) {
            return Err(ChangeSchemaError::Invalid(why));
        }
        let proposed = match self.propose(Command::SchemaChange { base, edits }, deadline).await {
            Err(error @ (ProposeError::Unreadable(_) | ProposeError::TooLarge { .. })) => {
                return Err(ChangeSchemaError::Invalid(error.to_string()));
            }
            proposed => proposed?,
        };
        let number = match proposed {
            Outcome::SchemaChanged { number, .. } => number,
            Outcome::Refused(Refused::SchemaMoved) => return Err(ChangeSchemaError::Moved),
            Outcome::Refused(refused) => return Err(ChangeSchemaError::Invalid(refused.to_string())),
            other => unreachable!("a schema change has the outcome {other:?}"),
        };
        let Some(applied) = self.wait_for(deadline, |applied| applied.state.schema_number >= number).await
        else {
            return Err(ProposeError::Unknown.into());
        };
        let (behind, confirmed) = self.schema_agreement(number, deadline, alive).await;
        Ok(SchemaAgreement { schema: applied.state.schema.clone(), number, behind, confirmed })
    }

    /// Waits until every live member uses the schema of a number, or a later one, on all its shards; returns those
    /// that did not answer by the deadline, and those that confirmed it.
    async fn schema_agreement(
        &self,
        number: u64,
        deadline: Instant,
        alive: impl Fn(HostId) -> bool,
    ) -> (Vec<HostId>, BTreeSet<HostId>) {
        let state = self.inner.state();
        let uses = |member: &MemberStatus| *member != MemberStatus::Left;
        let hosts = state.members.iter().filter(|(_, member)| uses(&member.status)).map(|(host, _)| *host);
        let alive = &alive;
        let each =
            hosts.map(|host| async move { (host, self.uses_schema(host, number, deadline, alive).await) });
        let (mut behind, mut confirmed) = (Vec::new(), BTreeSet::new());
        for (host, report) in join_all(each).await {
            match report {
                Report::Confirmed => drop(confirmed.insert(host)),
                Report::Behind => behind.push(host),
                Report::Gone => {}
            }
        }
        (behind, confirmed)
    }

    /// Whether a member reports in time that it uses a schema; a dead one need not.
    async fn uses_schema(
        &self,
        host: HostId,
        number: u64,
        deadline: Instant,
        alive: &impl Fn(HostId) -> bool,
    ) -> Report {
        let rt = &self.inner.rt;
        if host == self.inner.config.host {
            let used = rt.timeout_at(deadline, await_in_use(&self.inner, number)).await.is_ok();
            return if used { Report::Confirmed } else { Report::Behind };
        }
        while alive(host) && self.inner.state().members.contains_key(&host) {
            if rt.now() >= deadline {
                return Report::Behind;
            }
            let until = deadline.min(rt.now() + ASK_TIMEOUT);
            let body = self.inner.sign(&Forward::AwaitSchema(number).encode());
            let answer = self.inner.messenger.call(target(host), Verb::RaftForward, body, until).await;
            if answer.is_ok_and(|answer| wire::decode_number(&answer).is_ok_and(|used| used >= number)) {
                return Report::Confirmed;
            }
            self.pause(deadline).await;
        }
        Report::Gone
    }

    /// Reports that all shards of this node use the schema of a number: other nodes wait for that.
    pub fn schema_in_use(&self, number: u64) {
        assert!(number <= self.inner.state().schema_number, "shards use a schema that is applied");
        let known = *self.inner.in_use.get();
        if number > known {
            self.inner.in_use.set(number);
        }
    }

    /// Chooses tokens for this node, which joins, so that data spreads evenly, and has them written into the state.
    ///
    /// # Errors
    /// As [`Group::propose`] and [`Group::barrier`].
    pub async fn take_tokens(&self, count: u16, deadline: Instant) -> Result<Outcome, ProposeError> {
        let host = self.inner.config.host;
        loop {
            let state = self.barrier(deadline).await?.state;
            let location = &self.inner.config.info.location;
            let replaced = state.member(host).and_then(|member| member.replaces);
            let tokens = match replaced.and_then(|replaced| state.member(replaced)) {
                Some(replaced) => replaced.tokens.clone(),
                None => {
                    let ring = state.ring().expect("the state's members make a ring");
                    let seed = self.inner.rt.random_u64();
                    topology::allocate(&ring, location, usize::from(count.max(1)), seed)
                }
            };
            assert!(replaced.is_some() || !tokens.is_empty(), "a node that joins takes tokens");
            let base = state.topology_version;
            match self.propose(Command::SetTokens { host, tokens, base }, deadline).await? {
                // Somebody else joined meanwhile: choose again.
                Outcome::Refused(Refused::MembersMoved | Refused::TokenTaken { .. }) => {}
                other => return Ok(other),
            }
        }
    }

    /// Live hosts are heard from these addresses. Messages to one go there instead of to its address in the state, until the state changes
    /// that or the host is heard from there.
    pub fn hosts_heard(&self, live: &BTreeMap<HostId, SocketAddr>) {
        let state = self.inner.state();
        let logged = |host| state.member(host).map(|member| member.info.internode);
        if self.inner.heard.borrow_mut().heard(live, logged) {
            self.inner.publish_peers();
        }
    }

    /// Tables that were dropped and whose files may still be there.
    pub fn unfinished_drops(&self) -> Vec<DroppedTable> {
        let state = self.inner.state();
        let gone = |dropped: &&DroppedTable| state.schema.table_by_id(dropped.id).is_none();
        self.inner.drops.borrow().iter().filter(gone).cloned().collect()
    }

    /// Forgets drops of which nothing is left to do.
    ///
    /// # Errors
    /// A [`DiskError`] when the list of drops cannot be stored.
    pub async fn forget_drops(&self, finished: &[TableId]) -> Result<(), DiskError> {
        let (sender, receiver) = oneshot::channel();
        self.inner.push(Input::ForgetDrops(finished.to_vec(), sender));
        // A driver that has ended forgets nothing; the next start finds the drops again.
        receiver.await.unwrap_or(Ok(()))
    }

    /// Hands leadership over, if this node leads: before it stops, so that nobody has to miss it first.
    pub async fn step_down(&self, deadline: Instant) {
        while self.inner.leader.get() == Some(self.inner.config.host) && self.inner.rt.now() < deadline {
            if self.inner.membership.borrow().voters.len() < 2 {
                return;
            }
            self.inner.push(Input::Transfer);
            self.pause(deadline).await;
        }
    }

    /// Waits until the node with a number in the group has no vote, as far as this node knows; false when it still has one at the deadline. Until then its
    /// end could cost the majority.
    pub async fn vote_is_gone(&self, number: u64, deadline: Instant) -> bool {
        while self.inner.membership.borrow().votes(number) {
            if self.inner.rt.now() >= deadline || self.inner.ended.get().is_some() {
                return false;
            }
            self.pause(deadline).await;
        }
        true
    }

    /// Stops this node's part. Waiting callers get an error.
    pub async fn stop(&self) {
        self.inner.stop.set(true);
        self.inner.wake.notify_one();
        let mut ended = self.inner.ended.reader();
        while self.inner.ended.get().is_none() {
            // The writer is held by `inner`.
            let _ = ended.changed().await;
        }
        self.tasks.borrow_mut().clear();
    }

    pub(crate) async fn wait_for(
        &self,
        deadline: Instant,
        done: impl Fn(&Applied) -> bool,
    ) -> Option<Applied> {
        let mut reader = self.inner.applied.reader();
        let wait = async {
            loop {
                let applied = self.inner.applied.get().clone();
                if done(&applied) {
                    return applied;
                }
                // The writer is held by `inner`.
                let _ = reader.changed().await;
            }
        };
        self.inner.rt.timeout_at(deadline, wait).await.ok()
    }

    /// The leader. A node that does not know it asks any member: after the node has moved, the leader cannot reach it.
    fn leader_or_anybody(&self) -> Option<HostId> {
        self.inner.leader.get().or_else(|| {
            let (state, own) = (self.inner.state(), self.inner.config.host);
            let others: Vec<HostId> = state.members.keys().copied().filter(|host| *host != own).collect();
            let at = self.inner.rt.random_below(others.len().max(1) as u64) as usize;
            others.get(at).copied()
        })
    }

    /// A question to the leader; not longer than it takes to miss one.
    async fn ask(&self, host: HostId, body: Bytes, deadline: Instant) -> Result<Bytes, RpcError> {
        let until = deadline.min(self.inner.rt.now() + self.inner.config.tick * 20);
        let body = self.inner.sign(&body);
        self.inner.messenger.call(target(host), Verb::RaftForward, body, until).await
    }

    async fn pause(&self, deadline: Instant) {
        let until = deadline.min(self.inner.rt.now() + self.inner.config.tick / 2);
        self.inner.rt.sleep_until(until).await;
    }

    fn check_running(&self) -> Result<(), ProposeError> {
        match &*self.inner.ended.get() {
            Some(why) => Err(ProposeError::Stopped(why.to_string())),
            None => Ok(()),
        }
    }
}

fn target(host: HostId) -> Target {
    Target::Host { host, shard: 0 }
}

/// Proposes at this node, which leads or says that it does not.
pub(crate) async fn propose_here(
    inner: &Rc<Inner>,
    id: CommandId,
    bytes: Bytes,
    deadline: Instant,
) -> Proposed {
    let (reply, receiver) = oneshot::channel();
    inner.push(Input::Propose { id, bytes, reply });
    match inner.rt.timeout_at(deadline, receiver).await {
        Ok(Ok(proposed)) => proposed,
        // The inbox was full, or the driver has ended before it looked.
        Ok(Err(_)) => Proposed::Busy,
        Err(_) => Proposed::Lost,
    }
}

/// A point in the log of this node, which leads, after everything that was acknowledged.
pub(crate) async fn read_here(inner: &Rc<Inner>, deadline: Instant) -> Option<u64> {
    let (reply, receiver) = oneshot::channel();
    inner.push(Input::Read(reply));
    // Its messages may be lost: the caller retries.
    let until = deadline.min(inner.rt.now() + inner.config.tick * 5);
    inner.rt.timeout_at(until, receiver).await.ok()?.ok()?
}

/// Waits until all shards of this node use a schema.
pub(crate) async fn await_in_use(inner: &Rc<Inner>, number: u64) -> u64 {
    let mut reader = inner.in_use.reader();
    loop {
        let used = *inner.in_use.get();
        if used >= number {
            return used;
        }
        // The writer is held by `inner`.
        let _ = reader.changed().await;
    }
}

#[cfg(test)]
mod tests {
    use topology::Location;

    use super::*;
    use crate::state::{MemberInfo, STATE_VERSION};

    #[test]
    fn roles_wait_until_every_member_knows_them() {
        let member = |state_version, status| Member {
            number: 1,
            info: MemberInfo {
                internode: "10.0.0.1:7000".parse().unwrap(),
                native: "10.0.0.1:9042".parse().unwrap(),
                location: Location::new("dc1", "r1"),
                shard_count: 1,
                release_version: "0.1".to_owned(),
                state_version,
            },
            status,
            tokens: Vec::new(),
            replaces: None,
        };
        let role = [SchemaEdit::PutRole(schema::Role::new("ann"))];
        let members = [member(STATE_VERSION, MemberStatus::Normal), member(2, MemberStatus::Normal)];
        let why = unreadable_for(&role, members.iter()).expect("one is too old");
        assert!(why.contains("10.0.0.1:7000"), "{why}");
        assert_eq!(unreadable_for(&[SchemaEdit::DropKeyspace("ks".to_owned())], members.iter()), None);
        assert_eq!(unreadable_for(&role, members[..1].iter()), None);
        let table = |mask: Option<schema::ColumnMask>| {
            let mut table = schema::TableBuilder::new("ks", "t", schema::TableId([1; 16]))
                .partition_key("k", types::CqlType::Int);
            table.set_mask("k", mask);
            [SchemaEdit::PutTable(table.build().expect("a table"))]
        };
        let (keyspace, name) = ("system".to_owned(), "mask_null".to_owned());
        let masked = table(Some(schema::ColumnMask { keyspace, name, arguments: Vec::new() }));
        let why = unreadable_for(&masked, members.iter()).expect("one would forget the mask");
        assert!(why.contains("masks of columns"), "{why}");
        assert_eq!(unreadable_for(&table(None), members.iter()), None);
        let constrained = |change: &dyn Fn(&mut schema::TableBuilder)| {
            let [SchemaEdit::PutTable(table)] = table(None) else { panic!("a table") };
            let mut table = table.to_builder();
            change(&mut table);
            [SchemaEdit::PutTable(table.build().expect("a table"))]
        };
        let said = || schema::Description { comment: Some("c".to_owned()), security_label: None };
        let mut described = schema::Keyspace::new("ks", schema::Replication::Everywhere);
        described.description = said();
        for edit in [
            constrained(&|table| table.set_constraints("k", vec![schema::Constraint::Json])),
            constrained(&|table| table.security_label = Some("s".to_owned())),
            [SchemaEdit::PutKeyspace(described)],
        ] {
            let members = [member(STATE_VERSION, MemberStatus::Normal), member(4, MemberStatus::Normal)];
            let why = unreadable_for(&edit, members.iter()).expect("one would forget it");
            assert!(why.contains("constraints, comments and security labels"), "{why}");
            assert_eq!(unreadable_for(&edit, members[..1].iter()), None);
        }
        let aggregate = |reduce_function: Option<&str>| {
            [SchemaEdit::PutAggregate(schema::UserAggregate {
                keyspace: "ks".to_owned(),
                name: "a".to_owned(),
                arguments: Vec::new(),
                state_function: "f".to_owned(),
                state_type: types::CqlType::Int,
                reduce_function: reduce_function.map(str::to_owned),
                final_function: None,
                initial_condition: None,
                returns: types::CqlType::Int,
            })]
        };
        let members = [member(STATE_VERSION, MemberStatus::Normal), member(5, MemberStatus::Normal)];
        let why = unreadable_for(&aggregate(Some("r")), members.iter()).expect("one would forget it");
        assert!(why.contains("REDUCEFUNC"), "{why}");
        assert_eq!(unreadable_for(&aggregate(None), members.iter()), None);
        let expiring = constrained(&|table| table.ttl_column = Some("v".to_owned()));
        let why = unreadable_for(&expiring, members.iter()).expect("one would forget it");
        assert!(why.contains("TTL columns"), "{why}");
        fn index(local: bool) -> schema::Index {
            let (targets, options) = (Vec::new(), Default::default());
            schema::Index { name: "i".to_owned(), targets, class: None, options, local }
        }
        let local = constrained(&|table| drop(table.indexes.insert("i".to_owned(), index(true))));
        let global = constrained(&|table| drop(table.indexes.insert("i".to_owned(), index(false))));
        let why = unreadable_for(&local, members.iter()).expect("one would take it for another");
        assert!(why.contains("local indexes"), "{why}");
        assert_eq!(unreadable_for(&global, members.iter()), None);
        assert_eq!(unreadable_for(&role, [member(2, MemberStatus::Left)].iter()), None);
        let analyzed = |class: Option<&str>, options: &[(&str, &str)]| {
            let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let (class, options) = (class.map(str::to_owned), options.collect());
            let index = schema::Index { class, options, ..index(false) };
            constrained(&|table| drop(table.indexes.insert("i".to_owned(), index.clone())))
        };
        let members = [member(STATE_VERSION, MemberStatus::Normal), member(7, MemberStatus::Normal)];
        for (class, options) in [
            (None, &[("index_analyzer", "standard")][..]),
            (None, &[("mode", "CONTAINS")]),
            (None, &[("analyzer_class", "a.StandardAnalyzer")]),
            (None, &[("analyzed", "true")]),
            (Some("fulltext_index"), &[]),
        ] {
            let why =
                unreadable_for(&analyzed(class, options), members.iter()).expect("one would not know it");
            assert!(why.contains("analyzers of an index"), "{why}");
        }
        let known = [("mode", "prefix"), ("analyzer_class", "a.DelimiterAnalyzer"), ("analyzed", "true")];
        assert_eq!(unreadable_for(&analyzed(None, &known), members.iter()), None);
        let vectors = [("entry", "v"), ("vector_dimensions", "3")];
        let members_of_8 = [member(STATE_VERSION, MemberStatus::Normal), member(8, MemberStatus::Normal)];
        let why = unreadable_for(&analyzed(Some("dynamodb"), &vectors), members_of_8.iter());
        assert!(why.expect("one does not know it").contains("vector indexes"));
        assert_eq!(unreadable_for(&analyzed(Some("dynamodb"), &vectors[..1]), members_of_8.iter()), None);
        let mut known = schema::Role::new("ann");
        let members = [member(STATE_VERSION, MemberStatus::Normal), member(6, MemberStatus::Normal)];
        assert_eq!(unreadable_for(&[SchemaEdit::PutRole(known.clone())], members.iter()), None);
        let group = schema::CidrGroup { name: "office".to_owned(), ..Default::default() };
        let members_of_7 = [member(STATE_VERSION, MemberStatus::Normal), member(7, MemberStatus::Normal)];
        let why = unreadable_for(&[SchemaEdit::PutCidrGroup(group)], members_of_7.iter());
        assert!(why.expect("one does not know it").contains("CIDR groups"));
        let mut restricted = schema::Role::new("bob");
        restricted.cidr_groups.insert("office".to_owned());
        assert!(unreadable_for(&[SchemaEdit::PutRole(restricted)], members_of_7.iter()).is_some());
        known.identities.insert("spiffe://torc/ann".to_owned());
        let why = unreadable_for(&[SchemaEdit::PutRole(known)], members.iter()).expect("one would forget it");
        assert!(why.contains("identities of certificates"), "{why}");
    }
}
