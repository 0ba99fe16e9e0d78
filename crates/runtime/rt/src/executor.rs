//! The task scheduler of one shard, shared by both backends.
//!
//! Groups of tasks divide the CPU by shares (virtual run time, as Linux's CFS did); within a group tasks run in
//! the order in which they became ready. A turn lasts at most the quota, then the backend looks at sockets and
//! files. A backend that wants to choose the next task itself (the simulator) runs single tasks instead of turns.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use crate::driver::Clock;
use crate::group::{Group, GroupStats};
use crate::instant::Instant;
use crate::timers::Timers;

/// How long a turn may last before sockets and files are looked at again.
pub const TASK_QUOTA: Duration = Duration::from_micros(500);

/// Where stalls are watched, a turn reads the thread's CPU time (a system call) when the last reading is older than this: a stall's
/// CPU time may be too long by so much, besides the CPU time of other polls of its turn.
const THREAD_CPU_READ_PERIOD: Duration = Duration::from_millis(1);

/// Between tasks the clock is read once in so many polls.
const POLLS_BETWEEN_CLOCK_READS: u32 = 8;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Inner>>> = const { RefCell::new(None) };
}

/// The part of an executor that other threads may touch.
pub(crate) struct Shared {
    remote: Mutex<Vec<TaskRef>>,
    remote_pending: AtomicBool,
    sleeping: AtomicBool,
    host: Mutex<Option<Waker>>,
}

impl Shared {
    /// Wakes the shard when it sleeps. Its work must have been stored before.
    pub(crate) fn notify(&self) {
        // Pairs with the fence in `prepare_park`: either we see that it sleeps, or it sees our store.
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::AcqRel) {
            let host = self.host.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(host) = host {
                host.wake();
            }
        }
    }

    fn push_remote(&self, task: TaskRef) {
        self.remote.lock().unwrap_or_else(PoisonError::into_inner).push(task);
        self.remote_pending.store(true, Ordering::Release);
        self.notify();
    }
}

/// Names one task of one executor. The generation distinguishes tasks that used the same slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TaskRef {
    pub(crate) slot: u32,
    generation: u32,
    pub(crate) group: Group,
}

const IDLE: u8 = 0;
const SCHEDULED: u8 = 1;

/// The shared part of a task's wakers. Sent anywhere; the task itself never leaves its shard.
struct TaskWaker {
    shared: Arc<Shared>,
    slot: u32,
    generation: AtomicU32,
    group: AtomicU8,
    state: AtomicU8,
}

impl TaskWaker {
    /// A waker of a task that is about to be queued.
    fn scheduled(shared: &Arc<Shared>, task: TaskRef) -> Arc<TaskWaker> {
        Arc::new(TaskWaker {
            shared: Arc::clone(shared),
            slot: task.slot,
            generation: AtomicU32::new(task.generation),
            group: AtomicU8::new(task.group as u8),
            state: AtomicU8::new(SCHEDULED),
        })
    }

    /// Makes this the waker of the slot's next task, when nobody holds a waker of the last one. `held` is how
    /// many references the slot itself holds.
    fn try_reuse(self: &Arc<TaskWaker>, held: usize, task: TaskRef) -> bool {
        if Arc::strong_count(self) != held {
            return false;
        }
        // Orders the stores of the last holder on another thread before ours.
        fence(Ordering::Acquire);
        self.generation.store(task.generation, Ordering::Relaxed);
        self.group.store(task.group as u8, Ordering::Relaxed);
        self.state.store(SCHEDULED, Ordering::Release);
        true
    }

    /// To be called before a poll: from now on a wake queues the task again.
    fn begin_poll(&self) {
        self.state.swap(IDLE, Ordering::AcqRel);
    }

    fn task(&self) -> TaskRef {
        TaskRef {
            slot: self.slot,
            generation: self.generation.load(Ordering::Relaxed),
            group: Group::ALL[self.group.load(Ordering::Relaxed) as usize],
        }
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(SCHEDULED, Ordering::AcqRel) == IDLE {
            schedule(&self.shared, self.task());
        }
    }
}

