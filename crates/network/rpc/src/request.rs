//! Requests of peers: where they came from, and where their answers go.

use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use rt::Instant;
use rt::sync::oneshot;
use topology::HostId;

use crate::inbound::Inbound;
use crate::queue::Queued;
use crate::{Refusal, Verb};

/// A request of a peer.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The host that asks.
    pub from: HostId,
    /// The source address of its connection; not its listen address.
    pub address: SocketAddr,
    /// The verb.
    pub verb: Verb,
    /// With which content.
    pub body: Bytes,
    /// When it does not want the answer any more.
    pub deadline: Instant,
}

/// How it was served; none when it was past its deadline.
pub(crate) type ForwardedOutcome = Option<Result<Bytes, Refusal>>;

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

    /// Its deadline was past before it was served.
    pub(crate) fn expired(&self) {
        if let Origin::Connection { connection, .. } = &self.origin {
            connection.stats.expired(self.bytes_counted());
        }
    }

    /// Answers without serving it.
    pub(crate) fn refuse(self, refusal: Refusal) {
        let bytes = self.bytes_counted();
        match self.origin {
            Origin::Connection { connection, stream } => {
                connection.stats.refused(bytes);
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
