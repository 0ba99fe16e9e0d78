//! The server's own tables: their definitions are Cassandra 5.0's, their rows are computed when they are read, so that
//! there is no second copy of the schema or of the topology that could drift from the first.
//!
//! `definitions.cql` holds every definition as the statement that would make it.

mod schema_tables;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use schema::{Keyspace, Replication, Schema, Table};
use types::{CqlType, elements};

use crate::catalog::{VirtualRow, VirtualTable, VirtualTables};

/// The version of Cassandra whose behaviour clients may expect.
pub const RELEASE_VERSION: &str = "5.0.6";
/// The version of CQL.
pub const CQL_VERSION: &str = "3.4.7";

const DEFINITIONS: &str = include_str!("definitions.cql");
/// Keyspaces whose tables are virtual in Cassandra too: they are listed in `system_virtual_schema`, all others in
/// `system_schema`.
const VIRTUAL_KEYSPACES: [&str; 2] = ["system_views", "system_virtual_schema"];

/// What `system.local` says of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalNode {
    /// Name of the cluster.
    pub cluster_name: String,
    /// The node's id.
    pub host_id: [u8; 16],
    /// Its datacenter.
    pub datacenter: String,
    /// Its rack.
    pub rack: String,
    /// Its places on the ring.
    pub tokens: Vec<i64>,
    /// Where other nodes reach it.
    pub broadcast: SocketAddr,
    /// Where it listens for other nodes.
    pub listen: SocketAddr,
    /// Where clients reach it.
    pub native: SocketAddr,
    /// When it started, in seconds since the epoch.
    pub generation: i32,
}

/// A virtual table whose rows a closure gives.
struct Computed {
    definition: Arc<Table>,
    rows: Box<dyn Fn(&Table, &Schema) -> Vec<VirtualRow>>,
}

impl VirtualTable for Computed {
    fn definition(&self) -> &Arc<Table> {
        &self.definition
    }

    fn rows(&self, schema: &Schema) -> Vec<VirtualRow> {
        (self.rows)(&self.definition, schema)
    }
}

impl VirtualTables {
    /// Gives rows to a table that is defined already. Each row is made with [`RowBuilder`].
    ///
    /// # Panics
    /// When there is no such table: the names are written in the code.
    pub fn provide(
        &mut self,
        keyspace: &str,
        name: &str,
        rows: impl Fn(&Table, &Schema) -> Vec<VirtualRow> + 'static,
    ) {
        let definition = self.get(keyspace, name).expect("a built-in table").definition().clone();
        self.add(Rc::new(Computed { definition, rows: Box::new(rows) }));
    }
}

/// Puts a row of a virtual table together by the names of its columns.
pub struct RowBuilder<'a> {
    table: &'a Table,
    values: VirtualRow,
}

impl<'a> RowBuilder<'a> {
    /// A row of nulls.
    pub fn new(table: &'a Table) -> Self {
        Self { table, values: vec![None; table.columns().len()] }
    }

    /// Sets a column.
    ///
    /// # Panics
    /// When the table has no such column: the names are written in the code.
    pub fn set(mut self, name: &str, value: impl Into<Bytes>) -> Self {
        let at = self.table.columns().iter().position(|column| column.name == name);
        let at = at.unwrap_or_else(|| panic!("{} has a column {name}", self.table.full_name()));
        self.values[at] = Some(value.into());
        self
    }

    /// Sets a text column.
    pub fn text(self, name: &str, value: &str) -> Self {
        self.set(name, value.as_bytes().to_vec())
    }

    /// Sets an `int` column.
    pub fn int(self, name: &str, value: i32) -> Self {
        self.set(name, value.to_be_bytes().to_vec())
    }

    /// Sets a `bigint` or `timestamp` column.
    pub fn bigint(self, name: &str, value: i64) -> Self {
        self.set(name, value.to_be_bytes().to_vec())
    }

    /// Sets a `double` column.
    pub fn double(self, name: &str, value: f64) -> Self {
        self.set(name, value.to_be_bytes().to_vec())
    }

    /// Sets a `boolean` column.
    pub fn boolean(self, name: &str, value: bool) -> Self {
        self.set(name, vec![u8::from(value)])
    }

