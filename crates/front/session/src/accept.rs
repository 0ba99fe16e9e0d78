//! Accepting: the clients that may connect, and the shard for each connection. Runs on shard 0.

use std::cell::RefCell;
use std::net::IpAddr;

use rt::ShardId;
use stdx::HashMap;

/// Counts the connections of the node.
pub(crate) struct Acceptor {
    total_max: Option<usize>,
    per_ip_max: Option<usize>,
    counts: RefCell<Counts>,
}

struct Counts {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
    by_shard: Vec<usize>,
    /// The shard that got the last connection.
    last: usize,
}

impl Acceptor {
    /// No connections yet.
    pub(crate) fn new(shard_count: u16, total_max: Option<usize>, per_ip_max: Option<usize>) -> Self {
        let counts = Counts {
            total: 0,
            by_address: HashMap::default(),
            by_shard: vec![0; usize::from(shard_count)],
            last: usize::from(shard_count) - 1,
        };
        Self { total_max, per_ip_max, counts: RefCell::new(counts) }
    }

    /// The shard for a connection that names it by its source port.
    pub(crate) fn shard_of_port(&self, port: u16) -> ShardId {
        let shard_count = self.counts.borrow().by_shard.len();
        ShardId((usize::from(port) % shard_count) as u16)
    }

    /// The shard with the fewest connections; among equals they take turns.
    pub(crate) fn least_loaded(&self) -> ShardId {
        let counts = self.counts.borrow();
        let shard_count = counts.by_shard.len();
        let from_last = (1..=shard_count).map(|step| (counts.last + step) % shard_count);
        let least = from_last.min_by_key(|shard| counts.by_shard.get(*shard).copied());
        ShardId(least.expect("a node has shards") as u16)
    }

    /// Counts a connection, unless there are too many.
    pub(crate) fn admit(&self, address: IpAddr, shard: ShardId) -> bool {
        let mut counts = self.counts.borrow_mut();
        if self.total_max.is_some_and(|max| counts.total >= max) {
            return false;
        }
        let of_address = counts.by_address.entry(address).or_insert(0);
        if self.per_ip_max.is_some_and(|max| *of_address >= max) {
            if *of_address == 0 {
                counts.by_address.remove(&address);
            }
            return false;
        }
        *of_address += 1;
        counts.total += 1;
        counts.last = shard.index();
        *counts.by_shard.get_mut(shard.index()).expect("a shard of this node") += 1;
        true
    }

    /// A connection has ended.
    pub(crate) fn closed(&self, address: IpAddr, shard: ShardId) {
        let mut counts = self.counts.borrow_mut();
        counts.total -= 1;
        *counts.by_shard.get_mut(shard.index()).expect("a shard of this node") -= 1;
        let of_address = counts.by_address.get_mut(&address).expect("its connection was admitted");
        *of_address -= 1;
        if *of_address == 0 {
            counts.by_address.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 1));
    const TWO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));

    #[test]
    fn connections_are_spread_evenly() {
        let acceptor = Acceptor::new(3, None, None);
        let next = || {
            let shard = acceptor.least_loaded();
            assert!(acceptor.admit(ONE, shard));
            shard.0
        };
        assert_eq!([next(), next(), next(), next()], [0, 1, 2, 0]);
        acceptor.closed(ONE, ShardId(2));
        assert_eq!([next(), next(), next()], [2, 1, 2]);
        assert_eq!(acceptor.shard_of_port(19_043).0, 19_043 % 3);
    }

    #[test]
    fn limits_are_exact() {
        let acceptor = Acceptor::new(2, Some(3), Some(2));
        assert!(acceptor.admit(ONE, ShardId(0)) && acceptor.admit(ONE, ShardId(1)));
        assert!(!acceptor.admit(ONE, ShardId(0)), "the address has two");
        assert!(acceptor.admit(TWO, ShardId(0)));
        assert!(!acceptor.admit(TWO, ShardId(0)), "there are three");
        acceptor.closed(ONE, ShardId(0));
        assert!(acceptor.admit(TWO, ShardId(0)));
        let nobody = Acceptor::new(1, None, Some(0));
        assert!(!nobody.admit(ONE, ShardId(0)) && nobody.counts.borrow().by_address.is_empty());
    }
}
