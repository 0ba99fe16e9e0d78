//! A table with materialized views: the rows of each view that its definition gives over the rows of the base.
//!
//! Which writes happened does not matter: its views show the rows that the base shows.

use std::collections::BTreeSet;

/// The base.
pub(crate) const TABLE: &str = "k0.followed";

/// A row of the base: its key, then `v` and `w`.
pub(crate) type BaseRow = Vec<Option<i32>>;

/// A view: its name, the columns that are read of it, and the form of a base row in it.
pub(crate) struct View {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static str,
    shows: fn(&BaseRow) -> Option<Vec<Option<i32>>>,
}

/// The views.
pub(crate) const VIEWS: [View; 3] = [
    View {
        name: "by_v",
        columns: "v, p, c, w",
        shows: |row| row[2].map(|v| vec![Some(v), row[0], row[1], row[3]]),
    },
    View { name: "by_c", columns: "c, p", shows: |row| Some(vec![row[1], row[0]]) },
    View {
        name: "large",
        columns: "p, w, c, v",
        shows: |row| row[3].filter(|w| *w > 1).map(|w| vec![row[0], Some(w), row[1], row[2]]),
    },
];

/// Creates the table, whose changes may be captured, and its views.
pub(crate) fn create_texts(captured: bool) -> [String; 4] {
    let options = if captured { " WITH cdc = {'enabled': true, 'ttl': 0}" } else { "" };
    let named = "p IS NOT NULL AND c IS NOT NULL";
    [
        format!("CREATE TABLE {TABLE} (p int, c int, v int, w int, PRIMARY KEY (p, c)){options}"),
        format!(
            "CREATE MATERIALIZED VIEW k0.by_v AS SELECT * FROM {TABLE} WHERE v IS NOT NULL AND {named} PRIMARY KEY (v, p, c)"
        ),
        format!(
            "CREATE MATERIALIZED VIEW k0.by_c AS SELECT p, c FROM {TABLE} WHERE {named} PRIMARY KEY (c, p)"
        ),
        format!(
            "CREATE MATERIALIZED VIEW k0.large AS SELECT * FROM {TABLE} WHERE w > 1 AND {named} PRIMARY KEY (p, w, c)"
        ),
    ]
}

/// The difference between a view and the result of its definition over the base; none if there is no difference.
pub(crate) fn problem(view: &View, base: &[BaseRow], found: &[BaseRow]) -> Option<String> {
    let expected: BTreeSet<BaseRow> = base.iter().filter_map(|row| (view.shows)(row)).collect();
    let rows: BTreeSet<BaseRow> = found.iter().cloned().collect();
    if rows.len() != found.len() {
        return Some(format!("a row comes twice in {found:?}"));
    }
    if let Some(row) = rows.difference(&expected).next() {
        return Some(format!("{row:?} is not in the base"));
    }
    expected.difference(&rows).next().map(|row| format!("{row:?} is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_missing_and_rows_too_many_are_found() {
        let row = |cells: &[i32]| cells.iter().map(|cell| Some(*cell)).collect::<BaseRow>();
        let base = [row(&[1, 2, 3, 4]), vec![Some(5), Some(6), None, None]];
        let by_v = row(&[3, 1, 2, 4]);
        assert_eq!(problem(&VIEWS[0], &base, std::slice::from_ref(&by_v)), None);
        assert!(problem(&VIEWS[0], &base, &[]).is_some_and(|text| text.contains("is missing")));
        let old = row(&[2, 1, 2, 4]);
        let two = problem(&VIEWS[0], &base, &[by_v.clone(), old]);
        assert!(two.is_some_and(|text| text.contains("is not in the base")));
        assert!(problem(&VIEWS[0], &base, &[by_v.clone(), by_v]).is_some());
        assert_eq!(problem(&VIEWS[1], &base, &[row(&[2, 1]), row(&[6, 5])]), None);
        assert_eq!(problem(&VIEWS[2], &base, &[row(&[1, 4, 2, 3])]), None);
    }
}
