//! A table as a node stores it, over REST: its directory, distributions of its requests and partitions, the SSTables of a partition, sampled
//! tokens, and whether compactions begin by themselves.

use std::rc::Rc;
use std::sync::Arc;

use engine::SstableFigures;
use replica::{ReplicaError, TableOperation};
use schema::{Table, TombstoneGc};
use serde_json::{Value, json};
use types::CqlType;

use super::{ring, tables};
use crate::names::{self, bad, flag, given, mandatory};
use crate::{Answer, Call, Node};

/// The answer to a request about a table as it is stored; none when it is for something else.
pub(super) async fn answer(
    node: &Rc<dyn Node>,
    call: &Call,
    segments: &[&str],
) -> Option<Result<Answer, Answer>> {
    let asked = match (call.method.as_str(), segments) {
        ("GET", ["torc", "data_paths"]) => data_paths(node, call),
        ("GET", ["storage_service", "sample_key_range"]) => Ok(sampled(node).await),
        ("GET", ["column_family", "sstables", "by_key", name]) => sstables(node, call, name).await,
        ("GET", ["column_family", "autocompaction", name]) => is_compacted(node, name).await,
        ("GET", ["column_family", "minimum_compaction", name]) => threshold(node, name, "min_threshold", 4),
        ("GET", ["column_family", "maximum_compaction", name]) => threshold(node, name, "max_threshold", 32),
        ("GET", ["column_family", "built_indexes", name]) => built_indexes(node, name).await,
        ("GET", ["storage_service", "sstable_info"]) => sstable_info(node, call).await,
        ("GET", ["column_family", "tombstone_gc", name]) => purges(node, name).await,
        (
            "GET",
            ["column_family", "metrics", figure, "estimated_histogram" | "estimated_recent_histogram", name],
        ) => histogram(node, figure, name).await,
        ("GET", ["column_family", "metrics", figure, name]) if is_distribution(figure) => {
            histogram(node, figure, name).await
        }
        ("POST" | "DELETE", ["storage_service", "auto_compaction", keyspace]) => {
            let is_on = call.method == "POST";
            let operation = TableOperation::SetAutoCompaction { is_on };
            return Some(tables::operate(node, call, keyspace, operation).await);
        }
        ("POST" | "DELETE", ["column_family", "autocompaction", name]) => {
            let is_on = call.method == "POST";
            return Some(operate(node, name, TableOperation::SetAutoCompaction { is_on }).await);
        }
        ("POST" | "DELETE", ["storage_service", "tombstone_gc", keyspace]) => {
            let is_on = call.method == "POST";
            return Some(
                tables::operate(node, call, keyspace, TableOperation::SetTombstoneGc { is_on }).await,
            );
        }
        ("POST" | "DELETE", ["column_family", "tombstone_gc", name]) => {
            let is_on = call.method == "POST";
            return Some(operate(node, name, TableOperation::SetTombstoneGc { is_on }).await);
        }
        ("POST", ["column_family", "major_compaction", name]) => {
            return Some(compact(node, call, name).await);
        }
        _ => return None,
    };
    Some(asked.map(|value| Answer::json(&value)))
}

/// A table with data of its own, by `keyspace:table`.
pub(super) fn table(node: &Rc<dyn Node>, name: &str) -> Result<Arc<Table>, Answer> {
    let schema = node.schema();
    let found = names::column_family(&schema, name)?;
    match schema.stored().table(&found.keyspace, &found.name) {
        Some(table) => Ok(table.clone()),
        None => Err(bad(format!("{name} has no data of its own"))),
    }
}

fn data_paths(node: &Rc<dyn Node>, call: &Call) -> Result<Value, Answer> {
    let schema = node.schema();
    let (keyspace, names) = (given(call, "keyspace"), given(call, "cf"));
    if let Some(unknown) = keyspace.filter(|name| schema.keyspace(name).is_none()) {
        return Err(Answer::error(404, format!("Can't find a keyspace {unknown}")));
    }
    let names: Vec<&str> = names.map_or_else(Vec::new, |names| names.split(',').collect());
    let known = |name: &&str| keyspace.is_some_and(|keyspace| schema.table(keyspace, name).is_some());
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        return Err(Answer::error(404, format!("there is no table {unknown} in the keyspace")));
    }
    let stored = schema.stored();
    let is_wanted = |table: &&Arc<Table>| {
        keyspace.is_none_or(|keyspace| table.keyspace == keyspace)
            && (names.is_empty() || names.contains(&table.name.as_str()))
    };
    let one = |table: &Arc<Table>| {
        let path = node.table_directory(table);
        json!({ "keyspace": table.keyspace, "table": table.name, "paths": [path.to_string_lossy()] })
    };
    Ok(stored.tables().filter(is_wanted).map(one).collect())
}

