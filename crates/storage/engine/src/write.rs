//! The one way that a write takes: admission, the rule about truncations, observers, one
//! entry of the commit log, memtables, acknowledgement (docs/design/write-path.md).

use std::rc::Rc;

use commitlog::Ticket;
use mutation::PartitionUpdate;
use mutation::codec::EncodedUpdates;
use rt::Instant;

use crate::engine::Inner;
use crate::error::write_error;
use crate::observer::Observed;
use crate::request::{Durability, Origin, Truncation, Updates, Write};
use crate::store::Store;
use crate::{Engine, WriteError};

impl Engine {
    /// Applies a write as one: after a crash all of its updates are there or none, those too that observers add. Waits while memtables
    /// are over their budget, and until the commit log's mode, or the write itself, allows the acknowledgement.
    ///
    /// # Errors
    ///
    /// [`WriteError::Truncated`] as the write's rule says, [`WriteError::UnknownTable`] and [`WriteError::MutationTooLarge`]: nothing
    /// was written. After [`WriteError::CommitLog`] it may have been.
    pub async fn apply(&self, write: Write) -> Result<(), WriteError> {
        let inner = &*self.0;
        let measured = self.write_begins(write.updates.first().map(|update| update.table.id));
        if !inner.can_write_now() {
            inner.admit_write().await?;
        }
        // No truncation begins between this look and the write.
        let applied = if !inner.is_simple(&write) {
            Box::pin(apply_with_care(self, write)).await
        } else {
            match inner.log_and_apply(write.updates, write.encoded)? {
                Some(ticket) => ticket.await.map_err(write_error),
                None => Ok(()),
            }
        };
        if let Some(measured) = measured {
            self.write_ended(measured);
        }
        applied
    }

    /// Takes and applies one update, of a write that began some time ago, is [`Write::one`] and has nothing to wait for: room, an observer or
    /// the commit log. An update that is left was not applied: [`Engine::apply`] is to be used, which also finds the error that there may be.
    #[inline]
    pub fn apply_now(&self, origin: Origin, began: Instant, update: &mut Option<PartitionUpdate>) {
        let inner = &*self.0;
        let Some(wanted) = update.as_mut() else { return };
        if !inner.can_write_now() || !inner.observers.ignore_updates(std::slice::from_ref(wanted), origin) {
            return;
        }
        let stores = inner.tables.current();
        let Some(store) = stores.get(&wanted.table.id) else { return };
        store.recast(wanted);
        let number = match store.durable.get() {
            true => match inner.log.append_now(std::slice::from_ref(wanted)) {
                Some(number) => Some(number),
                None => return,
            },
            false => None,
        };
        if let Some(update) = update.take() {
            inner.apply_to(store, update, number);
        }
        let weight = store.local.writes.begin();
        if weight > 0 {
            self.write_measured(store, weight, began);
        }
    }
}

/// Applies a write that an observer may add to, that a truncation may touch, or that is to be synced.
async fn apply_with_care(engine: &Engine, mut write: Write) -> Result<(), WriteError> {
    let inner = &*engine.0;
    // Observers see the update that is applied.
    if inner.recast_all(&mut write.updates)? {
        write.encoded = None;
    }
    let _held = match write.truncation {
        Truncation::Ignored => Vec::new(),
        _ => {
            let stores: Result<Vec<Rc<Store>>, WriteError> =
                write.updates.iter().map(|update| inner.store_of_write(update.table.id)).collect();
            crate::truncation::hold_off(stores?).await?
        }
    };
    let truncated_at = |update: &PartitionUpdate| {
        inner.store(update.table.id).map_or(i64::MIN, |store| store.truncated.get())
    };
    match write.truncation {
        Truncation::Ignored => {}
        Truncation::Refuses(begun_micros) => {
            let latest = write.updates.iter().map(truncated_at).max();
            if let Some(at_micros) = latest.filter(|at_micros| *at_micros >= begun_micros) {
                return Err(WriteError::Truncated(at_micros));
            }
        }
        rule @ (Truncation::LeavesOut(_) | Truncation::LeavesOutRead { .. }) => {
            let now = inner.rt.wall_micros();
            let all = write.updates.len();
            let injected = inner.config.canaries.late_after_truncate;
            write.updates.retain(|update| injected || !rule.leaves_out(truncated_at(update), now));
            if write.updates.len() < all {
                write.encoded = None;
            }
        }
    }
    let mut observed = observe(engine, &mut write).await?;
    let ticket = inner.log_and_apply(write.updates, write.encoded)?;
    observed.applied();
    if let Some(ticket) = ticket {
        ticket.await.map_err(write_error)?;
    }
    if write.durability == Durability::Synced {
        inner.log.sync().await.map_err(write_error)?;
    }
    observed.durable().await
}

