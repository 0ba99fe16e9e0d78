//! [`Rt`]: the one handle through which a shard reaches everything outside of it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::disk::Disk;
use crate::driver::{Clock, LocalBoxFuture, Random};
use crate::executor::Executor;
use crate::group::{Group, GroupStats};
use crate::injected::Injected;
use crate::instant::Instant;
use crate::net::Net;
use crate::task::Task;
use crate::timer::{Elapsed, Sleep, timeout};

/// Number of a shard inside its node, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ShardId(pub u16);

impl ShardId {
    /// Position in arrays that hold one entry a shard.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The main of one shard. Made before the shards start (so it is `Send`), called once on the shard's thread; the
/// node ends when the mains of all shards have returned.
pub type ShardMain<T = ()> = Box<dyn FnOnce(Rt) -> LocalBoxFuture<T> + Send>;

/// The mains of a node whose shards differ only in their `Rt`.
pub fn shard_mains<T, F, M>(shard_count: u16, main: M) -> Vec<ShardMain<T>>
where
    F: Future<Output = T> + 'static,
    M: Fn(Rt) -> F + Clone + Send + 'static,
{
    let one = |_| {
        let main = main.clone();
        Box::new(move |rt: Rt| Box::pin(main(rt)) as LocalBoxFuture<T>) as ShardMain<T>
    };
    (0..shard_count).map(one).collect()
}

/// For backends: the parts of an [`Rt`].
pub struct RtParts {
    /// The shard's number.
    pub shard: ShardId,
    /// Number of shards of the node.
    pub shard_count: u16,
    /// The task scheduler.
    pub executor: Executor,
    /// The clocks.
    pub clock: Rc<dyn Clock>,
    /// Randomness.
    pub random: Rc<dyn Random>,
    /// Files.
    pub disk: Disk,
    /// Sockets.
    pub net: Net,
}

struct Inner {
    parts: RtParts,
    stop_requested: Cell<bool>,
    stop_waiters: RefCell<Vec<Waker>>,
}

/// One shard's access to clock, tasks, disk, network and randomness. Cheap to clone; never leaves its shard.
#[derive(Clone)]
pub struct Rt(Rc<Inner>);

impl Rt {
    /// For backends: a handle over its parts.
    pub fn new(parts: RtParts) -> Rt {
        Rt(Rc::new(Inner { parts, stop_requested: Cell::new(false), stop_waiters: RefCell::new(Vec::new()) }))
    }

    /// The shard that this is.
    pub fn shard(&self) -> ShardId {
        self.0.parts.shard
    }

    /// Number of shards of this node.
    pub fn shard_count(&self) -> u16 {
        self.0.parts.shard_count
    }

    /// Monotonic time since the node started.
    pub fn now(&self) -> Instant {
        self.0.parts.clock.now()
    }

    /// Microseconds since 1970-01-01 UTC; may jump in both directions.
    pub fn wall_micros(&self) -> i64 {
        self.0.parts.clock.wall_micros()
    }

    /// Waits for `duration`.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now() + duration)
    }

