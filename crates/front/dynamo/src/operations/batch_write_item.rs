//! BatchWriteItem.

use std::rc::Rc;

use exec::backend::Coordinator;
use futures_util::future::join_all;
use items::{Item, json};
use mutation::{PartitionUpdate, Timestamp};
use replica::ReadPage;
use serde_json::{Map, Value as Json, json as to_json};

use super::Dynamo;
use super::consumed::Consumed;
use super::size::check_item;
use crate::error::{ApiError, Result, invalid};
use crate::request::{Capacity, Request, table_name};
use crate::table::{self, ApiTable, RowKey, RowWrite};
use crate::vectors;

/// A write of a batch.
struct Write<'a> {
    table: ApiTable,
    /// The table as the request names it: by its name or its ARN.
    named: &'a str,
    key: RowKey,
    /// The attributes of the key, and others where the item is put.
    key_item: Rc<Item>,
    write: RowWrite,
    json: &'a Json,
}

impl Write<'_> {
    /// The units that it consumes where this is the item before.
    fn consumed(&self, before: Option<&Item>) -> Consumed {
        let after = match &self.write {
            RowWrite::Put(item) => Some(&**item),
            _ => None,
        };
        Consumed::of_write(&self.table, before, after)
    }

    /// The operation of one item that makes such a write; it counts the units.
    fn operation(&self) -> &'static str {
        if matches!(self.write, RowWrite::Delete) { "DeleteItem" } else { "PutItem" }
    }
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn batch_write_item(&self, request: &Request) -> Result<Json> {
        let asked = request.capacity()?;
        let shows_collections = request.item_collections()?;
        let writes = self.parts_to_write(request)?;
        // The writes of a table are one after the other.
        for part in writes.chunk_by(|a, b| a.table.table.id == b.table.table.id) {
            let Some(first) = part.first() else { continue };
            self.metrics.batch(&first.table, "BatchWriteItem", part.len() as u64);
        }
        // Writes of one partition are made together.
        let mut groups: Vec<Vec<&Write<'_>>> = Vec::new();
        for write in &writes {
            let same = |first: &&Write<'_>| {
                first.table.table.id == write.table.table.id && first.key.partition == write.key.partition
            };
            match groups.iter_mut().find(|group| group.first().is_some_and(same)) {
                Some(group) => group.push(write),
                None => groups.push(vec![write]),
            }
        }
        let results = join_all(groups.iter().map(|group| self.write_group(group))).await;
        let failed = results.iter().filter(|result| result.is_err()).count();
        let mut left: Map<String, Json> = Map::new();
        let mut done: Vec<(&Write<'_>, Consumed)> = Vec::with_capacity(writes.len());
        let all_failed = failed == groups.len();
        for (group, result) in groups.iter().zip(results) {
            match result {
                Ok(consumed) => done.extend(group.iter().copied().zip(consumed)),
                Err(error) if all_failed || error.kind.is_validation() => return Err(error),
                Err(_) => {
                    for write in group {
                        let list = left.entry(write.named).or_insert_with(|| Json::Array(Vec::new()));
                        if let Some(list) = list.as_array_mut() {
                            list.push(write.json.clone());
                        }
                    }
                }
            }
        }
        for (write, consumed) in &done {
            self.count_write((&write.table, write.operation()), consumed, 1.0);
        }
        let mut answer = to_json!({ "UnprocessedItems": left });
        if let (true, Some(members)) = (asked != Capacity::None, answer.as_object_mut()) {
            let mut consumed: Vec<(&str, Consumed)> = Vec::new();
            for (write, of) in &done {
                match consumed.iter_mut().find(|(name, _)| *name == write.named) {
                    Some((_, sum)) => sum.add(of, 1.0),
                    None => consumed.push((write.named, of.clone())),
                }
            }
            let consumed = consumed.into_iter().map(|(name, of)| of.json(name, asked, None));
            members.insert("ConsumedCapacity".to_owned(), Json::Array(consumed.collect()));
        }
        if let (true, Some(members)) = (shows_collections, answer.as_object_mut()) {
            let done = done.iter().map(|(write, _)| (&write.table, &*write.key_item));
            self.add_item_collections(members, done).await;
        }
        Ok(answer)
    }

    /// Makes the writes of one partition; the units that each consumed. Where nothing is read, there was nothing before.
    async fn write_group(&self, group: &[&Write<'_>]) -> Result<Vec<Consumed>> {
        let Some(first) = group.first() else { return Ok(Vec::new()) };
        let store = self.store();
        let now = store.now();
        let update = |timestamp| {
            let table = &first.table;
            let mut update = PartitionUpdate::new(table.table.clone(), first.key.partition.clone());
            for write in group {
                update.add_row(table.row(&write.key, &write.write, timestamp, now));
            }
            update
        };
        if store.writes_blindly(&first.table) {
            store.write(vec![update(self.executor.timestamp())]).await?;
            return Ok(group.iter().map(|write| write.consumed(None)).collect());
        }
        let rows = group.iter().map(|write| &write.key.clustering);
        let command = first.table.read_rows(&first.key.partition, rows, now);
        let mut consumed = Vec::new();
        let mut decide = |page: &ReadPage, ballot: Timestamp| {
            let before = |write: &&Write<'_>| {
                Ok(write.consumed(first.table.state_of(page, &write.key, now)?.item.as_ref()))
            };
            consumed = group.iter().map(before).collect::<Result<Vec<_>>>()?;
            Ok::<_, ApiError>(Some(update(ballot)))
        };
        store.agree_on(&first.table, &command, &mut decide).await?;
        Ok(consumed)
    }

    fn parts_to_write<'a>(&self, request: &'a Request) -> Result<Vec<Write<'a>>> {
        let tables = json::read_map(request.required("RequestItems")?)?;
        if tables.is_empty() {
            return invalid!(
                "1 validation error detected: Value '{{}}' at 'requestItems' failed to satisfy constraint: Member must \
                 have length greater than or equal to 1"
            );
        }
        let mut given: Vec<(&'a str, Vec<Given<'a>>)> = Vec::with_capacity(tables.len());
        let (mut count, most) = (0, self.settings().batch_writes_max);
        for (name, list) in tables {
            let list = json::read_list(list)?;
            if !(1..=most).contains(&list.len()) {
                return invalid!(
                    "1 validation error detected: Value '{{{name}=[...]}}' at 'requestItems' failed to satisfy constraint: Map value \
                     must satisfy constraint: [Member must have length less than or equal to {most}, Member must have length \
                     greater than or equal to 1]"
                );
            }
            count += list.len();
            if count > most {
                return invalid!("Too many items requested for the BatchWriteItem call");
            }
            let list = list.iter().map(|json| read_write(name, json)).collect::<Result<Vec<_>>>()?;
            given.push((name, list));
        }
        let schema = self.schema();
        let mut writes: Vec<Write<'a>> = Vec::with_capacity(count);
        for (name, list) in given {
            let table = table::find(&schema, &table_name(name)?)?;
            for one in list {
                let write = one.of_table(&table, name)?;
                let same = |known: &Write<'_>| {
                    known.table.table.id == table.table.id
                        && known.key.partition == write.key.partition
                        && known.key.clustering == write.key.clustering
                };
                if writes.iter().any(same) {
                    return invalid!("Provided list of item keys contains duplicates");
                }
                writes.push(write);
            }
        }
        Ok(writes)
    }
}

