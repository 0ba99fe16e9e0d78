//! Which of many intervals of partitions hold a place, without a look at each.
//!
//! The intervals are divided into the fewest runs in which no two overlap (as many as overlap at the place where most do), and each
//! run is searched by bisection. With leveled compaction a level is one run; where all SSTables span the whole ring a run has
//! one of them, and the search looks at all, as it must.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Intervals by their number, divided into runs.
#[derive(Default)]
pub(crate) struct Intervals {
    /// Numbers of intervals; those of a run rise and do not overlap.
    runs: Vec<Vec<u32>>,
}

impl Intervals {
    /// Of `count` intervals, whose first and last place `bounds` gives. An interval holds both.
    pub(crate) fn of<K: Ord>(count: usize, bounds: impl Fn(usize) -> (K, K)) -> Self {
        assert!(u32::try_from(count).is_ok(), "intervals have numbers");
        let mut order: Vec<(K, K, u32)> = (0..count)
            .map(|number| {
                let (first, last) = bounds(number);
                assert!(first <= last, "an interval does not end before it begins");
                (first, last, number as u32)
            })
            .collect();
        order.sort_unstable();
        let mut runs: Vec<Vec<u32>> = Vec::new();
        // The last places of the runs, the smallest first: where that overlaps, all do.
        let mut ends: BinaryHeap<Reverse<(K, usize)>> = BinaryHeap::new();
        for (first, last, number) in order {
            let run = match ends.peek() {
                Some(Reverse((end, run))) if *end < first => {
                    let run = *run;
                    ends.pop();
                    run
                }
                _ => {
                    runs.push(Vec::new());
                    runs.len() - 1
                }
            };
            if let Some(run) = runs.get_mut(run) {
                run.push(number);
            }
            ends.push(Reverse((last, run)));
        }
        Self { runs }
    }

    /// Calls `each` with the intervals that overlap a place: `ends_before` and `begins_after` say of an interval that it lies
    /// wholly before or behind it. In no particular order.
    #[inline]
    pub(crate) fn overlapping(
        &self,
        ends_before: impl Fn(usize) -> bool,
        begins_after: impl Fn(usize) -> bool,
        mut each: impl FnMut(usize),
    ) {
        for run in &self.runs {
            let begin = run.partition_point(|number| ends_before(*number as usize));
            for number in run.get(begin..).unwrap_or_default() {
                if begins_after(*number as usize) {
                    break;
                }
                each(*number as usize);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    fn found(all: &[(u16, u16)], first: u16, last: u16) -> (Vec<usize>, usize) {
        let looks = Cell::new(0);
        let at = |number: usize| {
            looks.set(looks.get() + 1);
            all[number]
        };
        let mut found = Vec::new();
        let intervals = Intervals::of(all.len(), |number| all[number]);
        let (ends_before, begins_after) = (|number| at(number).1 < first, |number| at(number).0 > last);
        intervals.overlapping(ends_before, begins_after, |number| found.push(number));
        found.sort_unstable();
        (found, looks.get())
    }

    proptest! {
        #[test]
        fn those_that_overlap_are_found(
            bounds in proptest::collection::vec((0u16..300, 0u16..60), 0..80),
            first in 0u16..320, len in 0u16..40,
        ) {
            let all: Vec<(u16, u16)> = bounds.iter().map(|(first, len)| (*first, first + len)).collect();
            let last = first + len;
            let overlapping = |number: &usize| all[*number].0 <= last && all[*number].1 >= first;
            let expected: Vec<usize> = (0..all.len()).filter(overlapping).collect();
            prop_assert_eq!(found(&all, first, last).0, expected);
        }
    }

    #[test]
    fn a_run_is_searched_by_bisection() {
        // A level of 10,000 intervals below three that span all of it.
        let level = (0..10_000).map(|at| (at * 4, at * 4 + 3));
        let all: Vec<(u16, u16)> = [(0, 40_000); 3].into_iter().chain(level).collect();
        let (found, looks) = found(&all, 20_001, 20_001);
        assert_eq!(found, [0, 1, 2, 3 + 5000]);
        assert!(looks < 30, "{looks} looks at 10,003 intervals");
    }
}
