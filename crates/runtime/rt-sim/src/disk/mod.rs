//! The simulated disk of a node: files in memory that lose unsynced writes.

mod content;
mod names;

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rt::driver::{DiskDriver, FileDriver, LocalBoxFuture, LockOutput, MappingDriver, PathOp, PathOutput};
use rt::sync::oneshot;
use rt::{DirEntry, DiskOp, IO_ALIGNMENT, IoBuf, OpenOptions};

use crate::config::{Crash, DiskConfig, NameDurability};
use crate::trace::hash_bytes;
use crate::world::{Stream, World};
use content::{Content, PAGE, Snapshot};
use names::{Entry, Names, is_a_directory, not_found};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// An error that a test orders for certain operations.
#[derive(Clone, Debug)]
pub struct DiskFault {
    /// The operation that fails.
    pub op: DiskOp,
    /// Only for paths that contain this.
    pub path_contains: String,
    /// The system's error number: 5 for EIO, 28 for ENOSPC.
    pub errno: i32,
    /// So many matching operations succeed first.
    pub skip: u32,
    /// So many fail after that.
    pub times: u32,
}

#[derive(Default)]
struct Inode {
    content: Content,
    handles: u32,
}

struct State {
    config: DiskConfig,
    names: Names,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    used_pages: u64,
    locks: BTreeMap<u64, u64>,
    next_token: u64,
    faults: Vec<DiskFault>,
    /// Syncs under way: number → file and the content that it will make durable.
    syncing: BTreeMap<u64, (u64, Snapshot)>,
    next_sync: u64,
    /// Counts the crashes: handles of the time before are void.
    incarnation: u64,
    /// Bytes that were read out of files.
    read_bytes: u64,
}

/// The content of a disk at a moment. Cheap to hold: it shares its pages with the disk until they are written.
pub struct DiskImage {
    names: Names,
    inodes: BTreeMap<u64, Content>,
}

/// The disk of one node. Outlives the node's crashes.
pub(crate) struct NodeDisk {
    world: Rc<World>,
    node: u64,
    state: RefCell<State>,
}

impl NodeDisk {
    pub(crate) fn new(world: Rc<World>, node: u64, config: DiskConfig) -> NodeDisk {
        let state = State {
            config,
            names: Names::new(),
            inodes: BTreeMap::new(),
            next_inode: 1,
            used_pages: 0,
            locks: BTreeMap::new(),
            next_token: 1,
            faults: Vec::new(),
            syncing: BTreeMap::new(),
            next_sync: 1,
            incarnation: 0,
            read_bytes: 0,
        };
        NodeDisk { world, node, state: RefCell::new(state) }
    }

    /// Whether that made a difference.
    pub(crate) fn configure(&self, change: impl FnOnce(&mut DiskConfig)) -> bool {
        let mut state = self.state.borrow_mut();
        let before = state.config;
        change(&mut state.config);
        state.config != before
    }

    pub(crate) fn config(&self) -> DiskConfig {
        self.state.borrow().config
    }

    pub(crate) fn inject(&self, fault: DiskFault) {
        self.state.borrow_mut().faults.push(fault);
    }

    pub(crate) fn clear_faults(&self) {
        self.state.borrow_mut().faults.clear();
    }

