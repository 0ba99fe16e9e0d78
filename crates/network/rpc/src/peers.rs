//! The addresses of the cluster's hosts.

use std::net::SocketAddr;

use stdx::HashMap;
use topology::HostId;

/// The distance of a peer, seen from this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Near {
    /// It is not known, as when the cluster is being looked for.
    Unknown,
    /// In another datacenter.
    Elsewhere,
    /// In another rack of the same datacenter.
    Datacenter,
    /// In the same rack.
    Rack,
}

impl Near {
    /// The distance of a known peer.
    pub fn of(same_datacenter: bool, same_rack: bool) -> Near {
        match (same_datacenter, same_rack) {
            (true, true) => Near::Rack,
            (true, false) => Near::Datacenter,
            (false, _) => Near::Elsewhere,
        }
    }

    /// Whether it is in the same datacenter.
    pub fn in_datacenter(self) -> bool {
        matches!(self, Near::Rack | Near::Datacenter)
    }
}

/// The address and features of a host that a connection needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Its listen address for other nodes.
    pub address: SocketAddr,
    /// How many shards it has, as far as is known; at least 1. The host itself has the last word.
    pub shard_count: u16,
    /// Its distance, seen from this node.
    pub near: Near,
}

/// The hosts of the cluster and where they are. A value: a change makes another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    by_host: HashMap<HostId, PeerInfo>,
}

impl Peers {
    /// These hosts.
    pub fn new(hosts: impl IntoIterator<Item = (HostId, PeerInfo)>) -> Peers {
        Peers { by_host: hosts.into_iter().collect() }
    }

    /// The entry of a host.
    pub fn get(&self, host: HostId) -> Option<&PeerInfo> {
        self.by_host.get(&host)
    }

    /// Every host and where it is, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (HostId, &PeerInfo)> {
        self.by_host.iter().map(|(host, info)| (*host, info))
    }

    /// How many hosts there are.
    pub fn len(&self) -> usize {
        self.by_host.len()
    }

    /// Whether no host is known.
    pub fn is_empty(&self) -> bool {
        self.by_host.is_empty()
    }
}
