//! Sorting of rows from several partitions: ORDER BY beside an IN on the partition key.

use bytes::Bytes;
use mutation::Seconds;
use replica::PartitionResult;
use schema::Table;

use super::SelectPlan;
use crate::expr::row::{ColumnRef, RowView, key_components};

/// Rows in memory with what they are sorted by.
pub struct Sorted {
    partitions: Vec<PartitionResult>,
    /// Partition and row numbers with their sort keys.
    rows: Vec<(Vec<Option<Bytes>>, usize, usize)>,
}

impl Sorted {
    /// Nothing yet.
    pub fn new() -> Self {
        Self { partitions: Vec::new(), rows: Vec::new() }
    }

    /// Adds a partition, of which the rows that `keep` accepts count.
    pub fn add(
        &mut self,
        table: &Table,
        sort: &[(ColumnRef, bool)],
        partition: PartitionResult,
        now: Seconds,
        mut keep: impl FnMut(&RowView<'_>) -> bool,
    ) {
        let key = key_components(table, &partition.key.key);
        for (at, row) in partition.rows.iter().enumerate() {
            let view = RowView::new(&key, partition.static_row.as_ref(), Some(row), now);
            if keep(&view) {
                let values = sort.iter().map(|(column, _)| view.value(column)).collect();
                self.rows.push((values, self.partitions.len(), at));
            }
        }
        self.partitions.push(partition);
    }

    /// Sorts, and calls `visit` with the rows in order until it says that it has enough.
    pub fn visit<E>(
        mut self,
        plan: &SelectPlan,
        now: Seconds,
        mut visit: impl FnMut(&RowView<'_>) -> Result<bool, E>,
    ) -> Result<(), E> {
        self.rows.sort_by(|(a, ..), (b, ..)| order(plan, a, b));
        for (_, partition, row) in &self.rows {
            let partition = &self.partitions[*partition];
            let key = key_components(&plan.table, &partition.key.key);
            let view = RowView::new(&key, partition.static_row.as_ref(), partition.rows.get(*row), now);
            if !visit(&view)? {
                break;
            }
        }
        Ok(())
    }
}

/// The order of two rows by the columns of ORDER BY; nulls come first.
pub fn order(plan: &SelectPlan, a: &[Option<Bytes>], b: &[Option<Bytes>]) -> std::cmp::Ordering {
    for ((column, descending), (a, b)) in plan.sort.iter().zip(a.iter().zip(b)) {
        let order = match (a, b) {
            (Some(a), Some(b)) => column.ty.compare(a, b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        };
        let order = if *descending { order.reverse() } else { order };
        if order.is_ne() {
            return order;
        }
    }
    std::cmp::Ordering::Equal
}
