//! SSTables written anew or verified, and such work stopped, over REST.

use std::path::PathBuf;
use std::rc::Rc;

use engine::{Granularity, Rewrite, RewriteReport, StopRequest, TaskKind};
use replica::{ReplicaError, SnapshotContent};
use schema::TableId;
use serde_json::{Value, json};

use super::tables;
use crate::names::{self, bad, flag, given, mandatory};
use crate::{Answer, Call, Node, uuid_of};

/// The answer to a request about SSTables of tables; none when it is for something else.
pub(super) async fn answer(
    node: &Rc<dyn Node>,
    call: &Call,
    segments: &[&str],
) -> Option<Result<Answer, Answer>> {
    let asked = match (call.method.as_str(), segments) {
        ("POST", ["torc", "sstables", how, keyspace]) => report(node, call, how, keyspace).await,
        ("GET", ["storage_service", "keyspace_scrub", keyspace]) => number(scrub(node, call, keyspace).await),
        ("GET", ["storage_service", "keyspace_upgrade_sstables", keyspace]) => {
            number(upgrade(node, call, keyspace).await)
        }
        ("POST", ["storage_service", "sstables", keyspace]) => {
            return Some(refresh(node, call, keyspace).await);
        }
        ("POST", ["column_family", "load", "sstable", name]) => {
            let loaded = match names::column_family(&node.schema(), name) {
                Ok(table) => load(node, &table.keyspace, &table.name, None).await,
                Err(unknown) => Err(unknown),
            };
            return Some(loaded.map(|_| Answer::done()));
        }
        ("POST", ["torc", "import", keyspace, table]) => import(node, call, keyspace, table).await,
        ("POST", ["compaction_manager", "stop_compaction"]) => stop(node, call, None).await,
        ("POST", ["compaction_manager", "stop_keyspace_compaction", keyspace]) => {
            stop(node, call, Some(keyspace)).await
        }
        _ => return None,
    };
    Some(asked.map(|value| Answer::json(&value)))
}

/// The outcome for each table, by its name.
type Reports = Vec<(String, RewriteReport)>;

/// The outcome as a number of ScyllaDB's: 0 for done, 3 for damage that was found and not changed.
fn number(done: Result<(Reports, bool), Answer>) -> Result<Value, Answer> {
    let (reports, only_read) = done?;
    let is_damaged = reports.iter().any(|(_, report)| !report.problems.is_empty());
    Ok(json!(if only_read && is_damaged { 3 } else { 0 }))
}

/// One of the operations, with its outcome for each table.
async fn report(node: &Rc<dyn Node>, call: &Call, how: &str, keyspace: &str) -> Result<Value, Answer> {
    let reports = match how {
        "scrub" => scrub(node, call, keyspace).await?.0,
        "upgrade" => upgrade(node, call, keyspace).await?.0,
        "verify" => rewrite(node, call, keyspace, Rewrite::Verify).await?,
        "verify_indexes" => {
            let repair = flag(call, "repair", false)?;
            rewrite(node, call, keyspace, Rewrite::VerifyIndexes { repair }).await?
        }
        "garbage_collect" => {
            let granularity = match call.parameter("granularity").unwrap_or("ROW") {
                "ROW" => Granularity::Row,
                "CELL" => Granularity::Cell,
                other => return Err(bad(format!("granularity is ROW or CELL, not {other}"))),
            };
            rewrite(node, call, keyspace, Rewrite::GarbageCollect(granularity)).await?
        }
        _ => return Err(Answer::error(404, format!("{how} is no operation on SSTables"))),
    };
    let one = |(table, report): &(String, RewriteReport)| {
        json!({
            "keyspace": keyspace, "table": table, "sstables": report.sstables, "set_aside": report.set_aside,
            "indexes_replaced": report.indexes_replaced, "problems": report.problems,
        })
    };
    Ok(reports.iter().map(one).collect())
}

async fn rewrite(node: &Rc<dyn Node>, call: &Call, keyspace: &str, how: Rewrite) -> Result<Reports, Answer> {
    let mut reports = Vec::new();
    for table in tables::chosen(node, call, keyspace)? {
        match node.rewrite_sstables(table.id, how).await {
            Ok(report) => reports.push((table.name.clone(), report)),
            // Dropped since it was listed, or computed.
            Err(ReplicaError::UnknownTable(_)) => {}
            Err(error) => return Err(Answer::error(500, format!("{}: {error}", table.full_name()))),
        }
    }
    Ok(reports)
}

