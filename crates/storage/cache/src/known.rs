//! Which ranges of rows a cached partition knows completely. A range is the unit of eviction, and each has its place in the order of use.

use mutation::{Bound, Clustering, RowRange, Slices};

use crate::lru::NONE;
use crate::ranges::Ranges;

/// The cost of a range beside its bounds: itself, and its place in the order of use, which has its start once more.
const RANGE_OVERHEAD: usize = 3 * size_of::<Bound>() + 56;

/// The end of a range, by whose start it is found, and its place in the order of use.
#[derive(Debug)]
struct Place {
    end: Bound,
    node: u32,
}

/// Ranges of rows in order, none overlapping another. They touch where one was divided, or read page by page.
#[derive(Debug, Default)]
pub(crate) struct Known {
    ranges: Ranges<Place>,
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

    /// How many ranges there are.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether all of `wanted` is known. `uses` gets the place of each range in which a part of it lies.
    pub(crate) fn covers(&self, wanted: &Slices, mut uses: impl FnMut(u32)) -> bool {
        let ranges = wanted.ranges();
        if ranges.is_empty() {
            // The static row and the partition's deletion, which last as long as any range.
            let last = self.ranges.last();
            return last.inspect(|(_, place)| uses(place.node)).is_some();
        }
        ranges.iter().all(|range| self.covers_range(range, &mut uses))
    }

    fn covers_range(&self, wanted: &RowRange, uses: &mut impl FnMut(u32)) -> bool {
        let Some((_, first)) = self.ranges.upto(wanted.start.position()) else {
            return false;
        };
        if first.end <= wanted.start {
            return false;
        }
        uses(first.node);
        if wanted.end <= first.end {
            return true;
        }
        let mut upto = &first.end;
        for (start, place) in self.ranges.from(upto) {
            if start != upto {
                return false;
            }
            uses(place.node);
            upto = &place.end;
            if wanted.end <= *upto {
                return true;
            }
        }
        false
    }

    /// The start of the range in which a row lies, if it is known.
    pub(crate) fn start_of(&self, key: &Clustering) -> Option<&Bound> {
        // Bounds and keys have different positions: none is equal.
        self.ranges
            .upto(key.position())
            .filter(|(_, place)| key.position() < place.end.position())
            .map(|(start, _)| start)
    }

    /// The range that begins there.
    pub(crate) fn range(&self, start: &Bound) -> RowRange {
        RowRange { start: start.clone(), end: self.ranges.get(start).expect("a known range").end.clone() }
    }

    /// The ranges, joined where they touch.
    pub(crate) fn slices(&self) -> Slices {
        let ranges = self.ranges.iter();
        Slices::new(
            ranges.map(|(start, place)| RowRange { start: start.clone(), end: place.end.clone() }).collect(),
        )
    }

    /// The parts of `wanted` that are not known, in order.
    pub(crate) fn gaps(&self, wanted: &Slices) -> Vec<RowRange> {
        let mut gaps = Vec::new();
        for range in wanted.ranges() {
            let before = self.ranges.upto(range.start.position());
            let mut from = before.map_or(&range.start, |(_, place)| (&place.end).max(&range.start));
            for (start, place) in
                self.ranges.behind(&range.start).take_while(|(start, _)| **start < range.end)
            {
                if from < start {
                    gaps.push(RowRange { start: from.clone(), end: start.clone() });
                }
                from = (&place.end).max(from);
            }
            if *from < range.end {
                gaps.push(RowRange { start: from.clone(), end: range.end.clone() });
            }
        }
        gaps
    }

    /// Adds a range that overlaps none.
    pub(crate) fn add(&mut self, RowRange { start, end }: RowRange, node: u32) {
        assert_ne!(node, NONE, "a range has a place in the order of use");
        self.bytes += size(&start, &end);
        assert!(self.ranges.insert(start, Place { end, node }).is_none(), "a range is known once");
    }

