//! A table's definition: columns with their kinds and in-memory ids, options, dropped columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use stdx::HashMap;
use types::CqlType;

use crate::{InvalidSchema, TableOptions};

/// A table's identity for life: survives renames, differs between a dropped table and its successor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub [u8; 16]);

impl std::fmt::Debug for TableId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::fmt::Display for TableId {
    /// The usual form of a UUID.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// A column's name inside this process: small, never reused in a table while the process lives, so that rows
/// written before an ALTER keep their meaning. It is never stored: files and logs carry column names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnId(pub u16);

/// Which part of a row a column belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ColumnKind {
    /// Part of the partition key.
    PartitionKey,
    /// Part of the clustering key.
    Clustering,
    /// One value a partition.
    Static,
    /// One value a row.
    Regular,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// See [`ColumnId`].
    pub id: ColumnId,
    /// Its name, case kept.
    pub name: String,
    /// Key, clustering, static or regular.
    pub kind: ColumnKind,
    /// Place within the partition or clustering key, from 0; 0 for other kinds.
    pub position: u16,
    /// Type of its values.
    pub ty: CqlType,
    /// Clustering columns only: whether order is descending.
    pub descending: bool,
}

impl Column {
    /// Whether it is kept as one cell an element (unfrozen collection or user type).
    pub fn is_complex(&self) -> bool {
        self.ty.is_multi_cell()
    }
}

/// What remains of a column after ALTER TABLE … DROP: cells written up to `dropped_micros` are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedColumn {
    /// Its former name.
    pub name: String,
    /// Its former type, frozen where it was multi-cell.
    pub ty: CqlType,
    /// Whether it was static.
    pub is_static: bool,
    /// Microseconds since the epoch.
    pub dropped_micros: i64,
}

/// A table's definition. Immutable and shared; build one with [`TableBuilder`].
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its identity.
    pub id: TableId,
    /// Name of its keyspace.
    pub keyspace: String,
    /// Its name.
    pub name: String,
    /// Everything after WITH.
    pub options: TableOptions,
    /// `WITH COMPACT STORAGE` was said when it was made.
    pub compact_storage: bool,
    /// Former columns by name.
    pub dropped_columns: BTreeMap<String, DroppedColumn>,
    /// Partition key, clustering, then static, then regular; the last two in name order.
    columns: Vec<Column>,
    by_name: HashMap<String, usize>,
    by_id: HashMap<ColumnId, usize>,
    partition_key_len: usize,
    clustering_len: usize,
    static_len: usize,
    clustering_types: Vec<(CqlType, bool)>,
    next_id: u16,
    is_counter: bool,
}

impl Table {
    /// All columns: partition key, clustering, static by name, regular by name.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The partition key's columns in key order; never empty.
    pub fn partition_key(&self) -> &[Column] {
        &self.columns[..self.partition_key_len]
    }

    /// The clustering columns in key order.
    pub fn clustering(&self) -> &[Column] {
        &self.columns[self.partition_key_len..][..self.clustering_len]
    }

    /// Static columns in name order.
    pub fn static_columns(&self) -> &[Column] {
        &self.columns[self.partition_key_len + self.clustering_len..][..self.static_len]
    }

    /// Regular columns in name order.
    pub fn regular_columns(&self) -> &[Column] {
        &self.columns[self.partition_key_len + self.clustering_len + self.static_len..]
    }

    /// Clustering types with "is descending", as the ordered encoding takes them.
    pub fn clustering_types(&self) -> &[(CqlType, bool)] {
        &self.clustering_types
    }

