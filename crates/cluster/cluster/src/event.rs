//! The changes between two schemas, as events for drivers.

use std::collections::BTreeMap;
use std::sync::Arc;

use schema::{Keyspace, Schema, Signature, differences};

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

/// How the values of a map changed: those that are gone come last.
fn map_events<K: Ord, V: PartialEq>(
    before: &BTreeMap<K, Arc<V>>,
    after: &BTreeMap<K, Arc<V>>,
    is_same: impl Fn(&V, &V) -> bool,
    mut push: impl FnMut(Change, &K),
) {
    let mut gone = Vec::new();
    for (key, difference) in differences(before, after) {
        match difference {
            (None, _) => push(Change::Created, key),
            (Some(_), None) => gone.push(key),
            (Some(old), Some(new)) if !is_same(old, new) => {
                push(Change::Dropped, key);
                push(Change::Created, key);
            }
            (Some(old), Some(new)) if old != new => push(Change::Updated, key),
            (Some(_), Some(_)) => {}
        }
    }
    gone.into_iter().for_each(|key| push(Change::Dropped, key));
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
    map_events(
        &before.types,
        &after.types,
        |_, _| true,
        |change, name| {
            push(change, ChangedObject::Type(name.clone()));
        },
    );
    map_events(
        &before.tables,
        &after.tables,
        |old, new| old.id == new.id,
        |change, name| {
            push(change, ChangedObject::Table(name.clone()));
        },
    );
    map_events(
        &before.functions,
        &after.functions,
        |_, _| true,
        |change, name| {
            push(change, ChangedObject::Function(name.clone()));
        },
    );
    map_events(
        &before.aggregates,
        &after.aggregates,
        |_, _| true,
        |change, name| {
            push(change, ChangedObject::Aggregate(name.clone()));
        },
    );
}
