//! The calls between shards, and the type of each answer.
//!
//! The messages of the mesh are made of one list, so that no call can be answered with another's answer.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::path::PathBuf;
use std::sync::Arc;

use engine::{
    Candidates, EngineStats, FragmentsPage, FragmentsRead, Incoming, LocalFigures, Marked, NearestQuery,
    OrderedPlaces, OrderedScan, OwnedRanges, RepairedWatermark, Rewrite, RewriteReport, Sampled,
    SstableFigures, StopRequest, TableHistograms, TableSize, TokenSpan,
};
use mutation::{DecoratedKey, PartitionRange, PartitionUpdate, Repaired};
use rt::Instant;
use schema::{Schema, TableId};

use crate::{ReadCommand, ReadPage, ReplicaError, TombstoneLimit, TraceEvent};

/// A maintenance operation on one table's data on a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableOperation {
    /// Write memtables to SSTables.
    Flush,
    /// Merge all SSTables.
    Compact,
    /// Remove everything written so far.
    Truncate {
        /// Now, microseconds since the epoch: late writes accepted up to then are left out from now on. Names the
        /// automatic snapshot, too.
        at_micros: i64,
        /// After this it is refused, for it would remove later writes.
        expires: Instant,
    },
    /// Forget the table.
    Drop {
        /// Now, microseconds since the epoch; names the automatic snapshot.
        at_micros: i64,
    },
    /// Make indexes anew.
    RebuildIndexes {
        /// Of these names, or all.
        names: Vec<String>,
    },
    /// Stop the compactions that begin by themselves, or allow them again, until the node ends.
    SetAutoCompaction {
        /// Whether they are allowed.
        is_on: bool,
    },
    /// Purge no tombstones, or purge them again, until the node ends.
    SetTombstoneGc {
        /// Whether they are purged.
        is_on: bool,
    },
    /// Hard-link the SSTables.
    Snapshot {
        /// Name of the snapshot.
        name: String,
        /// Its content.
        content: SnapshotContent,
    },
}

/// The content of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotContent {
    /// All that was written before: memtables are flushed first.
    Written,
    /// The same, and it fails where an SSTable is damaged.
    Sound,
    /// The SSTables that are there.
    Flushed,
}

