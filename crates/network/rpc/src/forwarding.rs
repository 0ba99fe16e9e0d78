//! Calls and requests on their way between the shards of a node: the messages, and how many there may be.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use rt::Instant;
use topology::HostId;

use crate::config::Limits;
use crate::{PeerInfo, Verb, lane};

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
    /// By lane: their bytes, and how many there may be.
    bytes: [(Cell<usize>, usize); lane::LANES],
}

impl Forwarding {
    /// None yet.
    pub(crate) fn new(limits: &Limits) -> Forwarding {
        let of_lane = |number| (Cell::new(0), lane::bytes_max(limits, number));
        Forwarding { count: Cell::new(0), bytes: std::array::from_fn(of_lane) }
    }

    /// Counts a request, if there is room for it beside `in_flight` others for its shard.
    pub(crate) fn begin(&self, verb: Verb, bytes: usize, in_flight: usize) -> bool {
        let (used, max) = &self.bytes[lane::lane_of(verb)];
        // Requests that wait for others leave half of the places to those by which their waits end.
        let count_max = if verb.waits_for_others() { FORWARDED_MAX / 2 } else { FORWARDED_MAX };
        if in_flight >= count_max || (used.get() > 0 && used.get() + bytes > *max) {
            return false;
        }
        used.set(used.get() + bytes);
        self.count.set(self.count.get() + 1);
        true
    }

    /// One has ended.
    pub(crate) fn done(&self, verb: Verb, bytes: usize) {
        let (used, _) = &self.bytes[lane::lane_of(verb)];
        used.set(used.get() - bytes);
        self.count.set(self.count.get() - 1);
    }

    /// How many there are, and their bytes.
    pub(crate) fn depth(&self) -> (usize, usize) {
        (self.count.get(), self.bytes.iter().map(|(used, _)| used.get()).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_wait_for_others_leave_places_and_bytes_to_the_rest() {
        let limits = Limits { inbound_bytes_max: 4_000, ..Limits::default() };
        let forwarding = Forwarding::new(&limits);
        assert!(forwarding.begin(Verb::Apply, 900, 0));
        assert!(!forwarding.begin(Verb::Apply, 200, 1), "a quarter of the bytes is theirs");
        assert!(forwarding.begin(Verb::Hint, 900, 1));
        assert!(!forwarding.begin(Verb::Hint, 200, 2));
        forwarding.done(Verb::Apply, 900);
        assert!(!forwarding.begin(Verb::Apply, 10, FORWARDED_MAX / 2));
        assert!(forwarding.begin(Verb::Hint, 10, FORWARDED_MAX / 2));
        assert!(!forwarding.begin(Verb::Hint, 10, FORWARDED_MAX));
        assert_eq!(forwarding.depth(), (2, 910));
    }
}
