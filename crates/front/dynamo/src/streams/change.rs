//! Changes of items, by the rows that a log of changes has of one write: the item before, from the image, and after, from the written cells.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cdc::{END_OF_BATCH, OPERATION, Operation, deleted, deleted_elements};
use items::{Item, item_size, stored};
use mutation::{Clustering, DecoratedKey, Row};
use schema::{ColumnId, Table};
use types::elements::Elements;

use crate::error::{ApiError, ErrorKind, Result};
use crate::intent::Intent;
use crate::names::ATTRIBUTES;
use crate::streams::position::Position;
use crate::table::{ApiTable, INTENT, RowKey};

/// The columns of a table's log.
pub(crate) struct LogColumns {
    end_of_batch: ColumnId,
    operation: ColumnId,
    hash: ColumnId,
    range: Option<ColumnId>,
    attributes: ColumnId,
    deleted: ColumnId,
    deleted_elements: ColumnId,
}

/// A change of one item.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    pub(crate) position: Position,
    /// The token of the item's partition.
    pub(crate) token: i64,
    /// The key attributes.
    pub(crate) key: Item,
    pub(crate) before: Option<Item>,
    pub(crate) after: Option<Item>,
    /// It was deleted because its time to live was over.
    pub(crate) is_expiry: bool,
}

/// The size in memory of a key and the images before and after, about.
pub(crate) fn size_of((key, before, after): (&Item, Option<&Item>, Option<&Item>)) -> usize {
    [Some(key), before, after].into_iter().flatten().map(item_size).sum()
}

impl Change {
    /// Its size in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        size_of((&self.key, self.before.as_ref(), self.after.as_ref()))
    }
}

/// The key of an item in the log's bytes.
type RawKey = (Bytes, Option<Bytes>);

/// The content of an item as rows have it, by the names of its attributes.
#[derive(Clone, Default)]
struct Content {
    exists: bool,
    attributes: BTreeMap<Bytes, Bytes>,
}

impl Content {
    /// By the image of a row.
    fn of_image(attributes: BTreeMap<Bytes, Bytes>) -> Self {
        let exists = match attributes.get(INTENT.as_bytes()) {
            // An intent may stand on an item that has its keys alone, and where there is none.
            Some(bytes) if attributes.len() == 1 && Intent::is_stored(bytes) => {
                Intent::decode(bytes).is_some_and(|intent| intent.on_item)
            }
            _ => true,
        };
        Self { exists, attributes }
    }

    fn has_attributes(&self) -> bool {
        self.attributes.keys().any(|name| !name.is_empty())
    }

    /// The item. A value that is none of the API's, which only CQL can write, is left out: a stream has to go on.
    fn item(&self, key: &Item) -> Option<Item> {
        if !self.exists {
            return None;
        }
        let read = |(name, value): (&Bytes, &Bytes)| {
            let name = std::str::from_utf8(name).ok().filter(|name| !name.is_empty())?;
            Some((name.to_owned(), stored::decode(value)?))
        };
        let mut item: Item = self.attributes.iter().filter_map(read).collect();
        item.extend(key.iter().map(|(name, value)| (name.clone(), value.clone())));
        Some(item)
    }
}

/// The change of an item, as far as the rows of the write were read.
struct Folded {
    before: Content,
    after: Content,
    /// An intent is taken away.
    releases: bool,
    is_expiry: bool,
}

impl LogColumns {
    /// The columns of a table's log.
    ///
    /// # Errors
    /// When the log is that of another table.
    pub(crate) fn new(table: &ApiTable, log: &Arc<Table>) -> Result<Self> {
        let id = |name: &str| match log.column(name) {
            Some(column) => Ok(column.id),
            None => {
                let text = format!("The log of changes of table {} lacks the column {name}", table.name());
                Err(ApiError::new(ErrorKind::InternalServer, text))
            }
        };
        Ok(Self {
            end_of_batch: id(END_OF_BATCH)?,
            operation: id(OPERATION)?,
            hash: id(table.hash().name)?,
            range: table.range().map(|range| id(range.name)).transpose()?,
            attributes: id(ATTRIBUTES)?,
            deleted: id(&deleted(ATTRIBUTES))?,
            deleted_elements: id(&deleted_elements(ATTRIBUTES))?,
        })
    }

    /// Whether a row is the last of its write.
    pub(crate) fn ends_write(&self, row: &Row) -> bool {
        row.cell(self.end_of_batch).is_some_and(|cell| cell.value.first() == Some(&1))
    }

    fn operation(&self, row: &Row) -> Option<Operation> {
        let value = &row.cell(self.operation)?.value;
        Operation::of_code(i8::from_be_bytes(*value.first_chunk()?))
    }

