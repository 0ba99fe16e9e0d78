//! One shard's replica: its engine, and the way to the engines of the other shards.

use std::rc::Rc;
use std::sync::Arc;

use engine::{Engine, EngineStats, Mark, Marked, Sampled, Since, TokenSpan};
use futures_util::future::{join_all, try_join_all};
use mutation::{PartitionUpdate, Repaired};
use rt::mesh::Port;
use rt::{Group, Rt, ShardId};
use schema::{Schema, TableId};
use topology::Sharder;

use crate::{
    Keys, Limits, Partitions, ReadCommand, ReadPage, ReplicaError, ShardRequest, ShardResponse,
    TableOperation, TraceLog, read, scan,
};

/// What a replica is told by the node's configuration.
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
    sharder: Sharder,
    engine: Engine,
    port: Port<ShardRequest, ShardResponse>,
    config: ReplicaConfig,
}

impl Replica {
    /// A replica over this shard's engine. Serves the other shards from now on through `port`.
    pub fn new(
        rt: &Rt,
        engine: Engine,
        port: Port<ShardRequest, ShardResponse>,
        config: ReplicaConfig,
    ) -> Self {
        let inner = Inner {
            rt: rt.clone(),
            shard: rt.shard(),
            sharder: Sharder::new(rt.shard_count()),
            engine,
            port: port.clone(),
            config,
        };
        let replica = Self(Rc::new(inner));
        let server = replica.clone();
        port.serve(move |_, request| {
            let replica = server.clone();
            async move { replica.serve(request).await }
        });
        replica
    }

    /// Shards of this node.
    pub fn shard_count(&self) -> u16 {
        self.0.sharder.shard_count()
    }

    /// The shard that owns a token.
    pub fn shard_of(&self, token: i64) -> u16 {
        self.0.sharder.shard_of(token)
    }

    /// This shard's engine.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Reads, from whichever shards own the partitions.
    pub async fn read(&self, command: &ReadCommand) -> Result<ReadPage, ReplicaError> {
        match &command.partitions {
            Partitions::Keys(keys) if keys.len() == 1 => {
                let shard = self.shard_of(keys[0].token);
                self.read_on(shard, command).await
            }
            Partitions::Keys(_) if self.shard_count() == 1 => self.read_on(0, command).await,
            Partitions::Range(_) if self.shard_count() == 1 => self.read_on(0, command).await,
            Partitions::Keys(_) => self.read_keys(command).await,
            Partitions::Range(_) => scan::scan(self, command).await,
        }
    }

