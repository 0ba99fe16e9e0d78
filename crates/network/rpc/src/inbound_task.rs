//! The task of a connection that a peer has made: its requests are given to their handlers, the answers leave together.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use rt::{Instant, ShardId, Sleep, Stream};

use crate::connections::Connections;
use crate::forward;
use crate::frame::{self, Frame, Header, Kind};
use crate::hello::Agreement;
use crate::inbound::{Answer, Inbound};
use crate::packing::Packing;
use crate::pipe::{Filled, Pipe};
use crate::request::{Origin, Request};
use crate::shard::Open;
use crate::stats::{Dropped, count};
use crate::sweep::{SWEEP_PAUSE, soonest};
use crate::{Refusal, Verb};

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
    connections: Rc<Connections>,
    inbound: Rc<Inbound>,
    pipe: Pipe,
    timer: Option<Sleep>,
    swept_at: Instant,
    received_at: Instant,
    /// Nothing is read because too many answers wait.
    paused: bool,
}

/// Serves a connection until it ends and nothing of it is being served any more.
pub(crate) async fn run(
    connections: &Rc<Connections>,
    inbound: Rc<Inbound>,
    stream: Stream,
    agreed: Agreement,
) {
    let shard = Rc::clone(&inbound.shard);
    let now = shard.rt.now();
    let packing: Packing = agreed.packing;
    let pipe = Pipe::new(stream, &shard, packing);
    let open = Open::new(&shard, inbound.class, true);
    let mut task = InboundTask {
        connections: Rc::clone(connections),
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
            inbound.stats.corrupt();
            shard.warn(Some(inbound.address), "closed the internode connection from", &error);
        }
    }
    drain(connections, &inbound).await;
}

/// Lets the handlers end that were begun, until their deadlines.
async fn drain(connections: &Rc<Connections>, inbound: &Inbound) {
    loop {
        let earliest = inbound.served.borrow().earliest();
        let Some(earliest) = earliest else { return };
        inbound.shard.rt.sleep_until(earliest).await;
        expire(connections, inbound, inbound.shard.rt.now());
    }
}

/// Gives up the requests that are past their deadline.
fn expire(connections: &Connections, inbound: &Inbound, now: Instant) {
    let expired = inbound.served.borrow_mut().expire(now);
    for mut served in expired {
        // The shard that serves it counts it, too.
        if !served.forwarded {
            inbound.shard.counters.dropped(served.verb, Dropped::ExpiredServing);
        }
        inbound.stats.expired(served.bytes);
        drop(served.task.take());
        connections.done(&served);
    }
}

impl InboundTask {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        match &mut *self.inbound.waker.borrow_mut() {
            Some(known) => known.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        if self.inbound.cut.get() {
            return Poll::Ready(End::Gone);
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
            self.inbound.stats.received(body.len());
            self.inbound.stats.refused(body.len());
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
        self.inbound.stats.received(request.bytes_counted());
        let own = shard.rt.shard();
        if header.shard != own.0 {
            let target = ShardId(header.shard % shard.rt.shard_count());
            if target != own {
                forward::request(&self.connections, target, request);
                return Ok(());
            }
        }
        shard.counters.verb(verb, |stats| {
            stats.received += 1;
            stats.received_bytes += bytes;
        });
        self.connections.serving.take(request);
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
            expire(&self.connections, &self.inbound, now);
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
