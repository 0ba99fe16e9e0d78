//! Tables of the API as tables of the schema: keys, rows, and the API's own options of a table, which are in its extensions.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use coordinator::ClusterView;
use items::{Item, Value, json, stored};
use mutation::row::ColumnData;
use mutation::{
    Cell, Clustering, Complex, ComplexCell, DecoratedKey, DeletionTime, LivenessInfo, PartitionUpdate, Row,
    RowRange, Seconds, Slices, Timestamp,
};
use replica::{Keys, Order, Partitions, ReadCommand, ReadPage};
use schema::{Column, ColumnId, Schema, Table, TableBuilder};
use serde_json::{Map, Value as Json, json};
use types::CqlType;

use crate::backup::parts::Parts;
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::index_definition::{self, SecondaryIndex};
use crate::intent::{Intent, Prepared};
use crate::names::{ATTRIBUTES, arn};
use crate::recovery::Recovered;
use crate::recovery::definition::Recovery;
use crate::storage_indexes;
use crate::streams::definition::{self, Stream};
use crate::throughput::Throughput;
use crate::vector_definition::{self, VectorIndex};

/// The name of a table's keyspace is this and the table's name.
const KEYSPACE_PREFIX: &str = "alternator_";
/// Where an intent stands among the attributes, of which none has an empty name.
pub(crate) const INTENT: &str = "";
/// The extension that makes a table one of the API.
const EXTENSION: &str = "dynamodb";
/// The tag by which ScyllaDB sets the isolation of a table's writes.
pub(crate) const ISOLATION_TAG: &str = "system:write_isolation";
/// The extension that repeats this tag, so that requests need not parse the tags.
const ISOLATION_EXTENSION: &str = "dynamodb_write_isolation";
/// The extension with the secondary indexes, of tables that have some.
const INDEXES_EXTENSION: &str = "dynamodb_indexes";
/// The extension with the vector indexes, of tables that have some.
const VECTORS_EXTENSION: &str = "dynamodb_vectors";
/// The extension with the streams, of tables that have or had some.
const STREAMS_EXTENSION: &str = "dynamodb_streams";
/// The extension with the recovery to a point in time, of tables of which it was ever enabled.
const RECOVERY_EXTENSION: &str = "dynamodb_recovery";
/// The extension of a table that was restored to a point in time of another.
const RECOVERED_EXTENSION: &str = "dynamodb_recovered";
/// The extension of a table that was restored from a backup, and the one that it has until that is done: requests need not parse the first.
const RESTORE_EXTENSION: &str = "dynamodb_restore";
const RESTORING_EXTENSION: &str = "dynamodb_restoring";
/// The extension of a table that goes when its last backup is made, with the id of that backup.
const DELETING_EXTENSION: &str = "dynamodb_deleting";
pub(crate) const HASH_BYTES_MAX: usize = 2048;
pub(crate) const RANGE_BYTES_MAX: usize = 1024;

/// The error of a range key that is longer.
pub(crate) fn too_long_range<T>() -> Result<T> {
    invalid!(
        "One or more parameter values were invalid: Aggregated size of all range keys has exceeded the size limit of \
         {RANGE_BYTES_MAX} bytes"
    )
}

/// The keyspace of a table.
pub(crate) fn keyspace_name(table: &str) -> String {
    format!("{KEYSPACE_PREFIX}{table}")
}

/// The column type of a key's type, and back.
pub(crate) fn column_type(kind: &str) -> Option<CqlType> {
    Some(match kind {
        "S" => CqlType::Text,
        "N" => CqlType::Decimal,
        "B" => CqlType::Blob,
        _ => return None,
    })
}

fn kind_of(column: &Column) -> Option<&'static str> {
    Some(match column.ty {
        CqlType::Text => "S",
        CqlType::Decimal => "N",
        CqlType::Blob => "B",
        _ => return None,
    })
}

/// A column of the key: name and type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyColumn<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: &'static str,
}

/// A table of the API.
#[derive(Clone, Debug)]
pub(crate) struct ApiTable {
    pub(crate) table: Arc<Table>,
    hash: &'static str,
    range: Option<&'static str>,
    attributes: ColumnId,
    indexes: Arc<[SecondaryIndex]>,
    vectors: Arc<[VectorIndex]>,
    is_restoring: bool,
    is_deleting: bool,
}

/// The key of a row.
#[derive(Clone, Debug)]
pub(crate) struct RowKey {
    pub(crate) partition: DecoratedKey,
    pub(crate) clustering: Clustering,
}

