//! Verbs about materialized views: verifyview, viewbuildstatus.

use clap::{Arg, ArgAction, ArgMatches};
use serde_json::{Value, json};

use super::api::{Api, Failure, escape};
use super::grid::{Grid, percent};
use super::ring::text;
use super::{Verb, checks};

/// The second name that the verbs take.
const VIEW: &str = "view";

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
    arguments: || checks::names(VIEW).into(),
    ask: ask_status,
    show: show_status,
};

fn ask_status(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let (keyspace, view) = checks::name(arguments, "viewbuildstatus", VIEW)?;
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

fn verify_arguments() -> Vec<Arg> {
    let repair =
        Arg::new("repair").long("repair").action(ArgAction::SetTrue).help("Repair the rows that differ");
    checks::names(VIEW).into_iter().chain([repair]).chain(checks::arguments()).collect()
}

fn ask_verify(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let (keyspace, view) = checks::name(arguments, "verifyview", VIEW)?;
    let repair = ("repair", arguments.get_flag("repair").to_string());
    let query = checks::query(arguments).into_iter().chain([repair]);
    let path = format!("/torc/view_checks/{}/{}", escape(keyspace), escape(view));
    checks::run(api, "/torc/view_checks", &path, query, &|check| {
        let (base, view_rows) = (&check["base_rows"], &check["view_rows"]);
        format!("{keyspace}.{view} verified: {base} rows of the base, {view_rows} of the view")
    })
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
    out + &checks::rest(check)
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