    fn key(&self, row: &Row) -> Option<RawKey> {
        let value = |id: ColumnId| Some(row.cell(id)?.value.clone());
        let range = match self.range {
            Some(range) => Some(value(range)?),
            None => None,
        };
        Some((value(self.hash)?, range))
    }

    fn entries(&self, row: &Row) -> BTreeMap<Bytes, Bytes> {
        let mut entries = BTreeMap::new();
        let Some(cell) = row.cell(self.attributes) else { return entries };
        let Ok(mut elements) = Elements::of_map(&cell.value) else { return entries };
        while let (Some(Ok(Some(name))), Some(Ok(Some(value)))) = (elements.next(), elements.next()) {
            entries.insert(cell.value.slice_ref(name), cell.value.slice_ref(value));
        }
        entries
    }

    /// Adds a row's part of its item.
    fn fold(&self, row: &Row, operation: Operation, folded: &mut Folded) {
        let after = &mut folded.after;
        if operation == Operation::RowDelete {
            *after = Content::default();
            // No other write takes an intent away where it deletes.
            folded.is_expiry = folded.releases;
            return;
        }
        if row.cell(self.deleted).is_some_and(|cell| cell.value.first() == Some(&1)) {
            after.attributes.clear();
        }
        after.attributes.extend(self.entries(row));
        if let Some(cell) = row.cell(self.deleted_elements)
            && let Ok(elements) = Elements::of_set(&cell.value)
        {
            for name in elements.flatten().flatten() {
                folded.releases |= name == INTENT.as_bytes();
                after.attributes.remove(name);
            }
        }
        after.exists |= operation == Operation::Insert || after.has_attributes();
    }

    /// The time of a write that deletes a partition or a range of rows, of which the log does not have the items, by the rows that the log has of it.
    pub(crate) fn unseen_deletion(&self, rows: &[Row]) -> Option<i64> {
        let is_unseen = |row: &&Row| {
            self.operation(row).is_some_and(|operation| {
                use Operation::{
                    PartitionDelete, RangeFromExclusive, RangeFromInclusive, RangeToExclusive,
                    RangeToInclusive,
                };
                matches!(
                    operation,
                    PartitionDelete
                        | RangeFromExclusive
                        | RangeFromInclusive
                        | RangeToExclusive
                        | RangeToInclusive
                )
            })
        };
        let time = rows.iter().find(is_unseen)?.clustering.components().next().flatten();
        time.and_then(Position::of_time).map(|position| position.micros)
    }

    /// The changes of items that one write has made, by the rows that the log has of it. Deletions of whole partitions and of ranges, which
    /// only CQL has, are none.
    pub(crate) fn changes(&self, table: &ApiTable, rows: &[Row]) -> Vec<Change> {
        let time = rows.first().and_then(|row| row.clustering.components().next().flatten());
        let Some(position) = time.and_then(Position::of_time) else { return Vec::new() };
        let mut images: BTreeMap<RawKey, Content> = BTreeMap::new();
        // In the order in which the log names them, which is the same at every replica.
        let mut order: Vec<RawKey> = Vec::new();
        let mut changes: BTreeMap<RawKey, Folded> = BTreeMap::new();
        for row in rows {
            let (Some(operation), Some(key)) = (self.operation(row), self.key(row)) else { continue };
            match operation {
                Operation::Preimage => {
                    images.insert(key, Content::of_image(self.entries(row)));
                }
                Operation::Update | Operation::Insert | Operation::RowDelete => {
                    let folded = changes.entry(key.clone()).or_insert_with(|| {
                        let before = images.remove(&key).unwrap_or_default();
                        order.push(key);
                        Folded { after: before.clone(), before, releases: false, is_expiry: false }
                    });
                    self.fold(row, operation, folded);
                }
                _ => {}
            }
        }
        let change = |(number, key): (usize, RawKey)| {
            let folded = changes.get(&key)?;
            let partition = DecoratedKey::new(key.0);
            let clustering = match &key.1 {
                Some(range) => Clustering::new(&table.table, &[Some(range)]),
                None => Clustering::empty(),
            };
            let token = partition.token;
            let key = table.key_of_row(&RowKey { partition, clustering }).ok()?;
            Some(Change {
                position: Position { number: u32::try_from(number).ok()?, ..position },
                token,
                before: folded.before.item(&key),
                after: folded.after.item(&key),
                is_expiry: folded.is_expiry,
                key,
            })
        };
        order.into_iter().enumerate().filter_map(change).collect()
    }
}
