//! A connection that a peer has made: its requests are served, the answers leave together.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use rt::{Instant, ShardId, Sleep, Stream};
use topology::HostId;

use crate::forward::{self, ForwardedOutcome};
use crate::frame::{self, Frame, Header, Kind};
use crate::hello::Agreement;
use crate::link::{SWEEP_PAUSE, soonest};
use crate::packing::Packing;
use crate::pipe::{Filled, Pipe};
use crate::queue::{Queue, Queued};
use crate::serving::{self, Origin, Request, Served, ServedSet};
use crate::shard::Shard;
use crate::stats::{Dropped, Open, count};
use crate::{Class, Refusal, Verb};

/// The counted bytes of an answer beside its body.
const ANSWER_BYTES: usize = 64;

/// An answer on its way to the peer.
struct Answer {
    kind: Kind,
    verb: u8,
    stream: u64,
    deadline: Instant,
    body: Bytes,
}

impl Queued for Answer {
    fn bytes(&self) -> usize {
        ANSWER_BYTES + self.body.len()
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// The view of a connection for the handlers of its requests.
pub(crate) struct Inbound {
    shard: Rc<Shard>,
    pub(crate) from: HostId,
    pub(crate) address: SocketAddr,
    class: Class,
    answers: RefCell<Queue<Answer>>,
    pub(crate) served: RefCell<ServedSet>,
    waker: RefCell<Option<Waker>>,
    closed: Cell<bool>,
}

impl Inbound {
    /// A connection of `from` that has said hello.
    pub(crate) fn new(shard: &Rc<Shard>, from: HostId, address: SocketAddr, class: Class) -> Rc<Inbound> {
        let limits = &shard.config.limits;
        Rc::new(Inbound {
            shard: Rc::clone(shard),
            from,
            address,
            class,
            answers: RefCell::new(Queue::new(
                limits.outgoing_count_max,
                limits.outgoing_bytes_max,
                &shard.outgoing,
            )),
            served: RefCell::default(),
            waker: RefCell::default(),
            closed: Cell::new(false),
        })
    }

    /// Answers that wait to be written, and their bytes.
    pub(crate) fn depth(&self) -> (usize, usize) {
        let answers = self.answers.borrow();
        (answers.len(), answers.bytes())
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// The handler of a request has ended.
    pub(crate) fn finished(&self, place: usize, outcome: Result<Bytes, Refusal>) {
        let served = self.served.borrow_mut().end(place);
        let Some(served) = served else { return };
        if let Some(task) = served.task {
            task.detach();
        }
        let bytes = outcome.as_ref().map_or(0, Bytes::len) as u64;
        self.shard.counters.verb(served.verb, |stats| {
            stats.served += 1;
            stats.served_bytes += bytes;
        });
        self.answer(served.stream, served.verb, served.deadline, outcome);
        serving::done(&self.shard, self.class, served.bytes);
    }

    /// Another shard has served a request, or has given it up.
    pub(crate) fn forwarded(&self, place: usize, outcome: ForwardedOutcome) {
        let served = self.served.borrow_mut().end(place);
        let Some(mut served) = served else { return };
        if let Some(task) = served.task.take() {
            task.detach();
        }
        if let Some(outcome) = outcome {
            self.answer(served.stream, served.verb, served.deadline, outcome);
        }
        self.done(&served);
    }

    /// Releases the counted bytes of a request.
    fn done(&self, served: &Served) {
        match served.forwarded {
            true => self.shard.forwarding.done(self.class, served.bytes),
            false => serving::done(&self.shard, self.class, served.bytes),
        }
    }

    /// Sends an answer, unless none is wanted any more.
    pub(crate) fn answer(
        &self,
        stream: Option<u64>,
        verb: Verb,
        deadline: Instant,
        outcome: Result<Bytes, Refusal>,
    ) {
        let Some(stream) = stream else { return };
        if self.closed.get() {
            return;
        }
        let max = self.shard.config.limits.body_len_max;
        let outcome = match outcome {
            Ok(body) if body.len() > max => {
                let message = format!("the answer has {} bytes, a frame at most {max}", body.len());
                Err(Refusal::new(Refusal::ANSWER_TOO_LARGE, message))
            }
            outcome => outcome,
        };
        let (kind, body) = match outcome {
            Ok(body) => (Kind::Answer, body),
            Err(refusal) => (Kind::Refusal, frame::encode_refusal(&refusal)),
        };
        let answer = Answer { kind, verb: verb.number(), stream, deadline, body };
        let expired = |answer: Answer| self.expired(answer.verb);
        let mut answers = self.answers.borrow_mut();
        if let Err(answer) = answers.push(answer, self.shard.rt.now(), expired) {
            // The work was done, but the peer does not read. That much it shall know.
            self.shard.counters.dropped(verb, Dropped::QueueFull);
            let refusal = Refusal::new(Refusal::ANSWER_DROPPED, "too many answers wait to be written");
            let body = frame::encode_refusal(&refusal);
            answers.push_always(Answer { kind: Kind::Refusal, body, ..answer });
        }
        drop(answers);
        self.wake();
    }

    fn expired(&self, verb: u8) {
        if let Some(verb) = Verb::from_number(verb) {
            self.shard.counters.dropped(verb, Dropped::ExpiredServing);
        }
    }

    /// Gives up the requests that are past their deadline.
    fn expire(&self, now: Instant) {
        let expired = self.served.borrow_mut().expire(now);
        for mut served in expired {
            // The shard that serves it counts it, too.
            if !served.forwarded {
                self.shard.counters.dropped(served.verb, Dropped::ExpiredServing);
            }
            drop(served.task.take());
            self.done(&served);
        }
    }

    /// The shard stops: requests that are being served end where they wait.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        let served = self.served.borrow_mut().clear();
        for forwarded in served.iter().filter(|served| served.forwarded) {
            self.shard.forwarding.done(self.class, forwarded.bytes);
        }
        drop(served);
    }
}

/// Why a connection ended.
enum End {
    /// The peer has closed it, or it broke.
    Gone,
    /// Nothing came for too long.
    Silent,
    /// Invalid bytes.
    Protocol(String),
}

struct InboundTask {
    inbound: Rc<Inbound>,
    pipe: Pipe,
    timer: Option<Sleep>,
    swept_at: Instant,
    received_at: Instant,
    /// Nothing is read because too many answers wait.
    paused: bool,
}

/// Serves a connection until it ends and nothing of it is being served any more.
pub(crate) async fn run(inbound: Rc<Inbound>, stream: Stream, agreed: Agreement) {
    let shard = Rc::clone(&inbound.shard);
    let now = shard.rt.now();
    let packing: Packing = agreed.packing;
    let pipe = Pipe::new(stream, &shard, packing);
    let open = Open::new(&shard, inbound.class, true);
    let mut task = InboundTask {
        inbound: Rc::clone(&inbound),
        pipe,
        timer: None,
        swept_at: now,
        received_at: now,
        paused: false,
    };
    let end = poll_fn(|cx| task.poll(cx)).await;
    inbound.closed.set(true);
    drop((task, open));
    match end {
        End::Gone => {}
        End::Silent => {
            count(&shard.counters.connections_lost);
            let silence = shard.config.timeouts.silence;
            tracing::debug!(peer = %inbound.address, "closed an internode connection: nothing came for {silence:?}");
        }
        End::Protocol(error) => {
            shard.warn(Some(inbound.address), "closed the internode connection from", &error);
        }
    }
    drain(&inbound).await;
}

/// Lets the handlers end that were begun, until their deadlines.
async fn drain(inbound: &Rc<Inbound>) {
    loop {
        let earliest = inbound.served.borrow().earliest();
        let Some(earliest) = earliest else { return };
        inbound.shard.rt.sleep_until(earliest).await;
        inbound.expire(inbound.shard.rt.now());
    }
}

impl InboundTask {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        match &mut *self.inbound.waker.borrow_mut() {
            Some(known) => known.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        let now = self.inbound.shard.rt.now();
        if let Poll::Ready(end) = self.poll_io(cx, now) {
            return Poll::Ready(end);
        }
        self.poll_timer(cx)
    }

    fn poll_io(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<End> {
        let limits = &self.inbound.shard.config.limits;
        let backlog_max = limits.outgoing_bytes_max / 2;
        let mut now = now;
        loop {
            match self.poll_write(cx, now) {
                Err(_) => return Poll::Ready(End::Gone),
                // A peer that is not listened to shows by reading that it is there.
                Ok(true) if self.paused => self.received_at = now,
                Ok(_) => {}
            }
            // A peer that does not read its answers gets no more requests served.
            self.paused = self.inbound.answers.borrow().bytes() > backlog_max;
            if self.paused {
                return Poll::Pending;
            }
            match self.pipe.poll_read(cx) {
                Err(_) | Ok(Filled::End) => return Poll::Ready(End::Gone),
                Ok(Filled::Nothing) => return Poll::Pending,
                Ok(Filled::Some(_)) => self.received_at = now,
            }
            loop {
                match self.pipe.next_frame() {
                    Ok(Some(frame)) => {
                        if let Err(error) = self.received(frame, now) {
                            return Poll::Ready(End::Protocol(error));
                        }
                    }
                    Ok(None) => break,
                    Err(error) => return Poll::Ready(End::Protocol(error.to_string())),
                }
            }
            if self.inbound.shard.rt.need_preempt() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            now = self.inbound.shard.rt.now();
        }
    }

    /// Writes the buffered bytes; returns whether the socket took any of them.
    fn poll_write(&mut self, cx: &mut Context<'_>, now: Instant) -> std::io::Result<bool> {
        let mut wrote = false;
        loop {
            while self.pipe.wants_frames() {
                let answer = self.inbound.answers.borrow_mut().pop();
                let Some(answer) = answer else { break };
                if answer.deadline <= now {
                    self.inbound.expired(answer.verb);
                    continue;
                }
                let header = Header::outgoing(answer.kind, answer.verb, answer.stream, 0);
                self.pipe.out.push(header, answer.body, &mut self.pipe.packer);
            }
            let before = self.pipe.out.len();
            if before == 0 {
                return Ok(wrote);
            }
            let all = self.pipe.poll_write(cx)?;
            wrote |= self.pipe.out.len() < before;
            if !all {
                return Ok(wrote);
            }
        }
    }

    fn received(&mut self, frame: Frame, now: Instant) -> Result<(), String> {
        let Frame { header, body } = frame;
        let stream = match header.kind {
            Kind::Request => Some(header.stream),
            Kind::OneWay => None,
            Kind::Ping => {
                let pong =
                    Answer { kind: Kind::Pong, verb: 0, stream: header.stream, deadline: Instant::MAX, body };
                if self.inbound.answers.borrow_mut().push(pong, now, |_| ()).is_ok() {
                    self.inbound.wake();
                }
                return Ok(());
            }
            kind => return Err(format!("the connecting side has sent a frame of kind {kind:?}")),
        };
        let deadline = now + std::time::Duration::from_millis(u64::from(header.remaining_ms));
        let Some(verb) = Verb::from_number(header.verb) else {
            let refusal =
                Refusal::new(Refusal::UNKNOWN_VERB, format!("verb {} is not known here", header.verb));
            if let Some(stream) = stream {
                let body = frame::encode_refusal(&refusal);
                let answer = Answer { kind: Kind::Refusal, verb: header.verb, stream, deadline, body };
                if self.inbound.answers.borrow_mut().push(answer, now, |_| ()).is_ok() {
                    self.inbound.wake();
                }
            }
            return Ok(());
        };
        if verb.class() != self.inbound.class {
            return Err(format!("{} came over a connection for {}", verb.name(), self.inbound.class.name()));
        }
        let shard = &self.inbound.shard;
        let origin = Origin::Connection { connection: Rc::clone(&self.inbound), stream };
        let (bytes, request) = (body.len() as u64, Request { origin, verb, body, deadline });
        let own = shard.rt.shard();
        if header.shard != own.0 {
            let target = ShardId(header.shard % shard.rt.shard_count());
            if target != own {
                forward::request(shard, target, request);
                return Ok(());
            }
        }
        shard.counters.verb(verb, |stats| {
            stats.received += 1;
            stats.received_bytes += bytes;
        });
        serving::take(shard, request);
        Ok(())
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            let silence = self.inbound.shard.config.timeouts.silence;
            let earliest = self.inbound.served.borrow().earliest();
            let sweep = earliest.map(|earliest| earliest.max(self.swept_at + SWEEP_PAUSE));
            let wanted = soonest(sweep, self.received_at + silence);
            let timer = match &mut self.timer {
                Some(timer) if timer.deadline() <= wanted => timer,
                timer => timer.insert(self.inbound.shard.rt.sleep_until(wanted)),
            };
            if Pin::new(timer).poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.timer = None;
            let now = self.inbound.shard.rt.now();
            self.swept_at = now;
            self.inbound.expire(now);
            if self.pipe.waits_for_room() {
                // That nothing came is not the peer's doing.
                self.received_at = now;
            }
            if now >= self.received_at + silence {
                return Poll::Ready(End::Silent);
            }
            if self.inbound.served.borrow().is_empty() {
                self.pipe.rest();
            }
        }
    }
}
