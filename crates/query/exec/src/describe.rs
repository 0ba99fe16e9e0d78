//! DESCRIBE, answered by the server in Cassandra 5.0's form.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use coordinator::ClusterView;
use cql::ast::{Describe, DescribeTarget, QualifiedName};
use schema::{Index, Keyspace, Schema, Table, UserAggregate, UserFunction, UserType};
use topology::NodeIndex;
use types::{CqlType, quote_identifier};

use crate::backend::NodeInfo;
use crate::ddl::captured_base;
use crate::error::{ExecError, Result, invalid};
use crate::lookup::Lookup;
use crate::performer::Performer;
use crate::request::Request;
use crate::roles;
use crate::sink::{PagingState, ResultColumns, RowSink, Sink};

/// One row: keyspace, kind, name and, where it is requested, the statement that makes it.
struct Element {
    /// None for a role or a service level.
    keyspace: Option<String>,
    kind: &'static str,
    name: String,
    statement: Option<String>,
}

impl Element {
    /// For a listing of names.
    fn without_statement(self) -> Self {
        Self { statement: None, ..self }
    }
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

/// The keyspace whose ranges DESCRIBE CLUSTER lists: the one in use, unless it is the server's own.
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
    let data_placement = view.place(&keyspace.replication);
    let placement = data_placement.now();
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
/// When the described object does not exist, or the schema has changed since the page before.
pub(crate) fn run(
    ast: &Describe,
    lookup: &Lookup<'_>,
    ((node, view), performer): ((&NodeInfo, &ClusterView), Option<&Performer<'_>>),
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
    let mut elements = elements(ast, lookup, session)?;
    if matches!(ast.target, DescribeTarget::Schema { .. }) && ast.with_internals {
        let made = roles::describe::statements(lookup.schema, performer, ast.with_passwords)?;
        elements.extend(made.into_iter().map(|(kind, name, statement)| Element {
            keyspace: None,
            kind,
            name: quote_identifier(&name),
            statement: Some(statement),
        }));
    }
    let start = match request.paging_state {
        Some(state) => offset(state, lookup, elements.len())?,
        None => 0,
    };
    let size = request.page_size.map_or(usize::MAX, |size| size as usize);
    let end = start.saturating_add(size).min(elements.len());
    let mut rows = out.rows(&columns);
    for element in &elements[start..end] {
        rows.cell(element.keyspace.as_deref().map(str::as_bytes));
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

/// The offset at which a description resumes; it has to be of the same schema.
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
    Element { keyspace: Some(quote_identifier(keyspace)), kind, name: quote_identifier(name), statement }
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
        DescribeTarget::Functions => in_keyspaces(lookup, session)?
            .iter()
            .flat_map(|k| functions(k).into_iter().map(|one| function_element(one).without_statement()))
            .collect(),
        DescribeTarget::Aggregates => in_keyspaces(lookup, session)?
            .iter()
            .flat_map(|k| aggregates(k).into_iter().map(|one| aggregate_element(one).without_statement()))
            .collect(),
        DescribeTarget::Schema { full } => {
            let shown = all().filter(|k| *full || !k.system);
            shown.flat_map(|keyspace| whole_keyspace(keyspace, lookup.schema, internals)).collect()
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
                false => whole_keyspace(keyspace, lookup.schema, internals),
            }
        }
        DescribeTarget::Named(name) => named(name, lookup, session, internals)?,
        one => object_elements(one, lookup, session, internals)?,
    })
}

