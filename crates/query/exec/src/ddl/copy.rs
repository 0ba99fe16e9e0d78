//! CREATE TABLE … LIKE: a table with another's columns and options, as in Cassandra 6.

use cluster::SchemaEdit;
use cql::ast::{CopyTable, SECURITY_LABELS};
use schema::{Column, Description, Table, TableId};

use super::{DdlContext, Outcome, cdc, check_name, check_not_system, index, options};
use crate::error::{ExecError, Result, invalid};
use crate::lookup::keyspace_of;
use crate::sink::{ChangeType, SchemaTarget};

pub(super) fn create(ast: &CopyTable, context: &DdlContext<'_>) -> Result<Outcome> {
    let keyspace = keyspace_of(&ast.name, context.keyspace)?;
    let name = &ast.name.name;
    check_not_system(context, keyspace)?;
    let from = keyspace_of(&ast.source, context.keyspace)?;
    let Some(source) = context.lookup.schema.table(from, &ast.source.name) else {
        return invalid!("Souce Table '{from}'.'{}' doesn't exist", ast.source.name);
    };
    let Some(home) = context.lookup.schema.keyspace(keyspace) else {
        return invalid!("Keyspace '{keyspace}' doesn't exist");
    };
    if home.tables.contains_key(name) {
        if ast.if_not_exists {
            return Ok(Outcome::nothing());
        }
        return Err(ExecError::AlreadyExists { keyspace: keyspace.to_owned(), table: name.clone() });
    }
    check_name(name, "Table").map_err(|text| ExecError::Config(format!("{keyspace}.{name}: {text}")))?;
    if source.is_view() {
        return invalid!("Cannot use CREATE TABLE LIKE on a materialized view.");
    }
    check_foreign(source, (from, keyspace), context)?;
    let (mut with_indexes, mut with_comments, mut with_labels) = (false, false, false);
    for option in &ast.options {
        match option.name.as_str() {
            "indexes" => with_indexes = true,
            "comments" => with_comments = true,
            SECURITY_LABELS => with_labels = true,
            other => {
                return Err(ExecError::unsupported(format_args!("CREATE TABLE ... LIKE ... WITH {other}")));
            }
        }
    }
    let mut builder = source.to_builder();
    builder.id = TableId(context.table_id);
    builder.keyspace = keyspace.to_owned();
    builder.name = name.clone();
    builder.dropped_columns.clear();
    builder.triggers.clear();
    builder.derivation = None;
    builder.security_label = builder.security_label.filter(|_| with_labels);
    for column in builder.columns_mut() {
        let said = column.description.take().map(|said| Description {
            comment: said.comment.filter(|_| with_comments),
            security_label: said.security_label.filter(|_| with_labels),
        });
        column.description = said.filter(|said| !said.is_empty()).map(Box::new);
    }
    let indexes = std::mem::take(&mut builder.indexes);
    options::apply(&mut builder.options, &ast.properties, source.is_counter())?;
    options::check_table(&builder.options)?;
    if with_indexes {
        for mut index in indexes.into_values() {
            index.name = index::free_name_among(home, name, &index.targets, &builder.indexes);
            builder.indexes.insert(index.name.clone(), index);
        }
    }
    let table = builder.build().map_err(|error| ExecError::Invalid(error.to_string()))?;
    let mut outcome = Outcome::new(ChangeType::Created, keyspace, SchemaTarget::Table(name.clone()));
    outcome.warnings.extend(options::without_effect(&table.options, &ast.properties));
    let log = cdc::follow(&table, context)?;
    outcome.edits.push(SchemaEdit::PutTable(table));
    outcome.edits.extend(log);
    Ok(outcome)
}

/// Refuses columns with types or masks of a keyspace that a copy in another keyspace does not have.
fn check_foreign(source: &Table, (from, keyspace): (&str, &str), context: &DdlContext<'_>) -> Result<()> {
    if from == keyspace {
        return Ok(());
    }
    let types = context.lookup.schema.keyspace(from).map(|home| home.types.keys());
    let uses = |name: &String| source.columns().iter().find(|column| column.ty.references_udt(from, name));
    if let Some(column) = types.into_iter().flatten().find_map(uses) {
        return invalid!(
            "Column {} of {from}.{} has the user type {}, which keyspace {keyspace} does not have",
            column.name,
            source.name,
            column.ty.cql_name()
        );
    }
    let foreign = |column: &&Column| column.mask.as_deref().is_some_and(|mask| mask.keyspace != "system");
    match source.masked_columns().find(foreign) {
        None => Ok(()),
        Some(column) => invalid!(
            "The mask of column {} of {from}.{} is a function of another keyspace than {keyspace}",
            column.name,
            source.name
        ),
    }
}
