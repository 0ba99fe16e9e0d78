//! The task that writes chunks, and the segments that it writes them to.

use std::cell::Cell;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use mutation::codec::Version;
use rt::{DiskError, DiskOp, Group, Instant, IoBuf, OpenOptions};

use crate::active::Active;
use crate::entry::Checkpoint;
use crate::files::{segment_name, spare_name};
use crate::log::{Inner, Pending, Segment, Unsynced};
use crate::segment::{CHUNK_HEADER_LEN, SegmentHeader};
use crate::{AppendError, SyncMode};

/// Files kept for reuse.
const SPARES_MAX: usize = 2;
/// Bytes of zeros written at once when a file is prepared.
const ZEROS_LEN: usize = 1 << 20;

pub(crate) struct Writer {
    inner: Rc<Inner>,
    last_sync: Instant,
}

impl Writer {
    pub(crate) fn new(inner: Rc<Inner>) -> Self {
        Self { inner, last_sync: Instant::START }
    }

    /// Writes chunks as they come, until the log is closed.
    pub(crate) async fn run(mut self) {
        loop {
            self.inner.work.wait().await;
            while !self.inner.state.borrow().pending.is_empty() {
                if let SyncMode::Group { window } = self.inner.config.sync {
                    // Entries that arrive meanwhile come along.
                    self.inner.rt.sleep_until(self.last_sync + window).await;
                }
                self.write_pending().await;
            }
            if self.inner.closing.get() {
                self.end_active().await;
                self.inner.sync_end().await;
                return;
            }
        }
    }

    /// Writes the pending entries, syncs them where the mode asks for that, and notifies the waiters.
    async fn write_pending(&mut self) {
        let chunks: Vec<Pending> = {
            let mut state = self.inner.state.borrow_mut();
            state.pending_bytes = 0;
            state.wake_room_waiters();
            state.is_writing = true;
            state.last_writing = state.pending.back().map(|chunk| chunk.status.clone());
            state.pending.drain(..).collect()
        };
        let syncs = !matches!(self.inner.config.sync, SyncMode::Periodic { .. });
        let mut written = Vec::new();
        for chunk in chunks {
            let status = chunk.status.clone();
            match self.write(chunk).await {
                Ok(()) if syncs => written.push(status),
                Ok(()) => status.settle(Ok(())),
                Err(error) => {
                    self.inner.failed(&error);
                    status.settle(Err(AppendError::Disk(Rc::new(error))));
                }
            }
        }
        self.inner.state.borrow_mut().is_writing = false;
        if syncs {
            let outcome = self.inner.sync().await;
            self.last_sync = self.inner.rt.now();
            written.iter().for_each(|status| status.settle(outcome.clone()));
        }
        self.inner.state.borrow_mut().last_writing = None;
    }

    async fn write(&mut self, chunk: Pending) -> Result<(), DiskError> {
        let has_room = |active: &Active| active.has_room(chunk.buf.len());
        let is_full = self.inner.active.borrow().as_ref().is_some_and(|active| !has_room(active));
        if is_full {
            self.end_active().await;
        }
        let is_ready = self.inner.active.borrow().is_some();
        if !is_ready {
            self.activate(chunk.first).await?;
            // A chunk is at most half a segment long; the begin of every segment grows with the number of tables.
            if !self.inner.active.borrow().as_ref().is_some_and(has_room) {
                let reason = "the checkpoint leaves no room in a segment: raise commitlog_segment_size";
                let path = &self.inner.config.directory;
                return Err(DiskError::new(DiskOp::Write, path, io::Error::other(reason)));
            }
        }
        assert!(chunk.count > 0, "a chunk that is written has entries");
        self.put(chunk.buf, chunk.first, false).await?;
        let is_half_full = self.inner.active.borrow().as_ref().is_some_and(Active::is_half_full);
        let last = chunk.first + chunk.count - 1;
        let wants_spare = self.inner.state.borrow_mut().note_written(chunk.first, last, is_half_full);
        if wants_spare {
            self.inner.make_spare();
        }
        Ok(())
    }

    /// Writes a chunk's bytes at the active segment's end, which moves on only when that succeeded.
    #[expect(clippy::expect_used, reason = "the writer makes a segment before")]
    async fn put(&self, buf: IoBuf, first: u64, is_end: bool) -> Result<(), DiskError> {
        // This task alone takes the segment away.
        let active = self.inner.active.take();
        let mut active = active.expect("a segment is active");
        let done = self.inner.put(&mut active, buf, first, is_end).await;
        *self.inner.active.borrow_mut() = Some(active);
        done
    }

