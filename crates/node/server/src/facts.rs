//! From the node's figures to the facts that the computed tables show.

use std::collections::BTreeMap;

use std::rc::Rc;

use catalog::{
    CacheFacts, ClientFacts, CompactionFacts, NodeFacts, PoolFacts, PreparedFacts, SizeFacts, TaskFacts,
};
use engine::EngineStats;
use rt::{Group, Rt};
use schema::TableId;
use session::ConnectionInfo;
use wire::Opcode;

use crate::Config;
use crate::node::Boot;

/// The version of Cassandra whose interface this is: drivers and cqlsh choose their ways by it.
pub(crate) const RELEASE_VERSION: &str = "5.0.6";

pub(crate) fn node(boot: &Boot) -> NodeFacts {
    let config = &boot.config;
    NodeFacts {
        cluster_name: config.cluster_name.clone(),
        listen: (config.listen_address, config.storage_port).into(),
        started_seconds: i32::try_from(boot.started_micros / 1_000_000).unwrap_or(i32::MAX),
    }
}

pub(crate) fn settings(config: &Config) -> Vec<(String, String)> {
    config.show().into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

pub(crate) fn clients(connections: &[ConnectionInfo]) -> Vec<ClientFacts> {
    let one = |info: &ConnectionInfo| ClientFacts {
        address: info.address.ip(),
        port: info.address.port(),
        shard: i32::from(info.shard),
        encrypted: info.encrypted,
        options: info.client_options.iter().cloned().collect::<BTreeMap<_, _>>(),
        stage: info.stage.name().to_owned(),
        driver_name: info.driver_name.clone(),
        driver_version: info.driver_version.clone(),
        keyspace: info.keyspace_name.clone(),
        protocol_version: info.protocol_version.map_or(0, i32::from),
        requests: i64::try_from(info.request_count).unwrap_or(i64::MAX),
        username: info.username.clone().unwrap_or_else(|| "anonymous".to_owned()),
    };
    connections.iter().map(one).collect()
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

pub(crate) fn prepared(statements: &[Rc<exec::native::Prepared>]) -> Vec<PreparedFacts> {
    let one = |prepared: &Rc<exec::native::Prepared>| PreparedFacts {
        id: prepared.metadata.id.to_vec(),
        keyspace: prepared.keyspace.clone(),
        text: prepared.shown_text(),
    };
    statements.iter().map(one).collect()
}

pub(crate) fn pools(rt: &Rt) -> Vec<PoolFacts> {
    let one = |group: Group| {
        let stats = rt.group_stats(group);
        let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        PoolFacts {
            name: group.name().to_owned(),
            active: count(stats.tasks),
            pending: count(stats.ready),
            completed: signed(stats.polls),
        }
    };
    Group::ALL.map(one).into()
}

pub(crate) fn compactions(shards: &[EngineStats]) -> Vec<CompactionFacts> {
    let one = |record: &engine::CompactionRecord| CompactionFacts {
        id: record.id,
        keyspace: record.keyspace.clone(),
        table: record.table.clone(),
        ended_micros: record.ended_micros,
        bytes_in: signed(record.bytes_in),
        bytes_out: signed(record.bytes_out),
        rows_merged: record.rows_merged.iter().map(|n| signed(*n)).collect(),
        properties: record.properties.clone(),
    };
    shards.iter().flat_map(|shard| &shard.compaction_history).map(one).collect()
}

pub(crate) fn tasks(shards: &[EngineStats]) -> Vec<TaskFacts> {
    let one = |task: &engine::TaskRecord| TaskFacts {
        id: task.id,
        keyspace: task.keyspace.clone(),
        table: task.table.clone(),
        sstables: i32::try_from(task.sstables).unwrap_or(i32::MAX),
        done: signed(task.bytes_done),
        total: signed(task.bytes_total),
    };
    shards.iter().flat_map(|shard| &shard.compaction_tasks).map(one).collect()
}

/// Figures of this shard's statements, by the names of Cassandra's `cql_metrics`.
pub(crate) fn cql(
    metrics: &session::SessionMetrics,
    prepared: &exec::native::PreparedStatements,
) -> Vec<(&'static str, f64)> {
    let (executed, texts) =
        (metrics.requests(Opcode::Execute) as f64, metrics.requests(Opcode::Query) as f64);
    let all = executed + texts;
    vec![
        ("preparedStatementsCount", prepared.all().len() as f64),
        ("preparedStatementsEvicted", prepared.evictions() as f64),
        ("preparedStatementsExecuted", executed),
        ("preparedStatementsRatio", if all == 0.0 { 0.0 } else { executed / all }),
        ("regularStatementsExecuted", texts),
    ]
}

pub(crate) fn sizes(shards: &[EngineStats]) -> Vec<SizeFacts> {
    struct Sum {
        partitions: u64,
        bytes: u64,
        disk: u64,
        uncompressed: u64,
        max: u64,
    }
    let mut tables: BTreeMap<TableId, Sum> = BTreeMap::new();
    for (id, stats) in shards.iter().flat_map(|shard| &shard.tables) {
        let empty = || Sum { partitions: 0, bytes: 0, disk: 0, uncompressed: 0, max: 0 };
        let sum = tables.entry(*id).or_insert_with(empty);
        sum.partitions += stats.partitions_estimate;
        sum.bytes += stats.uncompressed_bytes + stats.memtable_bytes;
        sum.disk += stats.disk_bytes;
        sum.uncompressed += stats.uncompressed_bytes;
        sum.max = sum.max.max(stats.partition_bytes_max);
    }
    let one = |(table, sum): (TableId, Sum)| SizeFacts {
        table,
        partitions: signed(sum.partitions),
        partition_bytes_mean: signed(sum.bytes.checked_div(sum.partitions).unwrap_or(0)),
        disk_bytes: signed(sum.disk),
        uncompressed_bytes: signed(sum.uncompressed),
        partition_bytes_max: signed(sum.max),
    };
    tables.into_iter().map(one).collect()
}

pub(crate) fn caches(shards: &[EngineStats], boot: &Boot) -> Vec<CacheFacts> {
    let sum = |of: fn(&EngineStats) -> u64| signed(shards.iter().map(of).sum());
    let tables = |of: fn(&engine::TableStats) -> u64| {
        signed(shards.iter().flat_map(|shard| &shard.tables).map(|(_, table)| of(table)).sum())
    };
    let capacity = signed(boot.config.cache_size.0);
    let (row_hits, row_misses) = (tables(|t| t.cache_hits), tables(|t| t.cache_misses));
    let (block_hits, block_misses) = (sum(|s| s.block_cache_hits), sum(|s| s.block_cache_misses));
    vec![
        CacheFacts {
            name: "rows".to_owned(),
            capacity_bytes: capacity,
            size_bytes: sum(|s| s.row_cache_bytes),
            entries: i32::try_from(sum(|s| s.row_cache_rows)).unwrap_or(i32::MAX),
            hits: row_hits,
            requests: row_hits.saturating_add(row_misses),
        },
        CacheFacts {
            name: "chunks".to_owned(),
            capacity_bytes: capacity,
            size_bytes: sum(|s| s.block_cache_bytes),
            entries: 0,
            hits: block_hits,
            requests: block_hits.saturating_add(block_misses),
        },
    ]
}