/// A request of a batch, as far as it can be checked without its table.
struct Given<'a> {
    json: &'a Json,
    item: Item,
    /// Whether the item is to be put; else it is the key of one that is to be deleted.
    is_put: bool,
}

impl<'a> Given<'a> {
    /// The write of the table, which the request names so.
    fn of_table(self, table: &ApiTable, named: &'a str) -> Result<Write<'a>> {
        let Self { json, item, is_put } = self;
        let (key, key_item, write) = if is_put {
            // A key that does not fit is refused as one of a deletion, unlike that of a PutItem.
            let key = table.key(&table.key_attributes(&item))?;
            vectors::check(table, None, &item)?;
            let item = Rc::new(item);
            (key, item.clone(), RowWrite::Put(item))
        } else {
            (table.key(&item)?, Rc::new(item), RowWrite::Delete)
        };
        Ok(Write { table: table.clone(), named, key, key_item, write, json })
    }
}

fn read_write<'a>(named: &str, json: &'a Json) -> Result<Given<'a>> {
    let members = json::read_map(json)?;
    let member = |name: &str, inner: &str| -> Result<Option<Item>> {
        let Some(member) = members.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
        match json::read_map(member)?.get(inner) {
            Some(item) => Ok(Some(json::read_item(item)?)),
            None => invalid!(
                "1 validation error detected: Value null at 'requestItems.{named}.member.1.member.{}.{}' failed to satisfy \
                 constraint: Member must not be null",
                if name == "PutRequest" { "putRequest" } else { "deleteRequest" },
                if inner == "Item" { "item" } else { "key" }
            ),
        }
    };
    match (member("PutRequest", "Item")?, member("DeleteRequest", "Key")?) {
        (Some(item), None) => {
            check_item(&item, "Item size has exceeded the maximum allowed size")?;
            Ok(Given { json, item, is_put: true })
        }
        (None, Some(item)) => Ok(Given { json, item, is_put: false }),
        (None, None) => {
            invalid!("Supplied AttributeValue is empty, must contain exactly one of the supported datatypes")
        }
        (Some(_), Some(_)) => invalid!(
            "Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes"
        ),
    }
}
