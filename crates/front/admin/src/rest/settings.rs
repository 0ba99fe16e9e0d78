//! The node's settings: any by its name under `/v2/config`, with the path of ScyllaDB, where one that is live is changed by POST; and some by
//! ScyllaDB's paths.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde_json::{Value, json};

use crate::names::{bad, flag, given, mandatory};
use crate::node::{Node, Setting, SettingKind};
use crate::{Answer, Call};

/// ScyllaDB's paths, each with the parameter of its POST and the setting.
const PATHS: &[(&[&str], &str, &str)] = &[
    (&["storage_service", "trace_probability"], "probability", "trace_probability"),
    (&["storage_service", "incremental_backups"], "value", "incremental_backups"),
    (&["storage_proxy", "hinted_handoff_enabled"], "enable", "hinted_handoff_enabled"),
    (&["storage_service", "compaction_throughput"], "value", "compaction_throughput_mb_per_sec"),
    (&["storage_service", "stream_throughput"], "value", "stream_io_throughput_mb_per_sec"),
    (&["storage_service", "hinted_handoff"], "throttle", "hinted_handoff_throttle_in_kb"),
    (&["storage_service", "tombstone_warn_threshold"], "debug_threshold", "tombstone_warn_threshold"),
    (
        &["storage_service", "tombstone_failure_threshold"],
        "tombstone_debug_threshold",
        "tombstone_failure_threshold",
    ),
    (&["storage_service", "batch_size_failure_threshold"], "threshold", "batch_size_fail_threshold_in_kb"),
];

/// The answer to a request for a setting; none when it is for something else.
pub(super) async fn answer(
    node: &Rc<dyn Node>,
    call: &Call,
    segments: &[&str],
) -> Option<Result<Answer, Answer>> {
    if segments == ["storage_service", "slow_query"] {
        return Some(match call.method.as_str() {
            "GET" => slow_query(node),
            _ => set_slow_query(node, call).await,
        });
    }
    let (name, parameter) = match segments {
        ["v2", "config", name] => (*name, "value"),
        _ => PATHS
            .iter()
            .find(|(path, ..)| *path == segments)
            .map(|(_, parameter, name)| (*name, *parameter))?,
    };
    match call.method.as_str() {
        "GET" => Some(match node.setting(name) {
            Some(setting) => Ok(Answer::json(&as_json(name, &setting))),
            None => match scylladbs(node, name) {
                Some(value) => Ok(Answer::json(&value)),
                None => Err(bad(format!("No such config entry: {name}"))),
            },
        }),
        "POST" => Some(change(node, name, mandatory(call, parameter)).await),
        _ => None,
    }
}

/// The settings of the recording of slow requests, each with the parameter of ScyllaDB's API.
const SLOW_QUERY: [(&str, &str); 4] = [
    ("enable", "slow_query_tracing"),
    ("ttl", "slow_query_tracing_ttl_in_s"),
    ("threshold", "slow_query_tracing_threshold_in_us"),
    ("fast", "slow_query_tracing_fast"),
];

fn slow_query(node: &Rc<dyn Node>) -> Result<Answer, Answer> {
    let shown = |(parameter, name): (&str, &str)| {
        let setting = node.setting(name).ok_or_else(|| Answer::error(500, format!("{name} is not known")))?;
        Ok((parameter.to_owned(), as_json(name, &setting)))
    };
    let info = SLOW_QUERY.into_iter().map(shown).collect::<Result<_, Answer>>()?;
    Ok(Answer::json(&Value::Object(info)))
}

/// Sets the parameters that are given; the others stay.
async fn set_slow_query(node: &Rc<dyn Node>, call: &Call) -> Result<Answer, Answer> {
    let mut changes = Vec::new();
    for (parameter, name) in SLOW_QUERY {
        let Some(text) = given(call, parameter) else { continue };
        let value = match parameter {
            "enable" | "fast" => flag(call, parameter, false)?.to_string(),
            _ => match text.parse::<u64>() {
                Ok(number) => number.to_string(),
                Err(_) => return Err(bad(format!("{parameter} is a whole number, not {text}"))),
            },
        };
        changes.push((name, value));
    }
    // The one that records comes last, when the others are set.
    for (name, value) in changes.iter().rev() {
        change(node, name, Ok(value)).await?;
    }
    Ok(Answer::done())
}

/// The options whose names begin with that of a group, which ScyllaDB shows as one object of texts.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "client_encryption_options",
        &["enabled", "optional", "certificate", "keyfile", "truststore", "require_client_auth"],
    ),
    (
        "server_encryption_options",
        &["internode_encryption", "certificate", "keyfile", "truststore", "require_client_auth"],
    ),
    ("alternator_encryption_options", &["certificate", "keyfile"]),
];

/// The value of an option that only ScyllaDB has, which its manager reads of each node.
fn scylladbs(node: &Rc<dyn Node>, name: &str) -> Option<Value> {
    let value = match name {
        // The default of the port of Thrift, which nothing listens on.
        "rpc_port" => json!(9160),
        "experimental_features" | "object_storage_endpoints" => json!([]),
        "workdir" => {
            let data = PathBuf::from(node.setting("data_file_directories")?.value);
            json!(data.parent().unwrap_or(Path::new("/")).to_string_lossy())
        }
        group => {
            let (group, parts) = GROUPS.iter().find(|(known, _)| *known == group)?;
            let part = |part: &&str| {
                let value = node.setting(&format!("{group}_{part}"))?.value;
                (!value.is_empty()).then(|| ((*part).to_owned(), json!(value)))
            };
            Value::Object(parts.iter().filter_map(part).collect())
        }
    };
    Some(value)
}

async fn change(node: &Rc<dyn Node>, name: &str, value: Result<&str, Answer>) -> Result<Answer, Answer> {
    let value = match (name, value?) {
        ("trace_probability", text) => probability(text)?,
        // Everything else is false for ScyllaDB.
        ("incremental_backups" | "hinted_handoff_enabled", text) => {
            match text.to_ascii_lowercase().as_str() {
                "true" | "1" => "true",
                _ => "false",
            }
        }
        (_, text) => text,
    };
    node.change_setting(name, value).await.map(|()| Answer::done()).map_err(bad)
}

fn probability(text: &str) -> Result<&str, Answer> {
    match text.parse::<f64>() {
        Ok(number) if (0.0..=1.0).contains(&number) => Ok(text),
        Ok(_) => Err(bad(format!("trace probability must be from 0 to 1, not {text}"))),
        Err(_) => Err(bad(format!("Bad format in a probability value: \"{text}\""))),
    }
}

fn as_json(name: &str, setting: &Setting) -> Value {
    let text = || json!(setting.value);
    if name == "data_file_directories" {
        return json!([setting.value]);
    }
    match setting.kind {
        SettingKind::Text => text(),
        SettingKind::Truth => json!(setting.value == "true"),
        SettingKind::Integer => setting.value.parse::<i64>().map_or_else(|_| text(), |number| json!(number)),
        SettingKind::Float => setting.value.parse::<f64>().map_or_else(|_| text(), |number| json!(number)),
    }
}
