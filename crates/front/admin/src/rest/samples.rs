//! The most requested partitions of tables on this node.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use engine::{Sampled, SampledKey, TopKeys};
use futures_util::future::join_all;
use mutation::DecoratedKey;
use schema::Table;
use serde_json::{Value, json};

use super::stored;
use crate::names::{self, bad, given, list, mandatory};
use crate::{Answer, Call, Node};

/// How many, and in how many places it is counted when the question does not say.
const LIST_SIZE: u64 = 10;
const CAPACITY: u64 = 256;
/// Neither memory nor a connection is held for ever.
const DURATION_MILLIS_MAX: u64 = 600_000;
const CAPACITY_MAX: u64 = 65_536;

/// The most tables that are sampled at the same time.
const TABLES_MAX: usize = 1_000;

/// `/storage_service/toppartitions`: of the tables and keyspaces that its filters name together, or of all users' tables. A partition has its table
/// before it.
pub(super) async fn of_filter(node: &Rc<dyn Node>, call: &Call) -> Result<Value, Answer> {
    let schema = node.schema();
    let filter = |name: &str| list(call.parameter(name).unwrap_or_default());
    let mut tables = Vec::new();
    for name in filter("table_filters") {
        tables.push(stored::table(node, name)?);
    }
    for name in filter("keyspace_filters") {
        let known = names::keyspace(&schema, name)?;
        tables.extend(known.tables.values().filter(|table| !known.computes(&table.name)).cloned());
    }
    if given(call, "table_filters").is_none() && given(call, "keyspace_filters").is_none() {
        let of_users = schema.keyspaces().filter(|keyspace| !keyspace.system);
        tables.extend(of_users.flat_map(|keyspace| keyspace.tables.values()).cloned());
    }
    tables.sort_by_key(|table| table.id);
    tables.dedup_by_key(|table| table.id);
    if tables.len() > TABLES_MAX {
        return Err(bad(format!(
            "at most {TABLES_MAX} tables are sampled at the same time: name keyspaces or tables"
        )));
    }
    sampled(node, call, tables, true).await
}

/// `/column_family/toppartitions/NAME`.
pub(super) async fn of_table(node: &Rc<dyn Node>, call: &Call, name: &str) -> Result<Value, Answer> {
    sampled(node, call, vec![stored::table(node, name)?], false).await
}

/// The samples of tables; each partition with its table before it where that is wanted.
async fn sampled(
    node: &Rc<dyn Node>,
    call: &Call,
    tables: Vec<Arc<Table>>,
    names_tables: bool,
) -> Result<Value, Answer> {
    mandatory(call, "duration")?;
    let during = number(call, "duration", 1, DURATION_MILLIS_MAX)?;
    let max = number(call, "list_size", LIST_SIZE, CAPACITY_MAX)? as usize;
    let places = number(call, "capacity", CAPACITY, CAPACITY_MAX)? as usize;
    let during = Duration::from_millis(during);
    let all = join_all(tables.iter().map(|table| node.sample(table.id, places, during))).await;
    let of: Vec<_> = tables.iter().zip(all).filter_map(|(table, sampled)| Some((table, sampled?))).collect();
    if of.is_empty() && !tables.is_empty() {
        let name = tables.first().map_or_else(String::new, |table| table.full_name());
        return Err(Answer::error(409, format!("{name} is being sampled for somebody else, or was dropped")));
    }
    let listed = |keys: fn(&Sampled) -> &TopKeys| {
        let mut top: Vec<(&Table, SampledKey)> = Vec::new();
        for (table, sampled) in &of {
            top.extend(keys(sampled).top(max).into_iter().map(|key| (&***table, key)));
        }
        top.sort_by_key(|(_, key)| std::cmp::Reverse(key.count));
        top.truncate(max);
        let one = |(table, sampled): (&Table, SampledKey)| {
            let key = key_text(table, &sampled.key);
            let partition = match names_tables {
                true => format!("({}:{}) {key}", table.keyspace, table.name),
                false => key,
            };
            json!({ "partition": partition, "count": sampled.count, "error": sampled.error })
        };
        top.into_iter().map(one).collect::<Value>()
    };
    let cardinality =
        |keys: fn(&Sampled) -> &TopKeys| of.iter().map(|(_, sampled)| keys(sampled).len()).sum::<usize>();
    Ok(json!({
        "capacity": places,
        "read_cardinality": cardinality(|sampled| &sampled.reads),
        "read": listed(|sampled| &sampled.reads),
        "write_cardinality": cardinality(|sampled| &sampled.writes),
        "write": listed(|sampled| &sampled.writes),
    }))
}

fn number(call: &Call, name: &str, default: u64, max: u64) -> Result<u64, Answer> {
    let Some(text) = call.parameter(name) else { return Ok(default) };
    match text.parse() {
        Ok(number) if (1..=max).contains(&number) => Ok(number),
        _ => Err(Answer::error(400, format!("{name} is {text}; it must be a number from 1 to {max}"))),
    }
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
