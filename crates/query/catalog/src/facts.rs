//! The values that the tables of `system` and `system_views` are computed from. A read of a table gathers them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use coordinator::{ClusterView, HintFigures};
use schema::TableId;
use topology::HostId;

use crate::{
    BatchFacts, GossipFacts, LargeFacts, LogFacts, PeerFacts, QueryFacts, RepairJobFacts, RequestFacts,
};

/// The node's description of itself beside its place in the cluster.
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
    /// The options of its STARTUP.
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
    /// Its kind, as Cassandra names it.
    pub kind: &'static str,
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
    /// When it was made, milliseconds since the epoch; none where that was not recorded.
    pub created_millis: Option<i64>,
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

/// The values that the tables of `system` and `system_views` are computed from.
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
    /// The hints of other nodes.
    pub hints: BTreeMap<HostId, HintFigures>,
    /// The history of repairs.
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
    /// How far nodes are with building materialized views; of those that have begun.
    pub view_builds: Vec<(TableId, HostId, &'static str)>,
    /// Batches of the shard that answers, by the kind in Cassandra's `batch_metrics`.
    pub batches: Vec<BatchFacts>,
    /// Statements under way on the shard that answers.
    pub queries: Vec<QueryFacts>,
    /// The last lines of the log, oldest first.
    pub log: Vec<LogFacts>,
    /// The indexes that all shards can query, by table and name.
    pub built_indexes: Vec<(TableId, String)>,
    /// The messages from or to each node.
    pub peers: Vec<PeerFacts>,
    /// The repairs that the node leads or led since its start.
    pub repair_jobs: Vec<RepairJobFacts>,
    /// Checks of the addresses of logins, by Cassandra's names.
    pub cidr_counts: Vec<(String, u64)>,
    /// Nanoseconds of these checks, by Cassandra's names: the percentiles 50, 95, 99 and 99.9, and the largest.
    pub cidr_latencies: Vec<(&'static str, [f64; 5])>,
}
