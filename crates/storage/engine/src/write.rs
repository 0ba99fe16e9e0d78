//! The one write request of a shard's storage, and the one way that it takes: admission, the rule about truncations, observers, one
//! entry of the commit log, memtables, acknowledgement (docs/design/write-path.md).

use std::rc::Rc;
use std::time::Duration;

use commitlog::Ticket;
use mutation::PartitionUpdate;

use crate::engine::{Inner, write_error};
use crate::store::Store;
use crate::{Engine, WriteError};

/// The updates of a write, most often one. On the heap, as whoever makes them has them: a request is moved through several layers, and
/// moving the update itself costs more than its place.
pub type Updates = Vec<PartitionUpdate>;

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// A client's statement.
    Client,
    /// The state of a counter that its leading replica counted.
    Counter,
    /// The commit of a lightweight transaction.
    PaxosCommit,
    /// A hint that is delivered, to the replica that missed the write or to whoever has its token since.
    Hint,
    /// A logged batch that is replayed.
    Batchlog,
    /// A read that found this replica to lack something.
    ReadRepair,
    /// Anti-entropy, and what was salvaged of damaged SSTables for it.
    Repair,
    /// Rows that a node reads from others when it gains token ranges.
    Streaming,
    /// The node's own bookkeeping: stored batches, votes.
    System,
}

/// What a truncation that began when the write did, or later, does to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Truncation {
    /// Nothing: the write is applied.
    #[default]
    Ignored,
    /// The write is refused with [`WriteError::Truncated`] when a table of it was truncated at this time or later (microseconds since
    /// the epoch, after all truncations that were known where the write began, see [`Engine::truncated_latest`]).
    Refuses(i64),
    /// The write comes late: updates of tables that were truncated at this time or later, microseconds since the epoch, are left out.
    LeavesOut(i64),
    /// The updates are rows that replicas had, as a read found them. Updates of tables that were truncated since are left out, and of
    /// those that one of these replicas may be about to truncate.
    LeavesOutRead {
        /// When the read began, microseconds since the epoch.
        begun_micros: i64,
        /// When the replicas had truncated the table last, before they were read: the earliest of these times.
        truncated_at: i64,
    },
}

/// Within this time after a truncation a replica that knows of none may be about to do the same one. Later it is one that has missed
/// it: it was restored, or the TRUNCATE has failed.
const TRUNCATION_SPREAD: Duration = Duration::from_secs(60);

impl Truncation {
    /// Whether an update is left out of a table that was truncated last at `truncated_at`; `now_micros` is now.
    fn leaves_out(self, truncated_at: i64, now_micros: i64) -> bool {
        match self {
            Self::Ignored | Self::Refuses(_) => false,
            Self::LeavesOut(begun_micros) => truncated_at >= begun_micros,
            Self::LeavesOutRead { begun_micros, truncated_at: read_at } => {
                let spread = TRUNCATION_SPREAD.as_micros() as i64;
                let is_recent = now_micros < truncated_at.saturating_add(spread);
                truncated_at >= begun_micros || truncated_at > read_at && is_recent
            }
        }
    }
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the commit log's mode allows it.
    #[default]
    AsConfigured,
    /// When a power failure cannot undo it, whatever the mode allows.
    Synced,
}

/// A write request. After a crash all of its updates are there or none.
#[derive(Clone, Debug)]
pub struct Write {
    /// What is written.
    pub updates: Updates,
    /// Who writes.
    pub origin: Origin,
    /// What truncations do to it.
    pub truncation: Truncation,
    /// When it is acknowledged.
    pub durability: Durability,
}

impl Write {
    /// A write of one update that no truncation touches, acknowledged as the commit log is configured.
    pub fn one(origin: Origin, update: PartitionUpdate) -> Self {
        Self::all(origin, vec![update])
    }

    /// [`Write::one`] of several updates.
    pub fn all(origin: Origin, updates: Updates) -> Self {
        Self { updates, origin, truncation: Truncation::Ignored, durability: Durability::AsConfigured }
    }

    /// The same write with another rule about truncations.
    pub fn with_truncation(mut self, truncation: Truncation) -> Self {
        self.truncation = truncation;
        self
    }

    /// The same write, acknowledged when a power failure cannot undo it.
    pub fn synced(mut self) -> Self {
        self.durability = Durability::Synced;
        self
    }
}

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
        if !inner.can_write_now() {
            inner.admit_write().await?;
        }
        // No truncation begins between this look and the write.
        if !inner.is_simple(&write) {
            return Box::pin(apply_with_care(self, write)).await;
        }
        match inner.log_and_apply(write.updates)? {
            Some(ticket) => ticket.await.map_err(write_error),
            None => Ok(()),
        }
    }
}

