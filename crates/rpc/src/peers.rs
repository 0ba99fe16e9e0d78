//! Where the hosts of the cluster are.

use std::net::SocketAddr;

use stdx::HashMap;
use topology::HostId;

/// What has to be known of a host to reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Where it listens for other nodes.
    pub address: SocketAddr,
    /// How many shards it has, as far as is known; at least 1. The host itself has the last word.
    pub shard_count: u16,
    /// Whether it stands in this node's datacenter.
    pub same_datacenter: bool,
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

    /// Where a host is.
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
