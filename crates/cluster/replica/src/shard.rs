//! One shard's replica: its engine, and the way to the engines of the other shards.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use engine::{
    Engine, EngineStats, LocalFigures, Marked, RepairedWatermark, Rewrite, RewriteReport, Sampled,
    SstableFigures, StopRequest, TableHistograms, TableSize, TokenSpan,
};
use futures_util::future::{join_all, try_join_all};
use mutation::{DecoratedKey, PartitionUpdate, Repaired, Row};
use rt::mesh::Port;
use rt::{Instant, Rt, ShardCall, ShardId};
use schema::{Schema, TableId};

use crate::message;
use crate::trace::found;
use crate::{
    Keys, Limits, Origin, Partitions, Read, ReadCommand, ReadPage, ReplicaError, RowLookup, Scope,
    ShardRequest, ShardResponse, TableOperation, TombstoneLimit, Write, read, scan,
};

/// The settings of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaConfig {
    /// Tombstones that a read may step over before it fails (`tombstone_failure_threshold`).
    pub tombstone_failure_threshold: u64,
}

/// One shard's access to the data of its node. Cheap to clone.
#[derive(Clone)]
pub struct Replica(Rc<Inner>);

struct Inner {
    rt: Rt,
    shard: ShardId,
    engine: Engine,
    port: Port<ShardRequest, ShardResponse>,
    config: Cell<ReplicaConfig>,
}

impl Replica {
    /// A replica that nobody can call yet: [`Replica::new`] has the other shards reach it.
    pub(crate) fn over(
        rt: &Rt,
        engine: Engine,
        port: Port<ShardRequest, ShardResponse>,
        config: ReplicaConfig,
    ) -> Self {
        Self(Rc::new(Inner { rt: rt.clone(), shard: rt.shard(), engine, port, config: Cell::new(config) }))
    }

    /// Shards of this node.
    pub fn shard_count(&self) -> u16 {
        self.0.rt.shard_count()
    }

    /// The shard of this node that owns a token of a table.
    #[inline]
    pub fn shard_of(&self, table: TableId, token: i64) -> u16 {
        self.0.engine.shard_of(table, token)
    }

    /// This shard's engine.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Reads, from whichever shards own the partitions.
    ///
    /// # Errors
    ///
    /// [`ReplicaError::TooManyTombstones`], [`ReplicaError::UnknownTable`], [`ReplicaError::Stopped`]; [`ReplicaError::Storage`] when the
    /// disk fails, or the mark above which is to be read means nothing any more.
    pub async fn read(&self, read: Read<'_>) -> Result<ReadPage, ReplicaError> {
        match self.only_shard_of(&read) {
            Some(shard) if shard == self.0.shard.0 && read.trace.is_none() => self.read_own(&read).await,
            Some(shard) => Box::pin(self.read_one(shard, read)).await,
            None => Box::pin(self.read_several(read)).await,
        }
    }

    /// Hands the live row that a lookup, which began some time ago, finds to `visit` where it lies; its result, and the tombstones in the row. None when another
    /// shard owns the partition or memory does not know all of it, and when the read is to fail: then [`Replica::read`] is to be used, and
    /// nothing was counted.
    #[inline]
    pub fn row_here<T>(
        &self,
        lookup: &RowLookup<'_>,
        began: Instant,
        visit: impl FnOnce(Option<&Row>) -> T,
    ) -> Option<(T, u64)> {
        let inner = &*self.0;
        if self.shard_of(lookup.table.id, lookup.key.token) != inner.shard.0 {
            return None;
        }
        let tombstones_max = inner.config.get().tombstone_failure_threshold;
        let visit = |row: Option<&Row>| Some((visit(row), row.is_some()));
        let found = read::visit_row(&inner.engine, lookup, tombstones_max, visit).ok()?;
        let ((seen, is_live), tombstones) = found?;
        if let Some(measured) = inner.engine.read_began(lookup.table.id, began) {
            inner.engine.read_ended(measured, u64::from(is_live), tombstones);
        }
        Some((seen, tombstones))
    }

