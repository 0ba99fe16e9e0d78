//! From the node's figures to the facts that the computed tables show.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use admin::ShardFigures;
use catalog::{
    BatchFacts, CacheFacts, ClientFacts, CompactionFacts, GossipFacts, LargeFacts, LargeFactsKind, LogFacts,
    NodeFacts, OptionFacts, PeerFacts, PoolFacts, PreparedFacts, QueryFacts, RepairJobFacts, RepairJobState,
    RequestFacts, ServerFacts, SizeFacts, SnapshotFacts, TaskFacts,
};
use cluster::liveness::Liveness;
use coordinator::{Coordinator, TableFigures};
use engine::{EngineStats, LocalFigures, TaskKind};
use repair::{JobState, JobStatus};
use rpc::PeerStats;
use rt::{Group, LocalBoxFuture, Rt};
use schema::{Keyspace, Schema, TableId};
use session::ConnectionInfo;
use stdx::RecentFigures;
use topology::HostId;
use wire::Opcode;

use crate::Config;
use crate::boot::Boot;
use crate::config::OptionInfo;
use crate::settings::LogLine;

/// The version of Cassandra whose interface this is: drivers and cqlsh choose their ways by it.
pub(crate) const RELEASE_VERSION: &str = "5.0.6";

/// The ways to the figures of all shards of the node.
pub(crate) struct NodeFigures {
    /// The figures of each shard.
    pub(crate) shards: Box<dyn Fn() -> LocalBoxFuture<Vec<ShardFigures>>>,
    /// The repairs that the node leads or led, the oldest first.
    pub(crate) repairs: Box<dyn Fn() -> LocalBoxFuture<Vec<JobStatus>>>,
}

/// The messages from and to each node, by the columns of Cassandra's `internode_inbound` and `internode_outbound`.
pub(crate) fn peers(shards: &[ShardFigures], inbound: bool) -> Vec<PeerFacts> {
    let mut sums: BTreeMap<HostId, PeerStats> = BTreeMap::new();
    for (host, stats) in shards.iter().flat_map(|shard| &shard.rpc.peers) {
        let sum = sums.entry(*host).or_default();
        *sum = sum.plus(*stats);
    }
    let columns = if inbound { inbound_columns } else { outbound_columns };
    let one = |(host, stats): (HostId, PeerStats)| PeerFacts { host, figures: columns(&stats) };
    sums.into_iter().map(one).collect()
}

fn inbound_columns(stats: &PeerStats) -> Vec<(&'static str, i64)> {
    let ended = stats.served.plus(stats.expired).plus(stats.refused);
    vec![
        // A damaged frame ends its connection.
        ("corrupt_frames_recovered", 0),
        ("corrupt_frames_unrecovered", signed(stats.corrupt)),
        ("error_bytes", signed(stats.refused.bytes)),
        ("error_count", signed(stats.refused.count)),
        ("expired_bytes", signed(stats.expired.bytes)),
        ("expired_count", signed(stats.expired.count)),
        ("processed_bytes", signed(stats.served.bytes)),
        ("processed_count", signed(stats.served.count)),
        ("received_bytes", signed(stats.received.bytes)),
        ("received_count", signed(stats.received.count)),
        ("scheduled_bytes", signed(stats.received.bytes.saturating_sub(stats.refused.bytes))),
        ("scheduled_count", signed(stats.received.count.saturating_sub(stats.refused.count))),
        ("using_bytes", signed(stats.received.bytes.saturating_sub(ended.bytes))),
    ]
}

fn outbound_columns(stats: &PeerStats) -> Vec<(&'static str, i64)> {
    vec![
        ("active_connections", signed(stats.connections)),
        ("connection_attempts", signed(stats.attempts)),
        ("error_bytes", signed(stats.unsent.bytes)),
        ("error_count", signed(stats.unsent.count)),
        ("expired_bytes", signed(stats.expired_unsent.bytes)),
        ("expired_count", signed(stats.expired_unsent.count)),
        ("overload_bytes", signed(stats.overloaded.bytes)),
        ("overload_count", signed(stats.overloaded.count)),
        ("pending_bytes", signed(stats.pending.bytes)),
        ("pending_count", signed(stats.pending.count)),
        ("sent_bytes", signed(stats.sent.bytes)),
        ("sent_count", signed(stats.sent.count)),
        ("successful_connection_attempts", signed(stats.successes)),
        ("using_bytes", signed(stats.pending.bytes)),
    ]
}

