//! Delivery of a host's hints: in order, at a limited rate, with a position that survives a restart.

use std::fmt::Display;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesOrdered;
use rt::{DiskError, File, Group, Instant, IoBuf, OpenOptions, Rt};
use topology::HostId;

use crate::Hints;
use crate::control::Control;
use crate::format::Position;
use crate::log::Inner;
use crate::reader::{Record, SegmentReader};

/// The position is written after so many delivered bytes, and when a replay ends early.
const POSITION_BYTES: u64 = 1 << 20;
const MICROS_PER_SECOND: i64 = 1_000_000;

/// A hint that is being delivered.
#[derive(Clone, Debug)]
pub struct StoredHint {
    /// The table that it is for.
    pub table: [u8; 16],
    /// When its write began, microseconds since 1970: a table that was truncated later does not want it.
    pub begun_micros: i64,
    /// The update, as it was stored.
    pub update: Bytes,
}

/// The fate of a hint for which no failure is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brought {
    /// The host acknowledged it.
    Delivered,
    /// It is of no use any more: its table was dropped or truncated.
    LeftOut,
}

impl From<()> for Brought {
    fn from((): ()) -> Self {
        Self::Delivered
    }
}

/// How a replay ended.
#[derive(Clone, Debug)]
pub enum ReplayEnd {
    /// The host has everything that was stored before the replay began.
    Complete,
    /// A delivery failed, for this reason; undelivered hints are retained.
    Failed(String),
    /// Some file could not be read or written; it is kept, the others were delivered.
    Disk(DiskError),
    /// It was stopped, paused, or the host was dropped.
    Cancelled,
    /// Another replay for this host is under way.
    Busy,
}

/// The result of a replay.
#[derive(Clone, Debug)]
pub struct ReplayOutcome {
    /// Hints that the host has.
    pub delivered: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Hints left out because they were too old, or because their table is gone.
    pub left_out: u64,
    /// How it ended.
    pub end: ReplayEnd,
}

/// A replay under way; gives its place free when it ends or is dropped.
struct Guard {
    inner: Rc<Inner>,
    host: HostId,
    control: Rc<Control>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut state = self.inner.state.borrow_mut();
        if let Some(log) = state.hosts.get_mut(&self.host) {
            log.replaying = None;
            if log.is_empty() {
                state.hosts.remove(&self.host);
            }
        }
        drop(state);
        self.inner.replay_ended.notify_all();
    }
}

/// At most so many bytes a second, beside one hint.
struct Pace {
    next: Instant,
}

impl Pace {
    fn spend(&mut self, rt: &Rt, bytes: u64, per_second: u64) {
        if per_second > 0 {
            let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(per_second);
            let pause = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            self.next = self.next.max(rt.now()) + pause;
        }
    }
}

/// The outcome of a hint.
enum Fate {
    Delivered,
    LeftOut,
    Failed(String),
}

struct Step {
    /// Where the next record begins.
    next: u64,
    bytes: u64,
    fate: Fate,
}

/// How the replay of a segment ended.
enum SegmentEnd {
    Done,
    Failed(String),
    Unreadable(DiskError),
    Cancelled,
}

impl Hints {
    /// Delivers the hints of a host through `deliver`, in the order in which it was stored, with some hints under way at once.
    /// `deliver` resolves when the host has the update, or it is of no use; when it fails the replay ends, and the next one begins with
    /// that hint. Hints older than their grace are left out. Some that were delivered may be delivered again after a crash.
    pub async fn replay<F, B, E>(&self, host: HostId, deliver: impl Fn(StoredHint) -> F) -> ReplayOutcome
    where
        F: Future<Output = Result<B, E>>,
        B: Into<Brought>,
        E: Display,
    {
        self.replay_within(host, |_| None, deliver).await
    }

