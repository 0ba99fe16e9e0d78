//! Tables of CQL whose rows expire by a column (per-row TTL of ScyllaDB): when a row is over, and its deletion (docs/design/row-ttl.md).

use std::sync::Arc;

use mutation::{DeletionTime, PartitionUpdate, Row, RowRange, Seconds, Slices, Timestamp};
use replica::{Keys, Partitions, ReadCommand};
use schema::{Column, Table};
use types::CqlType;

use crate::table::RowKey;

/// A table of CQL, and the column by which its rows expire.
pub(crate) struct RowTtl {
    pub(crate) table: Arc<Table>,
    pub(crate) column: Column,
}

impl RowTtl {
    /// None for a table whose rows live for ever.
    pub(crate) fn of(table: &Arc<Table>) -> Option<Self> {
        Some(Self { table: table.clone(), column: table.row_ttl()?.clone() })
    }

    /// Whether a live row's time is over at `now`, milliseconds since 1970. Without a value it lives for ever.
    pub(crate) fn is_over(&self, row: &Row, now: i64) -> bool {
        let seconds = now.div_euclid(1000).clamp(0, i64::from(Seconds::MAX)) as Seconds;
        let cell = row.cell(self.column.id).filter(|cell| cell.is_live(seconds));
        cell.and_then(|cell| ends(&self.column.ty, &cell.value)).is_some_and(|ends| ends < now)
    }

    /// The read of one row.
    pub(crate) fn read(&self, key: &RowKey, now: Seconds) -> ReadCommand {
        let slices = match self.table.clustering().is_empty() {
            true => Slices::all(),
            false => Slices::new(vec![RowRange::row(&key.clustering)]),
        };
        let keys = Partitions::Keys(Keys::from_iter([key.partition.clone()]));
        ReadCommand { slices, ..ReadCommand::all_of(self.table.clone(), keys, now) }
    }

    /// The deletion of a row, as DELETE writes it: of its partition, where a partition has one row.
    pub(crate) fn deletion(&self, key: &RowKey, timestamp: Timestamp, now: Seconds) -> PartitionUpdate {
        let mut update = PartitionUpdate::new(self.table.clone(), key.partition.clone());
        let deletion = DeletionTime::new(timestamp, now);
        if self.table.clustering().is_empty() {
            update.add_deletion(deletion);
        } else {
            let mut row = Row::new(key.clustering.clone());
            row.deletion = deletion;
            update.add_row(row);
        }
        update
    }
}

/// The time, in milliseconds since 1970, that a value means; none for bytes of another length.
fn ends(ty: &CqlType, value: &[u8]) -> Option<i64> {
    let long = || <[u8; 8]>::try_from(value).ok().map(i64::from_be_bytes);
    match ty {
        CqlType::Timestamp => long(),
        CqlType::Bigint => long().map(|seconds| seconds.saturating_mul(1000)),
        CqlType::Int => {
            <[u8; 4]>::try_from(value).ok().map(|bytes| i64::from(i32::from_be_bytes(bytes)) * 1000)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_each_type_are_times() {
        assert_eq!(ends(&CqlType::Timestamp, &1_700_000_000_123_i64.to_be_bytes()), Some(1_700_000_000_123));
        assert_eq!(ends(&CqlType::Bigint, &1_700_000_000_i64.to_be_bytes()), Some(1_700_000_000_000));
        assert_eq!(ends(&CqlType::Bigint, &i64::MAX.to_be_bytes()), Some(i64::MAX));
        assert_eq!(ends(&CqlType::Int, &i32::MIN.to_be_bytes()), Some(-2_147_483_648_000));
        for (ty, value) in
            [(CqlType::Int, &[0; 8][..]), (CqlType::Bigint, &[0; 4]), (CqlType::Timestamp, &[])]
        {
            assert_eq!(ends(&ty, value), None, "{ty:?}");
        }
    }
}
