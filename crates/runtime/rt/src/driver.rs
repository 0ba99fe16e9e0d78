//! The interface of a backend: clock, randomness, disk and network, as object-safe traits.
//!
//! Code above `rt` never names these traits; it uses [`crate::Rt`], [`crate::Disk`] and [`crate::Net`].

use std::any::Any;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;

use crate::disk_options::{DirEntry, OpenOptions};
use crate::instant::Instant;
use crate::iobuf::IoBuf;
use crate::net_options::{ConnectOptions, ListenOptions};

/// A boxed future of one shard.
pub type LocalBoxFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// The clocks of a node, as one shard sees them.
pub trait Clock {
    /// Monotonic time.
    fn now(&self) -> Instant;

    /// Microseconds since 1970-01-01 UTC. May jump in both directions.
    fn wall_micros(&self) -> i64;

    /// CPU time that the calling thread has used; none where no such clock is (the simulator).
    fn thread_cpu(&self) -> Option<Duration> {
        None
    }

    /// Whether a turn that began at `turn_start` has used its `quota`. A simulator decides this by its seed,
    /// because no time passes in it while a task runs.
    fn quota_spent(&self, turn_start: Instant, quota: Duration) -> bool {
        self.now() - turn_start >= quota
    }
}

/// The source of randomness of one shard.
pub trait Random {
    /// A fast, evenly distributed number; not for secrets.
    fn next_u64(&self) -> u64;
    /// Fills `bytes`; good enough for keys and salts in production.
    fn fill(&self, bytes: &mut [u8]);
    /// For how long a simulator delays a task on purpose at a named point of the product; never in production.
    fn disturbance(&self, _point: &'static str) -> Option<Duration> {
        None
    }
    /// Whether this is a simulator's.
    fn is_simulated(&self) -> bool {
        false
    }
}

/// An operation on names rather than on the content of an open file. All are rare.
#[derive(Debug, Clone)]
pub enum PathOp {
    /// Give an existing file or directory a new name, replacing a file of that name.
    Rename(PathBuf, PathBuf),
    /// Remove a file.
    Remove(PathBuf),
    /// Remove an empty directory.
    RemoveDir(PathBuf),
    /// Remove a directory with everything in it.
    RemoveDirAll(PathBuf),
    /// Make a directory and those above it.
    CreateDirAll(PathBuf),
    /// Entries of a directory.
    List(PathBuf),
    /// A second name for a file.
    HardLink(PathBuf, PathBuf),
    /// Kind and length of a name.
    Stat(PathBuf),
    /// The absolute path of a name without symbolic links.
    Resolve(PathBuf),
    /// Make the entries of a directory durable.
    SyncDir(PathBuf),
    /// Room on the file system that holds a name.
    Space(PathBuf),
}

/// The result of a [`PathOp`].
pub enum PathOutput {
    /// Nothing but success.
    Done,
    /// Answer to [`PathOp::List`], in any order.
    Entries(Vec<DirEntry>),
    /// Answer to [`PathOp::Stat`].
    Stat {
        /// Whether the name is a directory.
        is_dir: bool,
        /// Length in bytes.
        len: u64,
    },
    /// Answer to [`PathOp::Resolve`].
    Path(PathBuf),
    /// Answer to [`PathOp::Space`], bytes.
    Space {
        /// The space that this process may still use.
        free: u64,
        /// The size of the file system.
        total: u64,
    },
}

/// The result of [`DiskDriver::lock`].
pub enum LockOutput {
    /// Held until this is dropped.
    Locked(Box<dyn Any>),
    /// Another process, whose id may be known, holds it.
    Held(Option<u32>),
}

/// The disk of one node, as one shard sees it.
pub trait DiskDriver {
    /// Opens a file.
    ///
    /// # Errors
    /// That of the system.
    fn open(&self, path: PathBuf, options: OpenOptions) -> LocalBoxFuture<io::Result<Rc<dyn FileDriver>>>;
    /// Carries out an operation on names.
    ///
    /// # Errors
    /// That of the system; of kind `NotFound` and `AlreadyExists` as the operation's [`Disk`](crate::Disk) method says.
    fn path_op(&self, op: PathOp) -> LocalBoxFuture<io::Result<PathOutput>>;
    /// Takes the exclusive lock of a file, creating it, and writes this process's id into it.
    ///
    /// # Errors
    /// That of the system when the file cannot be opened, locked or written. A lock that another process holds is no
    /// error.
    fn lock(&self, path: PathBuf) -> LocalBoxFuture<io::Result<LockOutput>>;
}

