//! Merging rows is commutative, associative and idempotent.

use mutation::Row;
use proptest::prelude::*;

use crate::arbitrary::{row, table};

fn merged(mut left: Row, right: Row) -> Row {
    left.merge(right, &table());
    left
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn rows_merge_in_any_order(a in row(table(), 1), b in row(table(), 1), c in row(table(), 1)) {
        prop_assert_eq!(merged(a.clone(), b.clone()), merged(b.clone(), a.clone()));
        prop_assert_eq!(
            merged(merged(a.clone(), b.clone()), c.clone()),
            merged(a.clone(), merged(b.clone(), c))
        );
        prop_assert_eq!(merged(a.clone(), a.clone()), a);
    }
}
