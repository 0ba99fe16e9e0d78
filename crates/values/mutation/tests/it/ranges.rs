//! Range tombstones against a definition point by point.

use mutation::range::clip;
use mutation::{Bound, DeletionTime, RangeChanges, RangeTombstone, RangeTombstones, RowRange, Side, Slices};
use proptest::prelude::*;

use testkit::data::{bound, clustering, range, table};

/// A row's bounds end otherwise than its key, and are the same otherwise.
#[test]
fn bounds_of_a_row_are_those_of_its_values() {
    let table = table();
    for key in [clustering(&table, 3), mutation::Clustering::empty()] {
        let values: Vec<_> = key.components().collect();
        for (of_row, side) in [(Bound::before_row(&key), Side::Before), (Bound::after_row(&key), Side::After)]
        {
            let of_values = Bound::new(&table, &values, side);
            assert_eq!((of_row.position(), of_row.side()), (of_values.position(), side));
            assert!(of_row.components().eq(values.iter().copied()));
        }
    }
    let row = RowRange::row(&clustering(&table, 3));
    assert!(row.contains(&clustering(&table, 3)));
    assert!(!row.contains(&clustering(&table, 4)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn covering_is_the_largest_of_all_that_contain_a_point(
        ranges in prop::collection::vec(range(table()), 0..8),
        many in any::<bool>(),
    ) {
        let table = table();
        // Far from the points that are looked at: so many that the ranges lie in a tree.
        let far = (1_000..if many { 1_300 } else { 1_000 }).step_by(2).map(|c| RangeTombstone {
            start: bound(&table, c, Side::Before),
            end: bound(&table, c, Side::After),
            deletion: DeletionTime::new(1, 1),
        });
        let list: RangeTombstones = far.clone().chain(ranges.iter().cloned()).collect();
        let rows = RowRange { start: bound(&table, 2, Side::After), end: bound(&table, 5, Side::Before) };
        let met: Vec<_> = list.iter().filter(|r| r.start < rows.end && r.end > rows.start).collect();
        prop_assert_eq!(list.overlapping(&rows).collect::<Vec<_>>(), met);
        let other: RangeTombstones = ranges.iter().rev().cloned().chain(far).collect();
        prop_assert!(list == other && list.memory_size() == other.memory_size(), "in another order");
        let mut without = list.clone();
        without.retain(|range| range.start < rows.end);
        let kept: RangeTombstones = list.iter().filter(|range| range.start < rows.end).cloned().collect();
        prop_assert!(without == kept && without.is_empty() == kept.is_empty());
        for reversed in [false, true] {
            let slices = Slices::new(vec![rows.clone(), RowRange { start: bound(&table, 6, Side::After), end: Bound::top() }]);
            for slices in [Slices::all(), slices, Slices::none()] {
                let mut changes = RangeChanges::new(&list, reversed);
                let lazy = std::iter::from_fn(|| {
                    changes.peek(&slices)?;
                    changes.pop()
                });
                prop_assert_eq!(lazy.collect::<Vec<_>>(), clip(&list, &slices).changes(reversed));
            }
        }
        for range in list.iter() {
            let cut = RangeTombstone { deletion: DeletionTime::new(99, 9), ..range.clone() };
            prop_assert!(list.has(range) && !list.has(&cut));
        }
        for c in -1..9 {
            let key = clustering(&table, c);
            let expected = ranges
                .iter()
                .filter(|r| r.start.position() < key.position() && key.position() < r.end.position())
                .fold(DeletionTime::LIVE, |best, r| best.max(r.deletion));
            prop_assert_eq!(list.covering(&key), expected, "at {}", c);
        }
        let flat: Vec<_> = list.iter().collect();
        for range in &flat {
            prop_assert!(range.start < range.end);
        }
        for pair in flat.windows(2) {
            prop_assert!(pair[0].end <= pair[1].start);
            prop_assert!(pair[0].end < pair[1].start || pair[0].deletion != pair[1].deletion);
        }
    }
}

#[test]
fn bounds_and_rows_have_one_order() {
    let table = table();
    for c in [-3, 0, 5] {
        let key = clustering(&table, c);
        assert!(bound(&table, c, Side::Before).position() < key.position());
        assert!(key.position() < bound(&table, c, Side::After).position());
        assert!(bound(&table, c, Side::After).position() < clustering(&table, c + 1).position());
        assert!(mutation::Bound::bottom().position() < key.position());
        assert!(key.position() < mutation::Bound::top().position());
    }
}

/// Among few ranges and among so many that they lie in a tree.
#[test]
fn ranges_that_touch_with_one_deletion_are_one_in_whatever_order_they_come() {
    let table = table();
    let range =
        |start, end, deletion| RangeTombstone { start, end, deletion: DeletionTime::new(deletion, 1) };
    let after = |c| bound(&table, c, Side::After);
    for many in [0, 150] {
        let far: Vec<_> = (0..many).map(|n| range(after(1_000 + 2 * n), after(1_001 + 2 * n), 1)).collect();
        let near = [range(after(0), after(1), 2), range(after(0), after(2), 1), range(after(1), after(2), 2)];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let added = order.into_iter().map(|at: usize| near[at].clone());
            let list: RangeTombstones = far.iter().cloned().chain(added).collect();
            let all: Vec<_> = list.iter().take(1).cloned().collect();
            assert_eq!(all, [range(after(0), after(2), 2)], "{order:?} among {many}");
            assert_eq!(list.len(), 1 + far.len());
        }
    }
}
