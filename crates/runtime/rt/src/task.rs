//! Handles of spawned tasks, and the wakers that put a task back into its run queue.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering, fence};
use std::task::{Context, Poll, Wake, Waker};

use crate::executor::{Executor, Shared, schedule};
use crate::group::Group;

/// Names one task of one executor. The generation distinguishes tasks that used the same slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TaskRef {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    pub(crate) group: Group,
}

const IDLE: u8 = 0;
const SCHEDULED: u8 = 1;

/// The shared part of a task's wakers. Sent anywhere; the task itself never leaves its shard.
pub(crate) struct TaskWaker {
    shared: Arc<Shared>,
    slot: u32,
    generation: AtomicU32,
    group: AtomicU8,
    state: AtomicU8,
}

impl TaskWaker {
    /// A waker of a task that is about to be queued.
    pub(crate) fn scheduled(shared: &Arc<Shared>, task: TaskRef) -> Arc<TaskWaker> {
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
    pub(crate) fn try_reuse(self: &Arc<TaskWaker>, held: usize, task: TaskRef) -> bool {
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
    pub(crate) fn begin_poll(&self) {
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

/// The result of a task, for its handle.
pub(crate) struct JoinCell<T> {
    output: RefCell<Option<T>>,
    waker: RefCell<Option<Waker>>,
    finished: Cell<bool>,
}

impl<T> JoinCell<T> {
    pub(crate) fn new() -> Rc<JoinCell<T>> {
        Rc::new(JoinCell {
            output: RefCell::new(None),
            waker: RefCell::new(None),
            finished: Cell::new(false),
        })
    }

    pub(crate) fn finish(&self, output: T) {
        *self.output.borrow_mut() = Some(output);
        self.finished.set(true);
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A spawned task. Awaiting it gives its result; dropping it cancels the task at once: its future is dropped
/// before `drop` returns (after the running poll, when a task drops its own handle).
#[must_use = "a task is cancelled when its handle is dropped; call detach() to let it run"]
pub struct Task<T> {
    executor: Executor,
    task: TaskRef,
    cell: Rc<JoinCell<T>>,
    detached: bool,
}

impl<T> Task<T> {
    pub(crate) fn new(executor: Executor, task: TaskRef, cell: Rc<JoinCell<T>>) -> Task<T> {
        Task { executor, task, cell, detached: false }
    }

    /// Lets the task run to its end without the handle.
    pub fn detach(mut self) {
        self.detached = true;
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.cell.finished.get()
    }

    /// Ends the task where it waits and gives its result if it had one already.
    pub async fn cancel(self) -> Option<T> {
        self.executor.cancel(self.task);
        self.cell.output.borrow_mut().take()
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        if let Some(output) = self.cell.output.borrow_mut().take() {
            return Poll::Ready(output);
        }
        let mut waker = self.cell.waker.borrow_mut();
        match &mut *waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        if !self.detached && !self.cell.finished.get() {
            self.executor.cancel(self.task);
        }
    }
}

impl<T> std::fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Task({} of {})", self.task.slot, self.task.group.name())
    }
}
