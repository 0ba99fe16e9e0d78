//! Writing hints to segments, ending and removing these, and the tasks that do so.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use rt::{DiskError, File, Group, IoBuf, OpenOptions};
use topology::HostId;

use crate::Hints;
use crate::format::{BLOCK_LEN, Header, RECORD_HEADER_LEN, Seal, file_name};
use crate::log::{Inner, Pending};
use crate::segment::{Active, Segment, Unsynced};

/// Bytes that are written at once, unless a hint is larger.
const BATCH_LEN: u64 = 256 << 10;
/// After a failed write the next is tried so much later.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

impl Hints {
    pub(crate) fn start(&self) {
        let inner = Rc::clone(&self.0);
        let writer = async move {
            loop {
                inner.work.notified().await;
                while let Some(host) = inner.host_with_pending() {
                    if inner.write_host(host).await.is_err() {
                        inner.rt.sleep(RETRY_PAUSE).await;
                    }
                }
            }
        };
        let inner = Rc::clone(&self.0);
        let syncer = async move {
            loop {
                inner.rt.sleep(inner.config.flush_period).await;
                inner.collect_garbage().await;
                // Counted and logged there, and tried again after the next period.
                let _ = inner.sync_files().await;
            }
        };
        let mut tasks = self.0.tasks.borrow_mut();
        tasks.push(self.0.rt.spawn(Group::Maintenance, writer));
        tasks.push(self.0.rt.spawn(Group::Maintenance, syncer));
    }

    /// Writes and syncs everything that was stored before the call.
    ///
    /// # Errors
    /// A [`DiskError`] when a segment cannot be created, written or synced. The hints stay in memory and are tried
    /// again.
    pub async fn sync(&self) -> Result<(), DiskError> {
        let inner = Rc::clone(&self.0);
        let all = async move {
            for host in inner.all_hosts() {
                inner.write_host(host).await?;
            }
            inner.sync_files().await
        };
        self.0.rt.uncancelled(Group::Maintenance, all).await
    }

    /// Drops the hints of a host: it has left the cluster. Ends its replay first.
    pub async fn drop_host(&self, host: HostId) {
        let inner = Rc::clone(&self.0);
        let drop = async move {
            // A replay may need the permit to end, so it is waited for without it.
            let _io = loop {
                inner.end_replay(host).await;
                let io = inner.io.acquire(1).await;
                if !inner.is_replaying(host) {
                    break io;
                }
            };
            inner.forget_host(host);
            inner.collect_garbage().await;
        };
        self.0.rt.uncancelled(Group::Maintenance, drop).await;
    }

    /// Takes no more hints, ends replays and tasks, writes and syncs the pending ones. Hints that cannot be written are lost and counted.
    pub async fn stop(&self) {
        let inner = Rc::clone(&self.0);
        let stop = async move {
            inner.closing.set(true);
            let io = inner.io.acquire(1).await;
            let tasks = std::mem::take(&mut *inner.tasks.borrow_mut());
            for task in tasks {
                task.cancel().await;
            }
            drop(io);
            for host in inner.all_hosts() {
                inner.end_replay(host).await;
                // Counted and logged there; hints that stay in the buffer is counted below.
                let _ = inner.write_host(host).await;
                let _io = inner.io.acquire(1).await;
                inner.seal_active(host).await;
            }
            inner.collect_garbage().await;
            let _ = inner.sync_files().await;
            inner.count_lost();
        };
        self.0.rt.uncancelled(Group::Maintenance, stop).await;
    }
}

impl Inner {
    fn host_with_pending(&self) -> Option<HostId> {
        let state = self.state.borrow();
        let mut waiting = state.hosts.iter().filter(|(_, log)| !log.pending.is_empty());
        waiting.next().map(|(host, _)| *host)
    }

    pub(crate) fn all_hosts(&self) -> Vec<HostId> {
        self.state.borrow().hosts.keys().copied().collect()
    }

    /// Writes the pending hints of a host.
    pub(crate) async fn write_host(&self, host: HostId) -> Result<(), DiskError> {
        let _io = self.io.acquire(1).await;
        loop {
            let batch = self.next_batch(host);
            if batch.is_empty() {
                return Ok(());
            }
            let written = self.write_batch(host, &batch).await;
            self.failing.set(written.is_err());
            if let Err(error) = written {
                self.disk_failed(&error);
                self.end_active(host);
                return Err(error);
            }
        }
    }

