//! Handles of spawned tasks.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::executor::{Executor, TaskRef};
use crate::group::Group;

/// The result of a task, for its handle.
struct JoinCell<T> {
    output: RefCell<Option<T>>,
    waker: RefCell<Option<Waker>>,
    finished: Cell<bool>,
}

impl<T> JoinCell<T> {
    fn new() -> Rc<JoinCell<T>> {
        Rc::new(JoinCell {
            output: RefCell::new(None),
            waker: RefCell::new(None),
            finished: Cell::new(false),
        })
    }

    fn finish(&self, output: T) {
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

impl Executor {
    /// Starts a task.
    pub fn spawn<T: 'static>(&self, group: Group, future: impl Future<Output = T> + 'static) -> Task<T> {
        let cell = JoinCell::new();
        let result = Rc::clone(&cell);
        let name = std::any::type_name_of_val(&future);
        let task = self.start(group, name, Box::pin(async move { result.finish(future.await) }));
        Task { executor: self.clone(), task, cell, detached: false }
    }
}

impl<T> Task<T> {
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
