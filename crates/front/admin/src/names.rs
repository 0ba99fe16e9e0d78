//! Keyspaces, tables and nodes that requests name, and the errors of ScyllaDB's API for those that are not there.

use std::sync::Arc;

use coordinator::{ClusterView, ViewNode};
use schema::{Keyspace, Schema, Table};

use crate::{Answer, Call, uuid_of};

/// 400 with a message.
pub(crate) fn bad(message: impl Into<String>) -> Answer {
    Answer::error(400, message)
}

/// A keyspace.
///
/// # Errors
/// 400 when there is none of this name.
pub(crate) fn keyspace<'a>(schema: &'a Schema, name: &str) -> Result<&'a Arc<Keyspace>, Answer> {
    schema.keyspace(name).ok_or_else(|| bad(format!("Can't find a keyspace {name}")))
}

/// A table of a keyspace.
///
/// # Errors
/// 400 when there is no such keyspace or table.
pub(crate) fn table<'a>(
    schema: &'a Schema,
    keyspace_name: &str,
    name: &str,
) -> Result<&'a Arc<Table>, Answer> {
    let found = keyspace(schema, keyspace_name)?.tables.get(name);
    found.ok_or_else(|| bad(format!("Can't find a column family {name} in keyspace {keyspace_name}")))
}

/// The table of a path, `keyspace:table`.
///
/// # Errors
/// 400 when the name has another form, or there is no such keyspace or table.
pub(crate) fn column_family<'a>(schema: &'a Schema, name: &str) -> Result<&'a Arc<Table>, Answer> {
    let parts = name.split_once(':');
    let (keyspace, name) = parts
        .ok_or_else(|| bad("Column family name should be in keyspace:column_family format".to_owned()))?;
    table(schema, keyspace, name)
}

/// The tables of a keyspace that a parameter names, with commas between, or all of them.
///
/// # Errors
/// 400 when there is no such keyspace or table.
pub(crate) fn tables(
    schema: &Schema,
    keyspace_name: &str,
    names: Option<&str>,
) -> Result<Vec<Arc<Table>>, Answer> {
    let known = keyspace(schema, keyspace_name)?;
    let names = list(names.unwrap_or_default());
    if names.is_empty() {
        return Ok(known.tables.values().cloned().collect());
    }
    names.iter().map(|name| table(schema, keyspace_name, name).cloned()).collect()
}

/// The items of a list with commas between.
pub(crate) fn list(text: &str) -> Vec<&str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect()
}

/// A parameter that has a value.
pub(crate) fn given<'a>(call: &'a Call, name: &str) -> Option<&'a str> {
    call.parameter(name).filter(|value| !value.is_empty())
}

/// A parameter without which a request means nothing.
///
/// # Errors
/// 400 when it is missing.
pub(crate) fn mandatory<'a>(call: &'a Call, name: &str) -> Result<&'a str, Answer> {
    call.parameter(name).ok_or_else(|| bad(format!("Missing mandatory parameter '{name}'")))
}

/// A parameter that is true or false.
///
/// # Errors
/// 500 for any other value, as ScyllaDB answers.
pub(crate) fn flag(call: &Call, name: &str, default: bool) -> Result<bool, Answer> {
    match call.parameter(name).map(str::to_ascii_lowercase).as_deref() {
        None | Some("") => Ok(default),
        Some("true" | "yes" | "1") => Ok(true),
        Some("false" | "no" | "0") => Ok(false),
        Some(other) => Err(Answer::error(500, format!("Invalid boolean parameter value {other} of {name}"))),
    }
}

/// The member of an address, for clients or for nodes, or of a host id.
pub(crate) fn member<'a>(view: &'a ClusterView, name: &str) -> Option<&'a ViewNode> {
    let address: Option<std::net::IpAddr> = name.parse().ok();
    let host = uuid_of(name);
    view.nodes().iter().find(|node| {
        address.is_some_and(|address| node.native.ip() == address || node.internode.ip() == address)
            || host == Some(node.host.0)
    })
}
