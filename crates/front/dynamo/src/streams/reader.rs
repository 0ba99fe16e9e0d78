//! Reads a shard: the streams of the log that have its changes, generation after generation, merged by the order of their writes.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cdc::StreamId;
use coordinator::{Consistency, RequestError};
use exec::backend::Coordinator;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use mutation::{Bound, DecoratedKey, Row, RowRange, Side, Slices};
use replica::{Keys, Limits, Partitions, ReadCommand, ReadPage, Resume};
use rt::preempt::Pace;
use schema::{CdcGeneration, Table};

use crate::error::Result;
use crate::store::Store;
use crate::streams::change::{Change, LogColumns};
use crate::streams::definition::Stream;
use crate::streams::position::Position;
use crate::streams::record::{Record, record};
use crate::streams::shard::{KnownStreams, shard_of};
use crate::table::ApiTable;

/// Bytes of the records of one answer; the record that passes it is the last.
const BYTES_MAX: usize = 1 << 20;
/// Changes that are looked at for one answer, also those that it does not show.
const CHANGES_MAX: usize = 10_000;
/// Bytes of the log that are held at once for one answer, but for the last row of each of its streams.
const HELD_BYTES: usize = 4 << 20;
/// Rows of the log that are read of a stream at once.
const PAGE_ROWS: u64 = 256;
/// Streams of the log that are read at the same time.
const AT_ONCE: usize = 16;
/// How long all replicas are waited for before those of a quorum have to do, for an answer.
const ALL_REPLICAS_TIMEOUT: Duration = Duration::from_secs(1);
/// The same for work in the background.
const JOB_TIMEOUT: Duration = Duration::from_secs(10);

/// The records of one answer.
pub(crate) struct Records {
    pub(crate) shown: Vec<Record>,
    /// Where the next answer begins.
    pub(crate) next: Position,
}

/// A part of a shard's changes that was read.
pub(crate) struct Walked {
    /// Where the next part begins.
    pub(crate) next: Position,
    /// A deletion of a partition or a range of rows, of which the log does not have the items: its time, microseconds since 1970.
    pub(crate) unseen_micros: Option<i64>,
}

/// A read of a shard.
pub(crate) struct ShardRead<'a> {
    table: &'a ApiTable,
    log: &'a Arc<Table>,
    /// The table has two to the power of this many shards.
    shard_bits: u32,
    shard: u32,
    /// The first microsecond that is not read.
    until_micros: i64,
    /// The streams of the log that were looked for before.
    known: &'a KnownStreams,
    /// How long all replicas are waited for before those of this level have to do.
    patience: Duration,
    least: Consistency,
}

/// A stream of the log while it is read.
struct Cursor {
    id: StreamId,
    resume: Option<Resume>,
    /// Nothing is left to be read.
    is_read: bool,
    /// The rows of a write of which some are still to be read.
    partial: Vec<Row>,
    changes: VecDeque<Change>,
}

impl<'a> ShardRead<'a> {
    /// The read for an answer to a client.
    pub(crate) fn of_stream(
        (table, log): (&'a ApiTable, &'a Arc<Table>),
        (stream, shard): (&Stream, u32),
        until_micros: i64,
        known: &'a KnownStreams,
    ) -> Self {
        let (patience, least) = (ALL_REPLICAS_TIMEOUT, Consistency::LocalQuorum);
        Self { table, log, shard_bits: stream.shard_bits, shard, until_micros, known, patience, least }
    }

    /// The read of a shard of so many for work in the background, which waits longer for all replicas and does not do with those of one datacenter.
    pub(crate) fn of_job<C: Coordinator>(
        (table, log): (&'a ApiTable, &'a Arc<Table>),
        (shard_bits, shard): (u32, u32),
        until_micros: i64,
        (known, store): (&'a KnownStreams, &Store<'_, C>),
    ) -> Self {
        let (patience, least) = (JOB_TIMEOUT, store.settled_consistency(&table.table));
        Self { table, log, shard_bits, shard, until_micros, known, patience, least }
    }

