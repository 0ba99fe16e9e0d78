//! The steps of a traced request, and their nodes: events that shards hand back with their answers. A request that is not
//! traced takes the same way, and pays one test of an option a step.

use std::cell::RefCell;
use std::rc::Rc;

use rt::Instant;

use crate::ReadPage;

/// One step of a traced request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// When; the shards of a node share their clock.
    pub at: Instant,
    /// On which shard.
    pub shard: u16,
    /// Its kind.
    pub activity: String,
}

/// The steps of a traced request, in the order in which they were told. A clone is the same log.
#[derive(Clone, Debug, Default)]
pub struct TraceLog {
    session: Option<[u8; 16]>,
    events: Rc<RefCell<Vec<TraceEvent>>>,
}

impl TraceLog {
    /// The steps of a request with this id in `system_traces`.
    pub fn of(session: [u8; 16]) -> TraceLog {
        TraceLog { session: Some(session), events: Rc::default() }
    }

    /// The request's id, under which other nodes store their steps; none when they are to store none.
    pub fn session(&self) -> Option<[u8; 16]> {
        self.session
    }

    /// Adds a step.
    pub fn add(&self, at: Instant, shard: u16, activity: impl Into<String>) {
        self.events.borrow_mut().push(TraceEvent { at, shard, activity: activity.into() });
    }

    /// Adds the steps of another shard.
    pub fn extend(&self, events: Vec<TraceEvent>) {
        self.events.borrow_mut().extend(events);
    }

    /// All steps, by time.
    pub fn events(&self) -> Vec<TraceEvent> {
        let mut events = self.events.borrow().clone();
        events.sort_by_key(|event| event.at);
        events
    }

    /// All steps, in the order in which they were told.
    pub fn into_events(self) -> Vec<TraceEvent> {
        self.events.take()
    }
}

/// The event of a read that has ended.
pub(crate) fn found(page: &ReadPage) -> String {
    let rows: usize = page.partitions.iter().map(|partition| partition.rows.len()).sum();
    format!("Read {rows} live rows and {} tombstone cells", page.tombstones)
}
