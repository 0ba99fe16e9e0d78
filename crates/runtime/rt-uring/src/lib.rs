//! The production backend of rt: tokio for sockets, one private io_uring a shard for files.
//!
//! [`run`] starts one pinned thread a shard and returns when the mains of all shards have. A panic in any shard
//! ends the process: the state of the shard is lost, and a node that lacks a shard is worse than none.

mod affinity;
mod blocking;
mod clock;
mod config;
mod disk;
mod disk_speed;
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

pub use config::{Config, FileBackend, StartError};
pub use disk_speed::measure_disk;
pub use machine::available_memory;
pub use stop::{StopHandle, on_stop_signal};

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rt::ShardMain;

use crate::clock::SystemClock;
use crate::memory::MemoryDisk;
use crate::shard::{Exit, ShardConfig};
use crate::stalls::Watchdog;

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
///
/// # Errors
/// A [`StartError`] when the system refuses the stall detector, a shard's thread, its executor or its ring.
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
            // Nobody may read it any more, which is no reason to live on without the shard.
            let _ = writeln!(
                std::io::stderr(),
                "fatal: shard {shard}{node} panicked: {text}; the process ends and can be started again"
            );
            std::process::abort();
        }
    }
}
