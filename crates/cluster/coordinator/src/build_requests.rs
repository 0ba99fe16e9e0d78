//! Requests to build materialized views: the state that requesters share with the builds under way, on shard 0.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rt::Instant;
use rt::sync::Notify;
use schema::TableId;

/// The requests of a node. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct BuildRequests(Rc<State>);

#[derive(Default)]
struct State {
    wake: Notify,
    /// How often a build from the beginning was asked for.
    restarts: Cell<u64>,
    /// The build under way since this node has started.
    current: Cell<Option<Begun>>,
}

/// A build that has begun, or was resumed.
#[derive(Clone, Copy)]
struct Begun {
    view: TableId,
    at: Instant,
    last_token: Option<i64>,
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

    /// A build begins that has put the partitions up to a token into its view.
    pub(crate) fn begin(&self, view: TableId, at: Instant, last_token: Option<i64>) {
        self.0.current.set(Some(Begun { view, at, last_token }));
    }

    /// Where the build of a view began, and how long ago; none where another one was the last.
    pub(crate) fn begun(&self, view: TableId, now: Instant) -> Option<(Option<i64>, Duration)> {
        let begun = self.0.current.get().filter(|begun| begun.view == view)?;
        Some((begun.last_token, now - begun.at))
    }
}