    pub(crate) fn crash(&self, crash: Crash) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        state.incarnation += 1;
        state.locks.clear();
        for inode in state.inodes.values_mut() {
            inode.handles = 0;
        }
        if crash == Crash::Power {
            for (_, (inode, snapshot)) in std::mem::take(&mut state.syncing) {
                if let Some(inode) = state.inodes.get_mut(&inode) {
                    inode.content.abort_sync(&snapshot);
                }
            }
            let survivors = self.world.draw(Stream::Disk, |rng| state.names.power_loss(rng));
            self.world.note("names survive", &[self.node, survivors as u64]);
            for (number, inode) in &mut state.inodes {
                if !inode.content.is_durable() {
                    self.world.draw(Stream::Disk, |rng| inode.content.power_loss(rng));
                    self.world.note("file torn", &[self.node, *number, inode.content.len()]);
                }
            }
        }
        state.collect_all();
    }

    /// The content of a file as a reader would see it, for checkers.
    pub(crate) fn read_file(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state.borrow();
        let Some(Entry::File(inode)) = state.names.get(&names::normal(path)) else { return None };
        let content = &state.inodes[&inode].content;
        let mut bytes = vec![0; content.len() as usize];
        content.read(0, &mut bytes);
        Some(bytes)
    }

    /// Forgets all files, as a new disk in the machine.
    pub(crate) fn wipe(&self) {
        let mut state = self.state.borrow_mut();
        state.incarnation += 1;
        state.names = Names::new();
        state.inodes.clear();
        state.locks.clear();
        state.syncing.clear();
        state.used_pages = 0;
        self.world.note("wipe", &[self.node]);
    }

    /// The present content, as a snapshot of the machine's volume would have it.
    pub(crate) fn image(&self) -> DiskImage {
        let state = self.state.borrow();
        let names = state.names.image();
        let inodes =
            names.files().into_iter().map(|(_, inode)| (inode, state.inodes[&inode].content.image()));
        let inodes = inodes.collect();
        self.world.note("image", &[self.node]);
        DiskImage { names, inodes }
    }

    /// Puts a snapshot of the volume back.
    pub(crate) fn restore(&self, image: &DiskImage) {
        self.wipe();
        let mut state = self.state.borrow_mut();
        state.names = image.names.image();
        for (inode, content) in &image.inodes {
            state.used_pages += content.pages_used();
            state.inodes.insert(*inode, Inode { content: content.clone(), handles: 0 });
        }
        self.world.note("restored", &[self.node]);
    }

    /// Removes a file for good.
    pub(crate) fn remove(&self, path: &Path) -> bool {
        let mut state = self.state.borrow_mut();
        let path = names::normal(path);
        if state.names.remove_file(&path).is_err() {
            return false;
        }
        let sequence = state.names.sequence();
        state.names.commit(sequence, None);
        state.collect();
        self.world.note("removed by hand", &[self.node]);
        true
    }

    pub(crate) fn files(&self) -> Vec<(PathBuf, u64)> {
        let state = self.state.borrow();
        let files = state.names.files().into_iter();
        files.map(|(path, inode)| (path, state.inodes[&inode].content.len())).collect()
    }

    pub(crate) fn read_bytes(&self) -> u64 {
        self.state.borrow().read_bytes
    }

    pub(crate) fn corrupt(&self, path: &Path, position: u64, len: u64) -> bool {
        let mut state = self.state.borrow_mut();
        let Some(Entry::File(inode)) = state.names.get(&names::normal(path)) else { return false };
        let content = &mut state.inodes.get_mut(&inode).expect("a name refers to a file").content;
        self.world.draw(Stream::Disk, |rng| content.corrupt(position, len, rng));
        self.world.note("corrupt", &[self.node, inode, position, len]);
        true
    }

    /// Whether this operation shall fail, and how.
    fn fault(&self, op: DiskOp, path: &Path) -> Option<io::Error> {
        let mut state = self.state.borrow_mut();
        let ordered = state.faults.iter_mut().find(|fault| {
            fault.op == op
                && fault.times > 0
                && path.to_str().is_some_and(|path| path.contains(&fault.path_contains))
        });
        let mut errno = None;
        if let Some(fault) = ordered {
            if fault.skip > 0 {
                fault.skip -= 1;
            } else {
                fault.times -= 1;
                errno = Some(fault.errno);
            }
        }
        let per_million = match op {
            DiskOp::Read => state.config.read_error_per_million,
            DiskOp::Write => state.config.write_error_per_million,
            DiskOp::Sync => state.config.sync_error_per_million,
            _ => 0,
        };
        if errno.is_none() && self.world.draw(Stream::Disk, |rng| rng.chance(per_million)) {
            errno = Some(EIO);
        }
        let errno = errno?;
        self.world.note("disk fault", &[self.node, errno as u64]);
        Some(io::Error::from_raw_os_error(errno))
    }

    fn latency(&self) -> u64 {
        let config = self.state.borrow().config;
        self.world.draw(Stream::Disk, |rng| {
            let most = if rng.chance(config.slow_per_million) { config.slow_max } else { config.latency_max };
            rng.between(config.latency_min.min(most), most)
        })
    }

    /// Completes after the time that an operation takes.
    async fn delay(&self) {
        let (sender, receiver) = oneshot::channel();
        self.world.after(self.latency(), move || {
            let _ = sender.send(());
        });
        let _ = receiver.await;
    }

    fn shorten(&self, len: usize, alignment: usize) -> usize {
        let per_million = self.state.borrow().config.short_per_million;
        let units = len / alignment;
        self.world.draw(Stream::Disk, |rng| {
            if units > 1 && rng.chance(per_million) {
                (1 + rng.below(units as u64 - 1) as usize) * alignment
            } else {
                len
            }
        })
    }
}

