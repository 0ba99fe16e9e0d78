//! BatchGetItem.

use exec::backend::Coordinator;
use futures_util::future::join_all;
use items::{Item, Projection, Substitutions, item_size, json};
use serde_json::{Map, Value as Json};

use super::Dynamo;
use super::consumed::Consumed;
use super::size::read_units;
use crate::error::{Result, invalid};
use crate::reply::{ANSWER_TEXT_BYTES, Reply, Texts};
use crate::request::{Capacity, Request, constraint, table_name};
use crate::table::{self, ApiTable, RowKey};

/// Keys of a request.
const KEYS_MAX: usize = 100;
/// Keys that are read at once.
const KEYS_AT_ONCE: usize = 10;
/// Bytes of the items of an answer: the keys from the first item on that is beyond them stay unprocessed.
const ANSWER_BYTES: usize = 16 << 20;

/// The request for one table, as far as it can be checked without the table.
struct Asked<'a> {
    named: &'a str,
    json: &'a Json,
    keys: Vec<Item>,
    projection: Option<Projection>,
    consistent: bool,
}

/// The keys of one table.
struct Part<'a> {
    table: ApiTable,
    /// As the request names it: by its name or its ARN.
    named: &'a str,
    json: &'a Json,
    keys: Vec<(Item, RowKey)>,
    projection: Option<Projection>,
    consistent: bool,
}

impl Part<'_> {
    /// The same request for these keys alone.
    fn of_keys(&self, keys: Vec<Json>) -> Json {
        let mut request = self.json.clone();
        if let Some(members) = request.as_object_mut() {
            members.insert("Keys".to_owned(), Json::Array(keys));
        }
        request
    }
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn batch_get_item(&self, request: &Request) -> Result<Reply> {
        let asked = request.capacity()?;
        let parts = self.parts_to_get(request)?;
        for part in &parts {
            self.metrics.batch(&part.table, "BatchGetItem", part.keys.len() as u64);
        }
        let (mut responses, mut left, mut consumed) = (String::new(), Map::new(), Vec::new());
        let (mut bytes, mut text_bytes, mut is_full) = (0, 0, false);
        let (mut has_read, mut failed) = (false, None);
        for part in &parts {
            let (mut found, mut units) = (Texts::default(), 0.0);
            let mut keys = part.keys.chunks(KEYS_AT_ONCE);
            let mut unread: Vec<Json> = Vec::new();
            for chunk in keys.by_ref() {
                if is_full || text_bytes + found.bytes() >= ANSWER_TEXT_BYTES {
                    unread.extend(chunk.iter().map(|(key, _)| json::item(key)));
                    continue;
                }
                let store = self.store();
                let reads = chunk.iter().map(|(_, key)| store.get(&part.table, key, part.consistent));
                for ((key, _), item) in chunk.iter().zip(join_all(reads).await) {
                    let item = match item {
                        Ok(item) => item,
                        // The others are answered; this key the client asks for again.
                        Err(error) => {
                            failed = Some(error);
                            unread.push(json::item(key));
                            continue;
                        }
                    };
                    has_read = true;
                    let size = item.as_ref().map_or(0, item_size);
                    is_full |= bytes + size > ANSWER_BYTES;
                    if is_full || text_bytes + found.bytes() >= ANSWER_TEXT_BYTES {
                        unread.push(json::item(key));
                        continue;
                    }
                    bytes += size;
                    units += read_units(size, part.consistent);
                    if let Some(item) = item {
                        match &part.projection {
                            Some(projection) => found.push(&projection.apply(&item)),
                            None => found.push(&item),
                        }
                    }
                }
            }
            let name = part.named;
            text_bytes += found.bytes();
            let comma = if responses.is_empty() { "" } else { "," };
            responses += &format!("{comma}{}:{}", Json::from(name), found.list());
            if !unread.is_empty() {
                left.insert(name.to_owned(), part.of_keys(unread));
            }
            self.metrics.read(Some(&part.table), units);
            consumed.push(Consumed::of_table(units).json(name, asked, None));
        }
        if let (Some(error), false) = (failed, has_read) {
            return Err(error);
        }
        let mut answer = Map::new();
        answer.insert("UnprocessedKeys".to_owned(), Json::Object(left));
        if asked != Capacity::None {
            answer.insert("ConsumedCapacity".to_owned(), Json::Array(consumed));
        }
        Ok(Reply::of_text("Responses", &format!("{{{responses}}}"), answer))
    }

    fn parts_to_get<'a>(&self, request: &'a Request) -> Result<Vec<Part<'a>>> {
        let tables = json::read_map(request.required("RequestItems")?)?;
        if tables.is_empty() {
            return invalid!(
                "1 validation error detected: Value '{{}}' at 'requestItems' failed to satisfy constraint: Member must \
                 have length greater than or equal to 1"
            );
        }
        let mut count = 0;
        let asked = tables.iter().map(|(name, json)| read_part(name, json, &mut count));
        let asked = asked.collect::<Result<Vec<_>>>()?;
        let schema = self.schema();
        let mut parts: Vec<Part<'a>> = Vec::with_capacity(asked.len());
        for Asked { named, json, keys, projection, consistent } in asked {
            let table = table::find(&schema, &table_name(named)?)?;
            if parts.iter().any(|part| part.table.table.id == table.table.id) {
                // By its name and by its ARN; the answer has one list of a table.
                return invalid!("Table {} is named twice in the request", table.name());
            }
            let keys = keys.into_iter().map(|item| {
                let key = table.key(&item)?;
                Ok((item, key))
            });
            let keys = keys.collect::<Result<Vec<_>>>()?;
            parts.push(Part { table, named, json, keys, projection, consistent });
        }
        Ok(parts)
    }
}

