//! Checks of materialized views and of logs of changes over REST: begun, watched and stopped.

use std::rc::Rc;
use std::time::Duration;

use coordinator::{
    CheckState, CheckedTokens, DerivedCheck, DerivedCheckError, DerivedCheckStatus, FoundDifference,
    FoundKind,
};
use mutation::DecoratedKey;
use schema::{Schema, Table, TableId};
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

/// Answers requests about checks; none for any other.
pub(crate) fn answer(node: &Rc<dyn Node>, call: &Call, segments: &[&str]) -> Option<Result<Answer, Answer>> {
    Some(match (call.method.as_str(), segments) {
        ("POST", ["torc", "view_checks", keyspace, view]) => {
            view_of(node, keyspace, view).and_then(|view| begin(node, call, view))
        }
        ("POST", ["torc", "cdc_checks", keyspace, base]) => {
            log_of(node, keyspace, base).and_then(|log| begin(node, call, log))
        }
        ("GET", ["torc", kind @ ("view_checks" | "cdc_checks")]) => {
            let (schema, checks) = (node.schema(), node.derived_checks());
            let checks = checks.iter().filter(|check| check.is_log == (*kind == "cdc_checks"));
            let checks: Vec<Value> = checks.map(|check| shown(&schema, check)).collect();
            Ok(Answer::json(&json!(checks)))
        }
        ("DELETE", ["torc", "view_checks" | "cdc_checks", id]) => {
            match id.parse().is_ok_and(|id| node.cancel_derived_check(id)) {
                true => Ok(Answer::done()),
                false => Err(Answer::error(404, format!("unknown check {id}"))),
            }
        }
        _ => return None,
    })
}

fn known_keyspace(schema: &Schema, keyspace: &str) -> Result<(), Answer> {
    match schema.keyspace(keyspace) {
        Some(_) => Ok(()),
        None => Err(Answer::error(404, format!("Can't find a keyspace {keyspace}"))),
    }
}

fn view_of(node: &Rc<dyn Node>, keyspace: &str, view: &str) -> Result<TableId, Answer> {
    let schema = node.schema();
    known_keyspace(&schema, keyspace)?;
    let table = schema.table(keyspace, view).filter(|table| table.is_view());
    table.map(|table| table.id).ok_or_else(|| {
        Answer::error(404, format!("Can't find a materialized view {view} in keyspace {keyspace}"))
    })
}

/// The log of a table, named by either.
fn log_of(node: &Rc<dyn Node>, keyspace: &str, name: &str) -> Result<TableId, Answer> {
    let schema = node.schema();
    known_keyspace(&schema, keyspace)?;
    let table = schema.table(keyspace, name);
    let table = table
        .ok_or_else(|| Answer::error(404, format!("Can't find a table {name} in keyspace {keyspace}")))?;
    let log = if table.is_cdc_log() { Some(table) } else { schema.cdc_log_of(table) };
    log.map(|log| log.id).ok_or_else(|| {
        Answer::error(404, format!("changes of table {keyspace}.{name} are not captured: CDC is not enabled"))
    })
}

fn begin(node: &Rc<dyn Node>, call: &Call, derived: TableId) -> Result<Answer, Answer> {
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
    let wanted = DerivedCheck {
        derived,
        tokens,
        repair: flag("repair"),
        since: i64::from(number(call, "since", 0, 0..=u32::MAX)?) * 1_000_000,
        rows_per_second: number(call, "rows_per_second", ROWS_PER_SECOND, 1..=u32::MAX)?,
        pause: Duration::from_millis(number(call, "pause", PAUSE_MILLIS, 0..=PAUSE_MILLIS_MAX)?.into()),
        listed_max: number(call, "limit", LISTED, 0..=LISTED_MAX)? as usize,
    };
    match node.begin_derived_check(wanted) {
        Ok(id) => Ok(Answer::json(&json!(id))),
        Err(error @ (DerivedCheckError::NoView | DerivedCheckError::NoLog)) => {
            Err(Answer::error(404, error.to_string()))
        }
        Err(error @ DerivedCheckError::KeysOnly) => Err(Answer::error(400, error.to_string())),
        Err(error @ (DerivedCheckError::Busy | DerivedCheckError::Stopping)) => {
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

/// A check, with its differences by the keys of the view, or of a log's base.
fn shown(schema: &Schema, check: &DerivedCheckStatus) -> Value {
    let derived = schema.table_by_id(check.derived);
    let base = || schema.table_by_id(derived?.derivation.as_ref()?.base());
    let (table, kind, rows) = match check.is_log {
        true => (base(), "table", "log_rows"),
        false => (derived, "view", "view_rows"),
    };
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
    let mut all = json!({
        "id": check.id,
        "keyspace": table.map(|table| &table.keyspace),
        (kind): table.map(|table| &table.name),
        "state": state,
        "error": error,
        "parts_done": check.parts_done,
        "parts": check.parts,
        "progress": progress,
        // A text: such numbers are too large for JSON's readers.
        "last_token": check.last_token.map(|token| token.to_string()),
        "base_rows": check.base_rows,
        (rows): check.derived_rows,
    });
    let counts: &[(&str, u64)] = match check.is_log {
        true => &[("unlogged", check.unlogged), ("unapplied", check.unapplied)],
        false => &[
            ("missing", check.missing),
            ("wrong", check.wrong),
            ("ghosts", check.ghosts),
            ("repaired", check.repaired),
        ],
    };
    for (name, count) in counts {
        all[*name] = json!(count);
    }
    all["unsettled"] = json!(check.unsettled);
    all["differences"] = json!(listed);
    all["elapsed_seconds"] = json!(check.elapsed.as_secs());
    all["left_seconds"] = json!(left);
    all
}

/// A difference with the row's key as people write it.
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
    let mut shown = json!({ "difference": found.kind.name(), "key": key });
    if matches!(found.kind, FoundKind::View(_)) {
        shown["repaired"] = json!(found.repaired);
    }
    shown
}
