//! Requests to build materialized views: the state that requesters share with the builds under way, on shard 0.

use std::cell::Cell;
use std::rc::Rc;

use rt::sync::Notify;

/// The requests of a node. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct BuildRequests(Rc<State>);

#[derive(Default)]
struct State {
    wake: Notify,
    /// How often a build from the beginning was asked for.
    restarts: Cell<u64>,
}

impl BuildRequests {
    /// Views may have to be built: has the builds look.
    pub(crate) fn wake(&self) {
        self.0.wake.notify_one();
    }

    /// Waits for [`BuildRequests::wake`].
    pub(crate) async fn woken(&self) {
        self.0.wake.notified().await;
    }

    /// Builds under way are outdated: they stop.
    pub(crate) fn restart(&self) {
        self.0.restarts.set(self.0.restarts.get() + 1);
    }

    /// How often [`BuildRequests::restart`] was called: a build that sees another number than at its beginning is outdated.
    pub(crate) fn restarts(&self) -> u64 {
        self.0.restarts.get()
    }
}