    /// Waits until `deadline`.
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        Sleep::new(self.0.parts.executor.clone(), deadline)
    }

    /// Runs `future` for at most `duration`; then it is dropped.
    ///
    /// # Errors
    /// [`Elapsed`] when `duration` passes first.
    pub fn timeout<F: Future>(
        &self,
        duration: Duration,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Elapsed>> + use<F> {
        timeout(self.sleep(duration), future)
    }

    /// Runs `future` until `deadline` at the latest; then it is dropped.
    ///
    /// # Errors
    /// [`Elapsed`] when `deadline` comes first.
    pub fn timeout_at<F: Future>(
        &self,
        deadline: Instant,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Elapsed>> + use<F> {
        timeout(self.sleep_until(deadline), future)
    }

    /// Starts a task on this shard. Dropping the handle cancels it; [`Task::detach`] lets it run.
    pub fn spawn<T: 'static>(&self, group: Group, future: impl Future<Output = T> + 'static) -> Task<T> {
        self.0.parts.executor.spawn(group, future)
    }

    /// Runs `future` as a task of its own and waits for its end. When the caller is dropped meanwhile the task goes
    /// on: for steps that must not stop half-way because a client went away.
    pub async fn uncancelled<T: 'static>(
        &self,
        group: Group,
        future: impl Future<Output = T> + 'static,
    ) -> T {
        let (sender, receiver) = crate::sync::oneshot::channel();
        let task = self.spawn(group, async move {
            // A caller that has gone does not want the answer.
            let _ = sender.send(future.await);
        });
        task.detach();
        match receiver.await {
            Ok(answer) => answer,
            // The executor is ending and has dropped the task; it is about to drop this one too.
            Err(_) => std::future::pending().await,
        }
    }

    /// The scheduling group of the running task.
    pub fn current_group(&self) -> Group {
        self.0.parts.executor.current_group()
    }

    /// Moves the running task to another group, from its next poll on; the calls to other shards that it makes from now on are made in that
    /// group.
    pub fn move_current(&self, group: Group) {
        self.0.parts.executor.move_current(group);
    }

    /// Whether the running task has used its quota and should yield soon. Costs one clock reading.
    pub fn need_preempt(&self) -> bool {
        self.0.parts.executor.need_preempt()
    }

    /// Lets other tasks run, and the backend look at sockets and files when the quota is used.
    pub async fn yield_now(&self) {
        crate::preempt::yield_now().await;
    }

    /// Yields when [`Rt::need_preempt`] is true; for loops over many small steps.
    pub async fn maybe_yield(&self) {
        if self.need_preempt() {
            self.yield_now().await;
        }
    }

    /// Changes the share of the CPU and of the disk that a group gets while others want them too. At least 1; only relations matter.
    pub fn set_shares(&self, group: Group, shares: u32) {
        self.0.parts.executor.set_shares(group, shares);
        self.0.parts.disk.queue().set_shares(group, shares);
    }

    /// The usage and queue of a group on this shard, for metrics and controllers.
    pub fn group_stats(&self, group: Group) -> GroupStats {
        self.0.parts.executor.stats(group)
    }

    /// A fast random number; not for secrets.
    pub fn random_u64(&self) -> u64 {
        self.0.parts.random.next_u64()
    }

    /// A random number below `bound`, which must not be 0.
    pub fn random_below(&self, bound: u64) -> u64 {
        assert!(bound > 0, "a random number below nothing");
        ((u128::from(self.random_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Random bytes; good enough for salts and keys in production.
    pub fn fill_random(&self, bytes: &mut [u8]) {
        self.0.parts.random.fill(bytes);
    }

    /// A point at which a simulator may delay the task on purpose, by its seed (FoundationDB's BUGGIFY): between two steps that
    /// nothing holds together, where a machine hardly ever waits. In production this is one call that says no; not for the paths of
    /// single requests.
    pub async fn buggify(&self, point: &'static str) {
        if let Some(delay) = self.0.parts.random.disturbance(point) {
            self.sleep(delay).await;
        }
    }

    /// A point at which a simulator may have something fail on purpose that may fail at any time.
    pub fn buggify_fails(&self, point: &'static str) -> bool {
        self.0.parts.random.disturbance(point).is_some()
    }

    /// Lets injected bugs (canaries) in, by which a simulator's tests are tested: to be called by each part of the program that has some,
    /// with those of its configuration. The default is none.
    ///
    /// # Panics
    /// When there are bugs and no simulator runs this shard.
    pub fn allow_injected<T: Default + PartialEq>(&self, bugs: &Injected<T>) {
        let simulated = self.0.parts.random.is_simulated();
        assert!(simulated || **bugs == T::default(), "bugs are injected in the simulator only");
    }

    /// Files.
    pub fn disk(&self) -> &Disk {
        &self.0.parts.disk
    }

    /// Sockets.
    pub fn net(&self) -> &Net {
        &self.0.parts.net
    }

    /// The task scheduler, for backends and their attachments.
    pub fn executor(&self) -> &Executor {
        &self.0.parts.executor
    }

    /// Waits until this node is to stop (SIGTERM or SIGINT in production). Only shard 0 is notified; it notifies
    /// the others by message.
    pub async fn stop_requested(&self) {
        poll_fn(|cx| {
            if self.0.stop_requested.get() {
                return Poll::Ready(());
            }
            let mut waiters = self.0.stop_waiters.borrow_mut();
            if !waiters.iter().any(|waiter| waiter.will_wake(cx.waker())) {
                waiters.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// For backends, and for an administrator's command: asks this shard to stop.
    pub fn request_stop(&self) {
        self.0.stop_requested.set(true);
        let waiters = std::mem::take(&mut *self.0.stop_waiters.borrow_mut());
        for waiter in waiters {
            waiter.wake();
        }
    }
}

impl fmt::Debug for Rt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rt(shard {} of {})", self.shard(), self.shard_count())
    }
}