    /// The shard that a read is of, if it is of one.
    fn only_shard_of(&self, read: &Read<'_>) -> Option<u16> {
        match &read.command.partitions {
            _ if read.scope != Scope::Node => Some(self.0.shard.0),
            Partitions::Keys(keys) if keys.len() == 1 => {
                Some(self.shard_of(read.command.table.id, keys[0].token))
            }
            _ if self.shard_count() == 1 => Some(0),
            _ => None,
        }
    }

    /// Changes the settings, for the reads that begin from now on.
    pub fn set_config(&self, config: ReplicaConfig) {
        self.0.config.set(config);
    }

    /// Reads the rows of this shard.
    pub(crate) async fn read_own(&self, read: &Read<'_>) -> Result<ReadPage, ReplicaError> {
        let above = match read.scope {
            Scope::Node | Scope::Shard => None,
            Scope::ShardAbove(mark) => Some(mark),
        };
        let tombstones_max = match read.tombstones {
            TombstoneLimit::Configured => self.0.config.get().tombstone_failure_threshold,
            TombstoneLimit::Unlimited => u64::MAX,
        };
        let command = read.command;
        let is_scan = matches!(command.partitions, Partitions::Range(_));
        let measured = self.0.engine.read_begins(command.table.id, is_scan);
        let page = read::read(&self.0.engine, command, above, tombstones_max).await;
        if let (Some(measured), Ok(page)) = (measured, &page) {
            let rows = page.partitions.iter().map(|partition| partition.rows.len() as u64).sum();
            self.0.engine.read_ended(measured, rows, page.tombstones);
        }
        page
    }

    /// Reads from one shard, which must own every partition of the command that it is to find.
    pub(crate) async fn read_one(&self, shard: u16, read: Read<'_>) -> Result<ReadPage, ReplicaError> {
        if shard == self.0.shard.0 {
            return match read.trace {
                None => self.read_own(&read).await,
                Some(trace) => self.read_own_traced(&read, trace).await,
            };
        }
        self.record(read.trace, || format!("Sending READ to shard {shard}"));
        let Read { command, tombstones, trace, .. } = read;
        let call = message::Read { command: command.clone(), tombstones, is_traced: trace.is_some() };
        let (page, events) = self.call(shard, call).await;
        self.take_steps(trace, shard, events);
        page
    }

    async fn read_several(&self, read: Read<'_>) -> Result<ReadPage, ReplicaError> {
        let name = || read.command.table.full_name();
        self.record(read.trace, || format!("Reading {} from {} shards", name(), self.shard_count()));
        // Of the whole; each shard's own steps are not told.
        let untraced = read.traced(None);
        let page = match &read.command.partitions {
            Partitions::Keys(keys) => self.read_keys(keys, untraced).await?,
            Partitions::Range(_) => {
                let part = async |shard, command: ReadCommand| {
                    self.read_one(shard, Read { command: &command, ..untraced }).await
                };
                scan::scan(untraced.command, self.shard_count(), part).await?
            }
        };
        self.record(read.trace, || found(&page));
        Ok(page)
    }

    /// Several partitions in the order of the command, each from its shard, until the page is full.
    async fn read_keys(&self, keys: &Keys, read: Read<'_>) -> Result<ReadPage, ReplicaError> {
        let command = read.command;
        let limits = command.limits;
        let mut page = ReadPage::default();
        let (mut rows, mut bytes) = (0, 0);
        let mut resume = command.resume.clone();
        let start = match &resume {
            Some(resume) => keys.iter().position(|key| *key == resume.key).unwrap_or(0),
            None => 0,
        };
        for (at, key) in keys.iter().enumerate().skip(start) {
            let one = ReadCommand {
                partitions: Partitions::Keys(Keys::from_elem(key.clone(), 1)),
                limits: Limits { rows: limits.rows - rows, bytes: limits.bytes - bytes, ..limits },
                resume: resume.take(),
                ..command.clone()
            };
            let part = self
                .read_one(self.shard_of(command.table.id, key.token), Read { command: &one, ..read })
                .await?;
            page.truncated_at =
                if at == start { part.truncated_at } else { page.truncated_at.min(part.truncated_at) };
            rows += part.partitions.iter().map(|p| p.row_count(command.now)).sum::<u64>();
            bytes +=
                part.partitions.iter().flat_map(|p| &p.rows).map(mutation::Row::memory_size).sum::<usize>();
            page.tombstones += part.tombstones;
            page.partitions.extend(part.partitions);
            if rows >= limits.rows || bytes >= limits.bytes || part.more.is_some() {
                let last = at + 1 == keys.len();
                page.more = part.more.filter(|more| !last || more.clustering.is_some());
                break;
            }
        }
        Ok(page)
    }

