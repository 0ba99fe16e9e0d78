//! Change data capture in statements that change the schema: the log of a table follows its definition (docs/design/cdc.md).

use std::sync::Arc;

use cdc::{COLUMN_PREFIX, log_name, log_table};
use cluster::SchemaEdit;
use coordinator::{ClusterView, cdc_generation};
use cql::ast::AlterTableOperation;
use schema::{Schema, Table, TableId, TableOptions};

use super::{DdlContext, check_name};
use crate::error::{ExecError, Result, invalid, unauthorized};

/// The first generation of streams begins so long before the statement that asked for it, in microseconds: clients' clocks may be behind.
const FIRST_GENERATION_LEEWAY: i64 = 60_000_000;

/// The edits by which the log of a table of CQL follows its definition.
pub(super) fn follow(table: &Table, context: &DdlContext<'_>) -> Result<Vec<SchemaEdit>> {
    let schema = context.lookup.schema;
    if table.options.cdc.enabled && schema.cdc_log_of(table).is_none() {
        let name = log_name(&table.name);
        check_name(&name, "Table")
            .map_err(|text| ExecError::Config(format!("{}.{name}: {text}", table.keyspace)))?;
    }
    log_edits(table, schema, context.view, context.table_id, context.now_micros)
}

/// The edits by which the log of a table follows its definition, and the first generation of streams with the first log. Without capture a log
/// stays as it is, for readers that have not read all of it. `table_id` is one that was made for this change, `now_micros` the time since the
/// epoch.
///
/// # Errors
/// When changes of the table cannot be captured, or the log's name is taken.
pub fn log_edits(
    table: &Table,
    schema: &Schema,
    view: &ClusterView,
    table_id: [u8; 16],
    now_micros: i64,
) -> Result<Vec<SchemaEdit>> {
    if !table.options.cdc.enabled {
        return Ok(Vec::new());
    }
    check_base(table)?;
    let name = log_name(&table.name);
    let known = schema.cdc_log_of(table);
    if known.is_none() && schema.table(&table.keyspace, &name).is_some() {
        return invalid!(
            "Cannot create CDC log table for table {} because a table of name {}.{name} already exists",
            table.full_name(),
            table.keyspace
        );
    }
    let log = log_table(table, log_id(table_id, now_micros), known.map(|known| &**known), now_micros)
        .map_err(|error| ExecError::Invalid(error.to_string()))?;
    let mut edits = Vec::new();
    if known.is_none_or(|known| **known != log) {
        edits.push(SchemaEdit::PutTable(log));
    }
    if schema.cdc_generations().is_empty() {
        let start = now_micros.saturating_sub(FIRST_GENERATION_LEEWAY);
        edits.push(SchemaEdit::PutCdcGeneration(cdc_generation(view, start.div_euclid(1000))));
    }
    Ok(edits)
}

/// The id of a log that a statement makes, beside that of the statement's own table. It has the time from which on changes are captured,
/// which a check of the log needs.
fn log_id(table_id: [u8; 16], now_micros: i64) -> TableId {
    let [_, low] = stdx::murmur3::hash128(&table_id, 0);
    let clock_and_node = types::uuid::clock_and_node((low >> 48) as u16, low);
    TableId(types::uuid::time_uuid(now_micros.saturating_mul(10), clock_and_node))
}

/// Whether changes of a table can be captured.
fn check_base(table: &Table) -> Result<()> {
    let full = table.full_name();
    if table.is_counter() {
        return invalid!("Cannot create CDC log for table {full}. Counter support not implemented");
    }
    if table.compact_storage {
        return invalid!("Cannot capture changes of table {full}: CDC does not support COMPACT STORAGE");
    }
    if table.is_cdc_log() {
        return invalid!(
            "Cannot create a CDC log for a table {full}, because creating nested CDC logs is not allowed"
        );
    }
    if table.derivation.is_some() {
        return invalid!("Cannot capture changes of table {full}, whose rows follow from another table's");
    }
    match table.columns().iter().find(|column| column.name.starts_with(COLUMN_PREFIX)) {
        Some(column) => invalid!(
            "Cannot capture changes of table {full}: the name of its column {} is one of a CDC log",
            column.name
        ),
        None => Ok(()),
    }
}

/// Refuses the capture of changes of a view.
pub(super) fn check_view(options: &TableOptions) -> Result<()> {
    match options.cdc.enabled {
        true => invalid!("Cannot enable CDC for a materialized view"),
        false => Ok(()),
    }
}

/// Refuses alterations that a log cannot follow, and those of a log that would not follow its table.
pub(super) fn check_alter(
    table: &Table,
    operation: &AlterTableOperation,
    context: &DdlContext<'_>,
) -> Result<()> {
    let full = table.full_name();
    match operation {
        AlterTableOperation::With(_) => Ok(()),
        _ if captured_base(table, context.lookup.schema).is_some() => {
            invalid!(
                "You cannot modify the set of columns of a CDC log table directly. Modify the base table instead."
            )
        }
        _ if table.is_cdc_log() => invalid!(
            "You cannot modify the set of columns of a CDC log table directly. Although the base table has deactivated \
             CDC, this table will continue being a CDC log table until it is dropped. If you want to modify the columns \
             in it, you can only do that by reenabling CDC on the base table, which will reattach this log table. Then \
             you will be able to modify the columns in the base table."
        ),
        AlterTableOperation::Rename { .. } if table.options.cdc.enabled => {
            invalid!("Cannot rename a column of table {full} while CDC is enabled on it")
        }
        _ => Ok(()),
    }
}

/// The table of a log whose changes are captured at present.
pub fn captured_base<'a>(log: &Table, schema: &'a Schema) -> Option<&'a Arc<Table>> {
    let derivation = log.derivation.as_ref().filter(|derivation| derivation.is_cdc_log())?;
    let base = schema.table_by_id(derivation.base())?;
    Some(base).filter(|base| base.options.cdc.enabled)
}

/// Refuses to drop a log that is written to.
pub(super) fn check_drop(table: &Table, context: &DdlContext<'_>) -> Result<()> {
    match captured_base(table, context.lookup.schema) {
        Some(_) => unauthorized(format!("Cannot DROP cdc log table <table {}>", table.full_name())),
        None => Ok(()),
    }
}
