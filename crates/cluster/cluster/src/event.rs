//! The changes between two schemas, as events for drivers.

use std::collections::BTreeMap;
use std::sync::Arc;

use schema::{Keyspace, Schema, Signature, Table, differences};

/// How something changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// It is new.
    Created,
    /// It is different.
    Updated,
    /// It is gone.
    Dropped,
}

/// The changed object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChangedObject {
    /// The keyspace itself.
    Keyspace,
    /// This table of it.
    Table(String),
    /// This user type of it.
    Type(String),
    /// This function of it.
    Function(Signature),
    /// This aggregate of it.
    Aggregate(Signature),
}

/// One change (`SCHEMA_CHANGE` of the native protocol).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SchemaEvent {
    /// How.
    pub change: Change,
    /// In which keyspace.
    pub keyspace: String,
    /// The object.
    pub object: ChangedObject,
}

/// The changes that lead from `old` to `new`: a keyspace is created before its contents, and dropped after them. A changed index or trigger is a
/// change of its table.
pub fn events(old: &Schema, new: &Schema) -> Vec<SchemaEvent> {
    let mut out = Vec::new();
    for keyspace in new.keyspaces() {
        let before = old.keyspace(&keyspace.name);
        keyspace_events(before, keyspace, &mut out);
    }
    for keyspace in old.keyspaces().filter(|keyspace| new.keyspace(&keyspace.name).is_none()) {
        out.extend(whole(keyspace).rev().map(|object| event(keyspace, Change::Dropped, object)));
    }
    out
}

/// A keyspace and its contents, each behind those that it may depend on.
fn whole(keyspace: &Keyspace) -> impl DoubleEndedIterator<Item = ChangedObject> {
    let types = keyspace.types.keys().cloned().map(ChangedObject::Type);
    let tables = keyspace.tables.keys().cloned().map(ChangedObject::Table);
    let functions = keyspace.functions.keys().cloned().map(ChangedObject::Function);
    let aggregates = keyspace.aggregates.keys().cloned().map(ChangedObject::Aggregate);
    std::iter::once(ChangedObject::Keyspace).chain(types).chain(tables).chain(functions).chain(aggregates)
}

fn event(keyspace: &Keyspace, change: Change, object: ChangedObject) -> SchemaEvent {
    SchemaEvent { change, keyspace: keyspace.name.clone(), object }
}

/// How the values of a map changed: those that are gone come last. A value with another identity (`is_same`) is dropped and made.
fn map_events<K: Ord + Clone, V: PartialEq>(
    (before, after): (&BTreeMap<K, Arc<V>>, &BTreeMap<K, Arc<V>>),
    is_same: impl Fn(&V, &V) -> bool,
    object: impl Fn(K) -> ChangedObject,
    push: &mut impl FnMut(Change, ChangedObject),
) {
    let mut gone = Vec::new();
    for (key, difference) in differences(before, after) {
        let mut push = |change| push(change, object(key.clone()));
        match difference {
            (None, _) => push(Change::Created),
            (Some(_), None) => gone.push(key),
            (Some(old), Some(new)) if !is_same(old, new) => {
                push(Change::Dropped);
                push(Change::Created);
            }
            (Some(old), Some(new)) if old != new => push(Change::Updated),
            (Some(_), Some(_)) => {}
        }
    }
    gone.into_iter().for_each(|key| push(Change::Dropped, object(key.clone())));
}

fn keyspace_events(before: Option<&Arc<Keyspace>>, after: &Arc<Keyspace>, out: &mut Vec<SchemaEvent>) {
    if before.is_some_and(|before| Arc::ptr_eq(before, after)) {
        return;
    }
    assert!(before.is_none_or(|before| before.name == after.name), "a keyspace keeps its name");
    let Some(before) = before else {
        out.extend(whole(after).map(|object| event(after, Change::Created, object)));
        return;
    };
    let mut push = |change, object| out.push(event(after, change, object));
    if before.replication != after.replication || before.durable_writes != after.durable_writes {
        push(Change::Updated, ChangedObject::Keyspace);
    }
    let push = &mut push;
    map_events((&before.types, &after.types), |_, _| true, ChangedObject::Type, push);
    let is_same = |old: &Table, new: &Table| old.id == new.id;
    map_events((&before.tables, &after.tables), is_same, ChangedObject::Table, push);
    map_events((&before.functions, &after.functions), |_, _| true, ChangedObject::Function, push);
    map_events((&before.aggregates, &after.aggregates), |_, _| true, ChangedObject::Aggregate, push);
}

#[cfg(test)]
mod tests {
    use schema::{Replication, TableBuilder, TableId};
    use types::CqlType;

    use super::*;

    /// A driver that knows a keyspace by its events learns of all of its objects, and forgets them.
    #[test]
    fn a_keyspace_comes_before_its_contents_and_goes_after_them() {
        let empty = Schema::default();
        let table = |name: &str, id| {
            let table = TableBuilder::new("ks", name, TableId([id; 16])).partition_key("k", CqlType::Int);
            table.build().expect("a table")
        };
        let full = empty.clone().with_keyspace(Keyspace::new("ks", Replication::Local));
        let full = full.with_table(table("a", 1)).with_table(table("b", 2));
        let of = |change| move |object| SchemaEvent { change, keyspace: "ks".to_owned(), object };
        let mut objects =
            vec![ChangedObject::Keyspace, ChangedObject::Table("a".into()), ChangedObject::Table("b".into())];
        let created: Vec<_> = objects.iter().cloned().map(of(Change::Created)).collect();
        assert_eq!(events(&empty, &full), created);
        objects.reverse();
        let dropped: Vec<_> = objects.into_iter().map(of(Change::Dropped)).collect();
        assert_eq!(events(&full, &empty), dropped);
    }
}