/// Queues a task whose waker was woken, from any thread.
fn schedule(shared: &Arc<Shared>, task: TaskRef) {
    let local = CURRENT.try_with(|current| match &*current.borrow() {
        Some(inner) if Arc::ptr_eq(&inner.shared, shared) => {
            inner.push_ready(task);
            true
        }
        _ => false,
    });
    if !local.unwrap_or(false) {
        shared.push_remote(task);
    }
}

/// Asks the executor that runs on this thread; none outside of one.
pub(crate) fn current<T>(ask: impl FnOnce(&Executor) -> T) -> Option<T> {
    let inner = CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()?;
    Some(ask(&Executor { inner }))
}

/// Work that a backend or a mesh does at the edges of a turn.
pub trait TurnHook {
    /// Takes arrived events (messages, completions) and wakes tasks; whether there were any.
    fn poll(&self) -> bool;
    /// Sends the output of this turn's tasks (messages, submissions).
    fn flush(&self);
    /// Whether [`TurnHook::poll`] would find something. Must be cheap; asked before the shard sleeps.
    fn has_input(&self) -> bool;
    /// The executor ends: drop everything that could hold it alive.
    fn shutdown(&self) {}
}

/// A poll that occupied its shard for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The task's group.
    pub group: Group,
    /// The type of the task's future, which names the function that it is.
    pub task: &'static str,
    /// How long the poll took, by the wall.
    pub took: Duration,
    /// The CPU time that the thread used meanwhile, `took` at most: the rest it waited in a system call or a page fault, or for the machine
    /// to give it a CPU. `took` where no clock measures it.
    pub cpu: Duration,
}

/// The bit of [`Executor::watch_stalls`] that says that no poll is under way.
pub const POLL_OVER: u64 = 1 << 63;

/// The arguments of [`Executor::watch_stalls`].
struct StallWatch {
    threshold: Duration,
    report: Box<dyn Fn(Stall)>,
    /// See [`Executor::watch_stalls`].
    poll_began: Arc<AtomicU64>,
    /// The last reading of the thread's CPU time, and when.
    cpu_read: Cell<(Instant, Option<Duration>)>,
}

impl StallWatch {
    /// Reads the thread's CPU time, unless that was done a moment ago.
    fn read_cpu(&self, clock: &dyn Clock, now: Instant) {
        if now - self.cpu_read.get().0 >= THREAD_CPU_READ_PERIOD {
            self.cpu_read.set((now, clock.thread_cpu()));
        }
    }

    /// The CPU time of a poll that has ended and took so long.
    fn cpu_of(&self, clock: &dyn Clock, now: Instant, took: Duration) -> Duration {
        let (_, before) = self.cpu_read.replace((now, clock.thread_cpu()));
        let used = self.cpu_read.get().1.zip(before).map(|(after, before)| after.saturating_sub(before));
        used.map_or(took, |used| used.min(took))
    }
}

struct Slot {
    generation: u32,
    group: Group,
    /// The type of its future.
    name: &'static str,
    alive: bool,
    cancelled: bool,
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// Taken while the task is polled, together with the future.
    waker: Option<Waker>,
    handle: Arc<TaskWaker>,
}

#[derive(Default)]
struct Slab {
    slots: Vec<Slot>,
    free: Vec<u32>,
    alive: usize,
}

impl Slab {
    fn get(&mut self, task: TaskRef) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(task.slot as usize)?;
        (slot.alive && slot.generation == task.generation).then_some(slot)
    }

    fn insert(
        &mut self,
        shared: &Arc<Shared>,
        group: Group,
        name: &'static str,
        future: Pin<Box<dyn Future<Output = ()>>>,
    ) -> TaskRef {
        self.alive += 1;
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            let task = TaskRef { slot: index, generation: slot.generation, group };
            slot.alive = true;
            slot.cancelled = false;
            slot.group = group;
            slot.name = name;
            slot.future = Some(future);
            let held = 1 + slot.waker.is_some() as usize;
            if !slot.handle.try_reuse(held, task) {
                slot.handle = TaskWaker::scheduled(shared, task);
                slot.waker = None;
            }
            if slot.waker.is_none() {
                slot.waker = Some(Waker::from(Arc::clone(&slot.handle)));
            }
            return task;
        }
        let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 tasks");
        let task = TaskRef { slot: index, generation: 0, group };
        let handle = TaskWaker::scheduled(shared, task);
        let waker = Some(Waker::from(Arc::clone(&handle)));
        let future = Some(future);
        let (alive, cancelled) = (true, false);
        self.slots.push(Slot { generation: 0, group, name, alive, cancelled, future, waker, handle });
        task
    }

    fn free(&mut self, task: TaskRef) {
        let slot = &mut self.slots[task.slot as usize];
        assert!(slot.alive && slot.generation == task.generation, "a task is freed once");
        slot.alive = false;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(task.slot);
        self.alive -= 1;
    }
}

