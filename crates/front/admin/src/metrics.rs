//! Prometheus metrics, named as ScyllaDB names them where the meaning is the same, so that dashboards carry over.

use coordinator::Latencies;
use engine::{EngineStats, stats::TableStats};
use rt::GroupStats;
use schema::Schema;

use crate::prometheus::{escape, head, histogram_of, sample};
use crate::{NodeInfo, ShardFigures, TransportFigures};

/// One family of samples with its help text.
struct Family<'a, T> {
    name: &'a str,
    kind: &'a str,
    help: &'a str,
    value: fn(&T) -> f64,
}

macro_rules! families {
    ($($kind:ident $name:literal $help:literal $value:expr;)*) => {
        &[$(Family { name: $name, kind: stringify!($kind), help: $help, value: $value },)*]
    };
}

const ENGINE: &[Family<'_, EngineStats>] = families! {
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
    gauge "scylla_cache_bytes_used" "Bytes in the row cache." |s| s.row_cache_bytes as f64;
    gauge "scylla_cache_rows" "Rows in the row cache." |s| s.row_cache_rows as f64;
    gauge "scylla_cache_partitions" "Partitions in the row cache." |s| s.row_cache_partitions as f64;
    counter "scylla_cache_row_evictions" "Rows evicted from the row cache." |s| s.row_cache_evictions as f64;
    counter "scylla_cache_reads_hits" "Single-partition reads answered without SSTables." |s| sum(s, |t| t.cache_hits);
    counter "scylla_cache_reads_misses" "Single-partition reads that went to SSTables." |s| sum(s, |t| t.cache_misses);
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

const TABLE: &[Family<'_, TableStats>] = families! {
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

const TRANSPORT: &[Family<'_, TransportFigures>] = families! {
    gauge "scylla_transport_current_connections" "CQL connections." |t| t.connections as f64;
    counter "scylla_transport_cql_connections" "CQL connections since start." |t| t.connections_total as f64;
    counter "scylla_transport_requests_served" "CQL requests answered." |t| t.requests_served as f64;
    gauge "scylla_transport_requests_serving" "CQL requests being worked on." |t| t.requests_serving as f64;
    gauge "scylla_transport_requests_memory_available_used" "Bytes of CQL requests being worked on." |t| t.requests_bytes as f64;
    counter "scylla_transport_requests_shed" "CQL requests refused for overload." |t| t.requests_shed as f64;
    counter "scylla_transport_requests_blocked_memory" "Times that reading requests was put off for overload." |t| t.requests_blocked as f64;
    counter "scylla_transport_connections_shed" "CQL connections refused because there were too many." |t| t.connections_refused as f64;
    counter "torc_transport_handshake_timeouts" "CQL connections closed because they were not ready in time." |t| t.handshake_timeouts as f64;
    counter "torc_transport_bytes_read" "Bytes read from CQL clients." |t| t.bytes_read as f64;
    counter "torc_transport_bytes_written" "Bytes written to CQL clients." |t| t.bytes_written as f64;
    gauge "scylla_cql_prepared_cache_size" "Prepared statements known." |t| t.prepared_statements as f64;
    gauge "scylla_cql_prepared_cache_memory_footprint" "Bytes that prepared statements take." |t| t.prepared_bytes as f64;
    counter "scylla_cql_prepared_cache_evictions" "Prepared statements forgotten for want of room." |t| t.prepared_evictions as f64;
};

const SHARD: &[Family<'_, ShardFigures>] = families! {
    counter "torc_shard_calls" "Reads, writes and commands sent to other shards." |s| s.shard_calls as f64;
    counter "torc_batchlog_batches" "Logged batches over several shards that were written to the batchlog." |s| s.batchlog.logged as f64;
    counter "scylla_batchlog_manager_total_write_replay_attempts" "Logged batches that were applied again." |s| s.batchlog.replayed as f64;
    counter "scylla_storage_proxy_coordinator_read_timeouts" "Coordinated reads that timed out." |s| s.coordinated_reads.timeouts as f64;
    counter "scylla_storage_proxy_coordinator_read_unavailable" "Coordinated reads that too few replicas could serve." |s| s.coordinated_reads.unavailable as f64;
    counter "torc_coordinator_read_failures" "Coordinated reads that failed on a replica." |s| s.coordinated_reads.failures as f64;
    counter "scylla_storage_proxy_coordinator_write_timeouts" "Coordinated writes that timed out." |s| s.coordinated_writes.timeouts as f64;
    counter "scylla_storage_proxy_coordinator_write_unavailable" "Coordinated writes that too few replicas could take." |s| s.coordinated_writes.unavailable as f64;
    counter "torc_coordinator_write_failures" "Coordinated writes that failed on a replica." |s| s.coordinated_writes.failures as f64;
    counter "scylla_hints_manager_written" "Hints stored for nodes that could not be reached." |s| s.hints.stored as f64;
    counter "scylla_hints_manager_dropped" "Hints that were dropped." |s| s.hints.refused as f64;
    counter "scylla_hints_manager_errors" "Hints that were taken and then lost because the disk stayed broken." |s| s.hints.lost as f64;
    counter "scylla_hints_manager_sent_total" "Hints that were delivered." |s| s.hints.delivered as f64;
    counter "scylla_hints_manager_sent_bytes_total" "Bytes of hints that were delivered." |s| s.hints.delivered_bytes as f64;
    counter "scylla_hints_manager_discarded" "Hints that were too old to be delivered, or whose table or node is gone." |s| (s.hints.left_out + s.hints.discarded) as f64;
    counter "scylla_hints_manager_send_errors" "Deliveries of hints that failed; they are tried again." |s| s.hints.delivery_failures as f64;
    counter "scylla_hints_manager_corrupted_files" "Damaged places in files of hints." |s| s.hints.corruptions as f64;
    gauge "scylla_hints_manager_size_of_hints_in_progress" "Bytes of hints that wait to be written." |s| s.hints.pending_bytes as f64;
    gauge "scylla_hints_manager_pending_sends" "Hints on their way to a node." |s| s.hints.in_flight as f64;
    gauge "torc_hints_kept" "Hints that wait to be delivered." |s| s.hints_kept.count as f64;
    gauge "torc_hints_kept_bytes" "Bytes of hints that wait to be delivered." |s| s.hints_kept.bytes as f64;
    gauge "torc_hints_replaying" "Nodes to which hints are being delivered." |s| s.hints.replaying as f64;
    counter "torc_hints_refused_window" "Hints that were dropped because the node had been down for longer than max_hint_window." |s| s.hints.refused_window as f64;
    counter "torc_hints_refused_size" "Hints that were dropped because a size limit was reached." |s| s.hints.refused_size as f64;
    counter "torc_hints_disk_failures" "Reads, writes and syncs of hints that failed." |s| s.hints.disk_failures as f64;
    counter "scylla_storage_proxy_coordinator_speculative_data_reads" "Reads for which a further replica was asked, because those asked first were slow." |s| s.replication.speculated as f64;
    counter "torc_coordinator_forwarded_writes" "Writes that were sent to another datacenter once, for several replicas there." |s| s.replication.forwarded as f64;
    counter "torc_coordinator_refused_old_ring" "Requests of other nodes that were refused, because they used a stale topology version." |s| s.replication.refused_old_ring as f64;
    counter "torc_coordinator_caught_up" "Requests that waited for a newer topology version after a refusal." |s| s.replication.caught_up as f64;
    counter "torc_coordinator_read_mismatches" "Reads whose replicas did not say the same." |s| s.replication.mismatches as f64;
    counter "scylla_storage_proxy_coordinator_read_repair_write_attempts" "Read repairs that were sent to replicas." |s| s.replication.repaired as f64;
    gauge "torc_batchlog_kept" "Logged batches of several nodes that are stored now, for this node and for others." |s| s.batchlog.kept as f64;
    counter "scylla_storage_proxy_coordinator_cas_read_timeouts" "Serial reads that timed out." |s| s.serial_reads.timeouts as f64;
    counter "scylla_storage_proxy_coordinator_cas_read_unavailable" "Serial reads that too few replicas could serve." |s| s.serial_reads.unavailable as f64;
    counter "scylla_storage_proxy_coordinator_cas_write_timeouts" "Conditional writes that timed out." |s| s.conditional_writes.timeouts as f64;
    counter "scylla_storage_proxy_coordinator_cas_write_unavailable" "Conditional writes that too few replicas could vote on." |s| s.conditional_writes.unavailable as f64;
    counter "scylla_storage_proxy_coordinator_cas_write_condition_not_met" "Conditional writes whose conditions did not hold." |s| s.paxos.refused as f64;
    counter "scylla_storage_proxy_coordinator_cas_write_timeout_due_to_uncertainty" "Conditional writes of which it is not known whether they happened." |s| s.paxos.uncertain as f64;
    counter "torc_cas_applied" "Conditional writes that were applied." |s| s.paxos.applied as f64;
    counter "torc_cas_contentions" "Rounds of agreement that others got in the way of." |s| s.paxos.contended as f64;
    counter "torc_cas_contended_out" "Requests that ended because others got in the way for too long." |s| s.paxos.contended_out as f64;
    counter "torc_cas_commits_repaired" "Commits that others had left undone." |s| s.paxos.finished as f64;
};

const GROUP: &[Family<'_, GroupStats>] = families! {
    counter "scylla_scheduler_runtime_ms" "CPU time of a scheduling group, milliseconds." |g| g.run_ns as f64 / 1e6;
    counter "scylla_scheduler_tasks_processed" "Tasks polled." |g| g.polls as f64;
    counter "scylla_stall_detector_reported" "Polls of a scheduling group's tasks that took longer than blocked_reactor_notify_ms." |g| g.stalls as f64;
    gauge "scylla_scheduler_queue_length" "Tasks ready to run." |g| g.ready as f64;
    gauge "scylla_scheduler_shares" "Shares of a scheduling group." |g| f64::from(g.shares);
};

/// Latencies by name, and where they are.
const LATENCIES: [(&str, &str, fn(&ShardFigures) -> &Latencies); 4] = [
    ("scylla_storage_proxy_coordinator_read_latency", "Coordinated reads, microseconds.", |s| {
        &s.coordinated_reads.latencies
    }),
    ("scylla_storage_proxy_coordinator_write_latency", "Coordinated writes, microseconds.", |s| {
        &s.coordinated_writes.latencies
    }),
    ("scylla_storage_proxy_coordinator_cas_read_latency", "Serial reads, microseconds.", |s| {
        &s.serial_reads.latencies
    }),
    ("scylla_storage_proxy_coordinator_cas_write_latency", "Conditional writes, microseconds.", |s| {
        &s.conditional_writes.latencies
    }),
];

fn sum(stats: &EngineStats, of: fn(&TableStats) -> u64) -> f64 {
    stats.tables.iter().map(|(_, table)| of(table)).sum::<u64>() as f64
}

/// Everything in Prometheus' text format, version 0.0.4.
pub fn exposition(info: &NodeInfo, schema: &Schema, shards: &[ShardFigures], now_micros: i64) -> String {
    let mut out = String::with_capacity(64 << 10);
    let by_shard = || shards.iter().enumerate().map(|(i, figures)| (format!("shard=\"{i}\""), figures));
    for family in ENGINE {
        write_family(&mut out, family, by_shard().map(|(labels, figures)| (labels, &figures.engine)));
    }
    for family in SHARD {
        write_family(&mut out, family, by_shard());
    }
    crate::rpc_metrics::write(&mut out, shards);
    crate::alternator_metrics::write(&mut out, shards);
    for family in TRANSPORT {
        write_family(&mut out, family, by_shard().map(|(labels, figures)| (labels, &figures.transport)));
    }
    for family in GROUP {
        let groups = by_shard().flat_map(|(labels, figures)| {
            let label = move |name: &str| format!("{labels},group=\"{name}\"");
            figures.groups.iter().map(move |(name, group)| (label(name), group))
        });
        write_family(&mut out, family, groups);
    }
    for family in TABLE {
        let tables = by_shard().flat_map(|(labels, figures)| {
            figures.engine.tables.iter().filter_map(move |(id, stats)| {
                let table = schema.table_by_id(*id)?;
                let (ks, cf) = (escape(&table.keyspace), escape(&table.name));
                Some((format!("{labels},ks=\"{ks}\",cf=\"{cf}\""), stats))
            })
        });
        write_family(&mut out, family, tables);
    }
    by_kind(
        &mut out,
        "scylla_transport_cql_errors_total",
        "CQL requests answered with an error.",
        "type",
        shards,
        |t| &t.errors,
    );
    by_kind(
        &mut out,
        "scylla_transport_cql_requests_count",
        "CQL requests by opcode.",
        "kind",
        shards,
        |t| &t.by_opcode,
    );
    for (name, help, of) in LATENCIES {
        histogram(&mut out, name, help, shards.iter().map(of));
    }
    let uptime = (now_micros - info.started_micros).max(0) as f64 / 1e6;
    let version = format!("version=\"{}\",cluster=\"{}\"", escape(&info.version), escape(&info.cluster_name));
    head(&mut out, "torc_build_info", "gauge", "Version of the server; always 1.");
    sample(&mut out, "torc_build_info", &version, 1.0);
    head(&mut out, "torc_uptime_seconds", "gauge", "Seconds since the node started.");
    sample(&mut out, "torc_uptime_seconds", "", uptime);
    out
}

fn write_family<'a, T: 'a>(
    out: &mut String,
    family: &Family<'_, T>,
    samples: impl Iterator<Item = (String, &'a T)>,
) {
    head(out, family.name, family.kind, family.help);
    for (labels, figures) in samples {
        sample(out, family.name, &labels, (family.value)(figures));
    }
}

fn by_kind(
    out: &mut String,
    name: &str,
    help: &str,
    label: &str,
    shards: &[ShardFigures],
    counts: fn(&TransportFigures) -> &Vec<(String, u64)>,
) {
    head(out, name, "counter", help);
    for (shard, figures) in shards.iter().enumerate() {
        for (kind, count) in counts(&figures.transport) {
            sample(out, name, &format!("shard=\"{shard}\",{label}=\"{}\"", escape(kind)), *count as f64);
        }
    }
}

/// A histogram for each shard.
fn histogram<'a>(out: &mut String, name: &str, help: &str, shards: impl Iterator<Item = &'a Latencies>) {
    let labelled = shards.enumerate().map(|(shard, latencies)| (format!("shard=\"{shard}\""), latencies));
    histogram_of(out, name, help, labelled);
}
