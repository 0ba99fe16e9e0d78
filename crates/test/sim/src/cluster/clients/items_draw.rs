//! The requests of a client of the DynamoDB API, drawn by chance, and the items in its answers. Pure.

use model::item::{ItemChange, ItemInput, ItemShown};
use rt_sim::Rng;
use serde_json::{Map, Value as Json, json};

use crate::cluster::models::items::{ItemKey, TABLE, VALUE_STEP};
use crate::plan::one_in;

/// Values of the attribute by which the indexes find items.
pub(crate) const GROUPS: i64 = 3;

/// The request that creates the table, with two global indexes and a stream.
pub(crate) fn create_table() -> Json {
    let attribute = |name: &str, kind: &str| json!({ "AttributeName": name, "AttributeType": kind });
    let key = |name: &str, kind: &str| json!({ "AttributeName": name, "KeyType": kind });
    json!({
        "TableName": TABLE,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [attribute("k", "S"), attribute("g", "N"), attribute("v", "N")],
        "KeySchema": [key("k", "HASH")],
        "GlobalSecondaryIndexes": [
            { "IndexName": "by_group", "KeySchema": [key("g", "HASH")], "Projection": { "ProjectionType": "ALL" } },
            {
                "IndexName": "by_value", "KeySchema": [key("g", "HASH"), key("v", "RANGE")],
                "Projection": { "ProjectionType": "KEYS_ONLY" }
            },
        ],
        "StreamSpecification": { "StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES" },
    })
}

fn number(value: i64) -> Json {
    json!({ "N": value.to_string() })
}

fn list(values: &[i64]) -> Json {
    json!({ "L": values.iter().copied().map(number).collect::<Vec<_>>() })
}

/// The key of an item.
pub(crate) fn key(key: ItemKey) -> Json {
    json!({ "k": { "S": key.text() } })
}

/// A consistent read of an item.
pub(crate) fn get(item: ItemKey) -> Json {
    json!({ "TableName": TABLE, "Key": key(item), "ConsistentRead": true })
}

/// The group of an item that has this value, or was given it last.
fn group(value: i64) -> Json {
    number(value / VALUE_STEP % GROUPS)
}