struct GroupQueue {
    ready: RefCell<VecDeque<TaskRef>>,
    shares: Cell<u32>,
    virtual_ns: Cell<u64>,
    run_ns: Cell<u64>,
    polls: Cell<u64>,
    stalls: Cell<u64>,
    tasks: Cell<usize>,
}

pub(crate) struct Inner {
    shared: Arc<Shared>,
    clock: Rc<dyn Clock>,
    slab: RefCell<Slab>,
    groups: [GroupQueue; Group::COUNT],
    ready: Cell<usize>,
    timers: Timers,
    hooks: RefCell<Vec<Rc<dyn TurnHook>>>,
    /// Called once, when the executor ends.
    endings: RefCell<Vec<Box<dyn FnOnce()>>>,
    current: Cell<Option<TaskRef>>,
    turn_started: Cell<Instant>,
    quota_spent: Cell<bool>,
    in_turn: Cell<bool>,
    host: RefCell<Option<Waker>>,
    host_notified: Cell<bool>,
    last_virtual_ns: Cell<u64>,
    ended: Cell<bool>,
    /// Steps that the running poll has counted.
    steps: Cell<u64>,
    steps_max: Cell<u64>,
    stall_watch: OnceCell<StallWatch>,
}

impl Inner {
    fn push_ready(&self, task: TaskRef) {
        let group = &self.groups[task.group.index()];
        let mut ready = group.ready.borrow_mut();
        if ready.is_empty() {
            // A group that was idle does not save its time up.
            group.virtual_ns.set(group.virtual_ns.get().max(self.last_virtual_ns.get()));
        }
        ready.push_back(task);
        drop(ready);
        self.ready.set(self.ready.get() + 1);
        if !self.in_turn.get()
            && !self.host_notified.replace(true)
            && let Some(host) = &*self.host.borrow()
        {
            host.wake_by_ref();
        }
    }

    fn drain_remote(&self) {
        if !self.shared.remote_pending.load(Ordering::Acquire) {
            return;
        }
        let tasks = {
            let mut remote = self.shared.remote.lock().unwrap_or_else(PoisonError::into_inner);
            self.shared.remote_pending.store(false, Ordering::Release);
            std::mem::take(&mut *remote)
        };
        for task in tasks {
            self.push_ready(task);
        }
    }
}

/// Makes an executor the one whose tasks run on this thread; the one before returns when dropped.
pub struct Entered {
    before: Option<Rc<Inner>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let before = self.before.take();
        let _ = CURRENT.try_with(|current| current.replace(before));
    }
}

/// The scheduler of one shard. Cheap to clone; belongs to one thread.
#[derive(Clone)]
pub struct Executor {
    inner: Rc<Inner>,
}