impl State {
    fn free_pages(&self) -> u64 {
        (self.config.capacity / PAGE as u64).saturating_sub(self.used_pages)
    }

    /// Changes a file's content and counts the space.
    fn change<T>(&mut self, inode: u64, change: impl FnOnce(&mut Content) -> T) -> T {
        let content = &mut self.inodes.get_mut(&inode).expect("an open file exists").content;
        let before = content.pages_used();
        let result = change(content);
        self.used_pages = self.used_pages + content.pages_used() - before;
        result
    }

    /// Frees files that have neither a name nor a handle, after a crash.
    fn collect_all(&mut self) {
        let names = &self.names;
        self.inodes.retain(|number, inode| inode.handles > 0 || names.refers_to(*number));
        self.used_pages = self.inodes.values().map(|inode| inode.content.pages_used()).sum();
        self.names.take_unnamed();
    }

    /// Frees files whose last name went, and that have no handle.
    fn collect(&mut self) {
        for number in self.names.take_unnamed() {
            let is_free = |inode: &Inode| inode.handles == 0;
            if !self.names.refers_to(number) && self.inodes.get(&number).is_some_and(is_free) {
                let inode = self.inodes.remove(&number).expect("it was there a moment ago");
                self.used_pages -= inode.content.pages_used();
            }
        }
    }

    fn open(&mut self, path: &Path, options: OpenOptions) -> io::Result<u64> {
        let inode = match self.names.get(path) {
            Some(Entry::Dir) => return Err(is_a_directory()),
            Some(Entry::File(_)) if options.create_new => return Err(names::exists()),
            Some(Entry::File(inode)) => inode,
            None if options.create || options.create_new => {
                let inode = self.next_inode;
                self.names.add_file(path, inode)?;
                self.next_inode += 1;
                self.inodes.insert(inode, Inode::default());
                inode
            }
            None => return Err(not_found()),
        };
        if options.truncate {
            self.change(inode, |content| content.set_len(0));
        }
        self.inodes.get_mut(&inode).expect("a name refers to a file").handles += 1;
        Ok(inode)
    }