/// Tokens of sampled partitions of all tables of users, as texts.
async fn sampled(node: &Rc<dyn Node>) -> Value {
    let schema = node.schema();
    let mut tokens = Vec::new();
    let of_users = schema.keyspaces().filter(|keyspace| !keyspace.system);
    for table in of_users.flat_map(|keyspace| keyspace.tables.values()) {
        tokens.extend(node.sampled_tokens(table.id).await);
    }
    tokens.sort_unstable();
    tokens.dedup();
    tokens.iter().map(ToString::to_string).collect()
}

/// The SSTables of a partition, whose key is written as its columns with colons between.
async fn sstables(node: &Rc<dyn Node>, call: &Call, name: &str) -> Result<Value, Answer> {
    let table = table(node, name)?;
    let text = mandatory(call, "key")?;
    let key = match given(call, "format") {
        Some("hex") => {
            bytes_of(text).ok_or_else(|| bad(format!("{text} is no key in hexadecimal digits")))?
        }
        None | Some("plain") => {
            let key = ring::key(&table, text);
            let wrong = |error| bad(format!("the key does not fit {}: {error}", table.full_name()));
            key.map_err(wrong)?.to_vec()
        }
        Some(other) => return Err(bad(format!("format is hex or plain, not {other}"))),
    };
    let found = node.sstables_of(table.id, key).await;
    let paths = found.map_err(|error| Answer::error(500, format!("{}: {error}", table.full_name())))?;
    Ok(paths.iter().map(|path| path.to_string_lossy().into_owned()).collect())
}

/// The bytes of hexadecimal digits, one or more pairs.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let is_hex = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let pair = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    if is_hex { (0..digits.len()).step_by(2).map(pair).collect() } else { None }
}

/// Whether compactions of a table begin by themselves, on all shards and by its definition.
async fn is_compacted(node: &Rc<dyn Node>, name: &str) -> Result<Value, Answer> {
    let table = table(node, name)?;
    let shards = node.figures().await;
    let mut stored = shards.iter().flat_map(|shard| &shard.engine.tables).filter(|(id, _)| *id == table.id);
    let by_definition = table.options.compaction.get("enabled").is_none_or(|text| text != "false");
    Ok(json!(by_definition && stored.all(|(_, stats)| !stats.auto_compaction_stopped)))
}

async fn operate(node: &Rc<dyn Node>, name: &str, operation: TableOperation) -> Result<Answer, Answer> {
    let table = table(node, name)?;
    let done = node.operate(table.id, operation).await;
    done.map_err(|error| Answer::error(500, format!("{}: {error}", table.full_name())))?;
    Ok(Answer::done())
}

/// Merges the SSTables of a table, after a flush unless the call says that there is to be none.
async fn compact(node: &Rc<dyn Node>, call: &Call, name: &str) -> Result<Answer, Answer> {
    if flag(call, "split_output", false)? {
        return Err(bad("split_output is not supported: the strategy of the table divides what it writes"));
    }
    if flag(call, "flush_memtables", true)? {
        operate(node, name, TableOperation::Flush).await?;
    }
    operate(node, name, TableOperation::Compact).await
}

/// Whether compactions purge tombstones of a table, on all shards and by its definition.
async fn purges(node: &Rc<dyn Node>, name: &str) -> Result<Value, Answer> {
    let table = table(node, name)?;
    let shards = node.figures().await;
    let mut stored = shards.iter().flat_map(|shard| &shard.engine.tables).filter(|(id, _)| *id == table.id);
    let by_definition = table.options.tombstone_gc != TombstoneGc::Disabled;
    Ok(json!(by_definition && stored.all(|(_, stats)| !stats.tombstone_gc_stopped)))
}

