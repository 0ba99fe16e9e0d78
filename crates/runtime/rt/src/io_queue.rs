//! The I/O scheduler of a shard: reads and writes of files share the disk among scheduling groups by their shares (docs/design/io.md).
//!
//! An operation costs the time that it alone would take of the disk. Operations are begun while those in flight cost less than the
//! shard's part of the latency goal, and wait in a queue a group otherwise. The queue of the group with the least virtual time goes next, as with
//! tasks ([`crate::executor`]), so a group that hardly uses the disk finds it free. Without a known capacity nothing waits.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use crate::driver::Clock;
use crate::group::Group;
use crate::instant::Instant;
use crate::sync::oneshot;

/// How fast a disk is, for the whole node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoCapacity {
    /// Small reads a second.
    pub read_iops: u64,
    /// Bytes a second of large reads.
    pub read_bandwidth: u64,
    /// Small writes a second.
    pub write_iops: u64,
    /// Bytes a second of large writes.
    pub write_bandwidth: u64,
}

impl IoCapacity {
    /// Of each of so many shards.
    fn divided(self, shards: u16) -> IoCapacity {
        let shards = u64::from(shards.max(1));
        let part = |whole: u64| (whole / shards).max(1);
        IoCapacity {
            read_iops: part(self.read_iops),
            read_bandwidth: part(self.read_bandwidth),
            write_iops: part(self.write_iops),
            write_bandwidth: part(self.write_bandwidth),
        }
    }

    /// The disk's time for an operation of so many bytes, nanoseconds.
    fn cost_ns(&self, kind: IoKind, bytes: usize) -> u64 {
        let (iops, bandwidth) = match kind {
            IoKind::Read => (self.read_iops, self.read_bandwidth),
            IoKind::Write => (self.write_iops, self.write_bandwidth),
        };
        let ns = 1_000_000_000 / iops.max(1);
        let transfer = (bytes as u128) * 1_000_000_000 / u128::from(bandwidth.max(1));
        ns.saturating_add(u64::try_from(transfer).unwrap_or(u64::MAX)).max(1)
    }
}

/// The direction of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IoKind {
    Read,
    Write,
}

/// The reads and writes of a group so far, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoStats {
    /// Reads and writes begun.
    pub operations: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Time that they waited in the queue, nanoseconds.
    pub delay_ns: u64,
    /// Operations in the queue now.
    pub queued: usize,
    /// Operations in flight now.
    pub in_flight: usize,
    /// Shares in force.
    pub shares: u32,
}

/// An operation that waits.
struct Waiter {
    cost_ns: u64,
    since: Instant,
    begin: oneshot::Sender<IoPermit>,
}

struct GroupQueue {
    waiting: RefCell<VecDeque<Waiter>>,
    shares: Cell<u32>,
    virtual_ns: Cell<u64>,
    operations: Cell<u64>,
    bytes: Cell<u64>,
    delay_ns: Cell<u64>,
    in_flight: Cell<usize>,
}

/// The limit of a shard: the capacity that costs are computed by, and the cost that may be in flight.
struct Limit {
    capacity: IoCapacity,
    in_flight_ns: u64,
}

struct State {
    clock: Rc<dyn Clock>,
    limit: Option<Limit>,
    groups: [GroupQueue; Group::COUNT],
    in_flight_ns: Cell<u64>,
    queued: Cell<usize>,
    last_virtual_ns: Cell<u64>,
    dispatching: Cell<bool>,
}

/// The I/O scheduler of a shard. Cheap to clone.
#[derive(Clone)]
pub struct IoQueue(Rc<State>);

impl IoQueue {
    /// A scheduler of one of `shards` shards of a node whose disk has this capacity, none where it is not known: operations are begun while those
    /// in flight on all shards together take less than `latency_goal` of it. With a goal of zero nothing waits.
    pub fn new(
        clock: Rc<dyn Clock>,
        capacity: Option<IoCapacity>,
        shards: u16,
        latency_goal: Duration,
    ) -> IoQueue {
        let goal_ns = u64::try_from(latency_goal.as_nanos()).unwrap_or(u64::MAX);
        // A shard's operations take a shard's part of the disk, so that the goal is the same for each.
        let limit = capacity.filter(|_| goal_ns > 0);
        let limit = limit.map(|capacity| Limit { capacity: capacity.divided(shards), in_flight_ns: goal_ns });
        let groups = Group::ALL.map(|group| GroupQueue {
            waiting: RefCell::default(),
            shares: Cell::new(group.default_shares()),
            virtual_ns: Cell::new(0),
            operations: Cell::new(0),
            bytes: Cell::new(0),
            delay_ns: Cell::new(0),
            in_flight: Cell::new(0),
        });
        IoQueue(Rc::new(State {
            clock,
            limit,
            groups,
            in_flight_ns: Cell::new(0),
            queued: Cell::new(0),
            last_virtual_ns: Cell::new(0),
            dispatching: Cell::new(false),
        }))
    }

