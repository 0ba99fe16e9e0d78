//! Draining a node: it serves nobody any more and writes its memtables to SSTables. One request does it; others wait for that one, and the next one
//! after a failure writes the rest.

use std::cell::Cell;
use std::future::Future;

use admin::Mode;
use replica::ReplicaError;
use rt::sync::Semaphore;

/// How far a node is drained.
pub(crate) struct Draining {
    mode: Cell<Mode>,
    is_quiet: Cell<bool>,
    /// One request at a time.
    one: Semaphore,
}

impl Draining {
    /// Of a node that serves.
    pub(crate) fn new() -> Self {
        Self { mode: Cell::new(Mode::Normal), is_quiet: Cell::new(false), one: Semaphore::new(1) }
    }

    /// Normal, draining or drained.
    pub(crate) fn mode(&self) -> Mode {
        self.mode.get()
    }

    /// Whether nobody has had the node drained.
    pub(crate) fn is_normal(&self) -> bool {
        self.mode() == Mode::Normal
    }

    /// Drains: `quiet` ends service, once; `flush` writes the memtables, and again for each request after one that failed. The caller sees to it
    /// that the future is not dropped.
    ///
    /// # Errors
    /// Those of `flush`; [`ReplicaError::Stopped`]. The node serves nobody all the same.
    pub(crate) async fn run(
        &self,
        quiet: impl Future<Output = ()>,
        flush: impl Future<Output = Result<(), ReplicaError>>,
    ) -> Result<(), ReplicaError> {
        let _one = self.one.acquire(1).await.map_err(|_| ReplicaError::Stopped)?;
        if self.mode() == Mode::Drained {
            return Ok(());
        }
        self.mode.set(Mode::Draining);
        if !self.is_quiet.get() {
            quiet.await;
            self.is_quiet.set(true);
        }
        flush.await?;
        self.mode.set(Mode::Drained);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use rt::sync::oneshot;

    use super::*;

    fn broken() -> ReplicaError {
        ReplicaError::Storage("the disk is full".to_owned())
    }

    /// A flush that ends as the test says, and is counted.
    async fn told(told: oneshot::Receiver<bool>, flushes: &Cell<u32>) -> Result<(), ReplicaError> {
        flushes.set(flushes.get() + 1);
        if told.await == Ok(true) { Ok(()) } else { Err(broken()) }
    }

    #[test]
    fn a_drain_is_done_when_the_memtables_are_written_and_not_before() {
        let (draining, quiets, flushes) = (Draining::new(), Cell::new(0), Cell::new(0));
        let quiet = || async { quiets.set(quiets.get() + 1) };
        let (fail, first) = oneshot::channel();
        let (succeed, second) = oneshot::channel();
        let (_never, third) = oneshot::channel();
        let mut first = pin!(draining.run(quiet(), told(first, &flushes)));
        let mut second = pin!(draining.run(quiet(), told(second, &flushes)));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(draining.is_normal());
        assert!(first.as_mut().poll(&mut cx).is_pending());
        assert!(second.as_mut().poll(&mut cx).is_pending(), "the first one has not written anything yet");
        assert_eq!((draining.mode(), quiets.get(), flushes.get()), (Mode::Draining, 1, 1));
        assert!(fail.send(false).is_ok());
        assert_eq!(first.as_mut().poll(&mut cx), std::task::Poll::Ready(Err(broken())));
        assert!(second.as_mut().poll(&mut cx).is_pending(), "what the first one has left is written");
        assert_eq!((draining.mode(), quiets.get(), flushes.get()), (Mode::Draining, 1, 2));
        assert!(succeed.send(true).is_ok());
        assert_eq!(second.as_mut().poll(&mut cx), std::task::Poll::Ready(Ok(())));
        let mut third = pin!(draining.run(quiet(), told(third, &flushes)));
        assert_eq!(third.as_mut().poll(&mut cx), std::task::Poll::Ready(Ok(())));
        assert_eq!((draining.mode(), quiets.get(), flushes.get()), (Mode::Drained, 1, 2));
    }
}
