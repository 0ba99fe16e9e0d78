//! Files: asynchronous operations with owned buffers, and errors with a remedy.

use std::any::Any;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use crate::disk_options::{DirEntry, OpenOptions};
use crate::driver::{DiskDriver, FileDriver, LockOutput, MappingDriver, PathOp, PathOutput};
use crate::io_queue::{IoKind, IoQueue};
use crate::iobuf::{IO_ALIGNMENT, IoBuf};

/// Bytes that [`File::rewrite`] reads and writes at once.
const REWRITE_LEN: u64 = 1 << 20;

/// The operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskOp {
    /// Opening a file.
    Open,
    /// Creating a file.
    Create,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Making content durable.
    Sync,
    /// Changing the length or taking blocks.
    Allocate,
    /// Mapping into memory.
    Map,
    /// Asking for length or kind.
    Stat,
    /// Renaming.
    Rename,
    /// Removing.
    Remove,
    /// Making a directory.
    CreateDir,
    /// Listing a directory.
    List,
    /// Making a hard link.
    HardLink,
    /// Asking for free space.
    Space,
    /// Locking.
    Lock,
}

impl DiskOp {
    fn verb(self) -> &'static str {
        match self {
            DiskOp::Open => "open",
            DiskOp::Create => "create",
            DiskOp::Read => "read",
            DiskOp::Write => "write",
            DiskOp::Sync => "sync",
            DiskOp::Allocate => "allocate space for",
            DiskOp::Map => "map",
            DiskOp::Stat => "look up",
            DiskOp::Rename => "rename",
            DiskOp::Remove => "remove",
            DiskOp::CreateDir => "create directory",
            DiskOp::List => "list directory",
            DiskOp::HardLink => "link",
            DiskOp::Space => "ask for free space of",
            DiskOp::Lock => "lock",
        }
    }
}

/// A failed disk operation: the operation, the path, the reason, and in its text the remedy.
#[derive(Clone, Debug)]
pub struct DiskError {
    /// The operation.
    pub op: DiskOp,
    /// To which file.
    pub path: Arc<Path>,
    /// The system's error.
    pub source: Arc<io::Error>,
}

impl DiskError {
    /// An error of `op` at `path`.
    pub fn new(op: DiskOp, path: &Path, source: io::Error) -> DiskError {
        DiskError { op, path: Arc::from(path), source: Arc::new(source) }
    }

    /// The class of the failure.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// Whether the file system, or this user's part of it, is full.
    pub fn is_disk_full(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Whether the file does not exist.
    pub fn is_not_found(&self) -> bool {
        self.kind() == io::ErrorKind::NotFound
    }

    /// Whether the file exists and should not.
    pub fn is_already_exists(&self) -> bool {
        self.kind() == io::ErrorKind::AlreadyExists
    }

    /// Whether a directory is not empty and should be.
    pub fn is_not_empty(&self) -> bool {
        self.kind() == io::ErrorKind::DirectoryNotEmpty
    }

    /// Whether this user may not do that.
    pub fn is_permission_denied(&self) -> bool {
        self.kind() == io::ErrorKind::PermissionDenied
    }

    /// Whether the file ended before the bytes that were asked for.
    pub fn is_unexpected_eof(&self) -> bool {
        self.kind() == io::ErrorKind::UnexpectedEof
    }

    fn advice(&self) -> &'static str {
        match self.kind() {
            io::ErrorKind::StorageFull => "; free space on this file system, or add to it",
            io::ErrorKind::QuotaExceeded => "; raise the quota of the user that runs the server",
            io::ErrorKind::PermissionDenied => "; the user that runs the server must own the directory",
            io::ErrorKind::ReadOnlyFilesystem => {
                "; the file system is mounted read-only, often after a disk error: see the kernel log"
            }
            io::ErrorKind::NotFound if self.op == DiskOp::Create => "; create the directory that it lies in",
            _ => match self.source.raw_os_error() {
                Some(5) => "; the device reports an error: see the kernel log and replace the disk",
                Some(23 | 24) => "; raise the limit of open files (ulimit -n)",
                _ => "",
            },
        }
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}{}", self.op.verb(), self.path.display(), self.source, self.advice())
    }
}

impl std::error::Error for DiskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

