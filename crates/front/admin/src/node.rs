//! The interface of administration to a node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cluster::liveness::Liveness;
use cluster::state::ClusterState;
use coordinator::{
    BatchlogStats, ClusterView, DerivedCheck, DerivedCheckError, DerivedCheckStatus, HintFigures,
    ReplicationStats, RequestFigures, ViewBuildStatus, ViewNode,
};
use engine::{
    EngineStats, Rewrite, RewriteReport, Sampled, SnapshotRecord, SstableFigures, StopRequest,
    TableHistograms,
};
use membership::{FetchFigures, TopologyRequest};
use repair::Repair;
use replica::{Imported, ReplicaError, SnapshotContent, SnapshotError, TableOperation};
use rpc::RpcStats;
use rt::metrics::Sample;
use rt::{DiskError, GroupStats, IoStats, LocalBoxFuture};
use schema::{Cidr, Schema, Table, TableId};
use topology::HostId;

use crate::CidrFigures;

/// The facts that do not change while a node runs.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeInfo {
    /// Version of the server.
    pub version: String,
    /// Name of the cluster.
    pub cluster_name: String,
    /// The node's id.
    pub host_id: [u8; 16],
    /// Address for clients.
    pub address: IpAddr,
    /// Its datacenter.
    pub datacenter: String,
    /// Its rack.
    pub rack: String,
    /// Its tokens.
    pub tokens: Vec<i64>,
    /// When it started, microseconds since the epoch.
    pub started_micros: i64,
    /// Version of Cassandra whose interface this is.
    pub release_version: String,
}

/// The operation mode of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is not in the ring, and coordinates for clients.
    Starting,
    /// It enters the ring, and serves no clients yet.
    Joining,
    /// It serves.
    Normal,
    /// It serves, while others stream its ranges.
    Leaving,
    /// It has left its cluster and serves no more.
    Decommissioned,
    /// It stops serving, and flushes its memtables.
    Draining,
    /// It serves no more, and all that it has is in SSTables.
    Drained,
}

impl Mode {
    /// As Cassandra calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "STARTING",
            Self::Joining => "JOINING",
            Self::Normal => "NORMAL",
            Self::Leaving => "LEAVING",
            Self::Decommissioned => "DECOMMISSIONED",
            Self::Draining => "DRAINING",
            Self::Drained => "DRAINED",
        }
    }

    /// The number that ScyllaDB's metric `scylla_node_operation_mode` gives it.
    pub fn number(self) -> u8 {
        match self {
            Self::Starting => 1,
            Self::Joining => 2,
            Self::Normal => 3,
            Self::Leaving => 4,
            Self::Decommissioned => 5,
            Self::Draining => 6,
            Self::Drained => 7,
        }
    }
}

/// Figures of one shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShardFigures {
    /// Storage.
    pub engine: EngineStats,
    /// Scheduling groups by name.
    pub groups: Vec<(String, GroupStats)>,
    /// The reads and writes of files of each.
    pub io: Vec<(String, IoStats)>,
    /// Logged batches.
    pub batchlog: BatchlogStats,
    /// The metrics of the parts whose figures nothing but metrics shows.
    pub samples: Vec<Sample>,
    /// Dealings with the replicas of other nodes.
    pub replication: ReplicationStats,
    /// Reads of partitions by their keys that the shard coordinated.
    pub coordinated_reads: RequestFigures,
    /// Reads of ranges of partitions that the shard coordinated.
    pub coordinated_ranges: RequestFigures,
    /// Deliveries of updates of materialized views to other shards and nodes.
    pub view_writes: RequestFigures,
    /// Writes that the shard coordinated.
    pub coordinated_writes: RequestFigures,
    /// Serial reads that the shard coordinated.
    pub serial_reads: RequestFigures,
    /// Conditional writes that the shard coordinated.
    pub conditional_writes: RequestFigures,
    /// The streaming of a topology change.
    pub fetch: FetchFigures,
    /// Messages between nodes; none while the node is alone.
    pub rpc: RpcStats,
    /// Checks of the addresses from which roles log in.
    pub cidr: CidrFigures,
}

/// A setting of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its value as `torc.yaml` would have it.
    pub value: String,
    /// The type of the value.
    pub kind: SettingKind,
}

/// The type of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingKind {
    /// A text, also a duration or a size with its unit.
    Text,
    /// `true` or `false`.
    Truth,
    /// A whole number.
    Integer,
    /// A number.
    Float,
}