/// Token ranges as a text; none of no ranges.
fn ranges(ranges: &[topology::TokenRange]) -> Option<String> {
    let shown: Vec<String> = ranges.iter().map(|range| format!("({},{}]", range.after, range.upto)).collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

/// The repairs that this node leads or led.
pub(crate) fn repair_jobs(jobs: Vec<JobStatus>) -> Vec<RepairJobFacts> {
    let one = |job: JobStatus| RepairJobFacts {
        number: job.id,
        keyspace: job.keyspace,
        tables: job.tables,
        peers: job.peers,
        full: job.request.full,
        primary: job.request.options.ranges == repair::plan::Ranges::Primary,
        datacenters: job.request.options.datacenters,
        range: ranges(&job.request.options.tokens),
        begun_micros: job.request.begun_micros,
        elapsed_micros: i64::try_from(job.elapsed.as_micros()).unwrap_or(i64::MAX),
        status: match job.state {
            JobState::Running => RepairJobState::Running,
            JobState::Done => RepairJobState::Done,
            JobState::Failed => RepairJobState::Failed(job.failures.join("; ")),
            JobState::Cancelled => RepairJobState::Failed("the repair was cancelled".to_owned()),
        },
    };
    jobs.into_iter().map(one).collect()
}

pub(crate) fn node(boot: &Boot) -> NodeFacts {
    let config = &boot.config;
    NodeFacts {
        cluster_name: config.cluster_name.clone(),
        listen: (config.listen_address, config.storage_port).into(),
        started_seconds: i32::try_from(boot.started_micros / 1_000_000).unwrap_or(i32::MAX),
        version: crate::VERSION.to_owned(),
        build_mode: if cfg!(debug_assertions) { "debug" } else { "release" },
        servers: servers(config),
    }
}

/// The servers of data: CQL, and the DynamoDB API where it has a port.
fn servers(config: &Config) -> Vec<ServerFacts> {
    let listening = |address: IpAddr, ports: &[u16]| {
        let open = ports.iter().filter(|port| **port != 0);
        open.map(|port| SocketAddr::new(address, *port)).collect()
    };
    let mut ports = vec![config.native_transport_port, config.native_shard_aware_transport_port];
    if config.client_encryption_options_enabled {
        ports.extend([config.native_transport_port_ssl, config.native_shard_aware_transport_port_ssl]);
    }
    let alternator = config.alternator_address.unwrap_or(config.rpc_address);
    vec![
        ServerFacts {
            name: "native",
            protocol: "cql",
            version: Some("3.4.7"),
            addresses: listening(config.rpc_address, &ports),
        },
        ServerFacts {
            name: "alternator",
            protocol: "dynamodb",
            version: None,
            addresses: listening(alternator, &[config.alternator_port, config.alternator_https_port]),
        },
    ]
}

pub(crate) fn options(config: &Config) -> Vec<OptionFacts> {
    let defaults: BTreeMap<&str, String> = Config::default().show().into_iter().collect();
    let kinds: BTreeMap<&str, &'static str> =
        Config::OPTIONS.iter().map(|option| (option.name, option.kind)).collect();
    let one = |(name, value): (&'static str, String)| {
        let kind = kinds[name];
        OptionFacts {
            name: name.to_owned(),
            kind,
            is_default: defaults[name] == value,
            json: if kind == "string" { json_text(&value) } else { value },
        }
    };
    let values: BTreeMap<&str, String> = config.show().into_iter().collect();
    let bare = Config::OPTIONS
        .iter()
        .flat_map(|option| bare_numbers(option, &values[option.name], &defaults[option.name]));
    config.show().into_iter().map(one).chain(bare).collect()
}

/// An option under its names with a unit, as bare numbers of it: tools of ScyllaDB read them from `system.config`. None where a number of the unit is not
/// the value.
fn bare_numbers(option: &OptionInfo, value: &str, default: &str) -> Vec<OptionFacts> {
    let with_unit = option.aliases.iter().filter(|(_, unit)| !unit.is_empty());
    let one = |(name, unit): &(&str, &str)| {
        let number = crate::config::in_unit(value, unit)?;
        let name = (*name).to_owned();
        Some(OptionFacts { name, kind: "integer", is_default: value == default, json: number.to_string() })
    };
    with_unit.filter_map(one).collect()
}

/// A text in JSON, with its quotes.
fn json_text(text: &str) -> String {
    let mut out = String::from("\"");
    for one in text.chars() {
        match one {
            '"' | '\\' => out.extend(['\\', one]),
            one if one < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(one))),
            one => out.push(one),
        }
    }
    out.push('"');
    out
}