/// A part of a request: the members of a single request that are also those of a transaction's part.
fn part(values: Map<String, Json>, members: Json) -> Json {
    let mut members = members;
    members["TableName"] = TABLE.into();
    if !values.is_empty() {
        members["ExpressionAttributeValues"] = Json::Object(values);
    }
    members["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD".into();
    members
}

/// A write: the operation, the name of the same in a transaction, and its request.
pub(crate) struct WriteRequest {
    pub(crate) operation: &'static str,
    pub(crate) part_name: &'static str,
    pub(crate) body: Json,
}

impl WriteRequest {
    fn new(part_name: &'static str, body: Json) -> Self {
        let operation = match part_name {
            "Put" => "PutItem",
            "Update" => "UpdateItem",
            "Delete" => "DeleteItem",
            _ => "ConditionCheck",
        };
        Self { operation, part_name, body }
    }

    /// As a part of a transaction.
    pub(crate) fn as_part(&self) -> Json {
        json!({ self.part_name: self.body })
    }
}

/// A write of a number by a client that expects it to be `expected`, with a value that nobody else writes. One of a transaction shows nothing.
pub(crate) fn draw_write(
    rng: &mut Rng,
    (expected, value): (Option<i64>, i64),
    in_transaction: bool,
) -> ItemInput {
    let expected = match rng.below(4) {
        0 => None,
        1 => Some(None),
        _ => Some(expected),
    };
    let change = match rng.below(10) {
        0..=5 => ItemChange::Set(value),
        // No two states are the same: a record shows a change only where there is one.
        6 | 7 => ItemChange::Add(value + 1),
        _ => ItemChange::Delete,
    };
    let shown = match rng.below(3) {
        _ if in_transaction => ItemShown::Nothing,
        0 => ItemShown::Nothing,
        1 if matches!(change, ItemChange::Add(_)) => ItemShown::After,
        _ => ItemShown::Before,
    };
    ItemInput::Write { expected, change, shown }
}

/// The request of a write of a number, in one of its forms.
pub(crate) fn write_number(rng: &mut Rng, number_key: u64, input: &ItemInput) -> Option<WriteRequest> {
    let ItemInput::Write { expected, change, shown } = *input else { return None };
    let (item, mut values) = (ItemKey::Number(number_key), Map::new());
    let condition = expected.map(|expected| match expected {
        None => "attribute_not_exists(k)",
        Some(old) => {
            values.insert(":old".to_owned(), number(old));
            "v = :old"
        }
    });
    let (name, mut members) = change_members(rng, item, change, &mut values);
    if let Some(text) = condition {
        members["ConditionExpression"] = text.into();
    }
    match shown {
        ItemShown::Nothing => {}
        ItemShown::Before => members["ReturnValues"] = "ALL_OLD".into(),
        ItemShown::After => members["ReturnValues"] = "ALL_NEW".into(),
    }
    Some(WriteRequest::new(name, part(values, members)))
}

/// A PartiQL statement about a number.
pub(crate) struct StatementRequest {
    pub(crate) input: ItemInput,
    pub(crate) body: Json,
    /// Whether it is refused where there is no item, also when it expects nothing.
    pub(crate) needs_item: bool,
}

/// A statement of a client that expects a number to be `expected`, with a value that nobody else writes.
pub(crate) fn statement(
    rng: &mut Rng,
    number_key: u64,
    (expected, value): (Option<i64>, i64),
) -> StatementRequest {
    let item = ItemKey::Number(number_key).text();
    let write = |expected, change, shown| ItemInput::Write { expected, change, shown };
    let (input, text, needs_item) = match rng.below(5) {
        0 => (ItemInput::Read, format!("SELECT * FROM {TABLE} WHERE k = '{item}'"), false),
        1 => {
            let group = value / VALUE_STEP % GROUPS;
            let text = format!("INSERT INTO {TABLE} VALUE {{'k': '{item}', 'v': {value}, 'g': {group}}}");
            (write(Some(None), ItemChange::Set(value), ItemShown::Nothing), text, false)
        }
        2 => {
            let text = format!("DELETE FROM {TABLE} WHERE k = '{item}' RETURNING ALL OLD *");
            (write(None, ItemChange::Delete, ItemShown::Before), text, false)
        }
        _ => {
            let condition = expected.map(|old| format!(" AND v = {old}")).unwrap_or_default();
            let text =
                format!("UPDATE {TABLE} SET v = {value} WHERE k = '{item}'{condition} RETURNING ALL OLD *");
            (write(expected.map(Some), ItemChange::Set(value), ItemShown::Before), text, true)
        }
    };
    let mut body = json!({ "Statement": text, "ReturnValuesOnConditionCheckFailure": "ALL_OLD" });
    if input == ItemInput::Read {
        body = json!({ "Statement": text, "ConsistentRead": true });
    }
    StatementRequest { input, body, needs_item }
}

/// A change of an item as a part of a BatchWriteItem.
pub(crate) fn batched(item: ItemKey, change: ItemChange) -> Json {
    match change {
        ItemChange::Set(value) | ItemChange::Add(value) => {
            let whole = json!({ "k": { "S": item.text() }, "v": number(value), "g": group(value) });
            json!({ "PutRequest": { "Item": whole } })
        }
        ItemChange::Delete => json!({ "DeleteRequest": { "Key": key(item) } }),
    }
}

/// The members of a request that make a change.
fn change_members(
    rng: &mut Rng,
    item: ItemKey,
    change: ItemChange,
    values: &mut Map<String, Json>,
) -> (&'static str, Json) {
    match change {
        ItemChange::Set(value) if one_in(rng, 2) => {
            let whole = json!({ "k": { "S": item.text() }, "v": number(value), "g": group(value) });
            ("Put", json!({ "Item": whole }))
        }
        ItemChange::Set(value) => {
            values.insert(":v".to_owned(), number(value));
            let text = if one_in(rng, 4) {
                // No index shows it then.
                "SET v = :v REMOVE g"
            } else {
                values.insert(":g".to_owned(), group(value));
                "SET v = :v, g = :g"
            };
            ("Update", json!({ "Key": key(item), "UpdateExpression": text }))
        }
        ItemChange::Add(more) => {
            values.insert(":more".to_owned(), number(more));
            ("Update", json!({ "Key": key(item), "UpdateExpression": "ADD v :more" }))
        }
        ItemChange::Delete => ("Delete", json!({ "Key": key(item) })),
    }
}

/// The condition that a list is as it was read.
fn unchanged(known: &[i64], values: &mut Map<String, Json>) -> &'static str {
    if known.is_empty() {
        return "attribute_not_exists(k)";
    }
    values.insert(":known".to_owned(), list(known));
    "l = :known"
}

