//! The task that writes chunks, and the segments that it writes them to.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;

use mutation::codec::Version;
use rt::{DiskError, File, Group, Instant, IoBuf, OpenOptions};

use crate::entry::Checkpoint;
use crate::files::{segment_name, spare_name};
use crate::log::{Inner, Pending, Segment, Unsynced};
use crate::segment::{CHUNK_ALIGNMENT, CHUNK_HEADER_LEN, ChunkHeader, HEADER_LEN, SegmentHeader};
use crate::{AppendError, SyncMode};

/// Files kept for reuse.
const SPARES_MAX: usize = 2;
/// Bytes of zeros written at once when a file is prepared.
const ZEROS_LEN: usize = 1 << 20;

/// The segment being written.
struct Active {
    header: SegmentHeader,
    file: File,
    /// Where the next chunk goes.
    offset: u64,
    /// The same, for those who sync.
    written: Rc<Cell<u64>>,
}

pub(crate) struct Writer {
    inner: Rc<Inner>,
    active: Option<Active>,
    last_sync: Instant,
    /// A spare was asked for while this segment was written; once is enough, also when the disk is full.
    spare_asked: bool,
}

impl Writer {
    pub(crate) fn new(inner: Rc<Inner>) -> Self {
        Self { inner, active: None, last_sync: Instant::START, spare_asked: false }
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
                return;
            }
        }
    }

    /// Writes what is pending now, syncs it where the mode asks for that, and tells those who wait.
    async fn write_pending(&mut self) {
        let chunks: Vec<Pending> = {
            let mut state = self.inner.state.borrow_mut();
            state.pending_bytes = 0;
            state.wake_room_waiters();
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
        if syncs {
            let outcome = self.inner.sync().await;
            self.last_sync = self.inner.rt.now();
            written.iter().for_each(|status| status.settle(outcome.clone()));
        }
    }

    async fn write(&mut self, chunk: Pending) -> Result<(), DiskError> {
        let needed = self.padded(chunk.buf.len()) as u64;
        let segment_bytes = self.inner.config.segment_bytes;
        let end_len = self.padded(CHUNK_HEADER_LEN) as u64;
        if let Some(active) = &self.active
            && active.offset + needed + end_len > segment_bytes
        {
            self.end_active().await;
        }
        if self.active.is_none() {
            self.activate(chunk.first).await?;
        }
        assert!(chunk.count > 0, "a chunk that is written has entries");
        let last = chunk.first + chunk.count - 1;
        self.put(chunk.buf, chunk.first, false).await?;
        let mut state = self.inner.state.borrow_mut();
        assert!(chunk.first > state.written, "chunks are written in the order of their entries");
        assert!(last < state.next, "entries that are written were numbered");
        state.written = last;
        state.stats.chunks += 1;
        let segment = state.segments.back_mut().expect("the active segment is listed");
        assert!(segment.last < last, "a segment's entries rise");
        segment.last = last;
        let half = segment_bytes / 2;
        let wants_spare = self.active.as_ref().is_some_and(|active| active.offset > half)
            && state.spares.is_empty()
            && !self.spare_asked;
        if wants_spare {
            self.spare_asked = true;
            drop(state);
            self.make_spare();
        }
        Ok(())
    }

    /// Writes a chunk's bytes at the active segment's end, which moves on only when that succeeded.
    async fn put(&mut self, mut buf: IoBuf, first: u64, is_end: bool) -> Result<(), DiskError> {
        let active = self.active.as_mut().expect("a segment is active");
        let entries_len = buf.len() - CHUNK_HEADER_LEN;
        let alignment = active.file.alignment().max(CHUNK_ALIGNMENT);
        buf.pad_to(alignment);
        let synced = self.inner.state.borrow().synced;
        assert!(synced <= first, "a chunk promises only entries before its own");
        assert!(active.offset >= HEADER_LEN as u64, "chunks stand behind the segment's header");
        assert!(active.offset.is_multiple_of(alignment as u64), "chunks begin at multiples of the alignment");
        let header = ChunkHeader {
            total_len: buf.len() as u32,
            entries_len: entries_len as u32,
            first,
            synced,
            is_end,
        };
        buf[..CHUNK_HEADER_LEN].copy_from_slice(&header.encode(&active.header));
        active.header.salt_entries(&mut buf[CHUNK_HEADER_LEN..CHUNK_HEADER_LEN + entries_len]);
        let len = buf.len() as u64;
        assert!(len.is_multiple_of(alignment as u64), "a chunk is padded");
        active.file.write_at(active.offset, buf).await?;
        active.offset += len;
        active.written.set(active.offset);
        self.inner.state.borrow_mut().stats.written_bytes += len;
        Ok(())
    }

    fn padded(&self, len: usize) -> usize {
        let alignment = self.active.as_ref().map_or(HEADER_LEN, |active| active.file.alignment());
        len.next_multiple_of(alignment.max(CHUNK_ALIGNMENT))
    }

    /// Marks the end of the active segment. When that fails the next start finds a segment that a crash seems to have
    /// cut, which the next segment's checkpoint accounts for.
    async fn end_active(&mut self) {
        if self.active.is_none() {
            return;
        }
        let next = self.inner.state.borrow().written + 1;
        let mut buf = IoBuf::with_capacity(CHUNK_HEADER_LEN);
        buf.resize(CHUNK_HEADER_LEN, 0);
        let ended = self.put(buf, next, true).await;
        let active = self.active.take().expect("just seen");
        let result = match ended {
            Ok(()) if self.inner.skip_sync => Ok(()),
            Ok(()) => {
                let _one = self.inner.syncing.acquire(1).await.expect("it is never closed");
                active.file.sync_data().await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = &result {
            {
                let mut state = self.inner.state.borrow_mut();
                state.sync_failures += 1;
                state.checkpoint.tails.insert(active.header.id, next);
            }
            self.inner.failed(error);
        }
        if self.inner.config.archive_directory.is_some() {
            let mut state = self.inner.state.borrow_mut();
            let path = state.segments.back().expect("the active segment is listed").path.clone();
            state.to_archive.push_back(path);
            self.inner.archiving.set();
        }
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
        assert!(self.active.is_none(), "one segment is written at a time");
        assert!(first > 0, "entries are numbered from 1");
        let last = first - 1;
        let header = self.new_header(id);
        let made = self.prepare(&spare, header, last).await;
        let path = inner.config.directory.join(segment_name(inner.rt.shard().0, id));
        let is_named = Cell::new(false);
        let named = async {
            made?;
            disk.rename(&spare, &path).await?;
            is_named.set(true);
            disk.sync_dir(&inner.config.directory).await
        };
        if let Err(error) = named.await {
            self.active = None;
            let was_named = is_named.get();
            let is_named = was_named && disk.rename(&path, &spare).await.is_err();
            // Until the directory is durable the disk may know the file as a segment: then nothing else may be written into it.
            let is_spare = !was_named || !is_named && disk.sync_dir(&inner.config.directory).await.is_ok();
            if !is_named && !is_spare {
                let _ = disk.remove(&spare).await;
            }
            let mut state = inner.state.borrow_mut();
            // Should the new name have reached the disk after all, the next start knows that nothing is in it.
            state.checkpoint.tails.insert(id, first);
            if is_named {
                // It goes the way of the others.
                state.segments.push_back(Segment { id, path, len: inner.config.segment_bytes, last });
            } else if is_spare && !error.is_not_found() {
                state.spares.push(spare);
            }
            return Err(error);
        }
        self.spare_asked = false;
        let mut state = inner.state.borrow_mut();
        state.segments.push_back(Segment { id, path, len: inner.config.segment_bytes, last });
        let active = self.active.as_ref().expect("just prepared");
        let (file, written) = (active.file.clone(), active.written.clone());
        state.unsynced.push(Unsynced { file, header, written });
        Ok(())
    }

    /// The header of a new segment.
    fn new_header(&self, id: u64) -> SegmentHeader {
        let inner = &self.inner;
        let (shard, shard_count) = (inner.rt.shard().0, inner.rt.shard_count());
        let before = inner.state.borrow().segments.back().map_or(0, |segment| segment.id);
        // The high half is what chunks begin with: never zero, which files are full of.
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
    async fn prepare(&mut self, path: &PathBuf, header: SegmentHeader, last: u64) -> Result<(), DiskError> {
        let inner = self.inner.clone();
        let syncs = !matches!(inner.config.sync, SyncMode::Periodic { .. });
        let options = OpenOptions { read: true, write: true, direct: syncs, ..OpenOptions::default() };
        let file = inner.rt.disk().open(path, options).await?;
        file.write_at(0, IoBuf::copy_of(&header.encode())).await?;
        let offset = HEADER_LEN as u64;
        let written = Rc::new(Cell::new(offset));
        self.active = Some(Active { header, file: file.clone(), offset, written });
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
        self.put(chunk.buf, last, false).await?;
        file.sync_data().await
    }

    fn make_spare(&self) {
        let inner = self.inner.clone();
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
        self.inner.rt.spawn(Group::Maintenance, task).detach();
    }
}

impl Inner {
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
            // Half a file helps nobody when the disk is full; what matters is the first error.
            let _ = disk.remove(path).await;
        }
        made
    }

    /// Keeps a segment's file for reuse, or removes it.
    pub(crate) async fn release(&self, segment: &Segment) -> Result<(), DiskError> {
        let disk = self.rt.disk();
        // What an attempt before has done already.
        let unless_done = |done: Result<(), DiskError>| match done {
            Err(error) if error.is_not_found() => Ok(()),
            done => done,
        };
        let reuse = self.config.archive_directory.is_none()
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
