//! Logged batches of several partitions, and the parts that readings have proved: the world notes both, and a checker of clusters looks
//! for a batch that is torn.

use std::collections::BTreeMap;

use crate::table::Key;

/// One part of a batch: table, partition, the number of the write there.
pub(crate) type Part = (usize, Key, u64);

/// Logged batches of several partitions, and the parts that reads have proved.
#[derive(Default)]
pub(crate) struct Batches {
    batches: Vec<Vec<Part>>,
    proved: BTreeMap<u64, bool>,
}

impl Batches {
    /// Notes a batch that is about to be sent.
    pub(crate) fn begin(&mut self, parts: Vec<Part>) {
        self.batches.push(parts);
    }

    /// A reading has proved that a write happened, or that it did not.
    pub(crate) fn prove(&mut self, id: u64, happened: bool) {
        self.proved.entry(id).or_insert(happened);
    }

    /// A table was truncated: its parts say nothing any more.
    pub(crate) fn forget_table(&mut self, table: usize) {
        self.batches.iter_mut().for_each(|parts| parts.retain(|(of, ..)| *of != table));
    }

    /// A part that is there and a part that is not, of one batch.
    pub(crate) fn torn(&self) -> Option<(&Part, &Part)> {
        self.batches.iter().find_map(|parts| {
            let with = |happened: bool| parts.iter().find(|part| self.proved.get(&part.2) == Some(&happened));
            Some((with(true)?, with(false)?))
        })
    }
}