    fn path_op(&mut self, op: &PathOp) -> io::Result<PathOutput> {
        match op {
            PathOp::Rename(from, to) => self.names.rename(&names::normal(from), &names::normal(to))?,
            PathOp::Remove(path) => self.names.remove_file(&names::normal(path))?,
            PathOp::RemoveDir(path) => self.names.remove_dir(&names::normal(path))?,
            PathOp::RemoveDirAll(path) => self.names.remove_dir_all(&names::normal(path))?,
            PathOp::CreateDirAll(path) => self.names.create_dir_all(&names::normal(path))?,
            PathOp::HardLink(from, to) => match self.names.get(&names::normal(from)) {
                Some(Entry::File(inode)) => self.names.add_file(&names::normal(to), inode)?,
                Some(Entry::Dir) => return Err(io::ErrorKind::PermissionDenied.into()),
                None => return Err(not_found()),
            },
            PathOp::List(path) => {
                let entries = self.names.list(&names::normal(path))?.into_iter();
                let entry = |(name, entry)| match entry {
                    Entry::Dir => DirEntry { name, is_dir: true, len: 0 },
                    Entry::File(inode) => {
                        DirEntry { name, is_dir: false, len: self.inodes[&inode].content.len() }
                    }
                };
                return Ok(PathOutput::Entries(entries.map(entry).collect()));
            }
            PathOp::Stat(path) => {
                return match self.names.get(&names::normal(path)) {
                    Some(Entry::Dir) => Ok(PathOutput::Stat { is_dir: true, len: 0 }),
                    Some(Entry::File(inode)) => {
                        Ok(PathOutput::Stat { is_dir: false, len: self.inodes[&inode].content.len() })
                    }
                    None => Err(not_found()),
                };
            }
            // No name is a link.
            PathOp::Resolve(path) => {
                let path = names::normal(path);
                return self.names.get(&path).map(|_| PathOutput::Path(path)).ok_or_else(not_found);
            }
            PathOp::Space(_) => {
                let free = self.free_pages() * PAGE as u64;
                return Ok(PathOutput::Space { free, total: self.config.capacity });
            }
            PathOp::SyncDir(_) => unreachable!("a sync of a directory is done at its completion"),
        }
        Ok(PathOutput::Done)
    }

    /// Writes as much as there is space for.
    fn write(&mut self, inode: u64, position: u64, bytes: &[u8]) -> io::Result<usize> {
        let free = self.free_pages();
        let content = &self.inodes[&inode].content;
        let mut fitting = bytes.len() as u64;
        while fitting > 0 && content.pages_missing(position, fitting) > free {
            // Down to the end of the page before.
            let end = position + fitting;
            fitting = ((end - 1) / PAGE as u64 * PAGE as u64).saturating_sub(position);
        }
        if fitting == 0 && !bytes.is_empty() {
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        self.change(inode, |content| content.write(position, &bytes[..fitting as usize]));
        Ok(fitting as usize)
    }

    fn begin_sync(&mut self, inode: u64) -> u64 {
        let others = self.syncing.values().filter(|(other, _)| *other == inode).map(|(_, snapshot)| snapshot);
        let content = &mut self.inodes.get_mut(&inode).expect("an open file exists").content;
        let snapshot = content.begin_sync(others);
        let number = self.next_sync;
        self.next_sync += 1;
        self.syncing.insert(number, (inode, snapshot));
        number
    }

    /// Ends a sync; with an error the data may be forgotten (`forget`) or stay to be synced again.
    fn end_sync(&mut self, number: u64, failed: bool, forget: bool) {
        // A power loss came first.
        let Some((inode, snapshot)) = self.syncing.remove(&number) else { return };
        let Some(file) = self.inodes.get_mut(&inode) else { return };
        match (failed, forget) {
            (false, _) => {
                let len = snapshot.len();
                file.content.end_sync(snapshot);
                for (_, (other, older)) in self.syncing.range_mut(..number) {
                    if *other == inode {
                        older.overtaken_by(len);
                    }
                }
            }
            (true, false) => file.content.abort_sync(&snapshot),
            (true, true) => file.content.forget_sync(),
        }
    }
}

/// The names of the operations on names in errors and in the trace.
fn path_op_kind(op: &PathOp) -> (DiskOp, &'static str, &Path) {
    match op {
        PathOp::Rename(from, _) => (DiskOp::Rename, "rename", from),
        PathOp::Remove(path) => (DiskOp::Remove, "remove", path),
        PathOp::RemoveDir(path) => (DiskOp::Remove, "remove dir", path),
        PathOp::RemoveDirAll(path) => (DiskOp::Remove, "remove all", path),
        PathOp::CreateDirAll(path) => (DiskOp::CreateDir, "create dir", path),
        PathOp::List(path) => (DiskOp::List, "list", path),
        PathOp::HardLink(from, _) => (DiskOp::HardLink, "hard link", from),
        PathOp::Stat(path) => (DiskOp::Stat, "stat", path),
        PathOp::Resolve(path) => (DiskOp::Stat, "resolve", path),
        PathOp::SyncDir(path) => (DiskOp::Sync, "sync dir", path),
        PathOp::Space(path) => (DiskOp::Space, "space", path),
    }
}

/// The driver of one shard.
pub(crate) struct SimDisk(pub(crate) Rc<NodeDisk>);

impl DiskDriver for SimDisk {
    fn open(&self, path: PathBuf, options: OpenOptions) -> LocalBoxFuture<io::Result<Rc<dyn FileDriver>>> {
        let disk = Rc::clone(&self.0);
        Box::pin(async move {
            let path = names::normal(&path);
            disk.world.note("open", &[disk.node, hash_bytes(path.as_os_str().as_encoded_bytes())]);
            let op = if options.create || options.create_new { DiskOp::Create } else { DiskOp::Open };
            let result = match disk.fault(op, &path) {
                Some(error) => Err(error),
                None => disk.state.borrow_mut().open(&path, options),
            };
            let incarnation = disk.state.borrow().incarnation;
            let driver =
                result.map(|inode| SimFile { disk: Rc::clone(&disk), path, inode, options, incarnation });
            disk.delay().await;
            Ok(Rc::new(driver?) as Rc<dyn FileDriver>)
        })
    }