impl Executor {
    /// An executor without tasks.
    pub fn new(clock: Rc<dyn Clock>) -> Executor {
        let shared = Arc::new(Shared {
            remote: Mutex::new(Vec::new()),
            remote_pending: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            host: Mutex::new(None),
        });
        let groups = Group::ALL.map(|group| GroupQueue {
            ready: RefCell::new(VecDeque::new()),
            shares: Cell::new(group.default_shares()),
            virtual_ns: Cell::new(0),
            run_ns: Cell::new(0),
            polls: Cell::new(0),
            stalls: Cell::new(0),
            tasks: Cell::new(0),
        });
        let inner = Rc::new(Inner {
            shared,
            clock,
            slab: RefCell::new(Slab::default()),
            groups,
            ready: Cell::new(0),
            timers: Timers::default(),
            hooks: RefCell::new(Vec::new()),
            endings: RefCell::new(Vec::new()),
            current: Cell::new(None),
            turn_started: Cell::new(Instant::START),
            quota_spent: Cell::new(false),
            in_turn: Cell::new(false),
            host: RefCell::new(None),
            host_notified: Cell::new(false),
            last_virtual_ns: Cell::new(0),
            ended: Cell::new(false),
            steps: Cell::new(0),
            steps_max: Cell::new(0),
            stall_watch: OnceCell::new(),
        });
        Executor { inner }
    }

    /// Makes this executor the current one of the thread, so that wakes on it need no lock.
    pub fn enter(&self) -> Entered {
        let before = CURRENT.with(|current| current.replace(Some(Rc::clone(&self.inner))));
        Entered { before }
    }

    /// Adds work for the edges of every turn.
    pub fn add_hook(&self, hook: Rc<dyn TurnHook>) {
        self.inner.hooks.borrow_mut().push(hook);
    }

