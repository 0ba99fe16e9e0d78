//! File operations on the blocking thread pool: those on names always, and all where io_uring is refused.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::CString;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use rt::driver::{FileDriver, LocalBoxFuture, LockOutput, MappingDriver, PathOp, PathOutput};
use rt::{DirEntry, IO_ALIGNMENT, IoBuf, OpenOptions};
use tokio::runtime::Handle;

use crate::mapped::Mapped;

/// Runs a closure on the pool. It runs to its end even when the future is dropped.
pub(crate) async fn on_pool<R: Send + 'static>(
    handle: Handle,
    work: impl FnOnce() -> R + Send + 'static,
) -> R {
    match handle.spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => std::future::pending().await, // The runtime ends, and this task with it.
        },
    }
}

/// Opens a file; also returns whether with direct IO, which not every file system supports.
pub(crate) fn open(path: &Path, options: OpenOptions) -> io::Result<(File, bool)> {
    let mut system = fs::OpenOptions::new();
    system.read(options.read).write(options.write && !options.append).append(options.append);
    system.create(options.create).create_new(options.create_new).truncate(options.truncate);
    if options.direct {
        let direct = system.clone().custom_flags(libc::O_DIRECT).open(path);
        match direct {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                // Some kernels create the file before they refuse.
                if options.create_new {
                    system.create_new(false).create(true);
                }
            }
            result => return result.map(|file| (file, true)),
        }
    }
    system.open(path).map(|file| (file, false))
}

/// Carries out an operation on names, blocking.
pub(crate) fn path_op(op: &PathOp) -> io::Result<PathOutput> {
    match op {
        PathOp::Rename(from, to) => fs::rename(from, to)?,
        PathOp::Remove(path) => fs::remove_file(path)?,
        PathOp::RemoveDir(path) => fs::remove_dir(path)?,
        PathOp::RemoveDirAll(path) => fs::remove_dir_all(path)?,
        PathOp::CreateDirAll(path) => fs::create_dir_all(path)?,
        PathOp::HardLink(from, to) => fs::hard_link(from, to)?,
        PathOp::SyncDir(path) => File::open(path)?.sync_all()?,
        PathOp::List(path) => return list(path).map(PathOutput::Entries),
        PathOp::Stat(path) => {
            let metadata = fs::metadata(path)?;
            return Ok(PathOutput::Stat { is_dir: metadata.is_dir(), len: metadata.len() });
        }
        PathOp::Resolve(path) => return fs::canonicalize(path).map(PathOutput::Path),
        PathOp::Space(path) => return space(path),
    }
    Ok(PathOutput::Done)
}

fn list(path: &Path) -> io::Result<Vec<DirEntry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let metadata = match fs::metadata(entry.path()) {
            Ok(metadata) => metadata,
            // Removed since, or a link to nowhere.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let len = if metadata.is_dir() { 0 } else { metadata.len() };
        entries.push(DirEntry { name, is_dir: metadata.is_dir(), len });
    }
    Ok(entries)
}

fn space(path: &Path) -> io::Result<PathOutput> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: statvfs is a plain structure of numbers, for which all zeros is a valid value.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers live through the call, the path ends with a zero byte.
    if unsafe { libc::statvfs(path.as_ptr(), &mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let free = stat.f_bavail as u64 * stat.f_frsize as u64;
    Ok(PathOutput::Space { free, total: stat.f_blocks as u64 * stat.f_frsize as u64 })
}

/// Takes the lock of a file, which then holds this process's id.
pub(crate) fn lock(path: &Path) -> io::Result<LockOutput> {
    let options = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let mut file = options?;
    match file.try_lock() {
        Ok(()) => {
            file.set_len(0)?;
            file.write_all(format!("{}\n", std::process::id()).as_bytes())?;
            Ok(LockOutput::Locked(Box::new(file) as Box<dyn Any>))
        }
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let _ = file.take(32).read_to_string(&mut text);
            Ok(LockOutput::Held(text.trim().parse().ok()))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Takes blocks for a range of a file.
pub(crate) fn allocate(file: &File, position: u64, len: u64) -> io::Result<()> {
    loop {
        // SAFETY: the descriptor is open; no pointers.
        let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, position as i64, len as i64) };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP) => return extend(file, position + len),
            _ => return Err(error),
        }
    }
}

/// Extends a file where the file system cannot allocate blocks ahead.
pub(crate) fn extend(file: &File, len: u64) -> io::Result<()> {
    if file.metadata()?.len() < len { file.set_len(len) } else { Ok(()) }
}

/// Makes a file durable.
pub(crate) fn sync(file: &File, all: bool) -> io::Result<()> {
    if all { file.sync_all() } else { file.sync_data() }
}

/// A file whose operations run on the pool.
pub(crate) struct BlockingFile {
    pub(crate) file: Arc<File>,
    pub(crate) handle: Handle,
    pub(crate) direct: bool,
    pub(crate) append: bool,
}

impl BlockingFile {
    fn on_pool<R: Send + 'static>(
        &self,
        work: impl FnOnce(&File) -> R + Send + 'static,
    ) -> LocalBoxFuture<R> {
        let file = Arc::clone(&self.file);
        Box::pin(on_pool(self.handle.clone(), move || work(&file)))
    }

    pub(crate) fn into_driver(self) -> Rc<dyn FileDriver> {
        Rc::new(self)
    }
}

impl FileDriver for BlockingFile {
    fn read(
        &self,
        position: u64,
        mut buf: IoBuf,
        start: usize,
        len: usize,
    ) -> LocalBoxFuture<(io::Result<usize>, IoBuf)> {
        self.on_pool(move |file| (file.read_at(buf.io_area_mut(start, len), position), buf))
    }

    fn write(
        &self,
        position: u64,
        mut buf: IoBuf,
        start: usize,
        len: usize,
    ) -> LocalBoxFuture<(io::Result<usize>, IoBuf)> {
        let append = self.append;
        self.on_pool(move |mut file: &File| {
            let bytes = buf.io_area_mut(start, len);
            let result = if append { file.write(bytes) } else { file.write_at(bytes, position) };
            (result, buf)
        })
    }

    fn sync(&self, all: bool) -> LocalBoxFuture<io::Result<()>> {
        self.on_pool(move |file| sync(file, all))
    }

    fn set_len(&self, len: u64) -> LocalBoxFuture<io::Result<()>> {
        self.on_pool(move |file| file.set_len(len))
    }

    fn allocate(&self, position: u64, len: u64) -> LocalBoxFuture<io::Result<()>> {
        self.on_pool(move |file| allocate(file, position, len))
    }

    fn map(&self, len: u64) -> LocalBoxFuture<io::Result<Box<dyn MappingDriver>>> {
        let mapped = self.on_pool(move |file| Mapped::new(file, len));
        Box::pin(async move { mapped.await.map(|mapped| Box::new(mapped) as Box<dyn MappingDriver>) })
    }

    fn len(&self) -> LocalBoxFuture<io::Result<u64>> {
        let result = self.file.metadata().map(|metadata| metadata.len());
        Box::pin(std::future::ready(result))
    }

    fn alignment(&self) -> usize {
        if self.direct { IO_ALIGNMENT } else { 1 }
    }
}
