//! The messages of an exchange, and their content.
//!
//! A sends digests ([`Message::Syn`]); B answers with the states that A lacks and requests those that B lacks ([`Message::Ack`]); A sends them
//! ([`Message::Deltas`]). A digest message says which range of host ids it covers, so that B also sees the nodes that A does not know
//! at all, and so that it can be split.

use std::net::SocketAddr;

use topology::HostId;

use crate::endpoint::States;

/// The versions of an endpoint that the sender knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The host id.
    pub host: HostId,
    /// The generation known.
    pub generation: u64,
    /// Its address in that generation; it distinguishes two that began in one second.
    pub address: SocketAddr,
    /// The newest version known.
    pub version: u64,
}

/// A request for newer values than these; the form of a digest, version 0 for everything.
pub type Request = Digest;

/// News of an endpoint: all that is newer than `base`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// The host id.
    pub host: HostId,
    /// Its generation.
    pub generation: u64,
    /// Its address.
    pub address: SocketAddr,
    /// Its newest heartbeat.
    pub heartbeat: u64,
    /// Values with greater versions are all here. A receiver with a lower version must not apply it: it would never learn the rest.
    pub base: u64,
    /// The values.
    pub states: States,
}

/// The lives that a node knows in a range of host ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roster {
    /// First host id of the range.
    pub first: HostId,
    /// Last host id of the range, included.
    pub last: HostId,
    /// A fingerprint of hosts, generations and addresses.
    pub lives: u64,
}

/// A message between nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The sender's digests of the endpoints of a range.
    Syn {
        /// Name of the sender's cluster.
        cluster: String,
        /// The address for the answer.
        reply_to: SocketAddr,
        /// First host id of the range.
        first: HostId,
        /// Last host id of the range, included.
        last: HostId,
        /// Ascending by host id.
        digests: Vec<Digest>,
    },
    /// The deltas that the sender of the digests lacks, and requests for others.
    Ack {
        /// The address for the answer.
        reply_to: SocketAddr,
        /// News.
        deltas: Vec<Delta>,
        /// The endpoints that the sender of this lacks.
        requests: Vec<Request>,
    },
    /// The requested deltas; also an announced shutdown.
    Deltas(Vec<Delta>),
    /// The versions of each endpoint of a roster: a [`Message::Syn`] for a receiver that knows the same generations.
    Versions {
        /// Name of the sender's cluster.
        cluster: String,
        /// The address for the answer.
        reply_to: SocketAddr,
        /// The endpoints.
        roster: Roster,
        /// Ascending by host id.
        versions: Vec<u64>,
    },
    /// The entries of a roster that the receiver lacks, and requests for others, by index in it (from 0, ascending).
    Beats {
        /// The address for the answer.
        reply_to: SocketAddr,
        /// The endpoints; a receiver that knows other generations by now ignores the message.
        roster: Roster,
        /// Newest heartbeats of endpoints whose values the receiver knows.
        beats: Vec<(u32, u64)>,
        /// The entries that the sender lacks: everything newer than these versions.
        wanted: Vec<(u32, u64)>,
    },
    /// The sender found that the address of a host refuses connections: the process of this generation has ended.
    Gone {
        /// The host id.
        host: HostId,
        /// The generation.
        generation: u64,
    },
}
