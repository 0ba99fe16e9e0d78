//! Limits of the node on bytes in flight, shared by its shards: shard 0 leases parts of them, and shards give unused
//! bytes back. A shard that has room decides alone; a message is sent only when it has none, or has far too much.

use std::collections::VecDeque;
use std::net::IpAddr;

use rt::ShardId;
use stdx::HashMap;

/// Every shard always holds this part of its even share of a limit: [`share`].
const SHARES: usize = 8;

/// Bytes of a limit that every shard has without asking; also the step in which more is leased.
pub(crate) fn share(limit: usize, shard_count: u16) -> usize {
    match shard_count {
        0 | 1 => limit,
        count => limit / (SHARES * usize::from(count)),
    }
}

/// A limit, and the rest of it that can be leased.
struct Quota {
    left: usize,
    /// The rest of the limit apart from all leases.
    whole: usize,
    step: usize,
    /// Shards that wait for a lease.
    waiting: VecDeque<ShardId>,
}

impl Quota {
    fn new(limit: usize, shard_count: u16) -> Self {
        let step = share(limit, shard_count);
        let whole = limit.saturating_sub(step * usize::from(shard_count.max(1)));
        Self { left: whole, whole, step, waiting: VecDeque::new() }
    }

    fn borrow(&mut self, shard: ShardId, bytes: usize) -> usize {
        let granted = bytes.min(self.left);
        self.left -= granted;
        if granted == 0 && !self.waiting.contains(&shard) {
            self.waiting.push_back(shard);
        }
        granted
    }

    /// Takes bytes back; the waiting shards get them: which, and how many bytes.
    fn give_back(&mut self, bytes: usize) -> Vec<(ShardId, usize)> {
        self.left += bytes;
        assert!(self.left <= self.whole, "only a lease is given back");
        let mut granted = Vec::new();
        while self.left > 0
            && let Some(shard) = self.waiting.pop_front()
        {
            let bytes = self.left.min(self.step.max(1));
            self.left -= bytes;
            granted.push((shard, bytes));
        }
        granted
    }
}

/// The node's limits: in total, and of each client address. On shard 0.
pub(crate) struct Ledger {
    shard_count: u16,
    limit_per_ip: usize,
    total: Quota,
    /// Addresses whose limit has leases.
    by_address: HashMap<IpAddr, Quota>,
}

impl Ledger {
    pub(crate) fn new(limit: usize, limit_per_ip: usize, shard_count: u16) -> Self {
        let total = Quota::new(limit, shard_count);
        Self { shard_count, limit_per_ip, total, by_address: HashMap::default() }
    }

    /// A shard wants so many bytes more, of the total or of an address's limit; how many it gets. With none it is notified
    /// later.
    pub(crate) fn borrow(&mut self, shard: ShardId, address: Option<IpAddr>, bytes: usize) -> usize {
        let (limit, count) = (self.limit_per_ip, self.shard_count);
        match address {
            None => self.total.borrow(shard, bytes),
            Some(address) => {
                let quota = self.by_address.entry(address).or_insert_with(|| Quota::new(limit, count));
                quota.borrow(shard, bytes)
            }
        }
    }

    /// A shard gives back; which waiting shards get how much of it.
    pub(crate) fn give_back(&mut self, address: Option<IpAddr>, bytes: usize) -> Vec<(ShardId, usize)> {
        let Some(address) = address else { return self.total.give_back(bytes) };
        let quota = self.by_address.get_mut(&address).expect("only a lease is given back");
        let granted = quota.give_back(bytes);
        if quota.left == quota.whole {
            self.by_address.remove(&address);
        }
        granted
    }

    /// Addresses whose limit has leases.
    #[cfg(test)]
    fn addresses(&self) -> usize {
        self.by_address.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn one_shard_may_have_the_unused_quota_of_the_others() {
        let mut ledger = Ledger::new(1600, 800, 2);
        assert_eq!(share(1600, 2), 100);
        assert_eq!(ledger.borrow(ShardId(0), None, 1000), 1000);
        assert_eq!(ledger.borrow(ShardId(1), None, 1000), 400, "both have 100 of their own");
        assert_eq!(ledger.borrow(ShardId(1), None, 1), 0);
        assert_eq!(ledger.borrow(ShardId(1), None, 1), 0);
        assert_eq!(ledger.give_back(None, 250), [(ShardId(1), 100)], "a waiting shard is notified once");
        assert_eq!(ledger.give_back(None, 10), []);
        assert_eq!(ledger.borrow(ShardId(0), None, 1000), 160);
    }

    #[test]
    fn addresses_are_forgotten_when_all_is_given_back() {
        let mut ledger = Ledger::new(1600, 800, 2);
        assert_eq!(ledger.borrow(ShardId(1), Some(ADDRESS), 5000), 700);
        assert_eq!(ledger.borrow(ShardId(0), Some(ADDRESS), 1), 0);
        assert_eq!(ledger.borrow(ShardId(0), None, 1), 1, "the total is another limit");
        assert_eq!(ledger.give_back(Some(ADDRESS), 700), [(ShardId(0), 50)]);
        assert_eq!(ledger.addresses(), 1);
        assert_eq!(ledger.give_back(Some(ADDRESS), 50), []);
        assert_eq!(ledger.addresses(), 0);
    }
}
