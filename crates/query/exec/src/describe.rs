//! DESCRIBE, answered by the server in Cassandra 5.0's form.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::{BufMut, BytesMut};
use coordinator::ClusterView;
use cql::ast::{Describe, DescribeTarget, QualifiedName};
use schema::Keyspace;
use topology::NodeIndex;
use types::{CqlType, quote_identifier};

use crate::backend::NodeInfo;
use crate::error::{ExecError, Result, invalid};
use crate::lookup::Lookup;
use crate::request::Request;
use crate::sink::{PagingState, ResultColumns, RowSink, Sink};

/// One row: keyspace, kind, name and, where it is asked for, the statement that makes it.
struct Element {
    keyspace: String,
    kind: &'static str,
    name: String,
    statement: Option<String>,
}

const COLUMNS: [&str; 4] = ["keyspace_name", "type", "name", "create_statement"];

fn has_statements(target: &DescribeTarget) -> bool {
    !matches!(
        target,
        DescribeTarget::Keyspaces
            | DescribeTarget::Tables
            | DescribeTarget::Types
            | DescribeTarget::Functions
            | DescribeTarget::Aggregates
    )
}

/// The columns of the result, for a client that uses keyspace `session`.
pub fn result_columns(ast: &Describe, lookup: &Lookup<'_>, session: Option<&str>) -> ResultColumns {
    let names: Vec<&str> = match &ast.target {
        DescribeTarget::Cluster => vec!["cluster", "partitioner", "snitch"],
        target if has_statements(target) => COLUMNS.to_vec(),
        _ => COLUMNS[..3].to_vec(),
    };
    let owners = CqlType::map(CqlType::Text, CqlType::list(CqlType::Text, false), false);
    let more = owned_keyspace(ast, lookup, session).map(|_| ("range_ownership", &owners));
    let columns = names.into_iter().map(|name| (name, &CqlType::Text)).chain(more);
    ResultColumns::new("system", "describe", columns)
}

/// The keyspace whose ranges DESCRIBE CLUSTER tells: the one in use, unless it is the server's own.
fn owned_keyspace<'a>(
    ast: &Describe,
    lookup: &Lookup<'a>,
    session: Option<&str>,
) -> Option<&'a std::sync::Arc<Keyspace>> {
    let keyspace = session.and_then(|name| lookup.keyspace(name)).filter(|keyspace| !keyspace.system);
    keyspace.filter(|_| ast.target == DescribeTarget::Cluster)
}

/// The end of each range and the nodes that keep it, in the order of a map of texts, as its bytes.
fn range_ownership(keyspace: &Keyspace, view: &ClusterView) -> BytesMut {
    let endpoint = |index: &NodeIndex| match view.node(*index).internode {
        SocketAddr::V4(address) => format!("/{address}"),
        SocketAddr::V6(address) => {
            let segments = address.ip().segments().map(|segment| format!("{segment:x}"));
            format!("/[{}]:{}", segments.join(":"), address.port())
        }
    };
    let copies = view.place(&keyspace.replication);
    let placement = copies.now();
    let ranges: BTreeMap<String, Vec<String>> = placement
        .ranges()
        .map(|(range, replicas)| (range.upto.to_string(), replicas.iter().map(endpoint).collect()))
        .collect();
    let mut out = BytesMut::new();
    let put = |out: &mut BytesMut, text: &str| {
        out.put_u32(text.len() as u32);
        out.put_slice(text.as_bytes());
    };
    out.put_u32(ranges.len() as u32);
    for (token, endpoints) in &ranges {
        put(&mut out, token);
        out.put_u32(4 + endpoints.iter().map(|endpoint| 4 + endpoint.len() as u32).sum::<u32>());
        out.put_u32(endpoints.len() as u32);
        endpoints.iter().for_each(|endpoint| put(&mut out, endpoint));
    }
    out
}