pub(crate) fn snapshots(records: Vec<engine::SnapshotRecord>) -> Vec<SnapshotFacts> {
    let one = |record: engine::SnapshotRecord| SnapshotFacts {
        name: record.name,
        keyspace: record.keyspace,
        table: record.table,
        true_bytes: signed(record.true_bytes),
        disk_bytes: signed(record.disk_bytes),
        created_millis: record.created_micros.map(|micros| micros / 1_000),
    };
    records.into_iter().map(one).collect()
}

/// Figures of the node in the groups and items of ScyllaDB's `runtime_info`, those that this node has.
pub(crate) fn runtime(
    shards: &[EngineStats],
    boot: &Boot,
    now_micros: i64,
) -> Vec<(&'static str, &'static str, String)> {
    let sum = |of: fn(&EngineStats) -> u64| shards.iter().map(of).sum::<u64>();
    let tables = |of: fn(&engine::TableStats) -> u64| {
        shards.iter().flat_map(|shard| &shard.tables).map(|(_, table)| of(table)).sum::<u64>()
    };
    let (hits, misses) = (tables(|t| t.cache_hits), tables(|t| t.cache_misses));
    let cached = sum(|s| s.row_cache_bytes) + sum(|s| s.block_cache_bytes);
    let (total, used) = (sum(|s| s.memtable_bytes_max), sum(|s| s.memtable_bytes));
    let (settings, capacity) = (boot.settings.current(), sum(|s| s.cache_bytes_max));
    let uptime = now_micros.saturating_sub(boot.started_micros).max(0) / 1_000_000;
    let mut items = vec![
        ("generic", "incremental_backup_enabled", settings.incremental_backups.to_string()),
        ("generic", "load", tables(|t| t.disk_bytes).to_string()),
        ("generic", "trace_probability", settings.trace_probability.to_string()),
        ("generic", "uptime", format!("{uptime} seconds")),
        ("memtable", "entries", tables(|t| t.memtable_partitions).to_string()),
        ("memtable", "memory_free", total.saturating_sub(used).to_string()),
        ("memtable", "memory_total", total.to_string()),
        ("memtable", "memory_used", used.to_string()),
        ("cache", "entries", sum(|s| s.row_cache_partitions).to_string()),
        ("cache", "hits", hits.to_string()),
        ("cache", "memory_free", capacity.saturating_sub(cached).to_string()),
        ("cache", "memory_total", capacity.to_string()),
        ("cache", "memory_used", cached.to_string()),
        ("cache", "misses", misses.to_string()),
        ("cache", "requests_total", (hits + misses).to_string()),
    ];
    if hits + misses > 0 {
        items.push(("cache", "hit_rate_total", format!("{:.2}", hits as f64 / (hits + misses) as f64)));
    }
    items
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
        kind: match task.kind {
            TaskKind::Compaction => "compaction",
            TaskKind::Cleanup => "cleanup",
            TaskKind::Scrub => "scrub",
            TaskKind::Upgrade => "upgrade sstables",
            TaskKind::GarbageCollection => "remove deleted data",
            TaskKind::Verification => "verify",
            TaskKind::IndexBuild => "secondary index build",
        },
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
        ("prepared_statements_count", prepared.all().len() as f64),
        ("prepared_statements_evicted", prepared.evictions() as f64),
        ("prepared_statements_executed", executed),
        ("prepared_statements_ratio", if all == 0.0 { 0.0 } else { executed / all }),
        ("regular_statements_executed", texts),
    ]
}

