//! Timers of one shard: an ordered map from deadline to waker, and the futures on it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use crate::executor::Executor;
use crate::instant::Instant;

/// The armed timers. The sequence number preserves the order in which equal deadlines were armed.
#[derive(Default)]
pub(crate) struct Timers {
    armed: RefCell<BTreeMap<(Instant, u64), Waker>>,
    sequence: Cell<u64>,
    /// The deadline of the first of them: a simulator reads it of every shard at every step.
    first: Cell<Option<Instant>>,
}

impl Timers {
    fn arm(&self, deadline: Instant, waker: &Waker) -> u64 {
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        self.armed.borrow_mut().insert((deadline, sequence), waker.clone());
        self.note_armed(deadline);
        sequence
    }

    fn rearm(&self, deadline: Instant, sequence: u64, waker: &Waker) {
        let mut armed = self.armed.borrow_mut();
        let known = armed.entry((deadline, sequence)).or_insert_with(|| waker.clone());
        known.clone_from(waker);
        drop(armed);
        self.note_armed(deadline);
    }

    fn disarm(&self, deadline: Instant, sequence: u64) {
        let mut armed = self.armed.borrow_mut();
        let waker = armed.remove(&(deadline, sequence));
        if self.first.get() == Some(deadline) {
            self.first.set(first_of(&armed));
        }
        drop(armed);
        drop(waker);
    }

    fn note_armed(&self, deadline: Instant) {
        if self.first.get().is_none_or(|first| deadline < first) {
            self.first.set(Some(deadline));
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.first.get()
    }

    pub(crate) fn fire(&self, now: Instant) {
        while self.first.get().is_some_and(|first| first <= now) {
            let waker = {
                let mut armed = self.armed.borrow_mut();
                let fired = armed.pop_first();
                self.first.set(first_of(&armed));
                fired
            };
            if let Some((_, waker)) = waker {
                waker.wake();
            }
        }
    }

    pub(crate) fn clear(&self) {
        let armed = std::mem::take(&mut *self.armed.borrow_mut());
        self.first.set(None);
        drop(armed);
    }
}

fn first_of(armed: &BTreeMap<(Instant, u64), Waker>) -> Option<Instant> {
    armed.first_key_value().map(|((deadline, _), _)| *deadline)
}

/// Waits until an instant; made by [`crate::Rt::sleep`] and [`crate::Rt::sleep_until`].
#[must_use = "a sleep does nothing unless awaited"]
pub struct Sleep {
    executor: Executor,
    deadline: Instant,
    armed: Option<u64>,
}

impl Sleep {
    pub(crate) fn new(executor: Executor, deadline: Instant) -> Sleep {
        Sleep { executor, deadline, armed: None }
    }

    /// When it ends.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.executor.clock().now() >= self.deadline {
            return Poll::Ready(());
        }
        match self.armed {
            Some(sequence) => self.executor.timers().rearm(self.deadline, sequence, cx.waker()),
            None => self.armed = Some(self.executor.timers().arm(self.deadline, cx.waker())),
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(sequence) = self.armed {
            self.executor.timers().disarm(self.deadline, sequence);
        }
    }
}

/// The time given to a future ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time limit was reached")
    }
}

impl std::error::Error for Elapsed {}

/// Drives `future` until `sleep` ends. The timer is armed only when the future has to wait.
pub(crate) async fn timeout<F: Future>(mut sleep: Sleep, future: F) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(&mut sleep).poll(cx).map(|()| Err(Elapsed))
    })
    .await
}
