//! Requests of peers on this shard: which are served at once, which wait, and which are refused.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use rt::LocalBoxFuture;
use rt::sync::oneshot;

use crate::inbound::Inbound;
use crate::lane;
use crate::queue::{Budget, Queue, Queued};
use crate::request::{ForwardedFrom, ForwardedOutcome, Incoming, Origin, Request};
use crate::served::{Served, ServedSet};
use crate::shard::Shard;
use crate::stats::Dropped;
use crate::{Refusal, RpcError, Verb};

/// Serves a request of a verb.
pub(crate) type Handler = Rc<dyn Fn(Incoming, Reply) -> LocalBoxFuture<()>>;

/// The requests of a [lane](crate::lane).
struct Lane {
    /// Half of the lane's bytes; the other half is for queued requests.
    serving_bytes_max: usize,
    waiting: RefCell<Queue<Request>>,
    serving: Cell<usize>,
    serving_bytes: Cell<usize>,
}

/// The requests of all peers on this shard, and their handlers.
pub(crate) struct Serving {
    shard: Rc<Shard>,
    handlers: RefCell<Vec<Option<Handler>>>,
    /// Requests that came over connections of other shards and are being served here.
    forwarded: RefCell<ServedSet>,
    lanes: [Lane; lane::LANES],
    serving_max: usize,
}

impl Serving {
    /// Nothing is served yet.
    pub(crate) fn new(shard: &Rc<Shard>) -> Rc<Serving> {
        let limits = &shard.config.limits;
        let new = |number: usize| {
            let bytes_max = lane::bytes_max(limits, number);
            let budget = Budget::new(bytes_max);
            Lane {
                serving_bytes_max: bytes_max,
                waiting: RefCell::new(Queue::new(limits.waiting_count_max, bytes_max, &budget)),
                serving: Cell::new(0),
                serving_bytes: Cell::new(0),
            }
        };
        Rc::new(Serving {
            shard: Rc::clone(shard),
            handlers: RefCell::new(vec![None; Verb::COUNT]),
            forwarded: RefCell::default(),
            lanes: std::array::from_fn(new),
            serving_max: limits.serving_max.max(1),
        })
    }

    /// Serves the requests of a verb with `handler` from now on.
    ///
    /// # Panics
    /// When the verb has a handler already.
    pub(crate) fn serve(&self, verb: Verb, handler: Handler) {
        let mut handlers = self.handlers.borrow_mut();
        let place = handlers.get_mut(verb.index()).expect("one place a verb");
        assert!(place.replace(handler).is_none(), "{} has one handler", verb.name());
    }

    /// The handler of a verb.
    pub(crate) fn handler(&self, verb: Verb) -> Option<Handler> {
        self.handlers.borrow().get(verb.index()).cloned().flatten()
    }

    fn lane(&self, verb: Verb) -> &Lane {
        &self.lanes[lane::lane_of(verb)]
    }

    /// Requests that are being served, that wait, and the bytes of both.
    pub(crate) fn depth(&self) -> (usize, usize, usize) {
        self.lanes.iter().fold((0, 0, 0), |(serving, waiting, bytes), lane| {
            let queue = lane.waiting.borrow();
            let bytes = bytes + lane.serving_bytes.get() + queue.bytes();
            (serving + lane.serving.get(), waiting + queue.len(), bytes)
        })
    }

    /// Forgets the requests that wait; the shard stops.
    pub(crate) fn clear(&self) {
        for lane in &self.lanes {
            while lane.waiting.borrow_mut().pop().is_some() {}
        }
    }

    /// Ends the requests of other shards' connections that are being served.
    pub(crate) fn end_forwarded(&self) {
        let forwarded = self.forwarded.borrow_mut().clear();
        drop(forwarded);
    }

    /// Forgets the handlers; they may hold this shard alive.
    pub(crate) fn clear_handlers(&self) {
        let handlers = std::mem::take(&mut *self.handlers.borrow_mut());
        drop(handlers);
    }
}

impl Lane {
    fn may_serve(&self, serving: &Serving, bytes: usize) -> bool {
        let fits = self.serving.get() == 0 || self.serving_bytes.get() + bytes <= self.serving_bytes_max;
        self.serving.get() < serving.serving_max && fits
    }
}

impl Serving {
    /// Serves a request of a peer now or later, or refuses it.
    pub(crate) fn take(self: &Rc<Self>, request: Request) {
        let lane = self.lane(request.verb);
        if lane.waiting.borrow().is_empty() && lane.may_serve(self, request.bytes()) {
            self.begin(lane, request);
            return;
        }
        let expired = |request: Request| {
            self.shard.counters.dropped(request.verb, Dropped::ExpiredUnserved);
            request.expired();
        };
        let refused = lane.waiting.borrow_mut().push(request, self.shard.rt.now(), expired);
        if let Err(request) = refused {
            self.shard.counters.dropped(request.verb, Dropped::Overloaded);
            request.refuse(Refusal::new(Refusal::OVERLOADED, "too many requests wait"));
        }
    }

