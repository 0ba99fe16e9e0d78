//! The metrics of scheduling groups and of the calls between shards.

use crate::metrics;
use crate::metrics::Metric;
use crate::{GroupStats, IoStats, PortStats};

impl GroupStats {
    /// The metrics of a scheduling group.
    pub const METRICS: &[Metric<Self>] = metrics! {
        counter "scylla_scheduler_runtime_ms" "CPU time of a scheduling group, milliseconds." |g| g.run_ns as f64 / 1e6;
        counter "scylla_scheduler_tasks_processed" "Tasks polled." |g| g.polls as f64;
        counter "scylla_stall_detector_reported" "Polls of a scheduling group's tasks that took longer than blocked_reactor_notify_ms." |g| g.stalls as f64;
        gauge "scylla_scheduler_queue_length" "Tasks ready to run." |g| g.ready as f64;
        gauge "scylla_scheduler_shares" "Shares of a scheduling group." |g| f64::from(g.shares);
    };
}

impl IoStats {
    /// The metrics of a scheduling group's reads and writes.
    pub const METRICS: &[Metric<Self>] = metrics! {
        counter "scylla_io_queue_total_operations" "Reads and writes of files." |g| g.operations as f64;
        counter "scylla_io_queue_total_bytes" "Bytes of them." |g| g.bytes as f64;
        counter "scylla_io_queue_total_delay_sec" "Time that they waited for others before they began, seconds." |g| g.delay_ns as f64 / 1e9;
        gauge "scylla_io_queue_queue_length" "Reads and writes that wait." |g| g.queued as f64;
        gauge "scylla_io_queue_disk_queue_length" "Reads and writes in flight." |g| g.in_flight as f64;
        gauge "scylla_io_queue_shares" "Shares of a scheduling group." |g| f64::from(g.shares);
    };
}

impl PortStats {
    /// The metrics of a shard's calls to others.
    pub const METRICS: &[Metric<Self>] = metrics! {
        counter "torc_shard_calls" "Reads, writes and commands sent to other shards." |s| s.calls as f64;
        counter "torc_shard_calls_throttled" "Calls to other shards that waited for a place in a queue." |s| s.throttled as f64;
    };
}
