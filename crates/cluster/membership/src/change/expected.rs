//! The bytes of files that a shard expects, by the totals and estimates of the sources. Pure.

use std::collections::{BTreeMap, BTreeSet};

use schema::TableId;

/// How much of the files of each table comes, before and while they come.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// Bytes of the tables that are not complete yet, as sources guess.
    of: BTreeMap<TableId, u64>,
    /// Tables that are complete.
    done: BTreeSet<TableId>,
    /// Whether all sources have reported their totals.
    pub(super) is_known: bool,
    /// The table that comes, and how many bytes had come before it.
    now: Option<(TableId, u64)>,
}

impl Expected {
    /// Nothing more comes.
    pub(super) fn known() -> Self {
        Self { is_known: true, ..Self::default() }
    }

    pub(super) fn guess(&mut self, table: TableId, bytes: u64) {
        if !self.done.contains(&table) {
            self.of.insert(table, bytes);
        }
    }

    /// A table comes, after so many bytes of earlier ones.
    pub(super) fn begin(&mut self, table: TableId, before: u64) {
        self.now = Some((table, before));
    }

    pub(super) fn complete(&mut self, table: TableId) {
        self.done.insert(table);
        self.of.remove(&table);
    }

    /// The total bytes, when `here` have been received and sources have reported `told` more.
    pub(super) fn total(&self, here: u64, reported: u64) -> u64 {
        let Some((table, before)) = self.now else { return here + reported + self.of.values().sum::<u64>() };
        let later: u64 = self.of.iter().filter(|(other, _)| **other != table).map(|(_, bytes)| *bytes).sum();
        let guessed = self.of.get(&table).copied().unwrap_or(0);
        before + guessed.max(here.saturating_sub(before) + reported) + later
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_guessed_until_it_is_announced() {
        let table = |n: u8| TableId([n; 16]);
        let mut expected = Expected::default();
        assert!(!expected.is_known);
        assert_eq!(expected.total(0, 0), 0);
        (1..=3).for_each(|n| expected.guess(table(n), 100 * u64::from(n)));
        assert_eq!(expected.total(0, 0), 600, "before the first is requested");
        expected.begin(table(1), 0);
        assert_eq!(expected.total(0, 0), 600);
        assert_eq!(expected.total(0, 130), 630, "the source reports more than the estimate");
        assert_eq!(expected.total(90, 20), 610, "of two sources one has sent its part");
        expected.complete(table(1));
        expected.begin(table(2), 125);
        assert_eq!(expected.total(125, 0), 625, "the first one's total is known");
        // A late estimate does not count received bytes.
        expected.guess(table(1), 100);
        assert_eq!(expected.total(125, 0), 625);
        expected.complete(table(2));
        expected.complete(table(3));
        assert_eq!(expected.total(610, 0), 610);
    }
}
