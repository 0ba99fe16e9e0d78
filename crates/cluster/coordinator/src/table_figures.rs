//! How long the requests of each table took that one shard coordinated.

use std::cell::RefCell;
use std::time::Duration;

use replica::{Partitions, ReadCommand};
use rt::Instant;
use schema::TableId;
use stdx::{HashMap, Recent, RecentFigures};

/// The requests of one table, microseconds each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableFigures {
    /// Reads of partitions, serial ones included.
    pub reads: RecentFigures,
    /// Reads of token ranges.
    pub scans: RecentFigures,
    /// Writes, conditional ones and those of counters included. One of several tables counts in each of them.
    pub writes: RecentFigures,
}

impl TableFigures {
    /// Adds the figures of another shard.
    pub fn merge(&mut self, other: &Self) {
        self.reads.merge(&other.reads);
        self.scans.merge(&other.scans);
        self.writes.merge(&other.writes);
    }
}

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Scan,
    Write,
}

impl Kind {
    /// The kind of a read.
    pub(crate) fn of(command: &ReadCommand) -> Self {
        match command.partitions {
            Partitions::Keys(_) => Self::Read,
            Partitions::Range(_) => Self::Scan,
        }
    }
}

#[derive(Debug, Default)]
struct Counters {
    reads: Recent,
    scans: Recent,
    writes: Recent,
}

/// Counts the requests of all tables on one shard. A table takes a few kilobytes once it had requests, and none when it is gone.
#[derive(Debug, Default)]
pub(crate) struct RequestsByTable {
    tables: RefCell<HashMap<TableId, Box<Counters>>>,
}

impl RequestsByTable {
    /// A request of a table has ended, well or not; `known` has the tables that exist.
    pub(crate) fn ended(
        &self,
        table: TableId,
        kind: Kind,
        took: Duration,
        now: Instant,
        known: impl Fn(TableId) -> bool,
    ) {
        // In 64 bits: a division of 128 bits is a call.
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let count = |counters: &Counters| {
            let counter = match kind {
                Kind::Read => &counters.reads,
                Kind::Scan => &counters.scans,
                Kind::Write => &counters.writes,
            };
            counter.add(nanos.div_ceil(1_000), now.as_nanos());
        };
        if let Some(counters) = self.tables.borrow().get(&table) {
            return count(counters);
        }
        let mut tables = self.tables.borrow_mut();
        tables.retain(|table, _| known(*table));
        count(tables.entry(table).or_default());
    }

    pub(crate) fn figures(&self, now: Instant) -> Vec<(TableId, TableFigures)> {
        let now = now.as_nanos();
        let tables = self.tables.borrow();
        let one = |(table, counters): (&TableId, &Box<Counters>)| {
            let figures = TableFigures {
                reads: counters.reads.figures(now),
                scans: counters.scans.figures(now),
                writes: counters.writes.figures(now),
            };
            (*table, figures)
        };
        let mut all: Vec<(TableId, TableFigures)> = tables.iter().map(one).collect();
        all.sort_by_key(|(table, _)| *table);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_table_and_kind_and_forgotten_with_the_table() {
        let (requests, unknown) = (RequestsByTable::default(), |_| false);
        let at = Instant::from_nanos(5_000_000_000);
        let (one, two) = (TableId([1; 16]), TableId([2; 16]));
        requests.ended(one, Kind::Read, Duration::from_micros(3), at, unknown);
        requests.ended(one, Kind::Read, Duration::from_nanos(4_500), at, unknown);
        requests.ended(one, Kind::Write, Duration::from_millis(2), at, unknown);
        let figures = requests.figures(at);
        assert_eq!(figures.len(), 1);
        let of = &figures[0].1;
        assert_eq!((of.reads.total, of.reads.max, of.scans.total, of.writes.max), (2, 5, 0, 2_000));
        assert_eq!(of.reads.percentile(0.5), 3);
        // The schema does not have the first table (any more) when another comes.
        requests.ended(two, Kind::Scan, Duration::from_micros(1), at, unknown);
        let tables: Vec<TableId> = requests.figures(at).into_iter().map(|(table, _)| table).collect();
        assert_eq!(tables, [two]);
    }
}
