//! One result for many tasks: the work is done once, and all its waiters get the same result.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::Poll;

use super::Disconnected;
use super::waiters::Waiters;

enum Value<T> {
    Pending,
    Set(T),
    Abandoned,
}

struct State<T> {
    value: RefCell<Value<T>>,
    waiters: Waiters,
}

/// Waits for a value that is set once. Clones wait for the same value.
pub struct Shared<T> {
    state: Rc<State<T>>,
}

/// Sets the value of a [`Shared`]; when dropped unset, its waiters get [`Disconnected`].
pub struct SharedSetter<T> {
    state: Rc<State<T>>,
}

impl<T: Clone> Shared<T> {
    /// A value that is not there yet, and its setter.
    pub fn pending() -> (SharedSetter<T>, Shared<T>) {
        let state = Rc::new(State { value: RefCell::new(Value::Pending), waiters: Waiters::default() });
        (SharedSetter { state: Rc::clone(&state) }, Shared { state })
    }

    /// The value, if it is there.
    ///
    /// # Errors
    /// [`Disconnected`] when the setter was dropped without setting a value.
    pub fn try_get(&self) -> Option<Result<T, Disconnected>> {
        match &*self.state.value.borrow() {
            Value::Pending => None,
            Value::Set(value) => Some(Ok(value.clone())),
            Value::Abandoned => Some(Err(Disconnected)),
        }
    }

    /// Waits for the value.
    ///
    /// # Errors
    /// [`Disconnected`] when the setter is dropped without setting a value.
    pub fn get(&self) -> impl Future<Output = Result<T, Disconnected>> + use<T> {
        let shared = self.clone();
        let mut place = Place { state: Rc::clone(&self.state), key: None };
        poll_fn(move |cx| match shared.try_get() {
            Some(result) => Poll::Ready(result),
            None => {
                place.state.waiters.register(&mut place.key, cx.waker());
                Poll::Pending
            }
        })
    }
}

struct Place<T> {
    state: Rc<State<T>>,
    key: Option<u64>,
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.state.waiters.remove(key);
        }
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared { state: Rc::clone(&self.state) }
    }
}

impl<T> SharedSetter<T> {
    /// Sets the value and wakes all waiters.
    pub fn set(self, value: T) {
        *self.state.value.borrow_mut() = Value::Set(value);
        // Dropping the setter wakes the waiters.
    }
}

impl<T> Drop for SharedSetter<T> {
    fn drop(&mut self) {
        let mut value = self.state.value.borrow_mut();
        if matches!(*value, Value::Pending) {
            *value = Value::Abandoned;
        }
        drop(value);
        self.state.waiters.wake_all();
    }
}
