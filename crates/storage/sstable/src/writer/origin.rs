//! The state that a copy inherits from its source.

use std::sync::Arc;

use crate::LargeData;
use crate::metadata::Stats;

/// The state that a copy inherits from its source.
pub(super) struct Origin {
    stats: Stats,
    rows: u64,
    /// Large partitions, rows and cells of the source.
    pub(super) large: Arc<LargeData>,
}

impl Origin {
    /// Of a source with these statistics, of which nothing was copied yet.
    pub(super) fn new(stats: Stats, large: Arc<LargeData>) -> Self {
        Self { stats, rows: 0, large }
    }

    /// Counts rows that were copied.
    pub(super) fn add_rows(&mut self, rows: u64) {
        self.rows += rows;
        debug_assert!(self.rows <= self.stats.total_rows, "no more rows are copied than the source has");
    }

    /// The statistics of the copied partitions, as far as `counted` knows; the rest is the source's.
    pub(super) fn stats(&self, counted: Stats) -> Stats {
        let all = &self.stats;
        let share = self.rows as f64 / all.total_rows.max(1) as f64;
        Stats {
            partition_sizes: counted.partition_sizes,
            compression_ratio: counted.compression_ratio,
            level: counted.level,
            repaired_at: counted.repaired_at,
            host_id: counted.host_id,
            total_rows: self.rows,
            total_columns_set: (all.total_columns_set as f64 * share) as u64,
            pending_repair: None,
            commit_log_intervals: Vec::new(),
            ..all.clone()
        }
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }
}
