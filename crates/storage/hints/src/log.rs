//! [`Hints`]: a shard's hints by host, and the state behind them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use rt::sync::{Notify, Semaphore};
use rt::{DiskError, Instant, Rt, Task};
use stdx::HashSet;
use topology::HostId;

use crate::control::Control;
use crate::format::RecordHeader;
use crate::segment::{Active, Segment, Unsynced};
use crate::{HintFigures, HintRefused, HintsConfig, HintsStats};

/// Failures are logged at most so often.
const WARNING_PERIOD: Duration = Duration::from_secs(60);

/// An update to be kept for a host.
#[derive(Clone, Debug)]
pub struct Hint {
    /// The host that does not have it.
    pub host: HostId,
    /// The table that it is for.
    pub table: [u8; 16],
    /// The update, encoded by the caller.
    pub update: Bytes,
    /// For how long it may be delivered (the table's `gc_grace_seconds`): later the deletions that supersede it may be gone.
    pub grace_seconds: u32,
    /// When the write began that did not reach the host, microseconds since 1970: its expiry, and its order relative to a truncation,
    /// count from then.
    pub begun_micros: i64,
    /// Now, microseconds since 1970.
    pub now_micros: i64,
    /// Since when the host is down; none when it is alive, as far as one knows.
    pub down_since_micros: Option<i64>,
}

/// One shard's hints. Cheap to clone.
#[derive(Clone)]
pub struct Hints(pub(crate) Rc<Inner>);

pub(crate) struct Inner {
    pub(crate) rt: Rt,
    pub(crate) directory: PathBuf,
    pub(crate) config: HintsConfig,
    pub(crate) enabled: Cell<bool>,
    pub(crate) paused: Cell<bool>,
    pub(crate) throttle_bytes: Cell<u64>,
    window: Cell<Duration>,
    pub(crate) state: RefCell<State>,
    /// Held while files are made, written and ended.
    pub(crate) io: Semaphore,
    /// Held while files are synced.
    pub(crate) syncs: Semaphore,
    /// Held while a host is delivered to.
    pub(crate) replays: Semaphore,
    /// There is something to write.
    pub(crate) work: Notify,
    /// A replay has ended.
    pub(crate) replay_ended: Notify,
    pub(crate) closing: Cell<bool>,
    /// The last write failed.
    pub(crate) failing: Cell<bool>,
    pub(crate) tasks: RefCell<Vec<Task<()>>>,
    last_warning: Cell<Option<Instant>>,
}

/// A hint that waits to be written.
#[derive(Clone)]
pub(crate) struct Pending {
    pub(crate) header: RecordHeader,
    pub(crate) update: Bytes,
}

/// The hints of a host.
#[derive(Default)]
pub(crate) struct HostLog {
    pub(crate) pending: VecDeque<Pending>,
    pub(crate) pending_bytes: u64,
    /// The oldest and the newest time of the pending hints; of those that waited with them, too.
    pub(crate) pending_times: Option<(i64, i64)>,
    /// The time since which there have been hints all along, by the monotonic clock; none when there were some at the start.
    stored_since: Option<Instant>,
    pub(crate) active: Option<Active>,
    /// Ended segments by number.
    pub(crate) closed: BTreeMap<u64, Segment>,
    /// The replay under way.
    pub(crate) replaying: Option<Rc<Control>>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) hosts: BTreeMap<HostId, HostLog>,
    pub(crate) next_number: u64,
    /// Files with unsynced writes, by number.
    pub(crate) unsynced: BTreeMap<u64, Unsynced>,
    /// Files that are not needed any more and still there.
    pub(crate) garbage: Vec<PathBuf>,
    /// How often names were made or removed, and how often of these the directory was synced after that.
    pub(crate) name_changes: u64,
    pub(crate) name_changes_synced: u64,
    pub(crate) dropped_tables: HashSet<[u8; 16]>,
    pub(crate) pending_bytes: usize,
    pub(crate) stats: HintsStats,
}

