//! Observers of base writes: the one place where an index, a view or a change log reads what a write is about to change, and adds
//! what follows from it to the same entry of the commit log.

use std::rc::Rc;

use bytes::Bytes;
use mutation::PartitionUpdate;
use rt::sync::Permit;
use schema::TableId;

use crate::WriteError;
use crate::engine::{Engine, WriteObserver};
use crate::request::{Updates, Write};

impl Engine {
    /// Has `observer` see all later writes of this shard.
    pub fn observe(&self, observer: Rc<dyn WriteObserver>) {
        self.0.observers.add(observer);
    }
}

/// Adds to a write what follows from it. No other observed write changes the same partitions while the result lives.
pub(crate) async fn derive(engine: &Engine, write: &mut Write) -> Result<Vec<Permit>, WriteError> {
    let observers = engine.0.observers.all.borrow().clone();
    let origin = write.origin;
    let is_observed =
        |update: &&PartitionUpdate| observers.iter().any(|observer| observer.observes(&update.table, origin));
    let key = |update: &PartitionUpdate| (update.table.id, update.key.key.clone());
    let mut keys: Vec<(TableId, Bytes)> = write.updates.iter().filter(is_observed).map(key).collect();
    // In one order, so that two writes of the same partitions do not wait for each other.
    keys.sort();
    keys.dedup();
    let mut held = Vec::with_capacity(keys.len());
    for key in &keys {
        held.push(engine.0.observers.locks.lock(key).await?);
    }
    let mut derived = Updates::new();
    for update in &write.updates {
        for observer in observers.iter().filter(|observer| observer.observes(&update.table, origin)) {
            derived.extend(observer.derive(engine, origin, update).await?);
        }
    }
    if !derived.is_empty() {
        write.encoded = None;
        write.updates.extend(derived);
    }
    Ok(held)
}
