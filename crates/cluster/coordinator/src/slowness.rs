//! Which nodes have answered slowly of late: of replicas that are equally near, those are asked last.
//!
//! The measure is how long answers to reads of single partitions were waited for, those included that nobody waited for to the end because
//! another replica was faster. A node is slow when it takes several times as long as the fastest of its equals; after a second in which it
//! was not asked it may show again that it is not.

use std::cell::RefCell;
use std::time::Duration;

use rt::{Instant, Rt};
use smallvec::SmallVec;
use stdx::HashMap;
use topology::HostId;

/// So long a node that is slow is left alone.
const PENALTY: Duration = Duration::from_secs(1);
/// A node is slow that takes so many times as long as the fastest of its equals,
const TIMES: u32 = 4;
/// and longer than this: below it there is nothing to gain.
const SLOW_MIN: Duration = Duration::from_millis(5);
/// An answer counts as one of so many.
const SHARE: u32 = 4;

const _: () = assert!(SHARE >= 2, "one answer does not decide alone");
const _: () = assert!(TIMES > 1, "of equals none is slow");
const _: () =
    assert!(SLOW_MIN.as_millis() < PENALTY.as_millis(), "a read that was in vain makes a node slow");

/// Few hosts.
pub(crate) type Hosts = SmallVec<[HostId; 4]>;

/// How long this shard has waited for other nodes lately.
#[derive(Debug, Default)]
pub(crate) struct Waits(RefCell<HashMap<HostId, Wait>>);

#[derive(Clone, Copy, Debug)]
struct Wait {
    average: Duration,
    /// When a read was last begun or ended.
    at: Instant,
}

impl Waits {
    /// A read of a node begins: the next read need not try it too.
    pub(crate) fn begin(&self, host: HostId, now: Instant) {
        if let Some(wait) = self.0.borrow_mut().get_mut(&host) {
            wait.at = now;
        }
    }

    /// Nobody waits for it any more, after so long.
    pub(crate) fn end(&self, host: HostId, took: Duration, now: Instant) {
        let mut all = self.0.borrow_mut();
        let wait = all.entry(host).or_insert(Wait { average: took, at: now });
        wait.average = (wait.average * (SHARE - 1) + took) / SHARE;
        wait.at = now;
    }

    /// Which of these nodes, equals of each other, are slow now.
    pub(crate) fn slow(&self, hosts: &[HostId], now: Instant) -> Hosts {
        let all = self.0.borrow();
        let known = |host: &HostId| all.get(host).map(|wait| (*host, *wait));
        let Some(fastest) = hosts.iter().filter_map(known).map(|(_, wait)| wait.average).min() else {
            return Hosts::new();
        };
        let limit = SLOW_MIN.max(fastest * TIMES);
        let is_slow = |wait: &Wait| wait.average > limit && now < wait.at + PENALTY;
        hosts.iter().filter_map(known).filter(|(_, wait)| is_slow(wait)).map(|(host, _)| host).collect()
    }

    /// Forgets nodes that there are no more.
    pub(crate) fn keep(&self, is_there: impl Fn(HostId) -> bool) {
        self.0.borrow_mut().retain(|host, _| is_there(*host));
    }
}

/// A read that is waited for.
pub(crate) struct Waiting<'a> {
    waits: &'a Waits,
    rt: &'a Rt,
    host: HostId,
    began: Instant,
    in_vain: bool,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(waits: &'a Waits, rt: &'a Rt, host: HostId) -> Self {
        let began = rt.now();
        waits.begin(host, began);
        Self { waits, rt, host, began, in_vain: false }
    }

    /// No answer came: however soon that is known, the node was not quick.
    pub(crate) fn in_vain(&mut self) {
        self.in_vain = true;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let now = self.rt.now();
        let took = now.duration_since(self.began);
        self.waits.end(self.host, if self.in_vain { took.max(PENALTY) } else { took }, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(id: u8) -> HostId {
        HostId([id; 16])
    }

    fn at(millis: u64) -> Instant {
        Instant::START + Duration::from_millis(millis)
    }

    #[test]
    fn a_node_that_takes_much_longer_than_its_equals_is_slow_for_a_while() {
        let (waits, three) = (Waits::default(), [host(1), host(2), host(3)]);
        assert!(waits.slow(&three, at(0)).is_empty(), "nothing is known");
        for host in three {
            waits.end(host, Duration::from_millis(1), at(0));
        }
        assert!(waits.slow(&three, at(0)).is_empty(), "all are alike");
        waits.end(host(3), Duration::from_millis(100), at(10));
        assert_eq!(waits.slow(&three, at(10))[..], [host(3)]);
        assert_eq!(waits.slow(&three, at(1_009))[..], [host(3)]);
        assert!(waits.slow(&three, at(1_010)).is_empty(), "it may show that it is quick again");
        waits.begin(host(3), at(1_010));
        assert_eq!(waits.slow(&three, at(1_010))[..], [host(3)], "once");
        for _ in 0..20 {
            waits.end(host(3), Duration::from_millis(1), at(1_020));
        }
        assert!(waits.slow(&three, at(1_020)).is_empty(), "it is");
        assert!(waits.slow(&[host(3)], at(1_020)).is_empty(), "there is no other one");
    }

    #[test]
    fn small_differences_are_nothing() {
        let (waits, two) = (Waits::default(), [host(1), host(2)]);
        waits.end(host(1), Duration::from_micros(100), at(0));
        waits.end(host(2), Duration::from_millis(4), at(0));
        assert!(waits.slow(&two, at(0)).is_empty());
        waits.end(host(1), Duration::from_millis(50), at(0));
        waits.end(host(2), Duration::from_millis(100), at(0));
        assert!(waits.slow(&two, at(0)).is_empty(), "all are slow");
        waits.keep(|id| id == host(1));
        assert_eq!(waits.0.borrow().len(), 1);
    }
}
