//! Observers of base writes: the one place where an index, a view or a change log reads the rows that a write is about to change, and adds
//! derived updates to the same entry of the commit log.

use std::collections::hash_map::Entry;
use std::rc::Rc;

use bytes::Bytes;
use mutation::PartitionUpdate;
use rt::sync::Permit;
use schema::TableId;
use stdx::HashMap;

use crate::WriteError;
use crate::engine::{Engine, FollowUp, WriteObserver};
use crate::request::{Updates, Write};

impl Engine {
    /// Has `observer` see all later writes of this shard.
    pub fn observe(&self, observer: Rc<dyn WriteObserver>) {
        self.0.observers.add(observer);
    }
}

/// The locks of an observed write, and its waiters.
#[derive(Default)]
pub(crate) struct Observed {
    held: Vec<Permit>,
    follow_ups: Vec<Box<dyn FollowUp>>,
}

impl Observed {
    /// The write is in its memtables: the next one of its partitions may read it.
    pub(crate) fn applied(&mut self) {
        self.follow_ups.iter_mut().for_each(|follow_up| follow_up.applied());
        self.held.clear();
    }

    /// The write is durable; waits until it may be acknowledged. One that fails keeps no other from being carried out.
    pub(crate) async fn durable(self) -> Result<(), WriteError> {
        assert!(self.held.is_empty(), "locks of partitions are released before a write is acknowledged");
        let mut outcome = Ok(());
        for follow_up in self.follow_ups {
            outcome = outcome.and(follow_up.durable().await);
        }
        outcome
    }
}

/// The updates that follow from a write. No other observed write changes the same partitions until the first of the results is dropped or
/// its `applied` is called.
pub(crate) async fn derive(engine: &Engine, write: &mut Write) -> Result<(Observed, Updates), WriteError> {
    let observers = engine.0.observers.all.borrow().clone();
    let origin = write.origin;
    let is_observed =
        |update: &PartitionUpdate| observers.iter().any(|observer| observer.observes(&update.table, origin));
    let key = |update: &PartitionUpdate| (update.table.id, update.key.key.clone());
    let mut keys: Vec<(TableId, Bytes)> =
        write.updates.iter().filter(|update| is_observed(update)).map(key).collect();
    // In one order, so that two writes of the same partitions do not wait for each other.
    keys.sort();
    let all = keys.len();
    keys.dedup();
    if keys.len() < all {
        // Each update is derived from the state before the write: two of one partition have to be one.
        merge_partitions(write);
    }
    let mut observed = Observed { held: Vec::with_capacity(keys.len()), follow_ups: Vec::new() };
    for key in &keys {
        observed.held.push(engine.0.observers.locks.lock(key).await?);
    }
    let mut derived = Updates::new();
    for update in &write.updates {
        for observer in observers.iter().filter(|observer| observer.observes(&update.table, origin)) {
            let derivation = observer.derive(engine, origin, update).await?;
            derived.extend(derivation.updates);
            observed.follow_ups.extend(derivation.follow_up);
        }
    }
    Ok((observed, derived))
}

/// Adds derived updates to their write.
pub(crate) fn add(write: &mut Write, derived: Updates) {
    if !derived.is_empty() {
        write.encoded = None;
        write.updates.extend(derived);
    }
}

/// Makes one update of those of one partition.
fn merge_partitions(write: &mut Write) {
    let mut places: HashMap<(TableId, Bytes), usize> = HashMap::default();
    let mut merged = Updates::with_capacity(write.updates.len());
    for update in std::mem::take(&mut write.updates) {
        match places.entry((update.table.id, update.key.key.clone())) {
            Entry::Occupied(place) => {
                let first: &mut PartitionUpdate = &mut merged[*place.get()];
                first.merge(update);
            }
            Entry::Vacant(place) => {
                place.insert(merged.len());
                merged.push(update);
            }
        }
    }
    write.updates = merged;
    write.encoded = None;
}