    /// [`Hints::replay`] with the present grace of a table, in seconds: none leaves the one that the hint was stored with. The
    /// shorter of both counts. A table whose grace was lowered since may have purged deletions that an older hint would undo; one
    /// whose grace was raised may have purged them before.
    pub async fn replay_within<F, B, E>(
        &self,
        host: HostId,
        grace_seconds: impl Fn([u8; 16]) -> Option<u32>,
        deliver: impl Fn(StoredHint) -> F,
    ) -> ReplayOutcome
    where
        F: Future<Output = Result<B, E>>,
        B: Into<Brought>,
        E: Display,
    {
        let mut outcome = ReplayOutcome { delivered: 0, bytes: 0, left_out: 0, end: ReplayEnd::Complete };
        let guard = match self.begin(host) {
            Ok(Some(guard)) => guard,
            Ok(None) => return outcome,
            Err(end) => return ReplayOutcome { end, ..outcome },
        };
        let Some(_turn) = self.wait_for_turn(&guard.control).await else {
            return ReplayOutcome { end: ReplayEnd::Cancelled, ..outcome };
        };
        let mut pace = Pace { next: Instant::START };
        let mut disk = None;
        let mut tried = None;
        // The segment that is being written comes last, so that a host that fails again does not end one each time.
        for round in 0..2 {
            if round == 1
                && let Err(error) = self.end_written(host).await
            {
                disk = Some(error);
            }
            for number in self.closed_numbers(host, tried) {
                tried = Some(number);
                let grace_seconds = &grace_seconds;
                let run = Run { inner: &self.0, host, number, control: &guard.control, grace_seconds };
                match run.deliver(&deliver, &mut pace, &mut outcome).await {
                    SegmentEnd::Done => self.remove(host, number).await,
                    SegmentEnd::Failed(reason) => {
                        outcome.end = ReplayEnd::Failed(reason);
                        return outcome;
                    }
                    SegmentEnd::Cancelled => {
                        outcome.end = ReplayEnd::Cancelled;
                        return outcome;
                    }
                    SegmentEnd::Unreadable(error) => {
                        self.0.disk_failed(&error);
                        disk = Some(error);
                    }
                }
            }
        }
        if let Some(error) = disk {
            outcome.end = ReplayEnd::Disk(error);
        }
        outcome
    }

    /// Takes the host's place; none when nothing is kept for it.
    fn begin(&self, host: HostId) -> Result<Option<Guard>, ReplayEnd> {
        if self.0.closing.get() || self.0.paused.get() {
            return Err(ReplayEnd::Cancelled);
        }
        let mut state = self.0.state.borrow_mut();
        let Some(log) = state.hosts.get_mut(&host) else { return Ok(None) };
        if log.replaying.is_some() {
            return Err(ReplayEnd::Busy);
        }
        let control = Rc::new(Control::default());
        log.replaying = Some(Rc::clone(&control));
        Ok(Some(Guard { inner: Rc::clone(&self.0), host, control }))
    }

    /// Waits until few enough hosts are being delivered to; none when cancelled.
    async fn wait_for_turn(&self, control: &Control) -> Option<rt::sync::Permit> {
        let turn = std::pin::pin!(self.0.replays.acquire(1));
        let cancelled = std::pin::pin!(control.notify.notified());
        match select(turn, cancelled).await {
            Either::Left((permit, _)) => permit.ok(),
            Either::Right(_) => None,
        }
    }

    /// Writes the host's pending hints and ends its segment.
    async fn end_written(&self, host: HostId) -> Result<(), DiskError> {
        let inner = Rc::clone(&self.0);
        let end = async move {
            let written = inner.write_host(host).await;
            let _io = inner.io.acquire(1).await;
            inner.end_active(host);
            written
        };
        self.0.rt.uncancelled(Group::Maintenance, end).await
    }

    async fn remove(&self, host: HostId, number: u64) {
        let inner = Rc::clone(&self.0);
        let remove = async move { inner.remove_segment(host, number).await };
        self.0.rt.uncancelled(Group::Maintenance, remove).await;
    }

    /// The host's ended segments behind `after`.
    fn closed_numbers(&self, host: HostId, after: Option<u64>) -> Vec<u64> {
        let state = self.0.state.borrow();
        let Some(log) = state.hosts.get(&host) else { return Vec::new() };
        let from = after.map_or(0, |number| number + 1);
        log.closed.range(from..).map(|(number, _)| *number).collect()
    }
}

impl Inner {
    pub(crate) fn is_replaying(&self, host: HostId) -> bool {
        self.state.borrow().hosts.get(&host).is_some_and(|log| log.replaying.is_some())
    }

