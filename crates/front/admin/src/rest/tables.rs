//! Tables over REST: maintenance, figures, and snapshots.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use coordinator::{ViewBuildStatus, ViewNode};
use engine::{SnapshotRecord, TableHistograms, TableStats};
use replica::{ReplicaError, SnapshotContent, SnapshotError, TableOperation};
use schema::{Keyspace, Replication, Schema, Table, TableId};
use serde_json::{Value, json};

use super::{averages, ring};
use crate::names::{self, bad, flag, given, list};
use crate::{Answer, Call, Node, uuid};

/// The keyspaces of a `type`, or all. `replication` chooses those of tablets or of vnodes; there are none of tablets.
pub(super) fn keyspaces(schema: &Schema, kind: Option<&str>, replication: Option<&str>) -> Value {
    if replication == Some("tablets") {
        return json!([]);
    }
    let wanted = |keyspace: &Keyspace| match kind {
        Some("user") => !keyspace.system,
        Some("non_local_strategy") => keyspace.replication != Replication::Local,
        _ => true,
    };
    json!(schema.keyspaces().filter(|k| wanted(k)).map(|k| k.name.clone()).collect::<Vec<_>>())
}

pub(super) fn tables(schema: &Schema) -> Value {
    let one =
        |table: &Arc<Table>| json!({ "ks": table.keyspace, "cf": table.name, "type": "ColumnFamilies" });
    json!(schema.tables().map(one).collect::<Vec<_>>())
}

/// Partitions by the number of SSTables that they were merged from.
fn merged(record: &engine::CompactionRecord) -> Value {
    let counts = (1..).zip(&record.rows_merged).filter(|(_, count)| **count > 0);
    json!(
        counts
            .map(|(sources, count): (u64, _)| json!({ "key": sources, "value": count }))
            .collect::<Vec<_>>()
    )
}

/// The compactions that run.
pub(super) async fn compactions(node: &Rc<dyn Node>) -> Value {
    let one = |task: engine::TaskRecord| {
        json!({
            "id": uuid(&task.id), "ks": task.keyspace, "cf": task.table, "task_type": task.kind.name(), "unit": "bytes",
            "completed": task.bytes_done, "total": task.bytes_total,
        })
    };
    let shards = node.figures().await;
    json!(shards.into_iter().flat_map(|shard| shard.engine.compaction_tasks).map(one).collect::<Vec<_>>())
}

/// The compactions that run, without their tables.
pub(super) async fn compaction_info(node: &Rc<dyn Node>) -> Value {
    let one = |task: engine::TaskRecord| {
        json!({
            "operation_type": task.kind.name(), "completed": task.bytes_done, "total": task.bytes_total, "unit": "bytes",
        })
    };
    let shards = node.figures().await;
    shards.into_iter().flat_map(|shard| shard.engine.compaction_tasks).map(one).collect()
}

pub(super) async fn compaction_history(node: &Rc<dyn Node>) -> Value {
    let mut records = Vec::new();
    for figures in node.figures().await {
        records.extend(figures.engine.compaction_history);
    }
    records.sort_by_key(|record| record.ended_micros);
    let one = |record: &engine::CompactionRecord| {
        json!({
            "id": uuid(&record.id), "ks": record.keyspace, "cf": record.table,
            "compacted_at": record.ended_micros / 1_000,
            "bytes_in": record.bytes_in, "bytes_out": record.bytes_out,
            "rows_merged": merged(record), "compaction_type": record.properties,
        })
    };
    json!(records.iter().map(one).collect::<Vec<_>>())
}

/// The tables that a call names: those of its `cf` parameter, or all of the keyspace.
pub(super) fn chosen(node: &Rc<dyn Node>, call: &Call, keyspace: &str) -> Result<Vec<Arc<Table>>, Answer> {
    names::tables(&node.schema(), keyspace, call.parameter("cf"))
}

