//! The node's settings: any by its name under `/v2/config`, with the path of ScyllaDB, where one that is live is changed by POST; and some by
//! ScyllaDB's paths.

use std::rc::Rc;

use serde_json::{Value, json};

use crate::node::{Node, Setting, SettingKind};
use crate::{Answer, Call};

/// ScyllaDB's paths, each with the parameter of its POST and the setting.
const PATHS: &[(&[&str], &str, &str)] = &[
    (&["storage_service", "trace_probability"], "probability", "trace_probability"),
    (&["storage_service", "incremental_backups"], "value", "incremental_backups"),
    (&["storage_proxy", "hinted_handoff_enabled"], "enable", "hinted_handoff_enabled"),
];

/// The answer to a request for a setting; none when it is for something else.
pub(super) async fn answer(
    node: &Rc<dyn Node>,
    call: &Call,
    segments: &[&str],
) -> Option<Result<Answer, Answer>> {
    let (name, parameter) = match segments {
        ["v2", "config", name] => (*name, "value"),
        _ => PATHS
            .iter()
            .find(|(path, ..)| *path == segments)
            .map(|(_, parameter, name)| (*name, *parameter))?,
    };
    match call.method.as_str() {
        "GET" => Some(match node.setting(name) {
            Some(setting) => Ok(Answer::json(&as_json(&setting))),
            None => Err(Answer::error(404, format!("No such setting: {name}"))),
        }),
        "POST" => Some(match call.parameter(parameter) {
            Some(value) => match node.change_setting(name, value).await {
                Ok(()) => Ok(Answer::json(&Value::Null)),
                Err(why) => Err(Answer::error(400, why)),
            },
            None => Err(Answer::error(400, format!("the parameter {parameter} is missing"))),
        }),
        _ => None,
    }
}

fn as_json(setting: &Setting) -> Value {
    let text = || json!(setting.value);
    match setting.kind {
        SettingKind::Text => text(),
        SettingKind::Truth => json!(setting.value == "true"),
        SettingKind::Integer => setting.value.parse::<i64>().map_or_else(|_| text(), |number| json!(number)),
        SettingKind::Float => setting.value.parse::<f64>().map_or_else(|_| text(), |number| json!(number)),
    }
}
