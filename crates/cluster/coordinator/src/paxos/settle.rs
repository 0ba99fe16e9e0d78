//! Votes that may not be on disk are written again before the next vote on their partition: the whole state, with the write that it says is
//! committed, synced.

use mutation::DecoratedKey;
use paxos::AcceptorState;
use replica::{Origin, ReplicaError, Truncation, Write};
use schema::TableId;

use super::lwt::Lwt;
use super::migrate::committed_value;
use super::store::{Remembered, VoteStore, memory_seconds};

/// With so many unsettled partitions others are not voted on until one of them has been written again.
const PARTITIONS_MAX: usize = 4096;

impl Lwt {
    /// Sees to it that a partition could be remembered if its vote failed; to be called before its lock is taken.
    ///
    /// # Errors
    /// [`ReplicaError::Storage`] when too many others cannot be written again: those are not forgotten for this one.
    pub(super) async fn make_room(&self, table: TableId, key: &DecoratedKey) -> Result<(), ReplicaError> {
        let key = (table, key.clone());
        while let Some((table, other)) = self.state.unsettled.in_the_way(&key, PARTITIONS_MAX) {
            let _lock = self.state.votes.lock(table, &other).await;
            let schema = self.context.schema();
            let Some(of) = schema.table_by_id(table) else {
                self.state.unsettled.settled(&(table, other));
                continue;
            };
            let settled = self.settle(&VoteStore::new(&schema, of, &other)?).await;
            settled.map_err(|error| {
                let text = format!(
                    "votes on {PARTITIONS_MAX} partitions could not be stored, and no others are voted on until they are: {error}"
                );
                ReplicaError::Storage(text)
            })?;
        }
        Ok(())
    }

    /// Writes the state of a partition again if it may not be on disk. The partition is locked.
    pub(super) async fn settle(&self, store: &VoteStore<'_>) -> Result<(), ReplicaError> {
        let key = (store.table.id, store.key.clone());
        if !self.state.unsettled.contains(&key) {
            return Ok(());
        }
        let (replica, now) = (self.context.replica(), self.context.rt().wall_micros());
        let remembered: Remembered = store.load(&self.context).await?;
        // The write first: a vote by which it counts as stored must not be there without it. Each has an entry of the log of its own, for which
        // it was small enough before.
        let memory = memory_seconds(store.table);
        let value = committed_value(&AcceptorState::default(), &remembered.state, now, memory);
        if let Some((value, written)) = value {
            let write = Write::one(Origin::PaxosCommit, value).synced().in_parts();
            replica.apply(write.with_truncation(Truncation::LeavesOut(written.micros))).await?;
        }
        if !remembered.state.is_empty() {
            for change in store.whole(&remembered, now) {
                replica.apply(Write::one(Origin::System, change).synced()).await?;
            }
        }
        self.state.unsettled.settled(&key);
        assert!(!self.state.unsettled.contains(&key), "a vote is written behind one that is on disk");
        Ok(())
    }
}
