//! Verbs about materialized views: viewbuildstatus.

use clap::{Arg, ArgMatches};
use serde_json::{Value, json};

use super::Verb;
use super::api::{Api, Failure, escape};
use super::grid::Grid;
use super::ring::text;

pub(super) const VIEWBUILDSTATUS: Verb = Verb {
    name: "viewbuildstatus",
    about: "Show progress of a materialized view build",
    arguments: || {
        vec![
            Arg::new("keyspace").required(true).help("The keyspace, or <keyspace>.<view>"),
            Arg::new("view").help("The view"),
        ]
    },
    ask: ask_status,
    show: show_status,
};

fn ask_status(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let given = arguments.get_one::<String>("keyspace").expect("it is required");
    let parts = match arguments.get_one::<String>("view") {
        Some(view) => Some((given.as_str(), view.as_str())),
        None => given.split_once('.'),
    };
    let Some((keyspace, view)) = parts else {
        return Err("viewbuildstatus requires keyspace and view name arguments".to_owned());
    };
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
        grid.row([text(&node["key"]), text(&node["value"])]);
    }
    format!("{name} has not finished building; node status is below.\n\n{}", grid.text(" "))
}
