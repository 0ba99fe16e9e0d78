//! The open connections of an HTTP port: how long each may take, and which one makes room for a newcomer.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use http1::Activity;
use rt::{Instant, Rt, Sleep};

use crate::HttpServerConfig;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A request's header is awaited, or has begun to arrive.
    Header,
    /// A request is being carried out.
    Serving,
    /// An answer is being written, or the next request awaited.
    Idle,
}

/// One open connection.
pub(crate) struct Progress {
    phase: Cell<Phase>,
    since: Cell<Instant>,
    /// From when on there are no further requests.
    ends: Instant,
    /// When the last request was answered; at first the begin.
    answered: Cell<Instant>,
    evicted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Progress {
    fn enter(&self, phase: Phase, now: Instant) {
        self.phase.set(phase);
        self.since.set(now);
    }

    /// A request has arrived.
    pub(crate) fn serving(&self, now: Instant) {
        self.enter(Phase::Serving, now);
    }

    /// The request has been answered.
    pub(crate) fn answered(&self, now: Instant) {
        self.answered.set(now);
        self.enter(Phase::Idle, now);
    }

    /// Whether an answer now is the last one of the connection.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now >= self.ends
    }

    /// When the connection is closed unless it moves on; none while a request is carried out.
    fn deadline(&self, config: &HttpServerConfig) -> Option<Instant> {
        let allowed: Duration = match self.phase.get() {
            Phase::Header => config.header_timeout,
            Phase::Serving => return None,
            Phase::Idle => config.idle_timeout,
        };
        // An answer that comes later than that has its time to be taken all the same.
        let ends = self.ends.max(self.answered.get() + config.idle_timeout);
        Some(ends.min(self.since.get() + allowed))
    }

    fn evict(&self) {
        self.evicted.set(true);
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

impl Activity for Progress {
    fn read(&self, now: Instant) {
        if self.phase.get() == Phase::Idle {
            self.enter(Phase::Header, now);
        }
    }

    fn wrote(&self, now: Instant) {
        if self.phase.get() == Phase::Idle {
            self.since.set(now);
        }
    }
}

/// All connections of one port.
#[derive(Default)]
pub(crate) struct Connections {
    open: RefCell<BTreeMap<u64, Rc<Progress>>>,
    next: Cell<u64>,
    operations: Rc<Cell<usize>>,
}

/// A request that is carried out to its end, with or without its client. It counts until it is dropped.
pub(crate) struct Operation(Rc<Cell<usize>>);

impl Drop for Operation {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Connections {
    /// Counts a request in that does not end with its client; none when there are as many as may be.
    pub(crate) fn begin_operation(&self, operations_max: usize) -> Option<Operation> {
        let running = self.operations.get();
        if running >= operations_max {
            return None;
        }
        self.operations.set(running + 1);
        Some(Operation(self.operations.clone()))
    }

    /// Counts a connection in; at the limit the one that has waited longest for its client is closed. None when all carry
    /// out requests.
    pub(crate) fn admit(self: &Rc<Self>, now: Instant, config: &HttpServerConfig) -> Option<Admitted> {
        let connections_max = config.connections_max;
        let mut open = self.open.borrow_mut();
        if open.len() >= connections_max {
            let waiting = open.iter().filter(|(_, progress)| progress.phase.get() != Phase::Serving);
            let oldest =
                waiting.min_by_key(|(_, progress)| progress.since.get()).map(|(number, _)| *number)?;
            if let Some(progress) = open.remove(&oldest) {
                progress.evict();
            }
        }
        let number = self.next.get();
        self.next.set(number + 1);
        let progress = Rc::new(Progress {
            phase: Cell::new(Phase::Header),
            since: Cell::new(now),
            ends: now + config.connection_lifetime_max,
            answered: Cell::new(now),
            evicted: Cell::new(false),
            waker: RefCell::default(),
        });
        open.insert(number, Rc::clone(&progress));
        drop(open);
        Some(Admitted { connections: Rc::clone(self), number, progress })
    }
}

/// A connection that counts; it ceases to when dropped.
pub(crate) struct Admitted {
    connections: Rc<Connections>,
    number: u64,
    pub(crate) progress: Rc<Progress>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.connections.open.borrow_mut().remove(&self.number);
    }
}

/// Runs a connection until it ends, exceeds a time limit while no request is carried out, or has to make room.
pub(crate) async fn watch<T>(
    rt: &Rt,
    config: &HttpServerConfig,
    progress: &Progress,
    connection: impl Future<Output = T>,
) -> Option<T> {
    let mut connection = pin!(connection);
    let mut timer: Option<Sleep> = None;
    poll_fn(|cx| {
        *progress.waker.borrow_mut() = Some(cx.waker().clone());
        if progress.evicted.get() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(Some(ended));
        }
        loop {
            let Some(deadline) = progress.deadline(config) else { return Poll::Pending };
            let sleep = match &mut timer {
                Some(sleep) if sleep.deadline() <= deadline => sleep,
                timer => timer.insert(rt.sleep_until(deadline)),
            };
            if Pin::new(sleep).poll(cx).is_pending() {
                return Poll::Pending;
            }
            timer = None;
            if rt.now() >= deadline {
                return Poll::Ready(None);
            }
        }
    })
    .await
}