/// Reads the request for one table; `count` are the keys of all until now.
fn read_part<'a>(named: &'a str, json: &'a Json, count: &mut usize) -> Result<Asked<'a>> {
    let fields = json::read_map(json)?;
    let field = |name: &str| fields.get(name).filter(|value| !value.is_null());
    let Some(keys) = field("Keys") else {
        let at = format!("requestItems.{named}.member.keys");
        return constraint("null", &at, "Member must not be null");
    };
    let list = json::read_list(keys)?;
    if list.is_empty() {
        return invalid!(
            "1 validation error detected: Value '[]' at 'requestItems.{named}.member.keys' failed to satisfy constraint: \
             Member must have length greater than or equal to 1"
        );
    }
    if list.len() > KEYS_MAX {
        return invalid!(
            "1 validation error detected: Value '[...]' at 'requestItems.{named}.member.keys' failed to satisfy constraint: \
             Member must have length less than or equal to {KEYS_MAX}"
        );
    }
    *count += list.len();
    if *count > KEYS_MAX {
        return invalid!("Too many items requested for the BatchGetItem call");
    }
    let expression = field("ProjectionExpression").map(json::read_string).transpose()?;
    let given = [("ProjectionExpression", expression.is_some())];
    if let (Some(_), Some(_)) = (field("AttributesToGet"), expression) {
        return invalid!(
            "Can not use both expression and non-expression parameters in the same request: Non-expression parameters: \
             {{AttributesToGet}} Expression parameters: {{ProjectionExpression}}"
        );
    }
    let names = Substitutions::read(field("ExpressionAttributeNames"), None, &given, &[])?;
    let projection = match expression {
        Some(text) => Some(Projection::parse(text, &names)?),
        None => field("AttributesToGet").map(items::legacy::attributes_to_get).transpose()?,
    };
    names.check_used()?;
    let consistent = field("ConsistentRead").map(json::read_bool).transpose()?.unwrap_or(false);
    let mut keys: Vec<Item> = Vec::with_capacity(list.len());
    for key in list {
        let key = json::read_item(key)?;
        if keys.contains(&key) {
            return invalid!("Provided list of item keys contains duplicates");
        }
        keys.push(key);
    }
    Ok(Asked { named, json, keys, projection, consistent })
}