    /// A column by name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.by_name.get(name).map(|at| &self.columns[*at])
    }

    /// A static or regular column by id; ids of dropped columns give none.
    pub fn column_by_id(&self, id: ColumnId) -> Option<&Column> {
        self.by_id.get(&id).map(|at| &self.columns[*at])
    }

    /// Whether its non-key columns are counters.
    pub fn is_counter(&self) -> bool {
        self.is_counter
    }

    /// Whether it has static columns.
    pub fn has_static(&self) -> bool {
        self.static_len > 0
    }

    /// `keyspace.name`, for messages.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.keyspace, self.name)
    }

    /// This definition for a process that has used an older one of the same table: what both have keeps the id under which the
    /// process knows it, and everything else gets one that was never used. A column that was dropped and added again is
    /// another one.
    ///
    /// # Panics
    /// When `old` is another table.
    pub fn with_ids_of(&self, old: &Table) -> Table {
        assert_eq!(self.id, old.id, "ids have a meaning within one table");
        let mut builder = self.to_builder();
        builder.next_id = old.next_id;
        let dropped =
            |table: &Table, name: &str| table.dropped_columns.get(name).map(|column| column.dropped_micros);
        for column in &mut builder.columns {
            let same = |known: &&Column| match column.kind {
                ColumnKind::PartitionKey | ColumnKind::Clustering => {
                    (known.kind, known.position) == (column.kind, column.position)
                }
                ColumnKind::Static | ColumnKind::Regular => {
                    known.kind == column.kind
                        && known.name == column.name
                        && dropped(self, &column.name) == dropped(old, &column.name)
                }
            };
            column.id = match old.columns.iter().find(same) {
                Some(known) => known.id,
                None => {
                    let id = builder.next_id;
                    builder.next_id = id.checked_add(1).expect("fewer than 65,536 columns in a table's life");
                    ColumnId(id)
                }
            };
        }
        builder.build().expect("only ids have changed")
    }

    /// A builder that starts from this definition; ids of existing columns stay.
    pub fn to_builder(&self) -> TableBuilder {
        TableBuilder {
            id: self.id,
            keyspace: self.keyspace.clone(),
            name: self.name.clone(),
            options: self.options.clone(),
            compact_storage: self.compact_storage,
            dropped_columns: self.dropped_columns.clone(),
            columns: self.columns.clone(),
            next_id: self.next_id,
        }
    }
}

/// Collects columns and checks the rules that every table obeys.
#[derive(Clone, Debug)]
pub struct TableBuilder {
    /// See [`Table::id`].
    pub id: TableId,
    /// See [`Table::keyspace`].
    pub keyspace: String,
    /// See [`Table::name`].
    pub name: String,
    /// See [`Table::options`].
    pub options: TableOptions,
    /// See [`Table::compact_storage`].
    pub compact_storage: bool,
    /// See [`Table::dropped_columns`].
    pub dropped_columns: BTreeMap<String, DroppedColumn>,
    columns: Vec<Column>,
    next_id: u16,
}

impl TableBuilder {
    /// An empty definition.
    pub fn new(keyspace: impl Into<String>, name: impl Into<String>, id: TableId) -> Self {
        Self {
            id,
            keyspace: keyspace.into(),
            name: name.into(),
            options: TableOptions::default(),
            compact_storage: false,
            dropped_columns: BTreeMap::new(),
            columns: Vec::new(),
            next_id: 0,
        }
    }

    /// Adds the next partition key column.
    pub fn partition_key(self, name: impl Into<String>, ty: CqlType) -> Self {
        self.push(name.into(), ColumnKind::PartitionKey, ty.freeze(), false)
    }

    /// Adds the next clustering column.
    pub fn clustering(self, name: impl Into<String>, ty: CqlType, descending: bool) -> Self {
        self.push(name.into(), ColumnKind::Clustering, ty.freeze(), descending)
    }

    /// Adds a static column.
    pub fn static_column(self, name: impl Into<String>, ty: CqlType) -> Self {
        self.push(name.into(), ColumnKind::Static, ty, false)
    }

    /// Adds a regular column.
    pub fn regular(self, name: impl Into<String>, ty: CqlType) -> Self {
        self.push(name.into(), ColumnKind::Regular, ty, false)
    }

    /// Removes a static or regular column and remembers when, so that its old cells stay hidden.
    pub fn drop_column(&mut self, name: &str, dropped_micros: i64) -> Option<Column> {
        let at = self.columns.iter().position(|column| column.name == name)?;
        let column = self.columns.remove(at);
        let dropped = DroppedColumn {
            name: column.name.clone(),
            ty: column.ty.clone(),
            is_static: column.kind == ColumnKind::Static,
            dropped_micros,
        };
        self.dropped_columns.insert(column.name.clone(), dropped);
        Some(column)
    }

    /// The columns so far, to change types or names in place.
    pub fn columns_mut(&mut self) -> &mut [Column] {
        &mut self.columns
    }

    fn push(mut self, name: String, kind: ColumnKind, ty: CqlType, descending: bool) -> Self {
        let position = match kind {
            ColumnKind::PartitionKey | ColumnKind::Clustering => {
                self.columns.iter().filter(|column| column.kind == kind).count() as u16
            }
            ColumnKind::Static | ColumnKind::Regular => 0,
        };
        let id = ColumnId(self.next_id);
        self.next_id = self.next_id.checked_add(1).expect("fewer than 65,536 columns in a table's life");
        self.columns.push(Column { id, name, kind, position, ty, descending });
        self
    }