/// Merges the SSTables of tables, after a flush unless the call says that there is to be none.
pub(super) async fn compact(node: &Rc<dyn Node>, call: &Call, keyspace: &str) -> Result<Answer, Answer> {
    let flushes = flag(call, "flush_memtables", true)?;
    if flag(call, "consider_only_existing_data", false)? {
        return Err(bad(
            "consider_only_existing_data is not supported: what other SSTables and memtables hold is always considered",
        ));
    }
    if flushes {
        operate(node, call, keyspace, TableOperation::Flush).await?;
    }
    operate(node, call, keyspace, TableOperation::Compact).await
}

/// Maintains the tables that a call names.
pub(super) async fn operate(
    node: &Rc<dyn Node>,
    call: &Call,
    keyspace: &str,
    operation: TableOperation,
) -> Result<Answer, Answer> {
    for table in chosen(node, call, keyspace)? {
        let done = match node.operate(table.id, operation.clone()).await {
            // Dropped since it was listed: there is nothing left to do.
            Err(ReplicaError::UnknownTable(_)) => Ok(()),
            done => done,
        };
        done.map_err(|error| Answer::error(500, format!("{}: {error}", table.full_name())))?;
    }
    Ok(Answer::done())
}

/// Makes the indexes of a table anew that the call names in `index`, or all.
pub(super) async fn rebuild_indexes(
    node: &Rc<dyn Node>,
    call: &Call,
    keyspace: &str,
    table: &str,
) -> Result<Answer, Answer> {
    let schema = node.schema();
    let Some(table) = schema.table(keyspace, table) else {
        return Err(Answer::error(404, format!("there is no table {keyspace}.{table}")));
    };
    let names = call.parameter("index").filter(|names| !names.is_empty());
    let names: Vec<String> =
        names.map_or_else(Vec::new, |names| names.split(',').map(str::to_owned).collect());
    if let Some(unknown) = names.iter().find(|name| !table.indexes.contains_key(*name)) {
        let (unknown, table) = (unknown.as_str(), table.full_name());
        return Err(Answer::error(404, format!("there is no index {unknown} on table {table}")));
    }
    let done = node.operate(table.id, TableOperation::RebuildIndexes { names }).await;
    done.map_err(|error| Answer::error(500, format!("{}: {error}", table.full_name())))?;
    Ok(Answer::done())
}

/// Keyspaces that a call names in `kn`, or all of the users'.
fn named_keyspaces(node: &Rc<dyn Node>, call: &Call) -> Vec<String> {
    match given(call, "kn") {
        Some(names) => list(names).into_iter().map(str::to_owned).collect(),
        None => node.schema().keyspaces().filter(|k| !k.system).map(|k| k.name.clone()).collect(),
    }
}

/// The tables that a call for a snapshot names: keyspaces in `kn`, or tables there as `keyspace.table`; tables of one keyspace in `cf`.
fn tables_of_snapshot(node: &Rc<dyn Node>, call: &Call) -> Result<Vec<Arc<Table>>, Answer> {
    let keyspaces = named_keyspaces(node, call);
    if given(call, "cf").is_some() {
        return match (given(call, "kn"), &keyspaces[..]) {
            (None, _) => Err(bad("The keyspace of column families must be specified")),
            (Some(_), [keyspace]) => chosen(node, call, keyspace),
            _ => Err(bad("Only one keyspace allowed when specifying a column family")),
        };
    }
    let schema = node.schema();
    let mut tables = Vec::new();
    for name in keyspaces {
        match name.split_once('.') {
            Some((keyspace, table)) => tables.push(names::table(&schema, keyspace, table)?.clone()),
            None => tables.extend(names::tables(&schema, &name, None)?),
        }
    }
    Ok(tables)
}

fn check_tag(name: &str) -> Result<(), Answer> {
    if engine::is_snapshot_name(name) {
        return Ok(());
    }
    Err(Answer::error(400, "a snapshot needs a tag that can be a directory's name"))
}