    /// Applies a write: updates of one shard all or none.
    ///
    /// # Errors
    ///
    /// [`ReplicaError::Truncated`] as the write's rule says, [`ReplicaError::UnknownTable`], [`ReplicaError::MutationTooLarge`]: nothing
    /// was written to that shard. After others, and when it is of several shards, it may have been.
    pub async fn apply(&self, write: Write<'_>) -> Result<(), ReplicaError> {
        if write.is_plain() && self.owns(&write.updates) {
            return Ok(self.0.engine.apply(write.whole_on(self.0.shard.0)).await?);
        }
        Box::pin(self.apply_with_care(write)).await
    }

    /// Takes and applies one update of a write that began some time ago, if this shard owns it and nothing has to be waited for. An
    /// update that is left was not applied: [`Replica::apply`] is to be used.
    #[inline]
    pub fn apply_now(&self, origin: Origin, began: Instant, update: &mut Option<PartitionUpdate>) {
        if update.as_ref().is_some_and(|update| self.owns(std::slice::from_ref(update))) {
            self.0.engine.apply_now(origin, began, update);
        }
    }

    /// Whether this shard owns all of these.
    pub fn owns(&self, updates: &[PartitionUpdate]) -> bool {
        updates.iter().all(|update| self.shard_of(update.table.id, update.key.token) == self.0.shard.0)
    }

    /// Figures of the messages between shards.
    pub fn port_stats(&self) -> rt::PortStats {
        self.0.port.stats()
    }

    /// Whether one shard owns all of these.
    pub fn is_one_shard(&self, updates: &[PartitionUpdate]) -> bool {
        if self.shard_count() == 1 {
            return true;
        }
        let mut shards = updates.iter().map(|update| self.shard_of(update.table.id, update.key.token));
        let first = shards.next();
        shards.all(|shard| Some(shard) == first)
    }

    /// When this shard's part of a table was truncated last, microseconds since 1970; the least number when it never was.
    pub fn truncated_at(&self, table: TableId) -> i64 {
        self.0.engine.truncated_at(table)
    }

    /// Counts on the owning shard; gives the state to replicate.
    ///
    /// # Errors
    /// [`ReplicaError::UnknownTable`], [`ReplicaError::MutationTooLarge`], [`ReplicaError::Truncated`],
    /// [`ReplicaError::Storage`] when the present value cannot be read or the write not stored,
    /// [`ReplicaError::Stopped`].
    pub async fn increment(&self, update: PartitionUpdate) -> Result<PartitionUpdate, ReplicaError> {
        let shard = self.shard_of(update.table.id, update.key.token);
        if shard == self.0.shard.0 {
            return Ok(self.0.engine.increment(update).await?);
        }
        self.call(shard, message::Increment { update }).await
    }

    /// Carries out a maintenance operation on all shards at once; the first error is returned when all have ended.
    ///
    /// # Errors
    /// [`ReplicaError::UnknownTable`], [`ReplicaError::Storage`] with the reason, [`ReplicaError::Stopped`].
    pub async fn table_operation(
        &self,
        table: TableId,
        operation: TableOperation,
    ) -> Result<(), ReplicaError> {
        self.table_operation_on_each(table, operation).await.into_iter().collect()
    }

    /// [`Replica::table_operation`] with the outcome on each shard.
    ///
    /// # Errors
    /// As [`Replica::table_operation`], for each shard.
    pub async fn table_operation_on_each(
        &self,
        table: TableId,
        operation: TableOperation,
    ) -> Vec<Result<(), ReplicaError>> {
        join_all(self.0.port.ask_each(message::Operate { table, operation })).await
    }