    fn path_op(&self, op: PathOp) -> LocalBoxFuture<io::Result<PathOutput>> {
        let disk = Rc::clone(&self.0);
        Box::pin(async move {
            let (kind, what, path) = path_op_kind(&op);
            disk.world.note(what, &[disk.node, hash_bytes(path.as_os_str().as_encoded_bytes())]);
            if let Some(error) = disk.fault(kind, path) {
                disk.delay().await;
                return Err(error);
            }
            if let PathOp::SyncDir(path) = &op {
                return sync_dir(&disk, &names::normal(path)).await;
            }
            let result = disk.state.borrow_mut().path_op(&op);
            disk.delay().await;
            result
        })
    }

    fn lock(&self, path: PathBuf) -> LocalBoxFuture<io::Result<LockOutput>> {
        let disk = Rc::clone(&self.0);
        Box::pin(async move {
            let path = names::normal(&path);
            disk.world.note("lock", &[disk.node]);
            let result = take_lock(&disk, &path);
            disk.delay().await;
            result
        })
    }
}

/// The sync takes effect when it completes, also when its future is dropped before.
async fn sync_dir(disk: &Rc<NodeDisk>, path: &Path) -> io::Result<PathOutput> {
    let sequence = {
        let state = disk.state.borrow();
        match state.names.get(path) {
            Some(Entry::Dir) => state.names.sequence(),
            Some(Entry::File(_)) => return Err(io::Error::from_raw_os_error(20)),
            None => return Err(not_found()),
        }
    };
    let (sender, receiver) = oneshot::channel();
    let (shared, path) = (Rc::clone(disk), path.to_path_buf());
    let incarnation = disk.state.borrow().incarnation;
    disk.world.after(disk.latency(), move || {
        let mut state = shared.state.borrow_mut();
        if state.incarnation == incarnation {
            let rule = state.config.names;
            if state.names.commit_dir(sequence, &path, rule) {
                state.collect();
            }
        }
        let _ = sender.send(());
    });
    let _ = receiver.await;
    Ok(PathOutput::Done)
}

fn take_lock(disk: &Rc<NodeDisk>, path: &Path) -> io::Result<LockOutput> {
    if let Some(error) = disk.fault(DiskOp::Lock, path) {
        return Err(error);
    }
    let mut state = disk.state.borrow_mut();
    let inode = state.open(path, OpenOptions::READ_WRITE)?;
    let pid = 1000 + disk.node as u32;
    if state.locks.contains_key(&inode) {
        state.inodes.get_mut(&inode).expect("just opened").handles -= 1;
        return Ok(LockOutput::Held(Some(pid)));
    }
    state.change(inode, |content| {
        content.set_len(0);
        content.write(0, format!("{pid}\n").as_bytes());
    });
    let token = state.next_token;
    state.next_token += 1;
    state.locks.insert(inode, token);
    let held = HeldLock { disk: Rc::clone(disk), inode, token };
    Ok(LockOutput::Locked(Box::new(held) as Box<dyn Any>))
}

struct HeldLock {
    disk: Rc<NodeDisk>,
    inode: u64,
    token: u64,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        let mut state = self.disk.state.borrow_mut();
        if state.locks.get(&self.inode) == Some(&self.token) {
            state.locks.remove(&self.inode);
            state.inodes.get_mut(&self.inode).expect("a locked file exists").handles -= 1;
        }
    }
}

