//! The interface of execution to the layers below, as two small traits: the coordinator's operations, and time with randomness.
//! The node passes the real ones in; tests pass a table in memory and a clock that stands still.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::SchemaEdit;
use coordinator::{
    CasOptions, CasOutcome, ClusterView, Consistency, RangePart, RequestError, SchemaChangeError,
    WriteOptions,
};
use mutation::{DecoratedKey, PartitionRange, PartitionUpdate, Row, Timestamp};
use replica::{
    Candidates, FragmentsPage, FragmentsRead, NearestQuery, OrderedPlaces, OrderedScan, ReadCommand,
    ReadPage, RowLookup, TableSize, TraceLog,
};
use rt::Instant;
use schema::{Schema, Table, TableId};
use topology::HostId;

use crate::error::ExecError;

/// Decides on a conditional request: from the current rows and the ballot's timestamp, the update to propose, or none when a condition is false.
pub type Decide<'a> = &'a mut dyn FnMut(&ReadPage, Timestamp) -> Result<Option<PartitionUpdate>, ExecError>;

/// The coordinator as execution sees it.
pub trait Coordinator: Sized + 'static {
    /// The schema as this shard knows it.
    fn schema(&self) -> Arc<Schema>;

    /// The cluster as this shard sees it.
    fn view(&self) -> Arc<ClusterView>;

    /// About how much of a table this node holds, by statistics.
    fn table_size(&self, _table: TableId) -> impl Future<Output = TableSize> {
        std::future::ready(TableSize::default())
    }

    /// Reads one page.
    ///
    /// # Errors
    /// As [`coordinator::Coordinator::read`].
    fn read(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        deadline: Instant,
    ) -> impl Future<Output = Result<ReadPage, RequestError>>;

    /// Rows of one read of an aggregation that may be divided into parts; one of a table that has no more is not divided.
    const AGGREGATED_ROWS: u64 = 5_000;

    /// The parts of a token range in which an aggregation is divided, of about as many tokens as `width` says, in ring order, and the shards that are
    /// to work on them; none where it is not divided.
    ///
    /// # Errors
    /// When the table's keyspace is gone.
    fn range_parts(
        &self,
        _table: &Arc<Table>,
        _range: &PartitionRange,
        _width: i128,
    ) -> Result<Vec<RangePart>, RequestError> {
        Ok(Vec::new())
    }

    /// Has another shard work on a part ([`Executor::aggregate_part`](crate::Executor::aggregate_part)); its answer.
    ///
    /// # Errors
    /// The reason why there is none.
    fn ask_for_part(
        &self,
        _by: (HostId, u16),
        _body: Bytes,
        _deadline: Instant,
    ) -> impl Future<Output = Result<Bytes, String>> {
        std::future::ready(Err("there is no other shard".to_owned()))
    }

    /// Hands the live row that a lookup, of a request that began then, finds to `visit` where it lies, when no other node is to be queried and the row is in this shard's
    /// memory; its result, and the tombstones in the row. None when [`Coordinator::read`] is to be used, also where that would fail.
    fn row_here<T>(
        &self,
        _lookup: &RowLookup<'_>,
        _consistency_and_begin: (Consistency, Instant),
        _visit: impl FnOnce(Option<&Row>) -> T,
    ) -> Option<(T, u64)> {
        None
    }

    /// The names of this node's sources that may hold something of a partition, in their order as text.
    ///
    /// # Errors
    /// As [`coordinator::Coordinator::fragment_sources`].
    fn fragment_sources(
        &self,
        table: &Table,
        key: &DecoratedKey,
        deadline: Instant,
    ) -> impl Future<Output = Result<Vec<String>, RequestError>>;

    /// Reads fragments of a partition in one of this node's sources.
    ///
    /// # Errors
    /// As [`coordinator::Coordinator::read_fragments`].
    fn read_fragments(
        &self,
        table: &Table,
        read: FragmentsRead,
        deadline: Instant,
    ) -> impl Future<Output = Result<FragmentsPage, RequestError>>;

    /// The keys of at most so many partitions of a range that this node has anything of, in ring order.
    ///
    /// # Errors
    /// As [`coordinator::Coordinator::partition_keys`].
    fn partition_keys(
        &self,
        table: &Table,
        range: &PartitionRange,
        count_max: usize,
        deadline: Instant,
    ) -> impl Future<Output = Result<Vec<DecoratedKey>, RequestError>>;

    /// The places of a table whose vectors are nearest to one, nearest first; each of them once. They are candidates: their rows may
    /// be others by now, or gone.
    ///
    /// # Errors
    /// As [`Coordinator::read`]; [`RequestError::Invalid`] when the index is not there or not built yet on a replica.
    fn nearest(
        &self,
        table: &Arc<Table>,
        query: &Arc<NearestQuery>,
        consistency: Consistency,
        deadline: Instant,
    ) -> impl Future<Output = Result<Candidates, RequestError>>;

    /// The first places of a table in the order of one of its ordered indexes. They are candidates: their rows may be others by now, or gone.
    ///
    /// # Errors
    /// As [`Coordinator::nearest`].
    fn scan_index(
        &self,
        table: &Arc<Table>,
        scan: &Arc<OrderedScan>,
        consistency: Consistency,
        deadline: Instant,
    ) -> impl Future<Output = Result<OrderedPlaces, RequestError>>;

    /// Writes; all or none of the partitions when the kind is a logged batch.
    ///
    /// # Errors
    /// As [`coordinator::Coordinator::write`].
    fn write(
        &self,
        updates: Vec<PartitionUpdate>,
        options: WriteOptions,
    ) -> impl Future<Output = Result<(), RequestError>>;

    /// Takes and writes one update, when no other node is to be asked and nothing has to be waited for. An update that is left was not
    /// written: [`Coordinator::write`] is to be used.
    fn write_now(&self, _update: &mut Option<PartitionUpdate>, _consistency: Consistency) {}

    /// The same for one request whose steps are traced.
    fn traced(&self, trace: &TraceLog) -> Self;

    /// The shard that it is on, for traces.
    fn shard(&self) -> u16 {
        0
    }

    /// Reads one partition with the command, and writes the result of `decide`, with no other decision in between.
    ///
    /// # Errors
    /// [`RequestError::CasTimeout`] when the votes do not come in time and the write never takes effect,
    /// [`RequestError::CasUncertain`] when it may, [`RequestError::Unavailable`], and those of `decide`.
    fn cas(
        &self,
        command: &ReadCommand,
        options: CasOptions,
        decide: Decide<'_>,
    ) -> impl Future<Output = Result<CasOutcome, ExecError>>;

    /// Reads one partition so that everything agreed on before is seen.
    ///
    /// # Errors
    /// As [`Coordinator::read`]; [`RequestError::CasTimeout`] when an earlier decision cannot be completed in time.
    fn read_serial(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        deadline: Instant,
    ) -> impl Future<Output = Result<ReadPage, RequestError>>;

    /// Adds to counters: each cell's value is the change as eight bytes.
    ///
    /// # Errors
    /// As [`coordinator::Coordinator::increment`].
    fn increment(
        &self,
        updates: Vec<PartitionUpdate>,
        options: WriteOptions,
    ) -> impl Future<Output = Result<(), RequestError>>;

    /// Removes all data of a table on all nodes.
    ///
    /// # Errors
    /// [`RequestError::Truncate`] when a node is down, or a shard fails or does not answer in time.
    fn truncate(&self, table: &Table, deadline: Instant) -> impl Future<Output = Result<(), RequestError>>;

    /// Applies edits planned against the schema of version `base`, and returns when this shard sees the new schema.
    ///
    /// # Errors
    /// As [`coordinator::Coordinator::change_schema`].
    fn change_schema(
        &self,
        base: [u8; 16],
        edits: Vec<SchemaEdit>,
    ) -> impl Future<Output = Result<(), SchemaChangeError>>;

    /// Refuses to give a new table an id by which a node may still have data of a dropped table, in the schema of version `base`.
    ///
    /// # Errors
    /// As [`coordinator::Coordinator::check_given_id`].
    fn check_given_id(
        &self,
        base: [u8; 16],
        id: TableId,
    ) -> impl Future<Output = Result<(), SchemaChangeError>>;
}

