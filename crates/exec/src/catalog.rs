//! All tables that statements can name: those of the schema, and virtual ones, whose rows are computed when they are
//! read.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use cql::ast::QualifiedName;
use mutation::row::ColumnData;
use mutation::{Cell, Clustering, Complex, ComplexCell, DecoratedKey, LivenessInfo, Row};
use replica::{PartitionResult, Partitions, ReadCommand, ReadPage, Resume};
use schema::{ColumnKind, Keyspace, Schema, Table};
use smallvec::SmallVec;
use types::CqlType;
use types::elements::{Elements, Fields};

use crate::error::{Result, invalid};

/// One row of a virtual table: a serialised value (or null) for each column, in the order of [`Table::columns`].
pub type VirtualRow = Vec<Option<Bytes>>;

/// A table whose rows are computed.
pub trait VirtualTable {
    /// Its definition. Keyspace and name are those under which it is found.
    fn definition(&self) -> &Arc<Table>;

    /// All rows, in any order. `schema` is that of the statement.
    fn rows(&self, schema: &Schema) -> Vec<VirtualRow>;

    /// Whether TRUNCATE and modifications are silently nothing, as for Cassandra's own stored system tables, instead of
    /// an error.
    fn ignores_writes(&self) -> bool {
        false
    }
}

/// The virtual tables of a node, by keyspace and name, and the keyspaces they live in.
#[derive(Clone, Default)]
pub struct VirtualTables {
    tables: BTreeMap<(String, String), Rc<dyn VirtualTable>>,
    keyspaces: BTreeMap<String, Arc<Keyspace>>,
}

impl VirtualTables {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a keyspace; its tables are added one by one.
    pub fn add_keyspace(&mut self, keyspace: Keyspace) {
        self.keyspaces.insert(keyspace.name.clone(), Arc::new(keyspace));
    }

    /// Adds a table to its keyspace, which must be there.
    pub fn add(&mut self, table: Rc<dyn VirtualTable>) {
        let definition = table.definition().clone();
        let keyspace = self.keyspaces.get_mut(&definition.keyspace).expect("the keyspace was added before");
        Arc::make_mut(keyspace).tables.insert(definition.name.clone(), definition.clone());
        self.tables.insert((definition.keyspace.clone(), definition.name.clone()), table);
    }

    /// A table by keyspace and name.
    pub fn get(&self, keyspace: &str, name: &str) -> Option<&Rc<dyn VirtualTable>> {
        // The map is keyed by owned pairs; a short scan of one keyspace is cheaper than two allocations.
        let start = (keyspace.to_owned(), String::new());
        let mut range = self.tables.range(start..).take_while(|((ks, _), _)| ks == keyspace);
        range.find(|((_, table), _)| table == name).map(|(_, table)| table)
    }

    /// The keyspaces with the definitions of their tables.
    pub fn keyspaces(&self) -> impl Iterator<Item = &Arc<Keyspace>> {
        self.keyspaces.values()
    }

    /// A keyspace by name.
    pub fn keyspace(&self, name: &str) -> Option<&Arc<Keyspace>> {
        self.keyspaces.get(name)
    }
}

/// Where a table's rows come from.
#[derive(Clone)]
pub enum TableSource {
    /// The cluster's storage.
    Stored,
    /// A computation.
    Virtual(Rc<dyn VirtualTable>),
}

impl TableSource {
    /// Whether the rows are computed.
    pub fn is_virtual(&self) -> bool {
        matches!(self, Self::Virtual(_))
    }

    /// The virtual table and the schema that it is read with.
    pub fn as_virtual(&self) -> Option<&Rc<dyn VirtualTable>> {
        match self {
            Self::Stored => None,
            Self::Virtual(table) => Some(table),
        }
    }
}

impl std::fmt::Debug for TableSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_virtual() { "virtual" } else { "stored" })
    }
}

/// Everything that a statement is resolved against.
#[derive(Clone, Copy)]
pub struct Catalog<'a> {
    /// The schema.
    pub schema: &'a Arc<Schema>,
    /// The node's virtual tables.
    pub virtual_tables: &'a VirtualTables,
}

const NO_KEYSPACE: &str =
    "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename";

/// The keyspace that a name means: its own, or the session's.
pub fn keyspace_of<'n>(name: &'n QualifiedName, session: Option<&'n str>) -> Result<&'n str> {
    match name.keyspace.as_deref().or(session) {
        Some(keyspace) => Ok(keyspace),
        None => invalid!("{NO_KEYSPACE}"),
    }
}

impl<'a> Catalog<'a> {
    /// A keyspace, stored or virtual.
    pub fn keyspace(&self, name: &str) -> Option<&'a Arc<Keyspace>> {
        self.schema.keyspace(name).or_else(|| self.virtual_tables.keyspace(name))
    }

    /// All keyspaces, stored and virtual, in name order.
    pub fn keyspaces(&self) -> Vec<&'a Arc<Keyspace>> {
        let mut all: Vec<_> = self.schema.keyspaces().chain(self.virtual_tables.keyspaces()).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// The table that a name means.
    pub fn table(&self, name: &QualifiedName, session: Option<&str>) -> Result<(Arc<Table>, TableSource)> {
        let keyspace = keyspace_of(name, session)?;
        if let Some(table) = self.schema.table(keyspace, &name.name) {
            return Ok((table.clone(), TableSource::Stored));
        }
        if let Some(table) = self.virtual_tables.get(keyspace, &name.name) {
            let source = Bound { table: table.clone(), schema: self.schema.clone() };
            return Ok((table.definition().clone(), TableSource::Virtual(Rc::new(source))));
        }
        match self.keyspace(keyspace) {
            Some(_) => invalid!("table {} does not exist", name.name),
            None => invalid!("keyspace {keyspace} does not exist"),
        }
    }
}

