//! Reads of the items that an index of storage finds, or of whole partitions, for operations that look at many items and keep few.

use std::collections::BTreeMap;

use exec::backend::Coordinator;
use futures_util::future::try_join_all;
use items::Item;
use mutation::{Clustering, DecoratedKey, PartitionRange, RingPosition, Row};
use replica::{IndexQuery, Limits, Partitions, ReadCommand, ReadPage};
use rt::preempt::Pace;

use super::Dynamo;
use super::page::PAGE_BYTES;
use crate::error::{ApiError, Result};
use crate::intent::Attempt;
use crate::record::Status;
use crate::store::read_consistency;
use crate::table::{ApiTable, RowKey, State};

/// Places that are read at once.
const PLACES: u64 = 1_000;
/// Partitions that are read at once.
const PARTITIONS_AT_ONCE: usize = 16;
/// Rows that are read at once of a partition or of the table.
const ROWS: u64 = 1_000;

/// Takes the items that are read.
pub(super) trait Sink {
    /// Takes an item, or leaves it; the work in steps of 4 KiB.
    fn offer(&mut self, key: RowKey, item: Item) -> usize;

    /// The partition before which no item is wanted.
    fn first_partition(&self) -> Option<&DecoratedKey> {
        None
    }

    /// Whether no item behind those that it was offered is wanted, when they come in the order of the ring.
    fn is_full(&self) -> bool {
        false
    }
}

/// A read under way.
pub(super) struct Reading<'a, S> {
    pub(super) table: &'a ApiTable,
    pub(super) consistent: bool,
    pub(super) sink: S,
    pub(super) pace: Pace,
    decided: BTreeMap<Attempt, Status>,
}

impl<'a, S: Sink> Reading<'a, S> {
    pub(super) fn new(table: &'a ApiTable, consistent: bool, sink: S) -> Self {
        Self { table, consistent, sink, pace: Pace::default(), decided: BTreeMap::new() }
    }
}

/// The result of a look at places of one partition.
enum Looked {
    /// The state of the only row, which is in this shard's memory, where it is live.
    AtRow(RowKey, Option<State>),
    /// The first page of a read of them.
    AtPage(ReadCommand, ReadPage),
}

/// Rows of partitions, in the order of the ring.
pub(super) type Rows = Vec<(DecoratedKey, Vec<Clustering>)>;

impl<C: Coordinator> Dynamo<C> {
    /// Looks at all rows of these partitions.
    pub(super) async fn look_through<S: Sink>(
        &self,
        partitions: Partitions,
        reading: &mut Reading<'_, S>,
    ) -> Result<()> {
        let store = self.store();
        let mut command = ReadCommand {
            limits: Limits { rows: ROWS, bytes: PAGE_BYTES, ..Limits::NONE },
            ..ReadCommand::all_of(reading.table.table.clone(), partitions, store.now())
        };
        loop {
            let mut page = store.read(&command, read_consistency(reading.consistent)).await?;
            command.resume = page.more.take();
            self.take(&command, page, reading).await?;
            if command.resume.is_none() {
                return Ok(());
            }
        }
    }

    /// Looks at the rows of the places that an index of storage finds; false when it is not there yet.
    pub(super) async fn look_at_places<S: Sink>(
        &self,
        query: IndexQuery,
        reading: &mut Reading<'_, S>,
    ) -> Result<bool> {
        let store = self.store();
        let consistency = read_consistency(reading.consistent);
        let table = reading.table.table.clone();
        let mut places = ReadCommand {
            limits: Limits { rows: PLACES, bytes: PAGE_BYTES, ..Limits::NONE },
            index: Some(query.into()),
            ..ReadCommand::all_of(table, Partitions::Range(PartitionRange::all()), store.now())
        };
        if let Some(start) = reading.sink.first_partition() {
            let range = PartitionRange {
                start: RingPosition::BeforeKey(start.clone()),
                end: RingPosition::AfterToken(i64::MAX),
            };
            places.partitions = Partitions::Range(range);
        }
        loop {
            let deadline = self.store().deadline(self.executor.limits().range_timeout);
            let page = match self.executor.coordinator().read(&places, consistency, deadline).await {
                Err(error) if error.is_index_unavailable() => return Ok(false),
                page => page?,
            };
            let rows = page.partitions.into_iter().map(|partition| {
                (partition.key, partition.rows.into_iter().map(|row| row.clustering).collect())
            });
            self.look_at_rows(rows.collect(), reading).await?;
            match page.more {
                Some(more) if !reading.sink.is_full() => places.resume = Some(more),
                _ => return Ok(true),
            }
        }
    }

    /// Looks at these rows, as far as items are wanted.
    pub(super) async fn look_at_rows<S: Sink>(&self, rows: Rows, reading: &mut Reading<'_, S>) -> Result<()> {
        let (store, table) = (self.store(), reading.table);
        let (consistency, now) = (read_consistency(reading.consistent), store.now());
        for chunk in rows.chunks(PARTITIONS_AT_ONCE) {
            let reads = chunk.iter().map(|(key, rows)| async {
                if let [row] = rows.as_slice() {
                    let place = RowKey { partition: key.clone(), clustering: row.clone() };
                    let look = |row: Option<&Row>| row.map(|row| table.state(&place, row, now)).transpose();
                    let seen = store.row_here(table, (key, row), (consistency, now), look);
                    if let Some(state) = seen {
                        return Ok(Looked::AtRow(place, state?));
                    }
                }
                let command = ReadCommand {
                    limits: Limits { rows: ROWS, bytes: PAGE_BYTES, ..Limits::NONE },
                    ..table.read_rows(key, rows.iter(), now)
                };
                let page = store.read(&command, consistency).await?;
                Ok::<_, ApiError>(Looked::AtPage(command, page))
            });
            for looked in try_join_all(reads).await? {
                let (mut command, mut page) = match looked {
                    Looked::AtPage(command, page) => (command, page),
                    Looked::AtRow(place, state) => {
                        if let Some(state) = state {
                            self.offer(place, state, reading).await?;
                        }
                        continue;
                    }
                };
                command.resume = page.more.take();
                self.take(&command, page, reading).await?;
                while command.resume.is_some() {
                    let mut page = store.read(&command, consistency).await?;
                    command.resume = page.more.take();
                    self.take(&command, page, reading).await?;
                }
            }
            if reading.sink.is_full() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Offers the items of a page.
    async fn take<S: Sink>(
        &self,
        command: &ReadCommand,
        page: ReadPage,
        reading: &mut Reading<'_, S>,
    ) -> Result<()> {
        for partition in &page.partitions {
            for row in partition.rows.iter().filter(|row| row.is_live(command.now)) {
                let key = RowKey { partition: partition.key.clone(), clustering: row.clustering.clone() };
                let state = reading.table.state(&key, row, command.now)?;
                self.offer(key, state, reading).await?;
            }
        }
        Ok(())
    }

    /// Offers the item of a row.
    async fn offer<S: Sink>(&self, key: RowKey, state: State, reading: &mut Reading<'_, S>) -> Result<()> {
        reading.pace.step().await;
        let item: Option<Item> = match &state.intent {
            Some(intent) if reading.consistent => {
                let key = reading.table.key_of_row(&key)?;
                self.store().visible(state.item, &key, Some(intent), &mut reading.decided).await?
            }
            _ => state.item,
        };
        if let Some(item) = item {
            let work = reading.sink.offer(key, item);
            reading.pace.count(work);
        }
        Ok(())
    }
}
