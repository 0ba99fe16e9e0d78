//! A channel for one value between two tasks of a shard.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::Disconnected;

struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
    sender_gone: bool,
    receiver_gone: bool,
}

/// Gives the value.
pub struct Sender<T> {
    state: Rc<RefCell<State<T>>>,
}

/// Waits for the value: a future of `Result<T, Disconnected>`.
pub struct Receiver<T> {
    state: Rc<RefCell<State<T>>>,
}

/// Makes a channel for one value.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state = State { value: None, waker: None, sender_gone: false, receiver_gone: false };
    let state = Rc::new(RefCell::new(state));
    (Sender { state: Rc::clone(&state) }, Receiver { state })
}

impl<T> Sender<T> {
    /// Hands the value over; gives it back when nobody waits for it any more.
    ///
    /// # Errors
    /// The value, when the receiver is gone.
    pub fn send(self, value: T) -> Result<(), T> {
        let mut state = self.state.borrow_mut();
        if state.receiver_gone {
            return Err(value);
        }
        state.value = Some(value);
        Ok(())
        // Dropping the sender wakes the receiver.
    }

    /// Whether the receiver is gone.
    pub fn is_disconnected(&self) -> bool {
        self.state.borrow().receiver_gone
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.state.borrow_mut();
        state.sender_gone = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Receiver<T> {
    /// The value, if it is there.
    pub fn try_recv(&mut self) -> Option<T> {
        self.state.borrow_mut().value.take()
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, Disconnected>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.state.borrow_mut();
        if let Some(value) = state.value.take() {
            return Poll::Ready(Ok(value));
        }
        if state.sender_gone {
            return Poll::Ready(Err(Disconnected));
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => state.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.state.borrow_mut();
        state.receiver_gone = true;
        let value = state.value.take();
        let waker = state.waker.take();
        drop(state);
        drop((value, waker));
    }
}