async fn built_indexes(node: &Rc<dyn Node>, name: &str) -> Result<Value, Answer> {
    let table = table(node, name)?;
    let built = node.built_indexes().await;
    Ok(built.into_iter().filter(|(id, _)| *id == table.id).map(|(_, name)| name).collect())
}

/// The SSTables of the table `cf` of a keyspace, of all tables of it, or of all that are stored.
async fn sstable_info(node: &Rc<dyn Node>, call: &Call) -> Result<Value, Answer> {
    let schema = node.schema();
    let tables = match (given(call, "keyspace"), given(call, "cf")) {
        (Some(keyspace), names) => names::tables(&schema, keyspace, names)?,
        (None, Some(_)) => return Err(bad("a table is that of a keyspace: name it")),
        (None, None) => schema.stored().tables().cloned().collect(),
    };
    let mut all = Vec::new();
    for table in tables.iter().filter(|table| schema.stored().table(&table.keyspace, &table.name).is_some()) {
        let sstables = match node.sstables(table.id).await {
            // Dropped since it was listed.
            Err(ReplicaError::UnknownTable(_)) => continue,
            found => found.map_err(|error| Answer::error(500, format!("{}: {error}", table.full_name())))?,
        };
        let sstables: Vec<Value> = sstables.iter().map(sstable).collect();
        all.push(json!({ "keyspace": table.keyspace, "table": table.name, "sstables": sstables }));
    }
    Ok(json!(all))
}

fn sstable(figures: &SstableFigures) -> Value {
    let mut shown = json!({
        "size": figures.disk_bytes, "data_size": figures.data_bytes, "index_size": figures.index_bytes,
        "filter_size": figures.filter_bytes, "generation": figures.generation, "level": figures.level,
        "version": figures.version,
    });
    if let Some(micros) = figures.created_micros {
        shown["timestamp"] = json!(CqlType::Timestamp.to_text(&(micros / 1_000).to_be_bytes()));
    }
    shown
}

/// A bound of a table's compaction strategy on the SSTables of one compaction.
fn threshold(node: &Rc<dyn Node>, name: &str, option: &str, default: u64) -> Result<Value, Answer> {
    let table = table(node, name)?;
    let given = table.options.compaction.get(option).and_then(|text| text.parse().ok());
    Ok(json!(given.unwrap_or(default)))
}

/// Whether a figure of a table is a distribution that has no other form.
fn is_distribution(figure: &str) -> bool {
    matches!(
        figure,
        "sstables_per_read_histogram" | "estimated_row_size_histogram" | "estimated_column_count_histogram"
    )
}

/// A distribution: bounds of buckets and counts, with one count more for values above all bounds; the largest value where it is known.
async fn histogram(node: &Rc<dyn Node>, figure: &str, name: &str) -> Result<Value, Answer> {
    let table = table(node, name)?;
    let histograms = node.table_histograms(table.id).await.unwrap_or_default();
    let requests = &histograms.requests;
    Ok(match figure {
        "read_latency" => recent(requests.reads.buckets(), requests.reads.max),
        "write_latency" => recent(requests.writes.buckets(), requests.writes.max),
        "range_latency" => recent(requests.scans.buckets(), requests.scans.max),
        "sstables_per_read_histogram" => recent(requests.sstables.buckets(), requests.sstables.max),
        "estimated_row_size_histogram" => sizes(histograms.partition_bytes.buckets(), histograms.sstables),
        "estimated_column_count_histogram" => sizes(histograms.cells.buckets(), histograms.sstables),
        _ => return Err(Answer::error(404, format!("the histogram {figure} is not known"))),
    })
}

fn recent(buckets: impl Iterator<Item = (u64, u64)>, max: u64) -> Value {
    let (bounds, mut counts): (Vec<u64>, Vec<u64>) = buckets.unzip();
    counts.push(0);
    json!({ "bucket_offsets": bounds, "buckets": counts, "max": max })
}

fn sizes(buckets: impl Iterator<Item = (Option<u64>, u64)>, sstables: u64) -> Value {
    let (bounds, counts): (Vec<Option<u64>>, Vec<u64>) = buckets.unzip();
    let bounds: Vec<u64> = bounds.into_iter().flatten().collect();
    json!({ "bucket_offsets": bounds, "buckets": counts, "sstables": sstables })
}
