//! A connection that this shard makes to a shard of a peer: calls go out together, answers find their callers.
//!
//! A link outlives its connections. It connects when somebody calls, fails all calls at once when the connection is
//! lost, and waits before it tries again; calls meanwhile fail at once.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use rt::{Instant, LocalBoxFuture, Sleep};

use crate::calls::Calls;
use crate::frame::{Frame, HEADER_LEN, Header, Kind, decode_refusal};
use crate::greet::greet;
use crate::peer::{Key, Peer};
use crate::peer_stats::PeerCounters;
use crate::pipe::{Filled, Pipe};
use crate::queue::{Queue, Queued};
use crate::shard::{Open, Shard, Tasks};
use crate::stats::{Dropped, count};
use crate::sweep::{SWEEP_PAUSE, soonest};
use crate::{Class, Refusal, RpcError, Verb};

/// A connection that broke earlier is as good as one that could not be made.
const LASTING: Duration = Duration::from_secs(1);

/// A frame on its way to the peer.
struct Outgoing {
    kind: Kind,
    verb: Option<Verb>,
    /// The shard of the peer that is to serve it.
    shard: u16,
    stream: u64,
    deadline: Instant,
    /// The body's first part, and the rest.
    body: [Bytes; 2],
}

impl Queued for Outgoing {
    fn bytes(&self) -> usize {
        let [head, tail] = &self.body;
        HEADER_LEN + head.len() + tail.len()
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// The state of a link.
enum Phase {
    /// No connection. Before `not_before` calls fail with the error.
    Idle { not_before: Instant, error: RpcError },
    /// A task connects, or has a connection.
    Running,
}

/// One shard's way to one peer, for one class of verbs.
pub(crate) struct Link {
    shard: Rc<Shard>,
    peer: Weak<Peer>,
    pub(crate) class: Class,
    /// Of the peer, with those of other links to it.
    stats: Rc<PeerCounters>,
    phase: RefCell<Phase>,
    /// Which connection this is; a task of an earlier one has nothing to say any more.
    epoch: Cell<u64>,
    failures: Cell<u32>,
    queue: RefCell<Queue<Outgoing>>,
    calls: RefCell<Calls>,
    waker: RefCell<Option<Waker>>,
    used_at: Cell<Instant>,
    opened_at: Cell<Instant>,
    is_open: Cell<bool>,
}

impl Link {
    pub(crate) fn new(shard: &Rc<Shard>, peer: &Rc<Peer>, class: Class) -> Rc<Link> {
        let limits = &shard.config.limits;
        let now = shard.rt.now();
        Rc::new(Link {
            shard: Rc::clone(shard),
            peer: Rc::downgrade(peer),
            class,
            stats: match peer.key {
                Key::Host(host) => shard.peers.of(host),
                Key::Address(_) => Rc::default(),
            },
            phase: RefCell::new(Phase::Idle { not_before: now, error: RpcError::Lost }),
            epoch: Cell::new(0),
            failures: Cell::new(0),
            queue: RefCell::new(Queue::new(
                limits.outgoing_count_max,
                limits.outgoing_bytes_max,
                &shard.outgoing,
            )),
            calls: RefCell::default(),
            waker: RefCell::default(),
            used_at: Cell::new(now),
            opened_at: Cell::new(now),
            is_open: Cell::new(false),
        })
    }

    /// Frames and bytes that wait to be written, and calls that wait for an answer.
    pub(crate) fn depth(&self) -> (usize, usize, usize) {
        let queue = self.queue.borrow();
        (queue.len(), queue.bytes(), self.calls.borrow().waiting())
    }

    /// Whether its connection is open.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.get()
    }

    /// Sees to it that there is a connection, or will be soon.
    fn ensure(self: &Rc<Self>, now: Instant) -> Result<(), RpcError> {
        self.used_at.set(now);
        let mut phase = self.phase.borrow_mut();
        match &*phase {
            Phase::Running => return Ok(()),
            Phase::Idle { not_before, error } if now < *not_before => return Err(error.clone()),
            Phase::Idle { .. } => {}
        }
        let Some(peer) = self.peer.upgrade() else { return Err(RpcError::UnknownHost) };
        *phase = Phase::Running;
        drop(phase);
        self.stats.attempt();
        let epoch = self.epoch.get() + 1;
        self.epoch.set(epoch);
        let link = Rc::clone(self);
        Tasks::spawn(&self.shard, self.class.group(), async move {
            let end = run(&link, peer, epoch).await;
            link.ended(epoch, end);
        });
        Ok(())
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Queues a frame; false when there is no room.
    fn push(&self, frame: Outgoing, now: Instant) -> bool {
        let expired = |frame: Outgoing| {
            if let Some(verb) = frame.verb {
                self.shard.counters.dropped(verb, Dropped::ExpiredUnsent);
                self.stats.expired_unsent(frame.bytes());
            }
        };
        let pushed = self.queue.borrow_mut().push(frame, now, expired).is_ok();
        if pushed {
            self.wake();
        }
        pushed
    }

    /// A call ends without an answer in time.
    fn timed_out(&self, verb: Verb) {
        self.shard.counters.verb(verb, |stats| stats.timeouts += 1);
        self.stats.timed_out();
    }

    /// Calls a shard of the peer.
    pub(crate) async fn call(
        self: Rc<Self>,
        shard: u16,
        verb: Verb,
        body: [Bytes; 2],
        deadline: Instant,
    ) -> Result<Bytes, RpcError> {
        let counters = &self.shard.counters;
        let now = self.shard.rt.now();
        if deadline <= now {
            self.timed_out(verb);
            return Err(RpcError::TimedOut);
        }
        let bytes = HEADER_LEN + body.iter().map(Bytes::len).sum::<usize>();
        if let Err(error) = self.ensure(now) {
            counters.dropped(verb, Dropped::NotConnected);
            self.stats.unsent(bytes);
            return Err(error);
        }
        if self.calls.borrow().waiting() >= self.shard.config.limits.calls_max {
            counters.dropped(verb, Dropped::QueueFull);
            self.stats.overloaded(bytes);
            return Err(RpcError::Overloaded);
        }
        let stream = self.calls.borrow_mut().begin(verb, deadline);
        let waiting = WaitingCall { link: &self, stream };
        let frame = Outgoing { kind: Kind::Request, verb: Some(verb), shard, stream, deadline, body };
        if !self.push(frame, now) {
            counters.dropped(verb, Dropped::QueueFull);
            self.stats.overloaded(bytes);
            return Err(RpcError::Overloaded);
        }
        poll_fn(|cx| self.calls.borrow_mut().poll(waiting.stream, cx.waker())).await
    }

    /// Sends a message that wants no answer to a shard of the peer.
    pub(crate) fn send(self: &Rc<Self>, shard: u16, verb: Verb, body: Bytes) {
        let (now, bytes) = (self.shard.rt.now(), HEADER_LEN + body.len());
        if self.ensure(now).is_err() {
            self.shard.counters.dropped(verb, Dropped::NotConnected);
            self.stats.unsent(bytes);
            return;
        }
        let deadline = now + self.shard.config.timeouts.one_way;
        let body = [Bytes::new(), body];
        let frame = Outgoing { kind: Kind::OneWay, verb: Some(verb), shard, stream: 0, deadline, body };
        if !self.push(frame, now) {
            self.shard.counters.dropped(verb, Dropped::QueueFull);
            self.stats.overloaded(bytes);
        }
    }

    /// The peer is there: the next call connects at once.
    pub(crate) fn retry_now(&self) {
        if let Phase::Idle { not_before, .. } = &mut *self.phase.borrow_mut() {
            *not_before = Instant::START;
        }
    }

    /// Hands messages that want no answer and wait to be sent to the link that takes this one's place.
    pub(crate) fn pass_on(&self, next: &Rc<Link>) {
        let now = self.shard.rt.now();
        while let Some(frame) = self.queue.borrow_mut().pop() {
            // Calls end with this link, those that were not sent yet, too.
            let bytes = frame.bytes();
            if let (Kind::OneWay, Some(verb)) = (frame.kind, frame.verb)
                && (next.ensure(now).is_err() || !next.push(frame, now))
            {
                self.shard.counters.dropped(verb, Dropped::NotConnected);
                self.stats.unsent(bytes);
            }
        }
    }

    /// Ends the connection and all calls with `error`.
    pub(crate) fn close(&self, error: &RpcError) {
        self.epoch.set(self.epoch.get() + 1);
        self.is_open.set(false);
        let idle = Phase::Idle { not_before: Instant::START, error: error.clone() };
        *self.phase.borrow_mut() = idle;
        self.fail_all(error);
        self.wake();
    }

    fn fail_all(&self, error: &RpcError) {
        while let Some(frame) = self.queue.borrow_mut().pop() {
            if frame.verb.is_some() {
                self.stats.unsent(frame.bytes());
            }
            if let (Kind::OneWay, Some(verb)) = (frame.kind, frame.verb) {
                self.shard.counters.dropped(verb, Dropped::NotConnected);
            }
        }
        self.calls.borrow_mut().fail_all(error);
    }

    /// The pause before the next attempt: doubling, and not the same for all.
    fn backoff(&self) -> Duration {
        let timeouts = &self.shard.config.timeouts;
        let doubled = timeouts.backoff_min.saturating_mul(1 << self.failures.get().min(16));
        let longest = doubled.min(timeouts.backoff_max);
        let half = longest / 2;
        half + Duration::from_nanos(self.shard.rt.random_below(half.as_nanos() as u64 + 1))
    }

    /// The connection's task has ended.
    fn ended(&self, epoch: u64, end: End) {
        if self.epoch.get() != epoch {
            return;
        }
        self.is_open.set(false);
        let counters = &self.shard.counters;
        let unused = matches!(end, End::Unused);
        let error = match end {
            End::Unused => RpcError::Lost,
            End::Failed(error) => {
                count(&counters.connect_failures);
                error
            }
            End::Lost(why) => {
                count(&counters.connections_lost);
                let peer = self.peer.upgrade().map(|peer| peer.info.address);
                tracing::debug!(?peer, class = self.class.name(), "lost an internode connection: {why}");
                RpcError::Lost
            }
        };
        // One that broke after it had served for a while may be made again at once.
        let lasted = self.shard.rt.now() - self.opened_at.get();
        let pause = match error {
            RpcError::Lost if lasted >= LASTING => Duration::ZERO,
            _ => self.backoff(),
        };
        self.failures.set(if pause > Duration::ZERO { self.failures.get() + 1 } else { 0 });
        let not_before = self.shard.rt.now() + pause;
        // Calls made in the meantime have not left.
        let meanwhile = match &error {
            RpcError::Lost => RpcError::Connect("the connection broke a moment ago".to_owned()),
            error => error.clone(),
        };
        *self.phase.borrow_mut() = Phase::Idle { not_before, error: meanwhile };
        *self.waker.borrow_mut() = None;
        self.fail_all(&error);
        let listener = self.shard.on_lost.borrow().clone().filter(|_| !unused);
        if let (Some(listener), Some(peer)) = (listener, self.peer.upgrade()) {
            listener(peer.info.address);
        }
    }
}

/// Forgets a call when its future is dropped. The request is still sent: others may count on a write.
struct WaitingCall<'a> {
    link: &'a Link,
    stream: u64,
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.link.calls.borrow_mut().abandon(self.stream);
    }
}

