//! The rows that conditional statements answer with: `[applied]`, and what was found where it is false.

use mutation::Seconds;
use replica::PartitionResult;
use schema::{Column, Table};
use types::CqlType;
use wire::{Metadata, ResponseWriter};

use crate::expr::row::{ColumnRef, RowView, key_components};
use crate::select::selection::{metadata, write_column};

const APPLIED: &str = "[applied]";

fn columns_of(table: &Table, columns: &[&Column]) -> Metadata {
    let found = columns.iter().map(|column| (column.name.as_str(), &column.ty));
    metadata(&table.keyspace, &table.name, std::iter::once((APPLIED, &CqlType::Boolean)).chain(found))
}

/// Writes that the statement was applied.
pub fn applied(table: &Table, out: &mut ResponseWriter) {
    // The columns depend on the outcome, so that clients are always told them.
    let mut rows = out.rows(&columns_of(table, &[]), false, None);
    rows.cell(&[1]);
    rows.end_row();
}

/// Writes that it was not, with the rows that were found: these columns of them, or all.
pub fn refused(
    table: &Table,
    concerned: Option<&[&Column]>,
    found: Option<&PartitionResult>,
    now: Seconds,
    out: &mut ResponseWriter,
) {
    let Some(partition) = found else {
        let mut rows = out.rows(&columns_of(table, &[]), false, None);
        rows.cell(&[0]);
        rows.end_row();
        return;
    };
    let all: Vec<&Column> = table.columns().iter().collect();
    let columns = concerned.unwrap_or(&all);
    let references: Vec<ColumnRef> = columns.iter().map(|column| ColumnRef::from(*column)).collect();
    let key = key_components(table, &partition.key.key);
    let statics = partition.static_row.as_ref();
    let mut rows = out.rows(&columns_of(table, columns), false, None);
    let found = partition.rows.iter().map(Some);
    let static_only = partition.rows.is_empty().then_some(None);
    for row in found.chain(static_only) {
        let view = RowView::new(&key, statics, row, now);
        rows.cell(&[0]);
        references.iter().for_each(|column| write_column(&view, column, &mut rows));
        rows.end_row();
    }
}