/// Runs a DESCRIBE.
///
/// # Errors
/// When what is described does not exist, or the schema has changed since the page before.
pub fn run(
    ast: &Describe,
    lookup: &Lookup<'_>,
    (node, view): (&NodeInfo, &ClusterView),
    request: &Request<'_>,
    out: &mut impl Sink,
) -> Result<()> {
    let session = request.keyspace;
    let columns = result_columns(ast, lookup, session);
    if ast.target == DescribeTarget::Cluster {
        let mut rows = out.rows(&columns);
        rows.cell(Some(node.cluster_name.as_bytes()));
        rows.cell(Some(b"Murmur3Partitioner"));
        rows.cell(Some(node.snitch.as_bytes()));
        if let Some(keyspace) = owned_keyspace(ast, lookup, session) {
            rows.cell(Some(&range_ownership(keyspace, view)));
        }
        rows.end_row();
        return Ok(());
    }
    let elements = elements(ast, lookup, session)?;
    let start = match request.paging_state {
        Some(state) => offset(state, lookup, elements.len())?,
        None => 0,
    };
    let size = request.page_size.map_or(usize::MAX, |size| size as usize);
    let end = start.saturating_add(size).min(elements.len());
    let mut rows = out.rows(&columns);
    for element in &elements[start..end] {
        rows.cell(Some(element.keyspace.as_bytes()));
        rows.cell(Some(element.kind.as_bytes()));
        rows.cell(Some(element.name.as_bytes()));
        if has_statements(&ast.target) {
            rows.cell(element.statement.as_deref().map(str::as_bytes));
        }
        rows.end_row();
    }
    if end < elements.len() {
        let state = PagingState::Description { schema: lookup.schema.version(), offset: end as u32 };
        rows.set_paging_state(&state);
    }
    Ok(())
}

/// Where a description goes on; it has to be that of the same schema.
fn offset(state: &PagingState, lookup: &Lookup<'_>, elements: usize) -> Result<usize> {
    let refused = || Err(ExecError::Protocol("Invalid value for the paging state".to_owned()));
    let PagingState::Description { schema, offset } = state else { return refused() };
    if *offset as usize > elements {
        return refused();
    }
    if *schema != lookup.schema.version() {
        return invalid!(
            "The schema has changed since the previous page of the DESCRIBE statement result. Please retry the DESCRIBE statement."
        );
    }
    Ok(*offset as usize)
}

fn element(keyspace: &str, kind: &'static str, name: &str, statement: Option<String>) -> Element {
    Element { keyspace: quote_identifier(keyspace), kind, name: quote_identifier(name), statement }
}

fn elements(ast: &Describe, lookup: &Lookup<'_>, session: Option<&str>) -> Result<Vec<Element>> {
    let internals = ast.with_internals;
    let all = || lookup.schema.keyspaces();
    Ok(match &ast.target {
        DescribeTarget::Cluster => Vec::new(),
        DescribeTarget::Keyspaces => all().map(|k| element(&k.name, "keyspace", &k.name, None)).collect(),
        DescribeTarget::Tables => in_keyspaces(lookup, session)?
            .iter()
            .flat_map(|k| tables(k).into_iter().map(|t| element(&k.name, "table", &t.name, None)))
            .collect(),
        DescribeTarget::Types => in_keyspaces(lookup, session)?
            .iter()
            .flat_map(|k| k.types.values().map(|t| element(&k.name, "type", &t.name, None)))
            .collect(),
        DescribeTarget::Functions | DescribeTarget::Aggregates => {
            in_keyspaces(lookup, session)?;
            Vec::new()
        }
        DescribeTarget::Schema { full } => {
            let shown = all().filter(|k| *full || !k.system);
            shown.flat_map(|keyspace| whole_keyspace(keyspace, internals)).collect()
        }
        DescribeTarget::Keyspace { name, only } => {
            let name = match (name, session) {
                (Some(name), _) => name.name.as_str(),
                (None, Some(session)) => session,
                (None, None) => return invalid!("No keyspace specified and no current keyspace"),
            };
            let Some(keyspace) = lookup.keyspace(name) else { return not_in_keyspaces(name) };
            match only {
                true => vec![keyspace_element(keyspace)],
                false => whole_keyspace(keyspace, internals),
            }
        }
        DescribeTarget::Table(name) => {
            let keyspace = home(name, lookup, session)?;
            match keyspace.tables.get(&name.name) {
                Some(table) => vec![table_element(keyspace, table, internals)],
                None => return invalid!("Table '{}' not found in keyspace '{}'", name.name, keyspace.name),
            }
        }
        DescribeTarget::Type(name) => {
            let keyspace = home(name, lookup, session)?;
            match keyspace.types.get(&name.name) {
                Some(ty) => {
                    vec![element(&keyspace.name, "type", &ty.name, Some(catalog::describe::create_type(ty)))]
                }
                None => return not_found("User defined type", name, keyspace),
            }
        }
        DescribeTarget::Index(name) => {
            return not_found("Table for existing index", name, home(name, lookup, session)?);
        }
        DescribeTarget::View(name) => {
            return not_found("Materialized view", name, home(name, lookup, session)?);
        }
        DescribeTarget::Function(name) => {
            return not_found("User defined function", name, home(name, lookup, session)?);
        }
        DescribeTarget::Aggregate(name) => {
            return not_found("User defined aggregate", name, home(name, lookup, session)?);
        }
        DescribeTarget::Named(name) => named(name, lookup, session, internals)?,
    })
}

