//! Repairs over REST: begun, watched and stopped in the shape of ScyllaDB's API, and beyond that API: how
//! long a repair will still take, and how long ago each table was repaired.

use std::rc::Rc;
use std::time::Duration;

use repair::age::TableAge;
use repair::{JobState, JobStatus, Repair};
use schema::Schema;
use serde_json::{Value, json};

use crate::names::{self, bad};
use crate::prometheus::{escape, head, sample};
use crate::repair_options;
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
            | "force_terminate"
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
        ("POST", "repair_async", [keyspace]) => begin(node, &repair, call, keyspace),
        ("GET", "repair_async", [_]) => state(&repair, call),
        ("GET", "repair_status", []) => end(&repair, call).await,
        ("GET", "active_repair", []) => {
            let running = repair.statuses().into_iter().filter(|job| job.state == JobState::Running);
            Ok(Answer::json(&json!(running.map(|job| job.id).collect::<Vec<_>>())))
        }
        ("POST", "force_terminate" | "force_terminate_repair", []) => terminate(&repair, call).await,
        ("GET", "repairs", []) => {
            Ok(Answer::json(&json!(repair.statuses().iter().map(job).collect::<Vec<_>>())))
        }
        ("GET", "repair_history", []) => Ok(Answer::json(&history(node, &repair, now))),
        _ => return None,
    })
}

fn begin(node: &Rc<dyn Node>, repair: &Repair, call: &Call, keyspace: &str) -> Result<Answer, Answer> {
    let schema = node.schema();
    names::tables(&schema, keyspace, call.parameter("columnFamilies"))?;
    let wanted = repair_options::wanted(&node.view(), call, keyspace)?;
    repair.begin(wanted).map(|id| Answer::json(&json!(id))).map_err(|error| bad(error.to_string()))
}

fn number(call: &Call) -> Result<u64, Answer> {
    let id = names::mandatory(call, "id")?;
    id.parse().map_err(|_| bad(format!("id is the number of a repair, not {id}")))
}

/// The state of a repair when it has ended, or after a timeout in seconds.
async fn end(repair: &Repair, call: &Call) -> Result<Answer, Answer> {
    let id = number(call)?;
    let wrong = || bad("timeout can only be -1 (means no timeout) or non negative integer");
    let timeout = match names::given(call, "timeout").map(str::parse::<i64>) {
        None | Some(Ok(-1)) => None,
        Some(Ok(seconds)) => Some(Duration::from_secs(u64::try_from(seconds).map_err(|_| wrong())?)),
        Some(Err(_)) => return Err(wrong()),
    };
    repair.ended(id, timeout).await;
    state(repair, call)
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
        return Ok(Answer::done());
    }
    for job in repair.statuses().into_iter().filter(|job| job.state == JobState::Running) {
        repair.cancel(job.id).await;
    }
    Ok(Answer::done())
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
        "ranges_failed": status.units_failed,
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
