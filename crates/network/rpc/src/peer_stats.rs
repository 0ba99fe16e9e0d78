//! Counters of a shard's messages to and from each peer, for `system_views.internode_inbound` and `internode_outbound`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use topology::HostId;

/// Hosts that are counted; those beyond are served and not counted.
const HOSTS_MAX: usize = 4_096;

/// Messages, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Amount {
    /// The sum with another amount.
    pub fn plus(self, other: Self) -> Self {
        Self { count: self.count + other.count, bytes: self.bytes + other.bytes }
    }

    fn add(cell: &Cell<Self>, bytes: usize) {
        cell.set(cell.get().plus(Self { count: 1, bytes: bytes as u64 }));
    }
}

macro_rules! peer_stats {
    ($($(#[doc = $doc:literal])* $field:ident: $ty:ty = $sum:expr,)*) => {
        /// The messages of a shard to and from one peer since the shard's start. Requests and messages without an answer count,
        /// answers do not. Bytes of sent ones are those of the frames, of received ones those of the bodies with 64 each.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct PeerStats {
            $($(#[doc = $doc])* pub $field: $ty,)*
        }

        impl PeerStats {
            /// The sum with those of another shard.
            pub fn plus(self, other: Self) -> Self {
                Self { $($field: $sum(self.$field, other.$field),)* }
            }
        }

        /// The counters behind [`PeerStats`].
        #[derive(Debug, Default)]
        pub(crate) struct PeerCounters {
            $($field: Cell<$ty>,)*
        }

        impl PeerCounters {
            fn snapshot(&self) -> PeerStats {
                PeerStats { $($field: self.$field.get(),)* }
            }
        }
    };
}

peer_stats! {
    /// Written to a connection.
    sent: Amount = Amount::plus,
    /// Dropped because a queue of this side was full.
    overloaded: Amount = Amount::plus,
    /// Dropped because their deadline was past before they could be written.
    expired_unsent: Amount = Amount::plus,
    /// Dropped because there was no connection, or it broke before they were written.
    unsent: Amount = Amount::plus,
    /// Calls that ended without an answer in time.
    timeouts: u64 = u64::wrapping_add,
    /// Waiting to be written.
    pending: Amount = Amount::plus,
    /// Open connections that the shard has made.
    connections: u64 = u64::wrapping_add,
    /// Attempts to connect.
    attempts: u64 = u64::wrapping_add,
    /// Attempts that led to a connection.
    successes: u64 = u64::wrapping_add,
    /// Received.
    received: Amount = Amount::plus,
    /// Served to their end.
    served: Amount = Amount::plus,
    /// Not finished by their deadline.
    expired: Amount = Amount::plus,
    /// Refused: too many, or of an unknown verb.
    refused: Amount = Amount::plus,
    /// Connections of the peer that were closed because of invalid bytes.
    corrupt: u64 = u64::wrapping_add,
}

impl PeerCounters {
    pub(crate) fn sent(&self, bytes: usize) {
        Amount::add(&self.sent, bytes);
    }

    pub(crate) fn overloaded(&self, bytes: usize) {
        Amount::add(&self.overloaded, bytes);
    }

    pub(crate) fn expired_unsent(&self, bytes: usize) {
        Amount::add(&self.expired_unsent, bytes);
    }

    pub(crate) fn unsent(&self, bytes: usize) {
        Amount::add(&self.unsent, bytes);
    }

    pub(crate) fn timed_out(&self) {
        self.timeouts.set(self.timeouts.get() + 1);
    }

    pub(crate) fn attempt(&self) {
        self.attempts.set(self.attempts.get() + 1);
    }

    pub(crate) fn connected(&self) {
        self.successes.set(self.successes.get() + 1);
    }

    pub(crate) fn received(&self, bytes: usize) {
        Amount::add(&self.received, bytes);
    }

    pub(crate) fn served(&self, bytes: usize) {
        Amount::add(&self.served, bytes);
    }

    pub(crate) fn expired(&self, bytes: usize) {
        Amount::add(&self.expired, bytes);
    }

    pub(crate) fn refused(&self, bytes: usize) {
        Amount::add(&self.refused, bytes);
    }

    pub(crate) fn corrupt(&self) {
        self.corrupt.set(self.corrupt.get() + 1);
    }
}

/// The counters of the hosts that a shard has to do with.
#[derive(Debug, Default)]
pub(crate) struct PeersCounters(RefCell<BTreeMap<HostId, Rc<PeerCounters>>>);

impl PeersCounters {
    /// Those of a host.
    pub(crate) fn of(&self, host: HostId) -> Rc<PeerCounters> {
        let mut hosts = self.0.borrow_mut();
        match hosts.get(&host) {
            Some(known) => Rc::clone(known),
            None if hosts.len() >= HOSTS_MAX => Rc::default(),
            None => Rc::clone(hosts.entry(host).or_default()),
        }
    }

    /// Forgets hosts that are no peers and have no connection.
    pub(crate) fn retain(&self, is_peer: impl Fn(HostId) -> bool) {
        self.0.borrow_mut().retain(|host, counters| is_peer(*host) || Rc::strong_count(counters) > 1);
    }

    /// All of them; gauges are for the caller to fill in.
    pub(crate) fn snapshot(&self) -> BTreeMap<HostId, PeerStats> {
        self.0.borrow().iter().map(|(host, counters)| (*host, counters.snapshot())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_have_left_are_forgotten_and_the_number_is_bounded() {
        let counters = PeersCounters::default();
        let host = |n: u16| {
            let mut id = [0; 16];
            id[..2].copy_from_slice(&n.to_be_bytes());
            HostId(id)
        };
        let connected = counters.of(host(0));
        for n in 0..HOSTS_MAX as u16 {
            counters.of(host(n)).sent(10);
        }
        counters.of(host(u16::MAX)).sent(10);
        assert_eq!(counters.snapshot().len(), HOSTS_MAX);
        counters.retain(|one| one == host(1));
        connected.expired(5);
        let left = counters.snapshot();
        assert_eq!(left.len(), 2, "a peer, and one with a connection");
        assert_eq!(left[&host(0)].expired, Amount { count: 1, bytes: 5 });
        assert_eq!(left[&host(0)].plus(left[&host(1)]).sent, Amount { count: 2, bytes: 20 });
    }
}