/// A connection of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFigures {
    /// The client's address.
    pub address: SocketAddr,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// Number of the protocol version; 0 until it is agreed on.
    pub protocol_version: u8,
    /// Name of the role; `anonymous` without a login.
    pub username: String,
    /// The service level that gives its role's shares.
    pub service_level: String,
    /// The keyspace in use.
    pub keyspace: Option<String>,
    /// Requests since the connection began.
    pub requests: u64,
    /// `DRIVER_NAME` and `DRIVER_VERSION` of STARTUP.
    pub driver: [Option<String>; 2],
}

/// A node as administration sees it.
pub trait Node {
    /// The facts that do not change.
    fn info(&self) -> &NodeInfo;
    /// The schema now.
    fn schema(&self) -> Arc<Schema>;
    /// Figures of all shards.
    fn figures(&self) -> LocalBoxFuture<Vec<ShardFigures>>;
    /// Maintains a table on all shards.
    ///
    /// # Errors
    /// [`ReplicaError`] of the first shard on which it fails.
    fn operate(&self, table: TableId, operation: TableOperation) -> LocalBoxFuture<Result<(), ReplicaError>>;
    /// Writes a table's SSTables anew on all shards, or verifies them.
    ///
    /// # Errors
    /// [`ReplicaError`] of the first shard on which it fails; SSTables that were written anew stay.
    fn rewrite_sstables(
        &self,
        table: TableId,
        how: Rewrite,
    ) -> LocalBoxFuture<Result<RewriteReport, ReplicaError>>;
    /// Imports the SSTables of a directory into a table: with none of the folder `upload` of the table's directory, from which they
    /// are removed then.
    ///
    /// # Errors
    /// The operator's message, with the file. Files stay where they are then.
    fn import_sstables(
        &self,
        table: &Table,
        directory: Option<PathBuf>,
    ) -> LocalBoxFuture<Result<Imported, String>>;
    /// Has operations on SSTables end that an operator means; how many there are.
    fn stop_operations(&self, wanted: StopRequest) -> LocalBoxFuture<u64>;
    /// Adds or replaces a group of addresses by these ranges, or removes it with none.
    ///
    /// # Errors
    /// The operator's message.
    fn change_cidr_group(
        &self,
        name: &str,
        cidrs: Option<BTreeSet<Cidr>>,
    ) -> LocalBoxFuture<Result<(), String>>;
    /// Whether an operator lets clients of CQL in.
    fn has_native_transport(&self) -> bool {
        true
    }
    /// Opens the ports of CQL, or closes them with their connections.
    ///
    /// # Errors
    /// The operator's message, when the node serves no clients any more or an address cannot be had.
    fn set_native_transport(&self, is_open: bool) -> LocalBoxFuture<Result<(), String>>;
    /// Counts for a while which partitions of a table are asked for on this node, in so many places on each shard.
    fn sample(&self, table: TableId, places: usize, during: Duration) -> LocalBoxFuture<Option<Sampled>>;
    /// The ring as requests see it.
    fn view(&self) -> Arc<ClusterView>;
    /// The liveness of all nodes now; none while the node is alone.
    fn liveness(&self) -> Option<Liveness>;
    /// The node's operation mode.
    fn mode(&self) -> Mode;
    /// Has the node serve no more and write everything to SSTables. It stays up for administration. A call during another waits for that one; one
    /// after a call that failed writes the rest.
    ///
    /// # Errors
    /// [`ReplicaError`] of the first table and shard whose memtables cannot be written.
    fn drain(&self) -> LocalBoxFuture<Result<(), ReplicaError>>;
    /// The connections of clients to all shards.
    fn clients(&self) -> LocalBoxFuture<Vec<ClientFigures>> {
        Box::pin(std::future::ready(Vec::new()))
    }
    /// Makes a snapshot of tables on all shards: of all of them, or of none.
    ///
    /// # Errors
    /// [`SnapshotError`], which names the table.
    fn take_snapshot(
        &self,
        tables: Vec<Arc<Table>>,
        name: String,
        content: SnapshotContent,
    ) -> LocalBoxFuture<Result<(), SnapshotError>>;
    /// Removes snapshots, also of dropped tables; how many there were.
    ///
    /// # Errors
    /// [`ReplicaError`] when a directory cannot be removed.
    fn remove_snapshots(&self, records: Vec<SnapshotRecord>) -> LocalBoxFuture<Result<u64, ReplicaError>>;
    /// All snapshots on disk.
    ///
    /// # Errors
    /// A [`DiskError`] when a directory cannot be listed.
    fn snapshots(&self) -> LocalBoxFuture<Result<Vec<SnapshotRecord>, DiskError>>;
    /// The distributions of a table's requests and partitions on this node; none when it stores no such table.
    fn table_histograms(&self, table: TableId) -> LocalBoxFuture<Option<TableHistograms>>;
    /// The tokens of sampled partitions of a table's SSTables, in no order.
    fn sampled_tokens(&self, table: TableId) -> LocalBoxFuture<Vec<i64>>;
    /// Paths of the data files of this node that hold rows or deletions of the partition of this key.
    ///
    /// # Errors
    /// [`ReplicaError`] when the table is unknown, or a file cannot be read.
    fn sstables_of(&self, table: TableId, key: Vec<u8>)
    -> LocalBoxFuture<Result<Vec<PathBuf>, ReplicaError>>;
    /// The SSTables of a table.
    ///
    /// # Errors
    /// [`ReplicaError`] when the table is unknown, or the size of a file cannot be read.
    fn sstables(&self, table: TableId) -> LocalBoxFuture<Result<Vec<SstableFigures>, ReplicaError>>;
    /// The indexes that can be queried on every shard, by table and name.
    fn built_indexes(&self) -> LocalBoxFuture<Vec<(TableId, String)>>;
    /// Names of the commit log's segments that hold entries, and of those that wait for the archive.
    fn commitlog_segments(&self) -> LocalBoxFuture<[Vec<String>; 2]>;
    /// The directory of a table's SSTables.
    fn table_directory(&self, table: &Table) -> PathBuf;
    /// How unlikely a node's silence is: minus the decimal logarithm of its chance; 0 for one that is down or unknown.
    fn phi(&self, host: HostId) -> f64;
    /// The hints that this node stores for others.
    fn pending_hints(&self) -> LocalBoxFuture<BTreeMap<HostId, HintFigures>>;
    /// Has the node deliver no hints, or deliver them again, until it ends.
    fn pause_hints(&self, is_paused: bool) -> LocalBoxFuture<()>;
    /// Drops the hints that are stored for a node, or for all.
    fn drop_hints(&self, host: Option<HostId>) -> LocalBoxFuture<()>;
    /// How far each node of the ring is with building a materialized view.
    fn view_builds(&self, view: TableId) -> LocalBoxFuture<Vec<(ViewNode, ViewBuildStatus)>> {
        let _ = view;
        Box::pin(std::future::ready(Vec::new()))
    }
    /// Begins a check of a materialized view or of a log of changes in the background; its number.
    ///
    /// # Errors
    /// When there is no such table, or too many checks run.
    fn begin_derived_check(&self, wanted: DerivedCheck) -> Result<u64, DerivedCheckError> {
        let _ = wanted;
        Err(DerivedCheckError::NoView)
    }
    /// The checks that run, and the last ones that have ended.
    fn derived_checks(&self) -> Vec<DerivedCheckStatus> {
        Vec::new()
    }
    /// Has a check end; whether there is one of that number.
    fn cancel_derived_check(&self, id: u64) -> bool {
        let _ = id;
        false
    }
    /// Runs an operator's topology change, and returns when it has completed.
    ///
    /// # Errors
    /// The operator's message when the change may not begin, is aborted, or is not decided in time.
    fn change_topology(&self, request: TopologyRequest) -> LocalBoxFuture<Result<(), String>> {
        let _ = request;
        Box::pin(std::future::ready(Err("this node has no ring".to_owned())))
    }
    /// From where the node is being rebuilt; none while it is not.
    fn rebuilds_from(&self) -> Option<String> {
        None
    }
    /// The present state of the cluster's log; none while the node has no ring.
    fn cluster_state(&self) -> Option<Arc<ClusterState>> {
        None
    }
    /// Waits until this node has applied all that the cluster's log had when it was called.
    ///
    /// # Errors
    /// When no majority of the log's voters answers in this time.
    fn read_barrier(&self, timeout: Duration) -> LocalBoxFuture<Result<(), String>> {
        let _ = timeout;
        Box::pin(std::future::ready(Ok(())))
    }
    /// A setting as it is now; none when none has this name.
    fn setting(&self, name: &str) -> Option<Setting>;
    /// Changes a setting on all shards, until the node ends.
    ///
    /// # Errors
    /// When there is no such setting, it counts at the start only, or does not take this value: the operator's message.
    fn change_setting(&self, name: &str, value: &str) -> LocalBoxFuture<Result<(), String>>;
    /// Asks the node to stop.
    fn request_stop(&self);
    /// Microseconds since the epoch.
    fn now_micros(&self) -> i64;
    /// Waits.
    fn sleep(&self, time: Duration) -> LocalBoxFuture<()>;
    /// This node's repair service, on shard 0; none while the node has no ring.
    fn repair(&self) -> Option<Repair> {
        None
    }
}