impl RowKey {
    /// A number that no other key of a table has.
    pub(crate) fn hash(&self) -> u128 {
        let mut name = self.partition.key.to_vec();
        name.extend_from_slice(&(name.len() as u64).to_be_bytes());
        name.extend_from_slice(self.clustering.position());
        xxhash_rust::xxh3::xxh3_128(&name)
    }
}

/// The recovery to a point in time of a table; none where it was never enabled.
fn recovery_of(table: &Table) -> Option<Recovery> {
    table.options.extensions.get(RECOVERY_EXTENSION).map(|bytes| Recovery::read(bytes))
}

/// A change of a row.
#[derive(Clone, Debug)]
pub(crate) enum RowWrite {
    /// It becomes this item.
    Put(Rc<Item>),
    /// It becomes the second item; attributes that are in neither are left alone.
    Update(Rc<Item>, Rc<Item>),
    /// These attributes are set and removed, regardless of the item.
    Blind(Item, Vec<String>),
    /// It is deleted.
    Delete,
    /// It is deleted as its time to live is over.
    Expire,
    /// A transaction is about to change it.
    Prepare(Rc<Intent>),
    /// The transaction is committed: these attributes are given and removed.
    Commit(Item, Vec<String>),
    /// The transaction changes nothing.
    Release,
}

/// The content of a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State {
    /// The item without prepared writes of a transaction.
    pub(crate) item: Option<Item>,
    /// The intent of a transaction.
    pub(crate) intent: Option<Prepared>,
    /// The latest write of the row that is still to be seen.
    pub(crate) version: Timestamp,
}

/// The row of a key in a page.
pub(crate) fn row_of<'a>(page: &'a ReadPage, key: &RowKey) -> Option<&'a Row> {
    let partition = page.partitions.iter().find(|one| one.key == key.partition)?;
    partition.rows.iter().find(|row| row.clustering == key.clustering)
}

/// The text of an item so far, and the size of its attributes.
struct RowText {
    text: String,
    size: usize,
}

impl RowText {
    fn add(&mut self, name: &str, write: impl FnOnce(&mut String) -> Option<usize>) -> Option<()> {
        self.text.push(if self.text.is_empty() { '{' } else { ',' });
        json::write_name(name, &mut self.text);
        self.size += name.len() + write(&mut self.text)?;
        Some(())
    }
}

/// Finds a table whose items may be read and written.
pub(crate) fn find(schema: &Schema, name: &str) -> Result<ApiTable> {
    let missing = || ApiError::new(ErrorKind::ResourceNotFound, "Requested resource not found");
    find_table(schema, name).filter(ApiTable::is_active).ok_or_else(missing)
}

/// Finds a table that may be changed, whose name is to be in the error.
pub(crate) fn find_active(schema: &Schema, name: &str) -> Result<ApiTable> {
    let table = find_named(schema, name)?;
    match table.occupation() {
        Some(what) => {
            let text = format!("Attempt to change a resource which is still in use: {what}");
            Err(ApiError::new(ErrorKind::ResourceInUse, text))
        }
        None => Ok(table),
    }
}

/// Marks a table that goes when its last backup is made.
pub(crate) fn mark_deleting(builder: &mut TableBuilder, backup: &str) {
    builder.options.extensions.insert(DELETING_EXTENSION.to_owned(), backup.as_bytes().to_vec());
}

/// Finds a table whose name is to be in the error, also while it is being restored or deleted.
pub(crate) fn find_named(schema: &Schema, name: &str) -> Result<ApiTable> {
    find_table(schema, name).ok_or_else(|| {
        let text = format!("Requested resource not found: Table: {name} not found");
        ApiError::new(ErrorKind::ResourceNotFound, text)
    })
}

fn find_table(schema: &Schema, name: &str) -> Option<ApiTable> {
    ApiTable::of(schema.table(&keyspace_name(name), name)?)
}

/// All tables of the API.
pub(crate) fn all(schema: &Schema) -> impl Iterator<Item = ApiTable> {
    schema.keyspaces().filter_map(|keyspace| {
        let name = keyspace.name.strip_prefix(KEYSPACE_PREFIX)?;
        ApiTable::of(keyspace.tables.get(name)?)
    })
}

/// The names of all tables of the API, in order.
pub(crate) fn names(schema: &Schema) -> Vec<String> {
    let mut names: Vec<String> = all(schema).map(|table| table.name().to_owned()).collect();
    names.sort();
    names
}