    /// Divides the range that begins at `start`. Each part behind the first gets a place from `node`.
    pub(crate) fn divide(&mut self, start: &Bound, cuts: Vec<Bound>, mut node: impl FnMut(&Bound) -> u32) {
        let mut start = start.clone();
        for cut in cuts {
            let place = self.ranges.get_mut(&start).expect("the range that is divided is known");
            assert!(start < cut && cut < place.end, "a range is divided within it");
            let end = std::mem::replace(&mut place.end, cut.clone());
            self.bytes = self.bytes - size(&start, &end) + size(&start, &cut);
            self.add(RowRange { start: cut.clone(), end }, node(&cut));
            start = cut;
        }
    }

    /// Removes the range that begins at `start`; it, and its place.
    pub(crate) fn remove(&mut self, start: &Bound) -> Option<(RowRange, u32)> {
        let (start, Place { end, node }) = self.ranges.remove_entry(start)?;
        self.bytes -= size(&start, &end);
        Some((RowRange { start, end }, node))
    }

    /// The start of the first range.
    pub(crate) fn first(&self) -> Option<&Bound> {
        self.ranges.first().map(|(start, _)| start)
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

    /// Adds the gaps of a range. `next` is the least number that is no place yet.
    fn add(known: &mut Known, more: RowRange, next: &mut u32) {
        for gap in known.gaps(&Slices::new(vec![more])) {
            known.add(gap, *next);
            *next += 1;
        }
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
            let (mut known, mut rows, mut next) = (Known::default(), [false; 40], 0);
            for _ in 0..40 {
                let from = below(40) as usize;
                let upto = (from + below(5) as usize).min(39);
                match below(4) {
                    0 => {
                        // The range of a row leaves.
                        let key = Clustering::new(&table, &[Some(&(from as i32).to_be_bytes())]);
                        if let Some(start) = known.start_of(&key).cloned() {
                            let (range, _) = known.remove(&start).expect("it was found");
                            for (ck, row) in rows.iter_mut().enumerate() {
                                *row &= !range
                                    .contains(&Clustering::new(&table, &[Some(&(ck as i32).to_be_bytes())]));
                            }
                        }
                    }
                    1 => {
                        let key = Clustering::new(&table, &[Some(&(from as i32).to_be_bytes())]);
                        let cut = Bound::before_row(&key);
                        let start = known.start_of(&key).cloned();
                        if let Some(start) = start.filter(|start| *start < cut) {
                            known.divide(&start, vec![cut], |_| {
                                next += 1;
                                next - 1
                            });
                        }
                    }
                    _ => {
                        add(&mut known, range(&table, from as i32, upto as i32), &mut next);
                        rows[from..=upto].fill(true);
                    }
                }
                for (ck, row) in rows.iter().enumerate() {
                    let key = Clustering::new(&table, &[Some(&(ck as i32).to_be_bytes())]);
                    assert_eq!(known.start_of(&key).is_some(), *row);
                    assert_eq!(known.slices().contains(&key), *row);
                }
                let (a, b) = (below(40) as i32, below(5) as i32);
                let wanted = Slices::new(vec![range(&table, a, (a + b).min(39))]);
                let mut used = Vec::new();
                if known.covers(&wanted, |node| used.push(node)) {
                    // Rows 3 and 4 do not touch: something may lie between them, unless they were added together.
                    assert!(rows[a as usize..=(a + b).min(39) as usize].iter().all(|row| *row));
                    assert!(!used.is_empty() && used.len() <= b as usize * 2 + 1, "{used:?}");
                    assert!(known.gaps(&wanted).is_empty());
                } else {
                    assert!(!known.gaps(&wanted).is_empty());
                }
                let sum = known.ranges.iter().map(|(start, place)| size(start, &place.end)).sum::<usize>();
                assert_eq!(known.bytes(), sum);
            }
        }
        let mut known = Known::default();
        known.add(RowRange::all(), 0);
        assert!(known.covers(&Slices::all(), |_| {}) && known.slices().is_all() && known.len() == 1);
    }
}
