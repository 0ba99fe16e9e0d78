//! Sorting of rows from several partitions: ORDER BY beside an IN on the partition key.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use bytes::Bytes;
use mutation::{Row, Seconds};
use replica::PartitionResult;

use super::{SelectPlan, SortColumn};
use crate::expr::row::{RowView, key_components};

/// The columns of ORDER BY.
type Order = [SortColumn];

/// A row's sort key, and its partition and row numbers; a static row alone has a number behind all rows.
type Entry = (Vec<Option<Bytes>>, usize, usize);

/// Rows in memory with their sort keys. They are sorted a run at a time and the runs are merged as rows are taken, so
/// that no step is longer than the sorting of one read's rows.
pub struct Sorted {
    partitions: Vec<PartitionResult>,
    /// Each in order.
    runs: Vec<Vec<Entry>>,
    /// The run that rows are added to.
    open: Vec<Entry>,
}

impl Sorted {
    /// Nothing yet.
    pub fn new() -> Self {
        Self { partitions: Vec::new(), runs: Vec::new(), open: Vec::new() }
    }

    /// Adds a partition, of which the rows that `keep` accepts count, at most `room`; their number. A partition of a static row alone is a
    /// row where the plan has such rows.
    pub fn add(
        &mut self,
        plan: &SelectPlan,
        partition: PartitionResult,
        now: Seconds,
        room: u64,
        mut keep: impl FnMut(&RowView<'_>) -> bool,
    ) -> u64 {
        let key = key_components(&plan.table, &partition.key.key);
        let statics = partition.static_row.as_ref();
        let mut kept = 0;
        for (at, row) in plan.rows_of(&partition, now).enumerate() {
            if kept == room {
                break;
            }
            let view = RowView::new(&key, statics, row, now);
            if keep(&view) {
                let values = plan.sort.iter().map(|by| view.value(&by.column)).collect();
                self.open.push((values, self.partitions.len(), at));
                kept += 1;
            }
        }
        self.partitions.push(partition);
        kept
    }

    /// Sorts the rows added since the last run ended.
    pub fn end_run(&mut self, by: &Order) {
        self.open.sort_by(|(a, ..), (b, ..)| order(by, a, b));
        self.runs.push(std::mem::take(&mut self.open));
    }

    /// The rows of all runs in order.
    pub fn in_order<'a>(&'a self, by: &'a Order) -> InOrder<'a> {
        let runs = self.runs.iter().enumerate();
        let heads = runs.filter_map(|(run, rows)| Head::of(by, rows, run)).map(Reverse).collect();
        InOrder { sorted: self, by, heads }
    }
}

/// The merge of the runs.
pub struct InOrder<'a> {
    sorted: &'a Sorted,
    by: &'a Order,
    heads: BinaryHeap<Reverse<Head<'a>>>,
}

impl InOrder<'_> {
    /// The next row, with its partition; none at the end.
    pub fn next(&mut self) -> Option<(&PartitionResult, Option<&Row>)> {
        let Reverse(head) = self.heads.pop()?;
        let (_, partition, row) = head.row;
        self.heads.extend(Head::of(self.by, head.rest, head.run).map(Reverse));
        let partition = &self.sorted.partitions[*partition];
        Some((partition, partition.rows.get(*row)))
    }
}

/// The first of a run's rows that are left. Rows that are equal come in the order of their runs.
struct Head<'a> {
    by: &'a Order,
    row: &'a Entry,
    rest: &'a [Entry],
    run: usize,
}

impl<'a> Head<'a> {
    fn of(by: &'a Order, rows: &'a [Entry], run: usize) -> Option<Self> {
        let (row, rest) = rows.split_first()?;
        Some(Self { by, row, rest, run })
    }
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        order(self.by, &self.row.0, &other.row.0).then(self.run.cmp(&other.run))
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head<'_> {}

/// The order of two rows by the columns of ORDER BY. Nulls, of partitions of a static row alone, come first in the table's order.
pub fn order(by: &Order, a: &[Option<Bytes>], b: &[Option<Bytes>]) -> Ordering {
    for (by, (a, b)) in by.iter().zip(a.iter().zip(b)) {
        let (order, is_reversed) = match (a, b) {
            (Some(a), Some(b)) => (by.column.ty.compare(a, b), by.descending),
            (a, b) => (a.is_some().cmp(&b.is_some()), by.is_backwards),
        };
        let order = if is_reversed { order.reverse() } else { order };
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}
