//! The log in operation. Where the segment being written is mapped (the periodic mode) an entry is stored when it is appended.
//! Else entries gather in a chunk, one task writes chunk after chunk, and the waiters of an entry are answered when its
//! chunk is written (or synced, as the mode asks). The same task begins and ends segments.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::select;
use mutation::PartitionUpdate;
use mutation::codec::EncodedUpdates;
use rt::sync::Semaphore;
use rt::{DiskError, DiskOp, File, Group, IoBuf, Rt, Task};
use schema::TableId;

use crate::active::Active;
use crate::entry::{Checkpoint, encode_received, encode_updates};
use crate::segment::{CHUNK_HEADER_LEN, ENTRY_HEADER_LEN, HEADER_LEN, SegmentHeader, entry_header, scan};
use crate::signal::Signal;
use crate::{AppendError, CommitLogConfig, SyncMode};

/// A chunk is closed for further entries when it has so many bytes.
const CHUNK_LEN_MAX: usize = 1 << 20;
/// Writes wait when so many bytes have not reached the disk.
const PENDING_BYTES_MAX: usize = 16 << 20;
/// Pause before a sync or a link into the archive that failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Bytes of the first allocation of a chunk.
const CHUNK_CAPACITY: usize = 64 << 10;

/// The commit log of a shard. Cheap to clone.
#[derive(Clone)]
pub struct CommitLog(pub(crate) Rc<Inner>);

pub(crate) struct Inner {
    pub(crate) rt: Rt,
    pub(crate) config: CommitLogConfig,
    /// An injected bug: acknowledge without the sync that the mode promises.
    pub(crate) skip_sync: bool,
    pub(crate) state: RefCell<State>,
    /// The segment being written; none while one is ended and the next is made ready.
    pub(crate) active: RefCell<Option<Active>>,
    pub(crate) work: Signal,
    pub(crate) closing: Cell<bool>,
    /// One sync at a time: when two of one file fail, the system reports it to one of them only.
    pub(crate) syncing: Semaphore,
    /// One release at a time: segments go oldest first.
    releasing: Semaphore,
    /// The periodic mode: written entries are not synced in time. Writes wait.
    late: Cell<bool>,
    /// A segment has its end mark, which is not durable.
    pub(crate) segment_ended: Rc<Signal>,
    /// There may be something for the archive.
    pub(crate) archiving: Signal,
    /// See [`CommitLog::on_failure`].
    failure_handler: RefCell<Option<FailureHandler>>,
    tasks: RefCell<Vec<Task<()>>>,
}

type FailureHandler = Box<dyn Fn(&DiskError)>;

/// A segment on disk that may hold entries which are still needed.
pub(crate) struct Segment {
    pub(crate) id: u64,
    pub(crate) path: PathBuf,
    pub(crate) len: u64,
    /// Largest number in it.
    pub(crate) last: u64,
    /// It was there when the log was opened. Its file is not used again: an archive of an earlier configuration may have a link to it.
    pub(crate) is_found: bool,
}

#[derive(Default)]
pub(crate) struct State {
    /// Number of the next entry.
    pub(crate) next: u64,
    pub(crate) next_segment: u64,
    pub(crate) pending: VecDeque<Pending>,
    pub(crate) pending_bytes: usize,
    /// Chunks that were pending are being written: entries appended now come behind them.
    pub(crate) is_writing: bool,
    /// The last of the chunks that are being written.
    pub(crate) last_writing: Option<Rc<ChunkStatus>>,
    /// A spare was asked for while this segment was written; once is enough, also when the disk is full.
    pub(crate) spare_asked: bool,
    pub(crate) room_waiters: Vec<Waker>,
    /// Oldest first; the last is the one being written, or was when the log was opened.
    pub(crate) segments: VecDeque<Segment>,
    /// Segments that are complete and not in the archive yet, oldest first.
    pub(crate) to_archive: VecDeque<PathBuf>,
    /// Files to be used again.
    pub(crate) spares: Vec<PathBuf>,
    pub(crate) checkpoint: Checkpoint,
    /// Tables of the checkpoint that are gone, whose entries may still be there.
    pub(crate) dropped: BTreeSet<TableId>,
    /// Everything up to this number was written.
    pub(crate) written: u64,
    /// Everything up to this number is durable.
    pub(crate) synced: u64,
    /// Files with writes that were not synced.
    pub(crate) unsynced: Vec<Unsynced>,
    /// Syncs that failed, and how many of them the last good sync has made up for.
    pub(crate) sync_failures: u64,
    pub(crate) sync_failures_repaired: u64,
    pub(crate) scratch: Vec<u8>,
    pub(crate) stats: CommitLogStats,
}

