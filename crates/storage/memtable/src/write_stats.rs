//! The bounds of a memtable's content: timestamps, deletion times and TTLs.

use mutation::{CellRef, DataRef, DeletionTime, NO_DELETION, Row, Seconds, Timestamp};

/// Bounds of the writes: an SSTable's header stores values relative to the minima, and compaction asks for the
/// smallest timestamp before it forgets tombstones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteStats {
    /// Smallest timestamp; [`Timestamp::MAX`] when nothing was written.
    pub timestamp_min: Timestamp,
    /// Largest timestamp; [`Timestamp::MIN`] when nothing was written.
    pub timestamp_max: Timestamp,
    /// Smallest local deletion time; [`NO_DELETION`] for none.
    pub local_deletion_min: Seconds,
    /// Smallest TTL of expiring cells; `Seconds::MAX` for none.
    pub ttl_min: Seconds,
    /// Cells that were written, deleted ones included; one that is written over another counts again.
    pub cells: u64,
}

impl WriteStats {
    /// Of nothing.
    pub const EMPTY: Self = Self {
        timestamp_min: Timestamp::MAX,
        timestamp_max: Timestamp::MIN,
        local_deletion_min: NO_DELETION,
        ttl_min: Seconds::MAX,
        cells: 0,
    };

    pub(crate) fn timestamp(&mut self, timestamp: Timestamp) {
        self.timestamp_min = self.timestamp_min.min(timestamp);
        self.timestamp_max = self.timestamp_max.max(timestamp);
    }

    pub(crate) fn deletion(&mut self, deletion: DeletionTime) {
        if !deletion.is_live() {
            self.timestamp(deletion.timestamp);
            self.local_deletion_min = self.local_deletion_min.min(deletion.local);
        }
    }

    fn cell(&mut self, cell: CellRef<'_>) {
        self.cells += 1;
        self.timestamp(cell.timestamp);
        self.local_deletion_min = self.local_deletion_min.min(cell.local_deletion);
        if cell.ttl != 0 {
            self.ttl_min = self.ttl_min.min(cell.ttl);
        }
    }

    pub(crate) fn row(&mut self, row: &Row) {
        if !row.liveness.is_none() {
            self.timestamp(row.liveness.timestamp);
            if row.liveness.ttl != 0 {
                self.ttl_min = self.ttl_min.min(row.liveness.ttl);
                self.local_deletion_min = self.local_deletion_min.min(row.liveness.expires);
            }
        }
        self.deletion(row.deletion);
        if let Some(cells) = row.encoded_cells()
            && cells.is_lasting()
        {
            self.timestamp(cells.timestamp());
            self.cells += cells.len() as u64;
            return;
        }
        for (_, data) in row.iter() {
            match data {
                DataRef::Simple(cell) => self.cell(cell),
                DataRef::Complex(complex) => {
                    self.deletion(complex.deletion);
                    complex.cells.iter().for_each(|element| self.cell((&element.cell).into()));
                }
            }
        }
    }
}