    /// The finished table, or the rule that it breaks.
    pub fn build(self) -> Result<Table, InvalidSchema> {
        let mut columns = self.columns;
        columns.sort_by(|a, b| {
            (a.kind, a.position).cmp(&(b.kind, b.position)).then_with(|| match a.kind {
                ColumnKind::PartitionKey | ColumnKind::Clustering => std::cmp::Ordering::Equal,
                ColumnKind::Static | ColumnKind::Regular => a.name.as_bytes().cmp(b.name.as_bytes()),
            })
        });
        let count = |kind| columns.iter().filter(|column| column.kind == kind).count();
        let (partition_key_len, clustering_len) =
            (count(ColumnKind::PartitionKey), count(ColumnKind::Clustering));
        let static_len = count(ColumnKind::Static);
        let mut by_name = HashMap::default();
        let mut by_id = HashMap::default();
        for (at, column) in columns.iter().enumerate() {
            if by_name.insert(column.name.clone(), at).is_some() {
                return Err(InvalidSchema(format!("Multiple definition of identifier {}", column.name)));
            }
            by_id.insert(column.id, at);
        }
        if partition_key_len == 0 {
            return Err(InvalidSchema(format!(
                "No PRIMARY KEY specified for table '{}.{}' (exactly one required)",
                self.keyspace, self.name
            )));
        }
        if static_len > 0 && clustering_len == 0 {
            return Err(InvalidSchema(
                "Static columns are only useful (and thus allowed) if the table has at least one clustering \
                 column"
                    .to_owned(),
            ));
        }
        let is_counter = Self::counters_only(&columns)?;
        let clustering_types = columns[partition_key_len..][..clustering_len]
            .iter()
            .map(|column| (column.ty.clone(), column.descending))
            .collect();
        Ok(Table {
            id: self.id,
            keyspace: self.keyspace,
            name: self.name,
            options: self.options,
            compact_storage: self.compact_storage,
            dropped_columns: self.dropped_columns,
            columns,
            by_name,
            by_id,
            partition_key_len,
            clustering_len,
            static_len,
            clustering_types,
            next_id: self.next_id,
            is_counter,
        })
    }

    fn counters_only(columns: &[Column]) -> Result<bool, InvalidSchema> {
        let counter = |column: &&Column| column.ty == CqlType::Counter;
        let key = |column: &&Column| matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering);
        if let Some(column) = columns.iter().filter(key).find(counter) {
            return Err(InvalidSchema(format!(
                "counter type is not supported for PRIMARY KEY column '{}'",
                column.name
            )));
        }
        let counters = columns.iter().filter(counter).count();
        let values = columns.iter().filter(|column| !key(column)).count();
        match counters {
            0 => Ok(false),
            n if n == values => Ok(true),
            _ => {
                Err(InvalidSchema("Cannot mix counter and non counter columns in the same table".to_owned()))
            }
        }
    }

    /// The finished table behind an `Arc`; for tables whose definition is written in the code.
    ///
    /// # Panics
    /// When the definition is invalid.
    pub fn build_known(self) -> Arc<Table> {
        Arc::new(self.build().expect("a built-in table is valid"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: &[&str]) -> TableBuilder {
        let builder = TableBuilder::new("ks", "t", TableId([1; 16])).partition_key("pk", CqlType::Int);
        names.iter().fold(builder, |builder, name| builder.regular(*name, CqlType::Int))
    }

    #[test]
    fn a_definition_from_elsewhere_keeps_the_ids_of_this_process() {
        let old = table(&["a", "b", "c"]).build().unwrap();
        let mut changed = old.to_builder();
        changed.drop_column("a", 7);
        let here = changed.regular("d", CqlType::Int).build().unwrap();
        // The same content, made anew as a node does that read it.
        let mut anew = table(&["b", "c", "d"]);
        anew.dropped_columns = here.dropped_columns.clone();
        let there = anew.build().unwrap();
        assert_ne!(there.column("b").unwrap().id, old.column("b").unwrap().id);
        assert_eq!(there.with_ids_of(&old), here);
    }

    #[test]
    fn a_column_that_came_back_is_another_one() {
        let old = table(&["a"]).build().unwrap();
        let mut builder = old.to_builder();
        builder.drop_column("a", 7);
        let here = builder.regular("a", CqlType::Int).build().unwrap();
        let mut anew = table(&["a"]);
        anew.dropped_columns = here.dropped_columns.clone();
        let seen = anew.build().unwrap().with_ids_of(&old);
        assert_eq!(seen, here);
        assert_ne!(seen.column("a").unwrap().id, old.column("a").unwrap().id);
    }
}
