//! A table with a synchronous materialized view: the rows that a reading of the view at QUORUM has to show, and may show.
//!
//! The client is alone on its table and gives its writes timestamps in their order. A write that was acknowledged at QUORUM is in the view. One
//! without an answer may be there until a replica of the base that had it gets a later one, which nobody waits for; and where such a one came
//! between two others, so may the one before it.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::models::indexed::Key;

/// The base.
pub(crate) const TABLE: &str = "k0.mirrored";
/// The view, by `v`.
pub(crate) const VIEW: &str = "k0.mirror";

/// The client's knowledge of one row.
#[derive(Default)]
struct Known {
    /// The values that it may have; none for no row.
    may: BTreeSet<Option<i32>>,
    /// Former values that the view may still show.
    lingering: BTreeSet<Option<i32>>,
}

/// The client's knowledge of the rows.
#[derive(Default)]
pub(crate) struct Mirrored {
    timestamp: i64,
    rows: BTreeMap<Key, Known>,
}

impl Mirrored {
    /// A write is about to be sent; its timestamp.
    pub(crate) fn begin(&mut self, key: Key, value: Option<i32>) -> i64 {
        self.timestamp += 1;
        let nothing = || Known { may: [None].into(), ..Known::default() };
        self.rows.entry(key).or_insert_with(nothing).may.insert(value);
        self.timestamp
    }

    /// It was acknowledged.
    pub(crate) fn acknowledged(&mut self, key: Key, value: Option<i32>) {
        let known = self.rows.entry(key).or_default();
        let before = std::mem::replace(&mut known.may, [value].into());
        // The value before it, and its own.
        if before.len() > 2 || !known.lingering.is_empty() {
            known.lingering.extend(before);
        }
    }

    /// The violation in the rows that the view shows of a value.
    pub(crate) fn problem(&self, value: i32, found: &[Key]) -> Option<String> {
        let shown: BTreeSet<Key> = found.iter().copied().collect();
        if shown.len() != found.len() {
            return Some(format!("a row comes twice in {found:?}"));
        }
        let may_show = |key: &Key| {
            let is_known = |known: &Known| known.may.union(&known.lingering).any(|one| *one == Some(value));
            self.rows.get(key).is_some_and(is_known)
        };
        if let Some(key) = shown.iter().find(|key| !may_show(key)) {
            return Some(format!("row {key:?} is shown, which has another value"));
        }
        let must_show = |known: &Known| known.may.len() == 1 && known.may.contains(&Some(value));
        let missed = self.rows.iter().find(|(key, known)| must_show(known) && !shown.contains(key));
        missed.map(|(key, _)| format!("row {key:?} is not shown, although its write was acknowledged"))
    }
}

/// Creates the table and its view.
pub(crate) fn create_texts() -> [String; 2] {
    [
        format!("CREATE TABLE {TABLE} (p int, c int, v int, PRIMARY KEY (p, c))"),
        format!(
            "CREATE MATERIALIZED VIEW {VIEW} AS SELECT * FROM {TABLE} WHERE v IS NOT NULL AND p IS NOT NULL AND c IS NOT NULL \
             PRIMARY KEY (v, p, c) WITH synchronous_updates = true"
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_the_view_lacks_and_rows_that_it_has_kept_are_found() {
        let key = (1, 1);
        let mut rows = Mirrored::default();
        let (shows, lacks) = ([key], []);
        let write = |rows: &mut Mirrored, value| {
            rows.begin(key, value);
            rows.acknowledged(key, value);
        };
        assert!(rows.problem(1, &shows).is_some(), "nobody wrote it");
        rows.begin(key, Some(1));
        assert_eq!((rows.problem(1, &shows), rows.problem(1, &lacks)), (None, None));
        rows.acknowledged(key, Some(1));
        assert!(rows.problem(1, &lacks).is_some_and(|text| text.contains("is not shown")));
        assert!(rows.problem(1, &[key, key]).is_some_and(|text| text.contains("twice")));
        write(&mut rows, Some(2));
        assert!(rows.problem(1, &shows).is_some_and(|text| text.contains("another value")));
        // Without an answer: it may stay after a later one, and so may the one before it.
        rows.begin(key, Some(3));
        write(&mut rows, None);
        for value in [2, 3] {
            assert_eq!((rows.problem(value, &shows), rows.problem(value, &lacks)), (None, None), "{value}");
        }
        assert!(rows.problem(1, &shows).is_some());
        write(&mut rows, Some(1));
        assert!(rows.problem(1, &lacks).is_some());
        assert_eq!(rows.problem(3, &shows), None, "nobody has said that it is gone");
    }
}
