//! The stall detector: logs a backtrace of a shard that has been in one poll for too long, as Seastar's does.
//!
//! A thread of the node looks at when each shard's poll began. One that lasts longer than the threshold is interrupted by a signal,
//! whose handler only notes return addresses; names are looked up here, so that the shard loses microseconds. The executor counts
//! and times stalls itself ([`rt::executor::Executor::watch_stalls`]): this thread may miss a short one.

// Signals and the state of a signal handler.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use rt::driver::Clock;
use rt::executor::POLL_OVER;

use crate::clock::SystemClock;

/// Return addresses noted of one stall.
const FRAMES_MAX: usize = 64;
/// Functions named in one line of the log.
const NAMES_MAX: usize = 16;
/// Between two backtraces of a node: looking names up reads all debug information, some 0.1 s and 180 MiB, which are given back.
const PAUSE: Duration = Duration::from_secs(5);
/// How long an interrupted thread may take to note where it is.
const PATIENCE: Duration = Duration::from_millis(20);
/// The thread looks so often at least, and at most.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_secs(1);
/// While no shard does anything the thread waits so much longer between two looks, at most.
const IDLE_FACTOR: u32 = 16;

/// A shard's thread, and the samples of its signal handler.
struct Entry {
    shard: u16,
    thread: libc::pid_t,
    /// See [`rt::executor::Executor::watch_stalls`].
    poll_began: Arc<AtomicU64>,
    /// The same at the last look.
    seen: AtomicU64,
    frames: [AtomicUsize; FRAMES_MAX],
    /// How many frames are valid; 0 until the handler has run.
    noted: AtomicUsize,
}

/// The shards of a node that are watched.
#[derive(Default)]
pub(crate) struct Watched {
    entries: Mutex<Vec<Arc<Entry>>>,
}

thread_local! {
    /// The target of this thread's signal handler.
    static OWN: Cell<*const Entry> = const { Cell::new(ptr::null()) };
}

/// Ends the watch over this thread when it is dropped.
pub(crate) struct Attached {
    watched: Arc<Watched>,
    entry: Arc<Entry>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        OWN.set(ptr::null());
        self.watched.lock().retain(|entry| !Arc::ptr_eq(entry, &self.entry));
    }
}

impl Watched {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no shard has polled anything since the last call.
    fn are_idle(&self) -> bool {
        let is_idle = |entry: &Arc<Entry>| {
            let began = entry.poll_began.load(Ordering::Relaxed);
            entry.seen.swap(began, Ordering::Relaxed) == began && began & POLL_OVER != 0
        };
        // All of them are looked at.
        self.lock().iter().filter(|entry| !is_idle(entry)).count() == 0
    }

    /// Watches the calling thread, a shard's, from now on.
    pub(crate) fn attach(self: &Arc<Self>, shard: u16, poll_began: Arc<AtomicU64>) -> Attached {
        // SAFETY: takes and gives plain numbers.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) } as libc::pid_t;
        let frames = [const { AtomicUsize::new(0) }; FRAMES_MAX];
        let (seen, noted) = (AtomicU64::new(0), AtomicUsize::new(0));
        let entry = Arc::new(Entry { shard, thread, poll_began, seen, frames, noted });
        // `Attached` holds the entry for as long as the pointer is there.
        OWN.set(Arc::as_ptr(&entry));
        self.lock().push(Arc::clone(&entry));
        Attached { watched: Arc::clone(self), entry }
    }
}

/// The signal that asks a thread where it is.
fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 5
}

/// The handler: notes where this thread is. Allocates nothing and takes no lock of ours; the unwinder reads tables.
extern "C" fn note_frames(_signal: libc::c_int) {
    // `try_with`: the thread may be ending.
    let Ok(entry) = OWN.try_with(Cell::get) else { return };
    if entry.is_null() {
        return;
    }
    // SAFETY: not null, so `Attached` of this very thread holds the entry.
    let entry = unsafe { &*entry };
    // SAFETY: errno belongs to this thread; the interrupted code must find it unchanged.
    let before = unsafe { *libc::__errno_location() };
    let mut noted = 0;
    // SAFETY: only this thread's stack is walked. Symbols, which need the lock of that crate, are resolved elsewhere.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            entry.frames[noted].store(frame.ip() as usize, Ordering::Relaxed);
            noted += 1;
            noted < FRAMES_MAX
        });
    }
    entry.noted.store(noted, Ordering::Release);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = before };
}

