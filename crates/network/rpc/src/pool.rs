//! How many connections a node makes to a peer, and which of its shards own them. Pure.
//!
//! At most one a shard, peer and class: shard n connects to the peer's shard n, so that requests of a token need no
//! other shard on either side when both nodes have as many. In large clusters fewer: neighbouring shards share one, so
//! that a node stays within its connections however many shards and nodes there are.

use topology::HostId;

use crate::Class;

/// To each peer one connection for urgent messages to the host, and one to its address, by which gossip knows it.
const URGENT: usize = 2;

/// Connections that a node makes to each of its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionsPerPeer {
    shards: u16,
    /// By class: how many neighbouring shards share a connection.
    sharing: [u16; Class::ALL.len()],
}

impl ConnectionsPerPeer {
    /// For a node of so many shards and peers that makes at most `connections_max` connections, or as few as there can be.
    pub fn new(shards: u16, peers: usize, connections_max: usize) -> ConnectionsPerPeer {
        let shards = shards.max(1);
        let each = (connections_max / peers.max(1)).saturating_sub(URGENT);
        let sharing = |connections: usize| {
            let connections = u16::try_from(connections).unwrap_or(u16::MAX).clamp(1, shards);
            shards.div_ceil(connections)
        };
        let bulk = (each / 4).max(1);
        let of_class = |class| match class {
            Class::Urgent => shards,
            Class::Bulk => sharing(bulk),
            Class::Request => sharing(each.saturating_sub(bulk)),
        };
        ConnectionsPerPeer { shards, sharing: Class::ALL.map(of_class) }
    }

    /// Connections to one peer for a class.
    pub fn of_class(&self, class: Class) -> usize {
        usize::from(self.shards.div_ceil(self.sharing[class as usize]))
    }

    /// Connections to one peer, of all classes.
    pub fn total(&self) -> usize {
        Class::ALL.into_iter().map(|class| self.of_class(class)).sum::<usize>() + URGENT - 1
    }

    /// The shard that owns the connection which `shard` uses. Of those that share one, it differs from peer to peer.
    pub fn owner(&self, class: Class, shard: u16, peer: HostId) -> u16 {
        if class == Class::Urgent {
            // Gossip and Raft live there.
            return 0;
        }
        let sharing = self.sharing[class as usize];
        let first = shard / sharing * sharing;
        let together = sharing.min(self.shards - first);
        first + (spread(peer) % u32::from(together)) as u16
    }
}

/// The shard of a peer to which a connection of `shard` leads: the one of the same number, or the same part of the tokens.
pub fn wanted_shard(class: Class, (shard, shards): (u16, u16), peer_shards: u16, own: HostId) -> u16 {
    if class == Class::Urgent {
        return 0;
    }
    let begin = |shard: u16| u32::from(shard) * u32::from(peer_shards) / u32::from(shards.max(1));
    let (first, end) = (begin(shard), begin(shard + 1));
    // Where the peer has more shards, the shards that exist in small nodes too must not all get the connections.
    (first + spread(own) % (end - first).max(1)) as u16
}

fn spread(host: HostId) -> u32 {
    crc32fast::hash(&host.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    fn host(number: u16) -> HostId {
        let mut host = [0; 16];
        host[..2].copy_from_slice(&number.to_be_bytes());
        HostId(host)
    }

    /// The size that the design must support: see docs/design/rpc.md.
    #[test]
    fn sixty_four_shards_and_a_thousand_nodes() {
        let most = Limits::default().connections_out_max;
        let per_peer = ConnectionsPerPeer::new(64, 999, most);
        assert_eq!(Class::ALL.map(|class| per_peer.of_class(class)), [11, 1, 3]);
        // Each peer makes as many to this node as this node makes to it.
        let descriptors = 2 * 999 * per_peer.total();
        assert_eq!((per_peer.total(), descriptors), (16, 31_968));
        assert!(descriptors <= 65_536 / 2);
        // With a limit of 65,536 open files the server leaves three thirty-seconds of them for this.
        let per_peer = ConnectionsPerPeer::new(64, 999, 65_536 / 32 * 3);
        assert_eq!((per_peer.total(), 2 * 999 * per_peer.total()), (6, 11_988));
    }

    #[test]
    fn connections_stay_within_their_number_and_are_one_a_shard_at_most() {
        for shards in [1, 2, 3, 7, 16, 63, 64, 65, 255, 256] {
            for peers in [0, 1, 2, 5, 9, 17, 100, 999, 4_000] {
                for most in [0, 28, 1_000, 6_144, 16_384] {
                    let per_peer = ConnectionsPerPeer::new(shards, peers, most);
                    let least = Class::ALL.len() + URGENT - 1;
                    let case = format!("{shards} shards, {peers} peers, {most}: {per_peer:?}");
                    assert!(per_peer.total() * peers <= most || per_peer.total() == least, "{case}");
                    for class in Class::ALL {
                        assert!(per_peer.of_class(class) <= usize::from(shards), "{case}");
                    }
                    if most / peers.max(1) > 2 + 2 * usize::from(shards) * 4 {
                        let own = |shard| per_peer.owner(Class::Request, shard, host(7)) == shard;
                        assert!((0..shards).all(own), "there is room for one each: {case}");
                    }
                }
            }
        }
    }

    #[test]
    fn owners_own_their_own_and_take_turns() {
        let per_peer = ConnectionsPerPeer::new(64, 999, Limits::default().connections_out_max);
        let mut owned = [0; 64];
        for peer in 0..999 {
            let owners: std::collections::BTreeSet<u16> =
                (0..64).map(|shard| per_peer.owner(Class::Request, shard, host(peer))).collect();
            assert_eq!(owners.len(), per_peer.of_class(Class::Request));
            for owner in owners {
                assert_eq!(
                    per_peer.owner(Class::Request, owner, host(peer)),
                    owner,
                    "nobody passes it on twice"
                );
                owned[usize::from(owner)] += 1;
            }
        }
        let (least, most) = (owned.iter().min().unwrap(), owned.iter().max().unwrap());
        // The last of the eleven groups has four shards, the others six.
        assert!(*least > 120 && *most < 300, "{owned:?}");
    }

    #[test]
    fn like_shards_meet_and_all_of_a_larger_peer_have_some() {
        for shard in 0..64 {
            assert_eq!(wanted_shard(Class::Request, (shard, 64), 64, host(3)), shard);
            assert_eq!(wanted_shard(Class::Urgent, (shard, 64), 64, host(3)), 0);
            assert!(wanted_shard(Class::Bulk, (shard, 64), 5, host(3)) < 5);
        }
        let met: std::collections::BTreeSet<u16> =
            (0..300).map(|node| wanted_shard(Class::Request, (0, 1), 8, host(node))).collect();
        assert_eq!(met.len(), 8);
    }
}
