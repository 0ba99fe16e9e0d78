//! Results as RESULT messages: rows go cell by cell into the bytes that are sent.

use wire::{Metadata, QueryParameters, ResponseWriter, RowsWriter};

use super::client::{ClientState, ROWS_UNREPORTED_MAX};
use super::metadata::result_metadata;
use super::paging;
use super::prepared::Prepared;
use crate::plan::Plan;
use crate::sink::{
    ChangeType, Outcome, PagingState, RESULT_BYTES_MAX, ResultColumns, RowSink, SchemaChange, SchemaTarget,
    Sink,
};

// A result that execution takes for too large is refused by the response.
const _: () = assert!(RESULT_BYTES_MAX == wire::RESULT_BYTES_MAX);

/// Writes rows and warnings into a response.
pub struct ResultWriter<'a> {
    out: &'a mut ResponseWriter,
    /// The columns as they were described when the statement was prepared; none when that depends on the schema of now.
    pub prepared: Option<&'a Metadata>,
    /// The client does not want to be told columns that it knows.
    pub skip: bool,
    /// The id of the description that the client knows.
    pub known_id: Option<&'a [u8]>,
    /// See [`ClientState::answer_grown`].
    grown: &'a dyn Fn(usize),
}

impl<'a> ResultWriter<'a> {
    /// A result that describes its columns.
    pub fn new(grown: &'a dyn Fn(usize), out: &'a mut ResponseWriter) -> Self {
        Self { out, prepared: None, skip: false, known_id: None, grown }
    }

    /// The result of a statement, which describes its columns as far as the client wants and needs to be told.
    #[inline]
    pub fn of_prepared(
        prepared: &'a Prepared,
        query: &QueryParameters,
        known_id: Option<&'a [u8]>,
        grown: &'a dyn Fn(usize),
        out: &'a mut ResponseWriter,
    ) -> Self {
        let skip = query.skip_metadata && (!prepared.result_changed || known_id.is_some());
        let columns = matches!(prepared.plan, Plan::Select(_)).then_some(&prepared.metadata.result);
        Self { out, prepared: columns, skip, known_id, grown }
    }
}

impl Sink for ResultWriter<'_> {
    type Rows<'r>
        = ReportedRows<'r>
    where
        Self: 'r;

    fn rows(&mut self, columns: &ResultColumns) -> ReportedRows<'_> {
        let rows = match self.prepared {
            _ if columns.of_outcome => self.out.rows(&result_metadata(columns), false, None),
            Some(metadata) => self.out.rows(metadata, self.skip, self.known_id),
            None => self.out.rows(&result_metadata(columns), self.skip, self.known_id),
        };
        ReportedRows { rows, reported: ROWS_UNREPORTED_MAX, grown: self.grown }
    }

    fn warn(&mut self, warning: String) {
        self.out.warn(warning);
    }
}

/// Writes rows and reports the memory that they take.
pub struct ReportedRows<'a> {
    rows: RowsWriter<'a>,
    /// Bytes that were reported, or need not be.
    reported: usize,
    grown: &'a dyn Fn(usize),
}

impl ReportedRows<'_> {
    #[cold]
    fn report(&mut self) {
        // The buffer doubles when it is full.
        self.reported = self.rows.len().next_power_of_two();
        (self.grown)(self.reported);
    }
}

impl RowSink for ReportedRows<'_> {
    #[inline]
    fn cell(&mut self, value: Option<&[u8]>) {
        self.rows.optional(value);
    }

    #[inline]
    fn end_row(&mut self) {
        self.rows.end_row();
        if self.rows.len() > self.reported {
            self.report();
        }
    }

    fn row_count(&self) -> u64 {
        u64::from(self.rows.rows())
    }

    fn byte_count(&self) -> usize {
        self.rows.len()
    }

    #[inline]
    fn is_too_large(&self) -> bool {
        self.rows.is_too_large()
    }

    fn set_paging_state(&mut self, state: &PagingState) {
        self.rows.set_paging_state(paging::encode(state));
    }
}

/// Writes the outcome of a statement. Rows are in the response already.
pub fn write_outcome(outcome: &Outcome, client: &ClientState<'_>, out: &mut ResponseWriter) {
    match outcome {
        Outcome::Void => out.void(),
        Outcome::Rows => {}
        Outcome::Keyspace(name) => {
            (client.set_keyspace)(name);
            out.set_keyspace(name);
        }
        Outcome::SchemaChange(change) => out.schema_change(&schema_change(change)),
    }
}

fn schema_change(change: &SchemaChange) -> wire::SchemaChange {
    wire::SchemaChange {
        change: match change.change {
            ChangeType::Created => wire::ChangeType::Created,
            ChangeType::Updated => wire::ChangeType::Updated,
            ChangeType::Dropped => wire::ChangeType::Dropped,
        },
        keyspace: change.keyspace.clone(),
        target: match &change.target {
            SchemaTarget::Keyspace => wire::SchemaTarget::Keyspace,
            SchemaTarget::Table(name) => wire::SchemaTarget::Table(name.clone()),
            SchemaTarget::Type(name) => wire::SchemaTarget::Type(name.clone()),
            SchemaTarget::Function { name, arguments } => {
                wire::SchemaTarget::Function { name: name.clone(), arguments: arguments.clone() }
            }
            SchemaTarget::Aggregate { name, arguments } => {
                wire::SchemaTarget::Aggregate { name: name.clone(), arguments: arguments.clone() }
            }
        },
    }
}