/// Makes a snapshot of tables, all or none.
pub(super) async fn take_snapshot(
    node: &Rc<dyn Node>,
    tables: Vec<Arc<Table>>,
    name: String,
    content: SnapshotContent,
) -> Result<(), Answer> {
    let made = node.take_snapshot(tables, name, content).await;
    made.map_err(|error| {
        let why = match &error {
            SnapshotError::Exists { table, name } => {
                let keyspace = table.split('.').next().unwrap_or_default();
                format!("Keyspace {keyspace}: snapshot {name} already exists.")
            }
            SnapshotError::Failed { .. } => error.to_string(),
        };
        Answer::error(500, why)
    })
}

pub(super) async fn snapshot(node: &Rc<dyn Node>, call: &Call) -> Result<Answer, Answer> {
    let none = || Answer::error(500, "You must supply a snapshot name.");
    let name = given(call, "tag").ok_or_else(none)?;
    check_tag(name)?;
    if flag(call, "use_sstable_identifier", false)? {
        return Err(bad("use_sstable_identifier is not supported: SSTables keep their names in a snapshot"));
    }
    let content = match flag(call, "sf", false)? {
        true => SnapshotContent::Flushed,
        false => SnapshotContent::Written,
    };
    take_snapshot(node, tables_of_snapshot(node, call)?, name.to_owned(), content).await?;
    Ok(Answer::done())
}

/// Removes snapshots by the names of the call. They are chosen from the directories: those of dropped tables are removed, too.
pub(super) async fn clear_snapshots(node: &Rc<dyn Node>, call: &Call) -> Result<Answer, Answer> {
    let given = |name: &str| given(call, name);
    let tag = given("tag");
    tag.map_or(Ok(()), check_tag)?;
    let (schema, mut records) = (node.schema(), snapshot_records(node).await?);
    match given("kn") {
        Some(names) => {
            let names: BTreeSet<&str> = names.split(',').collect();
            let stored = |name: &str| records.iter().any(|record| record.keyspace == name);
            if let Some(unknown) = names.iter().find(|name| schema.keyspace(name).is_none() && !stored(name))
            {
                return Err(bad(format!("Can't find a keyspace {unknown}")));
            }
            records.retain(|record| names.contains(&*record.keyspace));
        }
        None => {
            let is_system = |name: &str| schema.keyspace(name).is_some_and(|keyspace| keyspace.system);
            records.retain(|record| !is_system(&record.keyspace));
        }
    }
    if let Some(names) = given("cf") {
        let names: BTreeSet<&str> = names.split(',').collect();
        let stored = |name: &str| records.iter().any(|record| record.table == name);
        let known = |name: &str| {
            stored(name)
                || named_keyspaces(node, call).iter().any(|keyspace| schema.table(keyspace, name).is_some())
        };
        if let Some(unknown) = names.iter().find(|name| !known(name)) {
            return Err(Answer::error(400, format!("Can't find a column family {unknown}")));
        }
        records.retain(|record| names.contains(&*record.table));
    }
    records.retain(|record| tag.is_none_or(|tag| record.name == tag));
    if let Some(before) = made_before(node, call)? {
        // When those of earlier versions were made is not known.
        records.retain(|record| record.created_micros.is_some_and(|at| at < before));
    }
    let removed = node.remove_snapshots(records).await;
    removed.map_err(|error| Answer::error(500, error.to_string()))?;
    Ok(Answer::done())
}

