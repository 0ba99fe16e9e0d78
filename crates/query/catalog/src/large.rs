//! ScyllaDB's `system.large_partitions`, `large_rows` and `large_cells`: the records of large data made when SSTables were written.

use schema::{Schema, TableId};

use crate::rows::RowBuilder;

/// The kind of something large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LargeFactsKind {
    /// A partition.
    Partition {
        /// Its rows.
        rows: i64,
        /// Rows without anything live.
        dead_rows: i64,
        /// Bounds of range tombstones.
        range_tombstones: i64,
    },
    /// A row.
    Row {
        /// Its clustering key.
        clustering: String,
    },
    /// A cell or a collection.
    Cell {
        /// The clustering key of its row.
        clustering: String,
        /// Its column.
        column: String,
        /// Elements of the collection; 0 for a cell.
        elements: i64,
    },
}

/// A large partition, row or cell of one SSTable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargeFacts {
    /// Which table.
    pub table: TableId,
    /// Name of the SSTable's data file.
    pub sstable: String,
    /// The partition key.
    pub key: String,
    /// Bytes before compression.
    pub bytes: i64,
    /// When it was written, microseconds since the epoch.
    pub written_micros: i64,
    /// Its kind.
    pub kind: LargeFactsKind,
}

pub(crate) async fn fill(rows: &mut RowBuilder, schema: &Schema, large: &[LargeFacts]) {
    let wanted = rows.table().name.clone();
    let add = |rows: &mut RowBuilder, one: &LargeFacts| {
        let Some(table) = schema.table_by_id(one.table) else { return };
        let mut row = vec![
            ("keyspace_name", table.keyspace.as_str().into()),
            ("table_name", table.name.as_str().into()),
            ("sstable_name", one.sstable.as_str().into()),
            ("partition_key", one.key.as_str().into()),
            ("compaction_time", (one.written_micros / 1_000).into()),
        ];
        match (&one.kind, wanted.as_str()) {
            (LargeFactsKind::Partition { rows, dead_rows, range_tombstones }, "large_partitions") => {
                row.extend([
                    ("partition_size", one.bytes.into()),
                    ("rows", (*rows).into()),
                    ("dead_rows", (*dead_rows).into()),
                    ("range_tombstones", (*range_tombstones).into()),
                ]);
            }
            (LargeFactsKind::Row { clustering }, "large_rows") => {
                row.extend([("row_size", one.bytes.into()), ("clustering_key", clustering.as_str().into())]);
            }
            (LargeFactsKind::Cell { clustering, column, elements }, "large_cells") => {
                row.extend([
                    ("cell_size", one.bytes.into()),
                    ("clustering_key", clustering.as_str().into()),
                    ("column_name", column.as_str().into()),
                    ("collection_elements", (*elements).into()),
                ]);
            }
            _ => return,
        }
        rows.row(row);
    };
    rows.each(large, add).await;
}
