//! The tables of a shard.

use std::cell::{Ref, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use rt::preempt::Pace;
use schema::{Schema, Table, TableId};
use sstable::table_dir;
use stdx::{HashMap, HashSet};

use crate::store::Store;

/// The tables of a shard.
#[derive(Default)]
pub(crate) struct Tables {
    stores: RefCell<HashMap<TableId, Rc<Store>>>,
    /// The schema that they were taken from.
    schema: RefCell<Arc<Schema>>,
    /// Those that are in no schema any more and whose files are not all removed.
    dropping: RefCell<HashSet<TableId>>,
}

impl Tables {
    /// A table, if it is there.
    pub(crate) fn get(&self, table: TableId) -> Option<Rc<Store>> {
        self.stores.borrow().get(&table).cloned()
    }

    /// All of them, without a copy.
    #[inline]
    pub(crate) fn current(&self) -> Ref<'_, HashMap<TableId, Rc<Store>>> {
        self.stores.borrow()
    }

    /// All tables, by id: an order that does not depend on history.
    pub(crate) fn in_order(&self) -> Vec<Rc<Store>> {
        let mut stores: Vec<Rc<Store>> = self.stores.borrow().values().cloned().collect();
        stores.sort_by_key(|store| store.id);
        stores
    }

    /// Makes stores for tables that are new in a schema, and takes over changed definitions; the schema before. `data` is the
    /// directory of tables; `take_over` gives a store a changed definition. Schemas are taken over one after the other.
    pub(crate) async fn set_schema(
        &self,
        data: &Path,
        schema: &Arc<Schema>,
        take_over: impl Fn(&Rc<Store>, &Arc<Table>),
    ) -> Arc<Schema> {
        let before = self.schema.borrow().clone();
        let mut pace = Pace::new();
        for keyspace in schema.keyspaces() {
            if before.keyspace(&keyspace.name).is_some_and(|before| Arc::ptr_eq(before, keyspace)) {
                continue;
            }
            for table in keyspace.tables.values() {
                let store = self
                    .stores
                    .borrow_mut()
                    .entry(table.id)
                    .or_insert_with(|| {
                        Store::new(table.clone(), table_dir(data, table), keyspace.durable_writes)
                    })
                    .clone();
                store.durable.set(keyspace.durable_writes);
                take_over(&store, table);
                pace.step().await;
            }
        }
        let replaced = self.schema.replace(schema.clone());
        assert!(Arc::ptr_eq(&replaced, &before), "schemas are taken over one after the other");
        before
    }

    /// A table is gone for everybody; its files are not yet.
    pub(crate) fn begin_drop(&self, table: TableId) {
        let is_first = self.dropping.borrow_mut().insert(table);
        assert!(is_first, "a table is dropped once at a time");
        let store = self.stores.borrow_mut().remove(&table);
        assert!(store.is_some(), "a table that is dropped was there");
    }

    /// The files of a table that is gone are removed.
    pub(crate) fn end_drop(&self, table: TableId) {
        let was_dropping = self.dropping.borrow_mut().remove(&table);
        assert!(was_dropping, "a drop that ends has begun");
    }

    /// Whether files of a table that is gone are still there.
    pub(crate) fn is_dropping(&self, table: TableId) -> bool {
        self.dropping.borrow().contains(&table)
    }
}