    /// Changes the part of the disk that a group gets while others want it too. At least 1; only relations matter.
    pub(crate) fn set_shares(&self, group: Group, shares: u32) {
        self.0.groups[group.index()].shares.set(shares.max(1));
    }

    /// The usage and queue of a group.
    pub fn stats(&self, group: Group) -> IoStats {
        let queue = &self.0.groups[group.index()];
        IoStats {
            operations: queue.operations.get(),
            bytes: queue.bytes.get(),
            delay_ns: queue.delay_ns.get(),
            queued: queue.waiting.borrow().len(),
            in_flight: queue.in_flight.get(),
            shares: queue.shares.get(),
        }
    }

    /// Waits until an operation of the running task's group may begin. It is in flight until the result is dropped.
    pub(crate) async fn begin(&self, kind: IoKind, bytes: usize) -> IoPermit {
        let group =
            crate::executor::current(|executor| executor.current_group()).unwrap_or(Group::Maintenance);
        let queue = &self.0.groups[group.index()];
        queue.operations.set(queue.operations.get() + 1);
        queue.bytes.set(queue.bytes.get() + bytes as u64);
        let Some(limit) = &self.0.limit else { return self.start(group, 0) };
        let cost_ns = limit.capacity.cost_ns(kind, bytes);
        if queue.waiting.borrow().is_empty() {
            // A group that was idle does not save its time up.
            queue.virtual_ns.set(queue.virtual_ns.get().max(self.0.last_virtual_ns.get()));
        }
        if self.0.queued.get() == 0 && self.has_room() {
            return self.start(group, cost_ns);
        }
        let (begin, begun) = oneshot::channel();
        let since = self.0.clock.now();
        queue.waiting.borrow_mut().push_back(Waiter { cost_ns, since, begin });
        self.0.queued.set(self.0.queued.get() + 1);
        match begun.await {
            Ok(permit) => permit,
            // The queue is gone, and with it the shard.
            Err(_) => std::future::pending().await,
        }
    }

    fn has_room(&self) -> bool {
        self.0.limit.as_ref().is_none_or(|limit| self.0.in_flight_ns.get() < limit.in_flight_ns)
    }

    /// Puts an operation in flight and charges its group.
    fn start(&self, group: Group, cost_ns: u64) -> IoPermit {
        let queue = &self.0.groups[group.index()];
        self.0.in_flight_ns.set(self.0.in_flight_ns.get().saturating_add(cost_ns));
        queue.in_flight.set(queue.in_flight.get() + 1);
        let virtual_ns = queue.virtual_ns.get();
        self.0.last_virtual_ns.set(virtual_ns.max(self.0.last_virtual_ns.get()));
        let charged = cost_ns.saturating_mul(1000) / u64::from(queue.shares.get());
        queue.virtual_ns.set(virtual_ns.saturating_add(charged));
        IoPermit { queue: self.clone(), group, cost_ns }
    }

    /// Begins operations that wait, as far as there is room.
    fn dispatch(&self) {
        // A permit that nobody waits for any more is dropped below, and comes here again.
        if self.0.dispatching.replace(true) {
            return;
        }
        while self.0.queued.get() > 0 && self.has_room() {
            let waiting = Group::ALL.into_iter().filter(|group| self.has_waiting(*group));
            let next = waiting.min_by_key(|group| self.0.groups[group.index()].virtual_ns.get());
            let group = next.expect("an operation that waits is in the queue of a group");
            let queue = &self.0.groups[group.index()];
            let waiter = queue.waiting.borrow_mut().pop_front().expect("its queue is not empty");
            self.0.queued.set(self.0.queued.get() - 1);
            if waiter.begin.is_disconnected() {
                continue;
            }
            let delay = self.0.clock.now() - waiter.since;
            queue.delay_ns.set(queue.delay_ns.get() + delay.as_nanos() as u64);
            let _ = waiter.begin.send(self.start(group, waiter.cost_ns));
        }
        self.0.dispatching.set(false);
    }

    fn has_waiting(&self, group: Group) -> bool {
        !self.0.groups[group.index()].waiting.borrow().is_empty()
    }
}

/// An operation in flight.
pub(crate) struct IoPermit {
    queue: IoQueue,
    group: Group,
    cost_ns: u64,
}

impl Drop for IoPermit {
    fn drop(&mut self) {
        let state = &self.queue.0;
        let queue = &state.groups[self.group.index()];
        assert!(state.in_flight_ns.get() >= self.cost_ns, "an operation that ends was in flight");
        state.in_flight_ns.set(state.in_flight_ns.get() - self.cost_ns);
        queue.in_flight.set(queue.in_flight.get() - 1);
        if state.queued.get() > 0 {
            self.queue.dispatch();
        }
    }
}
