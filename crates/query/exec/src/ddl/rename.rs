//! ALTER TABLE … RENAME: of key columns of a table, and with them those of its views, whose keys have them all.

use std::sync::Arc;

use cql::ast::{Ident, Relation, Statement, Target};
use schema::{ColumnKind, Derivation, Table, TableBuilder};

use super::{check_column_name, index};
use crate::error::{ExecError, Result, invalid};

/// Columns by their name, with the one that they get.
pub(super) type Renamed<'a> = Vec<(&'a str, &'a str)>;

/// The columns of a statement that there are, checked.
///
/// # Errors
/// When one is missing, no part of the key or indexed, or its new name is taken.
pub(super) fn names<'a>(
    table: &Table,
    columns: &'a [(Ident, Ident)],
    if_exists: bool,
) -> Result<Renamed<'a>> {
    let mut renamed = Renamed::new();
    for (at, (from, to)) in columns.iter().enumerate() {
        let (from, to) = (from.name.as_str(), to.name.as_str());
        // The last one of a column counts.
        if columns.iter().skip(at + 1).any(|(later, _)| later.name == from) {
            continue;
        }
        let Some(column) = table.column(from) else {
            if if_exists {
                continue;
            }
            return invalid!("Undefined column name {from} in table {}", table.full_name());
        };
        if !matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
            return invalid!("Cannot rename non PRIMARY KEY column {from}");
        }
        check_column_name(to)?;
        if table.column(to).is_some() {
            return invalid!(
                "Cannot rename column {from} to {to} in table '{}'; another column with that name already exists",
                table.full_name()
            );
        }
        if let Some(indexes) = index::names_of(table, from) {
            return invalid!(
                "Can't rename column {from} because it has dependent secondary indexes ({indexes})"
            );
        }
        renamed.push((from, to));
    }
    Ok(renamed)
}

fn rename(name: &mut String, renamed: &Renamed<'_>) {
    if let Some((_, to)) = renamed.iter().find(|(from, _)| name == from) {
        (*to).clone_into(name);
    }
}

/// The table with the new names.
pub(super) fn columns(mut builder: TableBuilder, renamed: &Renamed<'_>) -> TableBuilder {
    builder.columns_mut().iter_mut().for_each(|column| rename(&mut column.name, renamed));
    builder
}

/// The views with the new names, also in their conditions.
///
/// # Errors
/// When a view would not be one any more.
pub(super) fn views<'v>(
    views: impl Iterator<Item = &'v Arc<Table>>,
    renamed: &Renamed<'_>,
) -> Result<Vec<Table>> {
    let renamed_view = |view: &Arc<Table>| {
        let mut builder = columns(view.to_builder(), renamed);
        if let Some(Derivation::View { where_clause, conditions, .. }) = &mut builder.derivation {
            conditions.iter_mut().for_each(|condition| rename(&mut condition.column, renamed));
            *where_clause = renamed_clause(where_clause, renamed)?;
        }
        builder.build().map_err(|error| ExecError::Invalid(error.to_string()))
    };
    views.map(renamed_view).collect()
}

/// The text after WHERE with the new names.
fn renamed_clause(text: &str, renamed: &Renamed<'_>) -> Result<String> {
    if text.is_empty() {
        return Ok(String::new());
    }
    let parsed =
        cql::parse(&format!("CREATE MATERIALIZED VIEW v AS SELECT * FROM t WHERE {text} PRIMARY KEY (k)"))?;
    let Statement::CreateView(mut view) = parsed.statement else {
        unreachable!("the text is one of CREATE MATERIALIZED VIEW")
    };
    for relation in &mut view.filter {
        match &mut relation.target {
            Target::Column(name) | Target::Element(name, _) | Target::Field(name, _) => {
                rename(&mut name.name, renamed);
            }
            Target::Tuple(names) | Target::Token(names) => {
                names.iter_mut().for_each(|name| rename(&mut name.name, renamed));
            }
            Target::Index(_) | Target::Reference(_) | Target::Relevance(..) => {}
        }
    }
    Ok(view.filter.iter().map(Relation::to_string).collect::<Vec<_>>().join(" AND "))
}
