//! Range tombstones against a definition point by point.

use mutation::{DeletionTime, RangeTombstones, Side};
use proptest::prelude::*;

use testkit::data::{bound, clustering, range, table};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn covering_is_the_largest_of_all_that_contain_a_point(
        ranges in prop::collection::vec(range(table()), 0..8)
    ) {
        let table = table();
        let list: RangeTombstones = ranges.iter().cloned().collect();
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