/// Scrubs, by the parameters of ScyllaDB; also whether nothing was written.
async fn scrub(node: &Rc<dyn Node>, call: &Call, keyspace: &str) -> Result<(Reports, bool), Answer> {
    let skips = flag(call, "skip_corrupted", false)?;
    let mode = match call.parameter("scrub_mode").filter(|mode| !mode.is_empty()) {
        None if skips => "SKIP",
        None => "ABORT",
        Some(mode) => mode,
    };
    let how = match mode.to_ascii_uppercase().as_str() {
        "ABORT" => Rewrite::Scrub { skip: false },
        "SKIP" => Rewrite::Scrub { skip: true },
        "VALIDATE" => Rewrite::Verify,
        "SEGREGATE" => {
            return Err(bad(
                "there is no mode SEGREGATE: partitions and rows out of order are damage here, which SKIP drops",
            ));
        }
        _ => return Err(bad(format!("Unknown argument for 'scrub_mode' parameter: {mode}"))),
    };
    if flag(call, "drop_unfixable_sstables", false)? {
        return Err(bad("drop_unfixable_sstables belongs to the mode SEGREGATE, which is not there"));
    }
    let quarantine = given(call, "quarantine_mode").unwrap_or("INCLUDE");
    let only_quarantined = match quarantine.to_ascii_uppercase().as_str() {
        "INCLUDE" | "EXCLUDE" => false,
        "ONLY" => true,
        _ => return Err(bad(format!("Unknown argument for 'quarantine_mode' parameter: {quarantine}"))),
    };
    let only_read = how == Rewrite::Verify;
    let chosen = tables::chosen(node, call, keyspace)?;
    if only_quarantined {
        // No SSTable of a table is quarantined: damaged ones are out of it.
        return Ok((Vec::new(), only_read));
    }
    if !only_read && !flag(call, "disable_snapshot", false)? {
        let name = format!("pre-scrub-{}", node.now_micros() / 1_000);
        tables::take_snapshot(node, chosen, name, SnapshotContent::Written).await?;
    }
    Ok((rewrite(node, call, keyspace, how).await?, only_read))
}

async fn upgrade(node: &Rc<dyn Node>, call: &Call, keyspace: &str) -> Result<(Reports, bool), Answer> {
    let all = !flag(call, "exclude_current_version", false)?;
    Ok((rewrite(node, call, keyspace, Rewrite::Upgrade { all }).await?, false))
}

/// Imports the SSTables of a table's folder `upload`, as ScyllaDB's call does.
async fn refresh(node: &Rc<dyn Node>, call: &Call, keyspace: &str) -> Result<Answer, Answer> {
    // They save work that is done here in one with the import.
    for name in ["skip_cleanup", "skip_reshape"] {
        flag(call, name, false)?;
    }
    for name in ["load_and_stream", "primary_replica_only"] {
        if flag(call, name, false)? {
            return Err(bad(format!(
                "{name} is not known here: a node imports the partitions of which it is a replica; put the SSTables on each replica, and run \
                 nodetool repair afterwards"
            )));
        }
    }
    let name = mandatory(call, "cf")?;
    load(node, keyspace, name, None).await?;
    Ok(Answer::done())
}

async fn import(node: &Rc<dyn Node>, call: &Call, keyspace: &str, table: &str) -> Result<Value, Answer> {
    let directory = call.parameter("directory").filter(|path| !path.is_empty()).map(PathBuf::from);
    if let Some(path) = directory.as_ref().filter(|path| !path.is_absolute()) {
        return Err(bad(format!("{} is not an absolute path", path.display())));
    }
    load(node, keyspace, table, directory).await
}

async fn load(
    node: &Rc<dyn Node>,
    keyspace: &str,
    name: &str,
    directory: Option<PathBuf>,
) -> Result<Value, Answer> {
    let schema = node.schema();
    let table = names::table(&schema, keyspace, name)?;
    let done = node.import_sstables(table, directory).await.map_err(|error| Answer::error(500, error))?;
    Ok(json!({ "sstables": done.sstables, "partitions": done.partitions, "removed": done.removed_sources }))
}

/// Stops operations by their kind or by the id of a task; how many there were.
async fn stop(node: &Rc<dyn Node>, call: &Call, keyspace: Option<&str>) -> Result<Value, Answer> {
    let wanted = match (given(call, "id"), given(call, "type")) {
        (Some(id), None) if keyspace.is_none() => StopRequest::Id(
            uuid_of(id).ok_or_else(|| bad("id is the id of a compaction, as compactionstats shows it"))?,
        ),
        // SSTables are neither reshaped nor resharded here, so that none of that work runs.
        (None, Some(name)) if ["RESHAPE", "RESHARD"].iter().any(|none| name.eq_ignore_ascii_case(none)) => {
            return Ok(json!(0));
        }
        (None, Some(name)) => {
            let kind = TaskKind::from_name(name).ok_or_else(|| {
                let known: Vec<&str> = TaskKind::STOPPABLE.into_iter().map(TaskKind::name).collect();
                bad(format!("{name} is no type of work that can be stopped; these are: {}", known.join(", ")))
            })?;
            StopRequest::Kind(kind, keyspace.map(|keyspace| tables_of(node, call, keyspace)).transpose()?)
        }
        _ => return Err(bad("name either the type of the work to stop, or the id of a compaction")),
    };
    Ok(json!(node.stop_operations(wanted).await))
}

/// The tables that a call names in `tables`, or all of the keyspace.
fn tables_of(node: &Rc<dyn Node>, call: &Call, keyspace: &str) -> Result<Vec<TableId>, Answer> {
    let tables = names::tables(&node.schema(), keyspace, call.parameter("tables"))?;
    Ok(tables.iter().map(|table| table.id).collect())
}
