//! Counters of a shard's connections, for metrics.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use topology::HostId;

use crate::peer_stats::PeerStats;
use crate::verb::{Class, Verb};

/// Why a message was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Its deadline was past before it could be written.
    ExpiredUnsent,
    /// A queue on this side was full.
    QueueFull,
    /// There was no connection.
    NotConnected,
    /// A request of a peer: its deadline was past before it was served.
    ExpiredUnserved,
    /// A request of a peer: it was not finished by its deadline, or its answer was not written by then.
    ExpiredServing,
    /// A request of a peer: there were too many.
    Overloaded,
    /// A request of a peer: nobody serves the verb.
    UnknownVerb,
}

impl Dropped {
    /// All reasons, in the order of [`Dropped::index`].
    pub const ALL: [Dropped; 7] = [
        Dropped::ExpiredUnsent,
        Dropped::QueueFull,
        Dropped::NotConnected,
        Dropped::ExpiredUnserved,
        Dropped::ExpiredServing,
        Dropped::Overloaded,
        Dropped::UnknownVerb,
    ];

    /// Position in arrays that hold one entry a reason.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Dropped::ExpiredUnsent => "expired_unsent",
            Dropped::QueueFull => "queue_full",
            Dropped::NotConnected => "not_connected",
            Dropped::ExpiredUnserved => "expired_unserved",
            Dropped::ExpiredServing => "expired_serving",
            Dropped::Overloaded => "overloaded",
            Dropped::UnknownVerb => "unknown_verb",
        }
    }
}

/// The counters of one verb on one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerbStats {
    /// Requests and one-way messages written.
    pub sent: u64,
    /// Their bytes on the wire.
    pub sent_bytes: u64,
    /// Requests and one-way messages of peers.
    pub received: u64,
    /// The bytes of their bodies, unpacked.
    pub received_bytes: u64,
    /// Answers that came, refusals included.
    pub answers: u64,
    /// The bytes of their bodies, unpacked.
    pub answers_bytes: u64,
    /// Requests of peers that were served to their end.
    pub served: u64,
    /// The bytes of the answers' bodies, before they were packed.
    pub served_bytes: u64,
    /// Calls that ended without an answer in time.
    pub timeouts: u64,
    /// Dropped messages, by [`Dropped::index`].
    pub dropped: [u64; Dropped::ALL.len()],
}

/// The counters and gauges of a shard's connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RpcStats {
    /// By [`Verb::index`].
    pub verbs: Vec<VerbStats>,
    /// Open connections that this shard has made, by class.
    pub connections_out: [usize; Class::ALL.len()],
    /// Open connections that this shard has accepted, by class.
    pub connections_in: [usize; Class::ALL.len()],
    /// Attempts to connect that failed.
    pub connect_failures: u64,
    /// Open connections that broke.
    pub connections_lost: u64,
    /// Connections that were refused or closed because of invalid bytes.
    pub connections_refused: u64,
    /// Frames that wait to be written.
    pub outgoing_count: usize,
    /// The bytes of their bodies.
    pub outgoing_bytes: usize,
    /// Calls that wait for an answer.
    pub calls_waiting: usize,
    /// Requests of peers that are being served.
    pub serving: usize,
    /// Requests of peers that wait to be served.
    pub waiting: usize,
    /// The bytes of both.
    pub inbound_bytes: usize,
    /// Bytes that long frames have booked which are coming in.
    pub partial_bytes: usize,
    /// Requests of peers that came over connections of this shard and are being served by other shards.
    pub forwarding: usize,
    /// Their bytes.
    pub forwarding_bytes: usize,
    /// Calls of this shard under way over connections of other shards.
    pub calls_shared: usize,
    /// By host.
    pub peers: BTreeMap<HostId, PeerStats>,
}

impl RpcStats {
    /// The counters of a verb.
    pub fn verb(&self, verb: Verb) -> VerbStats {
        self.verbs.get(verb.index()).copied().unwrap_or_default()
    }

    /// How often messages of a verb were dropped for a reason.
    pub fn dropped(&self, verb: Verb, reason: Dropped) -> u64 {
        self.verb(verb).dropped[reason.index()]
    }
}

/// The counters of a shard.
pub(crate) struct Counters {
    verbs: RefCell<[VerbStats; Verb::COUNT]>,
    pub(crate) connections_out: [Cell<usize>; Class::ALL.len()],
    pub(crate) connections_in: [Cell<usize>; Class::ALL.len()],
    pub(crate) connect_failures: Cell<u64>,
    pub(crate) connections_lost: Cell<u64>,
    pub(crate) connections_refused: Cell<u64>,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            verbs: RefCell::new([VerbStats::default(); Verb::COUNT]),
            connections_out: Default::default(),
            connections_in: Default::default(),
            connect_failures: Cell::default(),
            connections_lost: Cell::default(),
            connections_refused: Cell::default(),
        }
    }
}

/// Adds one.
pub(crate) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

impl Counters {
    /// Changes the counters of a verb.
    pub(crate) fn verb(&self, verb: Verb, change: impl FnOnce(&mut VerbStats)) {
        if let Some(stats) = self.verbs.borrow_mut().get_mut(verb.index()) {
            change(stats);
        }
    }

    /// A message was dropped.
    pub(crate) fn dropped(&self, verb: Verb, reason: Dropped) {
        self.verb(verb, |stats| stats.dropped[reason.index()] += 1);
    }

    /// The counters; the caller fills in the gauges.
    pub(crate) fn snapshot(&self) -> RpcStats {
        RpcStats {
            verbs: self.verbs.borrow().to_vec(),
            connections_out: self.connections_out.each_ref().map(Cell::get),
            connections_in: self.connections_in.each_ref().map(Cell::get),
            connect_failures: self.connect_failures.get(),
            connections_lost: self.connections_lost.get(),
            connections_refused: self.connections_refused.get(),
            ..RpcStats::default()
        }
    }
}
