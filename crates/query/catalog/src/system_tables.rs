//! `system` and `system_views`: the node, its clients, its work.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use coordinator::{ClusterView, HintFigures};
use schema::{Schema, TableId};
use topology::HostId;

use crate::rows::{Datum, RowBuilder};
use crate::{
    GossipFacts, LargeFacts, RequestFacts, estimates, gossip, large, nodes, requests, ring, running,
};

/// What the node knows of itself beside its place in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeFacts {
    /// Name of the cluster.
    pub cluster_name: String,
    /// Where it listens for other nodes.
    pub listen: SocketAddr,
    /// Start, seconds since the epoch.
    pub started_seconds: i32,
    /// Version of the server.
    pub version: String,
    /// `release` or `debug`.
    pub build_mode: &'static str,
    /// Servers for clients.
    pub servers: Vec<ServerFacts>,
}

/// One connection.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientFacts {
    /// The client's address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// The shard that owns the connection.
    pub shard: i32,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// What it said in STARTUP.
    pub options: BTreeMap<String, String>,
    /// `ready`, `startup`, `authenticating`.
    pub stage: String,
    /// Its driver.
    pub driver_name: Option<String>,
    /// Its driver's version.
    pub driver_version: Option<String>,
    /// Keyspace in use.
    pub keyspace: Option<String>,
    /// Native protocol version.
    pub protocol_version: i32,
    /// Requests so far.
    pub requests: i64,
    /// User.
    pub username: String,
}

/// One compaction that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactionFacts {
    /// Its id.
    pub id: [u8; 16],
    /// Keyspace.
    pub keyspace: String,
    /// Table.
    pub table: String,
    /// When, microseconds since the epoch.
    pub ended_micros: i64,
    /// Bytes read.
    pub bytes_in: i64,
    /// Bytes written.
    pub bytes_out: i64,
    /// Partitions merged from so many SSTables: `[n]` from `n + 1`.
    pub rows_merged: Vec<i64>,
    /// Why.
    pub properties: String,
}

/// One compaction that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskFacts {
    /// Its id.
    pub id: [u8; 16],
    /// Keyspace.
    pub keyspace: String,
    /// Table.
    pub table: String,
    /// SSTables that it reads.
    pub sstables: i32,
    /// Bytes read so far.
    pub done: i64,
    /// Bytes to read.
    pub total: i64,
}

/// One prepared statement.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedFacts {
    /// Its id.
    pub id: Vec<u8>,
    /// Keyspace in use when it was prepared.
    pub keyspace: Option<String>,
    /// Its text.
    pub text: String,
}

/// How large a table is on this node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeFacts {
    /// Which table.
    pub table: TableId,
    /// Partitions, estimated.
    pub partitions: i64,
    /// Their mean size, bytes.
    pub partition_bytes_mean: i64,
    /// Bytes on disk.
    pub disk_bytes: i64,
    /// Bytes before compression.
    pub uncompressed_bytes: i64,
    /// Largest partition, bytes.
    pub partition_bytes_max: i64,
    /// Largest SSTable, bytes.
    pub sstable_bytes_max: i64,
    /// Longest time between the oldest and the newest write of one SSTable, milliseconds.
    pub sstable_millis_max: i64,
}

/// One table in one snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFacts {
    /// The snapshot's name.
    pub name: String,
    /// Keyspace.
    pub keyspace: String,
    /// Table.
    pub table: String,
    /// Bytes that only the snapshot holds.
    pub true_bytes: i64,
    /// Bytes of all its files.
    pub disk_bytes: i64,
}

/// One option of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionFacts {
    /// Its name.
    pub name: String,
    /// `string`, `bool`, `integer`, `double`.
    pub kind: &'static str,
    /// Whether the value is the default.
    pub is_default: bool,
    /// Its value in JSON.
    pub json: String,
}

/// A protocol that clients of data speak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFacts {
    /// The server's name, such as `native`.
    pub name: &'static str,
    /// The protocol, such as `cql`.
    pub protocol: &'static str,
    /// Its version; none for a protocol without versions.
    pub version: Option<&'static str>,
    /// Where it listens; nowhere when it does not run.
    pub addresses: Vec<SocketAddr>,
}

/// One cache.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheFacts {
    /// `rows`, `chunks`.
    pub name: String,
    /// Bytes that it may take.
    pub capacity_bytes: i64,
    /// Bytes that it takes.
    pub size_bytes: i64,
    /// Entries.
    pub entries: i32,
    /// Hits since start.
    pub hits: i64,
    /// Requests since start.
    pub requests: i64,
}

/// One kind of work, in the place of Cassandra's thread pools: a scheduling group.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolFacts {
    /// Its name.
    pub name: String,
    /// Tasks alive.
    pub active: i32,
    /// Tasks ready and waiting for the CPU.
    pub pending: i32,
    /// Tasks polled since start.
    pub completed: i64,
}

/// A range of a table, and when it was repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairFacts {
    /// Which table.
    pub table: TableId,
    /// The tokens above this,
    pub after: i64,
    /// up to this.
    pub upto: i64,
    /// When, seconds since the epoch.
    pub seconds: u32,
}

