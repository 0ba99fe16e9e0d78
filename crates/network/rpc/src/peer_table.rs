//! The peers of one shard and its links to them.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;

use rt::ShardId;
use stdx::HashMap;
use topology::HostId;

use crate::link::Link;
use crate::peer::{Key, Peer};
use crate::pool::ConnectionsPerPeer;
use crate::shard::Shard;
use crate::{Class, Near, PeerInfo, Peers, RpcError};

/// A peer and the links of this shard to it.
pub(crate) struct PeerLinks {
    pub(crate) peer: Rc<Peer>,
    /// By class: the shard of this node whose link this shard uses.
    owners: Cell<[u16; Class::ALL.len()]>,
    /// By class.
    links: RefCell<[Option<Rc<Link>>; Class::ALL.len()]>,
}

impl PeerLinks {
    fn new(key: Key, info: PeerInfo, connections: &ConnectionsPerPeer, own: ShardId) -> Rc<PeerLinks> {
        let shard_count = Cell::new(info.shard_count.max(1));
        let owners = Cell::new([own.0; Class::ALL.len()]);
        let peer = Rc::new(Peer { key, info, shard_count });
        let links = PeerLinks { peer, owners, links: RefCell::default() };
        links.set_owners(connections, own);
        Rc::new(links)
    }

    /// The shard of this node whose link this shard uses.
    pub(crate) fn owner(&self, class: Class) -> ShardId {
        ShardId(self.owners.get()[class as usize])
    }

    /// An address is known to the shard alone that calls it, a host to all.
    fn set_owners(&self, connections: &ConnectionsPerPeer, own: ShardId) {
        if let Key::Host(host) = self.peer.key {
            self.owners.set(Class::ALL.map(|class| connections.owner(class, own.0, host)));
        }
    }

    /// All links.
    pub(crate) fn links(&self) -> Vec<Rc<Link>> {
        self.links.borrow().iter().flatten().map(Rc::clone).collect()
    }

    /// This shard's own link to the peer.
    pub(crate) fn link(&self, shard: &Rc<Shard>, class: Class) -> Rc<Link> {
        let link = &mut self.links.borrow_mut()[class as usize];
        Rc::clone(link.get_or_insert_with(|| Link::new(shard, &self.peer, class)))
    }
}

/// The peers that one shard knows.
pub(crate) struct PeerTable {
    shard: Rc<Shard>,
    peers: RefCell<HashMap<Key, Rc<PeerLinks>>>,
    /// Connections that each peer gets, with the peers that are known now.
    connections: Cell<ConnectionsPerPeer>,
}

impl PeerTable {
    /// No peer yet.
    pub(crate) fn new(shard: &Rc<Shard>) -> PeerTable {
        let out_max = shard.config.limits.connections_out_max;
        let connections = ConnectionsPerPeer::new(shard.rt.shard_count(), 0, out_max);
        PeerTable { shard: Rc::clone(shard), peers: RefCell::default(), connections: Cell::new(connections) }
    }

    /// The peer that a key names; an address needs not be known before.
    pub(crate) fn peer(&self, key: Key) -> Option<Rc<PeerLinks>> {
        if let Some(peer) = self.known(key) {
            return Some(peer);
        }
        let Key::Address(address) = key else { return None };
        Some(self.peer_or(key, PeerInfo { address, shard_count: 1, near: Near::Unknown }))
    }

    /// The peer that a key names, if it is known.
    pub(crate) fn known(&self, key: Key) -> Option<Rc<PeerLinks>> {
        self.peers.borrow().get(&key).map(Rc::clone)
    }

    /// Whether a known node has this address.
    pub(crate) fn knows(&self, address: IpAddr) -> bool {
        let of_host = |(key, links): (&Key, &Rc<PeerLinks>)| {
            matches!(key, Key::Host(_)) && links.peer.info.address.ip() == address
        };
        self.peers.borrow().iter().any(of_host)
    }

    /// The peer that a key names; one that is not known yet is taken to be as another shard knows it.
    pub(crate) fn peer_or(&self, key: Key, info: PeerInfo) -> Rc<PeerLinks> {
        let mut peers = self.peers.borrow_mut();
        let new = || PeerLinks::new(key, info, &self.connections.get(), self.shard.rt.shard());
        Rc::clone(peers.entry(key).or_insert_with(new))
    }

    /// Takes over where the hosts are. Links to hosts that have moved or are gone are closed.
    pub(crate) fn set_peers(&self, new: &Peers) {
        let mut gone = Vec::new();
        let others = new.iter().filter(|(host, _)| *host != self.shard.config.host).count();
        let (own, shards) = (self.shard.rt.shard(), self.shard.rt.shard_count());
        let connections =
            ConnectionsPerPeer::new(shards, others, self.shard.config.limits.connections_out_max);
        let changed = self.connections.replace(connections) != connections;
        {
            let mut peers = self.peers.borrow_mut();
            peers.retain(|key, peer| {
                let Key::Host(host) = key else { return true };
                let kept = new.get(*host).is_some_and(|info| *info == peer.peer.info);
                if !kept {
                    gone.push(Rc::clone(peer));
                }
                kept
            });
            for (host, info) in new.iter() {
                let key = Key::Host(host);
                let peer = peers.entry(key).or_insert_with(|| PeerLinks::new(key, *info, &connections, own));
                if changed {
                    peer.set_owners(&connections, own);
                }
            }
        }
        self.shard.peers.retain(|host| new.get(host).is_some());
        for (peer, link) in
            gone.iter().flat_map(|peer| peer.links().into_iter().map(move |link| (peer, link)))
        {
            // A peer whose features became known is the same node: its queued messages go to it.
            if let Some(now) = self.known(peer.peer.key) {
                link.pass_on(&now.link(&self.shard, link.class));
            }
            link.close(&RpcError::Lost);
        }
    }

    /// A host is up: tasks that wait to reconnect to it try at once.
    pub(crate) fn is_there(&self, host: HostId) {
        let peer = self.known(Key::Host(host));
        for link in peer.iter().flat_map(|peer| peer.links()) {
            link.retry_now();
        }
    }

    /// All links of this shard.
    pub(crate) fn links(&self) -> Vec<Rc<Link>> {
        self.links_by_key().into_iter().map(|(_, link)| link).collect()
    }

    /// All links of this shard, each with its target.
    pub(crate) fn links_by_key(&self) -> Vec<(Key, Rc<Link>)> {
        let peers = self.peers.borrow();
        let of_peer = |(key, peer): (&Key, &Rc<PeerLinks>)| {
            let key = *key;
            peer.links().into_iter().map(move |link| (key, link))
        };
        peers.iter().flat_map(of_peer).collect()
    }

    /// Forgets all peers; the shard stops.
    pub(crate) fn clear(&self) {
        for link in self.links() {
            link.close(&RpcError::Stopped);
        }
        let peers = std::mem::take(&mut *self.peers.borrow_mut());
        drop(peers);
    }
}
