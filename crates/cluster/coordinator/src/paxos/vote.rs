//! How a node votes: on the shard that owns the partition, one request of a partition after the other, and nothing is said
//! before it is on disk.

use bytes::Bytes;
use mutation::{DecoratedKey, PartitionUpdate};
use paxos::{AcceptorState, Ballot, Proposal, Reply, Request, Step, step};
use replica::{Origin, ReplicaError, TraceLog, Truncation, Write};
use rpc::{Refusal, Verb};
use rt::{Instant, ShardId};
use schema::{Schema, TableId};
use topology::{ClusterView, NodeIndex};

use super::codec::{self, CodecError, Place, RequestKind, Value, Voted};
use super::lwt::Lwt;
use super::messages::{Ballotage, Vote};
use super::size;
use super::store::{Remembered, VoteStore, memory_micros};
use crate::admission::Admission;
use crate::canaries;
use crate::message;
use crate::peer_error::{self, PeerError};
use crate::shard_calls;

/// A committed write of more bytes does not share its entry of the commit log with the vote, of which it is a part, too.
pub(super) const ENTRY_SHARED_MAX: usize = 64 << 10;

fn verb_of(request: &Request<Value>) -> Verb {
    match request {
        Request::Prepare(_) => Verb::PaxosPrepare,
        Request::Propose(_) => Verb::PaxosPropose,
        Request::Commit(_) | Request::Repair(_) => Verb::PaxosCommit,
    }
}

/// Rounds up to this one ended with a truncation at `at_micros`.
pub(super) fn truncation_floor(at_micros: i64) -> Ballot {
    match at_micros {
        i64::MIN..=0 => Ballot::NONE,
        micros => Ballot { micros, node: u64::MAX },
    }
}

impl Lwt {
    /// Votes; to be called on the shard that owns the partition.
    pub(crate) async fn vote(&self, asked: Ballotage) -> Vote {
        let Ballotage { table, key, request } = asked;
        self.assert_owner(table, &key);
        self.make_room(table, &key).await?;
        let _lock = self.state.votes.lock(table, &key).await;
        let schema = self.context.schema();
        let table = schema.table_by_id(table).ok_or(ReplicaError::UnknownTable(table))?;
        let store = VoteStore::new(&schema, table, &key)?;
        let remembered = self.remember::<Value>(&store).await?;
        let now = self.context.rt().wall_micros();
        let floor = self.truncation_floor(table.id);
        let known = remembered.above(floor);
        if let Request::Prepare(ballot) | Request::Propose(Proposal { ballot, .. }) = &request {
            self.state.note_voted(*ballot);
        }
        if self.is_over(&request, floor, &schema)? {
            return Ok(Reply::Refused { promised: known.promised });
        }
        let memory = memory_micros(table);
        // A write that is lost with its commit is still known to be accepted, and is found and committed again.
        let durable = !matches!(request, Request::Commit(_));
        let written = match &request {
            Request::Commit(proposal) | Request::Repair(proposal) => Some(proposal.id),
            Request::Prepare(_) | Request::Propose(_) => None,
        };
        let step = step(&known, request, now, memory);
        assert_promises_hold(&known, &step);
        let apply = step
            .apply
            .map(|update| canaries::committed(self.context.injected(), PartitionUpdate::clone(&update)));
        let mut changes: Vec<_> =
            step.state.map(|state| store.change(&remembered, &state, now)).into_iter().collect();
        if self.context.injected().forgotten_promises && durable {
            changes.retain(|_| !matches!(step.reply, Reply::Promised { .. }));
        }
        let writing = self.state.unsettled.writing(table.id, &key);
        let floor = self.write_step(apply.zip(written), changes, durable).await?;
        writing.done();
        Ok(floor.map_or(step.reply, |promised| Reply::Refused { promised }))
    }

    /// Reads the stored state of a partition, all of which is on disk. The partition is locked.
    pub(super) async fn remember<V: Voted>(
        &self,
        store: &VoteStore<'_>,
    ) -> Result<Remembered<V>, ReplicaError> {
        self.settle(store).await?;
        store.load(&self.context).await
    }