/// An open file. A started operation continues when its future is dropped, and owns its buffer until it ends.
pub trait FileDriver {
    /// Reads into `buf[start..start + len]` (positions in its capacity, see [`IoBuf::io_area_mut`]); gives
    /// the number of bytes read, 0 at the end of the file. May be short.
    ///
    /// # Errors
    /// That of the system; the buffer comes back all the same.
    fn read(
        &self,
        position: u64,
        buf: IoBuf,
        start: usize,
        len: usize,
    ) -> LocalBoxFuture<(io::Result<usize>, IoBuf)>;
    /// Writes `buf[start..start + len]` (positions in its capacity); may be short. With `append` the
    /// position is ignored.
    ///
    /// # Errors
    /// That of the system; the buffer comes back all the same.
    fn write(
        &self,
        position: u64,
        buf: IoBuf,
        start: usize,
        len: usize,
    ) -> LocalBoxFuture<(io::Result<usize>, IoBuf)>;
    /// Makes the content durable, and with `all` the other attributes too.
    ///
    /// # Errors
    /// That of the system.
    fn sync(&self, all: bool) -> LocalBoxFuture<io::Result<()>>;
    /// Cuts or extends (with zeros) the file.
    ///
    /// # Errors
    /// That of the system.
    fn set_len(&self, len: u64) -> LocalBoxFuture<io::Result<()>>;
    /// Makes sure that `[position, position + len)` has blocks and reads as zeros where nothing was written.
    ///
    /// # Errors
    /// That of the system.
    fn allocate(&self, position: u64, len: u64) -> LocalBoxFuture<io::Result<()>>;
    /// Maps the first `len` bytes, which have blocks, into memory and reads them in.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] where a store to the mapping could fail; that of the system when it does not map.
    fn map(&self, len: u64) -> LocalBoxFuture<io::Result<Box<dyn MappingDriver>>>;
    /// Length in bytes.
    ///
    /// # Errors
    /// That of the system.
    fn len(&self) -> LocalBoxFuture<io::Result<u64>>;
    /// The alignment of positions, lengths and memory of an operation; 1 for buffered files.
    fn alignment(&self) -> usize;
}

/// The beginning of a file in memory, shared with the system: stored bytes survive the end of the process.
pub trait MappingDriver {
    /// Stores `bytes`, which lie within the mapping, at `position`.
    fn write(&self, position: u64, bytes: &[u8]);
}

/// The network of one node, as one shard sees it.
pub trait NetDriver {
    /// Listens.
    ///
    /// # Errors
    /// That of the system: the address is in use, is none of this machine, or needs a privilege.
    fn listen(
        &self,
        address: SocketAddr,
        options: ListenOptions,
    ) -> LocalBoxFuture<io::Result<Box<dyn ListenerDriver>>>;
    /// Connects.
    ///
    /// # Errors
    /// That of the system: nobody listens there, or the address cannot be reached.
    fn connect(
        &self,
        address: SocketAddr,
        options: ConnectOptions,
    ) -> LocalBoxFuture<io::Result<Box<dyn StreamDriver>>>;
    /// Takes over a connection that another shard has detached.
    ///
    /// # Errors
    /// That of the system when it does not take the socket in; of kind `InvalidInput` when another backend detached it.
    fn attach(&self, detached: Box<dyn Any + Send>) -> io::Result<Box<dyn StreamDriver>>;
}

/// A listening socket.
pub trait ListenerDriver {
    /// The next connection and its peer.
    ///
    /// # Errors
    /// That of one connection, or a shortage of descriptors or memory; the listener continues.
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Box<dyn StreamDriver>, SocketAddr)>>;
    /// The address that it listens on, with the port that was given for port 0.
    ///
    /// # Errors
    /// That of the system.
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

/// A connection. Methods take `&self`: one task may read while another writes. Of each direction only the
/// task that polled last is woken.
pub trait StreamDriver {
    /// Ready when a read would not wait.
    ///
    /// # Errors
    /// As [`StreamDriver::poll_read`].
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Reads; 0 at the end of the stream.
    ///
    /// # Errors
    /// That of the system or of a layer when the connection is broken.
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>>;
    /// Appends the available bytes to `buf`, at most its spare capacity; 0 at the end of the stream.
    ///
    /// # Errors
    /// As [`StreamDriver::poll_read`].
    fn poll_read_buf(&self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>>;
    /// Ready when a write would not wait.
    ///
    /// # Errors
    /// As [`StreamDriver::poll_write`].
    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Writes a part of `bytes`.
    ///
    /// # Errors
    /// That of the system or of a layer when the connection is broken or its writing side closed.
    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
    /// Writes a part of `slices`, taken one after another.
    ///
    /// # Errors
    /// As [`StreamDriver::poll_write`].
    fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>>;
    /// Flushes and closes the writing side.
    ///
    /// # Errors
    /// As [`StreamDriver::poll_write`].
    fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Whether small writes leave at once.
    ///
    /// # Errors
    /// That of the system.
    fn set_nodelay(&self, nodelay: bool) -> io::Result<()>;
    /// Probes the other end after `idle` without traffic; the connection fails when it does not answer for as long again.
    ///
    /// # Errors
    /// That of the system.
    fn set_keepalive(&self, idle: Duration) -> io::Result<()>;
    /// The other end.
    ///
    /// # Errors
    /// That of the system, when the connection is broken.
    fn peer_addr(&self) -> io::Result<SocketAddr>;
    /// This end.
    ///
    /// # Errors
    /// That of the system.
    fn local_addr(&self) -> io::Result<SocketAddr>;
    /// Unbinds the connection from this shard, for [`NetDriver::attach`] of another.
    ///
    /// # Errors
    /// That of the system when it does not give the socket back.
    fn detach(self: Box<Self>) -> io::Result<Box<dyn Any + Send>>;
}

/// A layer over a connection (TLS, for one) while it moves between shards.
pub trait Layer: Send {
    /// Puts it over the connection again.
    fn over(self: Box<Self>, driver: Box<dyn StreamDriver>) -> Box<dyn StreamDriver>;
}

/// The result of [`StreamDriver::detach`] for a connection with a layer. Backends never see it.
pub struct Layered {
    /// The result of the connection below.
    pub inner: Box<dyn Any + Send>,
    /// The layer.
    pub layer: Box<dyn Layer>,
}
