//! Rounds of a partition of which this shard is the only replica: read, decided and stored while the vote's lock is held, by one write where several
//! voters need three each.

use std::cell::Cell;
use std::pin::pin;

use mutation::{PartitionUpdate, Timestamp};
use paxos::{Failure as Expired, choose_alone, promise_alone};
use replica::{Origin, ReadPage, Truncation, Write};

use super::codec::EncodedValue;
use super::driver::{Decided, Driver, Failure};
use super::store::{VoteStore, memory_micros};
use super::vote::ENTRY_SHARED_MAX;
use crate::admission::Admission;
use crate::{RequestError, canaries};

impl Driver<'_> {
    /// Takes the request through one round. None when that takes the rounds of several voters: there are others, a write of an earlier round
    /// is unfinished, the vote cannot be read, or the write may not fit the entry of the vote.
    pub(super) async fn run_alone<E: From<RequestError>>(
        &self,
        decide: &mut dyn FnMut(&ReadPage, Timestamp) -> Result<Option<PartitionUpdate>, E>,
    ) -> Result<Option<Decided>, Failure<E>> {
        let context = &self.lwt.context;
        let owner = context.replica().shard_of(self.table().id, self.key.token);
        if !self.erm.is_only_here(self.key.token) || owner != context.shard() {
            return Ok(None);
        }
        assert_eq!(*self.voters, [self.erm.view.own()], "the only replica is the only voter");
        let view = &self.erm.view;
        let Ok(_under_way) = Admission(context).admit_own(view) else { return Ok(None) };
        if Admission(context).check_voter(view.topology_version(), self.table(), self.key).is_err() {
            return Ok(None);
        }
        let proposed = Cell::new(false);
        let round = pin!(self.round_alone(decide, &proposed));
        match context.rt().timeout_at(self.options.deadline, round).await {
            Ok(ended) => ended,
            Err(_) => Err(self.failed_alone(proposed.get())),
        }
    }

    async fn round_alone<E: From<RequestError>>(
        &self,
        decide: &mut dyn FnMut(&ReadPage, Timestamp) -> Result<Option<PartitionUpdate>, E>,
        proposed: &Cell<bool>,
    ) -> Result<Option<Decided>, Failure<E>> {
        let (lwt, context) = (self.lwt, &self.lwt.context);
        let (id, replica) = (self.table().id, context.replica());
        if lwt.make_room(id, self.key).await.is_err() {
            return Ok(None);
        }
        let _lock = lwt.state.votes.lock(id, self.key).await;
        let schema = context.schema();
        let Some(table) = schema.table_by_id(id) else { return Ok(None) };
        let Ok(store) = VoteStore::new(&schema, table, self.key) else { return Ok(None) };
        // The rules ask whether there is a write, and nothing of the write itself.
        let Ok(remembered) = lwt.remember::<EncodedValue>(&store).await else { return Ok(None) };
        let now = context.rt().wall_micros();
        let known = remembered.above(lwt.truncation_floor(id));
        let (memory, ballot) = (memory_micros(table), self.ballot(known.promised));
        lwt.state.note_voted(ballot);
        let Some(promised) = promise_alone(&known, ballot, now, memory) else { return Ok(None) };
        context
            .record(|| format!("Reading existing values for CAS precondition; round {ballot} has one voter"));
        let found = self.read().await.map_err(Failure::Request)?;
        let Some(update) = decide(&found, ballot.micros).map_err(Failure::Decide)? else {
            return Ok(Some(Decided::Nothing(found)));
        };
        let deletes_ranges = !update.deletion.is_live() || !update.range_tombstones.is_empty();
        // All that it deletes, and the updates that follow, may be too much for one entry.
        if deletes_ranges || update.memory_size() > ENTRY_SHARED_MAX {
            return Ok(None);
        }
        let checked = self.check_size(&found, Some(&update), &mut self.proposer()).await;
        checked.map_err(Failure::Request)?;
        let step = choose_alone(&promised, EncodedValue::of(&update), now, memory);
        let Some(state) = step.state else { unreachable!("the write is committed") };
        let written = canaries::committed(context.injected(), update);
        let updates = vec![written, store.change(&remembered, &state, now)];
        context.record(|| format!("CAS precondition is met; committing proposal {ballot}"));
        proposed.set(true);
        let writing = lwt.state.unsettled.writing(id, self.key);
        let write = Write::all(Origin::PaxosCommit, updates).synced();
        let write = write.with_truncation(Truncation::LeavesOut(ballot.micros));
        replica.apply(write).await.map_err(|_| self.failed_alone(true))?;
        writing.done();
        // A truncation came meanwhile and left it out: as if it had not been.
        if ballot <= lwt.truncation_floor(id) {
            return Ok(None);
        }
        Ok(Some(Decided::Committed))
    }

    fn failed_alone<E>(&self, uncertain: bool) -> Failure<E> {
        Failure::Request(self.expired(0, Expired { uncertain, received: 0, required: 1 }))
    }
}