/// Why a connection ended.
enum End {
    /// Nobody needs it.
    Unused,
    /// It never was.
    Failed(RpcError),
    /// It was, and is no more.
    Lost(String),
}

enum Io {
    Connecting(LocalBoxFuture<Result<Pipe, RpcError>>),
    Open(Box<Pipe>, #[expect(dead_code, reason = "counts the connection until it is dropped")] Open),
}

struct LinkTask {
    link: Rc<Link>,
    io: Io,
    epoch: u64,
    timer: Option<Sleep>,
    swept_at: Instant,
    /// The last look at whether the connection is alive.
    checked_at: Instant,
    received_at: Instant,
    sent_since_check: bool,
}

async fn run(link: &Rc<Link>, peer: Rc<Peer>, epoch: u64) -> End {
    let now = link.shard.rt.now();
    let shard = Rc::clone(&link.shard);
    let class = link.class;
    let connect = Box::pin(async move {
        let attempt = greet(&shard, &peer, class);
        match shard.rt.timeout(shard.config.timeouts.connect, attempt).await {
            Ok(result) => result,
            Err(_) => Err(RpcError::Connect(format!("{} does not answer", peer.info.address))),
        }
    });
    let mut task = LinkTask {
        link: Rc::clone(link),
        io: Io::Connecting(connect),
        epoch,
        timer: None,
        swept_at: now,
        checked_at: now,
        received_at: now,
        sent_since_check: false,
    };
    poll_fn(|cx| task.poll(cx)).await
}

impl LinkTask {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        if self.link.epoch.get() != self.epoch {
            return Poll::Ready(End::Unused);
        }
        match &mut *self.link.waker.borrow_mut() {
            Some(known) => known.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        let now = self.link.shard.rt.now();
        if let Io::Connecting(connect) = &mut self.io
            && let Poll::Ready(result) = connect.as_mut().poll(cx)
        {
            match result {
                Err(error) => return Poll::Ready(End::Failed(error)),
                Ok(pipe) => {
                    self.link.stats.connected();
                    self.link.opened_at.set(now);
                    self.link.is_open.set(true);
                    (self.checked_at, self.received_at) = (now, now);
                    let open = Open::new(&self.link.shard, self.link.class, false);
                    self.io = Io::Open(Box::new(pipe), open);
                }
            }
        }
        if let Poll::Ready(end) = self.poll_io(cx, now) {
            return Poll::Ready(end);
        }
        self.poll_timer(cx)
    }

