//! Rows of one definition of a table under another one of it, where columns were dropped, or dropped and added again.
//!
//! A column that was added again has the name of the dropped one and another id, and cells up to the time of the drop are not its own. Files
//! and logs name columns, and their decoders apply both. Rows in memory have ids, and are recast.

use std::sync::Arc;

use schema::{ColumnId, ColumnKind, Table};

use crate::{ColumnData, DataRef, Fragment, NO_TIMESTAMP, PartitionUpdate, Row, Timestamp};

/// The difference between the meanings that two definitions of a table give to rows of the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recast {
    /// The columns that differ, by id.
    columns: Vec<Changed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Changed {
    from: ColumnId,
    /// The id of the column under the other definition; none of a column that was dropped.
    to: Option<ColumnId>,
    /// Cells and deletions up to this timestamp are gone.
    dropped: Timestamp,
}

impl Recast {
    /// Of rows of `from` that are to be rows of `to`; none where they are that already. With `from` and `to` the same it leaves out cells that were dropped.
    pub fn new(from: &Table, to: &Table) -> Option<Self> {
        assert_eq!(from.id, to.id, "columns have a meaning within one table");
        if to.dropped_columns.is_empty() {
            return None;
        }
        let changed = |column: &schema::Column| {
            let dropped = to.dropped_columns.get(&column.name)?.dropped_micros;
            let alike = |there: &&schema::Column| {
                there.kind == column.kind && there.is_complex() == column.is_complex()
            };
            let there = to.column(&column.name).filter(alike).map(|there| there.id);
            Some(Changed { from: column.id, to: there, dropped })
        };
        let is_value =
            |column: &&schema::Column| matches!(column.kind, ColumnKind::Static | ColumnKind::Regular);
        let mut columns: Vec<Changed> = from.columns().iter().filter(is_value).filter_map(changed).collect();
        columns.sort_unstable_by_key(|column| column.from);
        (!columns.is_empty()).then_some(Self { columns })
    }

    /// Whether it takes away all cells of a column, or gives them another id.
    pub fn changes_ids(&self) -> bool {
        self.columns.iter().any(|column| column.to != Some(column.from))
    }

    /// Recasts a row; whether that changed it. It may say nothing then.
    pub fn row(&self, row: &mut Row) -> bool {
        let differs = |column: &Changed| row.get(column.from).is_some_and(|data| column.differs(data));
        if !self.columns.iter().any(differs) {
            return false;
        }
        let mut moved = Vec::new();
        row.retain(|id, data| {
            let Ok(at) = self.columns.binary_search_by_key(&id, |column| column.from) else { return true };
            let column = self.columns[at];
            if !column.keep(data) {
                return false;
            }
            match column.to {
                None => false,
                Some(to) if to == id => true,
                Some(to) => {
                    moved.push((to, data.clone()));
                    false
                }
            }
        });
        for (id, data) in moved {
            debug_assert!(row.get(id).is_none(), "no two columns of a table become one");
            row.set(id, data);
        }
        true
    }

    /// Recasts a fragment; false when nothing is left of a row, which must not be there for the sake of its cells.
    pub fn fragment(&self, fragment: &mut Fragment) -> bool {
        match fragment {
            Fragment::Row(row) | Fragment::StaticRow(row) => !self.row(row) || !row.is_empty(),
            _ => true,
        }
    }

    /// Recasts an update to the definition `to`; whether that changed it. It may say nothing then.
    pub fn update(&self, update: &mut PartitionUpdate, to: &Arc<Table>) -> bool {
        let changed = update.change_rows(|row| self.row(row));
        if changed {
            update.table = to.clone();
        }
        changed
    }
}

impl Changed {
    /// Whether data of the column is not as it is under the other definition.
    fn differs(&self, data: DataRef<'_>) -> bool {
        let is_dropped = |timestamp: Timestamp| timestamp <= self.dropped;
        self.to != Some(self.from)
            || match data {
                DataRef::Simple(cell) => is_dropped(cell.timestamp),
                DataRef::Complex(complex) => {
                    (!complex.deletion.is_live() && is_dropped(complex.deletion.timestamp))
                        || complex.cells.iter().any(|element| is_dropped(element.cell.timestamp))
                }
            }
    }

    /// Takes away the part of the data that was dropped; whether anything is left.
    fn keep(&self, data: &mut ColumnData) -> bool {
        match data {
            ColumnData::Simple(cell) => cell.timestamp > self.dropped,
            ColumnData::Complex(complex) => {
                if complex.deletion.timestamp <= self.dropped {
                    complex.deletion = crate::DeletionTime::LIVE;
                }
                complex.cells.retain(|element| element.cell.timestamp > self.dropped);
                !complex.is_empty()
            }
        }
    }
}

