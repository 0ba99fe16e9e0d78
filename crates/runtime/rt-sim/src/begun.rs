//! Tasks that a test begins on a simulated shard and whose result it waits for from outside.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

use rt::{Group, Rt, Task};

/// A task on a shard; dropping it cancels the task.
pub struct Begun<T> {
    task: Task<()>,
    result: Rc<RefCell<Option<T>>>,
}

impl<T: 'static> Begun<T> {
    /// Starts `future` on the shard of `rt`.
    pub fn new(rt: &Rt, group: Group, future: impl Future<Output = T> + 'static) -> Begun<T> {
        let result = Rc::new(RefCell::new(None));
        let output = Rc::clone(&result);
        let task = rt.spawn(group, async move { *output.borrow_mut() = Some(future.await) });
        Begun { task, result }
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// The result of a task that has ended.
    pub(crate) fn take(self) -> T {
        let output = self.result.borrow_mut().take();
        output.expect("a finished task has left its result")
    }
}
