//! Votes go with the ranges: a node that becomes a replica takes over the votes of its ranges' voters, so that a value that a quorum of them
//! accepted is seen by every quorum of which the new node is one.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use mutation::{Clustering, DecoratedKey, PartitionUpdate, Row, RowRange, Seconds, Slices};
use paxos::{AcceptorState, Ballot};
use replica::{Limits, Origin, Partitions, ReadCommand, ReplicaError, Truncation, Write};
use rt::ShardId;
use schema::{Table, TableId};
use topology::{Replicas, TableSharder, TokenRange};

use super::codec::Value;
use super::lwt::Lwt;
use super::messages::MigratedVote;
use super::store::{Remembered, VoteStore, memory_seconds};
use super::vote::{ENTRY_SHARED_MAX, truncation_floor};
use crate::holders::partition_ranges;
use crate::message;
use crate::peer_error::PeerError;
use crate::reader::{ReadOptions, Reader};
use crate::replication_map::EffectiveReplicationMap;
use crate::shard_calls::{LearnTruncation, MigrateVote};
use crate::{Consistency, RequestError};

/// Partitions whose votes are read at once.
const STEP_ROWS: u64 = 1_000;
const STEP_BYTES: usize = 1 << 20;
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// A voter's votes on a table, as they are read.
struct Votes<'a> {
    votes: &'a Arc<Table>,
    table: &'a Arc<Table>,
    /// Its shards that own the table's tokens.
    sharder: TableSharder,
    /// When each of its shards truncated the table last.
    truncated_at: &'a [i64],
}

impl Lwt {
    /// Takes over the votes of a range's voters on a table's partitions; the number that each sent.
    pub(crate) async fn carry_votes(
        &self,
        erm: &Rc<EffectiveReplicationMap>,
        table: &Arc<Table>,
        range: TokenRange,
        sources: &Replicas,
    ) -> Result<u64, RequestError> {
        let schema = self.context.schema();
        let Some(votes) = schema.table("system", "paxos") else { return Ok(0) };
        // Rounds before it are over there and must not begin again here; a later TRUNCATE reaches this node, too.
        let mut truncated_at = Vec::with_capacity(sources.len());
        for source in sources.iter().filter(|source| **source != erm.view.own()) {
            let options = ReadOptions {
                consistency: Consistency::Quorum,
                deadline: self.context.rt().now() + STEP_TIMEOUT,
            };
            let asked =
                self.context.remote().truncated_at((&erm.view, *source), table.id, options.deadline).await;
            let reader = Reader::new(&self.context, erm.clone(), options);
            let failed = |error| reader.not_enough(0, sources.len(), false, &[(*source, error)]);
            truncated_at.push((*source, asked.map_err(failed)?));
        }
        // A truncation that was answered is one that all of them have. Of one that has come to some only nothing is over yet.
        let learnt = truncated_at.iter().flat_map(|(_, times)| times).min().copied();
        if let Some(at_micros) = learnt.filter(|at_micros| *at_micros > i64::MIN) {
            let options = ReadOptions {
                consistency: Consistency::Quorum,
                deadline: self.context.rt().now() + STEP_TIMEOUT,
            };
            let reader = Reader::new(&self.context, erm.clone(), options);
            let own = erm.view.own();
            let failed = |error| reader.not_enough(0, sources.len(), false, &[(own, error)]);
            self.learn_truncation(table.id, at_micros).await.map_err(failed)?;
        }
        let mut carried = 0;
        for part in partition_ranges(range) {
            for (source, truncated_at) in &truncated_at {
                let mut command = command_for(votes, table, Partitions::Range(part.clone()), self.seconds());
                let voter = erm.view.node(*source);
                let sharder = erm.view.tablets().sharder(voter.host, voter.shards, table.id);
                let of = Votes { votes, table, sharder, truncated_at };
                loop {
                    let options = ReadOptions {
                        consistency: Consistency::Quorum,
                        deadline: self.context.rt().now() + STEP_TIMEOUT,
                    };
                    let reader = Reader::new(&self.context, erm.clone(), options);
                    let failed = |error| reader.not_enough(0, sources.len(), false, &[(*source, error)]);
                    let body = message::encode_command(&erm.view, &command);
                    let page = reader.page(*source, &command, body, range.upto).await.map_err(failed)?;
                    let rows =
                        page.partitions.iter().filter_map(|found| Some((&found.key, found.rows.first()?)));
                    let migrated = rows.map(|(key, row)| self.carry(&of, key, row));
                    carried += try_join_all(migrated).await.map_err(failed)?.len() as u64;
                    match page.more {
                        Some(more) => command.resume = Some(more),
                        None => break,
                    }
                }
            }
        }
        Ok(carried)
    }

    /// Has all shards of this node remember that a table was truncated before they had a part of it.
    async fn learn_truncation(&self, table: TableId, at_micros: i64) -> Result<(), PeerError> {
        let asked = self.context.port().ask_each(LearnTruncation { table, at_micros });
        join_all(asked).await.into_iter().try_for_each(|learnt| learnt.map_err(PeerError::Invalid))
    }

    pub(super) fn seconds(&self) -> Seconds {
        Seconds::try_from(self.context.rt().wall_micros() / 1_000_000).unwrap_or(0)
    }

