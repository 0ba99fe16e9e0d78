//! The rows of statements about roles, whose columns are those of tables of `system_auth`.

use types::CqlType;

use crate::sink::{ResultColumns, Sink};

/// Rows with columns that clients learn with them.
pub(super) fn rows<S: Sink>(
    sink: &mut S,
    table: &str,
    columns: &[(&str, CqlType)],
    fill: impl FnOnce(&mut S::Rows<'_>),
) {
    let columns = columns.iter().map(|(name, ty)| (*name, ty));
    let columns = ResultColumns { of_outcome: true, ..ResultColumns::new("system_auth", table, columns) };
    fill(&mut sink.rows(&columns));
}
