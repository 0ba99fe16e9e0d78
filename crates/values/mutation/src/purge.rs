//! The data that compaction may forget: tombstones past their grace that no older data elsewhere still needs, and expired
//! cells, which first become tombstones.

use std::sync::Arc;

use schema::{Table, TombstoneGc};

use crate::{
    Cell, ColumnData, DeletionTime, Fragment, FragmentBuffer, LivenessInfo, Repaired, Row, Seconds, Timestamp,
};

/// The rule of one compaction.
#[derive(Clone, Debug)]
pub struct PurgeRule {
    /// The server's clock; cells that expire at or before it have expired.
    now: Seconds,
    grace: Grace,
}

#[derive(Clone, Debug)]
enum Grace {
    /// Tombstones made before this have outlived it.
    Before(Seconds),
    /// Those made so many seconds before their last repair have, if they were made before a time, too.
    Repaired { repaired: Arc<Repaired>, delay: Seconds, before: Seconds },
}

impl PurgeRule {
    /// Tombstones made before `gc_before` have outlived their grace.
    pub fn new(now: Seconds, gc_before: Seconds) -> Self {
        Self { now, grace: Grace::Before(gc_before) }
    }

    /// As the table's options say; `repaired` has the repair times of its ranges.
    pub fn for_table(table: &Table, now: Seconds, repaired: &Arc<Repaired>) -> Self {
        let before = match table.options.tombstone_gc {
            TombstoneGc::Timeout => now.saturating_sub(table.options.gc_grace_seconds),
            TombstoneGc::Disabled => 0,
            TombstoneGc::Immediate | TombstoneGc::Repair { .. } => now,
        };
        let delay = table.propagation_delay_seconds();
        // The option asks for a repair in each mode; the grace covers writes in flight then.
        let delay = delay.or_else(|| table.options.only_purges_repaired().then_some(0));
        let grace = match delay {
            Some(delay) => Grace::Repaired { repaired: repaired.clone(), delay, before },
            None => Grace::Before(before),
        };
        Self { now, grace }
    }

    /// Tombstones of a token that were made before this have outlived their grace.
    pub fn gc_before(&self, token: i64) -> Seconds {
        match &self.grace {
            Grace::Before(before) => *before,
            Grace::Repaired { repaired, delay, before } => {
                repaired.at(token, self.now).saturating_sub(*delay).min(*before)
            }
        }
    }

    /// Tombstones of any token above `after` up to `upto` that were made before this have outlived their grace.
    pub fn gc_before_of(&self, after: i64, upto: i64) -> Seconds {
        match &self.grace {
            Grace::Before(before) => *before,
            Grace::Repaired { repaired, delay, before } => {
                repaired.oldest(after, upto, self.now).saturating_sub(*delay).min(*before)
            }
        }
    }
}

/// Applies a [`PurgeRule`] to a merged stream, partition by partition.
#[derive(Debug)]
pub struct Purger {
    rule: PurgeRule,
    /// By the rule, for the current partition.
    gc_before: Seconds,
    /// Tombstones of the current partition with smaller timestamps hide nothing outside the compaction.
    max_purgeable: Timestamp,
    /// A partition's start, held back until something of it is kept.
    held: Option<Fragment>,
    /// The range deletion last let through.
    open: DeletionTime,
}

impl Purger {
    /// A purger at the start of a stream.
    pub fn new(rule: PurgeRule) -> Self {
        Self { rule, gc_before: 0, max_purgeable: Timestamp::MIN, held: None, open: DeletionTime::LIVE }
    }

    /// Takes the next fragment of the merged stream and appends the remaining part of the partition to `out`.
    /// `max_purgeable` is called once a partition: the smallest timestamp of data for its key that takes no part in the
    /// compaction ([`Timestamp::MAX`] when there is none).
    pub fn push(
        &mut self,
        fragment: Fragment,
        max_purgeable: impl FnOnce(&crate::DecoratedKey) -> Timestamp,
        out: &mut FragmentBuffer,
    ) {
        match fragment {
            Fragment::PartitionStart { key, deletion } => {
                self.max_purgeable = max_purgeable(&key);
                self.gc_before = self.rule.gc_before(key.token);
                self.open = DeletionTime::LIVE;
                let keep = !self.purges(deletion);
                let deletion = if keep { deletion } else { DeletionTime::LIVE };
                let start = Fragment::PartitionStart { key, deletion };
                if deletion.is_live() { self.held = Some(start) } else { out.push_back(start) }
            }
            Fragment::StaticRow(row) => self.keep(self.row(row).map(Fragment::StaticRow), out),
            Fragment::Row(row) => self.keep(self.row(row).map(Fragment::Row), out),
            Fragment::RangeTombstoneChange { bound, deletion } => {
                let deletion = if self.purges(deletion) { DeletionTime::LIVE } else { deletion };
                if deletion != self.open {
                    self.open = deletion;
                    self.keep(Some(Fragment::RangeTombstoneChange { bound, deletion }), out);
                }
            }
            Fragment::PartitionEnd => {
                assert!(self.open.is_live(), "a range deletion is closed before its partition ends");
                if self.held.take().is_none() {
                    out.push_back(Fragment::PartitionEnd);
                }
            }
        }
    }

