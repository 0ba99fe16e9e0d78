//! Checks of materialized views over REST: begun, watched and stopped.

use std::rc::Rc;
use std::time::Duration;

use coordinator::{CheckState, CheckedTokens, FoundDifference, ViewCheck, ViewCheckError, ViewCheckStatus};
use mutation::DecoratedKey;
use schema::{Schema, Table};
use serde_json::{Value, json};
use topology::TokenRange;

use crate::{Answer, Call, Node};

/// The values of a request without them.
const ROWS_PER_SECOND: u32 = 10_000;
const PAUSE_MILLIS: u32 = 2_000;
const LISTED: u32 = 100;
/// The most differences that a report lists, and the longest pause.
const LISTED_MAX: u32 = 10_000;
const PAUSE_MILLIS_MAX: u32 = 600_000;

/// Answers requests about checks of views; none for any other.
pub(crate) fn answer(node: &Rc<dyn Node>, call: &Call, segments: &[&str]) -> Option<Result<Answer, Answer>> {
    Some(match (call.method.as_str(), segments) {
        ("POST", ["torc", "view_checks", keyspace, view]) => begin(node, call, keyspace, view),
        ("GET", ["torc", "view_checks"]) => {
            let schema = node.schema();
            let checks: Vec<Value> = node.view_checks().iter().map(|check| shown(&schema, check)).collect();
            Ok(Answer::json(&json!(checks)))
        }
        ("DELETE", ["torc", "view_checks", id]) => {
            match id.parse().is_ok_and(|id| node.cancel_view_check(id)) {
                true => Ok(Answer::done()),
                false => Err(Answer::error(404, format!("unknown check of a view {id}"))),
            }
        }
        _ => return None,
    })
}

fn begin(node: &Rc<dyn Node>, call: &Call, keyspace: &str, view: &str) -> Result<Answer, Answer> {
    let schema = node.schema();
    if schema.keyspace(keyspace).is_none() {
        return Err(Answer::error(404, format!("Can't find a keyspace {keyspace}")));
    }
    let table = schema.table(keyspace, view).filter(|table| table.is_view()).ok_or_else(|| {
        Answer::error(404, format!("Can't find a materialized view {view} in keyspace {keyspace}"))
    })?;
    let flag = |name: &str| call.parameter(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let tokens = match (token(call, "start_token")?, token(call, "end_token")?, flag("primary_range")) {
        (None, None, false) => CheckedTokens::All,
        (None, None, true) => CheckedTokens::Primary,
        (_, _, true) => return Err(Answer::error(400, "name either the primary range or tokens")),
        (after, upto, false) => {
            let range = TokenRange { after: after.unwrap_or(i64::MIN), upto: upto.unwrap_or(i64::MAX) };
            if range.after >= range.upto {
                return Err(Answer::error(400, "start_token must be below end_token"));
            }
            CheckedTokens::Between(range)
        }
    };
    let wanted = ViewCheck {
        view: table.id,
        tokens,
        repair: flag("repair"),
        rows_per_second: number(call, "rows_per_second", ROWS_PER_SECOND, 1..=u32::MAX)?,
        pause: Duration::from_millis(number(call, "pause", PAUSE_MILLIS, 0..=PAUSE_MILLIS_MAX)?.into()),
        listed_max: number(call, "limit", LISTED, 0..=LISTED_MAX)? as usize,
    };
    match node.begin_view_check(wanted) {
        Ok(id) => Ok(Answer::json(&json!(id))),
        Err(error @ ViewCheckError::NoView) => Err(Answer::error(404, error.to_string())),
        Err(error @ (ViewCheckError::Busy | ViewCheckError::Stopping)) => {
            Err(Answer::error(409, error.to_string()))
        }
    }
}

fn token(call: &Call, name: &str) -> Result<Option<i64>, Answer> {
    match call.parameter(name).filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => {
            text.parse().map(Some).map_err(|_| Answer::error(400, format!("{name} is a token, not {text}")))
        }
    }
}

fn number(
    call: &Call,
    name: &str,
    default: u32,
    allowed: std::ops::RangeInclusive<u32>,
) -> Result<u32, Answer> {
    let Some(text) = call.parameter(name).filter(|text| !text.is_empty()) else { return Ok(default) };
    match text.parse() {
        Ok(number) if allowed.contains(&number) => Ok(number),
        _ => {
            let (least, most) = (allowed.start(), allowed.end());
            Err(Answer::error(400, format!("{name} is {text}; it must be a number from {least} to {most}")))
        }
    }
}

fn shown(schema: &Schema, check: &ViewCheckStatus) -> Value {
    let table = schema.table_by_id(check.view);
    let (state, error) = match &check.state {
        CheckState::Running => ("RUNNING", None),
        CheckState::Finished => ("FINISHED", None),
        CheckState::Cancelled => ("CANCELLED", None),
        CheckState::Failed(why) => ("FAILED", Some(why.as_str())),
    };
    let progress = match check.parts {
        0 => 0.0,
        parts => check.parts_done as f64 / parts as f64,
    };
    let left = (state == "RUNNING" && progress > 0.0)
        .then(|| (check.elapsed.as_secs_f64() * (1.0 - progress) / progress) as u64);
    let listed: Vec<Value> =
        check.listed.iter().map(|found| difference(table.map(|table| &**table), found)).collect();
    json!({
        "id": check.id,
        "keyspace": table.map(|table| &table.keyspace),
        "view": table.map(|table| &table.name),
        "state": state,
        "error": error,
        "parts_done": check.parts_done,
        "parts": check.parts,
        "progress": progress,
        // A text: such numbers are too large for JSON's readers.
        "last_token": check.last_token.map(|token| token.to_string()),
        "base_rows": check.base_rows,
        "view_rows": check.view_rows,
        "missing": check.missing,
        "wrong": check.wrong,
        "ghosts": check.ghosts,
        "repaired": check.repaired,
        "unsettled": check.unsettled,
        "differences": listed,
        "elapsed_seconds": check.elapsed.as_secs(),
        "left_seconds": left,
    })
}

/// A difference with the view's key as people write it.
fn difference(table: Option<&Table>, found: &FoundDifference) -> Value {
    let mut key = serde_json::Map::new();
    if let Some(table) = table {
        let columns = table.partition_key();
        let components = DecoratedKey::components(&found.key.key, columns.len()).unwrap_or_default();
        let values = components.into_iter().map(Some).chain(found.clustering.components());
        for (column, value) in columns.iter().chain(table.clustering()).zip(values) {
            key.insert(column.name.clone(), json!(value.map(|value| column.ty.to_text(value))));
        }
    }
    json!({ "difference": found.difference.name(), "key": key, "repaired": found.repaired })
}
