//! The production backend of rt: tokio for sockets, one private io_uring a shard for files.
//!
//! [`run`] starts one pinned thread a shard and returns when the mains of all shards have. A panic in any shard
//! ends the process: the state of the shard is lost, and a node that lacks a shard is worse than none.

mod affinity;
mod blocking;
mod clock;
mod disk;
mod machine;
mod mapped;
mod memory;
mod net;
mod random;
mod ring;
mod shard;
mod stalls;
mod stop;
mod timer;

pub use machine::available_memory;
pub use stop::{StopHandle, on_stop_signal};

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rt::ShardMain;

use crate::clock::SystemClock;
use crate::memory::MemoryDisk;
use crate::shard::{Exit, ShardConfig};
use crate::stalls::Watchdog;

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
    /// Tells the threads of several nodes in one process apart; empty for one alone.
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
            name: String::new(),
        }
    }
}

impl Config {
    fn thread_name(&self, shard: u16) -> String {
        self.thread_name_of(&format!("shard-{shard}"))
    }

    fn thread_name_of(&self, what: &str) -> String {
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

/// With fewer open files than this a node may run out of them.
const FILES_WANTED: u64 = 10_000;

/// Number of cores that this process may use: the natural number of shards.
pub fn available_cores() -> u16 {
    affinity::allowed_cores().len().clamp(1, u16::MAX as usize) as u16
}

/// Raises the limit of open files and sockets as far as the process may; returns the limit then, where the system reports it.
pub fn open_files_limit() -> Option<u64> {
    affinity::raise_open_files()
}

/// Runs a node: one thread for each of `mains`. Returns their results when the last of them has returned; until
/// then the tasks of a shard whose main has returned go on (it still answers the others).
pub fn run<T: Send + 'static>(config: &Config, mains: Vec<ShardMain<T>>) -> Result<Vec<T>, StartError> {
    assert!(!mains.is_empty(), "a node has at least one shard");
    // Every connection is an open file, and the usual soft limit is 1,024 of them.
    let files_max = affinity::raise_open_files();
    if let Some(few) = files_max.filter(|max| *max < FILES_WANTED) {
        tracing::warn!("only {few} files and connections can be open at once; raise the limit (ulimit -Hn)");
    }
    let shard_count = u16::try_from(mains.len()).expect("fewer than 2^16 shards");
    let cores = affinity::allowed_cores();
    let pin = config.pin && cores.len() >= mains.len();
    let clock = SystemClock::start();
    let exit = Arc::new(Exit::new(shard_count));
    let watchdog = config
        .blocked_reactor_notify
        .map(|threshold| Watchdog::start(threshold, clock, config.thread_name_of("stalls")))
        .transpose()
        .map_err(|source| StartError { what: "the stall detector", shard: 0, source })?;
    let memory = (config.files == FileBackend::Memory).then(MemoryDisk::default);
    let mut threads = Vec::new();
    for (shard, main) in (0..shard_count).zip(mains) {
        let shard_config = ShardConfig {
            shard,
            shard_count,
            core: pin.then(|| cores[usize::from(shard)]),
            clock,
            node: config.clone(),
            memory: memory.clone(),
            watched: watchdog.as_ref().map(Watchdog::watched),
        };
        let thread_exit = Arc::clone(&exit);
        let builder = std::thread::Builder::new().name(config.thread_name(shard));
        let thread = builder.spawn(move || run_guarded(shard_config, thread_exit, main));
        match thread {
            Ok(thread) => threads.push(thread),
            Err(source) => {
                // The others wait for this shard's main; there is none.
                exit.abandon();
                return Err(StartError { what: "the thread", shard, source });
            }
        }
    }
    // All must have ended before the first error is returned.
    let joined: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
    let results = joined.into_iter().map(|result| result.expect("a panic of a shard ends the process"));
    let outputs = results.collect::<Result<Vec<Option<T>>, StartError>>()?;
    Ok(outputs.into_iter().map(|output| output.expect("every main of a node returns")).collect())
}

/// Runs one shard; a panic ends the process with a message that names the shard.
fn run_guarded<T: Send + 'static>(
    config: ShardConfig,
    exit: Arc<Exit>,
    main: ShardMain<T>,
) -> Result<Option<T>, StartError> {
    let shard = config.shard;
    let node = if config.node.name.is_empty() { String::new() } else { format!(" of {}", config.node.name) };
    let result = catch_unwind(AssertUnwindSafe(|| shard::run(config, &exit, main)));
    match result {
        Ok(result) => {
            if result.is_err() {
                exit.abandon();
            }
            result
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            eprintln!(
                "fatal: shard {shard}{node} panicked: {text}; the process ends and can be started again"
            );
            std::process::abort();
        }
    }
}
