//! Checks of derived tables that a node runs in the background: their names and options, the wait for their end, and the differences that they found.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches};
use serde_json::Value;

use super::api::{Api, Failure, escape};
use super::grid::percent;
use super::ring::text;

/// Interval of the queries for a check's progress, and the number of them between two lines of output.
const ASK_EVERY: Duration = Duration::from_millis(250);
const SAY_EVERY: u32 = 20;

/// The arguments that name a view or a table, by `kind`.
pub(super) fn names(kind: &'static str) -> [Arg; 2] {
    [
        Arg::new("keyspace").required(true).help(format!("The keyspace, or <keyspace>.<{kind}>")),
        Arg::new(kind).help(format!("The {kind}")),
    ]
}

/// The keyspace and the name of a view or a table.
pub(super) fn name<'a>(
    arguments: &'a ArgMatches,
    verb: &str,
    kind: &str,
) -> Result<(&'a str, &'a str), Failure> {
    let given = arguments.get_one::<String>("keyspace").expect("it is required");
    let parts = match arguments.get_one::<String>(kind) {
        Some(name) => Some((given.as_str(), name.as_str())),
        None => given.split_once('.'),
    };
    parts.ok_or_else(|| format!("{verb} requires keyspace and {kind} name arguments"))
}

/// The options of any check.
pub(super) fn arguments() -> [Arg; 6] {
    let value = |name: &'static str, help: &'static str| Arg::new(name).long(name).help(help);
    let number = |name, help| value(name, help).value_parser(clap::value_parser!(u32));
    [
        Arg::new("partitioner-range")
            .long("partitioner-range")
            .action(ArgAction::SetTrue)
            .help("Only ranges of which the node is the first replica (-pr): for a run on every node"),
        value("start-token", "Tokens above this only (-st): continues where another run ended")
            .allow_hyphen_values(true),
        value("end-token", "Tokens up to this only (-et)").allow_hyphen_values(true),
        number("rows-per-second", "Rows that are compared in a second, at most (10000)"),
        number("pause", "Milliseconds after which a difference is looked at again (2000)"),
        number("limit", "Differences that are listed, at most (100)"),
    ]
}

/// The parameters of a request for a check with these options.
pub(super) fn query(arguments: &ArgMatches) -> [(&'static str, String); 6] {
    let text = |name: &str| arguments.get_one::<String>(name).cloned().unwrap_or_default();
    let number = |name: &str| arguments.get_one::<u32>(name).map(u32::to_string).unwrap_or_default();
    [
        ("primary_range", arguments.get_flag("partitioner-range").to_string()),
        ("start_token", text("start-token")),
        ("end_token", text("end-token")),
        ("rows_per_second", number("rows-per-second")),
        ("pause", number("pause")),
        ("limit", number("limit")),
    ]
}

/// Has a check begun at `path`, and waits for its end among those at `all`; `progress` says how far it is.
pub(super) fn run(
    api: &Api,
    all: &str,
    path: &str,
    query: impl Iterator<Item = (&'static str, String)>,
    progress: &dyn Fn(&Value) -> String,
) -> Result<Value, Failure> {
    let query: Vec<String> = query.map(|(name, value)| format!("{name}={}", escape(&value))).collect();
    let id = api.post(&format!("{path}?{}", query.join("&")))?;
    let mut asked = 0;
    loop {
        let checks = api.get(all)?;
        let found = checks.as_array().into_iter().flatten().find(|check| check["id"] == id);
        let check = found
            .cloned()
            .ok_or_else(|| format!("The node knows nothing of check {id} any more: was it restarted?"))?;
        if check["state"] != "RUNNING" {
            return Ok(check);
        }
        asked += 1;
        if asked % SAY_EVERY == 0 {
            // Beside the answer, which may be read by a program.
            let share = percent(check["progress"].as_f64().unwrap_or(0.0), 0);
            eprintln!("{share} of {}", progress(&check));
        }
        std::thread::sleep(ASK_EVERY);
    }
}

/// The differences that a check lists, and how to go on when it ended early.
pub(super) fn rest(check: &Value) -> String {
    let mut out = String::new();
    for found in check["differences"].as_array().into_iter().flatten() {
        let columns = found["key"].as_object().into_iter().flatten();
        let key: Vec<String> = columns.map(|(name, value)| format!("{name} = {}", text(value))).collect();
        let repaired = if found["repaired"] == true { " (repaired)" } else { "" };
        out += &format!("{}: {}{repaired}\n", text(&found["difference"]), key.join(", "));
    }
    if check["state"] != "FINISHED" {
        out += &format!("ended early, {}: {}\n", text(&check["state"]), text(&check["error"]));
        if let Some(token) = check["last_token"].as_str() {
            out += &format!("to go on: --start-token {token}\n");
        }
    }
    out
}