rt::shard_calls! {
    /// A request from one shard to another of the same node.
    #[derive(Debug)]
    pub ShardRequest => ShardResponse {
        /// Read partitions that the shard owns; with the steps where they are recorded.
        #[derive(Debug)]
        Read { command: ReadCommand, tombstones: TombstoneLimit, is_traced: bool }
            -> (Result<ReadPage, ReplicaError>, Vec<TraceEvent>),
        /// Look for the nearest vectors that the shard has.
        #[derive(Clone, Debug)]
        Nearest { table: TableId, query: Arc<NearestQuery> } -> Result<Candidates, ReplicaError>,
        /// Scan an ordered index in its order.
        #[derive(Clone, Debug)]
        ScanIndex { table: TableId, scan: Arc<OrderedScan> } -> Result<OrderedPlaces, ReplicaError>,
        /// Apply updates of partitions that the shard owns, all or none; with the steps where they are recorded.
        #[derive(Debug)]
        Apply { write: engine::Write, is_traced: bool } -> (Result<(), ReplicaError>, Vec<TraceEvent>),
        /// Count; the answer is the state to replicate.
        #[derive(Debug)]
        Increment { update: PartitionUpdate } -> Result<PartitionUpdate, ReplicaError>,
        /// Maintain a table.
        #[derive(Clone, Debug)]
        Operate { table: TableId, operation: TableOperation } -> Result<(), ReplicaError>,
        /// Write a table's SSTables anew, or verify them.
        #[derive(Clone, Debug)]
        RewriteSstables { table: TableId, how: Rewrite } -> Result<RewriteReport, ReplicaError>,
        /// Await the shard's part of an import, or do not await it any more.
        #[derive(Clone, Debug)]
        AwaitImport { table: TableId, begins: bool } -> Result<(), ReplicaError>,
        /// Adopt the shard's part of an import.
        #[derive(Clone, Debug)]
        AdoptImport { table: TableId, files: Vec<Incoming>, owned: OwnedRanges } -> Result<(), ReplicaError>,
        /// End operations on SSTables; how many there are.
        #[derive(Clone, Debug)]
        StopOperations { wanted: StopRequest } -> u64,
        /// Take over a schema.
        #[derive(Clone, Debug)]
        SetSchema { schema: Arc<Schema> } -> (),
        /// Apply the repair times of a table's ranges.
        #[derive(Clone, Debug)]
        SetRepaired { table: TableId, repaired: Arc<Repaired> } -> (),
        /// Cover the content of a table's SSTables by a watermark, after flushing if `flush` is set.
        #[derive(Clone, Debug)]
        TakeMark { table: TableId, flush: bool } -> Result<Marked, ReplicaError>,
        /// Keep SSTables apart that this watermark of a table covers.
        #[derive(Debug)]
        SetRepairedUpto { table: TableId, mark: RepairedWatermark } -> (),
        /// A repair that had begun with a mark compared these tokens, of the tokens that the node owns.
        #[derive(Debug)]
        RangeRepaired { table: TableId, repaired: TokenSpan, mark: RepairedWatermark, owned: Arc<Vec<TokenSpan>> } -> (),
        /// Ensure that a power failure cannot undo the writes to a table.
        #[derive(Clone, Debug)]
        MakeDurable { table: TableId } -> Result<(), ReplicaError>,
        /// Count the partitions of a table that are asked for, in so many places, or end that with none.
        #[derive(Clone, Debug)]
        Sample { table: TableId, places: Option<usize> } -> Option<Box<Sampled>>,
        /// The indexes that can be queried.
        #[derive(Clone, Debug)]
        BuiltIndexes {} -> Vec<(TableId, String)>,
        /// The requests of each table.
        #[derive(Clone, Debug)]
        LocalFiguresOfShard {} -> Vec<(TableId, LocalFigures)>,
        /// About how much a table holds.
        #[derive(Clone, Debug)]
        TableSizeOfShard { table: TableId } -> TableSize,
        /// The distributions of a table's requests and partitions.
        #[derive(Clone, Debug)]
        HistogramsOfShard { table: TableId } -> Option<Box<TableHistograms>>,
        /// The tokens of sampled partitions of a table.
        #[derive(Clone, Debug)]
        SampledTokens { table: TableId } -> Vec<i64>,
        /// Paths of the data files that hold a partition that the shard owns.
        #[derive(Clone, Debug)]
        SstablesOf { table: TableId, key: DecoratedKey } -> Result<Vec<PathBuf>, ReplicaError>,
        /// The SSTables of a table.
        #[derive(Clone, Debug)]
        SstablesOfShard { table: TableId } -> Result<Vec<SstableFigures>, ReplicaError>,
        /// Names of the commit log's segments that hold entries, and of those that wait for the archive.
        #[derive(Clone, Debug)]
        CommitLogSegments {} -> [Vec<String>; 2],
        /// The sources that may hold something of a partition that the shard owns.
        #[derive(Clone, Debug)]
        FragmentSources { table: TableId, key: DecoratedKey } -> Result<Vec<String>, ReplicaError>,
        /// Read the fragments of a partition that the shard owns in one source.
        #[derive(Clone, Debug)]
        Fragments { read: FragmentsRead } -> Result<FragmentsPage, ReplicaError>,
        /// The keys of at most so many partitions of a range that the shard has anything of.
        #[derive(Clone, Debug)]
        PartitionKeys { table: TableId, range: PartitionRange, count_max: usize }
            -> Result<Vec<DecoratedKey>, ReplicaError>,
        /// Figures of this moment.
        #[derive(Clone, Debug)]
        Stats {} -> Box<EngineStats>,
    }
}
