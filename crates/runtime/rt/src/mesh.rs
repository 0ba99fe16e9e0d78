//! Messages between the shards of a node: typed calls with an answer, batched per destination.
//!
//! The messages of a turn's tasks to one shard travel as one batch with at most one wake, and a shard that is
//! running is not woken at all: it looks for messages at every turn and once more before it sleeps. A lone wake
//! costs 16–20 µs of CPU on both sides together, a call in a batch of 64 about 1 µs.
//!
//! At most `queue_max` calls are in flight from one shard to another, so every queue is bounded; more callers
//! wait in order. A handler that calls through the same mesh holds one of these places while it waits, so
//! chains of calls must not form a cycle between shards: use one mesh a layer.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Poll, Waker};

use crate::driver::LocalBoxFuture;
use crate::executor::{Executor, Shared, TurnHook};
use crate::group::Group;
use crate::handle::{Rt, ShardId};
use crate::sync::{Notify, Permit, Semaphore};

/// Messages that a shard gathers for one destination before it sends them without waiting for the turn's end.
const BATCH_MAX: usize = 64;

enum Envelope<Req, Resp> {
    Request { call: u32, group: Group, request: Req },
    Response { call: u32, response: Resp },
}

type Batch<Req, Resp> = Vec<Envelope<Req, Resp>>;

/// One direction between two shards.
struct Lane<Req, Resp> {
    pending: AtomicBool,
    queue: Mutex<Batch<Req, Resp>>,
}

/// The state that all shards share.
struct Fabric<Req, Resp> {
    shard_count: usize,
    queue_max: usize,
    /// `source * shard_count + target`.
    lanes: Vec<Lane<Req, Resp>>,
    /// A shard: some lane to it may have messages.
    arrivals: Vec<AtomicBool>,
    /// A shard, once it is attached: how to wake it.
    doors: Vec<OnceLock<Arc<Shared>>>,
}

impl<Req, Resp> Fabric<Req, Resp> {
    fn lane(&self, source: usize, target: usize) -> &Lane<Req, Resp> {
        &self.lanes[source * self.shard_count + target]
    }
}

/// Connects the shards of one node for one kind of request.
pub struct Mesh<Req, Resp>(PhantomData<(Req, Resp)>);

impl<Req, Resp> Mesh<Req, Resp>
where
    Req: Send + 'static,
    Resp: Send + 'static,
{
    /// Makes one endpoint a shard, in the order of the shards. At most `queue_max` calls (at least 1) are in
    /// flight between any two shards, in each direction.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(shard_count: u16, queue_max: usize) -> Vec<Endpoint<Req, Resp>> {
        assert!(queue_max > 0, "a mesh without room for calls");
        let count = usize::from(shard_count);
        let lane = || Lane { pending: AtomicBool::new(false), queue: Mutex::new(Vec::new()) };
        let fabric = Arc::new(Fabric {
            shard_count: count,
            queue_max,
            lanes: (0..count * count).map(|_| lane()).collect(),
            arrivals: (0..count).map(|_| AtomicBool::new(false)).collect(),
            doors: (0..count).map(|_| OnceLock::new()).collect(),
        });
        let endpoint = |shard| Endpoint { shard: ShardId(shard), fabric: Arc::clone(&fabric) };
        (0..shard_count).map(endpoint).collect()
    }
}

/// One shard's part of a [`Mesh`], on its way to the shard.
pub struct Endpoint<Req, Resp> {
    shard: ShardId,
    fabric: Arc<Fabric<Req, Resp>>,
}

