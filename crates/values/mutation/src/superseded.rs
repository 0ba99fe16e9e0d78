//! The part of a row that another version of the row makes superfluous: a garbage collection drops it from its SSTable, without
//! merging the two.

use schema::Table;
use stdx::HashMap;

use crate::{Cell, ColumnData, Complex, DeletionTime, LivenessInfo, Row};

/// The data of other SSTables by which a garbage collection drops data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    /// Deletions of partitions, ranges and rows.
    Row,
    /// Also later versions of cells, and deletions of collections.
    Cell,
}

impl Row {
    /// Removes the mark and the cells in whose place a reader of both rows sees those of `other`, a version of the same row of `table`: later versions,
    /// tombstones among them, and those that a collection's deletion hides. Cells of counters stay: versions of them are added up.
    pub fn delete_superseded(&mut self, other: &Self, table: &Table) {
        assert_eq!(self.clustering, other.clustering, "versions of one row");
        if table.is_counter() {
            return;
        }
        if self.liveness != other.liveness && self.liveness.merge(other.liveness) == other.liveness {
            self.liveness = LivenessInfo::NONE;
        }
        if self.iter().all(|(id, _)| other.get(id).is_none()) {
            return;
        }
        self.retain(|id, data| match (data, other.column(id)) {
            (ColumnData::Simple(cell), Some(ColumnData::Simple(later))) => !cell.is_superseded_by(later),
            (ColumnData::Complex(mine), Some(ColumnData::Complex(theirs))) => {
                mine.delete_superseded(theirs);
                !mine.is_empty()
            }
            _ => true,
        });
    }
}

impl Complex {
    fn delete_superseded(&mut self, other: &Self) {
        if !self.deletion.supersedes(&other.deletion) {
            self.deletion = DeletionTime::LIVE;
        }
        let later: HashMap<&[u8], &Cell> =
            other.cells.iter().map(|element| (&element.path[..], &element.cell)).collect();
        self.cells.retain(|element| {
            let is_superseded =
                later.get(&element.path[..]).is_some_and(|later| element.cell.is_superseded_by(later));
            !is_superseded && !other.deletion.deletes(element.cell.timestamp)
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use schema::{TableBuilder, TableId};
    use types::CqlType;

    use super::*;
    use crate::{Clustering, ComplexCell};

    fn table() -> Arc<Table> {
        let set = CqlType::Set { element: Arc::new(CqlType::Int), frozen: false };
        TableBuilder::new("ks", "t", TableId([1; 16]))
            .partition_key("k", CqlType::Int)
            .regular("a", CqlType::Int)
            .regular("s", set)
            .build_known()
            .into()
    }

    fn row(table: &Table, a: Option<Cell>, s: Option<Complex>) -> Row {
        let mut row = Row::new(Clustering::new(table, &[]));
        let id = |name: &str| table.column(name).expect("a column").id;
        if let Some(cell) = a {
            row.set(id("a"), ColumnData::Simple(cell));
        }
        if let Some(complex) = s {
            row.set(id("s"), ColumnData::Complex(complex));
        }
        row
    }

    fn set(deletion: DeletionTime, elements: &[(u8, i64)]) -> Complex {
        let cells = elements.iter().map(|(path, timestamp)| ComplexCell {
            path: Bytes::copy_from_slice(&[0, 0, 0, *path]),
            cell: Cell::live(*timestamp, Bytes::new()),
        });
        Complex { deletion, cells: cells.collect() }
    }

    /// With and without the dropped part, both versions merge into the same row.
    #[test]
    fn only_superfluous_cells_go() {
        let table = table();
        let value = |timestamp| Some(Cell::live(timestamp, Bytes::from_static(&[0, 0, 0, 1])));
        let (at_5, live) = (DeletionTime::new(5, 100), DeletionTime::LIVE);
        let cases = [
            (row(&table, value(1), None), row(&table, value(2), None), row(&table, None, None)),
            (row(&table, value(2), None), row(&table, value(2), None), row(&table, value(2), None)),
            (row(&table, value(3), None), row(&table, value(2), None), row(&table, value(3), None)),
            (
                row(&table, value(3), Some(set(live, &[(1, 4), (2, 9), (3, 7)]))),
                row(&table, Some(Cell::tombstone(3, 50)), Some(set(at_5, &[(3, 8)]))),
                row(&table, None, Some(set(live, &[(2, 9)]))),
            ),
            (
                row(&table, None, Some(set(at_5, &[(1, 7)]))),
                row(&table, None, Some(set(at_5, &[]))),
                row(&table, None, Some(set(live, &[(1, 7)]))),
            ),
        ];
        for (mine, other, expected) in cases {
            let mut reduced = mine.clone();
            reduced.delete_superseded(&other, &table);
            assert_eq!(reduced, expected);
            let mark = |timestamp| LivenessInfo { timestamp, ..LivenessInfo::NONE };
            for (mine, theirs, left) in [(1, 2, LivenessInfo::NONE), (2, 2, mark(2)), (3, 2, mark(3))] {
                let (mut row, mut other) = (reduced.clone(), other.clone());
                (row.liveness, other.liveness) = (mark(mine), mark(theirs));
                row.delete_superseded(&other, &table);
                assert_eq!(row.liveness, left);
            }
            let merged = |mut row: Row| {
                row.merge(other.clone(), &table);
                row
            };
            assert_eq!(merged(reduced), merged(mine));
        }
    }
}
