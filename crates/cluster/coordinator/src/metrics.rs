//! The metrics of a coordinator.

use rt::metrics;
use rt::metrics::Metric;

use crate::{BatchlogStats, PaxosStats, ReplicationStats, RequestFigures};

impl BatchlogStats {
    /// The metrics of logged batches.
    pub const METRICS: &[Metric<Self>] = metrics! {
        counter "torc_batchlog_batches" "Logged batches over several shards that were written to the batchlog." |s| s.logged as f64;
        counter "scylla_batchlog_manager_total_write_replay_attempts" "Logged batches that were applied again." |s| s.replayed as f64;
        gauge "torc_batchlog_kept" "Logged batches of several nodes that are stored now, for this node and for others." |s| s.kept as f64;
        gauge "torc_batchlog_kept_bytes" "Memory of the logged batches and updates of views that are stored now." |s| s.kept_bytes as f64;
        counter "torc_batchlog_refused" "Writes that were refused because too many logged batches and updates of views wait for replicas that are down." |s| s.refused as f64;
    };
}

impl ReplicationStats {
    /// The metrics of dealings with the replicas of other nodes.
    pub const METRICS: &[Metric<Self>] = metrics! {
        counter "scylla_storage_proxy_coordinator_speculative_data_reads" "Reads for which a further replica was asked, because those asked first were slow." |s| s.speculated as f64;
        counter "torc_coordinator_forwarded_writes" "Writes that were sent to another datacenter once, for several replicas there." |s| s.forwarded as f64;
        counter "torc_coordinator_refused_old_ring" "Requests of other nodes that were refused, because they used a stale topology version." |s| s.refused_old_ring as f64;
        counter "torc_coordinator_caught_up" "Requests that waited for a newer topology version after a refusal." |s| s.caught_up as f64;
        counter "torc_coordinator_read_mismatches" "Reads whose replicas did not say the same." |s| s.mismatches as f64;
        counter "scylla_storage_proxy_coordinator_read_repair_write_attempts" "Read repairs that were sent to replicas." |s| s.repaired as f64;
    };
}

impl PaxosStats {
    /// The metrics of lightweight transactions.
    pub const METRICS: &[Metric<Self>] = metrics! {
        counter "scylla_storage_proxy_coordinator_cas_write_condition_not_met" "Conditional writes whose conditions did not hold." |s| s.refused as f64;
        counter "scylla_storage_proxy_coordinator_cas_write_timeout_due_to_uncertainty" "Conditional writes of which it is not known whether they happened." |s| s.uncertain as f64;
        counter "torc_cas_applied" "Conditional writes that were applied." |s| s.applied as f64;
        counter "torc_cas_contentions" "Rounds of agreement that others got in the way of." |s| s.contended as f64;
        counter "torc_cas_contended_out" "Requests that ended because others got in the way for too long." |s| s.contended_out as f64;
        counter "torc_cas_commits_repaired" "Commits that others had left undone." |s| s.finished as f64;
    };
}

impl RequestFigures {
    /// Of reads of partitions by their keys.
    pub const READ_METRICS: &[Metric<Self>] = metrics! {
        counter "scylla_storage_proxy_coordinator_read_timeouts" "Coordinated reads that timed out." |s| s.timeouts as f64;
        counter "scylla_storage_proxy_coordinator_read_unavailable" "Coordinated reads that too few replicas could serve." |s| s.unavailable as f64;
        counter "torc_coordinator_read_failures" "Coordinated reads that failed on a replica." |s| s.failures as f64;
        histogram "scylla_storage_proxy_coordinator_read_latency" "Coordinated reads, microseconds." each |s, each| each(&[], &s.latencies);
    };
}

impl RequestFigures {
    /// Of reads of ranges of partitions.
    pub const RANGE_METRICS: &[Metric<Self>] = metrics! {
        counter "scylla_storage_proxy_coordinator_range_timeouts" "Coordinated reads of ranges of partitions that timed out." |s| s.timeouts as f64;
        counter "scylla_storage_proxy_coordinator_range_unavailable" "Coordinated reads of ranges of partitions that too few replicas could serve." |s| s.unavailable as f64;
        counter "torc_coordinator_range_failures" "Coordinated reads of ranges of partitions that failed on a replica." |s| s.failures as f64;
        histogram "torc_coordinator_range_latency" "Coordinated reads of ranges of partitions, microseconds." each |s, each| each(&[], &s.latencies);
    };
}

impl RequestFigures {
    /// Of deliveries of view updates to other shards and nodes.
    pub const VIEW_WRITE_METRICS: &[Metric<Self>] = metrics! {
        counter "torc_view_write_timeouts" "Deliveries of updates of materialized views that timed out; the batchlog repeats them." |s| s.timeouts as f64;
        histogram "torc_view_write_latency" "Deliveries of updates of materialized views to other shards and nodes, microseconds." each |s, each| each(&[], &s.latencies);
    };
}

impl RequestFigures {
    /// Of writes.
    pub const WRITE_METRICS: &[Metric<Self>] = metrics! {
        counter "scylla_storage_proxy_coordinator_write_timeouts" "Coordinated writes that timed out." |s| s.timeouts as f64;
        counter "scylla_storage_proxy_coordinator_write_unavailable" "Coordinated writes that too few replicas could take." |s| s.unavailable as f64;
        counter "torc_coordinator_write_failures" "Coordinated writes that failed on a replica." |s| s.failures as f64;
        histogram "scylla_storage_proxy_coordinator_write_latency" "Coordinated writes, microseconds." each |s, each| each(&[], &s.latencies);
    };
}

impl RequestFigures {
    /// Of serial reads.
    pub const SERIAL_READ_METRICS: &[Metric<Self>] = metrics! {
        counter "scylla_storage_proxy_coordinator_cas_read_timeouts" "Serial reads that timed out." |s| s.timeouts as f64;
        counter "scylla_storage_proxy_coordinator_cas_read_unavailable" "Serial reads that too few replicas could serve." |s| s.unavailable as f64;
        histogram "scylla_storage_proxy_coordinator_cas_read_latency" "Serial reads, microseconds." each |s, each| each(&[], &s.latencies);
    };
}

impl RequestFigures {
    /// Of conditional writes.
    pub const CONDITIONAL_WRITE_METRICS: &[Metric<Self>] = metrics! {
        counter "scylla_storage_proxy_coordinator_cas_write_timeouts" "Conditional writes that timed out." |s| s.timeouts as f64;
        counter "scylla_storage_proxy_coordinator_cas_write_unavailable" "Conditional writes that too few replicas could vote on." |s| s.unavailable as f64;
        histogram "scylla_storage_proxy_coordinator_cas_write_latency" "Conditional writes, microseconds." each |s, each| each(&[], &s.latencies);
    };
}