/// Why a lock could not be taken.
#[derive(Clone, Debug)]
pub enum LockError {
    /// Another process holds the lock.
    Held {
        /// The lock's file.
        path: Arc<Path>,
        /// The process that holds it, when its file names it.
        pid: Option<u32>,
    },
    /// The file could not be opened or written.
    Disk(DiskError),
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::Held { path, pid: Some(pid) } => {
                write!(f, "{} is locked by process {pid}; stop it, or use another directory", path.display())
            }
            LockError::Held { path, pid: None } => {
                write!(
                    f,
                    "{} is locked by another process; stop it, or use another directory",
                    path.display()
                )
            }
            LockError::Disk(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LockError {}

/// An exclusive lock of a file, held until dropped or until the process ends, however it ends.
pub struct LockGuard {
    _held: Box<dyn Any>,
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockGuard")
    }
}

/// The disk. Cheap to clone.
#[derive(Clone)]
pub struct Disk {
    driver: Rc<dyn DiskDriver>,
    queue: IoQueue,
}

impl Disk {
    /// For backends: the disk behind `driver`, whose reads and writes `queue` begins.
    pub fn new(driver: Rc<dyn DiskDriver>, queue: IoQueue) -> Disk {
        Disk { driver, queue }
    }

    /// The scheduler of its reads and writes.
    pub fn queue(&self) -> &IoQueue {
        &self.queue
    }

    /// Opens a file.
    ///
    /// # Errors
    /// A [`DiskError`] when the system refuses; of kind `NotFound` when the file does not exist and is not to be
    /// created, `AlreadyExists` when `create_new` finds it.
    pub async fn open(&self, path: impl AsRef<Path>, options: OpenOptions) -> Result<File, DiskError> {
        let path: Arc<Path> = Arc::from(path.as_ref());
        let op = if options.create || options.create_new { DiskOp::Create } else { DiskOp::Open };
        match self.driver.open(path.to_path_buf(), options).await {
            Ok(driver) => Ok(File { driver, queue: self.queue.clone(), path, append: options.append }),
            Err(error) => Err(DiskError { op, path, source: Arc::new(error) }),
        }
    }

    /// Reads a whole file of at most `limit` bytes.
    ///
    /// # Errors
    /// A [`DiskError`] of kind `FileTooLarge` when the file is longer than `limit`; any of [`Disk::open`] and
    /// [`File::read_at`].
    pub async fn read_to_end(&self, path: impl AsRef<Path>, limit: usize) -> Result<Vec<u8>, DiskError> {
        let file = self.open(path, OpenOptions::READ).await?;
        let len = file.len().await?;
        if len > limit as u64 {
            let text = format!("the file has {len} bytes, more than the limit of {limit}");
            return Err(file.error(DiskOp::Read, io::Error::new(io::ErrorKind::FileTooLarge, text)));
        }
        let mut content = Vec::with_capacity(len as usize);
        loop {
            let wanted = (limit - content.len() + 1).min(256 << 10);
            let part = file.read_at(content.len() as u64, wanted).await?;
            if part.is_empty() {
                return Ok(content);
            }
            if content.len() + part.len() > limit {
                let text = format!("the file grew beyond the limit of {limit} bytes");
                return Err(file.error(DiskOp::Read, io::Error::new(io::ErrorKind::FileTooLarge, text)));
            }
            content.extend_from_slice(&part);
        }
    }

    /// Reads a file that [`Disk::write_atomically`] wrote, and makes its name durable: a process that ended before its sync of
    /// the directory succeeded has left content which the next power loss would take back, after something was built on it.
    ///
    /// # Errors
    /// When the file cannot be read or is longer than `limit` bytes, or the directory cannot be synced.
    pub async fn read_durably(&self, path: impl AsRef<Path>, limit: usize) -> Result<Vec<u8>, DiskError> {
        let path = path.as_ref();
        let content = self.read_to_end(path, limit).await?;
        self.sync_dir(parent_of(path)).await?;
        Ok(content)
    }

