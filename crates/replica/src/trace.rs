//! What a traced request does on the way, and where: events that shards hand back with their answers. A request that is not
//! traced takes the other methods, and pays nothing.

use std::cell::RefCell;

use rt::Instant;

/// One step of a traced request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// When; the shards of a node share their clock.
    pub at: Instant,
    /// On which shard.
    pub shard: u16,
    /// What.
    pub activity: String,
}

/// The steps of a traced request, in the order in which they were told.
#[derive(Debug, Default)]
pub struct TraceLog(RefCell<Vec<TraceEvent>>);

impl TraceLog {
    /// Adds a step.
    pub fn add(&self, at: Instant, shard: u16, activity: impl Into<String>) {
        self.0.borrow_mut().push(TraceEvent { at, shard, activity: activity.into() });
    }

    /// Adds the steps of another shard.
    pub fn extend(&self, events: Vec<TraceEvent>) {
        self.0.borrow_mut().extend(events);
    }

    /// All steps, by time.
    pub fn events(&self) -> Vec<TraceEvent> {
        let mut events = self.0.borrow().clone();
        events.sort_by_key(|event| event.at);
        events
    }

    /// All steps, in the order in which they were told.
    pub fn into_events(self) -> Vec<TraceEvent> {
        self.0.into_inner()
    }
}