impl ApiTable {
    pub(crate) fn of(table: &Arc<Table>) -> Option<Self> {
        if !table.options.extensions.contains_key(EXTENSION) {
            return None;
        }
        let hash = kind_of(table.partition_key().first()?)?;
        let range = table.clustering().first().map(kind_of);
        let column = table.column(ATTRIBUTES)?;
        let (attributes, is_map) = (column.id, column.is_complex());
        if !is_map || range == Some(None) {
            return None;
        }
        let indexes = table.options.extensions.get(INDEXES_EXTENSION);
        let indexes = indexes.map(|bytes| index_definition::read(bytes).into()).unwrap_or_default();
        let vectors = table.options.extensions.get(VECTORS_EXTENSION);
        let vectors = vectors.map(|bytes| vector_definition::read(bytes).into()).unwrap_or_default();
        let is_restoring = table.options.extensions.contains_key(RESTORING_EXTENSION);
        let is_deleting = table.options.extensions.contains_key(DELETING_EXTENSION);
        Some(Self {
            table: table.clone(),
            hash,
            range: range.flatten(),
            attributes,
            indexes,
            vectors,
            is_restoring,
            is_deleting,
        })
    }

    /// Whether rows of a backup or of another table are being written to it.
    pub(crate) fn is_restoring(&self) -> bool {
        self.is_restoring
    }

    /// Whether its items may be read and written.
    fn is_active(&self) -> bool {
        !self.is_restoring && !self.is_deleting
    }

    /// The id of its last backup, when it goes as soon as that is made.
    pub(crate) fn last_backup(&self) -> Option<&str> {
        std::str::from_utf8(self.table.options.extensions.get(DELETING_EXTENSION)?).ok()
    }