/// The time, microseconds since the epoch, before which a snapshot was made that is to go; none when they go by their names alone.
fn made_before(node: &Rc<dyn Node>, call: &Call) -> Result<Option<i64>, Answer> {
    let number = |name: &str| {
        let parse = |text: &str| {
            let number = text.parse::<i64>().ok().and_then(|millis| millis.checked_mul(1_000));
            number.ok_or_else(|| bad(format!("{name} is a number of milliseconds, not {text}")))
        };
        given(call, name).map(parse).transpose()
    };
    Ok(match (number("older_than_ms")?, number("before_ms")?) {
        (Some(_), Some(_)) => return Err(bad("give either older_than_ms or before_ms")),
        (Some(age), None) if age < 0 => return Err(bad("older_than_ms is at least 0")),
        (Some(age), None) => Some(node.now_micros().saturating_sub(age)),
        (None, before) => before,
    })
}

/// All snapshots: by name, and in each its tables.
pub(super) async fn snapshots(node: &Rc<dyn Node>) -> Result<Value, Answer> {
    let records = snapshot_records(node).await?;
    let mut groups: Vec<Value> = Vec::new();
    for group in records.chunk_by(|a, b| a.name == b.name) {
        let one = |record: &SnapshotRecord| {
            json!({
                "ks": record.keyspace, "cf": record.table,
                "total": record.disk_bytes, "live": record.true_bytes,
            })
        };
        let tables: Vec<Value> = group.iter().map(one).collect();
        groups.push(json!({ "key": group[0].name, "value": tables }));
    }
    Ok(json!(groups))
}

/// Bytes that only snapshots hold.
pub(super) async fn snapshots_true_size(node: &Rc<dyn Node>) -> Result<Value, Answer> {
    Ok(json!(snapshot_records(node).await?.iter().map(|record| record.true_bytes).sum::<u64>()))
}

async fn snapshot_records(node: &Rc<dyn Node>) -> Result<Vec<SnapshotRecord>, Answer> {
    node.snapshots().await.map_err(|error| Answer::error(500, error.to_string()))
}

/// Every figure of each stored table of a keyspace (`keyspace`), or of all; with `histograms=true` also those of the requests of the last minutes.
pub(super) async fn table_figures(node: &Rc<dyn Node>, call: &Call) -> Result<Value, Answer> {
    let schema = node.schema();
    let wanted = call.parameter("keyspace").filter(|name| !name.is_empty());
    if let Some(name) = wanted.filter(|name| schema.keyspace(name).is_none()) {
        return Err(Answer::error(404, format!("Can't find a keyspace {name}")));
    }
    let with_histograms = flag(call, "histograms", false)?;
    let snapshots = snapshot_records(node).await?;
    let shards = node.figures().await;
    let all: Vec<(TableId, &TableStats)> =
        shards.iter().flat_map(|shard| shard.engine.tables.iter().map(|(id, stats)| (*id, stats))).collect();
    let mut out = Vec::new();
    for table in schema.tables().filter(|table| wanted.is_none_or(|name| table.keyspace == name)) {
        let of: Vec<&TableStats> =
            all.iter().filter(|(id, _)| *id == table.id).map(|(_, stats)| *stats).collect();
        if of.is_empty() {
            continue;
        }
        let mine =
            |record: &&SnapshotRecord| (&record.keyspace, &record.table) == (&table.keyspace, &table.name);
        let snapshot_bytes: u64 = snapshots.iter().filter(mine).map(|record| record.true_bytes).sum();
        let mut figures = figures_of(table, &of, snapshot_bytes);
        if with_histograms {
            figures["recent"] = recent(&node.table_histograms(table.id).await.unwrap_or_default());
        }
        out.push(figures);
    }
    Ok(json!(out))
}

/// Means of a table's requests of the last one to two minutes, null where there was none, and the size of its smallest partition.
fn recent(histograms: &TableHistograms) -> Value {
    let requests = &histograms.requests;
    let mean = |moments: &Value| if moments["count"] == 0 { Value::Null } else { moments["mean"].clone() };
    let of = |figures: &stdx::RecentFigures| averages::moments(figures.buckets(), 1.0);
    let (rows, tombstones) = (of(&requests.rows), of(&requests.tombstones));
    let smallest = histograms.partition_bytes.buckets().find(|(_, count)| *count > 0);
    json!({
        "read_micros_mean": mean(&of(&requests.reads)),
        "write_micros_mean": mean(&of(&requests.writes)),
        "rows_mean": mean(&rows),
        "rows_max": rows["max"],
        "tombstones_mean": mean(&tombstones),
        "tombstones_max": tombstones["max"],
        "partition_bytes_min": smallest.and_then(|(bound, _)| bound).unwrap_or(0),
    })
}