impl<Req: Send + 'static, Resp: Send + 'static> Endpoint<Req, Resp> {
    /// The shard that it is for.
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// Makes this the port of the shard of `rt`.
    ///
    /// # Panics
    /// When it is the endpoint of another shard, or the node has another number of shards.
    pub fn attach(self, rt: &Rt) -> Port<Req, Resp> {
        assert_eq!(self.shard, rt.shard(), "an endpoint belongs to one shard");
        assert_eq!(self.fabric.shard_count, usize::from(rt.shard_count()), "one endpoint a shard");
        let executor = rt.executor().clone();
        let count = self.fabric.shard_count;
        let inner = Rc::new(PortInner {
            shard: self.shard,
            outgoing: (0..count).map(|_| RefCell::new(Vec::new())).collect(),
            unsent: Cell::new(false),
            limits: (0..count).map(|_| Semaphore::new(self.fabric.queue_max)).collect(),
            calls: RefCell::new(Calls { slots: Vec::new(), free: Vec::new() }),
            handler: RefCell::new(None),
            serving: Notify::new(),
            backlog: RefCell::new(Vec::new()),
            scratch: RefCell::new(Vec::new()),
            stats: Cell::new(PortStats::default()),
            fabric: self.fabric,
            executor: executor.clone(),
            this: RefCell::new(None),
        });
        *inner.this.borrow_mut() = Some(Rc::clone(&inner));
        let door = inner.fabric.doors[self.shard.index()].set(executor.shared());
        assert!(door.is_ok(), "an endpoint is attached once");
        executor.add_hook(Rc::clone(&inner) as Rc<dyn TurnHook>);
        Port { inner }
    }
}

/// The counters of a port, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Calls to other shards.
    pub calls: u64,
    /// Calls to this shard by itself.
    pub local_calls: u64,
    /// Requests of other shards that were begun here.
    pub served: u64,
    /// Batches sent.
    pub batches: u64,
    /// Requests and answers sent.
    pub messages: u64,
    /// Calls that had to wait for a place in a queue.
    pub throttled: u64,
}

enum CallState<Resp> {
    Free,
    Waiting(Option<Waker>),
    Answered(Resp),
    Abandoned,
}

struct CallSlot<Resp> {
    state: CallState<Resp>,
    /// The place in the queue; given back when the answer is here.
    permit: Option<Permit>,
}

struct Calls<Resp> {
    slots: Vec<CallSlot<Resp>>,
    free: Vec<u32>,
}

type Handler<Req, Resp> = Rc<dyn Fn(ShardId, Req) -> LocalBoxFuture<Resp>>;

struct PortInner<Req, Resp> {
    shard: ShardId,
    fabric: Arc<Fabric<Req, Resp>>,
    executor: Executor,
    outgoing: Vec<RefCell<Batch<Req, Resp>>>,
    unsent: Cell<bool>,
    limits: Vec<Semaphore>,
    calls: RefCell<Calls<Resp>>,
    handler: RefCell<Option<Handler<Req, Resp>>>,
    serving: Notify,
    /// Requests that came before there was a handler.
    backlog: RefCell<Vec<(ShardId, u32, Group, Req)>>,
    scratch: RefCell<Batch<Req, Resp>>,
    stats: Cell<PortStats>,
    /// For the tasks that answer; emptied when the executor ends.
    this: RefCell<Option<Rc<PortInner<Req, Resp>>>>,
}

/// A shard's access to a [`Mesh`]. Cheap to clone.
pub struct Port<Req, Resp> {
    inner: Rc<PortInner<Req, Resp>>,
}

impl<Req, Resp> Clone for Port<Req, Resp> {
    fn clone(&self) -> Self {
        Port { inner: Rc::clone(&self.inner) }
    }
}

