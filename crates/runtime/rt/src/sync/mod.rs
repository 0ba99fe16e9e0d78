//! Synchronisation between tasks of one shard. Nothing here is `Send`; nothing allocates unless a task waits.
//!
//! All primitives are cheap handles: clones refer to the same thing. Waiters are served in the order in which
//! they began to wait, and a future that is dropped gives up its place.

pub mod gate;
pub mod mpsc;
pub mod notify;
pub mod oneshot;
pub mod semaphore;
pub mod shared;
mod waiters;
pub mod watch;

pub use gate::{Gate, GateClosed, GateGuard};
pub use notify::{Notified, Notify};
pub use semaphore::{Permit, Semaphore, SemaphoreClosed};
pub use shared::{Shared, SharedSetter};
pub use watch::{Watch, WatchReader};

/// The other side of a channel is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnected;

impl std::fmt::Display for Disconnected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the other side is gone")
    }
}

impl std::error::Error for Disconnected {}