    async fn carry(&self, of: &Votes<'_>, key: &DecoratedKey, row: &Row) -> Result<(), PeerError> {
        let Votes { votes, table, .. } = of;
        let shards = usize::from(of.sharder.shard_count());
        assert_eq!(of.truncated_at.len(), shards, "each shard of a voter says when it truncated the table");
        let remembered: Remembered = VoteStore::over(votes, table, key).remembered(row, self.seconds())?;
        let truncated_at = of.truncated_at[usize::from(of.sharder.shard_of(key.token))];
        let state = remembered.state.above(truncation_floor(truncated_at));
        let owner = ShardId(self.context.replica().shard_of(table.id, key.token));
        let vote = Box::new(MigratedVote { table: table.id, key: key.clone(), state });
        Ok(self.context.port().ask(owner, MigrateVote { vote }).await?)
    }

    /// On the shard that owns the partition: merges another voter's state into this one's.
    pub(crate) async fn remember_vote(&self, carried: MigratedVote) -> Result<(), ReplicaError> {
        let MigratedVote { table, key, state } = carried;
        self.assert_owner(table, &key);
        self.make_room(table, &key).await?;
        let _lock = self.state.votes.lock(table, &key).await;
        let schema = self.context.schema();
        let table = schema.table_by_id(table).ok_or(ReplicaError::UnknownTable(table))?;
        let store = VoteStore::new(&schema, table, &key)?;
        self.settle(&store).await?;
        let remembered: Remembered = store.load(&self.context).await?;
        let both = remembered.state.clone().merged(state.above(self.truncation_floor(table.id)));
        assert!(both.promised >= remembered.state.promised, "a voter does not go back on a promise");
        let committed = (both.committed_ballot(), remembered.state.committed_ballot());
        assert!(committed.0 >= committed.1, "a commit that was seen is not forgotten for another's");
        let rounds = |state: &AcceptorState<Value>| {
            (state.promised, state.accepted.as_ref().map(|open| open.ballot), state.committed_ballot())
        };
        if rounds(&both) == rounds(&remembered.state) {
            return Ok(());
        }
        let writing = self.state.unsettled.writing(table.id, &key);
        self.write_merged(&store, &remembered, &both).await?;
        writing.done();
        Ok(())
    }

    async fn write_merged(
        &self,
        store: &VoteStore<'_>,
        remembered: &Remembered,
        both: &AcceptorState<Value>,
    ) -> Result<(), ReplicaError> {
        let now = self.context.rt().wall_micros();
        let change = store.change(remembered, both, now);
        if change.memory_size() > ENTRY_SHARED_MAX {
            return self.remember_large(store, remembered, both).await;
        }
        // A voter that has seen a commit is taken to have its writes: both go into one entry of the log. The rows of the range
        // may have been read, or streamed, before the commit reached the node of the vote. Rows that a truncation under way
        // removes must not be written meanwhile, nor the vote without it: `above` leaves out such a round when it is read.
        match committed_value(&remembered.state, both, now, memory_seconds(store.table)) {
            Some((value, written)) => {
                let write = Write::all(Origin::PaxosCommit, vec![value, change]).synced().in_parts();
                self.context
                    .replica()
                    .apply(write.with_truncation(Truncation::LeavesOut(written.micros)))
                    .await
            }
            None => self.context.replica().apply(Write::one(Origin::System, change).synced()).await,
        }
    }

    /// [`Lwt::remember_vote`] of large values, each in an entry of the log of its own: the write before the vote by which it counts as stored,
    /// and the commit before the proposal that is open.
    async fn remember_large(
        &self,
        store: &VoteStore<'_>,
        remembered: &Remembered,
        both: &AcceptorState<Value>,
    ) -> Result<(), ReplicaError> {
        let (replica, now) = (self.context.replica(), self.context.rt().wall_micros());
        let value = committed_value(&remembered.state, both, now, memory_seconds(store.table));
        if let Some((value, written)) = value {
            let write = Write::one(Origin::PaxosCommit, value).synced().in_parts();
            replica.apply(write.with_truncation(Truncation::LeavesOut(written.micros))).await?;
        }
        let committed = AcceptorState { accepted: remembered.state.accepted.clone(), ..both.clone() };
        let change = store.change(remembered, &committed, now);
        replica.apply(Write::one(Origin::System, change).synced()).await?;
        let between = store.load(&self.context).await?;
        let change = store.change(&between, both, now);
        replica.apply(Write::one(Origin::System, change).synced()).await
    }
}

/// The update of the last commit of `new` and its round, where `old` does not know that commit: none when it is so old that deletions which supersede it may
/// have been purged. Such a write has been repaired, or is one of those that nobody need remember.
pub(super) fn committed_value(
    old: &AcceptorState<Value>,
    new: &AcceptorState<Value>,
    now_micros: i64,
    memory_seconds: Seconds,
) -> Option<(PartitionUpdate, Ballot)> {
    let forgotten = now_micros.saturating_sub(i64::from(memory_seconds) * 1_000_000);
    let commit = new.committed.as_ref().filter(|commit| commit.ballot > old.committed_ballot())?;
    let value = commit.value.as_deref().filter(|_| commit.id.micros >= forgotten)?;
    Some((value.clone(), commit.id))
}

/// Reads a table's votes.
fn command_for(votes: &Arc<Table>, table: &Table, partitions: Partitions, now: Seconds) -> ReadCommand {
    let clustering = Clustering::new(votes, &[Some(&table.id.0)]);
    ReadCommand {
        slices: Slices::new(vec![RowRange::row(&clustering)]),
        limits: Limits { rows: STEP_ROWS, rows_per_partition: u64::MAX, bytes: STEP_BYTES },
        bypass_cache: true,
        ..ReadCommand::all_of(votes.clone(), partitions, now)
    }
}