    fn keep(&mut self, fragment: Option<Fragment>, out: &mut FragmentBuffer) {
        if let Some(fragment) = fragment {
            out.extend(self.held.take());
            out.push_back(fragment);
        }
    }

    fn purges(&self, deletion: DeletionTime) -> bool {
        !deletion.is_live() && self.purges_at(deletion.timestamp, deletion.local)
    }

    fn purges_at(&self, timestamp: Timestamp, local: Seconds) -> bool {
        local < self.gc_before && timestamp < self.max_purgeable
    }

    fn row(&self, mut row: Row) -> Option<Row> {
        if self.purges(row.deletion) {
            row.deletion = DeletionTime::LIVE;
        }
        let mark = row.liveness;
        if mark.ttl > 0 && mark.expires <= self.rule.now && self.purges_at(mark.timestamp, mark.expires) {
            row.liveness = LivenessInfo::NONE;
        }
        // A row is shared with its source until it is changed.
        if row.is_lasting() {
            return (!row.is_empty()).then_some(row);
        }
        row.retain(|_, data| match data {
            ColumnData::Simple(cell) => self.cell(cell),
            ColumnData::Complex(complex) => {
                if self.purges(complex.deletion) {
                    complex.deletion = DeletionTime::LIVE;
                }
                complex.cells.retain_mut(|element| self.cell(&mut element.cell));
                !complex.is_empty()
            }
        });
        (!row.is_empty()).then_some(row)
    }

    /// Whether a cell is kept; one that has expired is kept as the tombstone that it amounts to.
    fn cell(&self, cell: &mut Cell) -> bool {
        if cell.is_expiring() && cell.local_deletion <= self.rule.now {
            // The grace of an expired cell counts from its write, as if it had been deleted then.
            *cell = Cell::tombstone(cell.timestamp, cell.local_deletion.saturating_sub(cell.ttl));
        }
        !(cell.is_tombstone() && self.purges_at(cell.timestamp, cell.local_deletion))
    }
}

#[cfg(test)]
mod tests {
    use schema::{TableBuilder, TableId};
    use types::CqlType;

    use super::*;

    #[test]
    fn the_table_says_when_deletions_are_forgotten() {
        let repaired = Arc::new(Repaired::new([(0, 100, 5_000), (100, 200, 8_000)]));
        let rule_of = |mode: TombstoneGc, only_repaired: &str| {
            let mut builder = TableBuilder::new("ks", "t", TableId([1; 16])).partition_key("k", CqlType::Int);
            builder.options.gc_grace_seconds = 1_000;
            builder.options.tombstone_gc = mode;
            let option = ("only_purge_repaired_tombstones".to_owned(), only_repaired.to_owned());
            builder.options.compaction.extend([option]);
            PurgeRule::for_table(&builder.build_known(), 10_000, &repaired)
        };
        let rule = |mode| rule_of(mode, "false");
        let times_of = |mode, only_repaired| {
            let rule = rule_of(mode, only_repaired);
            [rule.gc_before(50), rule.gc_before(150), rule.gc_before(250), rule.gc_before_of(0, 200)]
        };
        let times = |mode| times_of(mode, "false");
        assert_eq!(times(TombstoneGc::Timeout), [9_000; 4]);
        assert_eq!(times(TombstoneGc::Disabled), [0; 4]);
        assert_eq!(times(TombstoneGc::Immediate), [10_000; 4]);
        let repair = TombstoneGc::Repair { propagation_delay_seconds: 100 };
        assert_eq!(times(repair), [4_900, 7_900, 0, 4_900]);
        assert_eq!(rule(repair).gc_before_of(0, 300), 0, "a part was never repaired");
        // Older than the grace and than the last repair.
        let of_repaired = |mode| times_of(mode, "True");
        assert_eq!(of_repaired(TombstoneGc::Timeout), [5_000, 8_000, 0, 5_000]);
        assert_eq!(of_repaired(TombstoneGc::Immediate), [5_000, 8_000, 0, 5_000]);
        assert_eq!(of_repaired(TombstoneGc::Disabled), [0; 4]);
        assert_eq!(of_repaired(repair), times(repair), "the mode asks for a repair anyway");
        let late = Arc::new(Repaired::new([(i64::MIN, i64::MAX, 9_500)]));
        let mut builder = TableBuilder::new("ks", "t", TableId([1; 16])).partition_key("k", CqlType::Int);
        builder.options.gc_grace_seconds = 1_000;
        builder.options.compaction.insert("only_purge_repaired_tombstones".to_owned(), "true".to_owned());
        let table = builder.build_known();
        let rule = PurgeRule::for_table(&table, 10_000, &late);
        assert_eq!([rule.gc_before(7), rule.gc_before_of(0, 200)], [9_000; 2], "the grace has not passed");
        let ahead = Arc::new(Repaired::new([(i64::MIN, i64::MAX, 10_001)]));
        let rule = PurgeRule::for_table(&table, 10_000, &ahead);
        assert_eq!(
            [rule.gc_before(7), rule.gc_before_of(0, 200)],
            [0; 2],
            "a repair by a clock that was ahead"
        );
    }
}
