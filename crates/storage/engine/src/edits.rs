//! Locks on a table's set of SSTables, and which operations yield to others: compactions, truncations, salvages of damaged SSTables.

use std::cell::Cell;

use rt::sync::{Permit, Semaphore};

use crate::MaintenanceError;

/// Units of a lock that is taken in part or wholly.
const ALL: usize = 1 << 20;

/// Locks and signals of the edits of one table.
pub(crate) struct Edits {
    /// Held while the set is edited by more than an addition: compactions take one unit, a truncation all.
    set: Semaphore,
    /// Held wholly while the table is being truncated; a write that must lie before or behind that takes one unit.
    truncations: Semaphore,
    /// Held while the readable rows of damaged SSTables are rewritten.
    salvages: Semaphore,
    /// Held while SSTables of an operator's directory are imported.
    imports: Semaphore,
    /// Raised when compactions of this table that run now are to stop.
    stops: Cell<u64>,
    /// Raised when a major compaction is about to take over from smaller ones.
    minor_stops: Cell<u64>,
    /// How many wait for SSTables from elsewhere, which may bring data older than a deletion that came meanwhile: nothing is
    /// forgotten until then.
    awaited: Cell<u32>,
}

/// A point in the sequence of a table's edits: requests to stop that come later do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    stops: u64,
    minor_stops: u64,
}

impl Edits {
    pub(crate) fn new() -> Self {
        Self {
            set: Semaphore::new(ALL),
            truncations: Semaphore::new(ALL),
            salvages: Semaphore::new(1),
            imports: Semaphore::new(1),
            stops: Cell::new(0),
            minor_stops: Cell::new(0),
            awaited: Cell::new(0),
        }
    }

    /// Waits until the set may be edited beside other edits.
    pub(crate) async fn one(&self) -> Result<Permit, MaintenanceError> {
        self.set.acquire(1).await.map_err(|_| MaintenanceError::Stopped)
    }

    /// Waits until nobody else edits the set.
    pub(crate) async fn alone(&self) -> Result<Permit, MaintenanceError> {
        self.set.acquire(ALL).await.map_err(|_| MaintenanceError::Stopped)
    }

    /// Keeps the table from being truncated.
    pub(crate) async fn without_truncation(&self) -> Result<Permit, MaintenanceError> {
        self.truncations.acquire(1).await.map_err(|_| MaintenanceError::Stopped)
    }

    /// Waits until no write is held before or behind a truncation.
    pub(crate) async fn truncation(&self) -> Result<Permit, MaintenanceError> {
        self.truncations.acquire(ALL).await.map_err(|_| MaintenanceError::Stopped)
    }

    /// Waits until no damaged SSTable is being salvaged.
    pub(crate) async fn salvage(&self) -> Result<Permit, MaintenanceError> {
        self.salvages.acquire(1).await.map_err(|_| MaintenanceError::Stopped)
    }

    /// Waits until no SSTables are being imported.
    pub(crate) async fn import(&self) -> Result<Permit, MaintenanceError> {
        self.imports.acquire(1).await.map_err(|_| MaintenanceError::Stopped)
    }

    /// Asks the compactions that run to end soon, without a result.
    pub(crate) fn stop_compactions(&self) {
        self.stops.set(self.stops.get() + 1);
    }

    /// Asks the compactions that run to make way, major ones apart.
    pub(crate) fn stop_minor(&self) {
        self.minor_stops.set(self.minor_stops.get() + 1);
    }

    /// Now.
    pub(crate) fn now(&self) -> Moment {
        Moment { stops: self.stops.get(), minor_stops: self.minor_stops.get() }
    }

    /// Whether work that runs since a moment is to end.
    pub(crate) fn is_stopped_since(&self, moment: Moment) -> bool {
        assert!(self.stops.get() >= moment.stops, "requests to stop are counted upwards");
        self.stops.get() != moment.stops
    }

    /// Whether work that runs since a moment is to make way for a larger edit.
    pub(crate) fn makes_way_since(&self, moment: Moment) -> bool {
        assert!(self.minor_stops.get() >= moment.minor_stops, "requests to make way are counted upwards");
        self.minor_stops.get() != moment.minor_stops
    }

    /// SSTables are awaited from elsewhere.
    pub(crate) fn begin_await(&self) {
        self.awaited.set(self.awaited.get() + 1);
    }

    /// They came, or will not come.
    pub(crate) fn end_await(&self) {
        let awaited = self.awaited.get();
        assert!(awaited > 0, "what is not awaited any more was awaited");
        self.awaited.set(awaited - 1);
    }

    /// Whether SSTables are awaited from elsewhere.
    pub(crate) fn awaits_files(&self) -> bool {
        self.awaited.get() > 0
    }
}
