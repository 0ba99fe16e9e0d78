//! How a node runs on this machine, and why it could not start.

use std::fmt;
use std::io;
use std::time::Duration;

use rt::IoCapacity;

use crate::StopHandle;

/// How file operations reach the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileBackend {
    /// io_uring where the kernel allows it, else the thread pool, with a warning in the log.
    #[default]
    Auto,
    /// io_uring, or the start fails.
    Ring,
    /// The thread pool: works everywhere, costs about six times the CPU.
    Blocking,
    /// No disk at all: files live in memory, shared by the shards, and are gone when the node ends.
    Memory,
}

/// How a node runs on this machine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bind the thread of shard N to the Nth core that the process may use. Skipped when there are more shards
    /// than cores.
    pub pin: bool,
    /// How file operations reach the kernel.
    pub files: FileBackend,
    /// File operations that one shard may have in the ring at once; more wait in order. Also the size of the
    /// completion queue, so that it never overflows.
    pub ring_operations_max: u32,
    /// Threads a shard for operations that would block: names, and with [`FileBackend::Blocking`] all.
    pub blocking_threads_max: usize,
    /// Let SIGTERM and SIGINT ask shard 0 to stop ([`rt::Rt::stop_requested`]). A second SIGINT ends the
    /// process at once.
    pub handle_signals: bool,
    /// Asks shard 0 to stop from another thread.
    pub stop: Option<StopHandle>,
    /// The stall detector: a task that occupies its shard for longer than this is logged, with a backtrace, and counted; none for
    /// no detector.
    pub blocked_reactor_notify: Option<Duration>,
    /// How fast the disk is, where that is known: reads and writes beyond it wait by the shares of their scheduling groups.
    pub disk_speed: Option<IoCapacity>,
    /// How much of the disk's time the reads and writes in flight may take.
    pub io_latency_goal: Duration,
    /// Distinguishes the threads of several nodes in one process; empty for one alone.
    pub name: String,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            pin: true,
            files: FileBackend::Auto,
            ring_operations_max: 1024,
            blocking_threads_max: 4,
            handle_signals: false,
            stop: None,
            blocked_reactor_notify: None,
            disk_speed: None,
            io_latency_goal: Duration::from_millis(1),
            name: String::new(),
        }
    }
}

impl Config {
    pub(crate) fn thread_name(&self, shard: u16) -> String {
        self.thread_name_of(&format!("shard-{shard}"))
    }

    pub(crate) fn thread_name_of(&self, what: &str) -> String {
        let part = if self.name.is_empty() { "" } else { "-" };
        format!("{}{part}{what}", self.name)
    }
}

/// Why a node could not start.
#[derive(Debug)]
pub struct StartError {
    /// The part that was being set up.
    pub what: &'static str,
    /// For which shard.
    pub shard: u16,
    /// The system's error.
    pub source: io::Error,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot set up {} of shard {}: {}", self.what, self.shard, self.source)
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