    /// Its status as the API shows it.
    pub(crate) fn status(&self) -> &'static str {
        match (self.is_restoring, self.is_deleting) {
            (_, true) => "DELETING",
            (true, false) => "CREATING",
            (false, false) => "ACTIVE",
        }
    }

    /// Why it is neither read nor changed now, in the words of errors; none when it is active.
    pub(crate) fn occupation(&self) -> Option<String> {
        match self.status() {
            "CREATING" => Some(format!("Table is being created: {}", self.name())),
            "DELETING" => Some(format!("Table is being deleted: {}", self.name())),
            _ => None,
        }
    }

    /// The streams that are remembered, the oldest first.
    pub(crate) fn streams(&self) -> Vec<Stream> {
        let streams = self.table.options.extensions.get(STREAMS_EXTENSION);
        streams.map(|bytes| definition::read(bytes)).unwrap_or_default()
    }

    /// Its recovery to a point in time.
    pub(crate) fn recovery(&self) -> Recovery {
        recovery_of(&self.table).unwrap_or_default()
    }

    /// The stream with this label.
    ///
    /// # Errors
    /// When there is none that can be read at this time, in microseconds since 1970.
    pub(crate) fn stream(&self, label: &str, now_micros: i64) -> Result<Stream> {
        let mut readable = self.streams().into_iter().filter(|stream| stream.is_readable(now_micros));
        readable
            .find(|stream| stream.label() == label)
            .ok_or_else(|| definition::missing(&format!("{}/stream/{label}", self.arn())))
    }

    pub(crate) fn indexes(&self) -> &[SecondaryIndex] {
        &self.indexes
    }

    pub(crate) fn vectors(&self) -> &[VectorIndex] {
        &self.vectors
    }

    /// The vector index of a name.
    pub(crate) fn vector_index(&self, name: &str) -> Result<&VectorIndex> {
        match self.vectors.iter().find(|index| index.name == name) {
            Some(index) => Ok(index),
            None => invalid!("The table does not have the specified index: {name}"),
        }
    }

    /// The secondary index of a name.
    pub(crate) fn index(&self, name: &str) -> Result<SecondaryIndex> {
        match self.indexes.iter().find(|index| index.name == name) {
            Some(index) => Ok(index.clone()),
            None => invalid!("The table does not have the specified index: {name}"),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.table.name
    }

    pub(crate) fn hash(&self) -> KeyColumn<'_> {
        // A table has a partition key.
        KeyColumn {
            name: self.table.partition_key().first().map_or("", |column| &column.name),
            kind: self.hash,
        }
    }

    pub(crate) fn range(&self) -> Option<KeyColumn<'_>> {
        let column = self.table.clustering().first()?;
        Some(KeyColumn { name: &column.name, kind: self.range? })
    }

    /// The names of its keys.
    pub(crate) fn key_names(&self) -> (&str, Option<&str>) {
        (self.hash().name, self.range().map(|range| range.name))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = KeyColumn<'_>> {
        std::iter::once(self.hash()).chain(self.range())
    }

    pub(crate) fn isolation(&self) -> Option<&[u8]> {
        self.table.options.extensions.get(ISOLATION_EXTENSION).map(Vec::as_slice)
    }

    // ---- keys

    /// The key of an item that is to be stored.
    pub(crate) fn key_of_item(&self, item: &Item) -> Result<RowKey> {
        for key in self.keys() {
            let Some(value) = item.get(key.name) else {
                return invalid!(
                    "One or more parameter values were invalid: Missing the key {} in the item",
                    key.name
                );
            };
            if value.type_name() != key.kind {
                return invalid!(
                    "One or more parameter values were invalid: Type mismatch for key {} expected: {} actual: {}",
                    key.name,
                    key.kind,
                    value.type_name()
                );
            }
        }
        self.row_key(item)
    }

    /// A key, which has the key attributes and no others.
    pub(crate) fn key(&self, key: &Item) -> Result<RowKey> {
        let fits = |column: KeyColumn<'_>| {
            key.get(column.name).is_some_and(|value| value.type_name() == column.kind)
        };
        if key.len() != self.keys().count() || !self.keys().all(fits) {
            return invalid!("The provided key element does not match the schema");
        }
        self.row_key(key)
    }

    fn row_key(&self, item: &Item) -> Result<RowKey> {
        let part = |column: KeyColumn<'_>| {
            let value = item.get(column.name).map(key_bytes).unwrap_or_default();
            let what = match column.kind {
                "S" if value.is_empty() => "string",
                "B" if value.is_empty() => "binary",
                _ => return Ok(value),
            };
            let text = format!(
                "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an \
                 empty {what} value. Key: {}",
                column.name
            );
            Err(ApiError::new(ErrorKind::EmptyKey, text))
        };
        let partition = part(self.hash())?;
        if partition.len() > HASH_BYTES_MAX {
            return invalid!(
                "One or more parameter values were invalid: Size of hashkey has exceeded the maximum size limit \
                 of{HASH_BYTES_MAX} bytes"
            );
        }
        let clustering = match self.range() {
            None => Clustering::empty(),
            Some(column) => {
                let value = part(column)?;
                if value.len() > RANGE_BYTES_MAX {
                    return too_long_range();
                }
                Clustering::new(&self.table, &[Some(&value)])
            }
        };
        Ok(RowKey { partition: DecoratedKey::new(Bytes::from(partition)), clustering })
    }

    /// The partition of a hash key.
    pub(crate) fn partition(&self, hash: &Value) -> Result<DecoratedKey> {
        let bytes = key_bytes(hash);
        if bytes.len() > HASH_BYTES_MAX {
            return invalid!(
                "One or more parameter values were invalid: Size of hashkey has exceeded the maximum size limit \
                 of{HASH_BYTES_MAX} bytes"
            );
        }
        Ok(DecoratedKey::new(Bytes::from(bytes)))
    }

    /// The key attributes of an item.
    pub(crate) fn key_attributes(&self, item: &Item) -> Item {
        let keys = self.keys();
        keys.filter_map(|key| Some((key.name.to_owned(), item.get(key.name)?.clone()))).collect()
    }

    // ---- rows

    /// A read of these rows of one partition.
    pub(crate) fn read_rows<'a>(
        &self,
        partition: &DecoratedKey,
        rows: impl Iterator<Item = &'a Clustering>,
        now: Seconds,
    ) -> ReadCommand {
        let keys = Partitions::Keys(Keys::from_iter([partition.clone()]));
        ReadCommand { slices: self.slices_of(rows), ..ReadCommand::all_of(self.table.clone(), keys, now) }
    }

    /// These rows of a partition.
    pub(crate) fn slices_of<'a>(&self, rows: impl Iterator<Item = &'a Clustering>) -> Slices {
        match self.range() {
            Some(_) => Slices::new(rows.map(RowRange::row).collect()),
            None => Slices::all(),
        }
    }

    /// The state of a row of a page; that of a row that is not there when the page does not have it.
    pub(crate) fn state_of(&self, page: &ReadPage, key: &RowKey, now: Seconds) -> Result<State> {
        row_of(page, key).map_or_else(|| Ok(State::default()), |row| self.state(key, row, now))
    }

    /// The state of a row.
    pub(crate) fn state(&self, key: &RowKey, row: &Row, now: Seconds) -> Result<State> {
        self.readable_state(key, row, now, &|what| Err(self.foreign(what)))
    }

    /// The state of a row, where `unreadable` decides on values that CQL has written and that are none of the API's: they are left out.
    pub(crate) fn readable_state(
        &self,
        key: &RowKey,
        row: &Row,
        now: Seconds,
        unreadable: &dyn Fn(&str) -> Result<()>,
    ) -> Result<State> {
        let mut item = Item::new();
        let mut intent = None;
        let mut version = row.liveness.timestamp;
        if let Some(complex) = row.complex(self.attributes) {
            version = version.max(complex.deletion.timestamp);
            for element in &complex.cells {
                version = version.max(element.cell.timestamp);
                if !element.cell.is_live(now) {
                    continue;
                }
                let value = &element.cell.value;
                if element.path.is_empty() {
                    // An attribute without a name is left out; a write of the item as a whole takes it away.
                    if !Intent::is_stored(value) {
                        continue;
                    }
                    let at = element.cell.timestamp;
                    intent = Intent::decode(value).map(|intent| Prepared { intent: Rc::new(intent), at });
                    if intent.is_none() {
                        unreadable("an attribute")?;
                    }
                    continue;
                }
                let name = std::str::from_utf8(&element.path).ok();
                let (Some(name), Some(value)) = (name, stored::decode(value)) else {
                    unreadable("an attribute")?;
                    continue;
                };
                item.insert(name.to_owned(), value);
            }
        }
        // An intent alone makes no item.
        let is_item =
            !item.is_empty() || if intent.is_some() { row.liveness.is_live(now) } else { row.is_live(now) };
        if is_item {
            self.add_key(key, &mut item)?;
        }
        Ok(State { item: is_item.then_some(item), intent, version })
    }

    /// The text of the item of a live row as it is sent, and the item's size, without the item. None where that takes the item: a transaction holds
    /// the row, or a value is none of the API's.
    pub(crate) fn text_of_row(&self, key: &RowKey, row: &Row, now: Seconds) -> Option<(String, usize)> {
        let range = key.clustering.components().next().map(Option::unwrap_or_default);
        let mut keys = vec![(self.hash(), &key.partition.key[..])];
        keys.extend(self.range().zip(range));
        // In the order of names, as attributes are.
        keys.sort_by_key(|(column, _)| column.name);
        let mut keys = keys.into_iter().peekable();
        let mut text = RowText { text: String::with_capacity(row.memory_size()), size: 0 };
        for element in row.complex(self.attributes).map_or(&[][..], |complex| &complex.cells) {
            if !element.cell.is_live(now) {
                continue;
            }
            if element.path.is_empty() {
                if Intent::is_stored(&element.cell.value) {
                    return None;
                }
                continue;
            }
            let name = std::str::from_utf8(&element.path).ok()?;
            while let Some((column, bytes)) = keys.next_if(|(column, _)| column.name < name) {
                text.add(column.name, |out| stored::write_key_json(column.kind, bytes, out))?;
            }
            // The key is that of the row, as in [`Self::state`].
            if keys.peek().is_none_or(|(column, _)| column.name != name) {
                text.add(name, |out| stored::write_json(&element.cell.value, out))?;
            }
        }
        for (column, bytes) in keys {
            text.add(column.name, |out| stored::write_key_json(column.kind, bytes, out))?;
        }
        text.text.push('}');
        Some((text.text, text.size))
    }

    /// The key attributes of a row.
    pub(crate) fn key_of_row(&self, key: &RowKey) -> Result<Item> {
        let mut item = Item::new();
        self.add_key(key, &mut item)?;
        Ok(item)
    }

    fn add_key(&self, key: &RowKey, item: &mut Item) -> Result<()> {
        let mut insert = |column: Option<KeyColumn<'_>>, bytes: &[u8]| -> Result<()> {
            let Some(column) = column else { return Ok(()) };
            let value = key_value(column.kind, bytes).ok_or_else(|| self.foreign("a key"))?;
            item.insert(column.name.to_owned(), value);
            Ok(())
        };
        insert(Some(self.hash()), &key.partition.key)?;
        if let Some(bytes) = key.clustering.components().next() {
            insert(self.range(), bytes.unwrap_or_default())?;
        }
        Ok(())
    }

    /// The rows of a page that a transaction holds.
    pub(crate) fn held(&self, page: &ReadPage, now: Seconds) -> Result<Vec<(RowKey, Prepared)>> {
        let mut held = Vec::new();
        for partition in &page.partitions {
            for row in &partition.rows {
                let has_intent = row.complex(self.attributes).is_some_and(|complex| {
                    complex.cells.first().is_some_and(|one| one.path.is_empty() && one.cell.is_live(now))
                });
                let key = RowKey { partition: partition.key.clone(), clustering: row.clustering.clone() };
                if has_intent && let Some(intent) = self.state(&key, row, now)?.intent {
                    held.push((key, intent));
                }
            }
        }
        Ok(held)
    }

    /// The error for data that was written through CQL and is no item.
    fn foreign(&self, what: &str) -> ApiError {
        let text = format!(
            "Table {} has {what} that is no value of DynamoDB; it was written through CQL",
            self.name()
        );
        ApiError::new(ErrorKind::InternalServer, text)
    }

    /// The attributes that an update of an item writes, with their values: none of those that are gone. They are those that have changed, and
    /// those of an ordered index of which one has.
    pub(crate) fn changes<'a>(
        &'a self,
        old: &'a Item,
        new: &'a Item,
    ) -> BTreeMap<&'a str, Option<&'a Value>> {
        let names = old.keys().chain(new.keys()).map(String::as_str);
        let changed = names.filter(|name| old.get(*name) != new.get(*name));
        changed.chain(self.rewritten(old, new)).map(|name| (name, new.get(name))).collect()
    }

    /// The attributes that an update of an item writes anew, changed or not, so that those of an ordered index always come of one write.
    fn rewritten<'a>(&'a self, old: &'a Item, new: &'a Item) -> impl Iterator<Item = &'a str> {
        let keys = self.key_names();
        let ordered = self.indexes().iter().filter(move |index| storage_indexes::is_ordered(index, keys));
        let changed = ordered.filter(move |index| {
            let attributes = storage_indexes::attributes(index, keys);
            attributes.map(|key| &key.name).any(|name| old.get(name) != new.get(name))
        });
        changed.flat_map(move |index| storage_indexes::attributes(index, keys).map(|key| key.name.as_str()))
    }

    /// The ordered index of storage of a secondary index, its name and its order; none while it has none.
    pub(crate) fn order(&self, index: &SecondaryIndex) -> Option<(String, Order)> {
        if !storage_indexes::is_ordered(index, self.key_names()) {
            return None;
        }
        let (name, _) = storage_indexes::ordered_index(index);
        let order = Order::new(&self.table, self.table.indexes.get(&name)?)?;
        Some((name, order))
    }

    /// The row that a write makes.
    pub(crate) fn row(&self, key: &RowKey, write: &RowWrite, timestamp: Timestamp, now: Seconds) -> Row {
        let mut row = Row::new(key.clustering.clone());
        let is_attribute = |name: &str| !self.keys().any(|key| key.name == name);
        let element =
            |name: &str, cell: Cell| ComplexCell { path: Bytes::copy_from_slice(name.as_bytes()), cell };
        let with = |name: &str, value: Vec<u8>| element(name, Cell::live(timestamp, Bytes::from(value)));
        let live = |name: &str, value: &Value| with(name, stored::encode(value));
        let dead = |name: &str| element(name, Cell::tombstone(timestamp, now));
        let mut attributes = Complex::empty();
        // By name: cells stand in the order of their paths.
        let mut cells: BTreeMap<&str, ComplexCell> = BTreeMap::new();
        let mut makes_item = true;
        // Those of an item are in order already.
        let mut in_order = Vec::new();
        match write {
            RowWrite::Delete => {
                row.deletion = DeletionTime::new(timestamp, now);
                return row;
            }
            RowWrite::Expire => {
                row.deletion = DeletionTime::new(timestamp, now);
                // It marks the write for the table's stream: no other write deletes an item and takes an intent away.
                makes_item = false;
                cells.insert(INTENT, dead(INTENT));
            }
            RowWrite::Put(item) => {
                attributes.deletion = DeletionTime::new(timestamp - 1, now);
                let attributes = item.iter().filter(|(name, _)| is_attribute(name));
                in_order = attributes.map(|(name, value)| live(name, value)).collect();
            }
            RowWrite::Update(old, new) => {
                cells.extend(self.changes(old, new).into_iter().map(|(name, value)| match value {
                    Some(value) => (name, live(name, value)),
                    None => (name, dead(name)),
                }));
            }
            RowWrite::Blind(set, removed) => {
                cells.extend(removed.iter().map(|name| (name.as_str(), dead(name))));
                cells.extend(set.iter().map(|(name, value)| (name.as_str(), live(name, value))));
            }
            RowWrite::Prepare(intent) => {
                makes_item = false;
                cells.insert(INTENT, with(INTENT, intent.encode()));
            }
            RowWrite::Commit(set, removed) => {
                cells.extend(removed.iter().map(|name| (name.as_str(), dead(name))));
                cells.extend(set.iter().map(|(name, value)| (name.as_str(), live(name, value))));
                cells.insert(INTENT, dead(INTENT));
            }
            RowWrite::Release => {
                makes_item = false;
                cells.insert(INTENT, dead(INTENT));
            }
        }
        in_order.extend(cells.into_iter().filter(|(name, _)| is_attribute(name)).map(|(_, cell)| cell));
        attributes.cells = in_order;
        if makes_item {
            row.liveness = LivenessInfo::forever(timestamp);
        }
        if !attributes.is_empty() {
            row.set(self.attributes, ColumnData::Complex(attributes));
        }
        row
    }

    /// The update of one row.
    pub(crate) fn update(
        &self,
        key: &RowKey,
        write: &RowWrite,
        timestamp: Timestamp,
        now: Seconds,
    ) -> PartitionUpdate {
        let rows = vec![self.row(key, write, timestamp, now)];
        PartitionUpdate::with_rows(self.table.clone(), key.partition.clone(), rows)
    }

    // ---- the API's own options

    pub(crate) fn details(&self) -> Details {
        Details {
            indexes: self.indexes.to_vec(),
            vectors: self.vectors.to_vec(),
            streams: self.streams(),
            ..Details::read(&self.table)
        }
    }

    pub(crate) fn arn(&self) -> String {
        arn(self.name())
    }
}

