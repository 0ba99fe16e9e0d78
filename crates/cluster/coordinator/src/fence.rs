//! The topology version of a request (docs/design/topology.md, *Fence*): a coordinator sends a replica the topology version by which it
//! chose it, and a replica refuses those that chose by a stale topology version. A refused coordinator catches up with the cluster's
//! log and chooses anew.
//!
//! The topology version precedes the body of each verb that is about a token's replicas, 8 bytes. Verb `ring` (body: a number, 8 bytes)
//! asks a node to learn of a topology version; the answer leaves when all its shards have it, their fence is raised, and no request
//! that was admitted before is under way.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use rt::sync::{Gate, GateGuard, Watch};
use topology::HostId;

/// One shard's part of it.
pub(crate) struct Fence {
    /// Requests by rings of lower numbers are refused.
    least: Cell<u64>,
    /// The number of the shard's own ring.
    newest: Cell<u64>,
    /// The requests that were let in since the shard has that.
    inside: RefCell<Gate>,
    /// The requests that were let in before.
    before: RefCell<Vec<Gate>>,
    /// Shard 0: the ring that every shard has.
    pub(crate) published: Watch<u64>,
    /// Shard 0: the log is being asked.
    pub(crate) asking: Cell<bool>,
    /// The latest topology version sent to others, and the nodes known to have it and to have finished the requests admitted before,
    /// each with the generation in which it did: a node that has restarted since may have an earlier version again.
    enforced: RefCell<(u64, BTreeMap<HostId, Option<u64>>)>,
}

impl Default for Fence {
    fn default() -> Self {
        Self {
            least: Cell::new(0),
            newest: Cell::new(0),
            inside: RefCell::default(),
            before: RefCell::default(),
            published: Watch::new(0),
            asking: Cell::new(false),
            enforced: RefCell::default(),
        }
    }
}

impl Fence {
    /// Lets a request in that goes by a ring of this number, if that is not over.
    #[inline]
    pub(crate) fn admit(&self, ring: u64) -> Option<GateGuard> {
        if ring < self.least.get() {
            return None;
        }
        self.inside.borrow().enter().ok()
    }

    /// Admits a request that this shard begins itself, which may go through several stages.
    pub(crate) fn enter(&self) -> Option<GateGuard> {
        self.inside.borrow().enter().ok()
    }

    /// The shard's ring is the one of number `ring` from now on, by which rings before `least` are over.
    pub(crate) fn take_over(&self, ring: u64, least: u64) {
        assert!(least <= ring, "a topology version does not refuse its own requests");
        self.least.set(self.least.get().max(least));
        if ring > self.newest.get() {
            self.newest.set(ring);
            let before = self.inside.replace(Gate::new());
            let mut all = self.before.borrow_mut();
            all.retain(|gate| gate.count() > 0);
            all.push(before);
        }
        assert!(self.least.get() <= self.newest.get(), "the shard's own topology version is not over");
    }

    /// Whether a request was chosen by an earlier ring than the shard's own, which need not be over.
    #[inline]
    pub(crate) fn is_earlier(&self, ring: u64) -> bool {
        ring < self.newest.get()
    }

    /// Returns when nothing is under way that was let in before the shard had its ring.
    pub(crate) async fn drained(&self) {
        loop {
            let Some(gate) = self.before.borrow().first().cloned() else { return };
            gate.close().await;
            self.before.borrow_mut().retain(|gate| gate.count() > 0);
        }
    }

    /// Whether a node is known to have a topology version and to have finished the requests that it had admitted before, in a
    /// generation of its process.
    pub(crate) fn has_enforced(&self, host: HostId, generation: Option<u64>, ring: u64) -> bool {
        let enforced = self.enforced.borrow();
        enforced.0 >= ring && enforced.1.get(&host) == Some(&generation)
    }

    pub(crate) fn note_enforced(&self, host: HostId, generation: Option<u64>, ring: u64) {
        let mut enforced = self.enforced.borrow_mut();
        if enforced.0 < ring {
            *enforced = (ring, BTreeMap::new());
        }
        if enforced.0 == ring {
            enforced.1.insert(host, generation);
        }
    }

    /// Every shard has the ring of this number.
    pub(crate) fn note_published(&self, ring: u64) {
        assert!(ring <= self.newest.get(), "every shard has what this one has published");
        if ring > *self.published.get() {
            self.published.set(ring);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_raised_fence_refuses_older_requests_and_knows_those_under_way() {
        let fence = Fence::default();
        let before = fence.admit(3).expect("nothing is over yet");
        fence.take_over(4, 4);
        assert!(fence.admit(3).is_none());
        let after = fence.admit(4).expect("it is not over");
        fence.take_over(2, 2);
        assert!(fence.admit(3).is_none(), "a fence is never lowered");
        let mut drained = pin!(fence.drained());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(drained.as_mut().poll(&mut cx).is_pending());
        drop(before);
        assert!(
            matches!(drained.as_mut().poll(&mut cx), Poll::Ready(())),
            "what came later is not waited for"
        );
        drop(after);
    }

    #[test]
    fn a_newer_topology_version_includes_the_older_ones() {
        let fence = Fence::default();
        let (one, other) = (HostId([1; 16]), HostId([2; 16]));
        fence.note_enforced(one, Some(7), 4);
        assert!(fence.has_enforced(one, Some(7), 4) && fence.has_enforced(one, Some(7), 3));
        assert!(!fence.has_enforced(one, Some(7), 5) && !fence.has_enforced(other, Some(7), 4));
        fence.note_enforced(other, Some(7), 5);
        assert!(!fence.has_enforced(one, Some(7), 5), "it was asked for the ring before");
        fence.note_enforced(one, Some(7), 4);
        assert!(!fence.has_enforced(one, Some(7), 5), "that was an answer of before");
    }

    #[test]
    fn a_restarted_node_has_enforced_nothing() {
        let (fence, host) = (Fence::default(), HostId([1; 16]));
        fence.note_enforced(host, Some(7), 4);
        assert!(!fence.has_enforced(host, Some(8), 4), "it may have forgotten the version");
        fence.note_enforced(host, Some(8), 4);
        assert!(fence.has_enforced(host, Some(8), 4));
    }
}
