//! The engine's statistics, for metrics, nodetool and virtual tables. Plain values, taken at a moment.

use std::sync::Arc;

use schema::TableId;
use sstable::LargeData;

/// One compaction that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactionRecord {
    /// Which compaction.
    pub id: [u8; 16],
    /// Keyspace of its table.
    pub keyspace: String,
    /// Name of its table.
    pub table: String,
    /// When it ended, microseconds since the epoch.
    pub ended_micros: i64,
    /// Data bytes read.
    pub bytes_in: u64,
    /// Data bytes written.
    pub bytes_out: u64,
    /// How many partitions were merged from so many SSTables: `rows_merged[n]` from `n + 1`.
    pub rows_merged: Vec<u64>,
    /// The kind of the compaction, as the strategy names it.
    pub properties: String,
}

/// The kind of work on the SSTables of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// A merge.
    Compaction,
    /// Partitions of tokens that the node does not own are dropped.
    Cleanup,
    /// Each is written anew, without the unreadable part.
    Scrub,
    /// Each is written anew in the current format.
    Upgrade,
    /// Content that others hide is dropped.
    GarbageCollection,
    /// Each is read and compared with its checksums.
    Verification,
    /// Each gets an index that it lacks.
    IndexBuild,
}

impl TaskKind {
    /// Those that an operator can stop. An index that is not built would be begun again.
    pub const STOPPABLE: [Self; 6] = [
        Self::Compaction,
        Self::Cleanup,
        Self::Scrub,
        Self::Upgrade,
        Self::GarbageCollection,
        Self::Verification,
    ];

    /// Its name as Cassandra's `nodetool stop` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compaction => "COMPACTION",
            Self::Cleanup => "CLEANUP",
            Self::Scrub => "SCRUB",
            Self::Upgrade => "UPGRADE_SSTABLES",
            Self::GarbageCollection => "GARBAGE_COLLECT",
            Self::Verification => "VERIFY",
            Self::IndexBuild => "INDEX_BUILD",
        }
    }

    /// One that can be stopped, of its name or of ScyllaDB's.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_uppercase();
        let name = if name == "UPGRADE" { "UPGRADE_SSTABLES" } else { name.as_str() };
        Self::STOPPABLE.into_iter().find(|kind| kind.name() == name)
    }
}

/// The work that an operator wants to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopRequest {
    /// The operation of the task with this id.
    Id([u8; 16]),
    /// All of a kind, of these tables or of all.
    Kind(TaskKind, Option<Vec<TableId>>),
}

/// So many problems are reported of a table on a shard.
const PROBLEMS_MAX: usize = 100;

/// The outcome for a table, of one shard or several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewriteReport {
    /// SSTables that were written anew, or read where nothing is written.
    pub sstables: u64,
    /// Damaged SSTables that left the table after their readable part was rewritten.
    pub set_aside: u64,
    /// Indexes of SSTables that differed from the rows, and were replaced.
    pub indexes_replaced: u64,
    /// The damage that was met, and the data that was dropped for it.
    pub problems: Vec<String>,
}

impl RewriteReport {
    /// Adds the outcome of another shard.
    pub fn merge(&mut self, other: Self) {
        self.sstables += other.sstables;
        self.set_aside += other.set_aside;
        self.indexes_replaced += other.indexes_replaced;
        self.problems.extend(other.problems);
        self.problems.truncate(PROBLEMS_MAX);
    }

    pub(crate) fn note(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }
}

/// A compaction that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskRecord {
    /// Which.
    pub id: [u8; 16],
    /// Its kind.
    pub kind: TaskKind,
    /// Keyspace of its table.
    pub keyspace: String,
    /// Name of its table.
    pub table: String,
    /// SSTables that it reads.
    pub sstables: u64,
    /// Bytes read so far, uncompressed.
    pub bytes_done: u64,
    /// Bytes to read.
    pub bytes_total: u64,
}

