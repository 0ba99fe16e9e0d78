//! A queue whose entries have deadlines, bounded by count and bytes. Pure: the time is an argument.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use rt::Instant;

/// An entry of a queue.
pub(crate) trait Queued {
    /// Its counted bytes.
    fn bytes(&self) -> usize;
    /// When it is not wanted any more.
    fn deadline(&self) -> Instant;
}

/// Bytes that several queues hold together, and how many they may.
#[derive(Clone)]
pub(crate) struct Budget {
    used: Rc<Cell<usize>>,
    max: usize,
}

impl Budget {
    /// At most so many bytes.
    pub(crate) fn new(max: usize) -> Budget {
        Budget { used: Rc::default(), max }
    }

    fn take(&self, bytes: usize) {
        self.used.set(self.used.get() + bytes);
    }

    fn give_back(&self, bytes: usize) {
        self.used.set(self.used.get() - bytes);
    }
}

/// First in, first out; entries past their deadline are dropped to make room, oldest first.
pub(crate) struct Queue<T> {
    entries: VecDeque<T>,
    bytes: usize,
    count_max: usize,
    bytes_max: usize,
    budget: Budget,
    /// No entry has a deadline before this.
    earliest: Instant,
}

impl<T: Queued> Queue<T> {
    /// A queue of at most so many entries of at most so many bytes together, and of the rest of the budget.
    pub(crate) fn new(count_max: usize, bytes_max: usize, budget: &Budget) -> Queue<T> {
        let budget = budget.clone();
        Queue { entries: VecDeque::new(), bytes: 0, count_max, bytes_max, budget, earliest: Instant::MAX }
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The counted bytes of all entries.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The counted bytes of the oldest entry.
    pub(crate) fn front_bytes(&self) -> Option<usize> {
        self.entries.front().map(Queued::bytes)
    }

    /// Appends an entry even when the queue is full; for small entries that are bounded otherwise.
    pub(crate) fn push_always(&mut self, entry: T) {
        self.bytes += entry.bytes();
        self.budget.take(entry.bytes());
        self.earliest = self.earliest.min(entry.deadline());
        self.entries.push_back(entry);
    }

    fn has_room(&self, bytes: usize) -> bool {
        // One that is larger than the whole queue may still be alone in it.
        let in_budget = self.budget.used.get() + bytes <= self.budget.max;
        self.entries.is_empty()
            || (self.len() < self.count_max && self.bytes + bytes <= self.bytes_max && in_budget)
    }

    /// Appends an entry. When the queue is full, entries past their deadline go to `expired`; when it is still full,
    /// the entry is given back.
    pub(crate) fn push(&mut self, entry: T, now: Instant, expired: impl FnMut(T)) -> Result<(), T> {
        if !self.has_room(entry.bytes()) {
            self.expire(now, expired);
            if !self.has_room(entry.bytes()) {
                return Err(entry);
            }
        }
        self.push_always(entry);
        Ok(())
    }

    /// Takes the oldest entry, regardless of its deadline.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.bytes();
        self.budget.give_back(entry.bytes());
        if self.entries.is_empty() {
            self.earliest = Instant::MAX;
        }
        Some(entry)
    }

    /// Takes everything that is past its deadline out, oldest first.
    pub(crate) fn expire(&mut self, now: Instant, mut expired: impl FnMut(T)) {
        if now < self.earliest {
            return;
        }
        let mut earliest = Instant::MAX;
        for _ in 0..self.entries.len() {
            let Some(entry) = self.entries.pop_front() else { break };
            if entry.deadline() <= now {
                self.bytes -= entry.bytes();
                self.budget.give_back(entry.bytes());
                expired(entry);
            } else {
                earliest = earliest.min(entry.deadline());
                self.entries.push_back(entry);
            }
        }
        self.earliest = earliest;
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Clone, Copy)]
    struct Entry(usize, u64);

    impl Queued for Entry {
        fn bytes(&self) -> usize {
            self.0
        }

        fn deadline(&self) -> Instant {
            Instant::from_nanos(self.1)
        }
    }

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn the_expired_make_room_oldest_first() {
        let mut queue = Queue::new(3, 100, &Budget::new(1000));
        for entry in [Entry(1, 50), Entry(2, 10), Entry(3, 20)] {
            queue.push(entry, at(0), |_| panic!("there is room")).unwrap();
        }
        assert_eq!(queue.push(Entry(4, 60), at(9), |_| panic!("none is past")), Err(Entry(4, 60)));
        let mut expired = Vec::new();
        queue.push(Entry(4, 60), at(20), |entry| expired.push(entry)).unwrap();
        assert_eq!(expired, [Entry(2, 10), Entry(3, 20)]);
        assert_eq!((queue.len(), queue.bytes()), (2, 5));
        assert_eq!([queue.pop(), queue.pop(), queue.pop()], [Some(Entry(1, 50)), Some(Entry(4, 60)), None]);
        assert_eq!(queue.bytes(), 0);
    }

    #[test]
    fn bytes_are_bounded_but_one_always_fits() {
        let mut queue = Queue::new(10, 100, &Budget::new(1000));
        queue.push(Entry(500, 9), at(0), |_| ()).unwrap();
        assert_eq!(queue.push(Entry(1, 9), at(0), |_| ()), Err(Entry(1, 9)));
        queue.pop();
        queue.push(Entry(60, 9), at(0), |_| ()).unwrap();
        assert_eq!(queue.push(Entry(41, 9), at(0), |_| ()), Err(Entry(41, 9)));
        queue.push(Entry(40, 9), at(0), |_| ()).unwrap();
    }

    #[test]
    fn queues_share_a_budget() {
        let budget = Budget::new(100);
        let mut one = Queue::new(10, 100, &budget);
        let mut other = Queue::new(10, 100, &budget);
        one.push(Entry(90, 9), at(0), |_| ()).unwrap();
        other.push(Entry(5, 9), at(0), |_| ()).unwrap();
        assert_eq!(other.push(Entry(6, 50), at(0), |_| ()), Err(Entry(6, 50)));
        assert_eq!(budget.used.get(), 95);
        drop(one);
        other.push(Entry(6, 50), at(0), |_| ()).unwrap();
        other.expire(at(9), |_| ());
        assert_eq!(budget.used.get(), 6);
        other.pop();
        assert_eq!(budget.used.get(), 0);
    }
}