/// Adds the updates derived from a write, and waits for room in the memtables. By then the schema may have changed, and others may observe.
async fn observe(engine: &Engine, write: &mut Write) -> Result<Observed, WriteError> {
    let inner = &*engine.0;
    loop {
        let changes = inner.observers.changes.get();
        if inner.observers.ignore(write) {
            inner.admit_write().await?;
            if changes == inner.observers.changes.get() {
                return Ok(Observed::default());
            }
            continue;
        }
        let (observed, derived) = crate::observer::derive(engine, write).await?;
        inner.admit_write().await?;
        if changes == inner.observers.changes.get() {
            crate::observer::add(write, derived);
            return Ok(observed);
        }
    }
}

impl Inner {
    /// Whether a write needs nothing but the log and memtables.
    #[inline]
    fn is_simple(&self, write: &Write) -> bool {
        let is_current = match write.truncation {
            Truncation::Ignored => true,
            Truncation::Refuses(begun_micros) => begun_micros > self.truncated_latest.get(),
            Truncation::LeavesOut(_) | Truncation::LeavesOutRead { .. } => false,
        };
        is_current && write.durability == Durability::AsConfigured && self.observers.ignore(write)
    }

    /// Writes updates to the log as one entry and to their memtables, without another task in between, so that a memtable that is closed
    /// for flushing holds exactly the entries before a number. The entry to wait for, if there is one.
    fn log_and_apply(
        &self,
        mut updates: Updates,
        encoded: Option<Box<EncodedUpdates>>,
    ) -> Result<Option<Ticket>, WriteError> {
        if updates.len() != 1 {
            return self.log_and_apply_several(updates, encoded);
        }
        let store = self.store_of_write(updates[0].table.id)?;
        let is_recast = store.recast(&mut updates[0]);
        let ticket = match store.durable.get() {
            true => Some(self.append(&updates, encoded.filter(|_| !is_recast).as_deref())?),
            false => None,
        };
        let number = ticket.as_ref().map(|ticket| ticket.number);
        self.apply_to(&store, updates.pop().expect("there is one"), number);
        Ok(ticket)
    }

    /// Makes updates ones of the present definitions of their tables; whether that changed one: the bytes that were received are not theirs then.
    fn recast_all(&self, updates: &mut Updates) -> Result<bool, WriteError> {
        let mut changed = false;
        for update in updates {
            changed |= self.store_of_write(update.table.id)?.recast(update);
        }
        Ok(changed)
    }

    #[inline(never)]
    fn log_and_apply_several(
        &self,
        mut updates: Updates,
        encoded: Option<Box<EncodedUpdates>>,
    ) -> Result<Option<Ticket>, WriteError> {
        let stores = updates.iter().map(|update| self.store_of_write(update.table.id));
        let mut stores: Vec<Rc<Store>> = stores.collect::<Result<_, _>>()?;
        let (mut is_recast, mut logged) = (false, 0);
        // Those of tables that are logged come first.
        for at in 0..updates.len() {
            is_recast |= stores[at].recast(&mut updates[at]);
            if stores[at].durable.get() {
                updates.swap(logged, at);
                stores.swap(logged, at);
                logged += 1;
            }
        }
        // The bytes are of all updates.
        let encoded = encoded.filter(|_| logged == updates.len() && !is_recast);
        let ticket = match &updates[..logged] {
            [] => None,
            logged => Some(self.append(logged, encoded.as_deref())?),
        };
        let number = ticket.as_ref().map(|ticket| ticket.number);
        for (at, (store, update)) in stores.iter().zip(updates).enumerate() {
            self.apply_to(store, update, number.filter(|_| at < logged));
        }
        Ok(ticket)
    }

    /// Adds updates to the log as one entry, with the bytes that were received if they are there.
    #[inline]
    fn append(
        &self,
        updates: &[PartitionUpdate],
        encoded: Option<&EncodedUpdates>,
    ) -> Result<Ticket, WriteError> {
        let Some(encoded) = encoded else { return self.log.append(updates).map_err(write_error) };
        debug_assert!(encoded.is_of(updates), "the bytes that are logged say what is applied");
        self.log.append_received(encoded).map_err(write_error)
    }
}
