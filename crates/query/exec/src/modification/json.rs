//! INSERT … JSON: a document's members as the values of columns.

use bytes::Bytes;
use cql::ast::{JsonValue, Term, TermKind};
use schema::Table;
use types::json::{self, Value as Json};
use types::{CqlType, TypeError};

use crate::error::{Result, invalid};
use crate::expr::bind::Binds;
use crate::expr::resolve::{Receiver, Resolver};
use crate::expr::{Expr, Value};

/// The expression of a document.
///
/// # Errors
/// As [`Resolver::term`].
pub fn document(value: &JsonValue, resolver: &mut Resolver<'_>) -> Result<Expr> {
    match value {
        JsonValue::Text(text) => Ok(Expr::constant(CqlType::Text, Some(Bytes::from(text.clone())))),
        JsonValue::Marker(marker) => {
            let term = Term::new(TermKind::Marker(marker.clone()));
            resolver.term(&term, &Receiver::owned("[json]", CqlType::Text))
        }
    }
}

/// The values of a document for each column of the table, in the order of [`Table::columns`].
///
/// # Errors
/// [`ExecError::Invalid`](crate::ExecError::Invalid) when the document is null or no JSON object, names an unknown
/// column, or has a value that the column's type refuses.
pub fn values(table: &Table, document: Option<Bytes>, default_unset: bool) -> Result<Binds> {
    let Some(document) = document else { return invalid!("Got null for INSERT JSON values") };
    let text = String::from_utf8_lossy(&document);
    let members = match json::parse_first(&text) {
        Ok(Json::Object(members)) => members,
        Ok(Json::Null) => return invalid!("Got null for INSERT JSON values"),
        Ok(_) => {
            return invalid!(
                "Could not decode JSON string as a map: it is no JSON object. (String was: {text})"
            );
        }
        Err(error) => {
            return invalid!("Could not decode JSON string as a map: {error}. (String was: {text})");
        }
    };
    let missing = if default_unset { Value::Unset } else { Value::Null };
    let mut values = vec![missing; table.columns().len()];
    for (name, value) in json::meant_members(&members) {
        let Some(at) = table.columns().iter().position(|column| column.name == name) else {
            return invalid!("JSON values map contains unrecognized column: {name}");
        };
        let column = &table.columns()[at];
        values[at] = match column.ty.from_json(value) {
            Ok(Some(bytes)) => Value::Set(bytes.into()),
            Ok(None) => Value::Null,
            Err(TypeError::Duration(text)) => return invalid!("{text}"),
            Err(error) => return invalid!("Error decoding JSON value for {}: {error}", column.name),
        };
    }
    Ok(values.into_iter().collect())
}
