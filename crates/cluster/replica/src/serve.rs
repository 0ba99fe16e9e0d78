//! A shard's answers to the other shards of its node.

use engine::Engine;
use rt::mesh::Port;
use rt::{Group, Rt};
use schema::TableId;

use crate::message::{
    AdoptImport, Apply, AwaitImport, BuiltIndexes, CommitLogSegments, FragmentSources, Fragments,
    HistogramsOfShard, Increment, LocalFiguresOfShard, MakeDurable, Nearest, Operate, PartitionKeys,
    RangeRepaired, Read, RewriteSstables, Sample, SampledTokens, ScanIndex, SetRepaired, SetRepairedUpto,
    SetSchema, SstablesOf, SstablesOfShard, Stats, StopOperations, TableSizeOfShard, TakeMark,
};
use crate::{
    Replica, ReplicaConfig, ReplicaError, ShardRequest, ShardResponse, SnapshotContent, TableOperation,
    TraceLog,
};

impl Replica {
    /// A replica over this shard's engine. Serves the other shards from now on through `port`.
    pub fn new(
        rt: &Rt,
        engine: Engine,
        port: Port<ShardRequest, ShardResponse>,
        config: ReplicaConfig,
    ) -> Self {
        let replica = Self::over(rt, engine, port.clone(), config);
        let server = replica.clone();
        port.serve(move |_, request| {
            let replica = server.clone();
            async move { answer(&replica, request).await }
        });
        replica
    }
}

async fn answer(replica: &Replica, request: ShardRequest) -> ShardResponse {
    rt::serve_shard_call!(request, ShardRequest => ShardResponse {
        Read { command, tombstones, is_traced } => {
            let trace = is_traced.then(TraceLog::default);
            let read = crate::Read { tombstones, ..crate::Read::of(&command).here() };
            let page = replica.read(read.traced(trace.as_ref())).await;
            (page, trace.map(TraceLog::into_events).unwrap_or_default())
        },
        Nearest { table, query } => replica.engine().nearest(table, &query).await.map_err(ReplicaError::from),
        ScanIndex { table, scan } => {
            replica.engine().scan_index(table, &scan).await.map_err(ReplicaError::from)
        },
        Apply { write, is_traced } => {
            let trace = is_traced.then(TraceLog::default);
            let done = replica.apply_here(write, trace.as_ref()).await;
            (done, trace.map(TraceLog::into_events).unwrap_or_default())
        },
        Increment { update } => replica.engine().increment(update).await.map_err(ReplicaError::from),
        Operate { table, operation } => {
            let run = operate(replica.engine().clone(), table, operation);
            replica.rt().uncancelled(Group::Maintenance, run).await
        },
        RewriteSstables { table, how } => {
            let engine = replica.engine().clone();
            let run = async move { Ok(engine.rewrite(table, how).await?) };
            replica.rt().uncancelled(Group::Maintenance, run).await
        },
        AwaitImport { table, begins } => match begins {
            true => replica.engine().begin_import(table).map_err(ReplicaError::from),
            false => Ok(replica.engine().end_import(table)),
        },
        AdoptImport { table, files, owned } => {
            let engine = replica.engine().clone();
            let run = async move { Ok(engine.adopt_import(table, &files, owned).await?) };
            replica.rt().uncancelled(Group::Maintenance, run).await
        },
        StopOperations { wanted } => replica.engine().stop_operations(&wanted),
        SetSchema { schema } => replica.engine().set_schema(schema).await,
        SetRepaired { table, repaired } => replica.engine().set_repaired(table, repaired),
        TakeMark { table, flush } => {
            let engine = replica.engine().clone();
            let run = async move { Ok(engine.take_mark(table, flush).await?) };
            replica.rt().uncancelled(Group::Maintenance, run).await
        },
        SetRepairedUpto { table, mark } => replica.engine().set_repaired_upto(table, mark),
        RangeRepaired { table, repaired, mark, owned } => {
            let engine = replica.engine().clone();
            let run = async move { engine.damage_repaired(table, repaired, mark, &owned).await };
            replica.rt().uncancelled(Group::Maintenance, run).await;
        },
        MakeDurable { table } => replica.engine().make_durable(table).await.map_err(ReplicaError::from),
        Sample { table, places } => replica.engine().sample(table, places).map(Box::new),
        BuiltIndexes {  } => replica.engine().built_indexes(),
        LocalFiguresOfShard {  } => replica.engine().local_figures(),
        TableSizeOfShard { table } => replica.engine().table_size(table),
        HistogramsOfShard { table } => replica.engine().table_histograms(table).map(Box::new),
        SampledTokens { table } => replica.engine().sampled_tokens(table),
        SstablesOf { table, key } => replica.engine().sstables_of(table, &key).await.map_err(ReplicaError::from),
        SstablesOfShard { table } => replica.engine().sstable_figures(table).await.map_err(ReplicaError::from),
        CommitLogSegments {  } => replica.engine().commitlog_segments(),
        FragmentSources { table, key } => {
            replica.engine().fragment_sources(table, &key).map_err(ReplicaError::from)
        },
        Fragments { read } => replica.engine().read_fragments(&read).await.map_err(ReplicaError::from),
        PartitionKeys { table, range, count_max } => {
            replica.engine().partition_keys(table, &range, count_max).await.map_err(ReplicaError::from)
        },
        Stats {  } => Box::new(replica.engine().stats()),
    })
}

async fn operate(engine: Engine, table: TableId, operation: TableOperation) -> Result<(), ReplicaError> {
    match operation {
        TableOperation::Flush => engine.flush(table).await?,
        TableOperation::Compact => engine.compact(table).await?,
        TableOperation::Truncate { at_micros, expires } => {
            engine.truncate(table, at_micros, expires).await?;
        }
        TableOperation::Drop { at_micros } => engine.drop_table(table, at_micros).await?,
        TableOperation::RebuildIndexes { names } => engine.rebuild_indexes(table, &names).await?,
        TableOperation::SetAutoCompaction { is_on } => engine.set_auto_compaction(table, is_on)?,
        TableOperation::SetTombstoneGc { is_on } => engine.set_tombstone_gc(table, is_on)?,
        TableOperation::Snapshot { name, content } => match content {
            SnapshotContent::Written => engine.snapshot(table, &name).await?,
            SnapshotContent::Sound => engine.snapshot_of_sound(table, &name).await?,
            SnapshotContent::Flushed => engine.snapshot_of_flushed(table, &name).await?,
        },
    }
    Ok(())
}