impl<Req: Send + 'static, Resp: Send + 'static> Port<Req, Resp> {
    /// Answers the requests of all shards from now on; those that came before are answered now. Each request
    /// runs as a task in the scheduling group of its caller.
    ///
    /// # Panics
    /// When the port has a handler already.
    pub fn serve<F>(&self, handler: impl Fn(ShardId, Req) -> F + 'static)
    where
        F: Future<Output = Resp> + 'static,
    {
        let handler: Handler<Req, Resp> = Rc::new(move |source, request| Box::pin(handler(source, request)));
        let before = self.inner.handler.borrow_mut().replace(handler);
        assert!(before.is_none(), "a port has one handler");
        let backlog = std::mem::take(&mut *self.inner.backlog.borrow_mut());
        for (source, call, group, request) in backlog {
            self.inner.begin(source, call, group, request);
        }
        self.inner.serving.notify_all();
    }

    /// Calls `shard` and waits for its answer. For this shard itself the handler is called directly, without a
    /// queue or a task. A call whose future is dropped is still carried out; its answer is dropped.
    pub async fn call(&self, shard: ShardId, request: Req) -> Resp {
        let inner = &self.inner;
        if shard == inner.shard {
            inner.count(|stats| stats.local_calls += 1);
            return inner.local_handler().await(shard, request).await;
        }
        let limit = &inner.limits[shard.index()];
        let permit = match limit.try_acquire(1) {
            Some(permit) => permit,
            None => {
                inner.count(|stats| stats.throttled += 1);
                limit.acquire(1).await.expect("the limits of a mesh are never closed")
            }
        };
        inner.count(|stats| stats.calls += 1);
        let call = inner.new_call(permit);
        let group = inner.executor.current_group();
        inner.post(shard, Envelope::Request { call, group, request });
        let pending = PendingCall { port: inner, call };
        poll_fn(|cx| inner.poll_call(pending.call, cx.waker())).await
    }

    /// Shards that the mesh connects.
    pub fn shard_count(&self) -> u16 {
        self.inner.limits.len() as u16
    }

    /// Calls under way to `shard`.
    pub fn in_flight(&self, shard: ShardId) -> usize {
        self.inner.fabric.queue_max - self.inner.limits[shard.index()].available()
    }

    /// Whether a call to `shard` would find a place in the queue, and be on its way as soon as its future is polled.
    pub fn has_room(&self, shard: ShardId) -> bool {
        let limit = &self.inner.limits[shard.index()];
        limit.available() > 0 && limit.waiting() == 0
    }

    /// Callers that wait for a place in the queue to `shard`.
    pub fn waiting(&self, shard: ShardId) -> usize {
        self.inner.limits[shard.index()].waiting()
    }

    /// Counters since the start.
    pub fn stats(&self) -> PortStats {
        self.inner.stats.get()
    }
}

/// Gives a call up when its future is dropped before the answer.
struct PendingCall<'a, Req, Resp> {
    port: &'a PortInner<Req, Resp>,
    call: u32,
}

impl<Req, Resp> Drop for PendingCall<'_, Req, Resp> {
    fn drop(&mut self) {
        let mut calls = self.port.calls.borrow_mut();
        let slot = &mut calls.slots[self.call as usize];
        match std::mem::replace(&mut slot.state, CallState::Abandoned) {
            // Answered and taken: the slot was freed by the poll that took the answer.
            CallState::Free => slot.state = CallState::Free,
            CallState::Waiting(waker) => {
                drop(calls);
                drop(waker);
            }
            CallState::Answered(response) => {
                slot.state = CallState::Free;
                calls.free.push(self.call);
                drop(calls);
                drop(response);
            }
            CallState::Abandoned => unreachable!("a call is given up once"),
        }
    }
}

impl<Req, Resp> PortInner<Req, Resp> {
    fn count(&self, change: impl FnOnce(&mut PortStats)) {
        let mut stats = self.stats.get();
        change(&mut stats);
        self.stats.set(stats);
    }

    fn new_call(&self, permit: Permit) -> u32 {
        let mut calls = self.calls.borrow_mut();
        let slot = CallSlot { state: CallState::Waiting(None), permit: Some(permit) };
        if let Some(call) = calls.free.pop() {
            calls.slots[call as usize] = slot;
            return call;
        }
        calls.slots.push(slot);
        u32::try_from(calls.slots.len() - 1).expect("fewer than 2^32 calls")
    }

    /// Takes the answer of a call and frees its slot.
    fn poll_call(&self, call: u32, waker: &Waker) -> Poll<Resp> {
        let mut calls = self.calls.borrow_mut();
        let slot = &mut calls.slots[call as usize];
        match std::mem::replace(&mut slot.state, CallState::Free) {
            CallState::Answered(response) => {
                calls.free.push(call);
                Poll::Ready(response)
            }
            CallState::Waiting(known) => {
                let waker = match known {
                    Some(mut known) => {
                        known.clone_from(waker);
                        known
                    }
                    None => waker.clone(),
                };
                slot.state = CallState::Waiting(Some(waker));
                Poll::Pending
            }
            CallState::Free | CallState::Abandoned => unreachable!("a call that is polled is alive"),
        }
    }

