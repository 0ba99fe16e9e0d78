//! The metrics of hints.

use rt::metrics;
use rt::metrics::Metric;

use crate::{HintFigures, HintsStats};

impl HintsStats {
    /// The metrics of a shard's hints since its start.
    pub const METRICS: &[Metric<Self>] = metrics! {
        counter "scylla_hints_manager_written" "Hints stored for nodes that could not be reached." |s| s.stored as f64;
        counter "scylla_hints_manager_dropped" "Hints that were dropped." |s| s.refused as f64;
        counter "scylla_hints_manager_errors" "Hints that were taken and then lost because the disk stayed broken." |s| s.lost as f64;
        counter "scylla_hints_manager_sent_total" "Hints that were delivered." |s| s.delivered as f64;
        counter "scylla_hints_manager_sent_bytes_total" "Bytes of hints that were delivered." |s| s.delivered_bytes as f64;
        counter "scylla_hints_manager_discarded" "Hints that were too old to be delivered, or whose table or node is gone." |s| (s.left_out + s.discarded) as f64;
        counter "scylla_hints_manager_send_errors" "Deliveries of hints that failed; they are tried again." |s| s.delivery_failures as f64;
        counter "scylla_hints_manager_corrupted_files" "Damaged places in files of hints." |s| s.corruptions as f64;
        gauge "scylla_hints_manager_size_of_hints_in_progress" "Bytes of hints that wait to be written." |s| s.pending_bytes as f64;
        gauge "scylla_hints_manager_pending_sends" "Hints on their way to a node." |s| s.in_flight as f64;
        gauge "torc_hints_replaying" "Nodes to which hints are being delivered." |s| s.replaying as f64;
        counter "torc_hints_refused_window" "Hints that were dropped because the node had been down for longer than max_hint_window." |s| s.refused_window as f64;
        counter "torc_hints_refused_size" "Hints that were dropped because a size limit was reached." |s| s.refused_size as f64;
        counter "torc_hints_disk_failures" "Reads, writes and syncs of hints that failed." |s| s.disk_failures as f64;
    };
}

impl HintFigures {
    /// The metrics of hints that are stored.
    pub const METRICS: &[Metric<Self>] = metrics! {
        gauge "torc_hints_kept" "Hints that wait to be delivered." |s| s.count as f64;
        gauge "torc_hints_kept_bytes" "Bytes of hints that wait to be delivered." |s| s.bytes as f64;
    };
}