const _: () = assert!(NO_TIMESTAMP == Timestamp::MIN, "a deletion of nothing is older than every drop");

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use schema::{TableBuilder, TableId};
    use types::CqlType;

    use super::*;
    use crate::{Cell, Clustering, Complex, ComplexCell, DecoratedKey, DeletionTime};

    fn tables() -> [Arc<Table>; 3] {
        let set = CqlType::Set { element: Arc::new(CqlType::Int), frozen: false };
        let whole = TableBuilder::new("ks", "t", TableId([1; 16]))
            .partition_key("k", CqlType::Int)
            .clustering("c", CqlType::Int, false)
            .static_column("s", CqlType::Int)
            .regular("m", set.clone())
            .regular("v", CqlType::Int)
            .regular("w", CqlType::Int)
            .build_known();
        let mut gone = whole.to_builder();
        for name in ["m", "s", "v"] {
            gone.drop_column(name, 10);
        }
        let gone = Arc::new(gone.build().unwrap().with_ids_of(&whole));
        let back =
            gone.to_builder().regular("m", set).regular("v", CqlType::Int).static_column("s", CqlType::Int);
        let back = Arc::new(back.build().unwrap().with_ids_of(&gone));
        [whole, gone, back]
    }

    fn id(table: &Table, name: &str) -> ColumnId {
        table.column(name).unwrap().id
    }

    fn cell(timestamp: Timestamp) -> Cell {
        Cell::live(timestamp, Bytes::from_static(b"1234"))
    }

    fn simple(timestamp: Timestamp) -> ColumnData {
        ColumnData::Simple(cell(timestamp))
    }

    fn complex(deleted: Timestamp, cells: &[Timestamp]) -> ColumnData {
        let element = |(at, timestamp): (usize, &Timestamp)| ComplexCell {
            path: Bytes::from(vec![0, 0, 0, at as u8]),
            cell: cell(*timestamp),
        };
        let deletion = DeletionTime::new(deleted, 1);
        ColumnData::Complex(Complex { deletion, cells: cells.iter().enumerate().map(element).collect() })
    }

    #[test]
    fn newer_cells_come_back_under_the_new_id_and_older_ones_are_gone() {
        let [whole, gone, back] = tables();
        assert!(Recast::new(&whole, &whole).is_none() && Recast::new(&gone, &gone).is_none());
        let recast = Recast::new(&whole, &back).unwrap();
        assert!(recast.changes_ids());
        let mut row = Row::new(Clustering::new(&whole, &[Some(&[0; 4])]));
        row.set(id(&whole, "v"), simple(11));
        row.set(id(&whole, "w"), simple(1));
        row.set(id(&whole, "m"), complex(10, &[10, 11]));
        let mut wanted = Row::new(row.clustering.clone());
        wanted.set(id(&back, "v"), simple(11));
        wanted.set(id(&back, "w"), simple(1));
        let mut left = complex(10, &[10, 11]);
        if let ColumnData::Complex(left) = &mut left {
            left.deletion = DeletionTime::LIVE;
            left.cells.remove(0);
        }
        wanted.set(id(&back, "m"), left);
        let mut seen = row.clone();
        assert!(recast.row(&mut seen));
        assert_eq!(seen, wanted);
        // As long as it is not added again, no cell of it is there.
        let mut seen = Fragment::Row(row);
        assert!(Recast::new(&whole, &gone).unwrap().fragment(&mut seen));
        assert!(matches!(&seen, Fragment::Row(row) if row.column_count() == 1));
        let mut only = Row::new(Clustering::empty());
        only.set(id(&whole, "s"), simple(10));
        assert!(!recast.fragment(&mut Fragment::StaticRow(only)));
    }

    #[test]
    fn an_update_loses_its_dropped_cells_only() {
        let [_, _, back] = tables();
        let recast = Recast::new(&back, &back).unwrap();
        assert!(!recast.changes_ids());
        let mut update = PartitionUpdate::new(back.clone(), DecoratedKey::new(Bytes::from_static(b"k")));
        let row = |ck: u8, timestamp| {
            let mut row = Row::new(Clustering::new(&back, &[Some(&[0, 0, 0, ck])]));
            row.set(id(&back, "v"), simple(timestamp));
            row
        };
        for (ck, timestamp) in [(1, 10), (2, 11)] {
            update.add_row(row(ck, timestamp));
        }
        let mut fixed = Row::new(Clustering::empty());
        fixed.set(id(&back, "s"), simple(9));
        update.add_static(fixed);
        assert!(recast.update(&mut update, &back));
        assert!(update.static_row().is_none());
        assert_eq!(update.rows(), [row(2, 11)]);
        assert!(!recast.update(&mut update, &back), "once is enough");
    }

    #[test]
    fn files_keep_the_cells_of_dropped_columns_until_they_are_added_again() {
        let [whole, gone, back] = tables();
        let stored = gone.with_dropped_columns(|_| true);
        let names = |table: &Table| -> Vec<String> {
            table.columns().iter().map(|column| column.name.clone()).collect()
        };
        assert_eq!(names(&stored), names(&whole));
        assert!(Arc::ptr_eq(&back.with_dropped_columns(|_| true), &back));
        assert!(Arc::ptr_eq(&gone.with_dropped_columns(|_| false), &gone));
        let mut row = Row::new(Clustering::new(&whole, &[Some(&[0; 4])]));
        row.set(id(&stored, "m"), complex(11, &[12]));
        assert_ne!(id(&stored, "m"), id(&back, "m"));
        assert!(Recast::new(&stored, &back).unwrap().row(&mut row));
        assert_eq!(row.column(id(&back, "m")), Some(&complex(11, &[12])));
    }
}