/// Appends a value to a list, in any state.
pub(crate) fn append(list_key: u64, value: i64) -> WriteRequest {
    let mut values = Map::new();
    values.insert(":none".to_owned(), list(&[]));
    values.insert(":new".to_owned(), list(&[value]));
    values.insert(":g".to_owned(), group(value));
    let text = "SET l = list_append(if_not_exists(l, :none), :new), g = :g";
    let members = json!({ "Key": key(ItemKey::List(list_key)), "UpdateExpression": text });
    WriteRequest::new("Update", part(values, members))
}

/// Puts a list with one value more than it was read with, if it still is so.
pub(crate) fn replace(list_key: u64, known: &[i64], value: i64) -> WriteRequest {
    let mut values = Map::new();
    let condition = unchanged(known, &mut values);
    let whole: Vec<i64> = known.iter().copied().chain([value]).collect();
    let item = json!({ "k": { "S": ItemKey::List(list_key).text() }, "l": list(&whole), "g": group(value) });
    WriteRequest::new("Put", part(values, json!({ "Item": item, "ConditionExpression": condition })))
}

/// Checks that a list is as it was read.
pub(crate) fn check(list_key: u64, known: &[i64]) -> WriteRequest {
    let mut values = Map::new();
    let condition = unchanged(known, &mut values);
    let members = json!({ "Key": key(ItemKey::List(list_key)), "ConditionExpression": condition });
    WriteRequest::new("ConditionCheck", part(values, members))
}

fn read_number(value: &Json) -> Result<i64, String> {
    let text = value["N"].as_str().and_then(|text| text.parse().ok());
    text.ok_or_else(|| format!("no number: {value}"))
}

/// The number of an item; none where there is no item.
pub(crate) fn shown_number(item: Option<&Json>) -> Result<Option<i64>, String> {
    item.map(|item| read_number(&item["v"])).transpose()
}

/// The list of an item; an empty one where there is no item.
pub(crate) fn shown_list(item: Option<&Json>) -> Result<Vec<i64>, String> {
    let Some(item) = item else { return Ok(Vec::new()) };
    let values = item["l"]["L"].as_array().ok_or_else(|| format!("no list: {item}"))?;
    values.iter().map(read_number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_answers() {
        let item =
            json!({ "k": { "S": "l1" }, "l": { "L": [{ "N": "3" }, { "N": "-4" }] }, "v": { "N": "7" } });
        assert_eq!(shown_list(Some(&item)), Ok(vec![3, -4]));
        assert_eq!(shown_number(Some(&item)), Ok(Some(7)));
        assert_eq!((shown_list(None), shown_number(None)), (Ok(Vec::new()), Ok(None)));
        assert!(shown_list(Some(&json!({ "l": { "L": [{ "S": "3" }] } }))).is_err());
    }

    #[test]
    fn statements_are_those_of_the_meaning() {
        let mut rng = Rng::new(1, 1);
        for expected in (0..100).map(|nth| (nth % 2 == 0).then_some(5)) {
            let StatementRequest { input, body, needs_item } = statement(&mut rng, 1, (expected, 100));
            let text = body["Statement"].as_str().expect("a text");
            let ItemInput::Write { expected: condition, change, shown } = input else {
                assert!(text.starts_with("SELECT") && !needs_item, "{text}");
                continue;
            };
            assert_eq!(text.starts_with("DELETE"), change == ItemChange::Delete, "{text}");
            assert_eq!(text.starts_with("INSERT"), condition == Some(None), "{text}");
            assert_eq!(text.starts_with("UPDATE"), needs_item, "{text}");
            assert_eq!(text.contains("AND v = 5"), condition == Some(Some(5)), "{text}");
            assert_eq!(text.contains("RETURNING"), shown == ItemShown::Before, "{text}");
        }
    }

    #[test]
    fn conditions_are_those_of_the_meaning() {
        let mut rng = Rng::new(1, 1);
        for _ in 0..100 {
            let input = draw_write(&mut rng, (Some(5), 100), false);
            let request = write_number(&mut rng, 1, &input).expect("it is a write");
            let ItemInput::Write { expected, change, .. } = input else { panic!("no write") };
            let text = request.body["ConditionExpression"].as_str();
            match expected {
                None => assert_eq!(text, None),
                Some(None) => assert_eq!(text, Some("attribute_not_exists(k)")),
                Some(Some(_)) => assert_eq!(request.body["ExpressionAttributeValues"][":old"]["N"], "5"),
            }
            assert_eq!(request.operation == "DeleteItem", change == ItemChange::Delete);
        }
    }
}