impl HostLog {
    pub(crate) fn figures(&self) -> HintFigures {
        let mut figures = HintFigures::default();
        for segment in self.closed.values().chain(self.active.as_ref().map(|active| &active.segment)) {
            segment.add_to(&mut figures);
        }
        if let Some(times) = self.pending_times {
            figures.add(self.pending.len() as u64, self.pending_bytes, times);
        }
        figures
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.active.is_none() && self.closed.is_empty() && self.replaying.is_none()
    }
}

impl Hints {
    pub(crate) fn new(rt: &Rt, directory: PathBuf, config: HintsConfig, state: State) -> Self {
        Self(Rc::new(Inner {
            rt: rt.clone(),
            directory,
            enabled: Cell::new(config.enabled),
            paused: Cell::new(false),
            throttle_bytes: Cell::new(config.throttle_bytes),
            window: Cell::new(config.window),
            state: RefCell::new(state),
            io: Semaphore::new(1),
            syncs: Semaphore::new(1),
            replays: Semaphore::new(config.hosts_at_once.max(1)),
            work: Notify::new(),
            replay_ended: Notify::new(),
            closing: Cell::new(false),
            failing: Cell::new(false),
            tasks: RefCell::default(),
            last_warning: Cell::new(None),
            config,
        }))
    }

    /// Keeps an update for a host. It is written at once and synced every `flush_period`; [`Hints::sync`] waits for that.
    /// A refusal is counted, and logged with the others at most once a minute.
    ///
    /// # Errors
    /// The reason for which the hint is not stored; the write continues without it.
    pub fn store(&self, hint: Hint) -> Result<(), HintRefused> {
        let taken = self.0.take(hint);
        match taken {
            Ok(()) => self.0.work.notify_one(),
            Err(refused) => self.0.count_refused(refused),
        }
        taken
    }

    /// Hosts for which something is kept.
    pub fn hosts(&self) -> Vec<(HostId, HintFigures)> {
        let state = self.0.state.borrow();
        let figures = state.hosts.iter().map(|(host, log)| (*host, log.figures()));
        figures.filter(|(_, figures)| figures.count > 0).collect()
    }

    /// Switches the keeping of new hints on or off.
    pub fn set_enabled(&self, enabled: bool) {
        self.0.enabled.set(enabled);
    }

    /// Whether new hints are kept.
    pub fn is_enabled(&self) -> bool {
        self.0.enabled.get()
    }

    /// Changes for how long a host that is down gets hints.
    pub fn set_window(&self, window: Duration) {
        self.0.window.set(window);
    }

    /// Ends the replays under way and lets none begin, or lets them again.
    pub fn set_paused(&self, paused: bool) {
        self.0.paused.set(paused);
        if paused {
            self.0.cancel_replays();
        }
    }

    /// Changes how many bytes a second are delivered to one host; 0 for no limit.
    pub fn set_throttle(&self, bytes: u64) {
        self.0.throttle_bytes.set(bytes);
    }

    /// Bytes a second that are delivered to one host; 0 for no limit.
    pub fn throttle(&self) -> u64 {
        self.0.throttle_bytes.get()
    }

    /// Leaves the hints of a table out from now on (until the node ends: then nobody knows the table any more).
    pub fn drop_table(&self, table: [u8; 16]) {
        self.0.state.borrow_mut().dropped_tables.insert(table);
    }

    /// Figures of this moment.
    pub fn stats(&self) -> HintsStats {
        let state = self.0.state.borrow();
        HintsStats {
            pending: state.hosts.values().map(|log| log.pending.len() as u64).sum(),
            pending_bytes: state.pending_bytes as u64,
            replaying: state.hosts.values().filter(|log| log.replaying.is_some()).count() as u64,
            in_flight: state
                .hosts
                .values()
                .filter_map(|log| log.replaying.as_ref())
                .map(|replay| replay.in_flight.get())
                .sum(),
            ..state.stats
        }
    }
}

