//! Addresses that hosts are heard from beside those that the cluster's log has. A node that starts at another address gossips from there before the
//! log can name it, and the log may name it before its gossip arrives: whichever spoke last counts, so that no earlier address stays.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use topology::HostId;

/// The hosts that were heard from another address than the log's.
#[derive(Debug, Default)]
pub(crate) struct HeardAddresses(BTreeMap<HostId, SocketAddr>);

impl HeardAddresses {
    /// Where a member is that has this address in the log.
    pub(crate) fn address_of(&self, host: HostId, logged: SocketAddr) -> SocketAddr {
        self.0.get(&host).copied().unwrap_or(logged)
    }

    /// Live hosts are heard from these addresses; whether one of them is elsewhere than before. One that is heard from its address in the log has
    /// no other one any more.
    pub(crate) fn heard(
        &mut self,
        live: &BTreeMap<HostId, SocketAddr>,
        logged: impl Fn(HostId) -> Option<SocketAddr>,
    ) -> bool {
        let mut has_changed = false;
        for (host, address) in live {
            has_changed |= match logged(*host) {
                None => false,
                Some(logged) if logged == *address => self.0.remove(host).is_some(),
                Some(_) => self.0.insert(*host, *address) != Some(*address),
            };
        }
        has_changed
    }

    /// The log has changed: the hosts to which it gives another address than `before` are there.
    pub(crate) fn logged(
        &mut self,
        before: impl Fn(HostId) -> Option<SocketAddr>,
        now: impl Fn(HostId) -> Option<SocketAddr>,
    ) {
        self.0.retain(|host, _| now(*host).is_some_and(|address| before(*host) == Some(address)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: HostId = HostId([2; 16]);

    fn at(last: u8) -> SocketAddr {
        ([10, 0, 0, last], 7000).into()
    }

    /// Where a host is after these events: `log N` and `gossip N` are its addresses from there, the first one is that of the log.
    fn place(events: &str) -> SocketAddr {
        let mut heard = HeardAddresses::default();
        let mut words = events.split_whitespace();
        let mut logged = at(1);
        while let (Some(source), Some(number)) = (words.next(), words.next()) {
            let address = at(number.parse().expect("a number"));
            if source == "log" {
                heard.logged(|_| Some(logged), |_| Some(address));
                logged = address;
            } else {
                heard.heard(&BTreeMap::from([(HOST, address)]), |_| Some(logged));
            }
        }
        heard.address_of(HOST, logged)
    }

    #[test]
    fn the_latest_address_counts() {
        let rows = [
            ("", 1),
            ("gossip 1", 1),
            ("gossip 2", 2),
            ("gossip 2 log 2", 2),
            ("gossip 2 gossip 1", 1),
            // The second move is in the log first.
            ("gossip 2 log 3", 3),
            ("gossip 2 log 2 gossip 2 log 3", 3),
            ("gossip 2 log 2 log 3 gossip 3", 3),
            // The log was first, and gossip that is older came after it.
            ("log 2 gossip 1 gossip 2", 2),
            ("log 2 gossip 1 gossip 2 log 3", 3),
            // The log is behind.
            ("gossip 3 log 2 gossip 3", 3),
            ("gossip 3 log 2 gossip 3 log 3", 3),
        ];
        for (events, expected) in rows {
            assert_eq!(place(events), at(expected), "{events}");
        }
    }

    #[test]
    fn changes_are_reported_and_hosts_that_left_are_forgotten() {
        let mut heard = HeardAddresses::default();
        let live = BTreeMap::from([(HOST, at(2))]);
        assert!(!heard.heard(&live, |_| None), "it is no member");
        assert!(heard.heard(&live, |_| Some(at(1))));
        assert!(!heard.heard(&live, |_| Some(at(1))), "as before");
        assert!(!heard.heard(&BTreeMap::new(), |_| Some(at(1))), "one that is down stays where it was");
        assert_eq!(heard.address_of(HOST, at(1)), at(2));
        heard.logged(|_| Some(at(1)), |_| None);
        assert!(heard.0.is_empty());
    }
}
