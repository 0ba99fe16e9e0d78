//! A replica's votes on disk: rows of `system.paxos`, one a partition that was voted on, with Cassandra's columns.
//!
//! A row has the partition's own key, so that it lies on the shard that owns the partition, and expires when it is older
//! than the state that the rules need.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use mutation::row::ColumnData;
use mutation::{
    Cell, Clustering, DecoratedKey, LivenessInfo, PartitionUpdate, Row, RowRange, Seconds, Slices, Timestamp,
};
use paxos::{AcceptorState, Ballot, Proposal};
use replica::{Keys, Partitions, Read, ReadCommand, ReplicaError, RowLookup};
use schema::{Schema, Table};

use super::codec::{self, Place, Value, Voted};
use crate::context::Context;

/// Version of the stored form of proposals, which stands beside each.
pub(super) const VERSION: i32 = 1;
/// Rows are kept longer than they count, for clocks that differ.
const SLACK_SECONDS: Seconds = 3600;
/// The least time for which votes are remembered.
const MEMORY_SECONDS_MIN: Seconds = 3 * 3600;

const PROMISED: &str = "in_progress_ballot";
const ACCEPTED: [&str; 3] = ["proposal", "proposal_ballot", "proposal_version"];
const COMMITTED: [&str; 3] = ["most_recent_commit", "most_recent_commit_at", "most_recent_commit_version"];

/// For how long votes on a table's partitions are remembered: as `paxos_grace_seconds` says, otherwise as long as its deletions, as
/// Cassandra does.
pub(crate) fn memory_seconds(table: &Table) -> Seconds {
    let options = &table.options;
    options.paxos_grace_seconds.unwrap_or(options.gc_grace_seconds).max(MEMORY_SECONDS_MIN)
}

/// The same in microseconds.
pub(super) fn memory_micros(table: &Table) -> i64 {
    i64::from(memory_seconds(table)) * 1_000_000
}

/// The state of a partition, with writes of this form.
#[derive(Clone, Debug)]
pub(crate) struct Remembered<V = Value> {
    pub(crate) state: AcceptorState<V>,
    /// The latest time of the row's cells.
    written_at: Timestamp,
}

impl<V> Default for Remembered<V> {
    fn default() -> Self {
        Self { state: AcceptorState::default(), written_at: Timestamp::default() }
    }
}

impl<V: Voted> Remembered<V> {
    /// The state without the rounds that a truncation up to `floor` ended: they are not to come back after it.
    pub(super) fn above(&self, floor: Ballot) -> Cow<'_, AcceptorState<V>> {
        match floor.is_none() {
            true => Cow::Borrowed(&self.state),
            false => Cow::Owned(self.state.clone().above(floor)),
        }
    }
}

fn uuid(ballot: Ballot) -> Bytes {
    let uuid = types::uuid::time_uuid(ballot.micros.saturating_mul(10), ballot.node);
    Bytes::copy_from_slice(&uuid)
}

fn from_uuid(bytes: &[u8]) -> Option<Ballot> {
    let micros = types::uuid::unix_micros(bytes)?;
    let node = u64::from_be_bytes(bytes.get(8..16)?.try_into().ok()?);
    Some(Ballot { micros, node })
}

/// The rows of the votes on a partition.
pub(crate) struct VoteStore<'a> {
    votes: &'a Arc<Table>,
    pub(crate) table: &'a Arc<Table>,
    pub(crate) key: &'a DecoratedKey,
}

impl<'a> VoteStore<'a> {
    /// The store of votes on a partition.
    pub(crate) fn new(
        schema: &'a Schema,
        table: &'a Arc<Table>,
        key: &'a DecoratedKey,
    ) -> Result<Self, ReplicaError> {
        match schema.table("system", "paxos") {
            Some(votes) => Ok(Self { votes, table, key }),
            None => Err(ReplicaError::Storage("there is no table system.paxos".to_owned())),
        }
    }

    /// The same where the table of votes is at hand.
    pub(crate) fn over(votes: &'a Arc<Table>, table: &'a Arc<Table>, key: &'a DecoratedKey) -> Self {
        Self { votes, table, key }
    }

    fn clustering(&self) -> Clustering {
        Clustering::new(self.votes, &[Some(&self.table.id.0)])
    }

    /// Reads the stored state.
    pub(crate) async fn load<V: Voted>(&self, context: &Context) -> Result<Remembered<V>, ReplicaError> {
        let (replica, rt) = (context.replica(), context.rt());
        let now = Seconds::try_from(rt.wall_micros() / 1_000_000).unwrap_or(0);
        let clustering = self.clustering();
        let slices = Slices::new(vec![RowRange::row(&clustering)]);
        let seen = |row: Option<&Row>| match row {
            Some(row) => self.remembered(row, now),
            None => Ok(Remembered::default()),
        };
        let (table, key) = (&**self.votes, self.key);
        let lookup = RowLookup { table, key, slices: &slices, now, bypass_cache: false, values_only: false };
        if let Some((remembered, _)) = replica.row_here(&lookup, rt.now(), seen) {
            return remembered;
        }
        let key = Partitions::Keys(Keys::from_elem(self.key.clone(), 1));
        let command = ReadCommand { slices, ..ReadCommand::all_of(self.votes.clone(), key, now) };
        let page = replica.read(Read::of(&command).here().over_all_tombstones()).await?;
        seen(page.partitions.first().and_then(|partition| partition.rows.first()))
    }

