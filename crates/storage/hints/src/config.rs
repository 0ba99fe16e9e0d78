//! Settings of one shard's hints, with the meaning that `cassandra.yaml` gives them.

use std::time::Duration;

/// Settings of one shard's hints.
#[derive(Clone, Debug)]
pub struct HintsConfig {
    /// Store hints at all (`hinted_handoff_enabled`). Hints stored already are delivered all the same.
    pub enabled: bool,
    /// No hints for a host that has been down for longer (`max_hint_window`): it must be repaired or replaced anyway.
    pub window: Duration,
    /// The window also ends when the oldest hint of a host is so old (`hint_window_persistent_enabled`), so that a host
    /// which comes back for a moment does not begin another.
    pub window_persistent: bool,
    /// How often written hints are synced (`hints_flush_period`): the loss that a power failure may cause.
    pub flush_period: Duration,
    /// Length at which a file is ended and the next begun, bytes (`max_hints_file_size`).
    pub file_bytes_max: u64,
    /// The limit of the hints of one host on this shard, bytes; 0 for no limit (`max_hints_size_per_host` over the shards).
    pub host_bytes_max: u64,
    /// Hints that wait to be written, of all hosts, bytes.
    pub buffer_bytes_max: usize,
    /// The largest update, bytes.
    pub update_bytes_max: usize,
    /// Bytes a second that are delivered to one host; 0 for no limit (`hinted_handoff_throttle`).
    pub throttle_bytes: u64,
    /// Hosts that are delivered to at once (`max_hints_delivery_threads`).
    pub hosts_at_once: usize,
    /// Hints under way to one host at once.
    pub in_flight_max: usize,
    /// Bugs to inject.
    pub canaries: rt::Injected<Canaries>,
}

/// Bugs that tests inject to see that they are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Canaries {
    /// Take every eighth hint for delivered without delivering it.
    pub drop_hint: bool,
    /// Never sync.
    pub skip_sync: bool,
    /// Remember a position that is one hint too far.
    pub skip_at_resume: bool,
    /// Do not remove the file of hints that are delivered.
    pub keep_files: bool,
}

impl Default for HintsConfig {
    /// Cassandra's defaults.
    fn default() -> Self {
        Self {
            enabled: true,
            window: Duration::from_secs(3 * 3600),
            window_persistent: true,
            flush_period: Duration::from_secs(10),
            file_bytes_max: 128 << 20,
            host_bytes_max: 0,
            buffer_bytes_max: 8 << 20,
            update_bytes_max: 16 << 20,
            throttle_bytes: 1 << 20,
            hosts_at_once: 2,
            in_flight_max: 32,
            canaries: rt::Injected::default(),
        }
    }
}
