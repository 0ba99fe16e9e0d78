//! Verbs about materialized views: verifyview, viewbuildstatus.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches};
use serde_json::{Value, json};

use super::Verb;
use super::api::{Api, Failure, escape};
use super::grid::{Grid, percent};
use super::ring::text;

/// Interval of the queries for a check's progress, and the number of them between two lines of output.
const ASK_EVERY: Duration = Duration::from_millis(250);
const SAY_EVERY: u32 = 20;

pub(super) const VERIFYVIEW: Verb = Verb {
    name: "verifyview",
    about: "Compare a materialized view with its base, and repair it",
    arguments: verify_arguments,
    ask: ask_verify,
    show: show_verify,
};

pub(super) const VIEWBUILDSTATUS: Verb = Verb {
    name: "viewbuildstatus",
    about: "Show progress of a materialized view build",
    arguments: names,
    ask: ask_status,
    show: show_status,
};

fn ask_status(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let (keyspace, view) = name(arguments, "viewbuildstatus")?;
    let path = format!("/storage_service/view_build_statuses/{}/{}", escape(keyspace), escape(view));
    let nodes = api.get(&path)?;
    let all = nodes.as_array().cloned().unwrap_or_default();
    let finished = all.iter().all(|node| node["value"] == "SUCCESS");
    Ok(json!({ "keyspace": keyspace, "view": view, "finished": finished, "nodes": nodes }))
}

fn show_status(answer: &Value) -> String {
    let name = format!("{}.{}", text(&answer["keyspace"]), text(&answer["view"]));
    if answer["finished"] == true {
        return format!("{name} has finished building\n");
    }
    let mut grid = Grid::default();
    grid.row(["Host", "Info"]);
    for node in answer["nodes"].as_array().into_iter().flatten() {
        let mut info = text(&node["value"]);
        if let Some(share) = node["progress"].as_f64() {
            info += &format!(" {}", percent(share, 1));
        }
        if let Some(seconds) = node["seconds_left"].as_u64() {
            info += &format!(", about {seconds} s left");
        }
        grid.row([text(&node["key"]), info]);
    }
    format!("{name} has not finished building; node status is below.\n\n{}", grid.text(" "))
}

fn names() -> Vec<Arg> {
    vec![
        Arg::new("keyspace").required(true).help("The keyspace, or <keyspace>.<view>"),
        Arg::new("view").help("The view"),
    ]
}

/// The keyspace and the name of a view.
fn name<'a>(arguments: &'a ArgMatches, verb: &str) -> Result<(&'a str, &'a str), Failure> {
    let given = arguments.get_one::<String>("keyspace").expect("it is required");
    let parts = match arguments.get_one::<String>("view") {
        Some(view) => Some((given.as_str(), view.as_str())),
        None => given.split_once('.'),
    };
    parts.ok_or_else(|| format!("{verb} requires keyspace and view name arguments"))
}

fn verify_arguments() -> Vec<Arg> {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    let value = |name: &'static str, help: &'static str| Arg::new(name).long(name).help(help);
    let number = |name, help| value(name, help).value_parser(clap::value_parser!(u32));
    let own = [
        flag("repair", "Repair the rows that differ"),
        flag(
            "partitioner-range",
            "Only ranges of which the node is the first replica (-pr): for a run on every node",
        ),
        value("start-token", "Tokens above this only (-st): continues where another run ended")
            .allow_hyphen_values(true),
        value("end-token", "Tokens up to this only (-et)").allow_hyphen_values(true),
        number("rows-per-second", "Rows that are compared in a second, at most (10000)"),
        number("pause", "Milliseconds after which a difference is looked at again (2000)"),
        number("limit", "Differences that are listed, at most (100)"),
    ];
    names().into_iter().chain(own).collect()
}

fn ask_verify(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let (keyspace, view) = name(arguments, "verifyview")?;
    let text = |name: &str| arguments.get_one::<String>(name).cloned().unwrap_or_default();
    let number = |name: &str| arguments.get_one::<u32>(name).map(u32::to_string).unwrap_or_default();
    let query = [
        ("repair", arguments.get_flag("repair").to_string()),
        ("primary_range", arguments.get_flag("partitioner-range").to_string()),
        ("start_token", text("start-token")),
        ("end_token", text("end-token")),
        ("rows_per_second", number("rows-per-second")),
        ("pause", number("pause")),
        ("limit", number("limit")),
    ];
    let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", escape(value))).collect();
    let path = format!("/torc/view_checks/{}/{}?{}", escape(keyspace), escape(view), query.join("&"));
    let id = api.post(&path)?;
    let mut asked = 0;
    loop {
        let all = api.get("/torc/view_checks")?;
        let found = all.as_array().into_iter().flatten().find(|check| check["id"] == id);
        let check = found
            .cloned()
            .ok_or_else(|| format!("The node knows nothing of check {id} any more: was it restarted?"))?;
        if check["state"] != "RUNNING" {
            return Ok(check);
        }
        asked += 1;
        if asked % SAY_EVERY == 0 {
            // Beside the answer, which may be read by a program.
            eprintln!(
                "{} of {keyspace}.{view} verified: {} rows of the base, {} of the view",
                percent(check["progress"].as_f64().unwrap_or(0.0), 0),
                check["base_rows"],
                check["view_rows"],
            );
        }
        std::thread::sleep(ASK_EVERY);
    }
}

/// Whether a check went over all its tokens and nothing differs any more.
pub(super) fn is_verified(check: &Value) -> bool {
    let number = |name: &str| check[name].as_u64().unwrap_or(0);
    let differs = number("missing") + number("wrong") + number("ghosts");
    check["state"] == "FINISHED" && differs == number("repaired") && number("unsettled") == 0
}

fn show_verify(check: &Value) -> String {
    let name = format!("{}.{}", text(&check["keyspace"]), text(&check["view"]));
    let mut out = format!(
        "{name}: {} rows of the base and {} rows of the view compared in {} seconds\n",
        check["base_rows"], check["view_rows"], check["elapsed_seconds"]
    );
    out += &format!(
        "missing: {}, wrong: {}, ghosts: {}, repaired: {}, unsettled: {}\n",
        check["missing"], check["wrong"], check["ghosts"], check["repaired"], check["unsettled"]
    );
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_under_way_are_shown_with_their_progress() {
        let nodes = json!([
            { "key": "127.0.0.1", "value": "SUCCESS" },
            { "key": "127.0.0.2", "value": "STARTED", "progress": 0.421, "seconds_left": 75 },
            { "key": "127.0.0.3", "value": "STARTED", "progress": 0.0, "seconds_left": null },
        ]);
        let shown = show_status(&json!({ "keyspace": "ks", "view": "v", "finished": false, "nodes": nodes }));
        let expected = "ks.v has not finished building; node status is below.\n\n\
            Host      Info                          \n\
            127.0.0.1 SUCCESS                       \n\
            127.0.0.2 STARTED 42.1%, about 75 s left\n\
            127.0.0.3 STARTED 0.0%                  \n";
        assert_eq!(shown, expected);
    }
}