    /// A request was served, or given up.
    pub(crate) fn done(self: &Rc<Self>, verb: Verb, bytes: usize) {
        let lane = self.lane(verb);
        assert!(lane.serving.get() > 0, "a request that ends was being served");
        lane.serving.set(lane.serving.get() - 1);
        lane.serving_bytes.set(lane.serving_bytes.get() - bytes);
        loop {
            let next = {
                let mut waiting = lane.waiting.borrow_mut();
                match waiting.front_bytes() {
                    Some(bytes) if lane.may_serve(self, bytes) => waiting.pop(),
                    _ => None,
                }
            };
            let Some(request) = next else { return };
            self.begin(lane, request);
        }
    }

    fn begin(self: &Rc<Self>, lane: &Lane, request: Request) {
        let shard = &self.shard;
        if request.deadline <= shard.rt.now() {
            shard.counters.dropped(request.verb, Dropped::ExpiredUnserved);
            request.expired();
            return;
        }
        let Some(handler) = self.handler(request.verb) else {
            shard.counters.dropped(request.verb, Dropped::UnknownVerb);
            let message = format!("{} is not served here", request.verb.name());
            request.refuse(Refusal::new(Refusal::UNKNOWN_VERB, message));
            return;
        };
        let bytes = request.bytes();
        lane.serving.set(lane.serving.get() + 1);
        lane.serving_bytes.set(lane.serving_bytes.get() + bytes);
        let Request { origin, verb, body, deadline } = request;
        let served = |stream| Served { stream, verb, deadline, bytes, forwarded: false, task: None };
        match origin {
            Origin::Connection { connection, stream } => {
                let (from, address) = (connection.from, connection.address);
                let incoming = Incoming { from, address, verb, body, deadline };
                let place = connection.served.borrow_mut().begin(served(stream));
                let reply = Reply(ReplyTo::Peer {
                    serving: Rc::clone(self),
                    connection: Rc::clone(&connection),
                    place,
                });
                let task = shard.rt.spawn(verb.group(), handler(incoming, reply));
                connection.served.borrow_mut().started(place, task);
            }
            Origin::Shard(from) => {
                let ForwardedFrom { host: from, address, answer } = *from;
                let incoming = Incoming { from, address, verb, body, deadline };
                let place = self.forwarded.borrow_mut().begin(served(None));
                let reply = Reply(ReplyTo::Shard { serving: Rc::clone(self), place, answer });
                let task = shard.rt.spawn(verb.group(), handler(incoming, reply));
                self.forwarded.borrow_mut().started(place, task);
            }
        }
    }

    /// The handler of a request of a connection of this shard has ended.
    fn finished(self: &Rc<Self>, connection: &Inbound, place: usize, outcome: Result<Bytes, Refusal>) {
        let served = connection.served.borrow_mut().end(place);
        let Some(served) = served else { return };
        if let Some(task) = served.task {
            task.detach();
        }
        let bytes = outcome.as_ref().map_or(0, Bytes::len) as u64;
        self.shard.counters.verb(served.verb, |stats| {
            stats.served += 1;
            stats.served_bytes += bytes;
        });
        connection.stats.served(served.bytes);
        connection.answer(served.stream, served.verb, served.deadline, outcome);
        self.done(served.verb, served.bytes);
    }

    /// The handler of a request of another shard's connection has ended.
    fn finished_forwarded(self: &Rc<Self>, place: usize, outcome: &Result<Bytes, Refusal>) {
        let served = self.forwarded.borrow_mut().end(place);
        let Some(served) = served else { return };
        if let Some(task) = served.task {
            task.detach();
        }
        self.shard.counters.verb(served.verb, |stats| {
            stats.served += 1;
            stats.served_bytes += outcome.as_ref().map_or(0, |body| body.len()) as u64;
        });
        self.done(served.verb, served.bytes);
    }

    /// Gives up the requests of other shards' connections that are past their deadline.
    pub(crate) fn expire_forwarded(self: &Rc<Self>) {
        let expired = self.forwarded.borrow_mut().expire(self.shard.rt.now());
        for served in expired {
            self.shard.counters.dropped(served.verb, Dropped::ExpiredServing);
            drop(served.task);
            self.done(served.verb, served.bytes);
        }
    }
}

/// The target of a request's answer.
pub(crate) struct Reply(pub(crate) ReplyTo);

pub(crate) enum ReplyTo {
    /// Over the connection from which the request came.
    Peer { serving: Rc<Serving>, connection: Rc<Inbound>, place: usize },
    /// To the shard over whose connection the request came.
    Shard { serving: Rc<Serving>, place: usize, answer: oneshot::Sender<ForwardedOutcome> },
    /// To a caller on this node.
    Local(oneshot::Sender<Result<Bytes, RpcError>>),
}

impl Reply {
    /// The handler has ended.
    pub(crate) fn send(self, outcome: Result<Bytes, Refusal>) {
        match self.0 {
            ReplyTo::Peer { serving, connection, place } => serving.finished(&connection, place, outcome),
            ReplyTo::Shard { serving, place, answer } => {
                serving.finished_forwarded(place, &outcome);
                // The shard that has the connection may have given it up.
                let _ = answer.send(Some(outcome));
            }
            ReplyTo::Local(caller) => {
                // A caller that has gone does not want it.
                let _ = caller.send(outcome.map_err(RpcError::Refused));
            }
        }
    }
}
