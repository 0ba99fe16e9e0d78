//! Prepared statements: a plan with its metadata for clients, under the id that the text determines.

use std::cell::Cell;

use wire::{Metadata, PreparedMetadata};

use super::metadata::{bind_metadata, result_metadata};
use crate::error::Result;
use crate::expr::bind::MarkerSpec;
use crate::lookup::Lookup;
use crate::plan::Plan;

/// Texts of so many bytes are parsed and planned in steps: about a millisecond's work.
const LONG_TEXT: usize = 16 << 10;

/// A prepared statement.
#[derive(Debug)]
pub struct Prepared {
    /// The statement's text.
    pub text: String,
    /// The session's keyspace when it was prepared.
    pub keyspace: Option<String>,
    /// Its plan.
    pub plan: Plan,
    /// Its markers.
    pub markers: Vec<MarkerSpec>,
    /// The answer to PREPARE.
    pub metadata: PreparedMetadata,
    /// Under this id clients were told of other result columns before: rows must name theirs, unless the client says
    /// which it knows.
    pub result_changed: bool,
    /// Whether it is tried without a future.
    pub(super) at_once: AtOnce,
}

/// Executions of a statement for which [`NativeFrontend::execute_now`](super::NativeFrontend::execute_now) is left out after one had to wait:
/// a statement of several replicas, other shards or rows on disk mostly has to, and the try costs as much as a part of the work.
#[derive(Debug, Default)]
pub(super) struct AtOnce {
    left_out: Cell<u8>,
}

impl AtOnce {
    /// As many tries less the next time.
    const LEFT_OUT: u8 = 15;

    /// Whether the next execution is tried; counts one that is left out.
    #[inline]
    pub(super) fn is_worth_a_try(&self) -> bool {
        let left_out = self.left_out.get();
        self.left_out.set(left_out.saturating_sub(1));
        left_out == 0
    }

    /// A try was in vain.
    #[inline]
    pub(super) fn has_to_wait(&self) {
        self.left_out.set(Self::LEFT_OUT);
    }
}

impl Prepared {
    /// The text without the passwords of roles, for tables that show it.
    pub fn shown_text(&self) -> String {
        crate::redact::redacted(&self.text).into_owned()
    }

    /// Parses and resolves a statement.
    ///
    /// # Errors
    /// When the text is not CQL, has no meaning for this schema, or is not supported.
    pub fn new(text: &str, keyspace: Option<&str>, lookup: &Lookup<'_>) -> Result<Self> {
        let (plan, markers) = Plan::parse(text, keyspace, lookup)?;
        Ok(Self::of(text, keyspace, lookup, (plan, markers)))
    }

    /// [`Prepared::new`]; gives way to other tasks where the text is long.
    ///
    /// # Errors
    /// The same.
    pub async fn new_in_steps(text: &str, keyspace: Option<&str>, lookup: &Lookup<'_>) -> Result<Self> {
        if text.len() < LONG_TEXT {
            return Self::new(text, keyspace, lookup);
        }
        let planned = Box::pin(Plan::parse_in_steps(text, keyspace, lookup)).await?;
        Ok(Self::of(text, keyspace, lookup, planned))
    }

    fn of(
        text: &str,
        keyspace: Option<&str>,
        lookup: &Lookup<'_>,
        (plan, markers): (Plan, Vec<MarkerSpec>),
    ) -> Self {
        let result = plan.result_columns(lookup, keyspace);
        let table = plan.table().map_or(("", ""), |table| (table.keyspace.as_str(), table.name.as_str()));
        let table_of = |marker: &MarkerSpec| match (&plan, marker.statement) {
            (Plan::Batch(batch), Some(number)) => batch
                .statements
                .get(number)
                .map_or(table, |statement| (&statement.table.keyspace, &statement.table.name)),
            // Markers of the BATCH itself have this table in Cassandra.
            (Plan::Batch(_), None) => ("[batch]", "[batch]"),
            _ => table,
        };
        let bind_markers = bind_metadata(&markers, table_of);
        let metadata = PreparedMetadata {
            id: wire::statement_id(keyspace.unwrap_or_default(), text),
            bind_markers,
            partition_key_markers: plan.key_markers(),
            result: result.as_ref().map_or_else(Metadata::none, result_metadata),
            is_conditional: plan.is_conditional(),
        };
        let (text, keyspace) = (text.to_owned(), keyspace.map(str::to_owned));
        Self { text, keyspace, plan, markers, metadata, result_changed: false, at_once: AtOnce::default() }
    }
}