/// The stored bytes of a key's value.
pub(crate) fn key_bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::S(text) => text.as_bytes().to_vec(),
        Value::N(number) => number.to_decimal(),
        Value::B(bytes) => bytes.clone(),
        _ => Vec::new(),
    }
}

pub(crate) fn key_value(kind: &str, bytes: &[u8]) -> Option<Value> {
    match kind {
        "S" => Some(Value::S(std::str::from_utf8(bytes).ok()?.to_owned())),
        "N" => items::Number::from_decimal(bytes).map(Value::N),
        _ => Some(Value::B(bytes.to_vec())),
    }
}

/// The properties of a table that only the API has.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Details {
    /// Seconds since 1970.
    pub(crate) created: f64,
    pub(crate) on_demand: bool,
    /// When it last became on demand, seconds since 1970; none when it never was.
    pub(crate) on_demand_since: Option<f64>,
    pub(crate) read_units: i64,
    pub(crate) write_units: i64,
    pub(crate) throughput: Throughput,
    /// Of global indexes, by name; those of before have none.
    pub(crate) index_throughput: BTreeMap<String, Throughput>,
    pub(crate) protected: bool,
    pub(crate) class: Option<String>,
    /// The attribute with the second since 1970 after which an item is deleted.
    pub(crate) expires_by: Option<String>,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) indexes: Vec<SecondaryIndex>,
    pub(crate) vectors: Vec<VectorIndex>,
    /// The oldest first; the last may be enabled.
    pub(crate) streams: Vec<Stream>,
    /// Its recovery to a point in time; none where it was never enabled.
    pub(crate) recovery: Option<Recovery>,
    /// The backup that it was restored from.
    pub(crate) restore: Option<Restore>,
    /// The table of which it is the state at a point in time.
    pub(crate) recovered: Option<Recovered>,
}

