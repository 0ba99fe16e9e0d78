//! The requests of a connection that are being served, by place, with their deadlines.

use rt::{Instant, Task};

use crate::Verb;

/// A request of one connection that is being served.
pub(crate) struct Served {
    pub(crate) stream: Option<u64>,
    pub(crate) verb: Verb,
    pub(crate) deadline: Instant,
    pub(crate) bytes: usize,
    /// Another shard serves it.
    pub(crate) forwarded: bool,
    /// The handler, or the task that waits for the other shard.
    pub(crate) task: Option<Task<()>>,
}

/// The requests of one connection that are being served.
#[derive(Default)]
pub(crate) struct ServedSet {
    places: Vec<Option<Served>>,
    free: Vec<usize>,
    count: usize,
    earliest: Option<Instant>,
}

impl ServedSet {
    /// Whether none is.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Before this none is past its deadline.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.earliest
    }

    pub(crate) fn begin(&mut self, served: Served) -> usize {
        let deadline = served.deadline;
        self.earliest = Some(self.earliest.map_or(deadline, |earliest| earliest.min(deadline)));
        self.count += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        if let Some(empty) = self.places.get_mut(place) {
            *empty = Some(served);
        }
        place
    }

    /// It has a task now.
    pub(crate) fn started(&mut self, place: usize, task: Task<()>) {
        if let Some(Some(served)) = self.places.get_mut(place) {
            served.task = Some(task);
        }
    }

    pub(crate) fn end(&mut self, place: usize) -> Option<Served> {
        let served = self.places.get_mut(place)?.take()?;
        self.free.push(place);
        self.count -= 1;
        if self.count == 0 {
            self.earliest = None;
        }
        Some(served)
    }

    /// Takes those out that are past their deadline.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Served> {
        if self.earliest.is_none_or(|earliest| now < earliest) {
            return Vec::new();
        }
        let past = |served: &Option<Served>| served.as_ref().is_some_and(|served| served.deadline <= now);
        let places: Vec<usize> = (0..self.places.len()).filter(|place| past(&self.places[*place])).collect();
        let expired = places.into_iter().filter_map(|place| self.end(place)).collect();
        self.earliest = self.places.iter().flatten().map(|served| served.deadline).min();
        expired
    }

    /// Takes all out.
    pub(crate) fn clear(&mut self) -> Vec<Served> {
        self.free.clear();
        self.count = 0;
        self.earliest = None;
        self.places.drain(..).flatten().collect()
    }
}