    /// Sets an `inet` column.
    pub fn inet(self, name: &str, address: std::net::IpAddr) -> Self {
        match address {
            std::net::IpAddr::V4(ip) => self.set(name, ip.octets().to_vec()),
            std::net::IpAddr::V6(ip) => self.set(name, ip.octets().to_vec()),
        }
    }

    /// Sets a `map<text, text>` column.
    pub fn text_map(self, name: &str, entries: &BTreeMap<String, String>) -> Self {
        let entries = entries.iter().map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec())).collect();
        self.set(name, elements::build_map(&CqlType::Text, entries))
    }

    /// Sets a `set<text>` column.
    pub fn text_set(self, name: &str, items: impl IntoIterator<Item = String>) -> Self {
        let items = items.into_iter().map(String::into_bytes).collect();
        self.set(name, elements::build_set(&CqlType::Text, items))
    }

    /// The row.
    pub fn build(self) -> VirtualRow {
        self.values
    }
}

/// The definitions by keyspace.
fn definitions() -> BTreeMap<String, Vec<Arc<Table>>> {
    let mut out: BTreeMap<String, Vec<Arc<Table>>> = BTreeMap::new();
    for text in DEFINITIONS.split(";\n").map(str::trim).filter(|text| !text.is_empty()) {
        let parsed = cql::parse(text).expect("a built-in definition parses");
        let cql::ast::Statement::CreateTable(ast) = parsed.statement else {
            panic!("a built-in definition makes a table: {text}");
        };
        let table = crate::ddl::built_in_table(&ast).expect("a built-in definition is valid");
        out.entry(table.keyspace.clone()).or_default().push(Arc::new(table));
    }
    out
}

fn replication(keyspace: &str) -> Replication {
    match keyspace {
        "system_auth" => Replication::Simple { factor: 1 },
        "system_distributed" => Replication::Simple { factor: 3 },
        _ => Replication::Local,
    }
}

/// All built-in virtual tables of a node. Those whose rows only the server knows (`system_views.clients`, …) are empty
/// until it [provides](VirtualTables::provide) them.
pub fn tables(node: LocalNode) -> VirtualTables {
    let mut tables = VirtualTables::new();
    let mut listed = Vec::new();
    for (name, definitions) in definitions() {
        let mut keyspace = Keyspace::new(name.clone(), replication(&name));
        keyspace.system = true;
        tables.add_keyspace(keyspace.clone());
        for definition in definitions {
            keyspace.tables.insert(definition.name.clone(), definition.clone());
            tables.add(Rc::new(Computed { definition, rows: Box::new(|_, _| Vec::new()) }));
        }
        listed.push(Arc::new(keyspace));
    }
    let (in_virtual, in_schema): (Vec<_>, Vec<_>) =
        listed.into_iter().partition(|keyspace| VIRTUAL_KEYSPACES.contains(&keyspace.name.as_str()));
    schema_tables::provide(&mut tables, in_schema, in_virtual);
    tables.provide("system", "local", move |table, schema| vec![local(table, schema, &node)]);
    tables
}

fn local(table: &Table, schema: &Schema, node: &LocalNode) -> VirtualRow {
    RowBuilder::new(table)
        .text("key", "local")
        .text("bootstrapped", "COMPLETED")
        .inet("broadcast_address", node.broadcast.ip())
        .int("broadcast_port", i32::from(node.broadcast.port()))
        .text("cluster_name", &node.cluster_name)
        .text("cql_version", CQL_VERSION)
        .text("data_center", &node.datacenter)
        .int("gossip_generation", node.generation)
        .set("host_id", node.host_id.to_vec())
        .inet("listen_address", node.listen.ip())
        .int("listen_port", i32::from(node.listen.port()))
        .text("native_protocol_version", "5")
        .text("partitioner", "org.apache.cassandra.dht.Murmur3Partitioner")
        .text("rack", &node.rack)
        .text("release_version", RELEASE_VERSION)
        .inet("rpc_address", node.native.ip())
        .int("rpc_port", i32::from(node.native.port()))
        .set("schema_version", schema.version().to_vec())
        .text_set("tokens", node.tokens.iter().map(i64::to_string))
        .build()
}
