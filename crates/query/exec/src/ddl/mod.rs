//! Statements that change the schema: each is planned, purely, into edits of a known version of the schema.

mod cdc;
mod compaction;
mod constraints;
mod copy;
mod descriptions;
mod functions;
mod index;
mod keyspace;
mod objects;
pub(crate) mod option_value;
pub mod options;
mod rename;
mod row_ttl;
mod table;
mod unified;
mod user_type;
mod vectors;
mod view;

use crate::needed::needed;
use crate::sink::{ChangeType, SchemaChange, SchemaTarget};
use auth::Resource;
pub use cdc::{captured_base, log_edits};
use cluster::SchemaEdit;
use coordinator::ClusterView;
use cql::ast::Statement;
use schema::TableId;
pub use view::NO_MARKERS as NO_MARKERS_IN_VIEWS;

use crate::error::{ExecError, Result, invalid};
use crate::lookup::Lookup;

/// The longest name of a column, in bytes: that of a `[string]` of the protocol.
const COLUMN_NAME_LEN_MAX: usize = u16::MAX as usize;

/// The inputs of planning beside the statement.
pub struct DdlContext<'a> {
    /// The schema, and the tables that nobody may change.
    pub lookup: Lookup<'a>,
    /// The session's keyspace.
    pub keyspace: Option<&'a str>,
    /// The nodes of the cluster.
    pub view: &'a ClusterView,
    /// The id of a table that is created.
    pub table_id: [u8; 16],
    /// Copies of a keyspace that does not say how many (`default_keyspace_rf`).
    pub default_keyspace_rf: u32,
    /// Microseconds since the epoch.
    pub now_micros: i64,
    /// Whether user-defined functions are enabled, and their limits.
    pub functions: &'a udf::Limits,
    /// Whether materialized views may be created.
    pub materialized_views: bool,
    /// Whether columns may get masks.
    pub data_masking: bool,
}

/// A planned change.
#[derive(Debug)]
pub struct Outcome {
    /// The edits; none when there is nothing to do.
    pub edits: Vec<SchemaEdit>,
    /// The id that the statement gives a new table.
    pub given_id: Option<TableId>,
    /// The event for clients; none when nothing changes.
    pub change: Option<SchemaChange>,
    /// Warnings.
    pub warnings: Vec<String>,
}

impl Outcome {
    fn nothing() -> Self {
        Self { edits: Vec::new(), given_id: None, change: None, warnings: Vec::new() }
    }

    fn new(change: ChangeType, keyspace: &str, target: SchemaTarget) -> Self {
        let change = SchemaChange { change, keyspace: keyspace.to_owned(), target };
        Self { edits: Vec::new(), given_id: None, change: Some(change), warnings: Vec::new() }
    }
}

/// The longest name of a keyspace, which is a directory.
const KEYSPACE_NAME_LEN_MAX: usize = 48;
/// The longest name of a table: with its id it is a directory.
const TABLE_NAME_LEN_MAX: usize = 222;

/// Checks the name of something that is created.
fn check_name(name: &str, what: &str) -> Result<(), String> {
    let valid = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let len_max = if what == "Table" { TABLE_NAME_LEN_MAX } else { KEYSPACE_NAME_LEN_MAX };
    match (what, valid, name.len() <= len_max) {
        (_, true, true) => Ok(()),
        ("Table", false, _) => Err(format!(
            "Table name must not be empty or not contain non-alphanumeric-underscore characters (got \"{name}\")"
        )),
        (_, false, _) => Err(format!(
            "{what} name must not be empty and must contain alphanumeric or underscore characters only (got \"{name}\")"
        )),
        (_, true, false) => Err(format!(
            "{what} name must not be more than {len_max} characters long (got {} characters for \"{name}\")",
            name.len()
        )),
    }
}

/// Refuses changes of the server's own keyspaces.
fn check_not_system(context: &DdlContext<'_>, keyspace: &str) -> Result<()> {
    if context.lookup.keyspace(keyspace).is_some_and(|keyspace| keyspace.system) {
        return Err(ExecError::Unauthorized(format!("{keyspace} keyspace is not user-modifiable.")));
    }
    Ok(())
}

fn check_column_name(name: &str) -> Result<()> {
    match name.len() <= COLUMN_NAME_LEN_MAX {
        true => Ok(()),
        false => invalid!(
            "The name of a column has {} bytes: at most {COLUMN_NAME_LEN_MAX} are allowed",
            name.len()
        ),
    }
}

