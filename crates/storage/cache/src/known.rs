//! Which ranges of rows a cached partition knows completely.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use mutation::{Bound, Clustering, RowRange, Slices};

/// The cost of a range beside its bounds: its share of tree nodes.
const RANGE_OVERHEAD: usize = 2 * size_of::<Bound>() + 32;
/// Ranges without a row that a partition keeps: reads of rows that are not there leave one each.
const RANGES_MAX: usize = 1_024;
/// Ranges that are looked at for one that may go.
const CANDIDATES_MAX: usize = 8;

/// Ranges of rows, in order and apart, by their starts.
#[derive(Debug, Default)]
pub(crate) struct Known {
    ranges: BTreeMap<Bound, Bound>,
    bytes: usize,
}

fn size(start: &Bound, end: &Bound) -> usize {
    RANGE_OVERHEAD + start.memory_size() + end.memory_size()
}

impl Known {
    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether every row is known.
    pub(crate) fn is_all(&self) -> bool {
        self.ranges.len() == 1 && self.covers_range(&RowRange::all())
    }

    /// Whether all of `wanted` is known.
    pub(crate) fn covers(&self, wanted: &Slices) -> bool {
        wanted.ranges().iter().all(|range| self.covers_range(range))
    }

    fn covers_range(&self, wanted: &RowRange) -> bool {
        self.ranges.range::<Bound, _>(..=&wanted.start).next_back().is_some_and(|(_, end)| wanted.end <= *end)
    }

    /// Whether a row lies in a known range.
    pub(crate) fn contains(&self, key: &Clustering) -> bool {
        // Bounds and keys have different positions: none is equal.
        let before = self.ranges.range::<[u8], _>((Unbounded, Excluded(key.position()))).next_back();
        before.is_some_and(|(_, end)| key.position() < end.position())
    }

    /// The ranges.
    pub(crate) fn slices(&self) -> Slices {
        if self.is_all() {
            return Slices::all();
        }
        let ranges = self.ranges.iter();
        Slices::new(ranges.map(|(start, end)| RowRange { start: start.clone(), end: end.clone() }).collect())
    }

    /// Adds ranges, joined with adjacent ones. Where there are too many, another one goes for each that
    /// is added, if `has_rows` says that no row lies in it.
    pub(crate) fn add(&mut self, more: &Slices, has_rows: impl Fn(&RowRange) -> bool) {
        for range in more.ranges() {
            if self.covers_range(range) {
                continue;
            }
            self.insert(range.clone());
            if self.ranges.len() > RANGES_MAX {
                self.forget_one(&range.end, &has_rows);
            }
        }
    }

    fn insert(&mut self, RowRange { mut start, mut end }: RowRange) {
        loop {
            let touched =
                self.ranges.range::<Bound, _>(..=&end).next_back().filter(|(_, upto)| **upto >= start);
            let Some(from) = touched.map(|(from, _)| from.clone()) else { break };
            let upto = self.remove(&from);
            start = start.min(from);
            end = end.max(upto);
        }
        self.bytes += size(&start, &end);
        self.ranges.insert(start, end);
    }

    fn remove(&mut self, start: &Bound) -> Bound {
        let end = self.ranges.remove(start).expect("it was just found");
        self.bytes -= size(start, &end);
        end
    }

    /// Forgets one of the next ranges behind `place`, round the end to the first, that has no rows.
    fn forget_one(&mut self, place: &Bound, has_rows: impl Fn(&RowRange) -> bool) {
        let round = self.ranges.range::<Bound, _>(place..).chain(self.ranges.range::<Bound, _>(..place));
        let victim = round
            .take(CANDIDATES_MAX)
            .find(|(start, end)| !has_rows(&RowRange { start: (*start).clone(), end: (*end).clone() }))
            .map(|(start, _)| start.clone());
        if let Some(start) = victim {
            self.remove(&start);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mutation::Side;
    use schema::{Table, TableBuilder, TableId};
    use types::CqlType;

    use super::*;

    fn table() -> Arc<Table> {
        TableBuilder::new("ks", "t", TableId([1; 16]))
            .partition_key("pk", CqlType::Int)
            .clustering("ck", CqlType::Int, false)
            .build_known()
    }

    fn range(table: &Table, from: i32, upto: i32) -> RowRange {
        let bound = |n: i32, side| Bound::new(table, &[Some(&n.to_be_bytes())], side);
        RowRange { start: bound(from, Side::Before), end: bound(upto, Side::After) }
    }

    #[test]
    fn equals_a_set_of_rows() {
        let table = table();
        let mut state = 7u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        for _ in 0..200 {
            let (mut known, mut rows) = (Known::default(), [false; 40]);
            for _ in 0..30 {
                let from = below(40) as usize;
                let upto = (from + below(5) as usize).min(39);
                known.add(&Slices::new(vec![range(&table, from as i32, upto as i32)]), |_| true);
                rows[from..=upto].fill(true);
                for (ck, row) in rows.iter().enumerate() {
                    let key = Clustering::new(&table, &[Some(&(ck as i32).to_be_bytes())]);
                    assert_eq!(known.contains(&key), *row);
                    assert_eq!(known.slices().contains(&key), *row);
                }
                let (a, b) = (below(40) as i32, below(5) as i32);
                let wanted = range(&table, a, (a + b).min(39));
                // Rows 3 and 4 do not touch: something may lie between them, unless they were added together.
                if known.covers(&Slices::new(vec![wanted])) {
                    assert!(rows[a as usize..=(a + b).min(39) as usize].iter().all(|row| *row));
                }
                let sum = known.ranges.iter().map(|(start, end)| size(start, end)).sum::<usize>();
                assert_eq!(known.bytes(), sum);
            }
        }
        let mut known = Known::default();
        known.add(&Slices::all(), |_| true);
        assert!(known.is_all() && known.covers(&Slices::all()) && known.slices().is_all());
    }

    #[test]
    fn ranges_with_rows_stay() {
        let table = table();
        let mut known = Known::default();
        let first = range(&table, -5, -5);
        known.add(&Slices::new(vec![first.clone()]), |_| true);
        for n in 0..20_000 {
            known.add(&Slices::new(vec![range(&table, n * 2, n * 2)]), |range| *range == first);
        }
        assert!(known.covers(&Slices::new(vec![first])));
        assert!(known.len() <= RANGES_MAX, "{} ranges", known.len());
    }
}