    /// Marks the end of the active segment; the next sync makes that durable. When it fails the next start finds a segment that a
    /// crash seems to have cut, which the next segment's checkpoint accounts for.
    #[expect(clippy::expect_used, reason = "it is looked at before")]
    async fn end_active(&mut self) {
        if self.inner.active.borrow().is_none() {
            return;
        }
        let next = self.inner.state.borrow().written + 1;
        let mut buf = IoBuf::with_capacity(CHUNK_HEADER_LEN);
        buf.resize(CHUNK_HEADER_LEN, 0);
        let ended = self.put(buf, next, true).await;
        let active = self.inner.active.take().expect("just seen");
        if let Err(error) = &ended {
            self.inner.state.borrow_mut().checkpoint.tails.insert(active.header.id, next);
            self.inner.failed(error);
        }
        self.inner.segment_ended.set();
    }

    /// Makes a segment ready whose first chunk will begin with entry `first`: its header, its name and the checkpoint
    /// are durable before anything in it is acknowledged.
    async fn activate(&mut self, first: u64) -> Result<(), DiskError> {
        let inner = self.inner.clone();
        let disk = inner.rt.disk();
        let spare = inner.state.borrow_mut().spares.pop();
        let spare = match spare {
            Some(path) => path,
            None => {
                let path = inner.spare_path();
                // Zeros are not needed where nobody waits for a sync.
                inner.create(&path, false).await?;
                path
            }
        };
        let id = {
            let mut state = inner.state.borrow_mut();
            state.next_segment += 1;
            state.next_segment - 1
        };
        assert!(inner.active.borrow().is_none(), "one segment is written at a time");
        assert!(first > 0, "entries are numbered from 1");
        let last = first - 1;
        let header = self.new_header(id);
        let made = self.prepare(&spare, header, last).await;
        let path = inner.config.directory.join(segment_name(inner.rt.shard().0, id));
        let is_named = Cell::new(false);
        let named = async {
            let active = made?;
            disk.rename(&spare, &path).await?;
            is_named.set(true);
            disk.sync_dir(&inner.config.directory).await?;
            Ok(active)
        };
        let active: Result<Active, DiskError> = named.await;
        let active = match active {
            Ok(active) => active,
            Err(error) => {
                let was_named = is_named.get();
                let is_named = was_named && disk.rename(&path, &spare).await.is_err();
                // Until the directory is durable the disk may know the file as a segment: then nothing else may be written into it.
                let is_spare =
                    !was_named || !is_named && disk.sync_dir(&inner.config.directory).await.is_ok();
                if !is_named && !is_spare {
                    let _ = disk.remove(&spare).await;
                }
                let mut state = inner.state.borrow_mut();
                // Should the new name have reached the disk after all, the next start knows that nothing is in it.
                state.checkpoint.tails.insert(id, first);
                if is_named {
                    // It goes the way of the others.
                    state.add_segment(id, path, inner.config.segment_bytes, last);
                } else if is_spare && !error.is_not_found() {
                    state.spares.push(spare);
                }
                return Err(error);
            }
        };
        let mut state = inner.state.borrow_mut();
        state.spare_asked = false;
        state.add_segment(id, path, inner.config.segment_bytes, last);
        state.unsynced.push(Unsynced { file: active.file.clone(), header, written: active.written() });
        // No append before: bytes stored in it are acknowledged at once.
        *inner.active.borrow_mut() = Some(active);
        Ok(())
    }

    /// The header of a new segment.
    fn new_header(&self, id: u64) -> SegmentHeader {
        let inner = &self.inner;
        let (shard, shard_count) = (inner.rt.shard().0, inner.rt.shard_count());
        let before = inner.state.borrow().segments.back().map_or(0, |segment| segment.id);
        // Chunks begin with the high half: never zero, which files are full of.
        let salt = inner.rt.random_u64() | 1 << 63;
        assert!(before < id, "segments rise");
        SegmentHeader {
            shard,
            shard_count,
            id,
            salt,
            before,
            bytes: inner.config.segment_bytes,
            mutations: Version::CURRENT,
        }
    }