/// Refuses changes of the server's keyspaces that Cassandra replicates, in the words of its permissions, which nobody has there.
fn check_not_replicated(statement: &Statement, context: &DdlContext<'_>) -> Result<()> {
    use Statement as S;
    if matches!(
        statement,
        S::CreateFunction(_)
            | S::CreateAggregate(_)
            | S::DropFunction(_)
            | S::DropAggregate(_)
            | S::AlterKeyspace(_)
    ) {
        return Ok(());
    }
    let Some((permission, resource)) = needed(statement, context.keyspace, &context.lookup)? else {
        return Ok(());
    };
    let keyspace = match &resource {
        Resource::Keyspace(keyspace) | Resource::AllTables(keyspace) | Resource::Table { keyspace, .. } => {
            keyspace
        }
        _ => return Ok(()),
    };
    match keyspace::REPLICATED_IN_CASSANDRA.contains(&keyspace.as_str()) {
        true => Err(ExecError::Unauthorized(format!("Cannot {} {resource}", permission.name()))),
        false => Ok(()),
    }
}

/// Plans a statement that changes the schema.
///
/// # Errors
/// [`ExecError::Invalid`] when an object is missing, in use, or does not fit the statement;
/// [`ExecError::AlreadyExists`] without IF NOT EXISTS; [`ExecError::Unauthorized`] in the system's keyspaces;
/// [`ExecError::Config`] and [`ExecError::Syntax`] when a property is wrong.
pub fn plan(statement: &Statement, context: &DdlContext<'_>) -> Result<Outcome> {
    check_not_replicated(statement, context)?;
    match statement {
        Statement::CreateKeyspace(ast) => keyspace::create(ast, context),
        Statement::AlterKeyspace(ast) => keyspace::alter(ast, context),
        Statement::DropKeyspace(ast) => keyspace::drop(ast, context),
        Statement::CreateTable(ast) => table::create(ast, context),
        Statement::CopyTable(ast) => copy::create(ast, context),
        Statement::AlterTable(ast) => table::alter(ast, context),
        Statement::CommentOn(ast) => descriptions::comment(ast, context),
        Statement::SecurityLabel(ast) => descriptions::label(ast, context),
        Statement::DropTable(ast) => table::drop(ast, context),
        Statement::CreateType(ast) => user_type::create(ast, context),
        Statement::AlterType(ast) => user_type::alter(ast, context),
        Statement::DropType(ast) => user_type::drop(ast, context),
        Statement::CreateFunction(ast) => functions::create_function(ast, context),
        Statement::CreateAggregate(ast) => functions::create_aggregate(ast, context),
        Statement::DropFunction(ast) => objects::drop_function(ast, context),
        Statement::DropAggregate(ast) => objects::drop_aggregate(ast, context),
        Statement::CreateIndex(ast) => index::create(ast, context),
        Statement::DropIndex(ast) => objects::drop_index(ast, context),
        Statement::CreateView(ast) => view::create(ast, context),
        Statement::AlterView(ast) => view::alter(ast, context),
        Statement::DropView(ast) => objects::drop_view(ast, context),
        Statement::CreateTrigger(ast) => objects::create_trigger(ast, context),
        Statement::DropTrigger(ast) => objects::drop_trigger(ast, context),
        other => Err(ExecError::unsupported(other.name())),
    }
}

/// Whether a statement changes the schema in a way that [`plan`] knows.
pub fn is_schema_change(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::CreateKeyspace(_)
            | Statement::AlterKeyspace(_)
            | Statement::DropKeyspace(_)
            | Statement::CreateTable(_)
            | Statement::CopyTable(_)
            | Statement::AlterTable(_)
            | Statement::CommentOn(_)
            | Statement::SecurityLabel(_)
            | Statement::DropTable(_)
            | Statement::CreateType(_)
            | Statement::AlterType(_)
            | Statement::DropType(_)
            | Statement::CreateFunction(_)
            | Statement::CreateAggregate(_)
            | Statement::DropFunction(_)
            | Statement::DropAggregate(_)
            | Statement::CreateIndex(_)
            | Statement::DropIndex(_)
            | Statement::CreateView(_)
            | Statement::AlterView(_)
            | Statement::DropView(_)
            | Statement::CreateTrigger(_)
            | Statement::DropTrigger(_)
    )
}