/// One table on this shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableStats {
    /// Bytes in memtables, those being flushed included.
    pub memtable_bytes: u64,
    /// Partitions in memtables.
    pub memtable_partitions: u64,
    /// Rows in memtables.
    pub memtable_rows: u64,
    /// Cells that were written to memtables; one that was written over another counts again.
    pub memtable_cells: u64,
    /// Memtables that wait to be written, or are being written.
    pub flushes_pending: u64,
    /// How often memtables were switched.
    pub memtable_switches: u64,
    /// Live SSTables.
    pub sstables: u64,
    /// SSTables that are damaged or not complete: out of service since the start, or met damaged since then.
    pub damaged_sstables: u64,
    /// Bytes of all components of the live SSTables.
    pub disk_bytes: u64,
    /// Bytes of all components of the largest live SSTable.
    pub sstable_bytes_max: u64,
    /// Microseconds between the oldest and the newest write of one SSTable, of that where they are farthest apart.
    pub sstable_micros_max: u64,
    /// Bytes of data before compression.
    pub uncompressed_bytes: u64,
    /// Bytes of data in SSTables.
    pub data_bytes: u64,
    /// Of these, the bytes that incremental repairs have compared already.
    pub repaired_bytes: u64,
    /// Disk bytes of live and of not yet removed SSTables.
    pub total_disk_bytes: u64,
    /// Estimated partitions over SSTables and memtables.
    pub partitions_estimate: u64,
    /// Largest partition in SSTables, bytes.
    pub partition_bytes_max: u64,
    /// Sum over SSTables of their partitions' sizes, and how many partitions, for the mean.
    pub partition_bytes_sum: u64,
    /// Bytes that bloom filters, index summaries and compression offsets take in memory.
    pub metadata_bytes: u64,
    /// Bloom filter said yes, the SSTable had nothing.
    pub bloom_false_positives: u64,
    /// Bloom filter said yes, and rightly.
    pub bloom_true_positives: u64,
    /// Bloom filter said no.
    pub bloom_negatives: u64,
    /// Reads since start.
    pub reads: u64,
    /// Writes (partition updates) since start.
    pub writes: u64,
    /// SSTables read by single-partition reads, summed.
    pub sstables_per_read_sum: u64,
    /// Single-partition reads that the row cache answered.
    pub cache_hits: u64,
    /// Single-partition reads that had to go to SSTables.
    pub cache_misses: u64,
    /// Whether an operator has stopped the compactions that begin by themselves.
    pub auto_compaction_stopped: bool,
    /// Whether an operator has stopped the purging of tombstones.
    pub tombstone_gc_stopped: bool,
    /// Compactions waiting.
    pub compactions_pending: u64,
    /// Estimated share of droppable tombstones, 0–1.
    pub droppable_tombstone_ratio: f64,
    /// SSTables by level (leveled compaction), or by the one level there is.
    pub sstables_per_level: Vec<u64>,
}

/// About how much a table holds, by the statistics of its SSTables and memtables. Nothing is read for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableSize {
    /// Rows. One that lies in several SSTables or memtables, or that is deleted and not purged yet, counts for each of them.
    pub rows: u64,
    /// Bytes of data in SSTables before compression, and bytes of memory of memtables.
    pub bytes: u64,
    /// Bytes that no partition exceeds: the largest of each SSTable together, and all of the memtables.
    pub partition_bytes_max: u64,
}

impl TableSize {
    /// Adds the part of the table that another shard holds. Shards have no partition in common.
    pub fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.partition_bytes_max = self.partition_bytes_max.max(other.partition_bytes_max);
    }
}

/// An SSTable with large partitions, rows or cells.
#[derive(Clone, Debug, PartialEq)]
pub struct LargeSstable {
    /// Its table.
    pub table: TableId,
    /// Name of its data file.
    pub name: String,
    /// Its large partitions, rows and cells.
    pub large: Arc<LargeData>,
}

/// The whole shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineStats {
    /// By table, in id order.
    pub tables: Vec<(TableId, TableStats)>,
    /// Bytes that memtables take.
    pub memtable_bytes: u64,
    /// Their limit.
    pub memtable_bytes_max: u64,
    /// Flushes ended.
    pub flushes: u64,
    /// Flushes waiting or running.
    pub flushes_pending: u64,
    /// Writes that wait for memory now.
    pub writes_throttled: u64,
    /// Bytes of commit log segments on disk, spare ones included.
    pub commitlog_disk_bytes: u64,
    /// Segments that hold entries.
    pub commitlog_segments: u64,
    /// Bytes written since start.
    pub commitlog_written_bytes: u64,
    /// Entries written since start.
    pub commitlog_entries: u64,
    /// Syncs since start.
    pub commitlog_syncs: u64,
    /// Writes that wait for the log now.
    pub commitlog_pending: u64,
    /// Bytes that the cache of rows and blocks may take now.
    pub cache_bytes_max: u64,
    /// Bytes in the row cache.
    pub row_cache_bytes: u64,
    /// Rows in the row cache.
    pub row_cache_rows: u64,
    /// Partitions in the row cache.
    pub row_cache_partitions: u64,
    /// Rows evicted since start.
    pub row_cache_evictions: u64,
    /// Partitions of which the last row was evicted.
    pub row_cache_partition_evictions: u64,
    /// Bytes in the cache of blocks of files.
    pub block_cache_bytes: u64,
    /// Hits in it.
    pub block_cache_hits: u64,
    /// Misses in it.
    pub block_cache_misses: u64,
    /// Compactions running.
    pub compactions_running: u64,
    /// Compactions ended.
    pub compactions_done: u64,
    /// Bytes that compactions have read.
    pub compaction_bytes_in: u64,
    /// Bytes that compactions have written.
    pub compaction_bytes_out: u64,
    /// Compactions that failed.
    pub compactions_failed: u64,
    /// Flushes that failed.
    pub flushes_failed: u64,
    /// Failed writes and syncs of the commit log.
    pub commitlog_failures: u64,
    /// Compactions that run now.
    pub compaction_tasks: Vec<TaskRecord>,
    /// The last compactions, oldest first; at most [`crate::stats::COMPACTION_HISTORY_MAX`].
    pub compaction_history: Vec<CompactionRecord>,
    /// SSTables in service with large partitions, rows or cells.
    pub large: Vec<LargeSstable>,
}

/// How many ended compactions are remembered.
pub const COMPACTION_HISTORY_MAX: usize = 100;