    /// Several partitions in the order of the command, each from its shard, until the page is full.
    async fn read_keys(&self, command: &ReadCommand) -> Result<ReadPage, ReplicaError> {
        let Partitions::Keys(keys) = &command.partitions else { unreachable!("only called for keys") };
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
            let part = self.read_on(self.shard_of(key.token), &one).await?;
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

    /// Reads from one shard, which must own every partition of the command that it is to find.
    pub(crate) async fn read_on(&self, shard: u16, command: &ReadCommand) -> Result<ReadPage, ReplicaError> {
        if shard == self.0.shard.0 {
            return read::read(&self.0.engine, command, None, self.0.config.tombstone_failure_threshold)
                .await;
        }
        match self.0.port.call(ShardId(shard), ShardRequest::Read(command.clone())).await {
            ShardResponse::Read(page) => page,
            other => panic!("a read was answered with {other:?}"),
        }
    }

    /// Applies one update on its shard.
    pub async fn apply_one(&self, update: PartitionUpdate) -> Result<(), ReplicaError> {
        let shard = self.shard_of(update.key.token);
        if shard == self.0.shard.0 {
            return Ok(self.0.engine.apply_one(update).await?);
        }
        self.done(shard, ShardRequest::Apply(vec![update])).await
    }

    /// Applies one update on its shard, of a write that began at `begun_micros` where it was taken up.
    ///
    /// # Errors
    ///
    /// [`ReplicaError::Truncated`] when its shard truncated the table then or later: nothing was written.
    pub async fn apply_begun(&self, update: PartitionUpdate, begun_micros: i64) -> Result<(), ReplicaError> {
        let shard = self.shard_of(update.key.token);
        if shard == self.0.shard.0 {
            return Ok(self.0.engine.apply_begun(update, begun_micros).await?);
        }
        self.done(shard, ShardRequest::ApplyBegun(update, begun_micros)).await
    }

    /// Applies updates, those of one shard all or none.
    pub async fn apply(&self, updates: Vec<PartitionUpdate>) -> Result<(), ReplicaError> {
        self.apply_parts(updates, |_| None).await
    }

    /// [`Replica::apply`] of a write that was taken up at `since_micros` and may come late: what belongs to a table that was
    /// truncated then or later is left out.
    pub async fn apply_since(
        &self,
        updates: Vec<PartitionUpdate>,
        since_micros: i64,
    ) -> Result<(), ReplicaError> {
        self.apply_parts(updates, |_| Some(Since::Begun(since_micros))).await
    }

    /// [`Replica::apply`] of rows that a read has found at other replicas: what belongs to a table that was truncated since, or
    /// that one of those replicas may be about to truncate, is left out.
    pub(crate) async fn apply_read(
        &self,
        updates: Vec<PartitionUpdate>,
        since: Since,
    ) -> Result<(), ReplicaError> {
        self.apply_parts(updates, |_| Some(since)).await
    }

    /// [`Replica::apply`] of what was read elsewhere; what belongs to a shard that truncated the table later than `truncated_at`
    /// says, which is what [`Replica::truncated_at`] said of each shard before it was read, is left out.
    pub async fn apply_unless_truncated(
        &self,
        updates: Vec<PartitionUpdate>,
        truncated_at: &[i64],
    ) -> Result<(), ReplicaError> {
        self.apply_parts(updates, |shard| Some(Since::Begun(truncated_at[shard].saturating_add(1)))).await
    }

    async fn apply_parts(
        &self,
        updates: Vec<PartitionUpdate>,
        since: impl Fn(usize) -> Option<Since>,
    ) -> Result<(), ReplicaError> {
        let mut by_shard: Vec<Vec<PartitionUpdate>> = vec![Vec::new(); usize::from(self.shard_count())];
        for update in updates {
            by_shard[usize::from(self.shard_of(update.key.token))].push(update);
        }
        let parts = by_shard.into_iter().enumerate().filter(|(_, updates)| !updates.is_empty());
        let parts = parts.map(|(shard, updates)| (shard, updates, since(shard)));
        let writes = parts.map(|(shard, updates, since)| async move {
            match since {
                None if shard == self.0.shard.index() => Ok(self.0.engine.apply(updates).await?),
                Some(since) if shard == self.0.shard.index() => {
                    Ok(self.0.engine.apply_since(updates, since).await?)
                }
                None => self.done(shard as u16, ShardRequest::Apply(updates)).await,
                Some(since) => self.done(shard as u16, ShardRequest::ApplySince(updates, since)).await,
            }
        });
        try_join_all(writes).await.map(|_| ())
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
        let mut shards = updates.iter().map(|update| self.shard_of(update.key.token));
        let first = shards.next();
        shards.all(|shard| Some(shard) == first)
    }

    /// Applies an update that this shard owns.
    pub async fn apply_here(&self, update: PartitionUpdate) -> Result<(), ReplicaError> {
        assert_eq!(self.shard_of(update.key.token), self.0.shard.0, "it belongs to another shard");
        Ok(self.0.engine.apply_one(update).await?)
    }

    /// [`Replica::apply_here`] of what was read elsewhere; left out when the table was truncated later than `truncated_at`, which is
    /// what [`Replica::truncated_at`] said before it was read.
    pub async fn apply_here_unless_truncated(
        &self,
        update: PartitionUpdate,
        truncated_at: i64,
    ) -> Result<(), ReplicaError> {
        assert_eq!(self.shard_of(update.key.token), self.0.shard.0, "it belongs to another shard");
        Ok(self.0.engine.apply_since(vec![update], Since::Begun(truncated_at.saturating_add(1))).await?)
    }

    /// When this shard's part of a table was truncated last, microseconds since 1970; the least number when it never was.
    pub fn truncated_at(&self, table: TableId) -> i64 {
        self.0.engine.truncated_at(table)
    }

    /// Applies updates that this shard owns, all or none, and returns when a loss of power cannot undo it.
    pub async fn apply_durably_here(&self, updates: Vec<PartitionUpdate>) -> Result<(), ReplicaError> {
        Ok(self.0.engine.apply_durably(updates).await?)
    }

    /// [`Replica::apply_durably_here`] of a write that was taken up at `since_micros` and may come late: what belongs to a table that was
    /// truncated then or later is left out.
    pub async fn apply_durably_since(
        &self,
        updates: Vec<PartitionUpdate>,
        since_micros: i64,
    ) -> Result<(), ReplicaError> {
        Ok(self.0.engine.apply_durably_since(updates, Since::Begun(since_micros)).await?)
    }

    /// Reads what this shard owns of a command's partitions, however many tombstones lie there.
    pub async fn read_here(&self, command: &ReadCommand) -> Result<ReadPage, ReplicaError> {
        read::read(&self.0.engine, command, None, u64::MAX).await
    }

    /// [`Replica::read_here`] of what came after a mark alone. Fails when the mark means nothing any more.
    pub async fn read_above_here(&self, command: &ReadCommand, mark: Mark) -> Result<ReadPage, ReplicaError> {
        read::read(&self.0.engine, command, Some(mark), u64::MAX).await
    }

    /// Counts on the owning shard; gives the state to replicate.
    pub async fn increment(&self, update: PartitionUpdate) -> Result<PartitionUpdate, ReplicaError> {
        let shard = self.shard_of(update.key.token);
        if shard == self.0.shard.0 {
            return Ok(self.0.engine.increment(update).await?);
        }
        match self.0.port.call(ShardId(shard), ShardRequest::Increment(update)).await {
            ShardResponse::Incremented(result) => result,
            other => panic!("an increment was answered with {other:?}"),
        }
    }

    /// Carries out a maintenance operation on all shards at once; the first failure is told when all have ended.
    pub async fn table_operation(
        &self,
        table: TableId,
        operation: TableOperation,
    ) -> Result<(), ReplicaError> {
        self.table_operation_on_each(table, operation).await.into_iter().collect()
    }

    /// [`Replica::table_operation`] that tells what became of it on each shard.
    pub async fn table_operation_on_each(
        &self,
        table: TableId,
        operation: TableOperation,
    ) -> Vec<Result<(), ReplicaError>> {
        let shards = 0..self.shard_count();
        let all = shards.map(|shard| self.done(shard, ShardRequest::Table(table, operation.clone())));
        join_all(all).await
    }

    /// Removes the directory of a table that every shard has dropped; whether nothing is left to do.
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
    pub async fn set_schema(&self, schema: &Arc<Schema>) -> Result<(), ReplicaError> {
        let shards = 0..self.shard_count();
        try_join_all(shards.map(|shard| self.done(shard, ShardRequest::SetSchema(schema.clone())))).await?;
        Ok(())
    }

    /// Tells all shards when what of a table was repaired.
    pub async fn set_repaired(&self, table: TableId, repaired: Arc<Repaired>) {
        let shards = 0..self.shard_count();
        let tell = |shard| self.done(shard, ShardRequest::SetRepaired(table, repaired.clone()));
        // A shard that has stopped forgets nothing any more.
        join_all(shards.map(tell)).await;
    }

    /// Has every shard cover what a table's SSTables hold by a mark, after flushing if `flush`. In shard order.
    pub async fn take_marks(&self, table: TableId, flush: bool) -> Result<Vec<Marked>, ReplicaError> {
        let ask = |shard| async move {
            match self.0.port.call(ShardId(shard), ShardRequest::TakeMark(table, flush)).await {
                ShardResponse::Marked(marked) => marked,
                other => panic!("a wish for a mark was answered with {other:?}"),
            }
        };
        try_join_all((0..self.shard_count()).map(ask)).await
    }

    /// Has every shard keep apart in compactions what its mark covers; marks are in shard order.
    pub async fn set_repaired_upto(&self, table: TableId, marks: &[Mark]) {
        let shards = (0..self.shard_count()).zip(marks);
        let tell =
            |(shard, mark): (u16, &Mark)| self.done(shard, ShardRequest::SetRepairedUpto(table, *mark));
        // A shard that has stopped compacts nothing any more.
        join_all(shards.map(tell)).await;
    }

    /// Tells all shards that a repair which had begun with these marks, in shard order, compared tokens, and which the node owns: what was
    /// lost of them by damage is there again.
    pub async fn mended(&self, table: TableId, repaired: TokenSpan, marks: &[Mark], owned: Vec<TokenSpan>) {
        let owned = Arc::new(owned);
        let tell = |(shard, mark): (u16, &Mark)| {
            let request = ShardRequest::Mended(table, repaired, *mark, owned.clone());
            self.done(shard, request)
        };
        // A shard that has stopped mends nothing any more.
        join_all((0..self.shard_count()).zip(marks).map(tell)).await;
    }

    /// Returns when a loss of power cannot undo what was written to a table before, on any shard.
    pub async fn make_durable(&self, table: TableId) -> Result<(), ReplicaError> {
        let shards = 0..self.shard_count();
        try_join_all(shards.map(|shard| self.done(shard, ShardRequest::MakeDurable(table)))).await?;
        Ok(())
    }

    /// Figures of all shards, in shard order.
    pub async fn stats(&self) -> Vec<EngineStats> {
        let ask = |shard| async move {
            match self.0.port.call(ShardId(shard), ShardRequest::Stats).await {
                ShardResponse::Stats(stats) => *stats,
                other => panic!("a question for figures was answered with {other:?}"),
            }
        };
        join_all((0..self.shard_count()).map(ask)).await
    }

    /// Has all shards count which partitions of a table are asked for from now on, in so many places each, or end that with none.
    /// What was counted until now.
    pub async fn sample(&self, table: TableId, places: Option<usize>) -> Option<Sampled> {
        let ask = |shard| async move {
            match self.0.port.call(ShardId(shard), ShardRequest::Sample(table, places)).await {
                ShardResponse::Sampled(sampled) => sampled,
                other => panic!("a question for samples was answered with {other:?}"),
            }
        };
        let all = join_all((0..self.shard_count()).map(ask)).await;
        all.into_iter().flatten().map(|sampled| *sampled).reduce(|mut all, sampled| {
            all.merge(sampled);
            all
        })
    }

    pub(crate) fn own_shard(&self) -> u16 {
        self.0.shard.0
    }

    pub(crate) fn tombstones_max(&self) -> u64 {
        self.0.config.tombstone_failure_threshold
    }

    /// Records a step that happens now, here.
    pub(crate) fn note(&self, trace: &TraceLog, activity: impl Into<String>) {
        trace.add(self.0.rt.now(), self.0.shard.0, activity);
    }

    pub(crate) async fn call(&self, shard: ShardId, request: ShardRequest) -> ShardResponse {
        self.0.port.call(shard, request).await
    }

    async fn done(&self, shard: u16, request: ShardRequest) -> Result<(), ReplicaError> {
        match self.0.port.call(ShardId(shard), request).await {
            ShardResponse::Done(result) => result,
            other => panic!("a command was answered with {other:?}"),
        }
    }

    async fn serve(&self, request: ShardRequest) -> ShardResponse {
        let engine = &self.0.engine;
        match request {
            ShardRequest::Read(command) => {
                let max = self.0.config.tombstone_failure_threshold;
                ShardResponse::Read(read::read(engine, &command, None, max).await)
            }
            ShardRequest::Apply(updates) => {
                ShardResponse::Done(engine.apply(updates).await.map_err(Into::into))
            }
            ShardRequest::ApplyBegun(update, begun) => {
                ShardResponse::Done(engine.apply_begun(update, begun).await.map_err(Into::into))
            }
            ShardRequest::ApplySince(updates, since) => {
                ShardResponse::Done(engine.apply_since(updates, since).await.map_err(Into::into))
            }
            ShardRequest::ReadTraced(command) => {
                let trace = TraceLog::default();
                let page = self.read_here_traced(&command, &trace).await;
                ShardResponse::ReadTraced(page, trace.into_events())
            }
            ShardRequest::ApplyTraced(updates, begun) => {
                let trace = TraceLog::default();
                let done = self.apply_here_traced(updates, begun, &trace).await;
                ShardResponse::DoneTraced(done, trace.into_events())
            }
            ShardRequest::Increment(update) => {
                let result = engine.increment(update).await;
                ShardResponse::Incremented(result.map_err(Into::into))
            }
            ShardRequest::Table(table, operation) => {
                let run = operate(engine.clone(), table, operation);
                ShardResponse::Done(self.0.rt.uncancelled(Group::Maintenance, run).await)
            }
            ShardRequest::SetSchema(schema) => {
                engine.set_schema(schema);
                ShardResponse::Done(Ok(()))
            }
            ShardRequest::SetRepaired(table, repaired) => {
                engine.set_repaired(table, repaired);
                ShardResponse::Done(Ok(()))
            }
            ShardRequest::TakeMark(table, flush) => {
                let engine = engine.clone();
                let run = async move { Ok(engine.take_mark(table, flush).await?) };
                ShardResponse::Marked(self.0.rt.uncancelled(Group::Maintenance, run).await)
            }
            ShardRequest::SetRepairedUpto(table, mark) => {
                engine.set_repaired_upto(table, mark);
                ShardResponse::Done(Ok(()))
            }
            ShardRequest::Mended(table, repaired, mark, owned) => {
                let engine = engine.clone();
                let run = async move { engine.mended(table, repaired, mark, &owned).await };
                self.0.rt.uncancelled(Group::Maintenance, run).await;
                ShardResponse::Done(Ok(()))
            }
            ShardRequest::MakeDurable(table) => {
                ShardResponse::Done(engine.make_durable(table).await.map_err(Into::into))
            }
            ShardRequest::Sample(table, places) => {
                ShardResponse::Sampled(engine.sample(table, places).map(Box::new))
            }
            ShardRequest::Stats => ShardResponse::Stats(Box::new(engine.stats())),
        }
    }
}

async fn operate(engine: Engine, table: TableId, operation: TableOperation) -> Result<(), ReplicaError> {
    match operation {
        TableOperation::Flush => engine.flush(table).await?,
        TableOperation::Compact => engine.compact(table).await?,
        TableOperation::Truncate { at_micros } => engine.truncate(table, at_micros).await?,
        TableOperation::Drop { at_micros } => engine.drop_table(table, at_micros).await?,
        TableOperation::Snapshot { name } => engine.snapshot(table, &name).await?,
        TableOperation::ClearSnapshot { name } => engine.clear_snapshot(table, name.as_deref()).await?,
    }
    Ok(())
}