/// A segment's file with writes that were not synced.
#[derive(Clone)]
pub(crate) struct Unsynced {
    pub(crate) file: File,
    pub(crate) header: SegmentHeader,
    /// How far it is written.
    pub(crate) written: Rc<Cell<u64>>,
}

/// A chunk that waits to be written.
pub(crate) struct Pending {
    pub(crate) status: Rc<ChunkStatus>,
    /// Room for the chunk's header, then entries.
    pub(crate) buf: IoBuf,
    pub(crate) first: u64,
    pub(crate) count: u64,
}

/// The state of a chunk, for the tasks that wait for it.
#[derive(Default)]
pub(crate) struct ChunkStatus {
    outcome: RefCell<Option<Result<(), AppendError>>>,
    waiters: RefCell<Vec<Waker>>,
}

impl ChunkStatus {
    pub(crate) fn settle(&self, outcome: Result<(), AppendError>) {
        let before = self.outcome.borrow_mut().replace(outcome);
        assert!(before.is_none(), "a chunk is written once");
        self.waiters.borrow_mut().drain(..).for_each(Waker::wake);
    }
}

/// An entry on its way to the disk. Awaiting it gives whether it arrived as the log's mode asks.
#[must_use = "the entry may be acknowledged only after this"]
pub struct Ticket {
    /// None: it has arrived.
    status: Option<Rc<ChunkStatus>>,
    /// The entry's number.
    pub number: u64,
}

impl Future for Ticket {
    type Output = Result<(), AppendError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(status) = &self.status else { return Poll::Ready(Ok(())) };
        if let Some(outcome) = &*status.outcome.borrow() {
            return Poll::Ready(outcome.clone());
        }
        let mut waiters = status.waiters.borrow_mut();
        if !waiters.last().is_some_and(|last| last.will_wake(cx.waker())) {
            waiters.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// Figures of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitLogStats {
    /// Bytes of files, spare ones included.
    pub disk_bytes: u64,
    /// Bytes of segments that hold entries.
    pub live_bytes: u64,
    /// Segments that hold entries.
    pub segments: u64,
    /// Bytes written since start.
    pub written_bytes: u64,
    /// Entries taken since start.
    pub entries: u64,
    /// Chunks written since start.
    pub chunks: u64,
    /// Syncs since start.
    pub syncs: u64,
    /// Entries that wait to be written.
    pub pending: u64,
    /// Failures of writes, syncs and archiving since start.
    pub failures: u64,
}

impl CommitLog {
    /// A log in operation; `write` is the task that writes its chunks.
    pub(crate) fn start<F>(
        rt: &Rt,
        config: CommitLogConfig,
        skip_sync: bool,
        state: State,
        write: impl FnOnce(Rc<Inner>) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        let log = Self(Rc::new(Inner {
            rt: rt.clone(),
            config,
            skip_sync,
            state: RefCell::new(state),
            active: RefCell::default(),
            work: Signal::default(),
            closing: Cell::new(false),
            syncing: Semaphore::new(1),
            releasing: Semaphore::new(1),
            late: Cell::new(false),
            segment_ended: Rc::default(),
            archiving: Signal::default(),
            failure_handler: RefCell::default(),
            tasks: RefCell::default(),
        }));
        let mut tasks = vec![rt.spawn(Group::Statement, write(log.0.clone()))];
        if let SyncMode::Periodic { period } = log.0.config.sync {
            let segment_ended = Rc::clone(&log.0.segment_ended);
            let syncer = sync_periodically(rt.clone(), Rc::downgrade(&log.0), segment_ended, period);
            tasks.push(rt.spawn(Group::Maintenance, syncer));
        }
        if log.0.config.archive_directory.is_some() {
            tasks.push(rt.spawn(Group::Maintenance, log.0.clone().run_archiving()));
            log.0.archiving.set();
        }
        *log.0.tasks.borrow_mut() = tasks;
        log
    }