    /// The next hints to write. They stay in the buffer until they are written.
    fn next_batch(&self, host: HostId) -> Vec<Pending> {
        let state = self.state.borrow();
        let Some(log) = state.hosts.get(&host) else { return Vec::new() };
        let len_max = BATCH_LEN.min(self.config.file_bytes_max / 4);
        let mut len = 0;
        let fits = |pending: &&Pending| {
            let first = len == 0;
            len += pending.header.record_len();
            first || len <= len_max
        };
        log.pending.iter().take_while(fits).cloned().collect()
    }

    #[expect(clippy::expect_used, reason = "only the holder of the permit makes and ends files")]
    async fn write_batch(&self, host: HostId, batch: &[Pending]) -> Result<(), DiskError> {
        let len: u64 = batch.iter().map(|pending| pending.header.record_len()).sum();
        self.make_active(host, len).await?;
        let (number, offset, file) = {
            let state = self.state.borrow();
            let active = state.hosts.get(&host).and_then(|log| log.active.as_ref());
            let active = active.expect("files are made and ended only by the holder of the permit");
            (active.segment.number, active.segment.end, active.file.clone())
        };
        let mut buf = IoBuf::with_capacity(len as usize);
        for pending in batch {
            let at = offset + buf.len() as u64;
            buf.extend_from_slice(&pending.header.encode(number, at, &pending.update));
            buf.extend_from_slice(&pending.update);
        }
        assert_eq!(buf.len() as u64, len, "records have the lengths that their headers say");
        file.write_at(offset, buf).await?;
        self.note_written(host, batch, len);
        Ok(())
    }