    /// The state of a row.
    pub(crate) fn remembered<V: Voted>(
        &self,
        row: &Row,
        now: Seconds,
    ) -> Result<Remembered<V>, ReplicaError> {
        let value = |name: &str| {
            let column = self.votes.column(name)?;
            row.cell(column.id).filter(|cell| cell.is_live(now)).map(|cell| cell.value.clone())
        };
        let proposal = |columns: [&str; 3]| match value(columns[0]) {
            None => Ok(None),
            Some(_) if value(columns[2]).is_none_or(|version| *version != VERSION.to_be_bytes()) => {
                let text = format!(
                    "{} of a vote in system.paxos is one that this version does not know",
                    columns[2]
                );
                Err(ReplicaError::Storage(text))
            }
            Some(bytes) => {
                let place = Place { table: self.table, key: self.key };
                let read = place.stored(&bytes).map(Some);
                read.map_err(|error| {
                    ReplicaError::Storage(format!("a vote in system.paxos cannot be read: {error}"))
                })
            }
        };
        let times = row.columns().iter().map(|(_, data)| match data {
            ColumnData::Simple(cell) => cell.timestamp,
            ColumnData::Complex(_) => Timestamp::MIN,
        });
        Ok(Remembered {
            written_at: times.max().unwrap_or_default(),
            state: AcceptorState {
                promised: value(PROMISED).and_then(|bytes| from_uuid(&bytes)).unwrap_or(Ballot::NONE),
                accepted: proposal(ACCEPTED)?,
                committed: proposal(COMMITTED)?,
            },
        })
    }

    /// The update that turns the stored state into `new`.
    pub(crate) fn change<V: Voted>(
        &self,
        old: &Remembered<V>,
        new: &AcceptorState<V>,
        now_micros: i64,
    ) -> PartitionUpdate {
        let round = |proposal: &Option<Proposal<V>>| proposal.as_ref().map(|proposal| proposal.ballot);
        let sides = [
            (ACCEPTED, &new.accepted, round(&old.state.accepted) != round(&new.accepted)),
            (COMMITTED, &new.committed, round(&old.state.committed) != round(&new.committed)),
        ];
        let changed = sides.into_iter().filter(|(_, _, changed)| *changed);
        self.row(old.written_at, new.promised, changed.map(|(columns, side, _)| (columns, side)), now_micros)
    }

    /// The updates, to be stored in this order, that say all of the stored state again.
    pub(super) fn whole(&self, old: &Remembered, now_micros: i64) -> [PartitionUpdate; 2] {
        let state = &old.state;
        [(COMMITTED, &state.committed), (ACCEPTED, &state.accepted)]
            .map(|side| self.row(old.written_at, state.promised, [side], now_micros))
    }

    /// The row of a promise and of these proposals.
    fn row<'b, V: Voted + 'b>(
        &self,
        written_at: Timestamp,
        promised: Ballot,
        sides: impl IntoIterator<Item = ([&'static str; 3], &'b Option<Proposal<V>>)>,
        now_micros: i64,
    ) -> PartitionUpdate {
        let now = Seconds::try_from(now_micros / 1_000_000).unwrap_or(0);
        let ttl = memory_seconds(self.table).saturating_add(SLACK_SECONDS);
        let expires = now.saturating_add(ttl).min(mutation::NO_DELETION - 1);
        // Clocks may go back; the later write is to win.
        let timestamp = now_micros.max(written_at + 1);
        let mut row = Row::new(self.clustering());
        row.liveness = LivenessInfo::expiring(timestamp, ttl, expires);
        let mut set = |name: &str, value: Option<Bytes>| {
            let Some(column) = self.votes.column(name) else { return };
            let cell = match value {
                Some(value) => Cell::expiring(timestamp, ttl, expires, value),
                None => Cell::tombstone(timestamp, now),
            };
            row.set(column.id, ColumnData::Simple(cell));
        };
        set(PROMISED, Some(uuid(promised)));
        for (columns, after) in sides {
            let bytes = after.as_ref().map(|proposal| {
                let mut bytes = Vec::with_capacity(128);
                codec::put_proposal(proposal, &mut bytes);
                Bytes::from(bytes)
            });
            set(columns[0], bytes);
            set(columns[1], after.as_ref().map(|proposal| uuid(proposal.ballot)));
            set(columns[2], after.as_ref().map(|_| Bytes::copy_from_slice(&VERSION.to_be_bytes())));
        }
        let mut update = PartitionUpdate::new(self.votes.clone(), self.key.clone());
        update.add_row(row);
        update
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ballot_is_a_time_uuid() {
        let node = types::uuid::clock_and_node(0x2abc, 0x1234_5678_9abc);
        let ballot = Ballot { micros: 1_700_000_000_123_456, node };
        assert_eq!(types::uuid::version(&uuid(ballot)), Some(1));
        assert_eq!(from_uuid(&uuid(ballot)), Some(ballot));
    }
}
