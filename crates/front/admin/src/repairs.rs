//! Repairs over REST: begun, watched and stopped in the shape of ScyllaDB's API, and beyond that API: how
//! long a repair will still take, and how long ago each table was repaired.

use std::rc::Rc;

use repair::age::TableAge;
use repair::plan::{Ranges, RepairOptions};
use repair::{JobState, JobStatus, Repair, RepairError, Wanted};
use schema::Schema;
use serde_json::{Value, json};
use topology::TokenRange;

use crate::prometheus::{escape, head, sample};
use crate::uuid;
use crate::{Answer, Call, Node};

/// Answers requests about repairs; none for any other.
pub(crate) async fn answer(
    node: &Rc<dyn Node>,
    call: &Call,
    segments: &[&str],
) -> Option<Result<Answer, Answer>> {
    let ["storage_service", what, rest @ ..] = segments else { return None };
    let known = matches!(
        *what,
        "repair_async"
            | "repair_status"
            | "active_repair"
            | "force_terminate_repair"
            | "repairs"
            | "repair_history"
    );
    if !known {
        return None;
    }
    let Some(repair) = node.repair() else {
        return Some(Err(Answer::error(
            503,
            "this node does not repair: it is starting or has left the cluster",
        )));
    };
    let now = u32::try_from(node.now_micros() / 1_000_000).unwrap_or(0);
    Some(match (call.method.as_str(), *what, rest) {
        ("POST", "repair_async", [keyspace]) => begin(&repair, call, keyspace),
        ("GET", "repair_async", [_]) | ("GET", "repair_status", []) => state(&repair, call),
        ("GET", "active_repair", []) => {
            let running = repair.statuses().into_iter().filter(|job| job.state == JobState::Running);
            Ok(Answer::json(&json!(running.map(|job| job.id).collect::<Vec<_>>())))
        }
        ("POST", "force_terminate_repair", []) => terminate(&repair, call).await,
        ("GET", "repairs", []) => {
            Ok(Answer::json(&json!(repair.statuses().iter().map(job).collect::<Vec<_>>())))
        }
        ("GET", "repair_history", []) => Ok(Answer::json(&history(node, &repair, now))),
        _ => return None,
    })
}

fn bad(message: impl Into<String>) -> Answer {
    Answer::error(400, message)
}

fn list(call: &Call, name: &str) -> Vec<String> {
    let text = call.parameter(name).unwrap_or_default();
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

fn token(call: &Call, name: &str) -> Result<Option<i64>, Answer> {
    match call.parameter(name).filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| bad(format!("{name} is a token, not {text}"))),
    }
}

