//! A table with an indexed column: the values that each row may have, and the rows that an index has to find. Each row has a
//! vector and a text made of its value, too, so that the rows nearest to that of a value, and those whose text has its word, have to be the rows of
//! the value.
//!
//! The client is alone on its table and gives its writes timestamps in their order, so a row has the value of its last acknowledged
//! write, or of one without an answer since.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The table.
pub(crate) const TABLE: &str = "k0.indexed";

/// The key of a row: partition and clustering key.
pub(crate) type Key = (i32, i32);

/// The client's knowledge of the table's rows: the possible states of each, a value or none.
#[derive(Default)]
pub(crate) struct Indexed {
    pub(crate) timestamp: i64,
    rows: BTreeMap<Key, BTreeSet<Option<i32>>>,
}

/// Shared by the client and the checker.
pub(crate) type SharedIndexed = Rc<RefCell<Indexed>>;

impl Indexed {
    /// A write is about to be sent; its timestamp.
    pub(crate) fn begin(&mut self, key: Key, value: Option<i32>) -> i64 {
        self.timestamp += 1;
        self.rows.entry(key).or_insert_with(|| [None].into()).insert(value);
        self.timestamp
    }

    /// It was acknowledged.
    pub(crate) fn acknowledged(&mut self, key: Key, value: Option<i32>) {
        self.rows.insert(key, [value].into());
    }

    /// The violation in the answer to a query of one value.
    pub(crate) fn problem(&self, value: i32, found: &[(Key, i32)]) -> Option<String> {
        let shown: BTreeSet<Key> = found.iter().map(|(key, _)| *key).collect();
        if shown.len() != found.len() {
            return Some(format!("a row comes twice in {found:?}"));
        }
        if let Some(other) = found.iter().find(|(_, other)| *other != value) {
            return Some(format!("{other:?} has another value"));
        }
        let never = BTreeSet::from([None]);
        let may = |key: &Key| self.rows.get(key).unwrap_or(&never);
        if let Some(key) = shown.iter().find(|key| !may(key).contains(&Some(value))) {
            return Some(format!("row {key:?} is found, which is one of {:?}", may(key)));
        }
        let must = |may: &BTreeSet<Option<i32>>| may.len() == 1 && may.contains(&Some(value));
        let missed = self.rows.iter().find(|(key, may)| must(may) && !shown.contains(key));
        missed.map(|(key, _)| format!("row {key:?} is not found"))
    }
}

/// Creates the table and its index.
pub(crate) fn create_texts() -> [String; 5] {
    [
        format!(
            "CREATE TABLE {TABLE} (p int, c int, v int, near vector<float, 2>, words text, PRIMARY KEY (p, c))"
        ),
        format!("CREATE INDEX indexed_by_v ON {TABLE} (v)"),
        format!(
            "CREATE INDEX indexed_by_near ON {TABLE} (near) USING 'sai' WITH OPTIONS = {{'similarity_function': 'euclidean'}}"
        ),
        format!(
            "CREATE CUSTOM INDEX indexed_by_words ON {TABLE} (words) USING 'sai' WITH OPTIONS = {{'index_analyzer': 'standard'}}"
        ),
        format!("CREATE CUSTOM INDEX indexed_by_relevance ON {TABLE} (words) USING 'fulltext_index'"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_missed_and_rows_of_other_values_are_found() {
        let mut indexed = Indexed::default();
        indexed.begin((1, 1), Some(2));
        assert_eq!(indexed.problem(2, &[]), None, "without an answer it may be there or not");
        assert_eq!(indexed.problem(2, &[((1, 1), 2)]), None);
        indexed.acknowledged((1, 1), Some(2));
        assert!(indexed.problem(2, &[]).is_some_and(|problem| problem.contains("is not found")));
        assert!(indexed.problem(2, &[((1, 1), 2), ((1, 1), 2)]).is_some());
        assert!(indexed.problem(1, &[((1, 1), 2)]).is_some());
        indexed.begin((1, 1), None);
        assert_eq!(indexed.problem(2, &[]), None);
        indexed.acknowledged((1, 1), None);
        assert!(indexed.problem(2, &[((1, 1), 2)]).is_some_and(|problem| problem.contains("is found")));
    }
}
