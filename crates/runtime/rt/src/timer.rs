//! Futures that end with time.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use crate::executor::Executor;
use crate::instant::Instant;

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
