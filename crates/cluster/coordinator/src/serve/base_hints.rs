//! How many hints of tables with materialized views or CDC are applied at a time.
//!
//! Updates of views come as hints, and writes of bases wait for those that they send. Hints of bases do so as well, and must not take all of the
//! places of hints: the updates that end their waits would be refused, here or on a node that waits for this one.

use std::cell::Cell;

use schema::{Schema, Table};

/// Applied at a time on a shard: a quarter of the places that rpc has for hints and other requests that wait for nobody.
const COUNT_MAX: usize = 1024;
/// Bytes of their bodies; one may always come in. A quarter of those that rpc has for them.
const BYTES_MAX: usize = 8 << 20;

/// Those of a shard that are being applied.
#[derive(Default)]
pub(super) struct BaseHints {
    count: Cell<usize>,
    bytes: Cell<usize>,
}

/// One of them, until it is dropped.
pub(super) struct BaseHint<'a> {
    hints: &'a BaseHints,
    bytes: usize,
}

impl BaseHints {
    /// Counts a hint; none when there are too many: it has to come again.
    pub(super) fn begin(&self, bytes: usize) -> Option<BaseHint<'_>> {
        let (count, used) = (self.count.get(), self.bytes.get());
        if count > 0 && (count >= COUNT_MAX || used + bytes > BYTES_MAX) {
            return None;
        }
        self.count.set(count + 1);
        self.bytes.set(used + bytes);
        Some(BaseHint { hints: self, bytes })
    }
}

impl Drop for BaseHint<'_> {
    fn drop(&mut self) {
        assert!(
            self.hints.count.get() > 0 && self.hints.bytes.get() >= self.bytes,
            "a hint that ends was counted"
        );
        self.hints.count.set(self.hints.count.get() - 1);
        self.hints.bytes.set(self.hints.bytes.get() - self.bytes);
    }
}

/// Whether updates on other nodes follow from a hint of this table.
pub(super) fn has_followers(schema: &Schema, table: &Table) -> bool {
    table.options.cdc.enabled
        || schema
            .keyspace(&table.keyspace)
            .is_some_and(|keyspace| keyspace.views_of(table.id).next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_of_bases_are_bounded_and_one_is_always_taken() {
        let hints = BaseHints::default();
        let large = hints.begin(2 * BYTES_MAX).expect("one is taken, however large");
        assert!(hints.begin(1).is_none(), "there is no room for bytes");
        drop(large);
        let taken: Vec<_> = (0..COUNT_MAX).filter_map(|_| hints.begin(1)).collect();
        assert_eq!(taken.len(), COUNT_MAX);
        assert!(hints.begin(1).is_none(), "all places are taken");
        drop(taken);
        assert_eq!((hints.count.get(), hints.bytes.get()), (0, 0));
    }
}
