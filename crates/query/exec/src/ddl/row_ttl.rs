//! The column of a table whose values are the times at which rows expire (per-row TTL of ScyllaDB): its rules, in CREATE TABLE and
//! ALTER TABLE. Rows are deleted by the background task that deletes items of the DynamoDB API (docs/design/row-ttl.md).

use cql::ast::{ColumnDefinition, Ident};
use schema::{ColumnKind, Table, TableBuilder};
use types::CqlType;

use crate::error::{Result, invalid};

/// Makes the column of a definition that says TTL the one by which rows expire.
pub(super) fn define<'a>(
    builder: &mut TableBuilder,
    columns: impl IntoIterator<Item = &'a ColumnDefinition>,
) -> Result<()> {
    for column in columns.into_iter().filter(|column| column.is_ttl) {
        set(builder, &column.name.name)?;
    }
    Ok(())
}

/// `ALTER TABLE … TTL column`, or `TTL NULL`.
pub(super) fn alter(mut builder: TableBuilder, column: Option<&Ident>) -> Result<TableBuilder> {
    match column {
        Some(column) => set(&mut builder, &column.name)?,
        None if builder.ttl_column.is_none() => {
            return invalid!("Table '{}.{}' has no TTL column to disable", builder.keyspace, builder.name);
        }
        None => builder.ttl_column = None,
    }
    Ok(builder)
}

/// Refuses to drop the column by which rows expire.
pub(super) fn check_drop(table: &Table, column: &str) -> Result<()> {
    match table.ttl_column.as_deref() == Some(column) {
        true => invalid!(
            "Cannot drop TTL column {column}: rows of table '{}' expire by it. Disable that first with ALTER TABLE … TTL NULL",
            table.full_name()
        ),
        false => Ok(()),
    }
}

fn set(builder: &mut TableBuilder, name: &str) -> Result<()> {
    let full = format!("{}.{}", builder.keyspace, builder.name);
    let Some(column) = builder.columns().iter().find(|column| column.name == name) else {
        return invalid!("Undefined column name {name} in table {full}");
    };
    if let Some(other) = builder.ttl_column.as_deref().filter(|other| *other != name) {
        return invalid!(
            "Cannot make {name} the TTL column of table '{full}': it has one, {other}, and there can be one only. Disable it first \
             with ALTER TABLE … TTL NULL"
        );
    }
    if builder.ttl_column.is_some() {
        return invalid!("{name} is the TTL column of table '{full}' already");
    }
    match column.kind {
        ColumnKind::PartitionKey | ColumnKind::Clustering => {
            return invalid!("TTL column {name} cannot be part of the PRIMARY KEY");
        }
        ColumnKind::Static => return invalid!("TTL column {name} cannot be static"),
        ColumnKind::Regular => {}
    }
    if column.ty.is_counter() {
        return invalid!("Table '{full}' has counters: its rows cannot have a TTL column");
    }
    if !matches!(column.ty, CqlType::Timestamp | CqlType::Bigint | CqlType::Int) {
        return invalid!(
            "TTL column {name} must be of type timestamp, bigint or int, not {}",
            column.ty.cql_name()
        );
    }
    builder.ttl_column = Some(name.to_owned());
    Ok(())
}