    /// Writes a voter's changes and the committed write. The round up to which a truncation has ended all, where the write is one of these
    /// and was left out.
    async fn write_step(
        &self,
        apply: Option<(PartitionUpdate, Ballot)>,
        mut changes: Vec<PartitionUpdate>,
        durable: bool,
    ) -> Result<Option<Ballot>, ReplicaError> {
        if let Some((update, written)) = apply {
            let table = update.table.id;
            // A large one has an entry of its own. The vote follows when it is on disk: without the vote the write is still known to be
            // accepted, and a vote without the write would take it for stored.
            let is_large = update.memory_size() > ENTRY_SHARED_MAX;
            let mut updates = vec![update];
            if !durable && !is_large {
                updates.append(&mut changes);
            }
            // A truncation may be under way, which ends with a time behind this round, and must not leave rows that are written meanwhile.
            let since =
                if self.context.injected().rounds_outlive_truncate { i64::MAX } else { written.micros };
            // Its deletions may hide more than can be read, or followed from, at once: chosen it is, and nobody could refuse it any more.
            let write = Write::all(Origin::PaxosCommit, updates).in_parts();
            let write = if is_large { write.synced() } else { write };
            self.context.replica().apply(write.with_truncation(Truncation::LeavesOut(since))).await?;
            let floor = self.truncation_floor(table);
            if written <= floor {
                return Ok(Some(floor));
            }
        }
        match (changes.is_empty(), durable) {
            (true, _) => {}
            (false, true) => {
                self.context.replica().apply(Write::all(Origin::System, changes).synced()).await?
            }
            (false, false) => self.context.replica().apply(Write::all(Origin::System, changes)).await?,
        }
        Ok(None)
    }

    /// Whether a request's round ended with a truncation at `floor`: it would be dropped at once, and the proposer has to be notified. Nobody is to
    /// accept a write whose commit cannot be stored.
    fn is_over(
        &self,
        request: &Request<Value>,
        floor: Ballot,
        schema: &Schema,
    ) -> Result<bool, ReplicaError> {
        let proposal = match request {
            Request::Prepare(_) => return Ok(false),
            Request::Propose(proposal) | Request::Commit(proposal) | Request::Repair(proposal) => proposal,
        };
        if proposal.id <= floor {
            return Ok(true);
        }
        if let (Request::Propose(_), Some(value)) = (request, &proposal.value) {
            size::check(schema, None, value, self.context.replica().engine().entry_len_max())?;
        }
        Ok(false)
    }

    /// One shard votes on a partition, so that no two votes on it overlap.
    pub(super) fn assert_owner(&self, table: TableId, key: &DecoratedKey) {
        let owner = self.context.replica().shard_of(table, key.token);
        assert_eq!(owner, self.context.shard(), "the shard that owns a partition votes on it");
    }

    /// Rounds up to this one ended with a table's last truncation on this shard.
    pub(crate) fn truncation_floor(&self, table: TableId) -> Ballot {
        if self.context.injected().rounds_outlive_truncate {
            return Ballot::NONE;
        }
        truncation_floor(self.context.replica().engine().truncated_at(table))
    }

    /// Asks the voter of this node.
    pub(crate) async fn vote_here(
        &self,
        table: TableId,
        key: &DecoratedKey,
        request: Request<Value>,
        trace: Option<&TraceLog>,
    ) -> Result<Reply<Value>, PeerError> {
        let owner = ShardId(self.context.replica().shard_of(table, key.token));
        let traced = trace.map(|trace| (trace, request.clone()));
        let asked = Ballotage { table, key: key.clone(), request };
        let vote = if owner == self.context.rt().shard() {
            self.vote(asked).await
        } else {
            *self.context.port().ask(owner, shard_calls::Vote { ballotage: Box::new(asked) }).await
        };
        if let Some((trace, request)) = traced {
            trace.add(self.context.rt().now(), owner.0, done(&request, &vote));
        }
        vote.map_err(PeerError::from)
    }

