//! The machine's files: names through the thread pool, content through the ring or the pool.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use rt::OpenOptions;
use rt::driver::{DiskDriver, FileDriver, LocalBoxFuture, LockOutput, PathOp, PathOutput};
use tokio::runtime::Handle;

use crate::blocking::{self, BlockingFile, on_pool};
use crate::ring::{Ring, RingFile};

/// The disk as one shard sees it.
pub(crate) struct SystemDisk {
    pub(crate) handle: Handle,
    /// None where all operations go through the pool.
    pub(crate) ring: Option<Rc<Ring>>,
}

impl DiskDriver for SystemDisk {
    fn open(&self, path: PathBuf, options: OpenOptions) -> LocalBoxFuture<io::Result<Rc<dyn FileDriver>>> {
        let handle = self.handle.clone();
        let ring = self.ring.clone();
        Box::pin(async move {
            let (file, direct) = on_pool(handle.clone(), move || blocking::open(&path, options)).await?;
            let pool = BlockingFile { file: Arc::new(file), handle, direct, append: options.append };
            Ok(match ring {
                Some(ring) => Rc::new(RingFile::new(ring, pool)),
                None => pool.into_driver(),
            })
        })
    }

    fn path_op(&self, op: PathOp) -> LocalBoxFuture<io::Result<PathOutput>> {
        Box::pin(on_pool(self.handle.clone(), move || blocking::path_op(&op)))
    }

    fn lock(&self, path: PathBuf) -> LocalBoxFuture<io::Result<LockOutput>> {
        // The guard is not `Send`; locking is rare and quick.
        Box::pin(std::future::ready(blocking::lock(&path)))
    }
}