impl Inner {
    fn take(&self, hint: Hint) -> Result<(), HintRefused> {
        if self.closing.get() {
            return Err(HintRefused::Stopped);
        }
        if !self.enabled.get() {
            return Err(HintRefused::Disabled);
        }
        if hint.grace_seconds == 0 {
            return Err(HintRefused::NoGrace);
        }
        if self.failing.get() {
            return Err(HintRefused::Disk);
        }
        let update_len = u32::try_from(hint.update.len()).map_err(|_| HintRefused::TooLarge)?;
        if hint.update.len() > self.config.update_bytes_max {
            return Err(HintRefused::TooLarge);
        }
        let header = RecordHeader {
            update_len,
            begun_micros: hint.begun_micros,
            grace_seconds: hint.grace_seconds,
            table: hint.table,
        };
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let kept = state.hosts.get(&hint.host).map(HostLog::figures).unwrap_or_default();
        let stored_since = state.hosts.get(&hint.host).and_then(|log| log.stored_since);
        if self.window_passed(&hint, &kept, stored_since) {
            return Err(HintRefused::WindowPassed);
        }
        let len = header.record_len();
        if self.config.host_bytes_max > 0 && kept.bytes + len > self.config.host_bytes_max {
            return Err(HintRefused::HostFull);
        }
        if state.pending_bytes > 0 && state.pending_bytes + len as usize > self.config.buffer_bytes_max {
            return Err(HintRefused::BufferFull);
        }
        let log = state.hosts.entry(hint.host).or_default();
        if kept.count == 0 {
            log.stored_since = Some(self.rt.now());
        }
        let (oldest, newest) = log.pending_times.unwrap_or((hint.begun_micros, hint.begun_micros));
        log.pending_times = Some((oldest.min(hint.begun_micros), newest.max(hint.begun_micros)));
        log.pending.push_back(Pending { header, update: hint.update });
        log.pending_bytes += len;
        state.pending_bytes += len as usize;
        state.stats.stored += 1;
        Ok(())
    }

    /// Whether the host is down for too long, or its oldest hint is too old. A wall clock that jumps forward makes no hint older than
    /// this process has stored hints for the host.
    fn window_passed(&self, hint: &Hint, kept: &HintFigures, stored_since: Option<Instant>) -> bool {
        let window = i64::try_from(self.window.get().as_micros()).unwrap_or(i64::MAX);
        let passed = |since: i64| hint.now_micros.saturating_sub(since) >= window;
        let may_be_older = stored_since.is_none_or(|since| self.rt.now() - since >= self.window.get());
        let oldest_passed =
            self.config.window_persistent && kept.count > 0 && may_be_older && passed(kept.oldest_micros);
        hint.down_since_micros.is_some_and(passed) || oldest_passed
    }

    fn count_refused(&self, refused: HintRefused) {
        let mut state = self.state.borrow_mut();
        state.stats.refused += 1;
        match refused {
            HintRefused::WindowPassed => state.stats.refused_window += 1,
            HintRefused::TooLarge | HintRefused::HostFull | HintRefused::BufferFull => {
                state.stats.refused_size += 1;
            }
            HintRefused::Disk => state.stats.refused_disk += 1,
            HintRefused::Disabled | HintRefused::NoGrace | HintRefused::Stopped => return,
        }
        let total = state.stats.refused;
        drop(state);
        if self.may_warn() {
            tracing::warn!("a hint is dropped: {refused} ({total} dropped so far); a repair is needed");
        }
    }

    /// Counts a failure of the disk and logs it, unless one was logged a moment ago.
    pub(crate) fn disk_failed(&self, error: &DiskError) {
        self.state.borrow_mut().stats.disk_failures += 1;
        if self.may_warn() {
            tracing::warn!("hints: {error}");
        }
    }

    pub(crate) fn may_warn(&self) -> bool {
        let now = self.rt.now();
        let may = self.last_warning.get().is_none_or(|last| now - last >= WARNING_PERIOD);
        if may {
            self.last_warning.set(Some(now));
        }
        may
    }
}
