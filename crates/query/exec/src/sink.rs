//! Results as execution yields them: columns, rows of serialised cells, warnings, and the position at which a result resumes.
//!
//! Execution knows no protocol. A front end passes a [`Sink`] in, which encodes rows as they come, and turns the
//! [`Outcome`] into its protocol's answer. Both are generic parameters and not trait objects, so that a cell costs no
//! indirect call.

use replica::Resume;
use schema::TableId;
use types::CqlType;

use crate::error::{ExecError, Result};

/// The most bytes of a result's rows.
pub const RESULT_BYTES_MAX: usize = 256 << 20;

/// The columns of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultColumns {
    /// Keyspace of the table that is read.
    pub keyspace: String,
    /// Its name.
    pub table: String,
    /// Name and type of each column.
    pub columns: Vec<(String, CqlType)>,
    /// Whether they depend on the outcome, so that no client can know them from preparing the statement.
    pub of_outcome: bool,
}

impl ResultColumns {
    /// Columns that are known when the statement is prepared.
    pub fn new<'a>(
        keyspace: &str,
        table: &str,
        columns: impl IntoIterator<Item = (&'a str, &'a CqlType)>,
    ) -> Self {
        let columns = columns.into_iter().map(|(name, ty)| (name.to_owned(), ty.clone())).collect();
        Self { keyspace: keyspace.to_owned(), table: table.to_owned(), columns, of_outcome: false }
    }
}

/// The position at which a result resumes, for the request of its next page.
#[derive(Clone, Debug, PartialEq)]
pub enum PagingState {
    /// A SELECT.
    Rows(RowsPosition),
    /// A DESCRIBE.
    Description {
        /// Version of the schema that is described.
        schema: [u8; 16],
        /// Elements that were returned.
        offset: u32,
    },
}

/// Where the rows of a SELECT go on.
#[derive(Clone, Debug, PartialEq)]
pub struct RowsPosition {
    /// The table.
    pub table: TableId,
    /// The last row that was returned.
    pub resume: Resume,
    /// Rows (or groups) that the LIMIT still allows.
    pub left: u64,
}

/// Takes the result of a statement.
pub trait Sink {
    /// Takes the rows.
    type Rows<'r>: RowSink
    where
        Self: 'r;

    /// Begins a result of rows; called at most once for a statement, and before its first row.
    fn rows(&mut self, columns: &ResultColumns) -> Self::Rows<'_>;

    /// Takes a warning.
    fn warn(&mut self, warning: String);
}

/// Takes rows cell by cell, in the order of the columns.
pub trait RowSink {
    /// A value in its serialised form, or a null.
    fn cell(&mut self, value: Option<&[u8]>);

    /// The row has all of its cells.
    fn end_row(&mut self);

    /// Rows so far.
    fn row_count(&self) -> u64;

    /// Bytes so far, as the sink counts them: results and pages end by this size.
    fn byte_count(&self) -> usize;

    /// Whether the sink has refused cells because of the size, so that the result is not to be used.
    fn is_too_large(&self) -> bool;

    /// There are more rows; the next page resumes at `state`.
    fn set_paging_state(&mut self, state: &PagingState);
}

/// The result of a statement that succeeded.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Nothing to tell: a write.
    Void,
    /// The rows that the sink has taken.
    Rows,
    /// The client uses this keyspace from here on.
    Keyspace(String),
    /// The schema has changed.
    SchemaChange(SchemaChange),
}

/// A change of the schema, as it is reported to the client that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaChange {
    /// Created, updated or dropped.
    pub change: ChangeType,
    /// The keyspace.
    pub keyspace: String,
    /// The keyspace itself, or an object in it.
    pub target: SchemaTarget,
}

/// The kind of a schema change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeType {
    /// CREATE.
    Created,
    /// ALTER.
    Updated,
    /// DROP.
    Dropped,
}

/// The object that a schema change is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaTarget {
    /// The keyspace itself.
    Keyspace,
    /// A table or view, or an index or trigger of the table.
    Table(String),
    /// A user-defined type.
    Type(String),
    /// A user-defined function.
    Function {
        /// Its name.
        name: String,
        /// Types of its arguments in CQL.
        arguments: Vec<String>,
    },
    /// A user-defined aggregate.
    Aggregate {
        /// Its name.
        name: String,
        /// Types of its arguments in CQL.
        arguments: Vec<String>,
    },
}

/// The refusal of a result that is larger than results may be.
pub fn too_large() -> ExecError {
    ExecError::Invalid(format!(
        "The result would have more than {RESULT_BYTES_MAX} bytes; select fewer columns, use paging or a smaller LIMIT"
    ))
}

/// Refuses to put together a result of so many bytes.
///
/// # Errors
/// When they are more than [`RESULT_BYTES_MAX`].
pub fn check_result_bytes(bytes: usize) -> Result<()> {
    if bytes > RESULT_BYTES_MAX { Err(too_large()) } else { Ok(()) }
}