    /// Asks the voter of a node.
    pub(crate) async fn vote_of(
        &self,
        view: &ClusterView,
        node: NodeIndex,
        place: &Place<'_>,
        request: Request<Value>,
        deadline: Instant,
    ) -> Result<Reply<Value>, PeerError> {
        if node == view.own() {
            let _under_way = Admission(&self.context).admit_own(view)?;
            let owned = Admission(&self.context).check_voter(view.topology_version(), place.table, place.key);
            owned.map_err(|refusal| PeerError::StaleTopology(refusal.message))?;
            // Apart: it is kilobytes, which each step on its way would move, and a request to another node would have room for.
            let vote = Box::pin(self.vote_here(place.table.id, place.key, request, self.context.trace()));
            return match self.context.rt().timeout_at(deadline, vote).await {
                Ok(vote) => vote,
                Err(_) => Err(PeerError::Silent("timed out".to_owned())),
            };
        }
        let verb = verb_of(&request);
        let body = message::stamped(view, &codec::encode_request(place.table.id, place.key, &request));
        let voter = view.owner(node, place.table.id, place.key.token);
        let answer = self.context.remote().call(voter, verb, body, deadline).await?;
        place.reply(&answer).map_err(|error| peer_error::unreadable(&error))
    }
}

/// Asserts that a voter follows no round below one that it has promised to follow.
fn assert_promises_hold(known: &AcceptorState<Value>, step: &Step<Value>) {
    if !matches!(step.reply, Reply::Promised { .. } | Reply::Accepted) {
        return;
    }
    let next = step.state.as_ref().map(|state| state.promised);
    assert!(next.is_some(), "a promise and an acceptance are remembered");
    assert!(next >= Some(known.promised), "a voter does not go back on a promise");
}

/// Answers a vote that another node asks for, which uses a topology version.
pub(crate) async fn answer(
    lwt: &Lwt,
    verb: Verb,
    (ring, body): (u64, &Bytes),
    trace: Option<&TraceLog>,
) -> Result<Bytes, Refusal> {
    let kind = match verb {
        Verb::PaxosPrepare => RequestKind::Prepare,
        Verb::PaxosPropose => RequestKind::Propose,
        _ => RequestKind::Commit,
    };
    let schema = lwt.context.schema();
    let asked = codec::decode_request(kind, body, |id| schema.table_by_id(id).cloned());
    let (table, key, request) = asked.map_err(|error| match error {
        CodecError::UnknownTable(id) => peer_error::refusal(&ReplicaError::UnknownTable(id)),
        other => peer_error::malformed(other),
    })?;
    Admission(&lwt.context).check_voter(ring, &table, &key)?;
    let vote = lwt.vote_here(table.id, &key, request, trace).await;
    match vote {
        Ok(reply) => Ok(codec::encode_reply(&reply)),
        Err(error) => Err(peer_error::refusal_of(&error)),
    }
}

/// The steps of a voter, in Cassandra's words.
fn done(request: &Request<Value>, vote: &Vote) -> String {
    let reply = match vote {
        Ok(reply) => reply,
        Err(error) => return error.to_string(),
    };
    match (request, reply) {
        (Request::Prepare(ballot), Reply::Refused { promised }) => {
            format!("Promise rejected; {ballot} is not sufficiently newer than {promised}")
        }
        (Request::Prepare(ballot), _) => format!("Promising ballot {ballot}"),
        (Request::Propose(proposal), Reply::Refused { promised }) => {
            format!("Rejecting proposal for {} because inProgress is now {promised}", proposal.ballot)
        }
        (Request::Propose(proposal), _) => format!("Accepting proposal {}", proposal.ballot),
        (Request::Commit(proposal) | Request::Repair(proposal), Reply::Refused { promised }) => {
            format!(
                "Rejecting commit of proposal {}, which the truncation at {promised} removed",
                proposal.ballot
            )
        }
        (Request::Commit(proposal) | Request::Repair(proposal), _) => {
            format!("Committing proposal {}", proposal.ballot)
        }
    }
}
