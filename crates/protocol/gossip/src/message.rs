//! The three messages of an exchange, and what they carry.
//!
//! A sends digests ([`Message::Syn`]); B answers with what A lacks and asks for what B lacks ([`Message::Ack`]); A gives it
//! ([`Message::Deltas`]). A digest message says which range of host ids it covers, so that B also sees whom A does not know
//! at all, and so that it can be split.

use std::net::SocketAddr;

use topology::HostId;

use crate::endpoint::States;

/// How much the sender knows of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// Whose.
    pub host: HostId,
    /// The generation known.
    pub generation: u64,
    /// Where it is in that generation; two that began in one second are told apart by it.
    pub address: SocketAddr,
    /// The newest version known.
    pub version: u64,
}

/// Asks for what is newer than this; the form of a digest, version 0 for everything.
pub type Request = Digest;

/// News of an endpoint: all that is newer than `base`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// Whose.
    pub host: HostId,
    /// Its life.
    pub generation: u64,
    /// Where it is.
    pub address: SocketAddr,
    /// Its newest heartbeat.
    pub heartbeat: u64,
    /// Values with greater versions are all here. Who knows less must not take it: it would never learn of the rest.
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

/// What goes from node to node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// What the sender knows of the endpoints of a range.
    Syn {
        /// Name of the sender's cluster.
        cluster: String,
        /// Where the answer goes.
        reply_to: SocketAddr,
        /// First host id of the range.
        first: HostId,
        /// Last host id of the range, included.
        last: HostId,
        /// Ascending by host id.
        digests: Vec<Digest>,
    },
    /// What the sender of the digests lacks, and what it is asked for.
    Ack {
        /// Where the answer goes.
        reply_to: SocketAddr,
        /// News.
        deltas: Vec<Delta>,
        /// What the sender of this lacks.
        requests: Vec<Request>,
    },
    /// What was asked for; also a good-bye.
    Deltas(Vec<Delta>),
    /// How much the sender knows of each life of a roster: what [`Message::Syn`] says, for one who knows the same lives.
    Versions {
        /// Name of the sender's cluster.
        cluster: String,
        /// Where the answer goes.
        reply_to: SocketAddr,
        /// Whose.
        roster: Roster,
        /// Ascending by host id.
        versions: Vec<u64>,
    },
    /// What the receiver lacks of a roster and what it is asked for, by place in it (from 0, ascending).
    Beats {
        /// Where the answer goes.
        reply_to: SocketAddr,
        /// Whose; who knows other lives by now ignores the message.
        roster: Roster,
        /// Newest heartbeats of endpoints of which nothing else is newer than what the receiver knew.
        beats: Vec<(u32, u64)>,
        /// What the sender lacks: everything newer than these versions.
        wanted: Vec<(u32, u64)>,
    },
    /// The sender found that the address of a host refuses connections: the process of this life has ended.
    Gone {
        /// Whose.
        host: HostId,
        /// The life.
        generation: u64,
    },
}
