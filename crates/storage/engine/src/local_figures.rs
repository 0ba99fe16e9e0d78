//! Figures of the requests of one table on this shard: how long they took, and how much a read met.

use std::rc::Rc;

use rt::Instant;
use schema::TableId;
use stdx::RecentFigures;

use crate::Engine;
use crate::store::Store;

/// The requests of one table on this shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalFigures {
    /// Reads of partitions, microseconds.
    pub reads: RecentFigures,
    /// Reads of token ranges, microseconds.
    pub scans: RecentFigures,
    /// Updates of partitions, microseconds.
    pub writes: RecentFigures,
    /// Rows that a read found.
    pub rows: RecentFigures,
    /// Tombstones that a read stepped over.
    pub tombstones: RecentFigures,
}

impl LocalFigures {
    /// Adds the figures of another shard.
    pub fn merge(&mut self, other: &Self) {
        self.reads.merge(&other.reads);
        self.scans.merge(&other.scans);
        self.writes.merge(&other.writes);
        self.rows.merge(&other.rows);
        self.tombstones.merge(&other.tombstones);
    }
}

/// A read that is measured.
pub struct MeasuredRead {
    store: Rc<Store>,
    is_scan: bool,
    weight: u32,
    began: Instant,
}

/// A write that is measured.
pub(crate) struct MeasuredWrite {
    store: Rc<Store>,
    weight: u32,
    began: Instant,
}

/// Nanoseconds of the clock since it began.
fn nanos(now: Instant) -> u64 {
    now.as_nanos()
}

fn micros_between(began: Instant, now: Instant) -> u64 {
    u64::try_from((now - began).as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}

impl Engine {
    /// Counts a read of a table. To be ended by [`Engine::read_ended`] when it is one of those that are measured.
    #[inline]
    pub fn read_begins(&self, table: TableId, is_scan: bool) -> Option<MeasuredRead> {
        self.count_read(table, is_scan, || self.0.rt.now())
    }

    /// Counts a read of a partition that began some time ago, as [`Engine::read_begins`] does.
    #[inline]
    pub fn read_began(&self, table: TableId, began: Instant) -> Option<MeasuredRead> {
        self.count_read(table, false, || began)
    }

    #[inline]
    fn count_read(
        &self,
        table: TableId,
        is_scan: bool,
        began: impl FnOnce() -> Instant,
    ) -> Option<MeasuredRead> {
        let stores = self.0.tables.current();
        let store = stores.get(&table)?;
        let weight = if is_scan { store.local.scans.begin() } else { store.local.reads.begin() };
        (weight > 0).then(|| MeasuredRead { store: store.clone(), is_scan, weight, began: began() })
    }

    /// A read that is measured has found so many rows and tombstones.
    pub fn read_ended(&self, read: MeasuredRead, rows: u64, tombstones: u64) {
        let now = self.0.rt.now();
        let (local, at) = (&read.store.local, nanos(now));
        let latencies = if read.is_scan { &local.scans } else { &local.reads };
        latencies.measured(micros_between(read.began, now), read.weight, at);
        local.rows.measured(rows, read.weight, at);
        local.tombstones.measured(tombstones, read.weight, at);
    }

    /// Measures a write by the table of its first update; the updates were not yet counted.
    #[inline]
    pub(crate) fn write_begins(&self, table: Option<TableId>) -> Option<MeasuredWrite> {
        let stores = self.0.tables.current();
        let store = stores.get(&table?)?;
        let weight = store.local.writes.begin();
        (weight > 0).then(|| MeasuredWrite { store: store.clone(), weight, began: self.0.rt.now() })
    }

    pub(crate) fn write_ended(&self, write: MeasuredWrite) {
        let now = self.0.rt.now();
        write.store.local.writes.measured(micros_between(write.began, now), write.weight, nanos(now));
    }

    /// The requests of each table that had any on this shard.
    pub fn local_figures(&self) -> Vec<(TableId, LocalFigures)> {
        let now = nanos(self.0.rt.now());
        let one = |store: Rc<Store>| {
            let local = &store.local;
            let figures = LocalFigures {
                reads: local.reads.figures(now),
                scans: local.scans.figures(now),
                writes: local.writes.figures(now),
                rows: local.rows.figures(now),
                tombstones: local.tombstones.figures(now),
            };
            (store.id, figures)
        };
        self.0.stores_in_order().into_iter().map(one).collect()
    }
}