/// The batches of this shard, by Cassandra's names.
pub(crate) fn batches(executor: &exec::Executor<Coordinator>) -> Vec<BatchFacts> {
    let figures = executor.batch_sizes();
    let one = |name: &'static str, of: &RecentFigures| BatchFacts {
        name,
        max: of.max,
        p50: of.percentile(0.5),
        p99: of.percentile(0.99),
        p999: of.percentile(0.999),
    };
    vec![
        one("partitions_per_counter_batch", &figures.counter),
        one("partitions_per_logged_batch", &figures.logged),
        one("partitions_per_unlogged_batch", &figures.unlogged),
    ]
}

/// The statements under way on this shard.
pub(crate) fn queries(executor: &crate::executor::ShardFrontend, rt: &Rt) -> Vec<QueryFacts> {
    let (now, shard) = (rt.now(), rt.shard().0);
    let one = |statement: exec::native::RunningStatement| QueryFacts {
        thread: format!("shard-{shard}-{}", statement.number),
        running_micros: u64::try_from(now.duration_since(statement.began).as_micros()).unwrap_or(u64::MAX),
        task: statement.text,
    };
    executor.running().into_iter().map(one).collect()
}

/// The last lines of the log, each with its place among those of its millisecond.
pub(crate) fn log(lines: &[LogLine]) -> Vec<LogFacts> {
    let mut all: Vec<LogFacts> = Vec::with_capacity(lines.len());
    for line in lines {
        let before = all.last().filter(|last| last.millis == line.millis);
        let order = before.map_or(0, |last| last.order.saturating_add(1));
        all.push(LogFacts {
            millis: line.millis,
            order,
            level: line.level,
            logger: line.module.clone(),
            message: line.text.clone(),
        });
    }
    all
}

pub(crate) fn sizes(shards: &[EngineStats]) -> Vec<SizeFacts> {
    #[derive(Default)]
    struct Sum {
        partitions: u64,
        bytes: u64,
        disk: u64,
        uncompressed: u64,
        max: u64,
        sstable_max: u64,
        micros_max: u64,
    }
    let mut tables: BTreeMap<TableId, Sum> = BTreeMap::new();
    for (id, stats) in shards.iter().flat_map(|shard| &shard.tables) {
        let sum = tables.entry(*id).or_default();
        sum.partitions += stats.partitions_estimate;
        sum.bytes += stats.uncompressed_bytes + stats.memtable_bytes;
        sum.disk += stats.disk_bytes;
        sum.uncompressed += stats.uncompressed_bytes;
        sum.max = sum.max.max(stats.partition_bytes_max);
        sum.sstable_max = sum.sstable_max.max(stats.sstable_bytes_max);
        sum.micros_max = sum.micros_max.max(stats.sstable_micros_max);
    }
    let one = |(table, sum): (TableId, Sum)| SizeFacts {
        table,
        partitions: signed(sum.partitions),
        partition_bytes_mean: signed(sum.bytes.checked_div(sum.partitions).unwrap_or(0)),
        disk_bytes: signed(sum.disk),
        uncompressed_bytes: signed(sum.uncompressed),
        partition_bytes_max: signed(sum.max),
        sstable_bytes_max: signed(sum.sstable_max),
        sstable_millis_max: signed(sum.micros_max / 1_000),
    };
    tables.into_iter().map(one).collect()
}

fn requests(table: TableId, count: u64, figures: &RecentFigures) -> RequestFacts {
    RequestFacts {
        table,
        count: signed(count),
        max: figures.max,
        p50: figures.percentile(0.5),
        p99: figures.percentile(0.99),
        per_second: figures.per_second,
    }
}

