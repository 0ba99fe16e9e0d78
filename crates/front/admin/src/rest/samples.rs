//! The most requested partitions of a table on this node.

use std::rc::Rc;
use std::time::Duration;

use engine::TopKeys;
use mutation::DecoratedKey;
use schema::Table;
use serde_json::{Value, json};

use crate::{Answer, Call, Node};

/// How long, how many, and in how many places it is counted when the question does not say.
const DURATION_MILLIS: u64 = 1_000;
const LIST_SIZE: u64 = 10;
const CAPACITY: u64 = 256;
/// Neither memory nor a connection is held for ever.
const DURATION_MILLIS_MAX: u64 = 600_000;
const CAPACITY_MAX: u64 = 65_536;

/// `/storage_service/toppartitions`, whose filter names one table here.
pub(super) async fn of_filter(node: &Rc<dyn Node>, call: &Call) -> Result<Value, Answer> {
    match call.parameter("table_filters") {
        Some(name) if !name.contains(',') => of_table(node, call, name).await,
        _ => Err(Answer::error(400, "table_filters must name one table, as keyspace:table")),
    }
}

/// `/column_family/toppartitions/NAME`.
pub(super) async fn of_table(node: &Rc<dyn Node>, call: &Call, name: &str) -> Result<Value, Answer> {
    let schema = node.schema();
    let (keyspace, table) = name.split_once(':').unwrap_or((name, ""));
    let found = schema.stored().table(keyspace, table).cloned();
    let table = found.ok_or_else(|| {
        Answer::error(404, format!("there is no table {name} with data of its own; name it keyspace:table"))
    })?;
    let during = number(call, "duration", DURATION_MILLIS, DURATION_MILLIS_MAX)?;
    let list = number(call, "list_size", LIST_SIZE, CAPACITY_MAX)? as usize;
    let places = number(call, "capacity", CAPACITY, CAPACITY_MAX)? as usize;
    let sampled = node.sample(table.id, places, Duration::from_millis(during)).await;
    let sampled = sampled.ok_or_else(|| {
        Answer::error(409, format!("{name} is being sampled for somebody else, or was dropped"))
    })?;
    Ok(json!({
        "capacity": places,
        "read_cardinality": sampled.reads.len(),
        "read": listed(&table, &sampled.reads, list),
        "write_cardinality": sampled.writes.len(),
        "write": listed(&table, &sampled.writes, list),
    }))
}

fn number(call: &Call, name: &str, default: u64, max: u64) -> Result<u64, Answer> {
    let Some(text) = call.parameter(name) else { return Ok(default) };
    match text.parse() {
        Ok(number) if (1..=max).contains(&number) => Ok(number),
        _ => Err(Answer::error(400, format!("{name} is {text}; it must be a number from 1 to {max}"))),
    }
}

fn listed(table: &Table, keys: &TopKeys, max: usize) -> Value {
    let one = |sampled: engine::SampledKey| json!({ "partition": key_text(table, &sampled.key), "count": sampled.count, "error": sampled.error });
    json!(keys.top(max).into_iter().map(one).collect::<Vec<_>>())
}

/// A partition's key as people write it: the values with `:` between.
fn key_text(table: &Table, key: &[u8]) -> String {
    let types: Vec<_> = table.partition_key().iter().map(|column| &column.ty).collect();
    match DecoratedKey::components(key, types.len()) {
        Some(values) => {
            let texts: Vec<_> = types.iter().zip(values).map(|(ty, value)| ty.to_text(value)).collect();
            texts.join(":")
        }
        None => format!("{key:02x?}"),
    }
}