    /// At most `limit` records of a stream from a place on.
    pub(crate) async fn records<C: Coordinator>(
        &self,
        store: &Store<'_, C>,
        stream: &Stream,
        from: Position,
        limit: usize,
    ) -> Result<Records> {
        let (arn, mut shown, mut bytes) = (stream.arn(self.table.name()), Vec::new(), 0);
        let mut take = |change: Change| {
            if let Some(record) = record(&change, stream.view, &arn) {
                // A record may be sent in many times the bytes that it counts for.
                bytes += record.bytes.max(record.text.len() / 8);
                shown.push(record);
            }
            shown.len() >= limit || bytes >= BYTES_MAX
        };
        let next = self.walk(store, from, &mut take).await?.next;
        Ok(Records { shown, next })
    }

    /// Changes from a place on, of about so many bytes, and how far they go.
    pub(crate) async fn changes<C: Coordinator>(
        &self,
        store: &Store<'_, C>,
        from: Position,
        bytes_max: usize,
    ) -> Result<(Vec<Change>, Walked)> {
        let (mut changes, mut bytes) = (Vec::new(), 0);
        let mut take = |change: Change| {
            bytes += change.bytes();
            changes.push(change);
            bytes >= bytes_max
        };
        let walked = self.walk(store, from, &mut take).await?;
        Ok((changes, walked))
    }

    /// Hands on changes from a place on, in their order, until `take` says that this one was the last or [`CHANGES_MAX`] were handed on.
    pub(crate) async fn walk<C: Coordinator>(
        &self,
        store: &Store<'_, C>,
        from: Position,
        take: &mut dyn FnMut(Change) -> bool,
    ) -> Result<Walked> {
        let columns = LogColumns::new(self.table, self.log)?;
        let schema = store.executor.coordinator().schema();
        let generations = schema.cdc_generations();
        let from = match generations.last().filter(|_| store.canaries.newest_generation_alone) {
            Some(newest) => from.max(Position::before(newest.start_micros())),
            None => from,
        };
        let mut merge = Merge {
            read: self,
            columns,
            asks_all: Cell::new(true),
            unseen: Cell::default(),
            take,
            next: from,
            seen: 0,
        };
        while merge.next.micros < self.until_micros {
            let begun =
                generations.partition_point(|generation| generation.start_micros() <= merge.next.micros);
            let Some(generation) = generations.get(begun.saturating_sub(1)) else { break };
            // A write goes to the generation that its timestamp is of.
            let end = generations.get(begun.max(1)).map_or(i64::MAX, |next| next.start_micros());
            let end = end.min(self.until_micros);
            if !merge.generation(store, generation, end).await? {
                break;
            }
        }
        Ok(Walked { next: merge.next, unseen_micros: merge.unseen.get() })
    }
}

/// A merge of streams of the log.
struct Merge<'a> {
    read: &'a ShardRead<'a>,
    columns: LogColumns,
    /// All replicas are asked, as none has failed to answer.
    asks_all: Cell<bool>,
    /// The first time of a deletion whose items the log does not have.
    unseen: Cell<Option<i64>>,
    take: &'a mut dyn FnMut(Change) -> bool,
    next: Position,
    seen: usize,
}