fn install_handler() -> io::Result<()> {
    // SAFETY: all zeros is a valid `sigaction`: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = note_frames as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler is a function that lives for ever and is safe to run at any instruction.
    match unsafe { libc::sigaction(signal(), &action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The thread that watches the shards of a node; ends when it is dropped.
pub(crate) struct Watchdog {
    watched: Arc<Watched>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Watches for polls that last longer than `threshold`, by the shards' clock.
    ///
    /// # Errors
    /// When the system gives no thread or signal.
    pub(crate) fn start(threshold: Duration, clock: SystemClock, name: String) -> io::Result<Self> {
        install_handler()?;
        let (watched, ended) = (Arc::<Watched>::default(), Arc::<AtomicBool>::default());
        let (of_thread, thread_ended) = (Arc::clone(&watched), Arc::clone(&ended));
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            let between = (threshold / 2).clamp(LOOK_MIN, LOOK_MAX);
            let mut wait = Duration::ZERO;
            while !thread_ended.load(Ordering::Relaxed) {
                std::thread::park_timeout(wait);
                wait = match look(&of_thread, threshold, clock) {
                    true => PAUSE,
                    // A node that does nothing is not to be kept awake.
                    false if of_thread.are_idle() => (wait * 2).clamp(between, between * IDLE_FACTOR),
                    false => between,
                };
            }
        })?;
        Ok(Self { watched, ended, thread: Some(thread) })
    }

    /// The registry to which shards attach themselves.
    pub(crate) fn watched(&self) -> Arc<Watched> {
        Arc::clone(&self.watched)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Logs where one shard is that has been in one poll for longer than `threshold`; whether there was one.
fn look(watched: &Watched, threshold: Duration, clock: SystemClock) -> bool {
    let entries = watched.lock();
    let now = Duration::from_nanos(clock.now().as_nanos());
    let stalled = entries.iter().find_map(|entry| {
        let began = entry.poll_began.load(Ordering::Relaxed);
        let lasts = now.saturating_sub(Duration::from_nanos(began));
        (began & POLL_OVER == 0 && lasts > threshold).then(|| (Arc::clone(entry), lasts))
    });
    let Some((entry, lasts)) = stalled else { return false };
    entry.noted.store(0, Ordering::Relaxed);
    // SAFETY: plain numbers. The thread lives: a shard that ends first takes its entry out, under the lock that is held here.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), entry.thread, signal()) };
    drop(entries);
    if sent != 0 {
        return false;
    }
    let asked = Instant::now();
    while entry.noted.load(Ordering::Acquire) == 0 {
        if asked.elapsed() > PATIENCE {
            return false;
        }
        sleep(Duration::from_micros(100));
    }
    let names = functions(&entry);
    backtrace::clear_symbol_cache();
    let (shard, millis) = (entry.shard, lasts.as_millis() as u64);
    tracing::warn!(
        "reactor of shard {shard} stalled for {millis} ms so far, backtrace: {}",
        names.join(" < ")
    );
    true
}

/// The functions that were running with file and line, innermost first, up to the executor's.
fn functions(entry: &Entry) -> Vec<String> {
    let noted = entry.noted.load(Ordering::Acquire).min(FRAMES_MAX);
    let mut names = Vec::new();
    for frame in &entry.frames[..noted] {
        let address = frame.load(Ordering::Relaxed);
        backtrace::resolve(ptr::without_provenance_mut(address.saturating_sub(1)), |symbol| {
            let name = symbol.name().map_or_else(|| format!("{address:#x}"), |name| format!("{name:#}"));
            let file = symbol.filename().and_then(|path| path.file_name());
            names.push(match (file, symbol.lineno()) {
                (Some(file), Some(line)) => format!("{name} ({}:{line})", file.display()),
                _ => name,
            });
        });
    }
    // The signal's handler comes first, and the executor and its callers last.
    if let Some(at) = names.iter().rposition(|name| name.contains("note_frames")) {
        names.drain(..=at);
    }
    if names.first().is_some_and(|name| name.contains("restore_rt")) {
        names.remove(0);
    }
    let executor = names.iter().position(|name| name.contains("poll_task") && name.contains("executor.rs"));
    names.truncate(executor.unwrap_or(NAMES_MAX).min(NAMES_MAX));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_idle_when_none_has_polled_anything_since_the_last_look() {
        let watched = Arc::<Watched>::default();
        let shards = [1, 2].map(|at| Arc::new(AtomicU64::new(at | POLL_OVER)));
        let _attached = [0, 1].map(|shard| watched.attach(shard, Arc::clone(&shards[usize::from(shard)])));
        assert!(!watched.are_idle(), "the first look");
        assert!(watched.are_idle());
        for (shard, is_over) in [(0, true), (1, true), (1, false)] {
            shards[shard].store(9 + shard as u64 | if is_over { POLL_OVER } else { 0 }, Ordering::Relaxed);
            assert!(!watched.are_idle(), "shard {shard} has polled something");
            assert_eq!(watched.are_idle(), is_over, "a poll under way is no idleness");
        }
    }
}
