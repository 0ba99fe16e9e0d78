//! How many connections the node accepts, and which of them make room; shard 0 counts for all shards.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::IpAddr;

use rt::sync::Notify;
use stdx::HashMap;

use crate::config::Limits;

/// Counts the accepted connections of the node; on shard 0.
///
/// Connections that have not said hello never keep others out: where there are too many, the oldest of them is closed. A
/// node says hello at once, so that only those that stay silent are old. Addresses of known nodes have a reserve.
#[derive(Default)]
pub(crate) struct Acceptor {
    total: Cell<usize>,
    by_address: RefCell<HashMap<IpAddr, usize>>,
    /// Those that have not said hello, in the order in which they came.
    greeting: RefCell<BTreeMap<u64, Greeting>>,
    next: Cell<u64>,
}

/// A connection that has not said hello.
struct Greeting {
    address: IpAddr,
    /// Comes from the address of a known node.
    known: bool,
    evicted: Notify,
}

impl Acceptor {
    /// Counts a connection before its hello: its number, and the notification when it has to make room.
    pub(crate) fn admit(
        &self,
        address: IpAddr,
        known: bool,
        limits: &Limits,
    ) -> Result<(u64, Notify), &'static str> {
        let of_address = self.by_address.borrow().get(&address).copied().unwrap_or(0);
        let mut greeting = self.greeting.borrow_mut();
        let same = |one: &Greeting| one.address == address;
        if greeting.len() >= limits.greeting_per_address_max
            && greeting.values().filter(|one| same(one)).count() >= limits.greeting_per_address_max
        {
            evict(&mut greeting, same);
        } else if of_address >= limits.per_address_max && !evict(&mut greeting, same) {
            return Err("this address has too many connections");
        }
        if greeting.len() >= limits.greeting_max && !evict(&mut greeting, |one| !one.known) {
            evict(&mut greeting, |_| true);
        }
        // An eighth is for known nodes alone.
        let most = if known { limits.connections_max } else { limits.connections_max / 8 * 7 };
        if self.total.get() >= most && !evict(&mut greeting, |one| known || !one.known) {
            return Err("this node has too many connections");
        }
        *self.by_address.borrow_mut().entry(address).or_insert(0) += 1;
        self.total.set(self.total.get() + 1);
        let number = self.next.get();
        self.next.set(number + 1);
        let evicted = Notify::new();
        greeting.insert(number, Greeting { address, known, evicted: evicted.clone() });
        Ok((number, evicted))
    }

    /// A connection has said hello, or has ended before it did.
    pub(crate) fn greeted(&self, number: u64) {
        self.greeting.borrow_mut().remove(&number);
    }

    /// A connection has ended.
    pub(crate) fn closed(&self, address: IpAddr) {
        self.total.set(self.total.get() - 1);
        let mut by_address = self.by_address.borrow_mut();
        let of_address = by_address.get_mut(&address).expect("its connection was admitted");
        *of_address -= 1;
        if *of_address == 0 {
            by_address.remove(&address);
        }
    }
}

/// Closes the oldest of some; whether there was one.
fn evict(greeting: &mut BTreeMap<u64, Greeting>, which: impl Fn(&Greeting) -> bool) -> bool {
    let oldest = greeting.iter().find(|(_, one)| which(one)).map(|(number, _)| *number);
    match oldest.and_then(|number| greeting.remove(&number)) {
        Some(one) => {
            one.evicted.notify_one();
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    #[test]
    fn limits_are_exact() {
        let limits = Limits { connections_max: 8, per_address_max: 2, ..Limits::default() };
        let acceptor = Acceptor::default();
        let greeted = |last| {
            let admitted = acceptor.admit(ip(last), false, &limits);
            admitted.map(|(number, _)| acceptor.greeted(number))
        };
        assert!(greeted(1).is_ok() && greeted(1).is_ok());
        assert!(greeted(1).unwrap_err().contains("address"));
        for last in 2..7 {
            assert!(greeted(last).is_ok());
        }
        assert!(greeted(9).unwrap_err().contains("node"), "the eighth is for known nodes");
        let (number, _) = acceptor.admit(ip(9), true, &limits).unwrap();
        acceptor.greeted(number);
        assert!(acceptor.admit(ip(10), true, &limits).err().unwrap().contains("node"));
        acceptor.closed(ip(9));
        acceptor.closed(ip(1));
        assert!(greeted(1).is_ok());
        for address in [1, 1, 2, 3, 4, 5, 6] {
            acceptor.closed(ip(address));
        }
        assert!(acceptor.by_address.borrow().is_empty() && acceptor.total.get() == 0);
    }

    #[test]
    fn those_that_stay_silent_make_room() {
        let limits = Limits {
            greeting_max: 6,
            greeting_per_address_max: 2,
            connections_max: 800,
            ..Limits::default()
        };
        let acceptor = Acceptor::default();
        let greeting = || -> Vec<u64> { acceptor.greeting.borrow().keys().copied().collect() };
        let enter = |last, known| acceptor.admit(ip(last), known, &limits).map(|(number, _)| number);
        for number in 0..3 {
            assert_eq!(enter(1, false), Ok(number));
        }
        assert_eq!(greeting(), [1, 2], "an address's oldest");
        let member = enter(2, true).unwrap();
        for last in 3..6 {
            assert!(enter(last, false).is_ok());
        }
        assert_eq!(greeting(), [1, 2, member, 4, 5, 6]);
        for last in 6..60 {
            assert!(enter(last, false).is_ok());
        }
        assert!(
            greeting().contains(&member) && greeting().len() == 6,
            "the oldest, but of a known node's none"
        );
        for _ in 0..2 {
            assert!(enter(1, true).is_ok());
        }
    }

    #[test]
    fn silent_connections_do_not_exhaust_the_total() {
        let limits = Limits { connections_max: 16, ..Limits::default() };
        let acceptor = Acceptor::default();
        for last in 0..100 {
            assert!(acceptor.admit(ip(last), false, &limits).is_ok());
        }
        assert_eq!(acceptor.greeting.borrow().len(), 14);
    }
}
