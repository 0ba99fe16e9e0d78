//! Requests of peers on this shard: which are served at once, which wait, and which are refused.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use rt::sync::oneshot;
use rt::{Instant, Task};
use topology::HostId;

use crate::config::Limits;
use crate::forward::ForwardedOutcome;
use crate::inbound::Inbound;
use crate::messenger::Incoming;
use crate::queue::{Budget, Queue, Queued};
use crate::shard::Shard;
use crate::stats::Dropped;
use crate::{Class, Refusal, RpcError, Verb};

/// The counted bytes of a request beside its body.
const REQUEST_BYTES: usize = 64;

/// A request of a peer that is not being served yet.
pub(crate) struct Request {
    pub(crate) origin: Origin,
    pub(crate) verb: Verb,
    pub(crate) body: Bytes,
    pub(crate) deadline: Instant,
}

/// The source of a request, and target of its answer.
pub(crate) enum Origin {
    /// A connection of this shard; without a stream no answer is wanted.
    Connection { connection: Rc<Inbound>, stream: Option<u64> },
    /// A connection of another shard. Boxed, so that other requests are not longer for it.
    Shard(Box<ForwardedFrom>),
}

/// The source of a request that another shard has received.
pub(crate) struct ForwardedFrom {
    pub(crate) host: HostId,
    pub(crate) address: SocketAddr,
    pub(crate) answer: oneshot::Sender<ForwardedOutcome>,
}

impl Request {
    /// Its counted bytes.
    pub(crate) fn bytes_counted(&self) -> usize {
        REQUEST_BYTES + self.body.len()
    }

    /// Answers without serving it.
    pub(crate) fn refuse(self, refusal: Refusal) {
        match self.origin {
            Origin::Connection { connection, stream } => {
                connection.answer(stream, self.verb, self.deadline, Err(refusal));
            }
            Origin::Shard(from) => {
                // The shard that has the connection may have given it up.
                let _ = from.answer.send(Some(Err(refusal)));
            }
        }
    }
}

