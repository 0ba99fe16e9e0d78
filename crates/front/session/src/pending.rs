//! The requests of one connection that have to wait: each with a waker of its own, so that one that resumes does not
//! cause the others to be polled.
//!
//! A request is first polled in place, with the connection's own waker and in memory that the shard's requests share.
//! Only one that is not done then comes here, and only one that is not done at its second poll gets a waker.

use std::cell::RefCell;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::admission::Charge;

/// So many slots are reserved for later requests.
const KEPT_MAX: usize = 64;

/// Memory for the future of one request.
pub(crate) type Place<F> = Pin<Box<Option<F>>>;

/// Empty places of a shard.
pub(crate) struct Places<F> {
    free: RefCell<Vec<Place<F>>>,
}

impl<F> Default for Places<F> {
    fn default() -> Self {
        Self { free: RefCell::default() }
    }
}

impl<F> Places<F> {
    /// A place with a future in it.
    pub(crate) fn put(&self, future: F) -> Place<F> {
        match self.free.borrow_mut().pop() {
            Some(mut place) => {
                place.as_mut().set(Some(future));
                place
            }
            None => Box::pin(Some(future)),
        }
    }

    /// Takes a place back and drops the future in it.
    pub(crate) fn free(&self, mut place: Place<F>) {
        place.as_mut().set(None);
        let mut free = self.free.borrow_mut();
        if free.len() < KEPT_MAX {
            free.push(place);
        }
    }
}

/// Polls the future in a place.
pub(crate) fn poll_place<F: Future>(place: &mut Place<F>, cx: &mut Context<'_>) -> Poll<F::Output> {
    place.as_mut().as_pin_mut().expect("a request that is polled is in its place").poll(cx)
}

/// Wakes the connection and remembers for which request.
struct RequestWaker {
    woken: AtomicBool,
    connection: Waker,
}

impl Wake for RequestWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.connection.wake_by_ref();
        }
    }
}

struct PendingRequest<F> {
    stream: i16,
    place: Place<F>,
    /// `None` before the second poll: until then the request wakes the connection itself.
    waker: Option<(Arc<RequestWaker>, Waker)>,
    /// Gives the request's bytes back with the request.
    _charge: Charge,
}

/// The requests of one connection that wait.
pub(crate) struct PendingRequests<F> {
    requests: Vec<PendingRequest<F>>,
}

impl<F: Future> PendingRequests<F> {
    /// None.
    pub(crate) fn new() -> Self {
        Self { requests: Vec::new() }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Adds a request that was polled with the connection's waker and has to wait.
    pub(crate) fn push(&mut self, stream: i16, place: Place<F>, charge: Charge) {
        self.requests.push(PendingRequest { stream, place, waker: None, _charge: charge });
    }

    /// Polls the requests that were woken, and hands out those that are done, each with its stream. Ends early, and wakes the connection
    /// again, when `done` says that the shard has other work: answers may be large, and many of them ready at once.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        places: &Places<F>,
        mut done: impl FnMut(i16, F::Output) -> ControlFlow<()>,
    ) -> usize {
        let before = self.requests.len();
        let mut index = 0;
        while let Some(request) = self.requests.get_mut(index) {
            let Poll::Ready(output) = request.poll(cx) else {
                index += 1;
                continue;
            };
            let request = self.requests.swap_remove(index);
            places.free(request.place);
            if done(request.stream, output).is_break() {
                cx.waker().wake_by_ref();
                break;
            }
        }
        if self.requests.is_empty() && self.requests.capacity() > KEPT_MAX {
            self.requests = Vec::new();
        }
        before - self.requests.len()
    }
}

impl<F: Future> PendingRequest<F> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<F::Output> {
        let waker = match &self.waker {
            Some((request_waker, waker)) => {
                // A task's waker stays the same as long as the task lives; should it not, nobody would be woken.
                assert!(request_waker.connection.will_wake(cx.waker()));
                if !request_waker.woken.swap(false, Ordering::AcqRel) {
                    return Poll::Pending;
                }
                waker
            }
            None => {
                let request_waker =
                    Arc::new(RequestWaker { woken: AtomicBool::new(false), connection: cx.waker().clone() });
                let waker = Waker::from(Arc::clone(&request_waker));
                &self.waker.insert((request_waker, waker)).1
            }
        };
        poll_place(&mut self.place, &mut Context::from_waker(waker))
    }
}
