//! A connection that a peer has made, as the server of its requests sees it: answers queue here, and requests under way have places.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Waker;

use bytes::Bytes;
use rt::Instant;
use topology::HostId;

use crate::frame::{self, Kind};
use crate::peer_stats::PeerCounters;
use crate::queue::{Queue, Queued};
use crate::served::{Served, ServedSet};
use crate::shard::Shard;
use crate::stats::Dropped;
use crate::{Class, Refusal, Verb};

/// The counted bytes of an answer beside its body.
const ANSWER_BYTES: usize = 64;

/// An answer on its way to the peer.
pub(crate) struct Answer {
    pub(crate) kind: Kind,
    pub(crate) verb: u8,
    pub(crate) stream: u64,
    pub(crate) deadline: Instant,
    pub(crate) body: Bytes,
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
    pub(crate) shard: Rc<Shard>,
    pub(crate) from: HostId,
    pub(crate) address: SocketAddr,
    pub(crate) class: Class,
    /// Of the peer, with those of its other connections.
    pub(crate) stats: Rc<PeerCounters>,
    pub(crate) answers: RefCell<Queue<Answer>>,
    pub(crate) served: RefCell<ServedSet>,
    pub(crate) waker: RefCell<Option<Waker>>,
    pub(crate) closed: Cell<bool>,
    /// The connection is to end.
    pub(crate) cut: Cell<bool>,
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
            stats: shard.peers.of(from),
            answers: RefCell::new(Queue::new(
                limits.outgoing_count_max,
                limits.outgoing_bytes_max,
                &shard.outgoing,
            )),
            served: RefCell::default(),
            waker: RefCell::default(),
            closed: Cell::new(false),
            cut: Cell::new(false),
        })
    }

    /// Answers that wait to be written, and their bytes.
    pub(crate) fn depth(&self) -> (usize, usize) {
        let answers = self.answers.borrow();
        (answers.len(), answers.bytes())
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
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

    pub(crate) fn expired(&self, verb: u8) {
        if let Some(verb) = Verb::from_number(verb) {
            self.shard.counters.dropped(verb, Dropped::ExpiredServing);
        }
    }

    /// Has the connection end; requests that are being served end by themselves.
    pub(crate) fn cut(&self) {
        self.cut.set(true);
        self.wake();
    }

    /// The shard stops: requests that are being served end where they wait; which they were.
    pub(crate) fn close(&self) -> Vec<Served> {
        self.closed.set(true);
        self.served.borrow_mut().clear()
    }
}
