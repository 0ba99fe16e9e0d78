//! The state that the threads of a phase share: counters, and how they begin and end together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rt::{Instant, Rt};

use crate::load::options::Options;

/// The mark of a range whose rows nobody has counted.
pub(crate) const RANGE_UNKNOWN: u64 = u64::MAX;

/// State that the threads of a phase share: counters only.
pub(crate) struct Shared {
    /// The next key or range of a sequence.
    pub(crate) sequence: Arc<AtomicU64>,
    /// Operations that succeeded, those of the warm-up included.
    pub(crate) completed: AtomicU64,
    /// Operations that failed.
    pub(crate) failed: AtomicU64,
    /// Rows of each range of a scan.
    pub(crate) ranges: Vec<AtomicU64>,
    /// Increments that were acknowledged.
    pub(crate) acknowledged: AtomicU64,
    /// Increments that failed, and may have counted.
    pub(crate) unknown: AtomicU64,
    /// Rows appended to a time series.
    pub(crate) appended: AtomicU64,
    /// When this began, in milliseconds since 1970.
    pub(crate) started_ms: u64,
    /// The server has stopped answering.
    pub(crate) stalled: AtomicBool,
    /// How the threads of the phase begin and end together.
    pub(crate) line: Line,
}

impl Shared {
    pub(crate) fn new(options: &Options) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Shared {
            sequence: Arc::default(),
            completed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            ranges: (0..options.ranges).map(|_| AtomicU64::new(RANGE_UNKNOWN)).collect(),
            acknowledged: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            appended: AtomicU64::new(0),
            started_ms: u64::try_from(since_1970.as_millis()).unwrap_or(0),
            stalled: AtomicBool::new(false),
            line: Line::default(),
        }
    }
}

/// The barrier of a phase's threads: none starts before all are connected, and the last to end knows it.
#[derive(Default)]
pub(crate) struct Line {
    /// Threads whose connections are open.
    arrived: AtomicU64,
    /// A thread could not connect; nobody is to wait for it.
    pub(crate) broken: AtomicBool,
    /// When the measurement begins, in nanoseconds of the threads' common clock; 0 until that is known.
    from_nanos: AtomicU64,
    /// Threads that have done all of their operations.
    ended: AtomicU64,
}

impl Line {
    /// Waits for all threads; when the measurement begins, the same for all. None when one of them has given up.
    pub(crate) async fn start(&self, rt: &Rt, threads: u64, warmup: Duration) -> Option<Instant> {
        self.arrived.fetch_add(1, Ordering::AcqRel);
        loop {
            if self.broken.load(Ordering::Acquire) {
                return None;
            }
            if self.arrived.load(Ordering::Acquire) == threads {
                let mine = (rt.now() + warmup).as_nanos().max(1);
                let decided = self.from_nanos.compare_exchange(0, mine, Ordering::AcqRel, Ordering::Acquire);
                return Some(Instant::from_nanos(decided.map_or_else(|theirs| theirs, |_| mine)));
            }
            rt.sleep(LINE_LOOK).await;
        }
    }

    /// Whether the thread that calls this is the last one to end.
    pub(crate) fn end(&self, threads: u64) -> bool {
        self.ended.fetch_add(1, Ordering::AcqRel) + 1 == threads
    }
}

/// How often a thread looks whether the others have arrived.
const LINE_LOOK: Duration = Duration::from_millis(1);

/// How long a phase is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PhaseLength {
    /// A time, after the warm-up.
    Time(Duration),
    /// A number of operations, after the warm-up.
    Operations(u64),
}
