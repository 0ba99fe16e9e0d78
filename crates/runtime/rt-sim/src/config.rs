//! How the simulated machines, disks, links and clocks behave. Probabilities are per million.

use std::net::IpAddr;
use std::time::Duration;

use rt::IoCapacity;

/// A simulation. The defaults are a healthy data centre: everything takes a little time, nothing fails.
#[derive(Clone, Debug)]
pub struct Config {
    /// Virtual time that one poll of a task takes.
    pub poll_cost: Duration,
    /// Time that passes from one reading of a node's clock to the next within a poll, up to half of the poll's time. With none
    /// two readings in a row are equal, as they never are on a machine: errors between them are not found.
    pub clock_read_cost: Duration,
    /// How often `need_preempt` says yes.
    pub preempt_per_million: u32,
    /// Events of the trace that are recorded as text; 0 for none.
    pub trace_lines_max: usize,
    /// Keep the first events after this one instead of the last of all; 0 for the last.
    pub trace_lines_from: u64,
    /// The wall clock at the start, microseconds since 1970.
    pub wall_start_micros: i64,
    /// Waiting for something that has not happened at this virtual time is an error.
    pub time_max: Duration,
    /// Between any two nodes, unless set otherwise.
    pub link: LinkConfig,
    /// Bytes that a connection takes before the reader has read them.
    pub window_bytes: usize,
    /// A connection whose bytes do not arrive for this time breaks.
    pub connection_timeout: Duration,
    /// Connecting gives up after this time.
    pub connect_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            poll_cost: Duration::from_nanos(500),
            clock_read_cost: Duration::ZERO,
            preempt_per_million: 60_000,
            trace_lines_max: 0,
            trace_lines_from: 0,
            wall_start_micros: 1_767_225_600_000_000, // 2026-01-01T00:00:00Z
            time_max: Duration::from_secs(24 * 3600),
            link: LinkConfig::default(),
            window_bytes: 64 << 10,
            connection_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// One direction between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Least time of travel.
    pub latency_min: Duration,
    /// Most time of travel.
    pub latency_max: Duration,
    /// Bytes a second; none for no limit.
    pub bandwidth: Option<u64>,
    /// Packets lost; as TCP sends them again, this is a delay of 200 ms and more.
    pub loss_per_million: u32,
    /// Packets that break their connection.
    pub reset_per_million: u32,
}

impl Default for LinkConfig {
    fn default() -> Self {
        LinkConfig {
            latency_min: Duration::from_micros(50),
            latency_max: Duration::from_micros(500),
            bandwidth: None,
            loss_per_million: 0,
            reset_per_million: 0,
        }
    }
}

/// A node.
#[derive(Clone, Debug, Default)]
pub struct NodeConfig {
    /// Shards; 0 means 1.
    pub shards: u16,
    /// Its address; by default 10.0.0.N for the Nth node, from 1.
    pub ip: Option<IpAddr>,
    /// Its disk.
    pub disk: DiskConfig,
    /// Its clocks.
    pub clock: ClockConfig,
}

/// The clocks of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockConfig {
    /// The wall clock's error at the start, microseconds.
    pub wall_offset_micros: i64,
    /// How much faster than real both clocks run, parts per million; negative for slower.
    pub drift_ppm: i32,
}

/// A disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskConfig {
    /// Size, bytes.
    pub capacity: u64,
    /// The speed by which the I/O schedulers of its node share it, and how much of its time operations in flight may take; none for no limit.
    pub speed: Option<(IoCapacity, Duration)>,
    /// Least time of an operation.
    pub latency_min: Duration,
    /// Most time of an operation.
    pub latency_max: Duration,
    /// Operations that are slow.
    pub slow_per_million: u32,
    /// Most time of a slow operation.
    pub slow_max: Duration,
    /// Reads that fail with EIO.
    pub read_error_per_million: u32,
    /// Writes that fail with EIO.
    pub write_error_per_million: u32,
    /// Syncs that fail with EIO. As on Linux, their writes may then be lost: the
    /// next sync succeeds without it.
    pub sync_error_per_million: u32,
    /// Reads and writes that do only a part of the request.
    pub short_per_million: u32,
    /// The operation that makes a new, renamed or removed name durable.
    pub names: NameDurability,
    /// Whether files can be mapped into memory.
    pub maps: bool,
}

impl Default for DiskConfig {
    fn default() -> Self {
        DiskConfig {
            capacity: 1 << 40,
            speed: None,
            latency_min: Duration::from_micros(20),
            latency_max: Duration::from_micros(200),
            slow_per_million: 0,
            slow_max: Duration::from_millis(500),
            read_error_per_million: 0,
            write_error_per_million: 0,
            sync_error_per_million: 0,
            short_per_million: 0,
            names: NameDurability::SyncDir,
            maps: false,
        }
    }
}

/// The operation that makes a change of names durable. Until then a power loss preserves a random prefix of the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameDurability {
    /// Only syncing the directory, as POSIX says: the changes in that directory.
    SyncDir,
    /// Any sync of a file or directory makes all earlier changes durable, as ext4's journal does.
    Journal,
}

/// How a node goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// `kill -9`: writes stay, connections are reset.
    Process,
    /// Power loss: of the unsynced writes any part may be gone, down to single sectors; peers are not notified.
    Power,
}