    /// Replaces a file's content so that a crash leaves the old content or the new one: writes `path` with the
    /// suffix `.tmp`, syncs it, renames it, and syncs the directory.
    ///
    /// # Errors
    /// A [`DiskError`] when one of these steps fails; the old content is in place then, unless it was the sync of the
    /// directory.
    pub async fn write_atomically(&self, path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), DiskError> {
        let path = path.as_ref();
        let mut name = path.as_os_str().to_owned();
        name.push(".tmp");
        let temporary = PathBuf::from(name);
        let options = OpenOptions { truncate: true, ..OpenOptions::READ_WRITE };
        let file = self.open(&temporary, options).await?;
        file.write_at(0, IoBuf::copy_of(bytes)).await?;
        file.sync_all().await?;
        drop(file);
        self.rename(&temporary, path).await?;
        self.sync_dir(parent_of(path)).await
    }

    /// Gives a file or directory another name, replacing a file of that name. Durable after [`Disk::sync_dir`]
    /// of the directories concerned.
    ///
    /// # Errors
    /// A [`DiskError`] when `from` does not exist, or the system refuses.
    pub async fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), DiskError> {
        let op = PathOp::Rename(from.as_ref().into(), to.as_ref().into());
        self.done(DiskOp::Rename, from.as_ref(), op).await
    }

    /// Removes a file.
    ///
    /// # Errors
    /// A [`DiskError`] of kind `NotFound` when it does not exist, or when the system refuses.
    pub async fn remove(&self, path: impl AsRef<Path>) -> Result<(), DiskError> {
        self.done(DiskOp::Remove, path.as_ref(), PathOp::Remove(path.as_ref().into())).await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// A [`DiskError`] of kind `NotFound` when it does not exist, [`DiskError::is_not_empty`] when something is in it, or when the system
    /// refuses.
    pub async fn remove_dir(&self, path: impl AsRef<Path>) -> Result<(), DiskError> {
        self.done(DiskOp::Remove, path.as_ref(), PathOp::RemoveDir(path.as_ref().into())).await
    }

    /// Removes a directory with everything in it.
    ///
    /// # Errors
    /// A [`DiskError`] of kind `NotFound` when it does not exist, or when the system refuses; a part may be gone then.
    pub async fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<(), DiskError> {
        self.done(DiskOp::Remove, path.as_ref(), PathOp::RemoveDirAll(path.as_ref().into())).await
    }

    /// Makes a directory and those above it; succeeds when it exists.
    ///
    /// # Errors
    /// A [`DiskError`] when the system refuses, or a file has the name of one of them.
    pub async fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<(), DiskError> {
        self.done(DiskOp::CreateDir, path.as_ref(), PathOp::CreateDirAll(path.as_ref().into())).await
    }

    /// [`Disk::create_dir_all`], and makes the names of all these directories durable. That they are there already means nothing: a
    /// process may have ended before it had synced them.
    ///
    /// # Errors
    /// When a directory cannot be made or one above it cannot be synced.
    pub async fn create_dir_durably(&self, path: impl AsRef<Path>) -> Result<(), DiskError> {
        let path = path.as_ref();
        self.create_dir_all(path).await?;
        for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
            self.sync_dir(above).await?;
        }
        Ok(())
    }

    /// The entries of a directory, sorted by name.
    ///
    /// # Errors
    /// A [`DiskError`] of kind `NotFound` when there is no such directory, or when the system refuses.
    pub async fn list(&self, path: impl AsRef<Path>) -> Result<Vec<DirEntry>, DiskError> {
        let path = path.as_ref();
        match self.path_op(DiskOp::List, path, PathOp::List(path.into())).await? {
            PathOutput::Entries(mut entries) => {
                entries.sort();
                Ok(entries)
            }
            _ => unreachable!("a backend answers a listing with entries"),
        }
    }

    /// Gives a file a second name.
    ///
    /// # Errors
    /// A [`DiskError`] of kind `AlreadyExists` when `to` exists, `NotFound` when `from` does not, or when the system
    /// refuses.
    pub async fn hard_link(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), DiskError> {
        let op = PathOp::HardLink(from.as_ref().into(), to.as_ref().into());
        self.done(DiskOp::HardLink, from.as_ref(), op).await
    }