impl Coordinator for coordinator::Coordinator {
    fn schema(&self) -> Arc<Schema> {
        coordinator::Coordinator::schema(self)
    }

    fn view(&self) -> Arc<ClusterView> {
        coordinator::Coordinator::view(self)
    }

    async fn read(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<ReadPage, RequestError> {
        coordinator::Coordinator::read(self, command, consistency, deadline).await
    }

    fn range_parts(
        &self,
        table: &Arc<Table>,
        range: &PartitionRange,
        width: i128,
    ) -> Result<Vec<RangePart>, RequestError> {
        coordinator::Coordinator::range_parts(self, table, range, width)
    }

    async fn ask_for_part(&self, by: (HostId, u16), body: Bytes, deadline: Instant) -> Result<Bytes, String> {
        coordinator::Coordinator::ask_for_part(self, by, body, deadline).await
    }

    async fn table_size(&self, table: TableId) -> TableSize {
        self.replica().table_size(table).await
    }

    #[inline]
    fn row_here<T>(
        &self,
        lookup: &RowLookup<'_>,
        (consistency, began): (Consistency, Instant),
        visit: impl FnOnce(Option<&Row>) -> T,
    ) -> Option<(T, u64)> {
        coordinator::Coordinator::row_here(self, lookup, (consistency, began), visit)
    }

    async fn fragment_sources(
        &self,
        table: &Table,
        key: &DecoratedKey,
        deadline: Instant,
    ) -> Result<Vec<String>, RequestError> {
        coordinator::Coordinator::fragment_sources(self, table, key, deadline).await
    }

    async fn read_fragments(
        &self,
        table: &Table,
        read: FragmentsRead,
        deadline: Instant,
    ) -> Result<FragmentsPage, RequestError> {
        coordinator::Coordinator::read_fragments(self, table, read, deadline).await
    }

    async fn partition_keys(
        &self,
        table: &Table,
        range: &PartitionRange,
        count_max: usize,
        deadline: Instant,
    ) -> Result<Vec<DecoratedKey>, RequestError> {
        coordinator::Coordinator::partition_keys(self, table, range, count_max, deadline).await
    }

    async fn nearest(
        &self,
        table: &Arc<Table>,
        query: &Arc<NearestQuery>,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Candidates, RequestError> {
        coordinator::Coordinator::nearest(self, table, query, consistency, deadline).await
    }

    async fn scan_index(
        &self,
        table: &Arc<Table>,
        scan: &Arc<OrderedScan>,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<OrderedPlaces, RequestError> {
        coordinator::Coordinator::scan_index(self, table, scan, consistency, deadline).await
    }

    async fn write(&self, updates: Vec<PartitionUpdate>, options: WriteOptions) -> Result<(), RequestError> {
        coordinator::Coordinator::write(self, updates, options).await
    }

    #[inline]
    fn write_now(&self, update: &mut Option<PartitionUpdate>, consistency: Consistency) {
        coordinator::Coordinator::write_now(self, update, consistency);
    }

    fn traced(&self, trace: &TraceLog) -> Self {
        coordinator::Coordinator::traced(self, trace)
    }

    fn shard(&self) -> u16 {
        coordinator::Coordinator::shard(self)
    }

    async fn cas(
        &self,
        command: &ReadCommand,
        options: CasOptions,
        decide: Decide<'_>,
    ) -> Result<CasOutcome, ExecError> {
        coordinator::Coordinator::cas(self, command, options, decide).await
    }

    async fn read_serial(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<ReadPage, RequestError> {
        coordinator::Coordinator::read_serial(self, command, consistency, deadline).await
    }

    async fn increment(
        &self,
        updates: Vec<PartitionUpdate>,
        options: WriteOptions,
    ) -> Result<(), RequestError> {
        coordinator::Coordinator::increment(self, updates, options).await
    }

    async fn truncate(&self, table: &Table, deadline: Instant) -> Result<(), RequestError> {
        coordinator::Coordinator::truncate(self, table, deadline).await
    }

    async fn change_schema(&self, base: [u8; 16], edits: Vec<SchemaEdit>) -> Result<(), SchemaChangeError> {
        coordinator::Coordinator::change_schema(self, base, edits).await
    }

    async fn check_given_id(&self, base: [u8; 16], id: TableId) -> Result<(), SchemaChangeError> {
        coordinator::Coordinator::check_given_id(self, base, id).await
    }
}

/// The node, as far as statements show it and the view of the cluster does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// Name of the cluster.
    pub cluster_name: String,
    /// Name of the snitch, as DESCRIBE CLUSTER shows it.
    pub snitch: String,
    /// The node's address for clients.
    pub address: SocketAddr,
}

/// Time and randomness.
pub trait Clock: 'static {
    /// Microseconds since the epoch.
    fn wall_micros(&self) -> i64;
    /// The timestamp that a write gets of the one that was drawn for it: another one only where a test injects that.
    fn issued(&self, drawn: Timestamp) -> Timestamp {
        drawn
    }
    /// A clock that never goes back, for deadlines.
    fn now(&self) -> Instant;
    /// Sixteen random bytes.
    fn random(&self) -> [u8; 16];
    /// Waits so long. A clock that nobody can wait for returns at once.
    fn pause(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(std::future::ready(()))
    }
}

impl Clock for rt::Rt {
    fn wall_micros(&self) -> i64 {
        rt::Rt::wall_micros(self)
    }

    fn now(&self) -> Instant {
        rt::Rt::now(self)
    }

    fn random(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.fill_random(&mut bytes);
        bytes
    }

    fn pause(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()>>> {
        let rt = self.clone();
        Box::pin(async move { rt.sleep(time).await })
    }
}
