//! A node that this shard may call: its address, and its known properties.

use std::cell::Cell;
use std::net::SocketAddr;

use topology::HostId;

use crate::PeerInfo;

/// The target of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A host, wherever it is.
    Host(HostId),
    /// The node that listens there.
    Address(SocketAddr),
}

/// A peer.
pub(crate) struct Peer {
    pub(crate) key: Key,
    pub(crate) info: PeerInfo,
    /// The peer's shard count, from its hello.
    pub(crate) shard_count: Cell<u16>,
}

impl Peer {
    /// The host that must answer, when it is known.
    pub(crate) fn expected(&self) -> Option<HostId> {
        match self.key {
            Key::Host(host) => Some(host),
            Key::Address(_) => None,
        }
    }
}
