//! Tables that clients create, alter and drop: the columns that each may have, and the next change of each.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use rt_sim::Rng;

use crate::plan::one_in;

/// Tables of each client.
pub(crate) const TABLES: usize = 2;
/// Their keyspace.
pub(crate) const KEYSPACE: &str = "k0";

/// The columns of a table outside of its key; none when there is no such table.
pub(crate) type Columns = Option<BTreeSet<String>>;

/// A table, and its possible columns.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) name: String,
    pub(crate) may: Vec<Columns>,
    next_column: u32,
}

/// Shared by the clients.
pub(crate) type SharedSchema = Rc<RefCell<Vec<Known>>>;

impl Known {
    /// The tables of so many clients.
    pub(crate) fn all(clients: usize) -> Vec<Known> {
        let one = |at: usize| Known { name: format!("d{at}"), may: vec![None], next_column: 0 };
        (0..clients * TABLES).map(one).collect()
    }

    /// A change of a table whose columns are known: its text, its result, and a statement that uses it.
    pub(crate) fn change(&mut self, rng: &mut Rng) -> (String, Columns, Option<String>) {
        let name = format!("{KEYSPACE}.{}", self.name);
        let Some(columns) = self.may[0].clone() else {
            let text = format!("CREATE TABLE {name} (k int PRIMARY KEY, v int)");
            let used = format!("INSERT INTO {name} (k, v) VALUES (1, 1)");
            return (text, Some(BTreeSet::from(["v".to_owned()])), Some(used));
        };
        if one_in(rng, 4) {
            return (format!("DROP TABLE {name}"), None, None);
        }
        let mut columns = columns;
        if columns.len() > 1 && one_in(rng, 3) {
            let gone = columns.pop_first().expect("there are two");
            return (format!("ALTER TABLE {name} DROP {gone}"), Some(columns), None);
        }
        self.next_column += 1;
        let column = format!("x{}", self.next_column);
        let text = format!("ALTER TABLE {name} ADD {column} int");
        let used = format!("UPDATE {name} SET {column} = 1 WHERE k = 1");
        columns.insert(column);
        (text, Some(columns), Some(used))
    }
}