impl Queued for Request {
    fn bytes(&self) -> usize {
        self.bytes_counted()
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// One class of requests.
struct Lane {
    /// Half of the class's bytes; the other half is for queued requests.
    serving_bytes_max: usize,
    waiting: RefCell<Queue<Request>>,
    serving: Cell<usize>,
    serving_bytes: Cell<usize>,
}

/// Half of the bytes of a class's requests on a shard.
pub(crate) fn bytes_max(class: Class, limits: &Limits) -> usize {
    match class {
        Class::Request => limits.inbound_bytes_max / 2,
        Class::Bulk => limits.inbound_bytes_max / 8,
        Class::Urgent => limits.inbound_bytes_max / 16,
    }
}

/// The requests of all peers on this shard.
pub(crate) struct Serving {
    lanes: [Lane; Class::ALL.len()],
    serving_max: usize,
}

impl Serving {
    /// Nothing is served yet.
    pub(crate) fn new(limits: &Limits) -> Serving {
        let lane = |class| {
            let bytes_max = bytes_max(class, limits);
            let budget = Budget::new(bytes_max);
            Lane {
                serving_bytes_max: bytes_max,
                waiting: RefCell::new(Queue::new(limits.waiting_count_max, bytes_max, &budget)),
                serving: Cell::new(0),
                serving_bytes: Cell::new(0),
            }
        };
        Serving { lanes: Class::ALL.map(lane), serving_max: limits.serving_max.max(1) }
    }

    fn lane(&self, class: Class) -> &Lane {
        &self.lanes[class as usize]
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
}

impl Lane {
    fn may_serve(&self, serving: &Serving, bytes: usize) -> bool {
        let fits = self.serving.get() == 0 || self.serving_bytes.get() + bytes <= self.serving_bytes_max;
        self.serving.get() < serving.serving_max && fits
    }
}

/// Serves a request of a peer now or later, or refuses it.
pub(crate) fn take(shard: &Rc<Shard>, request: Request) {
    let lane = shard.serving.lane(request.verb.class());
    if lane.waiting.borrow().is_empty() && lane.may_serve(&shard.serving, request.bytes()) {
        begin(shard, lane, request);
        return;
    }
    let expired = |request: Request| shard.counters.dropped(request.verb, Dropped::ExpiredUnserved);
    let refused = lane.waiting.borrow_mut().push(request, shard.rt.now(), expired);
    if let Err(request) = refused {
        shard.counters.dropped(request.verb, Dropped::Overloaded);
        request.refuse(Refusal::new(Refusal::OVERLOADED, "too many requests wait"));
    }
}

/// A request was served, or given up.
pub(crate) fn done(shard: &Rc<Shard>, class: Class, bytes: usize) {
    let lane = shard.serving.lane(class);
    lane.serving.set(lane.serving.get() - 1);
    lane.serving_bytes.set(lane.serving_bytes.get() - bytes);
    loop {
        let next = {
            let mut waiting = lane.waiting.borrow_mut();
            match waiting.front_bytes() {
                Some(bytes) if lane.may_serve(&shard.serving, bytes) => waiting.pop(),
                _ => None,
            }
        };
        let Some(request) = next else { return };
        begin(shard, lane, request);
    }
}

fn begin(shard: &Rc<Shard>, lane: &Lane, request: Request) {
    if request.deadline <= shard.rt.now() {
        shard.counters.dropped(request.verb, Dropped::ExpiredUnserved);
        return;
    }
    let Some(handler) = shard.handler(request.verb) else {
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
            let reply = Reply(ReplyTo::Peer { connection: Rc::clone(&connection), place });
            let task = shard.rt.spawn(verb.group(), handler(incoming, reply));
            connection.served.borrow_mut().started(place, task);
        }
        Origin::Shard(from) => {
            let ForwardedFrom { host: from, address, answer } = *from;
            let incoming = Incoming { from, address, verb, body, deadline };
            let place = shard.forwarded.borrow_mut().begin(served(None));
            let reply = Reply(ReplyTo::Shard { shard: Rc::clone(shard), place, answer });
            let task = shard.rt.spawn(verb.group(), handler(incoming, reply));
            shard.forwarded.borrow_mut().started(place, task);
        }
    }
}

/// A request of one connection that is being served.
pub(crate) struct Served {
    pub(crate) stream: Option<u64>,
    pub(crate) verb: Verb,
    pub(crate) deadline: Instant,
    pub(crate) bytes: usize,
    /// Another shard serves it.
    pub(crate) forwarded: bool,
    /// The handler, or what waits for the other shard.
    pub(crate) task: Option<Task<()>>,
}

/// The requests of one connection that are being served.
#[derive(Default)]
pub(crate) struct ServedSet {
    places: Vec<Option<Served>>,
    free: Vec<usize>,
    count: usize,
    earliest: Option<Instant>,
}

impl ServedSet {
    /// Whether none is.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Before this none is past its deadline.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.earliest
    }

    pub(crate) fn begin(&mut self, served: Served) -> usize {
        let deadline = served.deadline;
        self.earliest = Some(self.earliest.map_or(deadline, |earliest| earliest.min(deadline)));
        self.count += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        if let Some(empty) = self.places.get_mut(place) {
            *empty = Some(served);
        }
        place
    }

    /// It has a task now.
    pub(crate) fn started(&mut self, place: usize, task: Task<()>) {
        if let Some(Some(served)) = self.places.get_mut(place) {
            served.task = Some(task);
        }
    }

    pub(crate) fn end(&mut self, place: usize) -> Option<Served> {
        let served = self.places.get_mut(place)?.take()?;
        self.free.push(place);
        self.count -= 1;
        if self.count == 0 {
            self.earliest = None;
        }
        Some(served)
    }

    /// Takes those out that are past their deadline.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Served> {
        if self.earliest.is_none_or(|earliest| now < earliest) {
            return Vec::new();
        }
        let past = |served: &Option<Served>| served.as_ref().is_some_and(|served| served.deadline <= now);
        let places: Vec<usize> = (0..self.places.len()).filter(|place| past(&self.places[*place])).collect();
        let expired = places.into_iter().filter_map(|place| self.end(place)).collect();
        self.earliest = self.places.iter().flatten().map(|served| served.deadline).min();
        expired
    }

    /// Takes all out.
    pub(crate) fn clear(&mut self) -> Vec<Served> {
        self.free.clear();
        self.count = 0;
        self.earliest = None;
        self.places.drain(..).flatten().collect()
    }
}

/// The target of a request's answer.
pub(crate) struct Reply(pub(crate) ReplyTo);

pub(crate) enum ReplyTo {
    /// Over the connection from which the request came.
    Peer { connection: Rc<Inbound>, place: usize },
    /// To the shard over whose connection the request came.
    Shard { shard: Rc<Shard>, place: usize, answer: oneshot::Sender<ForwardedOutcome> },
    /// To a caller on this node.
    Local(oneshot::Sender<Result<Bytes, RpcError>>),
}

impl Reply {
    /// The handler has ended.
    pub(crate) fn send(self, outcome: Result<Bytes, Refusal>) {
        match self.0 {
            ReplyTo::Peer { connection, place } => connection.finished(place, outcome),
            ReplyTo::Shard { shard, place, answer } => {
                shard.served_forwarded(place, &outcome);
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