    /// Writes a table's SSTables anew on all shards, or verifies them; the first error is returned when all have ended.
    ///
    /// # Errors
    /// As [`Replica::table_operation`]. SSTables that were written anew stay.
    pub async fn rewrite_sstables(
        &self,
        table: TableId,
        how: Rewrite,
    ) -> Result<RewriteReport, ReplicaError> {
        let mut all = RewriteReport::default();
        for report in join_all(self.0.port.ask_each(message::RewriteSstables { table, how })).await {
            all.merge(report?);
        }
        Ok(all)
    }

    /// Has operations on SSTables end on all shards that an operator means; how many there are.
    pub async fn stop_operations(&self, wanted: StopRequest) -> u64 {
        join_all(self.0.port.ask_each(message::StopOperations { wanted })).await.into_iter().sum()
    }

    /// Removes the directory of a table that every shard has dropped; whether nothing is left to do.
    ///
    /// # Errors
    /// [`ReplicaError::Storage`] when the directory cannot be listed or removed.
    pub async fn remove_dropped_dir(
        &self,
        keyspace: &str,
        name: &str,
        id: TableId,
    ) -> Result<bool, ReplicaError> {
        let removed = self.0.engine.remove_dropped_dir(keyspace, name, id).await;
        removed.map_err(|error| ReplicaError::Storage(error.to_string()))
    }

    /// Hands a schema to all shards and returns when every one uses it.
    pub async fn set_schema(&self, schema: &Arc<Schema>) {
        join_all(self.0.port.ask_each(message::SetSchema { schema: schema.clone() })).await;
    }

    /// Gives all shards the repair times of a table's ranges.
    pub async fn set_repaired(&self, table: TableId, repaired: Arc<Repaired>) {
        // A shard that has stopped forgets nothing any more.
        join_all(self.0.port.ask_each(message::SetRepaired { table, repaired })).await;
    }

    /// Has every shard cover the content of a table's SSTables by a watermark, after flushing if `flush`. In shard order.
    ///
    /// # Errors
    /// As [`Replica::table_operation`], of the first shard that fails.
    pub async fn take_marks(&self, table: TableId, flush: bool) -> Result<Vec<Marked>, ReplicaError> {
        try_join_all(self.0.port.ask_each(message::TakeMark { table, flush })).await
    }

    /// Has every shard keep SSTables apart in compactions that its watermark covers; watermarks are in shard order.
    pub async fn set_repaired_upto(&self, table: TableId, marks: &[RepairedWatermark]) {
        let shards = (0..self.shard_count()).zip(marks);
        let tell = |(shard, mark): (u16, &RepairedWatermark)| {
            self.call(shard, message::SetRepairedUpto { table, mark: *mark })
        };
        // A shard that has stopped compacts nothing any more.
        join_all(shards.map(tell)).await;
    }

    /// Notifies all shards that a repair which had begun with these marks, in shard order, compared tokens, and which of them the node owns: rows
    /// of them that damage had lost are there again.
    pub async fn damage_repaired(
        &self,
        table: TableId,
        repaired: TokenSpan,
        marks: &[RepairedWatermark],
        owned: Vec<TokenSpan>,
    ) {
        let owned = Arc::new(owned);
        let tell = |(shard, mark): (u16, &RepairedWatermark)| {
            self.call(shard, message::RangeRepaired { table, repaired, mark: *mark, owned: owned.clone() })
        };
        // A shard that has stopped repairs nothing any more.
        join_all((0..self.shard_count()).zip(marks).map(tell)).await;
    }

    /// Returns when a power failure cannot undo the earlier writes to a table, on any shard.
    ///
    /// # Errors
    /// As [`Replica::table_operation`], of the first shard that fails.
    pub async fn make_durable(&self, table: TableId) -> Result<(), ReplicaError> {
        try_join_all(self.0.port.ask_each(message::MakeDurable { table })).await?;
        Ok(())
    }

    /// Figures of all shards, in shard order.
    pub async fn stats(&self) -> Vec<EngineStats> {
        join_all(self.0.port.ask_each(message::Stats {})).await.into_iter().map(|stats| *stats).collect()
    }

    /// About how much a table holds on this node.
    pub async fn table_size(&self, table: TableId) -> TableSize {
        let mut size = TableSize::default();
        join_all(self.0.port.ask_each(message::TableSizeOfShard { table }))
            .await
            .into_iter()
            .for_each(|part| size.merge(part));
        size
    }

