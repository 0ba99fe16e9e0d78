//! Liveness: gossip over the messages between nodes, and its state as an immutable value.

mod clocks;
mod driver;

use std::collections::BTreeMap;

use gossip::{Endpoint, Standing};
use topology::HostId;

pub use driver::{LivenessConfig, LivenessDriver, Notice, OwnEndpoint};

/// Another node, as this one believes it to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerLiveness {
    /// Its own endpoint state. The heartbeat is that of the last change.
    pub endpoint: Endpoint,
    /// Whether it is up, and why not.
    pub standing: Standing,
    /// Since when, microseconds since 1970.
    pub since_micros: i64,
}

/// A node's view of all others. A value; a change makes another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Liveness {
    /// Grows with every change.
    pub version: u64,
    /// This node's own endpoint.
    pub own: Endpoint,
    /// The others that are known.
    pub peers: BTreeMap<HostId, PeerLiveness>,
}

impl Liveness {
    /// Whether a node is believed to answer; this one always is.
    pub fn is_alive(&self, host: HostId) -> bool {
        host == self.own.host || self.peers.get(&host).is_some_and(|peer| peer.standing == Standing::Alive)
    }

    /// The endpoint of a node, this one included.
    pub fn endpoint(&self, host: HostId) -> Option<&Endpoint> {
        match host == self.own.host {
            true => Some(&self.own),
            false => self.peers.get(&host).map(|peer| &peer.endpoint),
        }
    }
}
