//! The rows of conditional statements' answers: `[applied]`, and the found values where it is false.

use mutation::Seconds;
use replica::PartitionResult;
use schema::{Column, Table};
use types::CqlType;

use crate::expr::row::{ColumnRef, RowView, key_components};
use crate::select::selection::write_column;
use crate::sink::{ResultColumns, RowSink, Sink};

const APPLIED: &str = "[applied]";

/// The columns depend on the outcome, so that clients are always told them.
fn columns_of(table: &Table, columns: &[&Column]) -> ResultColumns {
    let found = columns.iter().map(|column| (column.name.as_str(), &column.ty));
    let columns = std::iter::once((APPLIED, &CqlType::Boolean)).chain(found);
    ResultColumns { of_outcome: true, ..ResultColumns::new(&table.keyspace, &table.name, columns) }
}

/// Yields that the statement was applied.
pub fn applied(table: &Table, out: &mut impl Sink) {
    let mut rows = out.rows(&columns_of(table, &[]));
    rows.cell(Some(&[1]));
    rows.end_row();
}

/// Yields that it was not, with the rows that were found: these columns of them, or all.
pub fn refused(
    table: &Table,
    concerned: Option<&[&Column]>,
    found: Option<&PartitionResult>,
    now: Seconds,
    out: &mut impl Sink,
) {
    let Some(partition) = found else {
        let mut rows = out.rows(&columns_of(table, &[]));
        rows.cell(Some(&[0]));
        rows.end_row();
        return;
    };
    let all: Vec<&Column> = table.columns().iter().collect();
    let columns = concerned.unwrap_or(&all);
    let references: Vec<ColumnRef> = columns.iter().map(|column| ColumnRef::from(*column)).collect();
    let key = key_components(table, &partition.key.key);
    let statics = partition.static_row.as_ref();
    let mut rows = out.rows(&columns_of(table, columns));
    let found = partition.rows.iter().map(Some);
    let static_only = partition.rows.is_empty().then_some(None);
    for row in found.chain(static_only) {
        let view = RowView::new(&key, statics, row, now);
        rows.cell(Some(&[0]));
        references.iter().for_each(|column| write_column(&view, column, &mut rows));
        rows.end_row();
    }
}
