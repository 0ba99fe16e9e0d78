//! The memory of a shard, as far as it is accounted for, for metrics under ScyllaDB's names: its manager sizes its work by them.

use rt::metrics;
use rt::metrics::Metric;

/// The memory of a shard.
pub(crate) struct MemoryFigures {
    /// The shard's part of `memory_size`.
    pub(crate) total: u64,
    /// Bytes that memtables and caches take.
    pub(crate) allocated: u64,
}

impl MemoryFigures {
    /// The metrics of a shard's memory.
    pub(crate) const METRICS: &[Metric<Self>] = metrics! {
        gauge "scylla_memory_total_memory" "Bytes of memory_size that are a shard's." |m| m.total as f64;
        gauge "scylla_memory_allocated_memory" "Bytes that a shard's memtables and caches take." |m| m.allocated as f64;
        gauge "scylla_memory_free_memory" "Bytes of a shard's memory that its memtables and caches do not take." |m| m.total.saturating_sub(m.allocated) as f64;
    };
}