/// What the tables of `system` and `system_views` are computed from.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The node.
    pub node: NodeFacts,
    /// The cluster.
    pub view: Arc<ClusterView>,
    /// Settings by name.
    pub settings: Vec<(String, String)>,
    /// Connections.
    pub clients: Vec<ClientFacts>,
    /// Compactions that have ended.
    pub compactions: Vec<CompactionFacts>,
    /// Prepared statements.
    pub prepared: Vec<PreparedFacts>,
    /// Sizes of tables.
    pub sizes: Vec<SizeFacts>,
    /// Caches.
    pub caches: Vec<CacheFacts>,
    /// Work.
    pub pools: Vec<PoolFacts>,
    /// Compactions that run.
    pub tasks: Vec<TaskFacts>,
    /// What is kept for other nodes.
    pub hints: BTreeMap<HostId, HintFigures>,
    /// What was repaired when.
    pub repairs: Vec<RepairFacts>,
    /// Figures of the CQL server, by Cassandra's names.
    pub cql: Vec<(&'static str, f64)>,
    /// Tables in snapshots.
    pub snapshots: Vec<SnapshotFacts>,
    /// Options with their types.
    pub options: Vec<OptionFacts>,
    /// Figures of the node in ScyllaDB's groups: group, item, value.
    pub runtime: Vec<(&'static str, &'static str, String)>,
    /// The gossip states of the nodes.
    pub gossip: Vec<GossipFacts>,
    /// The requests of tables.
    pub requests: Vec<RequestFacts>,
    /// Large partitions, rows and cells of SSTables.
    pub large: Vec<LargeFacts>,
}

pub(crate) fn fill(rows: &mut RowBuilder, schema: &Schema, facts: &Facts) {
    match rows.table().name.clone().as_str() {
        "local" => nodes::local(rows, schema, &facts.node, &facts.view),
        "peers" => nodes::peers(rows, schema, &facts.view),
        "peers_v2" => nodes::peers_v2(rows, schema, &facts.view),
        "cluster_status" => ring::cluster_status(rows, &facts.view),
        "pending_hints" => nodes::pending_hints(rows, &facts.hints, &facts.view),
        "repair_history" => facts.repairs.iter().for_each(|one| repair(rows, schema, one)),
        "size_estimates" | "table_estimates" => estimates::fill(rows, schema, facts),
        "compaction_history" => facts.compactions.iter().for_each(|record| compaction(rows, record)),
        "prepared_statements" => facts.prepared.iter().for_each(|prepared| {
            rows.row([
                ("prepared_id", prepared.id.clone().into()),
                ("logged_keyspace", prepared.keyspace.clone().into()),
                ("query_string", prepared.text.as_str().into()),
            ]);
        }),
        "settings" => facts.settings.iter().for_each(|(name, value)| {
            rows.row([("name", name.as_str().into()), ("value", value.as_str().into())]);
        }),
        "clients" if rows.table().keyspace == "system" => {
            facts.clients.iter().for_each(|one| client_of_shard(rows, one));
        }
        "clients" => facts.clients.iter().for_each(|one| client(rows, one)),
        "sstable_tasks" => facts.tasks.iter().for_each(|one| task(rows, one)),
        "cql_metrics" => facts.cql.iter().for_each(|(name, value)| {
            rows.row([("name", (*name).into()), ("value", (*value).into())]);
        }),
        "caches" => facts.caches.iter().for_each(|one| cache(rows, one)),
        "thread_pools" => facts.pools.iter().for_each(|pool| {
            rows.row([
                ("name", pool.name.as_str().into()),
                ("active_tasks", pool.active.into()),
                ("active_tasks_limit", i32::MAX.into()),
                ("blocked_tasks", 0i64.into()),
                ("blocked_tasks_all_time", 0i64.into()),
                ("completed_tasks", pool.completed.into()),
                ("pending_tasks", pool.pending.into()),
            ]);
        }),
        "disk_usage" => mebibytes(rows, schema, facts, |size| size.disk_bytes),
        "max_partition_size" => mebibytes(rows, schema, facts, |size| size.partition_bytes_max),
        "max_sstable_size" => mebibytes(rows, schema, facts, |size| size.sstable_bytes_max),
        "max_sstable_duration" => {
            sizes(rows, schema, facts, |size| ("max_sstable_duration", size.sstable_millis_max));
        }
        "token_ring" => ring::token_ring(rows, schema, &facts.view),
        "gossip_info" => gossip::fill(rows, &facts.gossip),
        "coordinator_read_latency"
        | "coordinator_scan_latency"
        | "coordinator_write_latency"
        | "local_read_latency"
        | "local_scan_latency"
        | "local_write_latency"
        | "rows_per_read"
        | "tombstones_per_read" => requests::fill(rows, schema, &facts.requests),
        "large_partitions" | "large_rows" | "large_cells" => large::fill(rows, schema, &facts.large),
        _ => running::fill(rows, facts),
    }
}