/// The restoration of a table from a backup.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Restore {
    /// The backup: the last part of its ARN, and the table that it is of.
    pub(crate) backup: String,
    pub(crate) source: String,
    /// When it was asked for, milliseconds since 1970.
    pub(crate) at_millis: i64,
    pub(crate) in_progress: bool,
    /// When a node last recorded that it makes progress, milliseconds since 1970; 0 for never.
    pub(crate) progress_millis: i64,
    /// When it was done, milliseconds since 1970.
    pub(crate) ended_millis: i64,
    /// The parts of nodes; none once it is done.
    pub(crate) parts: Parts,
}

impl Restore {
    /// The ARN of the backup.
    pub(crate) fn source_arn(&self) -> String {
        format!("{}/backup/{}", arn(&self.source), self.backup)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let json: Json = serde_json::from_slice(bytes).ok()?;
        Some(Self {
            backup: json.get("backup")?.as_str()?.to_owned(),
            source: json.get("source")?.as_str()?.to_owned(),
            at_millis: json.get("at")?.as_i64()?,
            in_progress: json.get("in_progress")?.as_bool()?,
            progress_millis: json.get("progress").and_then(Json::as_i64).unwrap_or(0),
            ended_millis: json.get("ended").and_then(Json::as_i64).unwrap_or(0),
            parts: Parts::read(json.get("parts")?)?,
        })
    }