    fn poll_io(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<End> {
        let Io::Open(pipe, _) = &mut self.io else { return Poll::Pending };
        let shard = &self.link.shard;
        loop {
            let written = poll_write(&self.link, pipe, cx, now, &mut self.sent_since_check);
            if let Err(error) = written {
                return Poll::Ready(End::Lost(error.to_string()));
            }
            match pipe.poll_read(cx) {
                Err(error) => return Poll::Ready(End::Lost(error.to_string())),
                Ok(Filled::End) => return Poll::Ready(End::Lost("the peer has closed it".to_string())),
                Ok(Filled::Nothing) => return Poll::Pending,
                Ok(Filled::Some(_)) => self.received_at = now,
            }
            loop {
                let taken = pipe.next_frame().map_err(|error| error.to_string());
                let error = match taken {
                    Ok(Some(frame)) => received(&self.link, frame).err(),
                    Ok(None) => break,
                    Err(error) => Some(error),
                };
                if let Some(error) = error {
                    let peer = self.link.peer.upgrade().map(|peer| peer.info.address);
                    shard.warn(peer, "closed the internode connection to", &error);
                    return Poll::Ready(End::Lost(error));
                }
            }
            if shard.rt.need_preempt() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let keepalive = self.link.shard.config.timeouts.keepalive;
        loop {
            let earliest = self.link.calls.borrow().earliest();
            let sweep = earliest.map(|earliest| earliest.max(self.swept_at + SWEEP_PAUSE));
            let wanted = match &self.io {
                Io::Connecting(_) => soonest(sweep, Instant::MAX),
                Io::Open(..) => soonest(sweep, self.checked_at + keepalive),
            };
            if wanted == Instant::MAX {
                return Poll::Pending;
            }
            let timer = match &mut self.timer {
                Some(timer) if timer.deadline() <= wanted => timer,
                timer => timer.insert(self.link.shard.rt.sleep_until(wanted)),
            };
            if Pin::new(timer).poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.timer = None;
            let now = self.link.shard.rt.now();
            self.swept_at = now;
            self.link.calls.borrow_mut().expire(now, |verb| self.link.timed_out(verb));
            if now >= self.checked_at + keepalive
                && let Some(end) = self.check(now)
            {
                return Poll::Ready(end);
            }
        }
    }

    /// Whether the connection is alive and needed.
    fn check(&mut self, now: Instant) -> Option<End> {
        let timeouts = &self.link.shard.config.timeouts;
        let Io::Open(pipe, _) = &mut self.io else { return None };
        if pipe.waits_for_room() {
            // That nothing came is not the peer's doing.
            self.received_at = now;
        }
        if now >= self.received_at + timeouts.silence {
            return Some(End::Lost(format!("nothing came for {:?}", timeouts.silence)));
        }
        let idle = self.link.calls.borrow().waiting() == 0 && self.link.queue.borrow().is_empty();
        if idle {
            if now >= self.link.used_at.get() + timeouts.unused {
                return Some(End::Unused);
            }
            pipe.rest();
        }
        if self.received_at < self.checked_at || !self.sent_since_check {
            let ping = Outgoing {
                kind: Kind::Ping,
                verb: None,
                shard: 0,
                stream: 0,
                deadline: Instant::MAX,
                body: Default::default(),
            };
            // A queue that is full has something to send.
            self.link.push(ping, now);
        }
        self.checked_at = now;
        self.sent_since_check = false;
        None
    }
}

fn poll_write(
    link: &Link,
    pipe: &mut Pipe,
    cx: &mut Context<'_>,
    now: Instant,
    sent: &mut bool,
) -> std::io::Result<()> {
    let counters = &link.shard.counters;
    loop {
        while pipe.wants_frames() {
            let frame = link.queue.borrow_mut().pop();
            let Some(frame) = frame else { break };
            if frame.deadline <= now {
                if let Some(verb) = frame.verb {
                    counters.dropped(verb, Dropped::ExpiredUnsent);
                    link.stats.expired_unsent(frame.bytes());
                }
                continue;
            }
            let verb = frame.verb.map_or(0, Verb::number);
            let remaining_ms = remaining_ms(frame.deadline, now);
            let header = Header::outgoing(frame.kind, verb, frame.stream, remaining_ms).to_shard(frame.shard);
            let [head, tail] = frame.body;
            let length = pipe.out.push_parts(header, &head, tail, &mut pipe.packer);
            *sent = true;
            if let Some(verb) = frame.verb {
                link.stats.sent(length);
                counters.verb(verb, |stats| {
                    stats.sent += 1;
                    stats.sent_bytes += length as u64;
                });
            }
        }
        if pipe.out.is_empty() || !pipe.poll_write(cx)? {
            return Ok(());
        }
    }
}

/// The rest of a request's time, in milliseconds, at least one.
fn remaining_ms(deadline: Instant, now: Instant) -> u32 {
    u32::try_from((deadline - now).as_millis()).unwrap_or(u32::MAX).max(1)
}

fn received(link: &Link, frame: Frame) -> Result<(), String> {
    let Frame { header, body } = frame;
    let bytes = body.len() as u64;
    let outcome = match header.kind {
        Kind::Pong => return Ok(()),
        Kind::Answer => Ok(body),
        Kind::Refusal => Err(refused(decode_refusal(&body))),
        kind => return Err(format!("the accepting side has sent a frame of kind {kind:?}")),
    };
    if let Some(verb) = link.calls.borrow_mut().finish(header.stream, outcome) {
        link.shard.counters.verb(verb, |stats| {
            stats.answers += 1;
            stats.answers_bytes += bytes;
        });
    }
    Ok(())
}

fn refused(refusal: Refusal) -> RpcError {
    match refusal.code {
        Refusal::OVERLOADED => RpcError::Overloaded,
        Refusal::EXPIRED => RpcError::TimedOut,
        Refusal::STOPPED => RpcError::Lost,
        _ => RpcError::Refused(refusal),
    }
}
