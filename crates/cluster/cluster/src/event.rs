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

/// The changes that lead from `old` to `new`: an object comes before its contents. The contents of a dropped keyspace are not
/// listed apart. A changed index or trigger is a change of its table.
pub fn events(old: &Schema, new: &Schema) -> Vec<SchemaEvent> {
    let mut out = Vec::new();
    for keyspace in new.keyspaces() {
        let before = old.keyspace(&keyspace.name);
        keyspace_events(before, keyspace, &mut out);
    }
    for keyspace in old.keyspaces().filter(|keyspace| new.keyspace(&keyspace.name).is_none()) {
        let keyspace = keyspace.name.clone();
        out.push(SchemaEvent { change: Change::Dropped, keyspace, object: ChangedObject::Keyspace });
    }
    out
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
    let mut push = |change, object| {
        out.push(SchemaEvent { change, keyspace: after.name.clone(), object });
    };
    assert!(before.is_none_or(|before| before.name == after.name), "a keyspace keeps its name");
    let Some(before) = before else {
        push(Change::Created, ChangedObject::Keyspace);
        after.types.keys().for_each(|name| push(Change::Created, ChangedObject::Type(name.clone())));
        after.tables.keys().for_each(|name| push(Change::Created, ChangedObject::Table(name.clone())));
        after.functions.keys().for_each(|name| push(Change::Created, ChangedObject::Function(name.clone())));
        after
            .aggregates
            .keys()
            .for_each(|name| push(Change::Created, ChangedObject::Aggregate(name.clone())));
        return;
    };
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