    fn write(&self) -> Vec<u8> {
        let parts = if self.in_progress { self.parts.json() } else { Parts::default().json() };
        let json = json!({
            "backup": self.backup,
            "source": self.source,
            "at": self.at_millis,
            "in_progress": self.in_progress,
            "progress": self.progress_millis,
            "ended": self.ended_millis,
            "parts": parts,
        });
        json.to_string().into_bytes()
    }
}

impl Details {
    fn read(table: &Table) -> Self {
        let bytes = table.options.extensions.get(EXTENSION).map(Vec::as_slice).unwrap_or_default();
        let json: Json = serde_json::from_slice(bytes).unwrap_or_default();
        let integer = |name: &str| json.get(name).and_then(Json::as_i64).unwrap_or(0);
        let boolean = |name: &str| json.get(name).and_then(Json::as_bool).unwrap_or(false);
        let tags = json.get("tags").and_then(Json::as_object);
        let created = json.get("created").and_then(Json::as_f64).unwrap_or(0.0);
        let on_demand = boolean("on_demand");
        let since = json.get("on_demand_since").and_then(Json::as_f64);
        Self {
            created,
            on_demand,
            // Tables of before have no such member.
            on_demand_since: since.or(on_demand.then_some(created)),
            read_units: integer("read_units"),
            write_units: integer("write_units"),
            throughput: json.get("throughput").map(Throughput::read).unwrap_or_default(),
            index_throughput: json
                .get("index_throughput")
                .and_then(Json::as_object)
                .into_iter()
                .flatten()
                .map(|(name, of)| (name.clone(), Throughput::read(of)))
                .collect(),
            protected: boolean("protected"),
            class: json.get("class").and_then(Json::as_str).map(str::to_owned),
            expires_by: json.get("expires_by").and_then(Json::as_str).map(str::to_owned),
            tags: tags
                .into_iter()
                .flatten()
                .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
                .collect(),
            indexes: Vec::new(),
            vectors: Vec::new(),
            streams: Vec::new(),
            recovery: recovery_of(table),
            recovered: table
                .options
                .extensions
                .get(RECOVERED_EXTENSION)
                .and_then(|bytes| Recovered::read(bytes)),
            restore: table.options.extensions.get(RESTORE_EXTENSION).and_then(|bytes| Restore::read(bytes)),
        }
    }

