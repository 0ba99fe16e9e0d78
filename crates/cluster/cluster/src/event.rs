//! The changes between two schemas, as events for drivers.

use std::collections::BTreeMap;
use std::sync::Arc;

use schema::{Keyspace, Schema, Signature};

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

/// How the values of a map changed.
fn map_events<K: Ord, V: PartialEq>(
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
    mut push: impl FnMut(Change, &K),
) {
    for (key, value) in after {
        match before.get(key) {
            None => push(Change::Created, key),
            Some(old) if old != value => push(Change::Updated, key),
            Some(_) => {}
        }
    }
    before.keys().filter(|key| !after.contains_key(key)).for_each(|key| push(Change::Dropped, key));
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
    for (name, ty) in &after.types {
        match before.types.get(name) {
            None => push(Change::Created, ChangedObject::Type(name.clone())),
            Some(old) if old != ty => push(Change::Updated, ChangedObject::Type(name.clone())),
            Some(_) => {}
        }
    }
    for (name, table) in &after.tables {
        match before.tables.get(name) {
            None => push(Change::Created, ChangedObject::Table(name.clone())),
            Some(old) if Arc::ptr_eq(old, table) => {}
            Some(old) if old.id != table.id => {
                push(Change::Dropped, ChangedObject::Table(name.clone()));
                push(Change::Created, ChangedObject::Table(name.clone()));
            }
            Some(old) if old != table => push(Change::Updated, ChangedObject::Table(name.clone())),
            Some(_) => {}
        }
    }
    map_events(&before.functions, &after.functions, |change, name| {
        push(change, ChangedObject::Function(name.clone()));
    });
    map_events(&before.aggregates, &after.aggregates, |change, name| {
        push(change, ChangedObject::Aggregate(name.clone()));
    });
    let gone = before.tables.keys().filter(|name| !after.tables.contains_key(*name));
    gone.for_each(|name| push(Change::Dropped, ChangedObject::Table(name.clone())));
    let gone = before.types.keys().filter(|name| !after.types.contains_key(*name));
    gone.for_each(|name| push(Change::Dropped, ChangedObject::Type(name.clone())));
}