/// A figure of bytes in mebibytes, rounded up as Cassandra does.
fn mebibytes(rows: &mut RowBuilder, schema: &Schema, facts: &Facts, bytes: impl Fn(&SizeFacts) -> i64) {
    sizes(rows, schema, facts, |size| ("mebibytes", (bytes(size).max(0) as u64).div_ceil(1 << 20) as i64));
}

fn sizes(
    rows: &mut RowBuilder,
    schema: &Schema,
    facts: &Facts,
    figure: impl Fn(&SizeFacts) -> (&'static str, i64),
) {
    for size in &facts.sizes {
        if let Some(table) = schema.table_by_id(size.table) {
            let (name, value) = figure(size);
            rows.row([
                ("keyspace_name", table.keyspace.as_str().into()),
                ("table_name", table.name.as_str().into()),
                (name, value.into()),
            ]);
        }
    }
}

/// ScyllaDB's table. Which repair it was is not known: the id is that of the range.
fn repair(rows: &mut RowBuilder, schema: &Schema, one: &RepairFacts) {
    let Some(table) = schema.table_by_id(one.table) else { return };
    let mut id = [0; 16];
    id[..8].copy_from_slice(&one.after.to_be_bytes());
    id[8..].copy_from_slice(&one.upto.to_be_bytes());
    rows.row([
        ("table_uuid", one.table.0.into()),
        ("repair_time", (i64::from(one.seconds) * 1_000).into()),
        ("repair_uuid", id.into()),
        ("keyspace_name", table.keyspace.as_str().into()),
        ("range_end", one.upto.into()),
        ("range_start", one.after.into()),
        ("table_name", table.name.as_str().into()),
    ]);
}

fn compaction(rows: &mut RowBuilder, record: &CompactionFacts) {
    let merged = record.rows_merged.iter().enumerate().filter(|(_, count)| **count > 0);
    let merged = merged.map(|(n, count)| (Datum::Int(n as i32 + 1), Datum::Bigint(*count))).collect();
    let properties = BTreeMap::from([("compaction_type".to_owned(), record.properties.clone())]);
    rows.row([
        ("id", record.id.into()),
        ("bytes_in", record.bytes_in.into()),
        ("bytes_out", record.bytes_out.into()),
        ("columnfamily_name", record.table.as_str().into()),
        ("compacted_at", (record.ended_micros / 1_000).into()),
        ("compaction_properties", (&properties).into()),
        ("keyspace_name", record.keyspace.as_str().into()),
        ("rows_merged", Datum::Map(merged)),
    ]);
}

fn client(rows: &mut RowBuilder, client: &ClientFacts) {
    rows.row([
        ("address", client.address.into()),
        ("port", i32::from(client.port).into()),
        ("client_options", (&client.options).into()),
        ("connection_stage", client.stage.as_str().into()),
        ("driver_name", client.driver_name.clone().into()),
        ("driver_version", client.driver_version.clone().into()),
        ("hostname", client.address.to_string().into()),
        ("keyspace_name", client.keyspace.clone().into()),
        ("protocol_version", client.protocol_version.into()),
        ("request_count", client.requests.into()),
        ("ssl_enabled", client.encrypted.into()),
        ("username", client.username.as_str().into()),
    ]);
}

/// A row of ScyllaDB's table of clients.
fn client_of_shard(rows: &mut RowBuilder, client: &ClientFacts) {
    rows.row([
        ("address", client.address.into()),
        ("port", i32::from(client.port).into()),
        ("client_type", "cql".into()),
        ("connection_stage", client.stage.as_str().into()),
        ("driver_name", client.driver_name.clone().into()),
        ("driver_version", client.driver_version.clone().into()),
        ("hostname", client.address.to_string().into()),
        ("protocol_version", client.protocol_version.into()),
        ("shard_id", client.shard.into()),
        ("ssl_enabled", client.encrypted.into()),
        ("username", client.username.as_str().into()),
    ]);
}

fn task(rows: &mut RowBuilder, task: &TaskFacts) {
    let ratio = if task.total == 0 { 0.0 } else { task.done as f64 / task.total as f64 };
    rows.row([
        ("keyspace_name", task.keyspace.as_str().into()),
        ("table_name", task.table.as_str().into()),
        ("task_id", task.id.into()),
        ("completion_ratio", ratio.min(1.0).into()),
        ("kind", "compaction".into()),
        ("progress", task.done.into()),
        ("sstables", task.sstables.into()),
        ("total", task.total.into()),
        ("unit", "bytes".into()),
    ]);
}

fn cache(rows: &mut RowBuilder, cache: &CacheFacts) {
    let ratio = if cache.requests == 0 { 0.0 } else { cache.hits as f64 / cache.requests as f64 };
    rows.row([
        ("name", cache.name.as_str().into()),
        ("capacity_bytes", cache.capacity_bytes.into()),
        ("entry_count", cache.entries.into()),
        ("hit_count", cache.hits.into()),
        ("hit_ratio", ratio.into()),
        ("request_count", cache.requests.into()),
        ("size_bytes", cache.size_bytes.into()),
    ]);
}