/// The session's keyspace, or all of them.
fn in_keyspaces<'a>(lookup: &Lookup<'a>, session: Option<&str>) -> Result<Vec<&'a std::sync::Arc<Keyspace>>> {
    match session {
        None => Ok(lookup.schema.keyspaces().collect()),
        Some(name) => match lookup.keyspace(name) {
            Some(keyspace) => Ok(vec![keyspace]),
            None => not_in_keyspaces(name),
        },
    }
}

fn not_in_keyspaces<T>(name: &str) -> Result<T> {
    invalid!("'{name}' not found in keyspaces")
}

fn not_found<T>(what: &str, name: &QualifiedName, keyspace: &Keyspace) -> Result<T> {
    invalid!("{what} '{}' not found in '{}'", name.name, keyspace.name)
}

fn home<'a>(name: &QualifiedName, lookup: &Lookup<'a>, session: Option<&str>) -> Result<&'a Keyspace> {
    let Some(keyspace) = name.keyspace.as_deref().or(session) else {
        return invalid!("No keyspace specified and no current keyspace");
    };
    match lookup.keyspace(keyspace) {
        Some(keyspace) => Ok(keyspace),
        None => not_in_keyspaces(keyspace),
    }
}

/// A bare name: a keyspace, or a table of the session's keyspace.
fn named(
    name: &QualifiedName,
    lookup: &Lookup<'_>,
    session: Option<&str>,
    internals: bool,
) -> Result<Vec<Element>> {
    if name.keyspace.is_none()
        && let Some(keyspace) = lookup.keyspace(&name.name)
    {
        return Ok(whole_keyspace(keyspace, internals));
    }
    let Some(of) = name.keyspace.as_deref().or(session) else { return not_in_keyspaces(&name.name) };
    let Some(keyspace) = lookup.keyspace(of) else { return not_in_keyspaces(of) };
    match keyspace.tables.get(&name.name) {
        Some(table) => Ok(vec![table_element(keyspace, table, internals)]),
        None => invalid!("'{}' not found in keyspace '{of}'", name.name),
    }
}

fn keyspace_element(keyspace: &Keyspace) -> Element {
    element(
        &keyspace.name,
        "keyspace",
        &keyspace.name,
        Some(catalog::describe::create_keyspace(keyspace, false)),
    )
}

fn table_element(keyspace: &Keyspace, table: &schema::Table, internals: bool) -> Element {
    let statement = catalog::describe::create_table(table, keyspace.computed, internals);
    element(&table.keyspace, "table", &table.name, Some(statement))
}

/// A keyspace with its types (each after those that it uses) and tables.
fn whole_keyspace(keyspace: &Keyspace, internals: bool) -> Vec<Element> {
    let mut out = vec![keyspace_element(keyspace)];
    let mut waiting: Vec<_> = keyspace.types.values().collect();
    let mut done: Vec<&str> = Vec::new();
    while !waiting.is_empty() {
        let before = waiting.len();
        waiting.retain(|ty| {
            let ready = keyspace.types.keys().all(|other| {
                done.contains(&other.as_str())
                    || !ty.fields.iter().any(|(_, field)| field.references_udt(&keyspace.name, other))
            });
            if ready {
                done.push(&ty.name);
                out.push(element(&keyspace.name, "type", &ty.name, Some(catalog::describe::create_type(ty))));
            }
            !ready
        });
        assert!(waiting.len() < before, "user types do not refer to each other in a circle");
    }
    out.extend(tables(keyspace).into_iter().map(|table| table_element(keyspace, table, internals)));
    out
}

/// The tables in the order of Cassandra's listings, which does not tell case.
fn tables(keyspace: &Keyspace) -> Vec<&schema::Table> {
    let mut tables: Vec<&schema::Table> = keyspace.tables.values().map(|table| &**table).collect();
    tables.sort_by_key(|table| table.name.to_lowercase());
    tables
}