/// A virtual table with the schema of the statement that reads it.
struct Bound {
    table: Rc<dyn VirtualTable>,
    schema: Arc<Schema>,
}

impl VirtualTable for Bound {
    fn definition(&self) -> &Arc<Table> {
        self.table.definition()
    }

    fn rows(&self, _: &Schema) -> Vec<VirtualRow> {
        self.table.rows(&self.schema)
    }

    fn ignores_writes(&self) -> bool {
        self.table.ignores_writes()
    }
}

/// Reads a virtual table: all that the command asks for as one page.
pub fn read_virtual(source: &Rc<dyn VirtualTable>, table: &Arc<Table>, command: &ReadCommand) -> ReadPage {
    let mut partitions: BTreeMap<DecoratedKey, Vec<Row>> = BTreeMap::new();
    for values in source.rows(&Schema::default()) {
        assert_eq!(
            values.len(),
            table.columns().len(),
            "a row of {} has a value a column",
            table.full_name()
        );
        let (key, row) = virtual_row(table, &values);
        let wanted = match &command.partitions {
            Partitions::Keys(keys) => keys.contains(&key),
            Partitions::Range(range) => range.contains(&key),
        };
        if wanted && command.slices.contains(&row.clustering) {
            partitions.entry(key).or_default().push(row);
        }
    }
    let result = |(key, mut rows): (DecoratedKey, Vec<Row>)| {
        rows.sort_by(|a, b| a.clustering.cmp(&b.clustering));
        if command.reversed {
            rows.reverse();
        }
        PartitionResult { rows, ..PartitionResult::new(key) }
    };
    let mut results: Vec<PartitionResult> = match &command.partitions {
        Partitions::Range(_) => partitions.into_iter().map(result).collect(),
        Partitions::Keys(keys) => {
            keys.iter().filter_map(|key| partitions.remove_entry(key)).map(result).collect()
        }
    };
    if let Some(resume) = &command.resume {
        skip_to(&mut results, resume, command.reversed);
    }
    if command.limits.rows_per_partition != u64::MAX {
        let limit = usize::try_from(command.limits.rows_per_partition).unwrap_or(usize::MAX);
        results.iter_mut().for_each(|partition| partition.rows.truncate(limit));
    }
    results.retain(|partition| !partition.rows.is_empty());
    ReadPage { partitions: results, more: None, tombstones: 0 }
}

/// Leaves out what lies before a place, in the order of the read.
fn skip_to(results: &mut Vec<PartitionResult>, resume: &Resume, reversed: bool) {
    match results.iter().position(|partition| partition.key == resume.key) {
        Some(at) => {
            results.drain(..at);
            let Some(first) = results.first_mut() else { return };
            match &resume.clustering {
                None => first.rows.clear(),
                Some(last) => first
                    .rows
                    .retain(|row| if reversed { row.clustering < *last } else { row.clustering > *last }),
            }
        }
        // The partition is gone since: go on behind where it was.
        None => results.retain(|partition| partition.key > resume.key),
    }
}

fn virtual_row(table: &Table, values: &[Option<Bytes>]) -> (DecoratedKey, Row) {
    let key_len = table.partition_key().len();
    let part = |at: usize| values[at].as_deref().unwrap_or_default();
    let parts: SmallVec<[&[u8]; 4]> = (0..key_len).map(part).collect();
    let key = DecoratedKey::new(DecoratedKey::compose(&parts));
    let clustering: SmallVec<[Option<&[u8]>; 4]> =
        values[key_len..][..table.clustering().len()].iter().map(|value| value.as_deref()).collect();
    let mut row = Row::new(Clustering::new(table, &clustering));
    row.liveness = LivenessInfo::forever(0);
    for (column, value) in table.columns().iter().zip(values) {
        let (ColumnKind::Regular, Some(value)) = (column.kind, value) else { continue };
        let data = if column.is_complex() {
            ColumnData::Complex(split(&column.ty, value))
        } else {
            ColumnData::Simple(Cell::live(0, value.clone()))
        };
        row.set(column.id, data);
    }
    (key, row)
}

/// Takes a serialised collection or user type apart into cells, as storage keeps an unfrozen one.
fn split(ty: &CqlType, value: &Bytes) -> Complex {
    let cell = |path: Bytes, value: Bytes| ComplexCell { path, cell: Cell::live(0, value) };
    let shared = |slice: &[u8]| if slice.is_empty() { Bytes::new() } else { value.slice_ref(slice) };
    let flat = |elements: Result<Elements<'_>, types::TypeError>| -> Vec<Bytes> {
        elements.into_iter().flatten().filter_map(|e| e.ok().flatten().map(&shared)).collect()
    };
    let cells = match ty {
        CqlType::Set { .. } => {
            flat(Elements::of_set(value)).into_iter().map(|path| cell(path, Bytes::new())).collect()
        }
        CqlType::Map { .. } => flat(Elements::of_map(value))
            .chunks_exact(2)
            .map(|entry| cell(entry[0].clone(), entry[1].clone()))
            .collect(),
        CqlType::List { .. } => flat(Elements::of_list(value))
            .into_iter()
            .enumerate()
            .map(|(at, item)| {
                let path = types::uuid::time_uuid(at as i64, types::uuid::clock_and_node(0, 0));
                cell(Bytes::copy_from_slice(&path), item)
            })
            .collect(),
        _ => Fields::new(value)
            .enumerate()
            .filter_map(|(at, field)| {
                let field = shared(field.ok().flatten()?);
                Some(cell(Bytes::copy_from_slice(&(at as u16).to_be_bytes()), field))
            })
            .collect(),
    };
    Complex { cells, ..Complex::empty() }
}
