//! A changed schema: its effect on rows in memory, which know columns by their ids, and on logs, which name them.
//!
//! A column that was dropped may be added again. Its cells of before that are newer than the drop are visible then, wherever they are: in a
//! memtable, in files, in the log. So a memtable is closed when a column is dropped, and code that writes files from files or logs meanwhile
//! writes the cells of dropped columns too.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use mutation::Recast;
use schema::{Schema, Table, TableId};

use crate::engine::Inner;
use crate::store::Store;

/// The effect of a changed definition of a table on the ids of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnChange {
    /// Columns have the ids that they had.
    None,
    /// A dropped column is there again.
    Returns,
    /// A column is gone, or another one of its name is there.
    Drops,
}

/// Makes stores for tables that are new, and takes over changed definitions.
pub(crate) async fn set_schema(inner: &Rc<Inner>, schema: &Arc<Schema>) {
    inner.set_schema(schema, |store, table| take_over(inner, store, table)).await;
}

/// Gives a table a changed definition, in one step. Where a column is dropped, the memtable is closed and written under the definition
/// by which it was filled, and readers recast its rows meanwhile.
fn take_over(inner: &Rc<Inner>, store: &Rc<Store>, table: &Arc<Table>) {
    let change = store.of_table(|known| column_change(known, table));
    if change == ColumnChange::Drops {
        crate::flush::start(inner, store, None);
    }
    store.set_table(table);
    if change != ColumnChange::None {
        // Cached rows lack cells that are visible again, and their ids may be those of before.
        inner.cache.forget_table(store.id);
    }
}

fn column_change(known: &Table, table: &Table) -> ColumnChange {
    if std::ptr::eq(known, table) {
        return ColumnChange::None;
    }
    if Recast::new(known, table).is_some_and(|recast| recast.changes_ids()) {
        return ColumnChange::Drops;
    }
    let comes_back = |name: &String| known.column(name).is_none() && table.column(name).is_some();
    if table.dropped_columns.keys().any(comes_back) { ColumnChange::Returns } else { ColumnChange::None }
}

/// The definitions by which logs are read: with the columns that were dropped and not added again, whose cells may be newer than that.
#[derive(Default)]
pub(crate) struct Definitions(BTreeMap<TableId, Arc<Table>>);

impl Definitions {
    /// That of a table.
    pub(crate) fn of(&mut self, table: &Arc<Table>) -> Arc<Table> {
        if table.dropped_columns.is_empty() {
            return table.clone();
        }
        self.0.entry(table.id).or_insert_with(|| table.with_dropped_columns(|_| true)).clone()
    }
}
