//! When this process first saw each joining member. One that has not been reached yet counts as up for a moment, for it is in the
//! cluster's log and gossip is about to reach it; later it is down, so that requests do not wait for it for ever.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use rt::{Instant, Rt};
use topology::HostId;

/// For how long a joining node counts as up though this one has not reached it.
const NEW_FOR: Duration = Duration::from_secs(30);

/// Cheap to clone; the clones are one.
#[derive(Clone, Default)]
pub(crate) struct FirstSeen(Rc<RefCell<BTreeMap<HostId, Instant>>>);

impl FirstSeen {
    /// Notes the members that join now, and forgets all others; those that were first seen less than [`NEW_FOR`] ago.
    pub(crate) fn new_ones(&self, joining: impl Iterator<Item = HostId>, now: Instant) -> BTreeSet<HostId> {
        let mut hosts = self.0.borrow_mut();
        let before = std::mem::take(&mut *hosts);
        hosts.extend(joining.map(|host| (host, before.get(&host).copied().unwrap_or(now))));
        hosts.iter().filter(|(_, at)| now < **at + NEW_FOR).map(|(host, _)| *host).collect()
    }

    /// When the next joining member is not new any more.
    fn next_end(&self, now: Instant) -> Option<Instant> {
        self.0.borrow().values().map(|at| *at + NEW_FOR).filter(|end| *end > now).min()
    }

    /// Waits until a joining member is not new any more.
    pub(crate) async fn aged(&self, rt: &Rt) {
        loop {
            let end = self.next_end(rt.now());
            // One that is seen while nobody is new is still new at the next look.
            rt.sleep_until(end.unwrap_or(rt.now() + NEW_FOR / 2)).await;
            if end.is_some() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joining_member_is_new_for_a_moment_only() {
        let (seen, one, other) = (FirstSeen::default(), HostId([1; 16]), HostId([2; 16]));
        let at = |seconds: u64| Instant::START + Duration::from_secs(seconds);
        assert_eq!(seen.new_ones([one].into_iter(), at(0)), [one].into());
        assert_eq!(seen.new_ones([one, other].into_iter(), at(29)), [one, other].into());
        assert_eq!(seen.next_end(at(29)), Some(at(30)));
        assert_eq!(seen.new_ones([one, other].into_iter(), at(30)), [other].into());
        assert_eq!(seen.next_end(at(30)), Some(at(59)));
        assert_eq!(seen.new_ones([one].into_iter(), at(60)), [].into(), "it did not begin again");
        assert_eq!(seen.next_end(at(60)), None);
        assert_eq!(seen.new_ones([].into_iter(), at(61)), [].into());
        assert_eq!(seen.new_ones([one].into_iter(), at(62)), [one].into(), "it left and joins anew");
    }
}