fn begin(repair: &Repair, call: &Call, keyspace: &str) -> Result<Answer, Answer> {
    let flag = |name: &str| call.parameter(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    if !list(call, "hosts").is_empty() {
        return Err(bad(
            "repair with chosen hosts is not known here: name datacenters, or repair with all replicas",
        ));
    }
    let tokens = match (token(call, "startToken")?, token(call, "endToken")?) {
        (None, None) => None,
        (after, upto) => {
            Some(TokenRange { after: after.unwrap_or(i64::MIN), upto: upto.unwrap_or(i64::MAX) })
        }
    };
    let ranges = if flag("primaryRange") { Ranges::Primary } else { Ranges::All };
    if ranges == Ranges::Primary && tokens.is_some() {
        return Err(bad("name either the primary range or tokens"));
    }
    let unless_since = match call.parameter("since").filter(|text| !text.is_empty()) {
        None => 0,
        Some(text) => text.parse().map_err(|_| bad(format!("since is a time in seconds, not {text}")))?,
    };
    // Repairs are incremental unless that is refused.
    let full = flag("full")
        || call.parameter("incremental").is_some_and(|value| value.eq_ignore_ascii_case("false"));
    let options =
        RepairOptions { ranges, datacenters: list(call, "dataCenters"), tokens, ..RepairOptions::all() };
    let tables = list(call, "columnFamilies");
    match repair.begin(Wanted { keyspace: keyspace.to_owned(), tables, options, unless_since, full }) {
        Ok(id) => Ok(Answer::json(&json!(id))),
        Err(error @ RepairError::UnknownKeyspace(_)) => Err(Answer::error(404, error.to_string())),
        Err(error) => Err(bad(error.to_string())),
    }
}

fn number(call: &Call) -> Result<u64, Answer> {
    let id = call.parameter("id").and_then(|id| id.parse().ok());
    id.ok_or_else(|| bad("which repair? name its id"))
}

fn state(repair: &Repair, call: &Call) -> Result<Answer, Answer> {
    let id = number(call)?;
    let status = repair.status(id).ok_or_else(|| bad(format!("unknown repair id {id}")))?;
    // ScyllaDB knows three states; one that was stopped has not succeeded.
    let name = if status.state == JobState::Cancelled { JobState::Failed } else { status.state }.name();
    Ok(Answer::json(&json!(name)))
}

/// Stops the repair named, or all.
async fn terminate(repair: &Repair, call: &Call) -> Result<Answer, Answer> {
    if call.parameter("id").is_some() {
        let id = number(call)?;
        if !repair.cancel(id).await {
            return Err(bad(format!("unknown repair id {id}")));
        }
        return Ok(Answer::json(&Value::Null));
    }
    for job in repair.statuses().into_iter().filter(|job| job.state == JobState::Running) {
        repair.cancel(job.id).await;
    }
    Ok(Answer::json(&Value::Null))
}

fn job(status: &JobStatus) -> Value {
    json!({
        "id": status.id,
        "keyspace": status.keyspace,
        "tables": status.tables,
        "peers": status.peers.iter().map(|host| uuid(&host.0)).collect::<Vec<_>>(),
        "state": status.state.name(),
        "ranges": status.units,
        "ranges_done": status.units_done,
        "ranges_incremental": status.units_incremental,
        "progress": status.share,
        "elapsed_seconds": status.elapsed.as_secs(),
        "left_seconds": status.left.map(|left| left.as_secs()),
        "rows_compared": status.elements,
        "rows_differing": status.differing,
        "rows_sent": status.sent,
        "bytes": status.bytes,
        "failures": status.failures,
    })
}

/// Each table with the repaired share of this node's ranges, and the age of the oldest part of that.
fn history(node: &Rc<dyn Node>, repair: &Repair, now: u32) -> Value {
    let (schema, history) = (node.schema(), repair.history());
    let one = |age: &TableAge| {
        let table = schema.table_by_id(age.table)?;
        let ranges = history.table(age.table).map_or(&[][..], |repaired| repaired.ranges());
        Some(json!({
            "keyspace": table.keyspace,
            "table": table.name,
            "share": age.repaired,
            "oldest_seconds": age.oldest.map(|at| now.saturating_sub(at)),
            "newest_seconds": age.newest.map(|at| now.saturating_sub(at)),
            "oldest_full_seconds": age.oldest_full.map(|at| now.saturating_sub(at)),
            "ranges": ranges
                .iter()
                .map(|(after, upto, at)| json!({ "after": after.to_string(), "upto": upto.to_string(), "at": at }))
                .collect::<Vec<_>>(),
        }))
    };
    json!(repair.ages().iter().filter_map(one).collect::<Vec<_>>())
}

/// The metrics of repairs.
pub(crate) fn metrics(repair: &Repair, schema: &Schema, now_micros: i64, out: &mut String) {
    let stats = repair.stats();
    let jobs = repair.statuses();
    let running = jobs.iter().filter(|job| job.state == JobState::Running).count();
    for (name, kind, help, value) in [
        ("torc_repair_running", "gauge", "Repairs under way that this node leads.", running as f64),
        (
            "torc_repair_ranges_done",
            "counter",
            "Ranges of tables that this node has repaired.",
            stats.ranges as f64,
        ),
        (
            "torc_repair_ranges_incremental",
            "counter",
            "Of these, those that were repaired incrementally.",
            stats.ranges_incremental as f64,
        ),
        (
            "torc_repair_ranges_failed",
            "counter",
            "Ranges of tables whose repair failed; automatic repair retries them.",
            stats.ranges_failed as f64,
        ),
        ("scylla_repair_row_from_disk_nr", "counter", "Rows compared by repairs.", stats.elements as f64),
        (
            "torc_repair_rows_differing",
            "counter",
            "Versions of rows that not all replicas had.",
            stats.differing as f64,
        ),
        ("scylla_repair_tx_row_nr", "counter", "Rows that repairs sent to replicas.", stats.sent as f64),
        (
            "torc_repair_bytes",
            "counter",
            "Bytes that repairs exchanged with other nodes.",
            stats.bytes as f64,
        ),
    ] {
        head(out, name, kind, help);
        sample(out, name, "", value);
    }
    age_metrics(repair, schema, now_micros, out);
}

/// How long ago each table was repaired.
fn age_metrics(repair: &Repair, schema: &Schema, now_micros: i64, out: &mut String) {
    let ages = repair.ages();
    let name = |age: &TableAge| {
        let table = schema.table_by_id(age.table)?;
        Some(format!("ks=\"{}\",cf=\"{}\"", escape(&table.keyspace), escape(&table.name)))
    };
    head(out, "torc_repair_share", "gauge", "Share of the node's ranges of a table that was ever repaired.");
    for age in &ages {
        if let Some(labels) = name(age) {
            sample(out, "torc_repair_share", &labels, age.repaired);
        }
    }
    head(
        out,
        "torc_repair_age_seconds",
        "gauge",
        "Time since the repair of the range that was repaired longest ago, by table.",
    );
    let seconds_since = |at: u32| (now_micros / 1_000_000 - i64::from(at)).max(0) as f64;
    for age in &ages {
        if let Some((labels, at)) = name(age).zip(age.oldest) {
            sample(out, "torc_repair_age_seconds", &labels, seconds_since(at));
        }
    }
    head(
        out,
        "torc_repair_full_age_seconds",
        "gauge",
        "Time since the full repair of the range whose full repair is longest ago, by table.",
    );
    for age in &ages {
        if let Some((labels, at)) = name(age).zip(age.oldest_full) {
            sample(out, "torc_repair_full_age_seconds", &labels, seconds_since(at));
        }
    }
}
