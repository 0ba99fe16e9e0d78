//! The rows of conditional statements' answers: `[applied]`, and the found values where it is false.

use mutation::Seconds;
use replica::PartitionResult;
use schema::{Column, Schema, Table};
use types::CqlType;

use crate::error::Result;
use crate::expr::CallScope;
use crate::expr::bind::Binds;
use crate::expr::calls::{Caller, UserCall, take_calls};
use crate::expr::row::{ColumnRef, RowView, key_components};
use crate::expr::{Env, Expr};
use crate::functions::CallContext;
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

fn nothing_found(table: &Table, out: &mut impl Sink) {
    let mut rows = out.rows(&columns_of(table, &[]));
    rows.cell(Some(&[0]));
    rows.end_row();
}

/// The columns of a refusal for a caller without permission to see values that masks hide.
pub struct Masks {
    result: ResultColumns,
    cells: Vec<Expr>,
    calls: Vec<UserCall>,
}

impl Masks {
    /// The masks of these columns, or of all.
    ///
    /// # Errors
    /// When the function of a mask is gone.
    pub fn new(table: &Table, concerned: Option<&[&Column]>, schema: &Schema) -> Result<Self> {
        let all: Vec<&Column> = table.columns().iter().collect();
        let columns = concerned.unwrap_or(&all);
        let mut calls = Vec::new();
        let mut cell =
            |column: &&Column| Ok(take_calls(Expr::masked(column, schema)?, CallScope::Row, &mut calls));
        let cells = columns.iter().map(&mut cell).collect::<Result<_>>()?;
        Ok(Self { result: columns_of(table, columns), cells, calls })
    }

    /// Yields that a statement was not applied, with the rows that were found.
    ///
    /// # Errors
    /// When a mask's function fails.
    pub async fn refused(
        &self,
        table: &Table,
        found: Option<&PartitionResult>,
        (call, mut caller): (&CallContext, Caller<'_>),
        now: Seconds,
        out: &mut impl Sink,
    ) -> Result<()> {
        let Some(partition) = found else {
            nothing_found(table, out);
            return Ok(());
        };
        let key = key_components(table, &partition.key.key);
        let statics = partition.static_row.as_ref();
        let static_only = partition.rows.is_empty().then_some(None);
        let binds = Binds::none();
        let mut cells = Vec::new();
        for row in partition.rows.iter().map(Some).chain(static_only) {
            let view = RowView::new(&key, statics, row, now);
            let env = Env::new(&binds, call);
            let env = env.with_row(&view);
            let called = caller.row(&self.calls, &env).await?;
            let env = Env { called: &called, ..env };
            cells.push(self.cells.iter().map(|cell| cell.eval_option(&env)).collect::<Result<Vec<_>>>()?);
        }
        let mut rows = out.rows(&self.result);
        for cells in cells {
            rows.cell(Some(&[0]));
            cells.iter().for_each(|cell| rows.cell(cell.as_deref()));
            rows.end_row();
        }
        Ok(())
    }
}

/// Yields that it was not, with the rows that were found: these columns of them, or all.
pub fn refused(
    table: &Table,
    concerned: Option<&[&Column]>,
    found: Option<&PartitionResult>,
    now: Seconds,
    out: &mut impl Sink,
) {
    let Some(partition) = found else { return nothing_found(table, out) };
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
