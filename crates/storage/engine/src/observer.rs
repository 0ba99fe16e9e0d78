//! Observers of base writes: the one place where an index, a view or a change log reads what a write is about to change, and adds
//! what follows from it to the same entry of the commit log.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use mutation::PartitionUpdate;
use rt::sync::Permit;
use schema::{Table, TableId};

use crate::locks::PartitionLocks;
use crate::{Engine, Origin, Updates, Write, WriteError};

/// What [`WriteObserver::derive`] results in.
pub type Derived<'a> = Pin<Box<dyn Future<Output = Result<Updates, WriteError>> + 'a>>;

/// Derives updates from the updates of base tables, before they are applied. Replaying the log does not observe again: the entry holds
/// what was derived. SSTables that are adopted from other nodes are not observed.
pub trait WriteObserver {
    /// Whether something may follow from writes of this table by this origin. Asked for every update; the others cost nothing more.
    fn observes(&self, table: &Table, origin: Origin) -> bool;

    /// What follows from an update of a base table, whose partition nobody else changes until that is applied: a read of `engine`
    /// gives the partition as it was before. What is derived is applied on this shard with the update, all or none, and is not observed.
    ///
    /// # Errors
    ///
    /// Nothing of the write is applied then.
    fn derive<'a>(&'a self, engine: &'a Engine, origin: Origin, update: &'a PartitionUpdate) -> Derived<'a>;
}

/// The observers of a shard.
#[derive(Default)]
pub(crate) struct Observers {
    some: Cell<bool>,
    all: RefCell<Vec<Rc<dyn WriteObserver>>>,
    locks: PartitionLocks,
}

impl Observers {
    /// Whether there are none: what a write asks.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !self.some.get()
    }
}

impl Engine {
    /// Has `observer` see all later writes of this shard.
    pub fn observe(&self, observer: Rc<dyn WriteObserver>) {
        self.0.observers.all.borrow_mut().push(observer);
        self.0.observers.some.set(true);
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
    write.updates.extend(derived);
    Ok(held)
}