struct SimFile {
    disk: Rc<NodeDisk>,
    path: PathBuf,
    inode: u64,
    options: OpenOptions,
    incarnation: u64,
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.disk.state.borrow_mut();
        if state.incarnation != self.incarnation {
            return;
        }
        let inode = state.inodes.get_mut(&self.inode).expect("an open file exists");
        inode.handles -= 1;
        if inode.handles == 0 && !state.names.refers_to(self.inode) {
            let freed = state.inodes.remove(&self.inode).map_or(0, |inode| inode.content.pages_used());
            state.used_pages -= freed;
        }
    }
}

impl SimFile {
    fn alignment_of(options: OpenOptions) -> usize {
        if options.direct { IO_ALIGNMENT } else { 1 }
    }

    fn note(&self, what: &'static str, a: u64, b: u64) {
        self.disk.world.note(what, &[self.disk.node, self.inode, a, b]);
    }

    /// Checks that the operation is allowed, then whether it shall fail.
    fn begin(&self, op: DiskOp, allowed: bool) -> io::Result<()> {
        if self.disk.state.borrow().incarnation != self.incarnation || !allowed {
            return Err(io::Error::from_raw_os_error(9));
        }
        self.disk.fault(op, &self.path).map_or(Ok(()), Err)
    }

    fn do_write(&self, position: u64, bytes: &[u8]) -> io::Result<usize> {
        self.note("write", position, hash_bytes(bytes));
        self.begin(DiskOp::Write, self.options.write || self.options.append)?;
        let len = self.disk.shorten(bytes.len(), Self::alignment_of(self.options));
        let mut state = self.disk.state.borrow_mut();
        let position = if self.options.append { state.inodes[&self.inode].content.len() } else { position };
        state.write(self.inode, position, &bytes[..len])
    }

    fn do_read(&self, position: u64, out: &mut [u8]) -> io::Result<usize> {
        self.note("read", position, out.len() as u64);
        self.begin(DiskOp::Read, self.options.read)?;
        let len = self.disk.shorten(out.len(), Self::alignment_of(self.options));
        let mut state = self.disk.state.borrow_mut();
        let read = state.inodes[&self.inode].content.read(position, &mut out[..len]);
        state.read_bytes += read as u64;
        Ok(read)
    }

    /// Does the change now and answers when the time of an operation has passed.
    fn change(
        &self,
        what: &'static str,
        a: u64,
        b: u64,
        change: impl FnOnce(&mut Content) + 'static,
    ) -> LocalBoxFuture<io::Result<()>> {
        let file = self.twin();
        Box::pin(async move {
            file.note(what, a, b);
            let result = file.begin(DiskOp::Allocate, file.options.write || file.options.append);
            if result.is_ok() {
                file.disk.state.borrow_mut().change(file.inode, change);
            }
            file.disk.delay().await;
            result
        })
    }

    /// Another handle of the same file, for an operation that may outlive this one.
    fn twin(&self) -> SimFile {
        let mut state = self.disk.state.borrow_mut();
        if state.incarnation == self.incarnation {
            state.inodes.get_mut(&self.inode).expect("an open file exists").handles += 1;
        }
        SimFile {
            disk: Rc::clone(&self.disk),
            path: self.path.clone(),
            inode: self.inode,
            options: self.options,
            incarnation: self.incarnation,
        }
    }
}