    /// Whether the name exists, as a file or a directory.
    ///
    /// # Errors
    /// A [`DiskError`] when the system refuses to look the name up.
    pub async fn exists(&self, path: impl AsRef<Path>) -> Result<bool, DiskError> {
        match self.stat(path.as_ref()).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the name exists and is a directory.
    ///
    /// # Errors
    /// A [`DiskError`] when the system refuses to look the name up.
    pub async fn is_dir(&self, path: impl AsRef<Path>) -> Result<bool, DiskError> {
        match self.stat(path.as_ref()).await {
            Ok((is_dir, _)) => Ok(is_dir),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Length of a file, bytes.
    ///
    /// # Errors
    /// A [`DiskError`] of kind `NotFound` when there is no such file, or when the system refuses.
    pub async fn len(&self, path: impl AsRef<Path>) -> Result<u64, DiskError> {
        Ok(self.stat(path.as_ref()).await?.1)
    }

    /// The absolute path of a file or directory, without symbolic links on the way to it: whether it lies inside another one.
    ///
    /// # Errors
    /// A [`DiskError`] of kind `NotFound` when it does not exist, or when the system refuses.
    pub async fn resolve(&self, path: impl AsRef<Path>) -> Result<PathBuf, DiskError> {
        let path = path.as_ref();
        match self.path_op(DiskOp::Stat, path, PathOp::Resolve(path.into())).await? {
            PathOutput::Path(resolved) => Ok(resolved),
            _ => unreachable!("a backend answers the question for a path with one"),
        }
    }

    /// Makes the entries of a directory durable: files created, renamed and removed in it.
    ///
    /// # Errors
    /// A [`DiskError`] when the directory cannot be opened or synced. It is then unknown which of its entries are durable.
    pub async fn sync_dir(&self, path: impl AsRef<Path>) -> Result<(), DiskError> {
        self.done(DiskOp::Sync, path.as_ref(), PathOp::SyncDir(path.as_ref().into())).await
    }

    /// Bytes that this process may still take of the file system that holds `path`.
    ///
    /// # Errors
    /// A [`DiskError`] when `path` does not exist, or the system refuses.
    pub async fn free_space(&self, path: impl AsRef<Path>) -> Result<u64, DiskError> {
        Ok(self.space(path.as_ref()).await?.0)
    }

    /// Size of the file system that holds `path`, bytes.
    ///
    /// # Errors
    /// A [`DiskError`] when `path` does not exist, or the system refuses.
    pub async fn total_space(&self, path: impl AsRef<Path>) -> Result<u64, DiskError> {
        Ok(self.space(path.as_ref()).await?.1)
    }

    /// Takes the lock of a file, which is made when missing and then holds this process's id.
    ///
    /// # Errors
    /// [`LockError::Held`] when another process has the lock; [`LockError::Disk`] when the file cannot be opened,
    /// locked or written.
    pub async fn lock_exclusive(&self, path: impl AsRef<Path>) -> Result<LockGuard, LockError> {
        let path = path.as_ref();
        match self.driver.lock(path.into()).await {
            Ok(LockOutput::Locked(held)) => Ok(LockGuard { _held: held }),
            Ok(LockOutput::Held(pid)) => Err(LockError::Held { path: Arc::from(path), pid }),
            Err(error) => Err(LockError::Disk(DiskError::new(DiskOp::Lock, path, error))),
        }
    }

    async fn stat(&self, path: &Path) -> Result<(bool, u64), DiskError> {
        match self.path_op(DiskOp::Stat, path, PathOp::Stat(path.into())).await? {
            PathOutput::Stat { is_dir, len } => Ok((is_dir, len)),
            _ => unreachable!("a backend answers a look-up with kind and length"),
        }
    }

    async fn space(&self, path: &Path) -> Result<(u64, u64), DiskError> {
        match self.path_op(DiskOp::Space, path, PathOp::Space(path.into())).await? {
            PathOutput::Space { free, total } => Ok((free, total)),
            _ => unreachable!("a backend answers the question for space with two numbers"),
        }
    }

    async fn done(&self, op: DiskOp, path: &Path, path_op: PathOp) -> Result<(), DiskError> {
        self.path_op(op, path, path_op).await.map(|_| ())
    }

    async fn path_op(&self, op: DiskOp, path: &Path, path_op: PathOp) -> Result<PathOutput, DiskError> {
        self.driver.path_op(path_op).await.map_err(|error| DiskError::new(op, path, error))
    }
}

/// The directory that holds `path`.
fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// An open file. Cheap to clone; closed when the last clone and the last operation under way are gone.
#[derive(Clone)]
pub struct File {
    driver: Rc<dyn FileDriver>,
    queue: IoQueue,
    path: Arc<Path>,
    append: bool,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File({})", self.path.display())
    }
}

impl File {
    /// The path that it was opened with; a later rename does not change this.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether operations bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.alignment() > 1
    }

    /// The alignment of positions and lengths of writes: 1 unless direct.
    pub fn alignment(&self) -> usize {
        self.driver.alignment()
    }

    /// Reads at most `len` bytes from `position`; fewer only at the end of the file. With direct IO position
    /// and length may still be anything: the read is widened and the result narrowed.
    ///
    /// # Errors
    /// A [`DiskError`] when the disk fails to read.
    pub async fn read_at(&self, position: u64, len: usize) -> Result<IoBuf, DiskError> {
        let alignment = self.alignment() as u64;
        let lead = (position % alignment) as usize;
        let wide = (lead + len).next_multiple_of(alignment as usize);
        let buf = IoBuf::with_capacity(wide);
        let (result, mut buf) = self.fill(position - lead as u64, buf, wide, lead + len).await;
        let filled = result?;
        buf.narrow(lead.min(filled), len.min(filled.saturating_sub(lead)));
        Ok(buf)
    }

    /// Reads exactly `len` bytes from `position`.
    ///
    /// # Errors
    /// A [`DiskError`] of kind `UnexpectedEof` ([`DiskError::is_unexpected_eof`]) when the file ends before that, or as
    /// [`File::read_at`].
    pub async fn read_exact_at(&self, position: u64, len: usize) -> Result<IoBuf, DiskError> {
        let buf = self.read_at(position, len).await?;
        if buf.len() < len {
            let text = format!("the file ends {} bytes into the {len} wanted at {position}", buf.len());
            return Err(self.error(DiskOp::Read, io::Error::new(io::ErrorKind::UnexpectedEof, text)));
        }
        Ok(buf)
    }

    /// Fills the capacity of `buf` from `position` and gives the buffer back, also after an error. Its length is
    /// the number of bytes read; less than the capacity only at the end of the file or after an error. With
    /// direct IO the position must be aligned.
    ///
    /// # Errors
    /// The result is a [`DiskError`] when the disk fails to read.
    pub async fn read_into(&self, position: u64, mut buf: IoBuf) -> (Result<usize, DiskError>, IoBuf) {
        buf.clear();
        let capacity = buf.capacity();
        self.fill(position, buf, capacity, capacity).await
    }

    /// Reads until `enough` bytes are there, asking for `len` at first.
    async fn fill(
        &self,
        position: u64,
        mut buf: IoBuf,
        len: usize,
        enough: usize,
    ) -> (Result<usize, DiskError>, IoBuf) {
        let mut filled = 0;
        while filled < enough {
            let permit = self.queue.begin(IoKind::Read, len - filled).await;
            let (result, back) = self.driver.read(position + filled as u64, buf, filled, len - filled).await;
            drop(permit);
            buf = back;
            match result {
                // With direct IO a short, unaligned read can only be the end of the file.
                Ok(0) => break,
                Ok(read) => {
                    filled += read;
                    if !filled.is_multiple_of(self.alignment()) {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    buf.set_filled(filled);
                    return (Err(self.error(DiskOp::Read, error)), buf);
                }
            }
        }
        buf.set_filled(filled);
        (Ok(filled), buf)
    }

    /// Writes all of `buf` at `position` (ignored in append mode) and gives the buffer back for reuse. Not
    /// durable before a sync. With direct IO position and length must be aligned.
    ///
    /// # Errors
    /// A [`DiskError`] when the disk is full or fails, of kind `InvalidInput` when a direct write is not aligned. The
    /// buffer is lost, and a part of it may have been written.
    pub async fn write_at(&self, position: u64, mut buf: IoBuf) -> Result<IoBuf, DiskError> {
        let alignment = self.alignment();
        if alignment > 1
            && !(position.is_multiple_of(alignment as u64) && buf.len().is_multiple_of(alignment))
        {
            let text =
                format!("a direct write of {} bytes at {position} is not aligned to {alignment}", buf.len());
            return Err(self.error(DiskOp::Write, io::Error::new(io::ErrorKind::InvalidInput, text)));
        }
        let len = buf.len();
        let mut written = 0;
        while written < len {
            let at = if self.append { 0 } else { position + written as u64 };
            let permit = self.queue.begin(IoKind::Write, len - written).await;
            let (result, back) = self.driver.write(at, buf, written, len - written).await;
            drop(permit);
            buf = back;
            match result {
                Ok(0) => {
                    let error = io::Error::new(io::ErrorKind::WriteZero, "the system accepts no more bytes");
                    return Err(self.error(DiskOp::Write, error));
                }
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(DiskOp::Write, error)),
            }
        }
        Ok(buf)
    }

    /// Writes the first `len` bytes again as they are, so that the next sync covers them: after a sync that failed, in this process
    /// or the one before, the system may take pages for clean that never reached the disk, and syncing them again would
    /// succeed and mean nothing. A tear does no harm, because the bytes are the same.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub async fn rewrite(&self, len: u64) -> Result<(), DiskError> {
        let mut at = 0;
        while at < len {
            let bytes = self.read_at(at, REWRITE_LEN.min(len - at) as usize).await?;
            if bytes.is_empty() {
                break;
            }
            let read = bytes.len() as u64;
            self.write_at(at, bytes).await?;
            at += read;
        }
        Ok(())
    }