    /// Writes header and checkpoint, so that a file with a segment's name always has both.
    async fn prepare(&self, path: &PathBuf, header: SegmentHeader, last: u64) -> Result<Active, DiskError> {
        let inner = self.inner.clone();
        let syncs = !matches!(inner.config.sync, SyncMode::Periodic { .. });
        let options = OpenOptions { read: true, write: true, direct: syncs, ..OpenOptions::default() };
        let file = inner.rt.disk().open(path, options).await?;
        file.write_at(0, IoBuf::copy_of(&header.encode())).await?;
        let mut active = Active::new(header, file, !syncs).await;
        let checkpoint: Checkpoint = {
            let mut state = inner.state.borrow_mut();
            // Tails of segments that are gone need no mention.
            let oldest = state.segments.front().map_or(header.id, |segment| segment.id);
            state.checkpoint.tails.retain(|segment, _| *segment >= oldest);
            state.checkpoint.clone()
        };
        let mut body = Vec::new();
        checkpoint.encode(&mut body);
        let mut chunk = Pending::new(last, body.len());
        chunk.push(last, &body);
        inner.put(&mut active, chunk.buf, last, false).await?;
        active.file.sync_data().await?;
        Ok(active)
    }
}

impl Inner {
    /// Writes a chunk's bytes at a segment's end, which moves on only when that succeeded.
    async fn put(
        &self,
        active: &mut Active,
        mut buf: IoBuf,
        first: u64,
        is_end: bool,
    ) -> Result<(), DiskError> {
        active.seal(&mut buf, first, self.state.borrow().synced, is_end);
        let len = buf.len() as u64;
        if !active.store(&buf) {
            active.file.write_at(active.offset(), buf).await?;
            active.advance(len);
        }
        self.state.borrow_mut().stats.written_bytes += len;
        Ok(())
    }

    /// Has a file made ready for the next segment.
    pub(crate) fn make_spare(self: &Rc<Self>) {
        let inner = Rc::clone(self);
        let zeros = !matches!(inner.config.sync, SyncMode::Periodic { .. });
        let task = async move {
            let path = inner.spare_path();
            let made = inner.create(&path, zeros).await;
            let mut state = inner.state.borrow_mut();
            match made {
                Ok(()) => state.spares.push(path),
                Err(_) => state.stats.failures += 1,
            }
        };
        self.rt.spawn(Group::Maintenance, task).detach();
    }

    fn spare_path(&self) -> PathBuf {
        let mut state = self.state.borrow_mut();
        state.next_segment += 1;
        self.config.directory.join(spare_name(self.rt.shard().0, state.next_segment - 1))
    }

    /// Makes a file of a segment's length.
    async fn create(&self, path: &PathBuf, zeros: bool) -> Result<(), DiskError> {
        let disk = self.rt.disk();
        let file = disk.open(path, OpenOptions::CREATE_NEW).await?;
        let made = async {
            file.allocate(0, self.config.segment_bytes).await?;
            let mut offset = 0;
            while zeros && offset < self.config.segment_bytes {
                let len = ZEROS_LEN.min((self.config.segment_bytes - offset) as usize);
                file.write_at(offset, IoBuf::zeroed(len)).await?;
                offset += len as u64;
                self.rt.maybe_yield().await;
            }
            file.sync_all().await?;
            disk.sync_dir(&self.config.directory).await
        };
        let made = made.await;
        if made.is_err() {
            // Half a file is useless when the disk is full; only the first error matters.
            let _ = disk.remove(path).await;
        }
        made
    }

    /// Keeps a segment's file for reuse, or removes it.
    pub(crate) async fn release(&self, segment: &Segment) -> Result<(), DiskError> {
        let disk = self.rt.disk();
        // Steps that an earlier attempt has done already.
        let unless_done = |done: Result<(), DiskError>| match done {
            Err(error) if error.is_not_found() => Ok(()),
            done => done,
        };
        let reuse = self.config.archive_directory.is_none()
            && !segment.is_found
            && segment.len == self.config.segment_bytes
            && self.state.borrow().spares.len() < SPARES_MAX;
        if !reuse {
            unless_done(disk.remove(&segment.path).await)?;
            // Before the next one goes: after a power failure none is missing between two others.
            disk.sync_dir(&self.config.directory).await?;
            self.state.borrow_mut().checkpoint.tails.remove(&segment.id);
            return Ok(());
        }
        let spare = self.config.directory.join(spare_name(self.rt.shard().0, segment.id));
        unless_done(disk.rename(&segment.path, &spare).await)?;
        // Before another segment is written into it: a power failure must not give it its old name back.
        disk.sync_dir(&self.config.directory).await?;
        let mut state = self.state.borrow_mut();
        state.checkpoint.tails.remove(&segment.id);
        state.spares.push(spare);
        Ok(())
    }
}
