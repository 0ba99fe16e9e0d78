//! The environment of a shard: clock, disk, network, randomness, tasks, messages to other shards.
//!
//! Everything above this crate is written against [`Rt`] and runs unchanged on the production backend
//! (`rt-uring`) and in the simulator (`rt-sim`). The task scheduler lives here and is shared by both.

pub mod disk;
mod disk_options;
pub mod driver;
pub mod executor;
pub mod group;
mod injected;
pub mod instant;
mod io_queue;
pub mod iobuf;
pub mod mesh;
pub mod metrics;
pub mod net;
mod net_options;
pub mod preempt;
mod replaceable;
mod runtime_metrics;
mod shard_calls;
pub mod sync;
mod task;
pub mod timer;
mod timers;

mod handle;

pub use disk::{Disk, DiskError, DiskOp, File, LockError, LockGuard, Mapping};
pub use disk_options::{DirEntry, OpenOptions};
pub use driver::LocalBoxFuture;
pub use group::{Group, GroupStats};
pub use handle::{Rt, RtParts, ShardId, ShardMain, shard_mains};
pub use injected::Injected;
pub use instant::Instant;
pub use io_queue::{IoCapacity, IoQueue, IoStats};
pub use iobuf::{IO_ALIGNMENT, IoBuf};
pub use mesh::{Endpoint, Mesh, Port, PortStats};
pub use net::{DetachedStream, Listener, Net, NetError, NetOp, Stream};
pub use net_options::{ConnectOptions, ListenOptions};
pub use replaceable::Replaceable;
pub use shard_calls::ShardCall;
pub use task::Task;
pub use timer::{Elapsed, Sleep};