    /// The indexes that can be queried on every shard, by table and name.
    pub async fn built_indexes(&self) -> Vec<(TableId, String)> {
        let shards = join_all(self.0.port.ask_each(message::BuiltIndexes {})).await;
        let Some((first, others)) = shards.split_first() else { return Vec::new() };
        let is_everywhere = |built: &&(TableId, String)| others.iter().all(|shard| shard.contains(built));
        first.iter().filter(is_everywhere).cloned().collect()
    }

    /// The requests of each table that had any, on all shards together.
    pub async fn local_figures(&self) -> BTreeMap<TableId, LocalFigures> {
        let mut sums: BTreeMap<TableId, LocalFigures> = BTreeMap::new();
        let shards = join_all(self.0.port.ask_each(message::LocalFiguresOfShard {})).await;
        for (table, figures) in shards.into_iter().flatten() {
            sums.entry(table).or_default().merge(&figures);
        }
        sums
    }

    /// The distributions of a table's requests and partitions, over all shards; none when no shard stores the table.
    pub async fn table_histograms(&self, table: TableId) -> Option<TableHistograms> {
        let shards = join_all(self.0.port.ask_each(message::HistogramsOfShard { table })).await;
        shards.into_iter().flatten().map(|histograms| *histograms).reduce(|mut all, other| {
            all.merge(&other);
            all
        })
    }

    /// The tokens of sampled partitions of a table's SSTables, in no order.
    pub async fn sampled_tokens(&self, table: TableId) -> Vec<i64> {
        let shards = join_all(self.0.port.ask_each(message::SampledTokens { table })).await;
        shards.into_iter().flatten().collect()
    }

    /// Paths of the data files of this node that hold rows or deletions of the partition of this key.
    ///
    /// # Errors
    /// [`ReplicaError::UnknownTable`]; those of a file that cannot be read.
    pub async fn sstables_of(&self, table: TableId, key: Vec<u8>) -> Result<Vec<PathBuf>, ReplicaError> {
        let key = DecoratedKey::new(key.into());
        self.call(self.shard_of(table, key.token), message::SstablesOf { table, key }).await
    }

    /// The SSTables of a table on all shards.
    ///
    /// # Errors
    /// [`ReplicaError::UnknownTable`]; [`ReplicaError::Storage`] when the size of a file cannot be read.
    pub async fn sstables(&self, table: TableId) -> Result<Vec<SstableFigures>, ReplicaError> {
        let shards = join_all(self.0.port.ask_each(message::SstablesOfShard { table })).await;
        shards.into_iter().collect::<Result<Vec<_>, _>>().map(|all| all.into_iter().flatten().collect())
    }

    /// Names of the commit log's segments that hold entries, and of those that wait for the archive, of all shards.
    pub async fn commitlog_segments(&self) -> [Vec<String>; 2] {
        let mut all = [Vec::new(), Vec::new()];
        for shard in join_all(self.0.port.ask_each(message::CommitLogSegments {})).await {
            all.iter_mut().zip(shard).for_each(|(all, names)| all.extend(names));
        }
        all
    }

    /// Has all shards count which partitions of a table are asked for from now on, in so many places each, or end that with none.
    /// The counts until now.
    pub async fn sample(&self, table: TableId, places: Option<usize>) -> Option<Sampled> {
        let all = join_all(self.0.port.ask_each(message::Sample { table, places })).await;
        all.into_iter().flatten().map(|sampled| *sampled).reduce(|mut all, sampled| {
            all.merge(sampled);
            all
        })
    }

    pub(crate) fn own_shard(&self) -> u16 {
        self.0.shard.0
    }

    pub(crate) fn rt(&self) -> &Rt {
        &self.0.rt
    }

    pub(crate) fn port(&self) -> &Port<ShardRequest, ShardResponse> {
        &self.0.port
    }

    pub(crate) async fn call<C>(&self, shard: u16, call: C) -> C::Answer
    where
        C: ShardCall<Request = ShardRequest, Response = ShardResponse>,
    {
        self.0.port.ask(ShardId(shard), call).await
    }
}
