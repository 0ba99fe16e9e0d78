//! Marks of incremental repairs: how far the repaired part of one table goes ([`crate::marks`] keeps them in a file).

use std::cell::Cell;
use std::collections::BTreeMap;

use rt::sync::{Permit, Semaphore};

/// A moment of a shard's part of a table: data that its SSTables held then is at or below it, later data is above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepairedWatermark {
    /// Of which epoch; marks of another one than the present mean nothing. 0 is none's.
    pub epoch: u64,
    /// The number, from 1.
    pub number: u64,
}

/// A mark that was taken, and the shard's sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// The mark.
    pub mark: RepairedWatermark,
    /// Bytes of data by the number that covers them; none is covered by 0 any more.
    pub bytes: BTreeMap<u64, u64>,
}

/// The marks of one table, as its [`Store`] keeps them.
pub(crate) struct Marks {
    /// 0 until the first mark is taken.
    epoch: Cell<u64>,
    last: Cell<u64>,
    /// Data that is covered by it or a smaller number is compacted apart from the rest.
    floor: Cell<u64>,
    writing: Semaphore,
}

impl Marks {
    pub(crate) fn new() -> Self {
        Self { epoch: Cell::new(0), last: Cell::new(0), floor: Cell::new(0), writing: Semaphore::new(1) }
    }

    /// Whether a mark still means something.
    pub(crate) fn knows(&self, mark: RepairedWatermark) -> bool {
        mark.epoch != 0 && mark.epoch == self.epoch.get()
    }

    /// Has compaction keep data that this mark covers apart from the rest.
    pub(crate) fn set_floor(&self, mark: RepairedWatermark) {
        self.floor.set(if self.knows(mark) { mark.number } else { 0 });
    }

    /// Whether an SSTable that this number covers holds only repaired data.
    pub(crate) fn is_repaired(&self, covered_by: u64) -> bool {
        is_covered(covered_by, self.floor.get())
    }

    /// The epoch; 0 until the first mark is taken.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.get()
    }

    /// The last number that was given out.
    pub(crate) fn last(&self) -> u64 {
        self.last.get()
    }

    /// Begins an epoch if there is none.
    pub(crate) fn begin(&self, epoch: u64) {
        assert!(epoch != 0, "0 is no epoch");
        if self.epoch.get() == 0 {
            self.epoch.set(epoch);
        }
    }

    /// Gives out the next number.
    pub(crate) fn next(&self) -> u64 {
        assert!(self.epoch.get() != 0, "numbers are given out in an epoch");
        self.last.set(self.last.get() + 1);
        self.last.get()
    }

    /// Adopts the state stored before the shard opened.
    pub(crate) fn restore(&self, epoch: u64, last: u64) {
        assert!(self.epoch.get() == 0, "marks are restored before any is taken");
        assert!(epoch != 0, "marks that are restored are those of an epoch");
        self.epoch.set(epoch);
        self.last.set(last);
    }

    /// Ends the epoch.
    pub(crate) fn end(&self) {
        self.epoch.set(0);
        self.last.set(0);
        self.floor.set(0);
    }

    /// Waits until nobody writes the file.
    pub(crate) async fn writing(&self) -> Permit {
        self.writing.acquire(1).await.expect("it is never closed")
    }
}

/// Whether the data that this number covers was there when `number` was given out.
pub(crate) fn is_covered(covered_by: u64, number: u64) -> bool {
    (1..=number).contains(&covered_by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_another_epoch_mean_nothing() {
        let marks = Marks::new();
        assert!(!marks.knows(RepairedWatermark { epoch: 0, number: 0 }));
        marks.epoch.set(5);
        assert!(marks.knows(RepairedWatermark { epoch: 5, number: 1 }));
        assert!(!marks.knows(RepairedWatermark { epoch: 6, number: 1 }));
        marks.set_floor(RepairedWatermark { epoch: 5, number: 3 });
        assert_eq!(marks.floor.get(), 3);
        marks.set_floor(RepairedWatermark { epoch: 6, number: 9 });
        assert_eq!(marks.floor.get(), 0);
    }
}