/// The elements of one object, overloads of a function, or a table with its indexes, triggers and views.
fn object_elements(
    target: &DescribeTarget,
    lookup: &Lookup<'_>,
    session: Option<&str>,
    internals: bool,
) -> Result<Vec<Element>> {
    Ok(match target {
        DescribeTarget::Table(name) => {
            let keyspace = home(name, lookup, session)?;
            match keyspace
                .tables
                .get(&name.name)
                .filter(|table| table.derivation.is_none() || table.is_cdc_log())
            {
                Some(table) => table_elements(keyspace, table, lookup.schema, internals),
                None => return invalid!("Table '{}' not found in keyspace '{}'", name.name, keyspace.name),
            }
        }
        DescribeTarget::Type(name) => {
            let keyspace = home(name, lookup, session)?;
            match keyspace.types.get(&name.name) {
                Some(ty) => vec![type_element(keyspace, ty)],
                None => return not_found("User defined type", name, keyspace),
            }
        }
        DescribeTarget::Index(name) => {
            let keyspace = home(name, lookup, session)?;
            match keyspace.index(&name.name) {
                Some((table, index)) => vec![index_element(table, index)],
                None => return not_found("Table for existing index", name, keyspace),
            }
        }
        DescribeTarget::View(name) => {
            let keyspace = home(name, lookup, session)?;
            match keyspace.tables.get(&name.name).and_then(|view| view_element(lookup, view, internals)) {
                Some(view) => vec![view],
                None => return not_found("Materialized view", name, keyspace),
            }
        }
        DescribeTarget::Function(name) => {
            let keyspace = home(name, lookup, session)?;
            let overloads = functions(keyspace).into_iter().filter(|one| one.name == name.name);
            let found: Vec<Element> = overloads.map(function_element).collect();
            if found.is_empty() {
                return not_found("User defined function", name, keyspace);
            }
            found
        }
        DescribeTarget::Aggregate(name) => {
            let keyspace = home(name, lookup, session)?;
            let overloads = aggregates(keyspace).into_iter().filter(|one| one.name == name.name);
            let found: Vec<Element> = overloads.map(aggregate_element).collect();
            if found.is_empty() {
                return not_found("User defined aggregate", name, keyspace);
            }
            found
        }
        other => return Err(ExecError::unsupported(&format!("DESCRIBE {other:?}"))),
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

/// A bare name: a keyspace, or a table, view or index of the session's keyspace.
fn named(
    name: &QualifiedName,
    lookup: &Lookup<'_>,
    session: Option<&str>,
    internals: bool,
) -> Result<Vec<Element>> {
    if name.keyspace.is_none()
        && let Some(keyspace) = lookup.keyspace(&name.name)
    {
        return Ok(whole_keyspace(keyspace, lookup.schema, internals));
    }
    let Some(of) = name.keyspace.as_deref().or(session) else { return not_in_keyspaces(&name.name) };
    let Some(keyspace) = lookup.keyspace(of) else { return not_in_keyspaces(of) };
    if let Some(table) = keyspace.tables.get(&name.name) {
        if table.derivation.is_none() || table.is_cdc_log() {
            return Ok(table_elements(keyspace, table, lookup.schema, internals));
        }
        if let Some(view) = view_element(lookup, table, internals) {
            return Ok(vec![view]);
        }
    }
    match keyspace.index(&name.name) {
        Some((table, index)) => Ok(vec![index_element(table, index)]),
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

fn table_element(keyspace: &Keyspace, table: &Table, schema: &Schema, internals: bool) -> Element {
    let statement = match captured_base(table, schema) {
        Some(_) => catalog::describe::shown_log(table, internals),
        None => catalog::describe::create_table(table, keyspace.computed, internals),
    };
    element(&table.keyspace, "table", &table.name, Some(statement))
}

/// A table with its indexes, its views and the options of its log of changes, which are described with it.
fn table_elements(keyspace: &Keyspace, table: &Table, schema: &Schema, internals: bool) -> Vec<Element> {
    let mut out = vec![table_element(keyspace, table, schema, internals)];
    out.extend(in_listed_order(table.indexes.values(), |one| &one.name).map(|one| index_element(table, one)));
    let views = keyspace.views_of(table.id).map(|view| &**view);
    let statement = |view| catalog::describe::create_view(view, table, internals);
    out.extend(
        in_listed_order(views, |view| &view.name)
            .map(|view| element(&view.keyspace, "materialized_view", &view.name, Some(statement(view)))),
    );
    if table.options.cdc.enabled {
        let alter = |log: &Arc<Table>| {
            element(&log.keyspace, "table", &log.name, Some(catalog::describe::alter_log(log)))
        };
        out.extend(schema.cdc_log_of(table).map(alter));
    }
    out
}

/// A materialized view; none when the table is none.
fn view_element(lookup: &Lookup<'_>, view: &Table, internals: bool) -> Option<Element> {
    let derivation = view.derivation.as_ref().filter(|derivation| derivation.is_view())?;
    let base = lookup.schema.table_by_id(derivation.base())?;
    let statement = catalog::describe::create_view(view, base, internals);
    Some(element(&view.keyspace, "materialized_view", &view.name, Some(statement)))
}

fn index_element(table: &Table, index: &Index) -> Element {
    let statement = catalog::describe::create_index(index, table);
    element(&table.keyspace, "index", &index.name, Some(statement))
}

fn type_element(keyspace: &Keyspace, ty: &UserType) -> Element {
    let statement = catalog::describe::create_type(ty, keyspace.type_descriptions.get(&ty.name));
    element(&keyspace.name, "type", &ty.name, Some(statement))
}

fn function_element(function: &UserFunction) -> Element {
    Element {
        keyspace: Some(quote_identifier(&function.keyspace)),
        kind: "function",
        name: catalog::describe::function_name(function),
        statement: Some(catalog::describe::create_function(function)),
    }
}

fn aggregate_element(aggregate: &UserAggregate) -> Element {
    Element {
        keyspace: Some(quote_identifier(&aggregate.keyspace)),
        kind: "aggregate",
        name: catalog::describe::aggregate_name(aggregate),
        statement: Some(catalog::describe::create_aggregate(aggregate)),
    }
}

/// A keyspace with its types (each after those that it uses), functions, aggregates, and tables with their dependents.
fn whole_keyspace(keyspace: &Keyspace, schema: &Schema, internals: bool) -> Vec<Element> {
    let mut out = vec![keyspace_element(keyspace)];
    out.extend(types_in_order(keyspace).into_iter().map(|ty| type_element(keyspace, ty)));
    out.extend(functions(keyspace).into_iter().map(function_element));
    out.extend(aggregates(keyspace).into_iter().map(aggregate_element));
    out.extend(
        tables(keyspace).into_iter().flat_map(|table| table_elements(keyspace, table, schema, internals)),
    );
    out
}

/// The types of a keyspace, each after those that it uses.
fn types_in_order(keyspace: &Keyspace) -> Vec<&UserType> {
    let mut waiting: Vec<_> = keyspace.types.values().collect();
    let mut done: Vec<&UserType> = Vec::new();
    while !waiting.is_empty() {
        let before = waiting.len();
        waiting.retain(|ty| {
            let ready = keyspace.types.keys().all(|other| {
                done.iter().any(|ty| ty.name == *other)
                    || !ty.fields.iter().any(|(_, field)| field.references_udt(&keyspace.name, other))
            });
            if ready {
                done.push(ty);
            }
            !ready
        });
        assert!(waiting.len() < before, "user types do not refer to each other in a circle");
    }
    done
}

/// The statements that make a table or a view anew with its id: the types that it uses, itself, and its indexes. Each does nothing where its
/// object is there already.
pub fn definition(schema: &Schema, table: &Table) -> String {
    let Some(keyspace) = schema.keyspace(&table.keyspace) else { return String::new() };
    let base = table.derivation.as_ref().filter(|derivation| derivation.is_view());
    let statement = match base.and_then(|derivation| schema.table_by_id(derivation.base())) {
        Some(base) => catalog::describe::create_view(table, base, true),
        None => table_element(keyspace, table, schema, true).statement.unwrap_or_default(),
    };
    let mut used: Vec<&UserType> = Vec::new();
    for ty in types_in_order(keyspace).into_iter().rev() {
        let fields = used.iter().flat_map(|ty| &ty.fields).map(|(_, field)| field);
        let columns = table.columns().iter().map(|column| &column.ty);
        if columns.chain(fields).any(|one| one.references_udt(&keyspace.name, &ty.name)) {
            used.push(ty);
        }
    }
    let types = used
        .iter()
        .rev()
        .map(|ty| catalog::describe::create_type(ty, keyspace.type_descriptions.get(&ty.name)));
    let indexes = in_listed_order(table.indexes.values(), |one| &one.name)
        .map(|index| catalog::describe::create_index(index, table));
    types.chain([statement]).chain(indexes).map(|statement| unless_there(&statement) + "\n").collect()
}

/// A time, in milliseconds since the epoch, as statements write it.
pub fn instant(millis: i64) -> String {
    CqlType::Timestamp.to_text(&millis.to_be_bytes())
}

/// The statement with `IF NOT EXISTS`; one that is a comment as it is.
fn unless_there(statement: &str) -> String {
    const KINDS: [&str; 5] = ["TYPE", "TABLE", "MATERIALIZED VIEW", "CUSTOM INDEX", "INDEX"];
    let found = KINDS.iter().find_map(|kind| {
        let rest = statement.strip_prefix(&format!("CREATE {kind} "))?;
        Some(format!("CREATE {kind} IF NOT EXISTS {rest}"))
    });
    found.unwrap_or_else(|| statement.to_owned())
}

/// In the order of Cassandra's listings, which does not tell case.
fn in_listed_order<'a, T>(
    all: impl Iterator<Item = &'a T>,
    name: impl Fn(&T) -> &String,
) -> std::vec::IntoIter<&'a T> {
    let mut all: Vec<&T> = all.collect();
    all.sort_by_key(|one| name(one).to_lowercase());
    all.into_iter()
}

/// The tables that are described by themselves: views come with their table, the storage of an index with the index.
fn tables(keyspace: &Keyspace) -> Vec<&Table> {
    let tables = keyspace.tables.values().map(|table| &**table).filter(|table| table.derivation.is_none());
    in_listed_order(tables, |table| &table.name).collect()
}

fn functions(keyspace: &Keyspace) -> Vec<&UserFunction> {
    in_listed_order(keyspace.functions.values().map(|one| &**one), |one| &one.name).collect()
}

fn aggregates(keyspace: &Keyspace) -> Vec<&UserAggregate> {
    in_listed_order(keyspace.aggregates.values().map(|one| &**one), |one| &one.name).collect()
}
