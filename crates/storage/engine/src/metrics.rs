//! The metrics of storage.

use rt::metrics;
use rt::metrics::Metric;

use crate::stats::{EngineStats, TableStats};

fn sum(stats: &EngineStats, of: fn(&TableStats) -> u64) -> f64 {
    stats.tables.iter().map(|(_, table)| of(table)).sum::<u64>() as f64
}

impl EngineStats {
    /// The metrics of a shard's storage.
    pub const METRICS: &[Metric<Self>] = metrics! {
        counter "scylla_database_total_writes" "Partition updates applied." |s| sum(s, |t| t.writes);
        counter "scylla_database_total_reads" "Reads of partitions and ranges." |s| sum(s, |t| t.reads);
        gauge "scylla_memory_allocated_memtables" "Bytes in memtables." |s| s.memtable_bytes as f64;
        gauge "scylla_memory_memtables_max" "Bytes that memtables may take." |s| s.memtable_bytes_max as f64;
        counter "scylla_memtables_flushes" "Memtables written to SSTables." |s| s.flushes as f64;
        gauge "scylla_memtables_pending_flushes" "Memtables waiting to be written, or being written." |s| s.flushes_pending as f64;
        gauge "scylla_database_requests_blocked_memory_current" "Writes that wait for memtable memory." |s| s.writes_throttled as f64;
        gauge "scylla_commitlog_disk_total_bytes" "Bytes of commit log files." |s| s.commitlog_disk_bytes as f64;
        gauge "scylla_commitlog_segments" "Commit log files that hold entries." |s| s.commitlog_segments as f64;
        counter "scylla_commitlog_bytes_written" "Bytes written to the commit log." |s| s.commitlog_written_bytes as f64;
        counter "scylla_commitlog_alloc" "Entries written to the commit log." |s| s.commitlog_entries as f64;
        counter "scylla_commitlog_flush" "Syncs of the commit log." |s| s.commitlog_syncs as f64;
        gauge "scylla_commitlog_pending_allocations" "Writes that wait for the commit log." |s| s.commitlog_pending as f64;
        gauge "scylla_cache_bytes_total" "Bytes that rows and blocks of files in the cache may take now." |s| s.cache_bytes_max as f64;
        gauge "scylla_cache_bytes_used" "Bytes in the row cache." |s| s.row_cache_bytes as f64;
        gauge "scylla_cache_rows" "Rows in the row cache." |s| s.row_cache_rows as f64;
        gauge "scylla_cache_partitions" "Partitions in the row cache." |s| s.row_cache_partitions as f64;
        counter "scylla_cache_row_evictions" "Rows evicted from the row cache." |s| s.row_cache_evictions as f64;
        counter "scylla_cache_partition_evictions" "Partitions evicted from the row cache with their last row." |s| s.row_cache_partition_evictions as f64;
        counter "scylla_cache_partition_hits" "Single-partition reads answered without SSTables." |s| sum(s, |t| t.cache_hits);
        counter "scylla_cache_partition_misses" "Single-partition reads that went to SSTables." |s| sum(s, |t| t.cache_misses);
        gauge "scylla_sstables_index_page_cache_bytes" "Bytes of file blocks cached in memory." |s| s.block_cache_bytes as f64;
        counter "scylla_sstables_index_page_cache_hits" "File blocks found in memory." |s| s.block_cache_hits as f64;
        counter "scylla_sstables_index_page_cache_misses" "File blocks read from disk." |s| s.block_cache_misses as f64;
        gauge "scylla_compaction_manager_compactions" "Compactions running." |s| s.compactions_running as f64;
        gauge "scylla_compaction_manager_pending_compactions" "Compactions waiting." |s| sum(s, |t| t.compactions_pending);
        counter "scylla_compaction_manager_completed_compactions" "Compactions ended." |s| s.compactions_done as f64;
        counter "scylla_compaction_manager_failed_compactions" "Compactions that failed." |s| s.compactions_failed as f64;
        counter "scylla_memtables_failed_flushes" "Attempts to write a memtable that failed." |s| s.flushes_failed as f64;
        counter "torc_commitlog_failures" "Writes and syncs of the commit log that failed." |s| s.commitlog_failures as f64;
        gauge "scylla_sstables_bloom_filter_memory_size" "Bytes of SSTable metadata in memory, bloom filters included." |s| sum(s, |t| t.metadata_bytes);
        counter "torc_compaction_bytes_read" "Data bytes read by compactions." |s| s.compaction_bytes_in as f64;
        counter "torc_compaction_bytes_written" "Data bytes written by compactions." |s| s.compaction_bytes_out as f64;
    };
}

impl TableStats {
    /// The metrics of a table on a shard.
    pub const METRICS: &[Metric<Self>] = metrics! {
        gauge "scylla_column_family_memtable_bytes" "Bytes in the table's memtables." |t| t.memtable_bytes as f64;
        gauge "scylla_column_family_memtable_row_hits" "Rows in the table's memtables." |t| t.memtable_rows as f64;
        counter "scylla_column_family_memtable_switch" "Memtables of the table written to SSTables." |t| t.memtable_switches as f64;
        gauge "scylla_column_family_live_sstable" "SSTables of the table." |t| t.sstables as f64;
        gauge "scylla_column_family_live_disk_space" "Bytes of the table's SSTables." |t| t.disk_bytes as f64;
        gauge "scylla_column_family_total_disk_space" "Bytes of the table's SSTables, those to be removed included." |t| t.total_disk_bytes as f64;
        gauge "scylla_column_family_pending_compaction" "Compactions of the table waiting." |t| t.compactions_pending as f64;
        counter "torc_table_reads" "Reads of the table." |t| t.reads as f64;
        counter "torc_table_writes" "Partition updates of the table." |t| t.writes as f64;
        gauge "scylla_column_family_memtable_partitions" "Partitions in the table's memtables." |t| t.memtable_partitions as f64;
        counter "torc_table_cache_hits" "Single-partition reads answered without SSTables." |t| t.cache_hits as f64;
        counter "torc_table_cache_misses" "Single-partition reads that went to SSTables." |t| t.cache_misses as f64;
        counter "torc_table_sstables_read" "SSTables read by single-partition reads." |t| t.sstables_per_read_sum as f64;
        counter "torc_table_bloom_filter_negatives" "SSTables that a bloom filter spared a read." |t| t.bloom_negatives as f64;
        counter "torc_table_bloom_filter_true_positives" "SSTables read with reason." |t| t.bloom_true_positives as f64;
        gauge "torc_table_damaged_sstables" "SSTables of the table that are damaged: reads of their damaged parts fail." |t| t.damaged_sstables as f64;
        gauge "torc_table_partitions_estimate" "Partitions of the table, estimated." |t| t.partitions_estimate as f64;
        gauge "torc_table_partition_bytes_max" "Largest partition in the table's SSTables." |t| t.partition_bytes_max as f64;
        counter "torc_table_bloom_filter_false_positives" "SSTables read in vain." |t| t.bloom_false_positives as f64;
        gauge "torc_table_droppable_tombstone_ratio" "Estimated share of tombstones that could be dropped." |t| t.droppable_tombstone_ratio;
    };
}