/// The requests that this node coordinated, for every table that is stored.
pub(crate) fn coordinated(
    name: &str,
    schema: &Schema,
    figures: &BTreeMap<TableId, TableFigures>,
) -> Vec<RequestFacts> {
    let none = TableFigures::default();
    let is_stored = |keyspace: &Keyspace, table: &str| !keyspace.computed || keyspace.kept.contains(table);
    let stored = schema
        .keyspaces()
        .flat_map(|keyspace| keyspace.tables.values().filter(move |table| is_stored(keyspace, &table.name)));
    let one = |id: TableId| {
        let of = figures.get(&id).unwrap_or(&none);
        let figures = match name {
            "coordinator_read_latency" => &of.reads,
            "coordinator_scan_latency" => &of.scans,
            _ => &of.writes,
        };
        requests(id, figures.total, figures)
    };
    stored.map(|table| one(table.id)).collect()
}

/// The gossip state of each node.
pub(crate) fn gossip(liveness: Liveness) -> Vec<GossipFacts> {
    let peers = liveness.peers.into_values().map(|peer| peer.endpoint);
    let endpoints = [liveness.own].into_iter().chain(peers);
    let facts = endpoints.map(|endpoint| {
        let states = endpoint.states.iter().filter_map(|(key, state)| {
            Some((key.name()?, state.version, String::from_utf8_lossy(&state.value).into_owned()))
        });
        GossipFacts {
            address: endpoint.address,
            generation: endpoint.generation,
            heartbeat: endpoint.heartbeat,
            states: states.collect(),
        }
    });
    facts.collect()
}

/// The requests of this node's data.
pub(crate) fn local(name: &str, figures: &BTreeMap<TableId, LocalFigures>) -> Vec<RequestFacts> {
    let one = |(table, of): (&TableId, &LocalFigures)| {
        let reads = of.reads.total + of.scans.total;
        match name {
            "local_read_latency" => requests(*table, of.reads.total, &of.reads),
            "local_scan_latency" => requests(*table, of.scans.total, &of.scans),
            "local_write_latency" => requests(*table, of.writes.total, &of.writes),
            "rows_per_read" => requests(*table, reads, &of.rows),
            _ => requests(*table, reads, &of.tombstones),
        }
    };
    figures.iter().map(one).collect()
}

/// Large partitions, rows and cells of the SSTables of all shards.
pub(crate) fn large(shards: &[EngineStats]) -> Vec<LargeFacts> {
    let one = |sstable: &engine::LargeSstable, record: &engine::LargeRecord| LargeFacts {
        table: sstable.table,
        sstable: sstable.name.clone(),
        key: record.key.clone(),
        bytes: signed(record.bytes),
        written_micros: record.written_micros,
        kind: match &record.kind {
            engine::LargeKind::Partition { rows, dead_rows, range_tombstones } => LargeFactsKind::Partition {
                rows: signed(*rows),
                dead_rows: signed(*dead_rows),
                range_tombstones: signed(*range_tombstones),
            },
            engine::LargeKind::Row { clustering } => LargeFactsKind::Row { clustering: clustering.clone() },
            engine::LargeKind::Cell { clustering, column, elements } => LargeFactsKind::Cell {
                clustering: clustering.clone(),
                column: column.clone(),
                elements: signed(*elements),
            },
        },
    };
    let of_sstable = |sstable| {
        let sstable: &engine::LargeSstable = sstable;
        sstable.large.records().iter().map(move |record| one(sstable, record))
    };
    shards.iter().flat_map(|shard| &shard.large).flat_map(of_sstable).collect()
}

pub(crate) fn caches(shards: &[EngineStats]) -> Vec<CacheFacts> {
    let sum = |of: fn(&EngineStats) -> u64| signed(shards.iter().map(of).sum());
    let tables = |of: fn(&engine::TableStats) -> u64| {
        signed(shards.iter().flat_map(|shard| &shard.tables).map(|(_, table)| of(table)).sum())
    };
    let capacity = sum(|s| s.cache_bytes_max);
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