    /// Calls `ending` when the executor has ended and its tasks are dropped: for parts of a shard that hold each other alive, such as a
    /// listener and the part that it listens to.
    pub fn on_shutdown(&self, ending: impl FnOnce() + 'static) {
        self.inner.endings.borrow_mut().push(Box::new(ending));
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.inner.shared)
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.inner.clock
    }

    pub(crate) fn timers(&self) -> &Timers {
        &self.inner.timers
    }

    /// Starts a task without a handle.
    pub(crate) fn spawn_detached<F: Future<Output = ()> + 'static>(&self, group: Group, future: F) {
        self.start(group, std::any::type_name::<F>(), Box::pin(future));
    }

    /// Queues a future of this name as a task; one that does not exist where the executor has ended.
    pub(crate) fn start(
        &self,
        group: Group,
        name: &'static str,
        future: Pin<Box<dyn Future<Output = ()>>>,
    ) -> TaskRef {
        if self.inner.ended.get() {
            return TaskRef { slot: u32::MAX, generation: 0, group };
        }
        let queue = &self.inner.groups[group.index()];
        queue.tasks.set(queue.tasks.get() + 1);
        let task = self.inner.slab.borrow_mut().insert(&self.inner.shared, group, name, future);
        self.inner.push_ready(task);
        task
    }

    /// Drops the future of a task; one that is being polled is dropped right after.
    pub(crate) fn cancel(&self, task: TaskRef) {
        let future = {
            let mut slab = self.inner.slab.borrow_mut();
            let Some(slot) = slab.get(task) else { return };
            let Some(future) = slot.future.take() else {
                slot.cancelled = true;
                return;
            };
            let group = slot.group;
            slab.free(task);
            self.task_ended(group);
            future
        };
        drop(future);
    }

    fn task_ended(&self, group: Group) {
        let queue = &self.inner.groups[group.index()];
        queue.tasks.set(queue.tasks.get() - 1);
    }

    /// Polls a task if it still exists and is not being polled.
    fn poll_task(&self, task: TaskRef) {
        let taken = {
            let mut slab = self.inner.slab.borrow_mut();
            let Some(slot) = slab.get(task) else { return };
            let Some(future) = slot.future.take() else { return };
            slot.handle.begin_poll();
            let waker = slot.waker.take().expect("a task that is not being polled has its waker");
            (future, waker, TaskRef { group: slot.group, ..task })
        };
        let (mut future, waker, task) = taken;
        let before = self.inner.current.replace(Some(task));
        let queue = &self.inner.groups[task.group.index()];
        queue.polls.set(queue.polls.get() + 1);
        self.inner.steps.set(0);
        let ready = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut slab = self.inner.slab.borrow_mut();
        let slot = slab.get(task).expect("a task is not freed while it is polled");
        slot.waker = Some(waker);
        if ready || slot.cancelled {
            let group = slot.group;
            slab.free(task);
            drop(slab);
            self.task_ended(group);
            drop(future);
        } else {
            slot.future = Some(future);
        }
        self.inner.current.set(before);
    }

    /// The group of the running task; `Maintenance` outside of tasks.
    pub fn current_group(&self) -> Group {
        self.inner.current.get().map_or(Group::Maintenance, |task| task.group)
    }

    /// Moves the running task to another group, from its next poll on; the calls that it makes from now on are made in that group. Nothing
    /// outside of tasks.
    pub fn move_current(&self, group: Group) {
        let inner = &*self.inner;
        let Some(task) = inner.current.get().filter(|task| task.group != group) else { return };
        let mut slab = inner.slab.borrow_mut();
        let slot = slab.get(task).expect("a task is not freed while it is polled");
        slot.group = group;
        slot.handle.group.store(group as u8, Ordering::Relaxed);
        drop(slab);
        let count = |of: Group, by: isize| {
            let tasks = &inner.groups[of.index()].tasks;
            tasks.set(tasks.get().checked_add_signed(by).expect("a group has its running task"));
        };
        count(task.group, -1);
        count(group, 1);
        inner.current.set(Some(TaskRef { group, ..task }));
    }

    /// Counts steps (rows, partitions, files) of the running poll, so that a test can see how long polls are where no
    /// time passes in them.
    pub fn count_steps(&self, steps: u64) {
        let steps = self.inner.steps.get() + steps;
        self.inner.steps.set(steps);
        self.inner.steps_max.set(self.inner.steps_max.get().max(steps));
    }

    /// The most steps that one poll has counted since the last call.
    pub fn take_longest_poll(&self) -> u64 {
        self.inner.steps_max.replace(0)
    }

    /// Whether the running task should yield: the turn has used its quota.
    pub fn need_preempt(&self) -> bool {
        if self.inner.quota_spent.get() {
            return true;
        }
        let spent = self.inner.clock.quota_spent(self.inner.turn_started.get(), TASK_QUOTA);
        self.inner.quota_spent.set(spent);
        spent
    }

    /// From now on every poll is timed, and `report` is called after one that took longer than `threshold`. To be called once, for
    /// turns ([`Executor::run_turn`]), on the shard's thread; costs a clock reading a poll. Its result shows other threads when the last poll began,
    /// in nanoseconds of this shard's clock; with [`POLL_OVER`] when it is over.
    pub fn watch_stalls(&self, threshold: Duration, report: impl Fn(Stall) + 'static) -> Arc<AtomicU64> {
        let poll_began = Arc::new(AtomicU64::new(POLL_OVER));
        let clock = &self.inner.clock;
        let cpu_read = Cell::new((clock.now(), clock.thread_cpu()));
        let watch =
            StallWatch { threshold, report: Box::new(report), poll_began: Arc::clone(&poll_began), cpu_read };
        assert!(self.inner.stall_watch.set(watch).is_ok(), "stalls are watched once");
        poll_began
    }

    /// Changes the share of the CPU that a group gets while others want it too. At least 1.
    pub fn set_shares(&self, group: Group, shares: u32) {
        self.inner.groups[group.index()].shares.set(shares.max(1));
    }

    /// The usage and queue of a group.
    pub fn stats(&self, group: Group) -> GroupStats {
        let queue = &self.inner.groups[group.index()];
        GroupStats {
            run_ns: queue.run_ns.get(),
            polls: queue.polls.get(),
            stalls: queue.stalls.get(),
            ready: queue.ready.borrow().len(),
            tasks: queue.tasks.get(),
            shares: queue.shares.get(),
        }
    }

    /// Whether there is something to do now, timers apart.
    pub fn has_work(&self) -> bool {
        self.inner.ready.get() > 0
            || self.inner.shared.remote_pending.load(Ordering::Acquire)
            || self.inner.hooks.borrow().iter().any(|hook| hook.has_input())
    }

    /// Monotonic time.
    pub fn now(&self) -> Instant {
        self.inner.clock.now()
    }

    /// The deadline of the next timer.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.inner.timers.next_deadline()
    }

    /// Wakes the tasks whose timers have expired.
    pub fn fire_timers(&self, now: Instant) {
        self.inner.timers.fire(now);
    }

    fn poll_hooks(&self) -> bool {
        let mut any = false;
        let mut index = 0;
        loop {
            let Some(hook) = self.inner.hooks.borrow().get(index).map(Rc::clone) else { return any };
            any |= hook.poll();
            index += 1;
        }
    }

    fn flush_hooks(&self) {
        let mut index = 0;
        loop {
            let Some(hook) = self.inner.hooks.borrow().get(index).map(Rc::clone) else { return };
            hook.flush();
            index += 1;
        }
    }

    /// Runs ready tasks, group by group, until none is ready or the quota is used. Whether work is left.
    pub fn run_turn(&self) -> bool {
        let inner = &*self.inner;
        inner.shared.sleeping.store(false, Ordering::Relaxed);
        inner.host_notified.set(false);
        inner.in_turn.set(true);
        inner.quota_spent.set(false);
        let mut now = inner.clock.now();
        inner.turn_started.set(now);
        if let Some(watch) = inner.stall_watch.get() {
            watch.read_cpu(&*inner.clock, now);
        }
        inner.timers.fire(now);
        loop {
            self.poll_hooks();
            inner.drain_remote();
            if inner.ready.get() == 0 {
                break;
            }
            while let Some(index) = self.next_group() {
                now = self.run_group(index, now);
                self.flush_hooks();
                if inner.quota_spent.get() {
                    break;
                }
            }
            if inner.quota_spent.get() {
                break;
            }
        }
        self.flush_hooks();
        inner.in_turn.set(false);
        self.has_work()
    }

    /// The ready group with the least virtual run time.
    fn next_group(&self) -> Option<usize> {
        if self.inner.ready.get() == 0 {
            return None;
        }
        let groups = self.inner.groups.iter().enumerate();
        let ready = groups.filter(|(_, group)| !group.ready.borrow().is_empty());
        ready.min_by_key(|(_, group)| group.virtual_ns.get()).map(|(index, _)| index)
    }

    /// Runs a group until it has no ready task or the turn's quota is used; charges it for the time since
    /// `began` and gives the time now.
    fn run_group(&self, index: usize, began: Instant) -> Instant {
        let inner = &*self.inner;
        let group = &inner.groups[index];
        inner.last_virtual_ns.set(group.virtual_ns.get());
        let mut polls = 0;
        let mut before = if inner.stall_watch.get().is_some() { inner.clock.now() } else { began };
        while let Some(task) = self.pop_front(group) {
            match inner.stall_watch.get() {
                Some(watch) => before = self.poll_watched(task, before, watch),
                None => self.poll_task(task),
            }
            polls += 1;
            if inner.quota_spent.get() || (polls % POLLS_BETWEEN_CLOCK_READS == 0 && self.need_preempt()) {
                break;
            }
        }
        if let Some(watch) = inner.stall_watch.get() {
            watch.poll_began.store(before.as_nanos() | POLL_OVER, Ordering::Relaxed);
        }
        let now = inner.clock.now();
        self.charge(group, (now - began).as_nanos() as u64);
        if now - inner.turn_started.get() >= TASK_QUOTA {
            inner.quota_spent.set(true);
        }
        now
    }

    /// Polls a task, and reports when that took too long; the time afterwards. `before` is the time of the last poll's end.
    fn poll_watched(&self, task: TaskRef, before: Instant, watch: &StallWatch) -> Instant {
        let name = self.inner.slab.borrow_mut().get(task).map(|slot| slot.name);
        watch.poll_began.store(before.as_nanos(), Ordering::Relaxed);
        self.poll_task(task);
        let now = self.inner.clock.now();
        let took = now - before;
        // The clock has been read, so a long poll need not wait for the next look at it to end the turn.
        if now - self.inner.turn_started.get() >= TASK_QUOTA {
            self.inner.quota_spent.set(true);
        }
        if took > watch.threshold
            && let Some(task_name) = name
        {
            let group = &self.inner.groups[task.group.index()];
            group.stalls.set(group.stalls.get() + 1);
            let cpu = watch.cpu_of(&*self.inner.clock, now, took);
            (watch.report)(Stall { group: task.group, task: task_name, took, cpu });
        }
        now
    }

    fn pop_front(&self, group: &GroupQueue) -> Option<TaskRef> {
        let task = group.ready.borrow_mut().pop_front()?;
        self.inner.ready.set(self.inner.ready.get() - 1);
        Some(task)
    }

    fn charge(&self, group: &GroupQueue, ns: u64) {
        group.run_ns.set(group.run_ns.get() + ns);
        let virtual_ns = ns.saturating_mul(1000) / u64::from(group.shares.get());
        group.virtual_ns.set(group.virtual_ns.get() + virtual_ns);
    }

    /// For a backend that chooses tasks itself: takes in messages and runs one ready task, the one that `pick`
    /// names of so many. Its group is charged `cost_ns`. With `flush`, or when no task is left, its output
    /// goes off; else it waits for the next call. Gives the task's group and slot, if one was ready.
    pub fn run_one(
        &self,
        cost_ns: u64,
        flush: bool,
        pick: impl FnOnce(usize) -> usize,
    ) -> Option<(Group, u32)> {
        let inner = &*self.inner;
        inner.in_turn.set(true);
        self.poll_hooks();
        inner.drain_remote();
        let chosen = (inner.ready.get() > 0).then(|| self.take_ready(pick(inner.ready.get())));
        if let Some(task) = chosen {
            inner.quota_spent.set(false);
            inner.turn_started.set(inner.clock.now());
            self.poll_task(task);
            self.charge(&inner.groups[task.group.index()], cost_ns);
        }
        if flush || inner.ready.get() == 0 {
            self.flush_hooks();
        }
        inner.in_turn.set(false);
        chosen.map(|task| (task.group, task.slot))
    }

    fn take_ready(&self, mut index: usize) -> TaskRef {
        assert!(index < self.inner.ready.get(), "pick one of the ready tasks");
        for group in &self.inner.groups {
            let mut ready = group.ready.borrow_mut();
            if index < ready.len() {
                self.inner.ready.set(self.inner.ready.get() - 1);
                return ready.remove(index).expect("the index lies inside the queue");
            }
            index -= ready.len();
        }
        unreachable!("the count of ready tasks is the sum of the queues")
    }

    /// To be called before the backend's thread sleeps; `host` is woken when there is work again. When this
    /// gives false there is work already.
    pub fn prepare_park(&self, host: &Waker) -> bool {
        let inner = &*self.inner;
        let known = inner.host.borrow().as_ref().is_some_and(|known| known.will_wake(host));
        if !known {
            *inner.host.borrow_mut() = Some(host.clone());
            *inner.shared.host.lock().unwrap_or_else(PoisonError::into_inner) = Some(host.clone());
        }
        inner.host_notified.set(false);
        inner.shared.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.has_work() {
            inner.shared.sleeping.store(false, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Number of tasks alive.
    pub fn task_count(&self) -> usize {
        self.inner.slab.borrow().alive
    }

    /// Drops every task, in the order of their slots, and refuses new ones. To be called while entered and
    /// not from inside a task.
    pub fn shutdown(&self) {
        let inner = &*self.inner;
        inner.ended.set(true);
        let mut index = 0;
        loop {
            let task = {
                let slab = inner.slab.borrow();
                let Some(slot) = slab.slots.get(index) else { break };
                slot.alive.then_some(TaskRef {
                    slot: index as u32,
                    generation: slot.generation,
                    group: slot.group,
                })
            };
            if let Some(task) = task {
                self.cancel(task);
            }
            index += 1;
        }
        inner.timers.clear();
        for queue in &inner.groups {
            queue.ready.borrow_mut().clear();
        }
        inner.ready.set(0);
        let hooks = std::mem::take(&mut *inner.hooks.borrow_mut());
        for hook in hooks {
            hook.shutdown();
        }
        let endings = std::mem::take(&mut *inner.endings.borrow_mut());
        for ending in endings {
            ending();
        }
    }
}