    /// Puts it into a table that is to be built; `keys` are the names of its keys.
    pub(crate) fn write(&self, builder: &mut TableBuilder, keys: (&str, Option<&str>), view: &ClusterView) {
        let are_ordered = storage_indexes::are_ordered(view);
        storage_indexes::attach(&mut builder.indexes, (&self.indexes, &self.vectors), keys, are_ordered);
        if !self.streams.is_empty() || self.recovery.is_some() {
            let is_streamed = self.streams.last().is_some_and(Stream::is_open);
            let days = self.recovery.as_ref().and_then(Recovery::days);
            builder.options.cdc = definition::capture(is_streamed, days);
        }
        let extensions = &mut builder.options.extensions;
        if let Some(recovery) = &self.recovery {
            extensions.insert(RECOVERY_EXTENSION.to_owned(), recovery.write());
        }
        if self.streams.is_empty() {
            extensions.remove(STREAMS_EXTENSION);
        } else {
            extensions.insert(STREAMS_EXTENSION.to_owned(), definition::write(&self.streams));
        }
        if self.indexes.is_empty() {
            extensions.remove(INDEXES_EXTENSION);
        } else {
            extensions.insert(INDEXES_EXTENSION.to_owned(), index_definition::write(&self.indexes));
        }
        if self.vectors.is_empty() {
            extensions.remove(VECTORS_EXTENSION);
        } else {
            extensions.insert(VECTORS_EXTENSION.to_owned(), vector_definition::write(&self.vectors));
        }
        extensions.remove(RESTORING_EXTENSION);
        if let Some(restore) = &self.restore {
            extensions.insert(RESTORE_EXTENSION.to_owned(), restore.write());
        }
        if let Some(recovered) = &self.recovered {
            extensions.insert(RECOVERED_EXTENSION.to_owned(), recovered.write());
        }
        let restores = self.restore.as_ref().is_some_and(|restore| restore.in_progress);
        if restores || self.recovered.as_ref().is_some_and(Recovered::in_progress) {
            extensions.insert(RESTORING_EXTENSION.to_owned(), b"true".to_vec());
        }
        let json = json!({
            "created": self.created,
            "on_demand": self.on_demand,
            "on_demand_since": self.on_demand_since,
            "read_units": self.read_units,
            "write_units": self.write_units,
            "throughput": self.throughput.json(),
            "index_throughput": self
                .index_throughput
                .iter()
                .map(|(name, of)| (name.clone(), of.json()))
                .collect::<Map<_, _>>(),
            "protected": self.protected,
            "class": self.class,
            "expires_by": self.expires_by,
            "tags": self.tags,
        });
        extensions.insert(EXTENSION.to_owned(), json.to_string().into_bytes());
        match self.tags.get(ISOLATION_TAG) {
            Some(mode) => {
                extensions.insert(ISOLATION_EXTENSION.to_owned(), mode.clone().into_bytes());
            }
            None => {
                extensions.remove(ISOLATION_EXTENSION);
            }
        }
    }
}