    /// Makes the content durable, with as much of the attributes as reading it needs.
    ///
    /// # Errors
    /// A [`DiskError`] when the disk fails. Writes since the last sync may be lost then, even if a later sync
    /// succeeds.
    pub async fn sync_data(&self) -> Result<(), DiskError> {
        self.driver.sync(false).await.map_err(|error| self.error(DiskOp::Sync, error))
    }

    /// Makes content and attributes durable.
    ///
    /// # Errors
    /// As [`File::sync_data`].
    pub async fn sync_all(&self) -> Result<(), DiskError> {
        self.driver.sync(true).await.map_err(|error| self.error(DiskOp::Sync, error))
    }

    /// Cuts the file, or extends it with zeros that take no space.
    ///
    /// # Errors
    /// A [`DiskError`] when the disk is full or fails.
    pub async fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.driver.set_len(len).await.map_err(|error| self.error(DiskOp::Allocate, error))
    }

    /// Takes blocks for `[position, position + len)`, extending the file; unwritten bytes read as zeros.
    ///
    /// # Errors
    /// A [`DiskError`] when the disk is full or fails.
    pub async fn allocate(&self, position: u64, len: u64) -> Result<(), DiskError> {
        self.driver.allocate(position, len).await.map_err(|error| self.error(DiskOp::Allocate, error))
    }

    /// Maps the first `len` bytes into memory. They must have blocks ([`File::allocate`]).
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] where a store could fail for want of space (file systems that copy on write, files
    /// with holes) or the file is direct: such a file is written by [`File::write_at`].
    pub async fn map(&self, len: u64) -> Result<Mapping, DiskError> {
        assert!(self.alignment() == 1, "a direct file is not in the page cache");
        let driver = self.driver.map(len).await.map_err(|error| self.error(DiskOp::Map, error))?;
        Ok(Mapping { driver, len })
    }

    /// Length, bytes.
    ///
    /// # Errors
    /// A [`DiskError`] when the system refuses.
    pub async fn len(&self) -> Result<u64, DiskError> {
        self.driver.len().await.map_err(|error| self.error(DiskOp::Stat, error))
    }

    fn error(&self, op: DiskOp, source: io::Error) -> DiskError {
        DiskError { op, path: Arc::clone(&self.path), source: Arc::new(source) }
    }
}

/// The beginning of a file in memory ([`File::map`]). A store costs no system call and waits for nothing; as with
/// [`File::write_at`], it survives the end of the process at once and a power failure after a sync of the file.
pub struct Mapping {
    driver: Box<dyn MappingDriver>,
    len: u64,
}

impl Mapping {
    /// Stores `bytes` at `position`.
    ///
    /// # Panics
    /// When they do not lie within the mapping.
    pub fn write(&self, position: u64, bytes: &[u8]) {
        let end = position.checked_add(bytes.len() as u64);
        assert!(end.is_some_and(|end| end <= self.len), "a store lies within the mapping");
        self.driver.write(position, bytes);
    }
}

const _: () = assert!(IO_ALIGNMENT.is_power_of_two());
