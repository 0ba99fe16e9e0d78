//! A bounded queue from many tasks of a shard to one.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::Disconnected;
use super::waiters::Waiters;

struct State<T> {
    queue: RefCell<VecDeque<T>>,
    queue_max: usize,
    senders: Cell<usize>,
    receiver_gone: Cell<bool>,
    receiver: RefCell<Option<Waker>>,
    waiting: Waiters,
}

impl<T> State<T> {
    fn wake_receiver(&self) {
        let waker = self.receiver.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Puts values in.
pub struct Sender<T> {
    state: Rc<State<T>>,
}

/// Takes values out.
pub struct Receiver<T> {
    state: Rc<State<T>>,
}

/// Why [`Sender::try_send`] gave the value back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// The queue is full.
    Full(T),
    /// The receiver is gone.
    Disconnected(T),
}

/// Makes a queue of at most `queue_max` values (at least 1).
pub fn channel<T>(queue_max: usize) -> (Sender<T>, Receiver<T>) {
    assert!(queue_max > 0, "a queue without room");
    let state = Rc::new(State {
        queue: RefCell::new(VecDeque::new()),
        queue_max,
        senders: Cell::new(1),
        receiver_gone: Cell::new(false),
        receiver: RefCell::new(None),
        waiting: Waiters::default(),
    });
    (Sender { state: Rc::clone(&state) }, Receiver { state })
}

impl<T> Sender<T> {
    /// Appends the value, or gives it back at once.
    ///
    /// # Errors
    /// [`TrySendError::Full`] when the queue is full, [`TrySendError::Disconnected`] when the receiver is gone; both
    /// hold the value.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        if self.state.receiver_gone.get() {
            return Err(TrySendError::Disconnected(value));
        }
        let mut queue = self.state.queue.borrow_mut();
        if queue.len() >= self.state.queue_max {
            return Err(TrySendError::Full(value));
        }
        queue.push_back(value);
        drop(queue);
        self.state.wake_receiver();
        Ok(())
    }

    /// Appends the value, waiting for room.
    ///
    /// # Errors
    /// [`Disconnected`] when the receiver is gone; the value is dropped then.
    pub async fn send(&self, value: T) -> Result<(), Disconnected> {
        let mut value = Some(value);
        let mut place = Place { state: &self.state, key: None };
        poll_fn(|cx| match self.try_send(value.take().expect("polled until it is sent")) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(TrySendError::Disconnected(_)) => Poll::Ready(Err(Disconnected)),
            Err(TrySendError::Full(back)) => {
                value = Some(back);
                self.state.waiting.register(&mut place.key, cx.waker());
                Poll::Pending
            }
        })
        .await
    }

    /// Whether the receiver is gone.
    pub fn is_disconnected(&self) -> bool {
        self.state.receiver_gone.get()
    }

    /// Number of values in the queue.
    pub fn len(&self) -> usize {
        self.state.queue.borrow().len()
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The place of a waiting sender; given up when its future is dropped.
struct Place<'a, T> {
    state: &'a State<T>,
    key: Option<u64>,
}

impl<T> Drop for Place<'_, T> {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        // One that was woken and does not use the room (or used it) lets the next one look.
        if !self.state.waiting.remove(key) && self.state.queue.borrow().len() < self.state.queue_max {
            self.state.waiting.wake_one();
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.state.senders.set(self.state.senders.get() + 1);
        Sender { state: Rc::clone(&self.state) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.state.senders.set(self.state.senders.get() - 1);
        if self.state.senders.get() == 0 {
            self.state.wake_receiver();
        }
    }
}

impl<T> Receiver<T> {
    /// The oldest value, if there is one.
    pub fn try_recv(&mut self) -> Option<T> {
        let value = self.state.queue.borrow_mut().pop_front()?;
        self.state.waiting.wake_one();
        Some(value)
    }

    /// The oldest value; `None` when the queue is empty and all senders are gone.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if let Some(value) = self.try_recv() {
            return Poll::Ready(Some(value));
        }
        if self.state.senders.get() == 0 {
            return Poll::Ready(None);
        }
        let mut waker = self.state.receiver.borrow_mut();
        match &mut *waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Waits for the oldest value; `None` when the queue is empty and all senders are gone.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Number of values in the queue.
    pub fn len(&self) -> usize {
        self.state.queue.borrow().len()
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.state.receiver_gone.set(true);
        let values = std::mem::take(&mut *self.state.queue.borrow_mut());
        drop(values);
        self.state.waiting.wake_all();
    }
}
