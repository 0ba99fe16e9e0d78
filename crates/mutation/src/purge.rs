//! What compaction may forget: tombstones past their grace that no older data elsewhere still needs, and expired
//! cells, which first become tombstones.

use crate::{
    Cell, DeletionTime, Fragment, FragmentBuffer, LivenessInfo, Row, Seconds, Timestamp, row::ColumnData,
};

/// The rule of one compaction.
#[derive(Clone, Copy, Debug)]
pub struct PurgeRule {
    /// The server's clock; cells that expire at or before it have expired.
    pub now: Seconds,
    /// Tombstones made before this have outlived their grace.
    pub gc_before: Seconds,
}

/// Applies a [`PurgeRule`] to a merged stream, partition by partition.
#[derive(Debug)]
pub struct Purger {
    rule: PurgeRule,
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
        Self { rule, max_purgeable: Timestamp::MIN, held: None, open: DeletionTime::LIVE }
    }

    /// Takes the next fragment of the merged stream and appends to `out` what remains of the partition.
    /// `max_purgeable` is asked once a partition: the smallest timestamp of data for its key that takes no part in the
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
        local < self.rule.gc_before && timestamp < self.max_purgeable
    }

    fn row(&self, mut row: Row) -> Option<Row> {
        if self.purges(row.deletion) {
            row.deletion = DeletionTime::LIVE;
        }
        let mark = row.liveness;
        if mark.ttl > 0 && mark.expires <= self.rule.now && self.purges_at(mark.timestamp, mark.expires) {
            row.liveness = LivenessInfo::NONE;
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
