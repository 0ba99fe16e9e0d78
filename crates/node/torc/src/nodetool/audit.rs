//! Verbs about the audit log. They change live settings: until the node ends.

use clap::Arg;
use serde_json::{Value, json};

use super::api::Failure;
use super::settings::{change, setter, setting};
use super::{Verb, silent};

/// The lists of names that an audit log goes by: the option of the verb, and the end of the setting's name.
const LISTS: &[(&str, &str, &str)] = &[
    ("included-keyspaces", "included_keyspaces", "Keyspaces that are audited, separated by commas"),
    ("excluded-keyspaces", "excluded_keyspaces", "Keyspaces that are not audited"),
    ("included-categories", "included_categories", "Categories that are audited"),
    ("excluded-categories", "excluded_categories", "Categories that are not audited"),
    ("included-users", "included_users", "Roles that are audited"),
    ("excluded-users", "excluded_users", "Roles that are not audited"),
];

pub(super) const DISABLEAUDITLOG: Verb =
    setter("disableauditlog", "Disable the audit log", Vec::new, |api, _| {
        change(api, &full("enabled"), "false")
    });

pub(super) const ENABLEAUDITLOG: Verb = Verb {
    name: "enableauditlog",
    about: "Enable the audit log, with the lists that are given",
    arguments: || {
        let list =
            |(name, _, help): &(&'static str, &str, &'static str)| Arg::new(*name).long(*name).help(*help);
        LISTS.iter().map(list).collect()
    },
    ask: |api, arguments| {
        for (name, setting, _) in LISTS {
            if let Some(list) = arguments.get_one::<String>(name) {
                change(api, &full(setting), list)?;
            }
        }
        change(api, &full("enabled"), "true")
    },
    show: silent,
};

pub(super) const GETAUDITLOG: Verb = Verb {
    name: "getauditlog",
    about: "Print the settings of the audit log",
    arguments: Vec::new,
    ask: |api, _| {
        let names = ["enabled", "logger", "syslog_target", "audit_logs_dir", "max_log_size"].into_iter();
        let names = names.chain(LISTS.iter().map(|(_, setting, _)| *setting));
        let one = |name: &str| Ok((name.to_owned(), setting(api, &full(name))?));
        let all: Result<serde_json::Map<String, Value>, Failure> = names.map(one).collect();
        Ok(json!(all?))
    },
    show: |answer| {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let lines = answer.as_object().into_iter().flatten();
        lines.map(|(name, value)| format!("{name:<35} {}\n", text(value))).collect()
    },
};

fn full(name: &str) -> String {
    format!("audit_logging_options_{name}")
}