/// Applies a write that an observer may add to, that a truncation may touch, or that is to be synced.
async fn apply_with_care(engine: &Engine, mut write: Write) -> Result<(), WriteError> {
    let inner = &*engine.0;
    let _held = match write.truncation {
        Truncation::Ignored => Vec::new(),
        _ => {
            let stores: Result<Vec<Rc<Store>>, WriteError> =
                write.updates.iter().map(|update| inner.store_of_write(update.table.id)).collect();
            inner.hold_truncations(stores?).await?
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
            write.updates.retain(|update| !rule.leaves_out(truncated_at(update), now));
        }
    }
    let observed = match inner.observers.is_empty() {
        true => None,
        false => Some(crate::observer::derive(engine, &mut write).await?),
    };
    inner.admit_write().await?;
    let ticket = inner.log_and_apply(write.updates)?;
    // The next write of the partitions may read what this one did.
    drop(observed);
    if let Some(ticket) = ticket {
        ticket.await.map_err(write_error)?;
    }
    match write.durability {
        Durability::AsConfigured => Ok(()),
        Durability::Synced => inner.log.sync().await.map_err(write_error),
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
        is_current && write.durability == Durability::AsConfigured && self.observers.is_empty()
    }

    /// Writes updates to the log as one entry and to their memtables, without another task in between, so that a memtable that is closed
    /// for flushing holds exactly the entries before a number. The entry to wait for, if there is one.
    fn log_and_apply(&self, mut updates: Updates) -> Result<Option<Ticket>, WriteError> {
        if updates.len() != 1 {
            return self.log_and_apply_several(updates);
        }
        let store = self.store_of_write(updates[0].table.id)?;
        let ticket = match store.durable.get() {
            true => Some(self.log.append(&updates).map_err(write_error)?),
            false => None,
        };
        let number = ticket.as_ref().map(|ticket| ticket.number);
        self.apply_to(&store, updates.pop().expect("there is one"), number);
        Ok(ticket)
    }

    #[inline(never)]
    fn log_and_apply_several(&self, updates: Updates) -> Result<Option<Ticket>, WriteError> {
        let (mut durable, mut unlogged) = (Vec::with_capacity(updates.len()), Vec::new());
        for update in updates {
            let store = self.store_of_write(update.table.id)?;
            if store.durable.get() { durable.push((store, update)) } else { unlogged.push((store, update)) }
        }
        let mut ticket = None;
        if !durable.is_empty() {
            let (stores, updates): (Vec<_>, Vec<_>) = durable.into_iter().unzip();
            let entry = self.log.append(&updates).map_err(write_error)?;
            for (store, update) in stores.iter().zip(updates) {
                self.apply_to(store, update, Some(entry.number));
            }
            ticket = Some(entry);
        }
        for (store, update) in unlogged {
            self.apply_to(&store, update, None);
        }
        Ok(ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A read between two replicas' truncations brings nothing back; of a replica that has missed a truncation long ago it may.
    #[test]
    fn what_a_truncation_removes() {
        const AT: i64 = 1_767_225_600_000_000;
        let spread = TRUNCATION_SPREAD.as_micros() as i64;
        let read = |begun_micros, truncated_at| Truncation::LeavesOutRead { begun_micros, truncated_at };
        assert!(Truncation::LeavesOut(AT).leaves_out(AT, AT));
        assert!(!Truncation::LeavesOut(AT + 1).leaves_out(AT, AT));
        assert!(read(AT, AT).leaves_out(AT, AT), "the read began before it");
        assert!(!read(AT + 1, AT).leaves_out(AT, AT), "all that were read have done it");
        for other in [i64::MIN, AT - 1] {
            assert!(read(AT + 1, other).leaves_out(AT, AT + spread - 1), "one may be about to do it");
            assert!(!read(AT + 1, other).leaves_out(AT, AT + spread), "one has missed it");
        }
        assert!(!read(AT + 1, i64::MIN).leaves_out(i64::MIN, AT), "there was none");
        assert!(read(AT, AT - 1).leaves_out(i64::MAX, AT), "a clock far ahead");
        assert!(!Truncation::Ignored.leaves_out(AT, AT) && !Truncation::Refuses(AT).leaves_out(AT, AT));
    }
}
