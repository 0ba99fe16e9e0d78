//! Settings that an operator may change, drawn: time limits, throughputs, and the sizes of concurrent requests.

use std::time::Duration;

use rt_sim::Rng;
use server::{Config, Size};

use crate::plan::pick;

/// Time limits, throughputs and sizes that an operator may set, the same on all nodes. None is longer than clients wait.
pub(crate) fn draw_limits(rng: &mut Rng, config: &mut Config) {
    let mut seconds = |choices: &[u64]| Duration::from_secs(*pick(rng, choices));
    config.read_request_timeout = seconds(&[1, 2, 5, 8]);
    config.range_request_timeout = seconds(&[2, 5, 10]);
    config.write_request_timeout = seconds(&[1, 2, 5]);
    config.counter_write_request_timeout = seconds(&[1, 2, 5]);
    config.request_timeout = seconds(&[5, 10]);
    config.repair_request_timeout = seconds(&[5, 20, 60]);
    config.cas_contention_timeout = Duration::from_millis(*pick(rng, &[500, 1_000, 1_800, 4_000]));
    config.hints_flush_period = Duration::from_millis(*pick(rng, &[10, 200, 10_000]));
    config.hinted_handoff_throttle = Size(*pick(rng, &[0, 256 << 10, 1 << 20]));
    config.max_hints_delivery_threads = *pick(rng, &[1, 2, 8]);
    config.max_hints_file_size = Size(*pick(rng, &[64 << 10, 1 << 20, 128 << 20]));
    config.stream_throughput_outbound = Size(*pick(rng, &[0, 1 << 20, 24 << 20]));
}

/// The limits of concurrent client requests: bytes, connections, prepared statements. Less than some clients want, and
/// enough for one that sends a request after the other.
pub(crate) fn draw_client_limits(rng: &mut Rng, config: &mut Config) {
    let mut bytes = |choices: &[u64]| Size(*pick(rng, choices));
    config.native_transport_max_request_data_in_flight = bytes(&[0, 200, 1_000, 8_000]);
    config.native_transport_max_request_data_in_flight_per_ip = bytes(&[0, 200, 1_000, 8_000]);
    config.native_transport_max_frame_size = bytes(&[256 << 10, 16 << 20]);
    config.prepared_statements_cache_size = bytes(&[16 << 10, 64 << 10, 10 << 20]);
    config.native_transport_max_concurrent_connections = *pick(rng, &[0, 0, 3, 6]);
    config.native_transport_max_concurrent_connections_per_ip = *pick(rng, &[0, 0, 3, 6]);
}
