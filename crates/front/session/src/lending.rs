//! Limits of the node on bytes in flight, shared by its shards: shard 0 lends parts of them, and shards give back what they
//! do not need. A shard that has room decides alone; a message is sent only when it has not, or has far too much.

use std::collections::VecDeque;
use std::net::IpAddr;

use rt::ShardId;
use stdx::HashMap;

/// Every shard always holds this part of its even share of a limit: [`share`].
const SHARES: usize = 8;

/// What every shard has of a limit without asking, in bytes; also the step in which more is lent.
pub(crate) fn share(limit: usize, shard_count: u16) -> usize {
    match shard_count {
        0 | 1 => limit,
        count => limit / (SHARES * usize::from(count)),
    }
}

/// A limit, and what is left of it to lend.
struct Purse {
    left: usize,
    /// What is left when nothing is lent.
    whole: usize,
    step: usize,
    /// Shards that were told that there is nothing.
    waiting: VecDeque<ShardId>,
}

impl Purse {
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

    /// Takes bytes back; who has waited gets them, and how many.
    fn give_back(&mut self, bytes: usize) -> Vec<(ShardId, usize)> {
        self.left += bytes;
        assert!(self.left <= self.whole, "only what was lent is given back");
        let mut lent = Vec::new();
        while self.left > 0
            && let Some(shard) = self.waiting.pop_front()
        {
            let granted = self.left.min(self.step.max(1));
            self.left -= granted;
            lent.push((shard, granted));
        }
        lent
    }
}

/// What the node lends: of the limit in total, and of each client address's. Lives on shard 0.
pub(crate) struct Ledger {
    shard_count: u16,
    limit_per_ip: usize,
    total: Purse,
    /// Addresses of whose limit something is lent.
    by_address: HashMap<IpAddr, Purse>,
}

impl Ledger {
    pub(crate) fn new(limit: usize, limit_per_ip: usize, shard_count: u16) -> Self {
        let total = Purse::new(limit, shard_count);
        Self { shard_count, limit_per_ip, total, by_address: HashMap::default() }
    }

    /// A shard wants so many bytes more, of the total or of an address's limit; how many it gets. With none it is told
    /// later.
    pub(crate) fn borrow(&mut self, shard: ShardId, address: Option<IpAddr>, bytes: usize) -> usize {
        let (limit, count) = (self.limit_per_ip, self.shard_count);
        match address {
            None => self.total.borrow(shard, bytes),
            Some(address) => {
                let purse = self.by_address.entry(address).or_insert_with(|| Purse::new(limit, count));
                purse.borrow(shard, bytes)
            }
        }
    }

    /// A shard gives back; which waiting shards get how much of it.
    pub(crate) fn give_back(&mut self, address: Option<IpAddr>, bytes: usize) -> Vec<(ShardId, usize)> {
        let Some(address) = address else { return self.total.give_back(bytes) };
        let purse = self.by_address.get_mut(&address).expect("what is given back was lent");
        let lent = purse.give_back(bytes);
        if purse.left == purse.whole {
            self.by_address.remove(&address);
        }
        lent
    }

    /// Addresses of whose limit something is lent.
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
    fn one_shard_may_have_what_the_others_do_not_need() {
        let mut ledger = Ledger::new(1600, 800, 2);
        assert_eq!(share(1600, 2), 100);
        assert_eq!(ledger.borrow(ShardId(0), None, 1000), 1000);
        assert_eq!(ledger.borrow(ShardId(1), None, 1000), 400, "both have 100 of their own");
        assert_eq!(ledger.borrow(ShardId(1), None, 1), 0);
        assert_eq!(ledger.borrow(ShardId(1), None, 1), 0);
        assert_eq!(ledger.give_back(None, 250), [(ShardId(1), 100)], "who waits is told once");
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