    #[expect(clippy::expect_used, reason = "only the holder of the permit makes and ends files")]
    fn note_written(&self, host: HostId, batch: &[Pending], len: u64) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let log = state.hosts.get_mut(&host).expect("the permit keeps the host");
        log.pending.drain(..batch.len());
        log.pending_bytes -= len;
        if log.pending.is_empty() {
            log.pending_times = None;
        }
        state.pending_bytes -= len as usize;
        state.stats.written_bytes += len;
        let active = log.active.as_mut().expect("the permit keeps the segment");
        let segment = &mut active.segment;
        segment.end += len;
        batch.iter().for_each(|pending| segment.note_hint(pending.header.begun_micros));
        active.written.set(segment.end);
        let unsynced = Unsynced::new(active.file.clone(), Rc::clone(&active.written));
        state.unsynced.entry(segment.number).or_insert(unsynced);
    }

    /// Makes sure that the host has a segment with room for `len` bytes; a segment takes at least one batch.
    async fn make_active(&self, host: HostId, len: u64) -> Result<(), DiskError> {
        let full = {
            let state = self.state.borrow();
            let active = state.hosts.get(&host).and_then(|log| log.active.as_ref());
            match active {
                Some(Active { segment, .. }) => {
                    segment.hints > 0 && segment.end + len > self.config.file_bytes_max
                }
                None => false,
            }
        };
        if full {
            self.seal_active(host).await;
        }
        if self.state.borrow().hosts.get(&host).is_some_and(|log| log.active.is_some()) {
            return Ok(());
        }
        let number = {
            let mut state = self.state.borrow_mut();
            let number = state.next_number;
            state.next_number += u64::from(self.rt.shard_count());
            number
        };
        let path = self.directory.join(file_name(host, number));
        let block = Header { host, number }.encode();
        let made = async {
            let file = self.rt.disk().open(&path, OpenOptions::CREATE_NEW).await?;
            file.write_at(0, IoBuf::copy_of(&block)).await?;
            Ok(file)
        };
        let made = made.await;
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        state.name_changes += 1;
        match made {
            Ok(file) => {
                let written = Rc::new(Cell::new(BLOCK_LEN as u64));
                state.unsynced.insert(number, Unsynced::new(file.clone(), Rc::clone(&written)));
                let active = Active { segment: Segment::new(number, path), file, written };
                state.hosts.entry(host).or_default().active = Some(active);
                Ok(())
            }
            Err(error) => {
                state.garbage.push(path);
                Err(error)
            }
        }
    }

    /// Ends the host's segment without a seal: nothing more is written to it.
    pub(crate) fn end_active(&self, host: HostId) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let Some(log) = state.hosts.get_mut(&host) else { return };
        let Some(active) = log.active.take() else { return };
        if active.segment.hints > 0 {
            log.closed.insert(active.segment.number, active.segment);
        } else {
            state.unsynced.remove(&active.segment.number);
            state.garbage.push(active.segment.path);
        }
    }

    /// Ends the host's segment, syncs it and writes into it that it is complete. Without that the next start reads all of it.
    async fn seal_active(&self, host: HostId) {
        let active = {
            let state = self.state.borrow();
            let active = state.hosts.get(&host).and_then(|log| log.active.as_ref());
            active.map(|active| (active.segment.clone(), active.file.clone()))
        };
        let Some((segment, file)) = active else { return };
        let unsynced = self.state.borrow().unsynced.get(&segment.number).cloned();
        self.end_active(host);
        if segment.hints == 0 {
            return;
        }
        let seal = Seal {
            end: segment.end,
            hints: segment.hints,
            oldest_micros: segment.oldest_micros,
            newest_micros: segment.newest_micros,
        };
        let done = async {
            // Never before the records: a seal over torn records would be taken for damage.
            if let Some(unsynced) = unsynced
                && !self.config.canaries.skip_sync
            {
                let _turn = self.syncs.acquire(1).await;
                unsynced.sync().await?;
            }
            let (at, bytes) = seal.encode(segment.number);
            file.write_at(at, IoBuf::copy_of(&bytes)).await
        };
        if let Err(error) = done.await {
            self.disk_failed(&error);
        }
    }

    /// Something was written into an ended segment.
    pub(crate) fn sync_later(&self, host: HostId, number: u64, file: &File) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let segment = state.hosts.get(&host).and_then(|log| log.closed.get(&number));
        if let Some(segment) = segment {
            let written = Rc::new(Cell::new(segment.end));
            state.unsynced.entry(number).or_insert_with(|| Unsynced::new(file.clone(), written));
        }
    }

    /// Syncs every file with unsynced writes, and the directory. All are tried; the first failure is given.
    pub(crate) async fn sync_files(&self) -> Result<(), DiskError> {
        if self.config.canaries.skip_sync {
            return Ok(());
        }
        // One after the other: of two that run at once one may hide the other's failure.
        let _turn = self.syncs.acquire(1).await;
        let mut outcome = Ok(());
        let files: Vec<(u64, Unsynced)> =
            self.state.borrow().unsynced.iter().map(|(number, file)| (*number, file.clone())).collect();
        for (number, file) in files {
            let synced = file.sync().await;
            match synced {
                Ok(end) => {
                    let mut state = self.state.borrow_mut();
                    state.stats.syncs += 1;
                    if file.written.get() == end {
                        state.unsynced.remove(&number);
                    }
                }
                Err(error) => {
                    self.disk_failed(&error);
                    outcome = outcome.and(Err(error));
                }
            }
        }
        let (changes, synced) = {
            let state = self.state.borrow();
            (state.name_changes, state.name_changes_synced)
        };
        if changes == synced {
            return outcome;
        }
        match self.rt.disk().sync_dir(&self.directory).await {
            Ok(()) => {
                let mut state = self.state.borrow_mut();
                state.name_changes_synced = state.name_changes_synced.max(changes);
                outcome
            }
            Err(error) => {
                self.disk_failed(&error);
                outcome.and(Err(error))
            }
        }
    }

    /// Ends a segment's life: it is delivered.
    pub(crate) async fn remove_segment(&self, host: HostId, number: u64) {
        {
            let mut state = self.state.borrow_mut();
            let state = &mut *state;
            let Some(log) = state.hosts.get_mut(&host) else { return };
            if let Some(segment) = log.closed.remove(&number)
                && !self.config.canaries.keep_files
            {
                state.garbage.push(segment.path);
            }
            state.unsynced.remove(&number);
        }
        self.collect_garbage().await;
    }

    /// Removes files that are not needed any more; those that resist are tried again later.
    pub(crate) async fn collect_garbage(&self) {
        let garbage: Vec<PathBuf> = self.state.borrow().garbage.clone();
        for path in garbage {
            match self.rt.disk().remove(&path).await {
                Err(error) if !error.is_not_found() => self.disk_failed(&error),
                _ => {
                    let mut state = self.state.borrow_mut();
                    state.name_changes += 1;
                    state.garbage.retain(|other| *other != path);
                }
            }
        }
    }

    fn forget_host(&self, host: HostId) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let Some(log) = state.hosts.remove(&host) else { return };
        state.stats.discarded += log.figures().count;
        state.pending_bytes -= log.pending_bytes as usize;
        for segment in log.closed.into_values().chain(log.active.map(|active| active.segment)) {
            state.unsynced.remove(&segment.number);
            state.garbage.push(segment.path);
        }
    }

    /// The bytes that are still in the buffer when everything has ended.
    fn count_lost(&self) {
        let mut state = self.state.borrow_mut();
        let lost: u64 = state.hosts.values().map(|log| log.pending.len() as u64).sum();
        state.stats.lost += lost;
        if lost > 0 {
            tracing::warn!("{lost} hints could not be written and are lost; a repair is needed");
        }
    }
}

const _: () = assert!(RECORD_HEADER_LEN < BATCH_LEN as usize);