    /// Ends the replay of a host and waits for its end.
    pub(crate) async fn end_replay(&self, host: HostId) {
        loop {
            let control = self.state.borrow().hosts.get(&host).and_then(|log| log.replaying.clone());
            let Some(control) = control else { return };
            control.cancel();
            self.replay_ended.notified().await;
        }
    }

    /// Cancels all replays.
    pub(crate) fn cancel_replays(&self) {
        for log in self.state.borrow().hosts.values() {
            if let Some(control) = &log.replaying {
                control.cancel();
            }
        }
    }
}

/// The replay of one segment.
struct Run<'a, G> {
    inner: &'a Inner,
    host: HostId,
    number: u64,
    control: &'a Control,
    /// The present grace of a table.
    grace_seconds: &'a G,
}

impl<G: Fn([u8; 16]) -> Option<u32>> Run<'_, G> {
    #[expect(clippy::expect_used, reason = "the loop ends only with a reason")]
    async fn deliver<D, F, B, E>(
        &self,
        deliver: &D,
        pace: &mut Pace,
        outcome: &mut ReplayOutcome,
    ) -> SegmentEnd
    where
        D: Fn(StoredHint) -> F,
        F: Future<Output = Result<B, E>>,
        B: Into<Brought>,
        E: Display,
    {
        let segment = {
            let state = self.inner.state.borrow();
            state.hosts.get(&self.host).and_then(|log| log.closed.get(&self.number)).cloned()
        };
        let Some(segment) = segment else { return SegmentEnd::Done };
        let file = match self.inner.rt.disk().open(&segment.path, OpenOptions::READ_WRITE).await {
            Ok(file) => file,
            Err(error) => return SegmentEnd::Unreadable(error),
        };
        let mut position = segment.position;
        let mut saved = position.offset;
        let limit = self.inner.config.update_bytes_max;
        let mut reader = SegmentReader::new(file.clone(), self.number, position.offset, segment.end, limit);
        let mut under_way = FuturesOrdered::new();
        let mut end = None;
        loop {
            while end.is_none() && self.may_send(under_way.len(), pace) {
                match reader.next().await {
                    Ok(Some(record)) => under_way.push_back(self.send(record, deliver, pace)),
                    Ok(None) => end = Some(SegmentEnd::Done),
                    Err(error) => end = Some(SegmentEnd::Unreadable(error)),
                }
            }
            if self.control.cancelled.get() {
                end = Some(SegmentEnd::Cancelled);
                break;
            }
            if under_way.is_empty() && end.is_some() {
                break;
            }
            self.control.in_flight.set(under_way.len() as u64);
            let Some(step) = self.wait(&mut under_way, pace, end.is_some()).await else { continue };
            if let Fate::Failed(reason) = step.fate {
                self.inner.state.borrow_mut().stats.delivery_failures += 1;
                end = Some(SegmentEnd::Failed(reason));
                break;
            }
            self.advance(&mut position, &step, outcome);
            if position.offset - saved >= POSITION_BYTES {
                saved = position.offset;
                self.save(&file, position).await;
            }
        }
        self.control.in_flight.set(0);
        let end = end.expect("the loop ends with a reason");
        if matches!(end, SegmentEnd::Done) {
            self.count_damage(&reader, segment.torn);
        } else if position.offset > saved {
            self.save(&file, position).await;
        }
        end
    }

    fn may_send(&self, under_way: usize, pace: &Pace) -> bool {
        !self.control.cancelled.get()
            && under_way < self.inner.config.in_flight_max.max(1)
            && self.inner.rt.now() >= pace.next
    }

    /// The future that delivers a record, or finds that it is left out.
    fn send<'d, D, F, B, E>(
        &self,
        record: Record,
        deliver: &'d D,
        pace: &mut Pace,
    ) -> impl Future<Output = Step> + use<'d, D, F, B, E, G>
    where
        D: Fn(StoredHint) -> F,
        F: Future<Output = Result<B, E>>,
        B: Into<Brought>,
        E: Display,
    {
        let Record { header, update, next } = record;
        let bytes = header.record_len();
        let grace = (self.grace_seconds)(header.table)
            .map_or(header.grace_seconds, |present| present.min(header.grace_seconds));
        let left_out = self.is_too_old(header.begun_micros, grace)
            || self.inner.state.borrow().dropped_tables.contains(&header.table);
        let injected = self.inner.config.canaries.drop_hint && next.is_multiple_of(8);
        if !left_out {
            pace.spend(&self.inner.rt, bytes, self.inner.throttle_bytes.get());
        }
        let hint = StoredHint { table: header.table, begun_micros: header.begun_micros, update };
        async move {
            let fate = match left_out {
                true => Fate::LeftOut,
                false if injected => Fate::Delivered,
                false => match deliver(hint).await {
                    Ok(brought) => match brought.into() {
                        Brought::Delivered => Fate::Delivered,
                        Brought::LeftOut => Fate::LeftOut,
                    },
                    Err(error) => Fate::Failed(error.to_string()),
                },
            };
            Step { next, bytes, fate }
        }
    }

    fn is_too_old(&self, begun_micros: i64, grace_seconds: u32) -> bool {
        let age = self.inner.rt.wall_micros().saturating_sub(begun_micros);
        age >= i64::from(grace_seconds) * MICROS_PER_SECOND
    }

    /// Waits for the first hint under way, for the time at which another may be sent, or for the replay to be cancelled.
    async fn wait<T: Future<Output = Step>>(
        &self,
        under_way: &mut FuturesOrdered<T>,
        pace: &Pace,
        all_sent: bool,
    ) -> Option<Step> {
        // Whether its time has come is not asked again: it may have come since [`Run::may_send`] looked, and nothing else would wake.
        let paced = !all_sent && under_way.len() < self.inner.config.in_flight_max.max(1);
        let next_send = async {
            match paced {
                true => self.inner.rt.sleep_until(pace.next).await,
                false => std::future::pending().await,
            }
        };
        let woken = async {
            select(std::pin::pin!(next_send), std::pin::pin!(self.control.notify.notified())).await;
        };
        if under_way.is_empty() {
            woken.await;
            return None;
        }
        match select(under_way.next(), std::pin::pin!(woken)).await {
            Either::Left((step, _)) => step,
            Either::Right(_) => None,
        }
    }

    fn advance(&self, position: &mut Position, step: &Step, outcome: &mut ReplayOutcome) {
        position.offset = step.next;
        position.hints += 1;
        let mut state = self.inner.state.borrow_mut();
        match step.fate {
            Fate::Delivered => {
                outcome.delivered += 1;
                outcome.bytes += step.bytes;
                state.stats.delivered += 1;
                state.stats.delivered_bytes += step.bytes;
            }
            Fate::LeftOut | Fate::Failed(_) => {
                outcome.left_out += 1;
                state.stats.left_out += 1;
            }
        }
        let log = state.hosts.get_mut(&self.host);
        if let Some(segment) = log.and_then(|log| log.closed.get_mut(&self.number)) {
            segment.position.offset = position.offset;
            segment.position.hints = position.hints;
        }
    }

    /// Writes the position into the file, which is synced with the others. A failure costs repetition only.
    async fn save(&self, file: &File, position: Position) {
        let position = {
            let mut state = self.inner.state.borrow_mut();
            let log = state.hosts.get_mut(&self.host);
            let Some(segment) = log.and_then(|log| log.closed.get_mut(&self.number)) else { return };
            segment.position.generation += 1;
            let ahead = u64::from(self.inner.config.canaries.skip_at_resume);
            Position {
                offset: position.offset + ahead,
                hints: position.hints + ahead,
                generation: segment.position.generation,
            }
        };
        let (at, bytes) = position.encode(self.number);
        match file.write_at(at, IoBuf::copy_of(&bytes)).await {
            Ok(_) => self.inner.sync_later(self.host, self.number, file),
            Err(error) => self.inner.disk_failed(&error),
        }
    }

    fn count_damage(&self, reader: &SegmentReader, torn: u64) {
        let damages = reader.damages.saturating_sub(torn);
        if damages > 0 {
            self.inner.state.borrow_mut().stats.corruptions += damages;
            tracing::warn!(
                "hints of file number {} were damaged in {damages} places and are lost there; a repair is needed",
                self.number
            );
        }
    }
}