    /// Has `handler` called at once whenever the disk fails the log: before the waiting writers get their error. There is one
    /// handler; it must not wait.
    pub fn on_failure(&self, handler: impl Fn(&DiskError) + 'static) {
        *self.0.failure_handler.borrow_mut() = Some(Box::new(handler));
    }

    /// The largest entry's size, bytes.
    pub fn entry_len_max(&self) -> usize {
        (self.0.config.segment_bytes / 2) as usize
    }

    /// Whether [`CommitLog::wait_for_room`] would not wait.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.0.has_room()
    }

    /// Waits while too much has not reached the disk, or, in the periodic mode, the oldest written entry is not synced
    /// after the period.
    pub async fn wait_for_room(&self) {
        std::future::poll_fn(|cx| {
            if self.0.has_room() || self.0.closing.get() {
                return Poll::Ready(());
            }
            self.0.state.borrow_mut().room_waiters.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Adds updates as one entry: after a crash all of them are there or none.
    ///
    /// # Errors
    ///
    /// [`AppendError::TooLarge`] and [`AppendError::Closed`]: nothing was added.
    pub fn append(&self, updates: &[PartitionUpdate]) -> Result<Ticket, AppendError> {
        self.append_with(|body| encode_updates(updates, body))
    }

    /// [`CommitLog::append`] of updates whose bytes were received: they are not encoded again.
    ///
    /// # Errors
    ///
    /// As [`CommitLog::append`].
    pub fn append_received(&self, updates: &EncodedUpdates) -> Result<Ticket, AppendError> {
        self.append_with(|body| encode_received(updates, body))
    }

    /// Adds updates as one entry that needs no wait for its acknowledgement: its number. None, and nothing was added, where
    /// [`CommitLog::append`] is to be used: the segment is not mapped or has no room, and when that would fail.
    pub fn append_now(&self, updates: &[PartitionUpdate]) -> Option<u64> {
        let mut state = self.0.state.borrow_mut();
        if self.0.closing.get() {
            return None;
        }
        let mut body = std::mem::take(&mut state.scratch);
        body.clear();
        encode_updates(updates, &mut body);
        let fits = body.len() <= self.entry_len_max();
        let stored = if fits { self.0.store(&mut state, &body) } else { None };
        if body.capacity() <= CHUNK_LEN_MAX {
            state.scratch = body;
        }
        debug_assert!(stored.as_ref().is_none_or(|ticket| ticket.status.is_none()), "it has arrived");
        stored.map(|ticket| ticket.number)
    }

    fn append_with(&self, encode: impl FnOnce(&mut Vec<u8>)) -> Result<Ticket, AppendError> {
        if self.0.closing.get() {
            return Err(AppendError::Closed);
        }
        let mut state = self.0.state.borrow_mut();
        let mut body = std::mem::take(&mut state.scratch);
        body.clear();
        encode(&mut body);
        let size_max = self.entry_len_max();
        let added = if body.len() > size_max {
            Err(AppendError::TooLarge { size: body.len(), size_max })
        } else {
            Ok(self
                .0
                .store(&mut state, &body)
                .unwrap_or_else(|| state.add(&body, CHUNK_LEN_MAX.min(size_max))))
        };
        if body.capacity() <= CHUNK_LEN_MAX {
            state.scratch = body;
        }
        drop(state);
        let ticket = added?;
        if ticket.status.is_some() {
            self.0.work.set();
        }
        Ok(ticket)
    }

    /// The number that the next entry will have: everything before has a smaller one.
    pub fn next_number(&self) -> u64 {
        self.0.state.borrow().next
    }

    /// Records that the entries of `table` before number `before` are in SSTables, durably: they are never replayed
    /// again. Must be done before a compaction may purge data of those SSTables.
    ///
    /// # Errors
    /// [`AppendError::Disk`] when the checkpoint cannot be written or synced, [`AppendError::Closed`] after
    /// [`CommitLog::close`]. Replay may then repeat entries that are in SSTables, which changes nothing.
    pub async fn record_flushed(&self, table: TableId, before: u64) -> Result<(), AppendError> {
        assert!(before <= self.next_number(), "only entries that exist are in SSTables");
        self.0.state.borrow_mut().dropped.remove(&table);
        self.record_upto([table], before).await
    }

    /// Records that the entries before number `before` of tables that were dropped are never to be replayed, durably: a later table may
    /// have the id of one.
    ///
    /// # Errors
    /// As [`CommitLog::record_flushed`].
    pub async fn record_dropped(&self, tables: &BTreeSet<TableId>, before: u64) -> Result<(), AppendError> {
        assert!(before <= self.next_number(), "only entries that exist are those of a dropped table");
        self.note_dropped(tables);
        self.record_upto(tables.iter().copied(), before).await
    }

    /// These tables are gone: how far they are flushed is forgotten with their last entries.
    pub fn note_dropped(&self, tables: &BTreeSet<TableId>) {
        self.0.state.borrow_mut().dropped.extend(tables);
    }

    async fn record_upto(
        &self,
        tables: impl IntoIterator<Item = TableId>,
        before: u64,
    ) -> Result<(), AppendError> {
        let upto = before.saturating_sub(1);
        let news = Checkpoint {
            flushed: tables.into_iter().map(|table| (table, upto)).collect(),
            ..Checkpoint::default()
        };
        self.0.state.borrow_mut().checkpoint.merge(&news);
        let ticket = self.append_with(|body| news.encode(body))?;
        ticket.await?;
        self.0.sync().await
    }

    /// Gives segments free whose entries all have numbers below `number`.
    ///
    /// # Errors
    /// A [`DiskError`] when a segment cannot be removed or renamed; it and those behind it stay, and the next call
    /// tries again.
    #[expect(clippy::expect_used, reason = "nothing closes the semaphore, and the queue is looked at before")]
    pub async fn release_before(&self, number: u64) -> Result<(), DiskError> {
        let _one = self.0.releasing.acquire(1).await.expect("it is never closed");
        loop {
            let segment = {
                let mut state = self.0.state.borrow_mut();
                // The last one carries the present checkpoint.
                match state.segments.front() {
                    Some(first)
                        if state.segments.len() > 1
                            && first.last < number
                            && !state.to_archive.contains(&first.path)
                            // Its end mark is not durable.
                            && !state.unsynced.iter().any(|file| file.header.id == first.id) =>
                    {
                        let segment = state.segments.pop_front().expect("just seen");
                        let next = state.segments.front().expect("the last one stays");
                        assert!(segment.id < next.id, "segments are released oldest first");
                        segment
                    }
                    _ => return Ok(()),
                }
            };
            if let Err(error) = self.0.release(&segment).await {
                // One that stays must not lie before others that have gone.
                self.0.state.borrow_mut().segments.push_front(segment);
                return Err(error);
            }
            self.0.state.borrow_mut().forget_dropped(segment.last);
        }
    }

    /// The smallest number from which on entries must be flushed so that the log shrinks below its limit; none
    /// while it is small enough.
    pub fn flush_needed_before(&self) -> Option<u64> {
        let state = self.0.state.borrow();
        let total: u64 = state.segments.iter().map(|segment| segment.len).sum();
        if total <= self.0.config.total_bytes_max || state.segments.len() < 2 {
            return None;
        }
        state.segments.front().map(|segment| segment.last + 1)
    }

    /// Makes everything durable that was appended before the call.
    ///
    /// # Errors
    /// [`AppendError::Disk`] when a pending entry cannot be written or a segment synced; [`AppendError::Closed`] when
    /// the writer ended before.
    pub async fn sync(&self) -> Result<(), AppendError> {
        let last = {
            let state = self.0.state.borrow();
            // Chunks are written in their order: behind the last one, all are.
            state.pending.back().map(|chunk| chunk.status.clone()).or_else(|| state.last_writing.clone())
        };
        if let Some(status) = last {
            Ticket { status: Some(status), number: 0 }.await?;
        }
        self.0.sync().await
    }

    /// Writes and syncs the pending entries, marks the end of the segment and ends the tasks. Appending fails from now on.
    ///
    /// # Errors
    /// As [`CommitLog::sync`]. The log is closed all the same.
    pub async fn close(&self) -> Result<(), AppendError> {
        let synced = self.sync().await;
        self.0.closing.set(true);
        self.0.work.set();
        let mut tasks = std::mem::take(&mut *self.0.tasks.borrow_mut());
        // The first is the writer; the others just end.
        tasks.truncate(1);
        for writer in tasks {
            writer.await;
        }
        // Segments that cannot be linked now are linked by the next start.
        let _ = self.0.archive_pending().await;
        self.0.state.borrow_mut().wake_room_waiters();
        synced
    }

    /// Names of the segments that hold entries, and of those that are complete and not in the archive yet.
    pub fn segment_names(&self) -> [Vec<String>; 2] {
        let state = self.0.state.borrow();
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let live = state.segments.iter().map(|segment| name(&segment.path)).collect();
        [live, state.to_archive.iter().map(name).collect()]
    }

    /// Figures of this moment.
    pub fn stats(&self) -> CommitLogStats {
        let state = self.0.state.borrow();
        let live_bytes: u64 = state.segments.iter().map(|segment| segment.len).sum();
        let spare_bytes = state.spares.len() as u64 * self.0.config.segment_bytes;
        CommitLogStats {
            disk_bytes: live_bytes + spare_bytes,
            live_bytes,
            segments: state.segments.len() as u64,
            pending: state.pending.iter().map(|chunk| chunk.count).sum(),
            ..state.stats
        }
    }
}

impl State {
    /// Notes a segment of this process; nothing behind entry `last` is in it yet.
    pub(crate) fn add_segment(&mut self, id: u64, path: PathBuf, len: u64, last: u64) {
        assert!(self.segments.back().is_none_or(|before| before.id < id), "segments rise");
        self.segments.push_back(Segment { id, path, len, last, is_found: false });
    }

    /// Forgets the dropped tables that have no entries behind a number: those up to it are gone.
    fn forget_dropped(&mut self, last: u64) {
        let Self { dropped, checkpoint, .. } = self;
        dropped.retain(|table| {
            let is_needed = checkpoint.flushed.get(table).is_some_and(|upto| *upto > last);
            if !is_needed {
                checkpoint.flushed.remove(table);
            }
            is_needed
        });
    }

    /// Adds an entry to the open chunk, or to a new one where that would grow to more than `chunk_len_max` bytes.
    #[expect(clippy::expect_used, reason = "the queue has the chunk that was just pushed")]
    fn add(&mut self, body: &[u8], chunk_len_max: usize) -> Ticket {
        let number = self.next;
        self.next += 1;
        let len = ENTRY_HEADER_LEN + body.len();
        let open = self
            .pending
            .back()
            .is_some_and(|chunk| chunk.buf.len() + len <= chunk_len_max && chunk.count > 0);
        if !open {
            self.pending.push_back(Pending::new(number, len));
        }
        let chunk = self.pending.back_mut().expect("just seen or pushed");
        assert_eq!(chunk.first + chunk.count, number, "entries of a chunk are numbered without gaps");
        chunk.push(number, body);
        assert!(number > self.written, "an entry is added before it is written");
        self.pending_bytes += len;
        self.stats.entries += 1;
        Ticket { status: Some(chunk.status.clone()), number }
    }

    /// Notes that the chunk with these entries is written. Gives whether a spare is needed soon, once a segment.
    #[expect(clippy::expect_used, reason = "the active segment is listed")]
    pub(crate) fn note_written(&mut self, first: u64, last: u64, is_half_full: bool) -> bool {
        assert!(first <= last, "a chunk that is written has entries");
        assert!(first > self.written, "chunks are written in the order of their entries");
        assert!(last < self.next, "entries that are written were numbered");
        self.written = last;
        self.stats.chunks += 1;
        let segment = self.segments.back_mut().expect("the active segment is listed");
        assert!(segment.last < last, "a segment's entries rise");
        segment.last = last;
        let wants_spare = is_half_full && self.spares.is_empty() && !self.spare_asked;
        self.spare_asked |= wants_spare;
        wants_spare
    }

    pub(crate) fn wake_room_waiters(&mut self) {
        self.room_waiters.drain(..).for_each(Waker::wake);
    }
}

impl Pending {
    pub(crate) fn new(first: u64, len: usize) -> Self {
        let mut buf = IoBuf::with_capacity((CHUNK_HEADER_LEN + len).max(CHUNK_CAPACITY));
        buf.resize(CHUNK_HEADER_LEN, 0);
        Self { status: Rc::default(), buf, first, count: 0 }
    }

    pub(crate) fn push(&mut self, number: u64, body: &[u8]) {
        assert!(self.buf.len() >= CHUNK_HEADER_LEN, "entries stand behind the chunk's header");
        self.buf.extend_from_slice(&entry_header(number, body));
        self.buf.extend_from_slice(body);
        self.count += 1;
    }
}

/// The task of the periodic mode. An entry written when a sync has just begun waits for half a period until the next begins; when
/// that takes the other half too, or fails, writes wait until one succeeds.
///
/// A segment that has ended is synced at once: data that is not durable stays at about a segment, so that the system has no reason to
/// block stores into the next one.
async fn sync_periodically(rt: Rt, log: Weak<Inner>, segment_ended: Rc<Signal>, period: Duration) {
    let half = period / 2;
    let mut next = rt.now() + half;
    loop {
        select(pin!(rt.sleep_until(next)), pin!(segment_ended.wait())).await;
        let Some(log) = log.upgrade() else { return };
        let start = rt.now();
        let mut sync = std::pin::pin!(log.sync());
        let done = match rt.timeout(half, sync.as_mut()).await {
            Ok(done) => done,
            Err(_) => {
                log.set_late(true, "it takes longer than half of commitlog_sync_period");
                sync.await
            }
        };
        match done {
            Ok(()) if rt.now() - start <= half => {
                log.set_late(false, "");
                next = start + half;
            }
            // Entries written meanwhile are old already.
            Ok(()) => next = rt.now(),
            Err(error) => {
                log.set_late(true, &error.to_string());
                next = rt.now() + half.min(RETRY_PAUSE);
            }
        }
    }
}

impl Inner {
    /// Stores an entry in the mapped segment; none where there is no such segment or no room in it, or others come first.
    fn store(self: &Rc<Self>, state: &mut State, body: &[u8]) -> Option<Ticket> {
        if state.is_writing || !state.pending.is_empty() {
            return None;
        }
        let mut active = self.active.borrow_mut();
        let active = active.as_mut()?;
        let number = state.next;
        let len = active.store_entry(number, body, state.synced)?;
        state.next += 1;
        state.stats.entries += 1;
        state.stats.written_bytes += len;
        if state.note_written(number, number, active.is_half_full()) {
            self.make_spare();
        }
        Some(Ticket { status: None, number })
    }

    fn has_room(&self) -> bool {
        !self.late.get() && self.state.borrow().pending_bytes < PENDING_BYTES_MAX
    }

    /// Holds writes back, or lets them go on.
    fn set_late(&self, is_late: bool, why: &str) {
        if self.late.replace(is_late) == is_late {
            return;
        }
        if is_late {
            tracing::warn!("the commit log is not synced in time, and writes wait until it is: {why}");
        } else {
            tracing::info!("the commit log is synced again, and writes go on");
            self.state.borrow_mut().wake_room_waiters();
        }
    }

    /// Counts a failure and notifies the observer.
    pub(crate) fn failed(&self, error: &DiskError) {
        self.state.borrow_mut().stats.failures += 1;
        if let Some(handler) = &*self.failure_handler.borrow() {
            handler(error);
        }
    }

    /// Syncs every file that has unsynced writes. After a sync that failed they are written again first: the system may
    /// take pages for clean that never reached the disk, and syncing them again would succeed and mean nothing.
    pub(crate) async fn sync(&self) -> Result<(), AppendError> {
        let wanted = self.state.borrow().written;
        let _one = self.syncing.acquire(1).await.map_err(|_| AppendError::Closed)?;
        let (files, upto, failures, again) = {
            let state = self.state.borrow();
            // Another may have done it meanwhile.
            if state.synced >= wanted {
                return Ok(());
            }
            let failures = state.sync_failures;
            (state.unsynced.clone(), state.written, failures, failures > state.sync_failures_repaired)
        };
        self.rt.buggify("commit log: a sync begins").await;
        self.sync_files(&files, again).await?;
        let mut state = self.state.borrow_mut();
        state.sync_failures_repaired = state.sync_failures_repaired.max(failures);
        state.synced = state.synced.max(upto);
        assert!(state.synced <= state.written, "only entries that were written are durable");
        assert!(state.sync_failures_repaired <= state.sync_failures, "failures are made up for once");
        state.stats.syncs += 1;
        // All but the file being written are complete, and were so when the sync began if they are in its list.
        if state.unsynced.len() > 1 {
            let keep = state.unsynced.len() - 1;
            let closed = files.len().saturating_sub(1).min(keep);
            state.unsynced.drain(..closed);
            drop(state);
            let (closed, _) = files.split_at(closed);
            self.archive(closed);
        }
        Ok(())
    }

    /// Makes the last end mark durable, of which [`Inner::sync`] does not know, as it is no entry.
    pub(crate) async fn sync_end(&self) {
        let Ok(_one) = self.syncing.acquire(1).await else { return };
        let (files, again) = {
            let state = self.state.borrow();
            (state.unsynced.clone(), state.sync_failures > state.sync_failures_repaired)
        };
        if self.sync_files(&files, again).await.is_ok() {
            self.archive(&files);
        }
    }

    /// Syncs files; `again`: after a sync that failed, so that they are written again first.
    async fn sync_files(&self, files: &[Unsynced], again: bool) -> Result<(), AppendError> {
        for file in files {
            if self.skip_sync {
                continue;
            }
            let done = async {
                if again {
                    write_again(file).await?;
                }
                file.file.sync_data().await
            };
            if let Err(error) = done.await {
                self.state.borrow_mut().sync_failures += 1;
                self.failed(&error);
                return Err(AppendError::Disk(Rc::new(error)));
            }
        }
        Ok(())
    }

    /// Has segments that are complete and durable linked into the archive.
    #[expect(clippy::expect_used, reason = "a segment stays until it is durable")]
    fn archive(&self, complete: &[Unsynced]) {
        if self.config.archive_directory.is_none() {
            return;
        }
        let mut state = self.state.borrow_mut();
        for file in complete {
            let segment = state.segments.iter().find(|segment| segment.id == file.header.id);
            let path = segment.expect("a segment stays until it is durable").path.clone();
            state.to_archive.push_back(path);
        }
        self.archiving.set();
    }

    /// Links segments into the archive as they come.
    async fn run_archiving(self: Rc<Self>) {
        let mut logged = String::new();
        loop {
            match self.archive_pending().await {
                Ok(()) => {
                    if !std::mem::take(&mut logged).is_empty() {
                        tracing::info!("commit log segments are linked into the archive again");
                    }
                    self.archiving.wait().await;
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != logged {
                        tracing::error!(
                            "a commit log segment cannot be linked into the archive, is retained, and is retried: {text}"
                        );
                        logged = text;
                    }
                    self.rt.sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// Links waiting segments into the archive; ends at the first that fails.
    async fn archive_pending(&self) -> Result<(), DiskError> {
        let Some(directory) = &self.config.archive_directory else { return Ok(()) };
        loop {
            let Some(path) = self.state.borrow().to_archive.front().cloned() else { return Ok(()) };
            if let Err(error) = crate::files::archive(self.rt.disk(), &path, directory).await {
                self.state.borrow_mut().stats.failures += 1;
                return Err(error);
            }
            self.state.borrow_mut().to_archive.retain(|other| *other != path);
        }
    }
}

/// Rewrites the content of a segment. Pages that the kernel dropped when it could not write them are not there any more: then the entries
/// are in memory only, and no sync can make up for that.
async fn write_again(unsynced: &Unsynced) -> Result<(), DiskError> {
    let written = unsynced.written.get();
    let bytes = unsynced.file.read_exact_at(0, written as usize).await?;
    let found = scan(&bytes, &unsynced.header, HEADER_LEN, 0);
    if (found.stop as u64) < written {
        let text = format!("entries at {} of {written} are lost", found.stop);
        let path = unsynced.file.path();
        return Err(DiskError::new(DiskOp::Sync, path, std::io::Error::other(text)));
    }
    unsynced.file.rewrite(written).await
}