impl FileDriver for SimFile {
    fn read(
        &self,
        position: u64,
        mut buf: IoBuf,
        start: usize,
        len: usize,
    ) -> LocalBoxFuture<(io::Result<usize>, IoBuf)> {
        let file = self.twin();
        Box::pin(async move {
            let result = file.do_read(position, buf.io_area_mut(start, len));
            file.disk.delay().await;
            (result, buf)
        })
    }

    fn write(
        &self,
        position: u64,
        mut buf: IoBuf,
        start: usize,
        len: usize,
    ) -> LocalBoxFuture<(io::Result<usize>, IoBuf)> {
        let file = self.twin();
        Box::pin(async move {
            let result = file.do_write(position, buf.io_area_mut(start, len));
            file.disk.delay().await;
            (result, buf)
        })
    }

    fn sync(&self, all: bool) -> LocalBoxFuture<io::Result<()>> {
        let file = self.twin();
        Box::pin(async move {
            file.note("sync", u64::from(all), 0);
            if file.disk.state.borrow().incarnation != file.incarnation {
                return Err(io::Error::from_raw_os_error(9));
            }
            let error = file.disk.fault(DiskOp::Sync, &file.path);
            let forget = error.is_some() && file.disk.world.draw(Stream::Disk, |rng| rng.below(2) == 0);
            let disk = Rc::clone(&file.disk);
            let number = disk.state.borrow_mut().begin_sync(file.inode);
            let names = disk.state.borrow().names.sequence();
            let (sender, receiver) = oneshot::channel();
            let (shared, failed) = (Rc::clone(&disk), error.is_some());
            let incarnation = file.incarnation;
            disk.world.after(disk.latency(), move || {
                let mut state = shared.state.borrow_mut();
                state.end_sync(number, failed, forget);
                let journal = state.config.names == NameDurability::Journal;
                if journal && !failed && state.incarnation == incarnation {
                    state.names.commit(names, None);
                }
                drop(state);
                let _ = sender.send(());
            });
            let _ = receiver.await;
            error.map_or(Ok(()), Err)
        })
    }

    fn set_len(&self, len: u64) -> LocalBoxFuture<io::Result<()>> {
        self.change("set len", len, 0, move |content| content.set_len(len))
    }

    fn allocate(&self, position: u64, len: u64) -> LocalBoxFuture<io::Result<()>> {
        let missing = {
            let state = self.disk.state.borrow();
            let missing =
                state.inodes.get(&self.inode).map(|inode| inode.content.pages_missing(position, len));
            missing.unwrap_or(0) > state.free_pages()
        };
        if missing {
            return Box::pin(std::future::ready(Err(io::Error::from_raw_os_error(ENOSPC))));
        }
        self.change("allocate", position, len, move |content| content.allocate(position, len))
    }

    fn map(&self, len: u64) -> LocalBoxFuture<io::Result<Box<dyn MappingDriver>>> {
        let file = self.twin();
        Box::pin(async move {
            file.note("map", len, 0);
            file.begin(DiskOp::Map, file.options.read && file.options.write)?;
            let has_blocks = {
                let state = file.disk.state.borrow();
                state.config.maps && state.inodes[&file.inode].content.pages_missing(0, len) == 0
            };
            file.disk.delay().await;
            match has_blocks {
                true => Ok(Box::new(file) as Box<dyn MappingDriver>),
                false => Err(io::ErrorKind::Unsupported.into()),
            }
        })
    }

    fn len(&self) -> LocalBoxFuture<io::Result<u64>> {
        let state = self.disk.state.borrow();
        let len = state.inodes.get(&self.inode).map_or(0, |inode| inode.content.len());
        Box::pin(std::future::ready(Ok(len)))
    }

    fn alignment(&self) -> usize {
        Self::alignment_of(self.options)
    }
}

impl MappingDriver for SimFile {
    fn write(&self, position: u64, bytes: &[u8]) {
        self.note("store", position, hash_bytes(bytes));
        let mut state = self.disk.state.borrow_mut();
        if state.incarnation == self.incarnation {
            state.write(self.inode, position, bytes).expect("a mapped range has blocks");
        }
    }
}
