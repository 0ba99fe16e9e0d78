//! A table that a client fills and truncates again and again: the rows that a reading has to show, and those that may not come back.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The table.
pub(crate) const TABLE: &str = "k0.cut";

/// The client's knowledge of the table's rows.
#[derive(Default)]
pub(crate) struct Cut {
    pub(crate) next: i64,
    /// Acknowledged, and not truncated since.
    there: BTreeSet<i64>,
    /// There before or during a truncation that was not acknowledged.
    open: BTreeSet<i64>,
    /// A truncation was not answered: it may be carried out as long as the network or a node stands still.
    pub(crate) is_unanswered: bool,
    /// Rows before an acknowledged truncation. Rows that were not acknowledged themselves may come later than it.
    gone: BTreeSet<i64>,
}

/// Shared by the client and the checker.
pub(crate) type SharedCut = Rc<RefCell<Cut>>;

impl Cut {
    /// A truncation was acknowledged.
    pub(crate) fn truncated(&mut self) {
        let before = std::mem::take(&mut self.there).into_iter().chain(std::mem::take(&mut self.open));
        self.gone.extend(before);
    }

    /// A truncation failed, and may have been carried out in part.
    pub(crate) fn maybe_truncated(&mut self) {
        self.open.append(&mut self.there);
    }

    /// A row was acknowledged.
    pub(crate) fn insert(&mut self, k: i64) {
        if self.is_unanswered {
            self.open.insert(k)
        } else {
            self.there.insert(k)
        };
    }

    /// The violation in the rows of a reading; whether it has to show all acknowledged rows.
    pub(crate) fn problem(&self, rows: &BTreeSet<i64>, strong: bool) -> Option<String> {
        let back: Vec<&i64> = rows.intersection(&self.gone).collect();
        if !back.is_empty() {
            return Some(format!("{back:?} are there again"));
        }
        let missing: Vec<&i64> = self.there.difference(rows).filter(|_| strong).collect();
        (!missing.is_empty()).then(|| format!("{missing:?} are missing"))
    }
}

/// Creates the table.
pub(crate) fn create_text() -> String {
    format!("CREATE TABLE {TABLE} (k bigint PRIMARY KEY)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_come_back_and_rows_that_are_missing_are_distinguished() {
        let mut cut = Cut { there: [1, 2].into(), open: [3].into(), ..Cut::default() };
        assert_eq!(cut.problem(&[1, 2, 3].into(), true), None);
        assert!(cut.problem(&[1].into(), true).is_some_and(|problem| problem.contains("[2] are missing")));
        assert_eq!(cut.problem(&[1].into(), false), None);
        cut.maybe_truncated();
        assert_eq!(cut.problem(&[1].into(), true), None, "a truncation without an answer may take rows");
        cut.truncated();
        cut.is_unanswered = true;
        cut.insert(5);
        assert_eq!(cut.problem(&[].into(), true), None, "one that has no answer may come any time");
        cut.is_unanswered = false;
        cut.insert(4);
        assert!(cut.problem(&[3, 4].into(), false).is_some_and(|problem| problem.contains("[3] are there")));
    }
}