fn figures_of(table: &Table, of: &[&TableStats], snapshot_bytes: u64) -> Value {
    let sum = |figure: fn(&TableStats) -> u64| of.iter().map(|stats| figure(stats)).sum::<u64>();
    let max = |figure: fn(&TableStats) -> u64| of.iter().map(|stats| figure(stats)).max().unwrap_or(0);
    let levels = of.iter().map(|stats| stats.sstables_per_level.len()).max().unwrap_or(0);
    let level = |at: usize| of.iter().filter_map(|stats| stats.sstables_per_level.get(at)).sum::<u64>();
    let droppable = of.iter().map(|stats| stats.droppable_tombstone_ratio).fold(0.0, f64::max);
    json!({
        "keyspace": table.keyspace,
        "table": table.name,
        "sstables": sum(|s| s.sstables),
        "sstables_per_level": (0..levels).map(level).collect::<Vec<u64>>(),
        "disk_bytes": sum(|s| s.disk_bytes),
        "total_disk_bytes": sum(|s| s.total_disk_bytes),
        "data_bytes": sum(|s| s.data_bytes),
        "repaired_bytes": sum(|s| s.repaired_bytes),
        "uncompressed_bytes": sum(|s| s.uncompressed_bytes),
        "snapshot_bytes": snapshot_bytes,
        "metadata_bytes": sum(|s| s.metadata_bytes),
        "partitions_estimate": sum(|s| s.partitions_estimate),
        "partition_bytes_max": max(|s| s.partition_bytes_max),
        "partition_bytes_sum": sum(|s| s.partition_bytes_sum),
        "memtable_rows": sum(|s| s.memtable_rows),
        "memtable_cells": sum(|s| s.memtable_cells),
        "pending_flushes": sum(|s| s.flushes_pending),
        "memtable_bytes": sum(|s| s.memtable_bytes),
        "memtable_switches": sum(|s| s.memtable_switches),
        "reads": sum(|s| s.reads),
        "writes": sum(|s| s.writes),
        "compactions_pending": sum(|s| s.compactions_pending),
        "bloom_false_positives": sum(|s| s.bloom_false_positives),
        "bloom_true_positives": sum(|s| s.bloom_true_positives),
        "droppable_tombstone_ratio": droppable,
    })
}

/// How far each node is with building a materialized view, as ScyllaDB answers: pairs of the node's address and the status; beside them the
/// part of the ring that is done and the seconds that the rest takes, where they are known.
pub(super) async fn view_build_statuses(
    node: &Rc<dyn Node>,
    keyspace: &str,
    view: &str,
) -> Result<Value, Answer> {
    let schema = node.schema();
    let found = names::keyspace(&schema, keyspace)?.tables.get(view).filter(|table| table.is_view());
    let table =
        found.ok_or_else(|| bad(format!("Can't find a materialized view {view} in keyspace {keyspace}")))?;
    let statuses = node.view_builds(table.id).await;
    let pair = |(node, status): &(ViewNode, ViewBuildStatus)| {
        let mut pair = json!({ "key": ring::name(node), "value": status.name() });
        if let ViewBuildStatus::Started(Some(progress)) = status {
            pair["progress"] = json!(f64::from(progress.permille) / 1_000.0);
            pair["seconds_left"] = json!(progress.seconds_left);
        }
        pair
    };
    Ok(json!(statuses.iter().map(pair).collect::<Vec<_>>()))
}