    fn answered(&self, call: u32, response: Resp) {
        let mut calls = self.calls.borrow_mut();
        let slot = &mut calls.slots[call as usize];
        let permit = slot.permit.take();
        match std::mem::replace(&mut slot.state, CallState::Answered(response)) {
            CallState::Waiting(waker) => {
                drop(calls);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            CallState::Abandoned => {
                let unwanted = std::mem::replace(&mut slot.state, CallState::Free);
                calls.free.push(call);
                drop(calls);
                drop(unwanted);
            }
            CallState::Free | CallState::Answered(_) => unreachable!("a call is answered once"),
        }
        assert!(permit.is_some(), "an unanswered call holds its place");
    }

    fn post(&self, target: ShardId, envelope: Envelope<Req, Resp>) {
        let mut batch = self.outgoing[target.index()].borrow_mut();
        batch.push(envelope);
        if batch.len() >= BATCH_MAX {
            self.send(target.index(), &mut batch);
        } else {
            self.unsent.set(true);
        }
    }

    fn send(&self, target: usize, batch: &mut Batch<Req, Resp>) {
        let messages = batch.len() as u64;
        self.count(|stats| {
            stats.batches += 1;
            stats.messages += messages;
        });
        let lane = self.fabric.lane(self.shard.index(), target);
        {
            let mut queue = lane.queue.lock().unwrap_or_else(PoisonError::into_inner);
            if queue.is_empty() {
                std::mem::swap(&mut *queue, batch);
            } else {
                queue.append(batch);
            }
            assert!(queue.len() <= 2 * self.fabric.queue_max, "requests and answers are bounded");
        }
        lane.pending.store(true, Ordering::Release);
        self.fabric.arrivals[target].store(true, Ordering::Release);
        if let Some(door) = self.fabric.doors[target].get() {
            door.notify();
        }
    }
}

impl<Req: Send + 'static, Resp: Send + 'static> PortInner<Req, Resp> {
    async fn local_handler(&self) -> Handler<Req, Resp> {
        loop {
            if let Some(handler) = &*self.handler.borrow() {
                return Rc::clone(handler);
            }
            self.serving.notified().await;
        }
    }

    /// Starts the task that answers a request.
    fn begin(&self, source: ShardId, call: u32, group: Group, request: Req) {
        let Some(handler) = self.handler.borrow().clone() else {
            self.backlog.borrow_mut().push((source, call, group, request));
            return;
        };
        let Some(this) = self.this.borrow().clone() else { return };
        self.count(|stats| stats.served += 1);
        let future = handler(source, request);
        let answer = async move {
            let response = future.await;
            this.post(source, Envelope::Response { call, response });
        };
        self.executor.spawn_detached(group, answer);
    }

    fn receive(&self, source: usize) {
        let lane = self.fabric.lane(source, self.shard.index());
        if !lane.pending.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut batch = std::mem::take(&mut *self.scratch.borrow_mut());
        std::mem::swap(&mut *lane.queue.lock().unwrap_or_else(PoisonError::into_inner), &mut batch);
        for envelope in batch.drain(..) {
            match envelope {
                Envelope::Request { call, group, request } => {
                    self.begin(ShardId(source as u16), call, group, request);
                }
                Envelope::Response { call, response } => self.answered(call, response),
            }
        }
        *self.scratch.borrow_mut() = batch;
    }
}

impl<Req: Send + 'static, Resp: Send + 'static> TurnHook for PortInner<Req, Resp> {
    fn poll(&self) -> bool {
        let arrivals = &self.fabric.arrivals[self.shard.index()];
        if !arrivals.load(Ordering::Relaxed) || !arrivals.swap(false, Ordering::AcqRel) {
            return false;
        }
        for source in 0..self.fabric.shard_count {
            self.receive(source);
        }
        true
    }

    fn flush(&self) {
        if !self.unsent.replace(false) {
            return;
        }
        for (target, batch) in self.outgoing.iter().enumerate() {
            let mut batch = batch.borrow_mut();
            if !batch.is_empty() {
                self.send(target, &mut batch);
            }
        }
    }

    fn has_input(&self) -> bool {
        self.fabric.arrivals[self.shard.index()].load(Ordering::Acquire)
    }

    fn shutdown(&self) {
        let handler = self.handler.borrow_mut().take();
        let this = self.this.borrow_mut().take();
        let backlog = std::mem::take(&mut *self.backlog.borrow_mut());
        drop((handler, backlog, this));
    }
}