impl Merge<'_> {
    /// Hands on the changes of a generation up to a time; whether all of them were taken.
    async fn generation<C: Coordinator>(
        &mut self,
        store: &Store<'_, C>,
        generation: &CdcGeneration,
        end_micros: i64,
    ) -> Result<bool> {
        let read = self.read;
        let ids = read.known.of_shard(generation, read.shard_bits, read.shard).await;
        let page_bytes = HELD_BYTES / ids.len().max(1);
        let rows = RowRange {
            start: Bound::new(read.log, &[Some(&self.next.time())], Side::Before),
            end: Bound::new(read.log, &[Some(&Position::before(end_micros).time())], Side::Before),
        };
        let command = ReadCommand {
            slices: Slices::new(vec![rows]),
            limits: Limits { rows: PAGE_ROWS, bytes: page_bytes, ..Limits::NONE },
            bypass_cache: true,
            ..ReadCommand::all_of(read.log.clone(), Partitions::Keys(Keys::new()), store.now())
        };
        let mut cursors: Vec<Cursor> = ids.into_iter().map(Cursor::new).collect();
        let mut pace = Pace::default();
        loop {
            let dry = cursors.iter_mut().filter(|cursor| cursor.changes.is_empty() && !cursor.is_read);
            let this = &*self;
            let fills = stream::iter(dry.map(|cursor| cursor.fill(this, store, &command)));
            fills.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
            let heads = cursors.iter_mut().filter(|cursor| !cursor.changes.is_empty());
            let next = heads.min_by_key(|cursor| cursor.changes.front().map(|change| change.position));
            let Some(change) = next.and_then(|cursor| cursor.changes.pop_front()) else {
                self.next = Position::before(end_micros);
                return Ok(true);
            };
            pace.count(cursors.len() / 16);
            pace.step().await;
            if self.hand_on(change) {
                return Ok(false);
            }
        }
    }

    /// Hands on a change; whether it was the last.
    fn hand_on(&mut self, change: Change) -> bool {
        let read = self.read;
        // A stream of the log may have changes of the shard beside this one.
        let is_own = shard_of(read.shard_bits, change.token) == read.shard;
        if change.position < self.next || !is_own {
            return false;
        }
        self.seen += 1;
        self.next = change.position.next();
        (self.take)(change) || self.seen >= CHANGES_MAX
    }
}

impl Merge<'_> {
    /// Reads a page of the log, of all replicas if they answer: a row that only one of them has, of a write that was answered with a failure, is
    /// in the stream as well.
    async fn page<C: Coordinator>(&self, store: &Store<'_, C>, command: &ReadCommand) -> Result<ReadPage> {
        if self.asks_all.get() {
            let executor = store.executor;
            let timeout = self.read.patience.min(executor.limits().read_timeout);
            let deadline = executor.clock().now() + timeout;
            match executor.coordinator().read(command, Consistency::All, deadline).await {
                Ok(page) => return Ok(page),
                Err(RequestError::Unavailable { .. } | RequestError::ReadTimeout { .. }) => {
                    self.asks_all.set(false);
                }
                Err(error) => return Err(error.into()),
            }
        }
        store.read(command, self.read.least).await
    }
}

impl Cursor {
    fn new(id: StreamId) -> Self {
        Self { id, resume: None, is_read: false, partial: Vec::new(), changes: VecDeque::new() }
    }

    /// Reads on until there is a change, or nothing is left.
    async fn fill<C: Coordinator>(
        &mut self,
        merge: &Merge<'_>,
        store: &Store<'_, C>,
        command: &ReadCommand,
    ) -> Result<()> {
        let mut command = command.clone();
        let key = DecoratedKey::new(Bytes::copy_from_slice(&self.id.0));
        command.partitions = Partitions::Keys(Keys::from_iter([key]));
        let mut pace = Pace::default();
        while self.changes.is_empty() && !self.is_read {
            command.resume = self.resume.take();
            let mut page = merge.page(store, &command).await?;
            self.resume = page.more.take();
            self.is_read = self.resume.is_none();
            let rows = page.partitions.into_iter().flat_map(|partition| partition.rows);
            for row in rows.filter(|row| row.is_live(command.now)) {
                pace.count(row.memory_size() / 4096);
                pace.step().await;
                let ends = merge.columns.ends_write(&row);
                self.partial.push(row);
                if ends {
                    self.end_write(merge);
                }
            }
            if self.is_read {
                self.end_write(merge);
            }
        }
        Ok(())
    }

    fn end_write(&mut self, merge: &Merge<'_>) {
        let rows = std::mem::take(&mut self.partial);
        if let Some(micros) = merge.columns.unseen_deletion(&rows) {
            merge.unseen.set(Some(merge.unseen.get().map_or(micros, |before| before.min(micros))));
        }
        self.changes.extend(merge.columns.changes(merge.read.table, &rows));
    }
}
