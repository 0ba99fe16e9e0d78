//! Calls and requests on their way between the shards of a node: the messages, and how many there may be.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use rt::Instant;
use topology::HostId;

use crate::config::Limits;
use crate::{Class, PeerInfo, Verb};

/// Calls, and requests, under way from one shard to another.
pub(crate) const FORWARDED_MAX: usize = 16_384;

/// Bytes that were given to other shards and have not been queued there.
#[derive(Clone, Default)]
pub(crate) struct InTransit(Arc<AtomicUsize>);

/// Counts bytes until it is dropped, on any shard.
pub(crate) struct Held {
    in_transit: InTransit,
    bytes: usize,
}

impl InTransit {
    fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts so many bytes; one call alone may have more than `max`.
    pub(crate) fn hold(&self, bytes: usize, max: usize) -> Option<Held> {
        let before = self.bytes();
        if before > 0 && before + bytes > max {
            return None;
        }
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Some(Held { in_transit: self.clone(), bytes })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.in_transit.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A call over a connection of the shard that gets it.
pub(crate) struct SharedCall {
    pub(crate) host: HostId,
    /// The host's address as the caller knows it; the owner may not know it yet.
    pub(crate) info: PeerInfo,
    /// The shard of the peer that is to serve it.
    pub(crate) shard: u16,
    pub(crate) verb: Verb,
    pub(crate) body: [Bytes; 2],
    pub(crate) deadline: Instant,
    pub(crate) answered: bool,
}

/// The same on its way.
pub(crate) struct SharedCallMessage {
    pub(crate) call: SharedCall,
    pub(crate) held: Held,
}

/// A request of a peer on its way to the shard that it names.
pub(crate) struct ForwardedRequest {
    pub(crate) from: HostId,
    pub(crate) address: SocketAddr,
    pub(crate) verb: Verb,
    pub(crate) body: Bytes,
    pub(crate) deadline: Instant,
}

/// The requests that other shards are serving for connections of this one.
pub(crate) struct Forwarding {
    count: Cell<usize>,
    /// By class: their bytes, and how many there may be.
    bytes: [(Cell<usize>, usize); Class::ALL.len()],
}

impl Forwarding {
    /// None yet.
    pub(crate) fn new(limits: &Limits) -> Forwarding {
        let of_class = |class| (Cell::new(0), limits.requests_bytes_max(class));
        Forwarding { count: Cell::new(0), bytes: Class::ALL.map(of_class) }
    }

    pub(crate) fn begin(&self, class: Class, bytes: usize) -> bool {
        let (used, max) = &self.bytes[class as usize];
        if used.get() > 0 && used.get() + bytes > *max {
            return false;
        }
        used.set(used.get() + bytes);
        self.count.set(self.count.get() + 1);
        true
    }

    /// One has ended.
    pub(crate) fn done(&self, class: Class, bytes: usize) {
        let (used, _) = &self.bytes[class as usize];
        used.set(used.get() - bytes);
        self.count.set(self.count.get() - 1);
    }

    /// How many there are, and their bytes.
    pub(crate) fn depth(&self) -> (usize, usize) {
        (self.count.get(), self.bytes.iter().map(|(used, _)| used.get()).sum())
    }
}
