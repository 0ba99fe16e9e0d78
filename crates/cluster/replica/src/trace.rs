//! The steps of a traced request, and their nodes: events that shards hand back with their answers. A request that is not
//! traced takes the same way, and pays one test of an option a step.

use std::cell::RefCell;
use std::rc::Rc;

use rt::Instant;

use crate::ReadPage;

/// Steps of a request that are recorded; the last one reports that there are more.
const EVENTS_MAX: usize = 1_000;

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
        self.extend([TraceEvent { at, shard, activity: activity.into() }]);
    }

    /// Adds the steps of another shard.
    pub fn extend(&self, events: impl IntoIterator<Item = TraceEvent>) {
        let mut all = self.events.borrow_mut();
        for event in events {
            match all.len() {
                EVENTS_MAX.. => return,
                // Place for one: the others are left out.
                len if len + 1 == EVENTS_MAX => {
                    all.push(TraceEvent {
                        activity: format!("Further steps than {len} are not recorded"),
                        ..event
                    });
                }
                _ => all.push(event),
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_an_end() {
        let log = TraceLog::default();
        (0..EVENTS_MAX + 5).for_each(|step| log.add(Instant::START, 0, step.to_string()));
        log.extend(vec![TraceEvent { at: Instant::START, shard: 1, activity: "other".to_owned() }; 7]);
        let events = log.into_events();
        assert_eq!(events.len(), EVENTS_MAX);
        assert_eq!(events[EVENTS_MAX - 2].activity, (EVENTS_MAX - 2).to_string());
        assert_eq!(events[EVENTS_MAX - 1].activity, "Further steps than 999 are not recorded");
    }
}
