//! Verbs about the compactions that begin by themselves: their switch for tables, and the thresholds of a table.

use clap::{Arg, ArgAction, ArgMatches};
use serde_json::{Value, json};

use super::api::{Api, Failure, escape};
use super::grid::Grid;
use super::ring::text;
use super::settings::setter;
use super::{Verb, given, words};

const NAMES: &str = "A keyspace and its tables; everything when not given";

pub(super) const DISABLEAUTOCOMPACTION: Verb = setter(
    "disableautocompaction",
    "Disable autocompaction for the given keyspace and table",
    || vec![words("names", NAMES)],
    |api, arguments| switch(api, arguments, Api::delete),
);

pub(super) const ENABLEAUTOCOMPACTION: Verb = setter(
    "enableautocompaction",
    "Enable autocompaction for the given keyspace and table",
    || vec![words("names", NAMES)],
    |api, arguments| switch(api, arguments, Api::post),
);

pub(super) const STATUSAUTOCOMPACTION: Verb = Verb {
    name: "statusautocompaction",
    about: "status of autocompaction of the given keyspace and table",
    arguments: || {
        let all = Arg::new("all").short('a').long("all").action(ArgAction::SetTrue);
        vec![all.help("Show the status of each table"), words("names", NAMES)]
    },
    ask: ask_status,
    show: show_status,
};

pub(super) const GETCOMPACTIONTHRESHOLD: Verb = Verb {
    name: "getcompactionthreshold",
    about: "Print min and max compaction thresholds for a given table",
    arguments: || {
        let name = |name: &'static str| Arg::new(name).required(true);
        vec![name("keyspace").help("The keyspace"), name("table").help("The table")]
    },
    ask: |api, arguments| {
        let of = |name: &str| arguments.get_one::<String>(name).expect("it is required");
        let (keyspace, table) = (of("keyspace"), of("table"));
        let name = escape(&format!("{keyspace}:{table}"));
        Ok(json!({
            "keyspace": keyspace,
            "table": table,
            "min": api.get(&format!("/column_family/minimum_compaction/{name}"))?,
            "max": api.get(&format!("/column_family/maximum_compaction/{name}"))?,
        }))
    },
    show: |answer| {
        let of = |name: &str| text(&answer[name]);
        format!(
            "Current compaction thresholds for {}/{}: \n min = {},  max = {}\n",
            of("keyspace"),
            of("table"),
            of("min"),
            of("max")
        )
    },
};

/// The stored tables that the words name: a keyspace and its tables, or all.
fn named(api: &Api, arguments: &ArgMatches) -> Result<Vec<(String, String)>, Failure> {
    let names = given(arguments, "names");
    let (keyspace, tables) = match names.split_first() {
        Some((keyspace, tables)) => (*keyspace, tables.join(",")),
        None => ("", String::new()),
    };
    let path = format!("/torc/data_paths?keyspace={}&cf={}", escape(keyspace), escape(&tables));
    let one = |table: &Value| (text(&table["keyspace"]), text(&table["table"]));
    Ok(api.get(&path)?.as_array().into_iter().flatten().map(one).collect())
}

fn switch(
    api: &Api,
    arguments: &ArgMatches,
    request: fn(&Api, &str) -> Result<Value, Failure>,
) -> Result<Value, Failure> {
    for (keyspace, table) in named(api, arguments)? {
        request(api, &format!("/column_family/autocompaction/{}", escape(&format!("{keyspace}:{table}"))))?;
    }
    Ok(Value::Null)
}

fn ask_status(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let mut tables = Vec::new();
    for (keyspace, table) in named(api, arguments)? {
        let name = escape(&format!("{keyspace}:{table}"));
        let running = api.get(&format!("/column_family/autocompaction/{name}"))?;
        tables.push(json!({ "keyspace": keyspace, "table": table, "running": running }));
    }
    Ok(json!({ "tables": tables, "all": arguments.get_flag("all") }))
}

fn show_status(answer: &Value) -> String {
    let tables = answer["tables"].as_array().map_or(&[][..], Vec::as_slice);
    let running = tables.iter().filter(|table| table["running"] == true).count();
    if answer["all"] == true {
        let mut grid = Grid::default();
        grid.row(["Keyspace", "Table", "Status"]);
        for table in tables {
            let status = if table["running"] == true { "running" } else { "not running" };
            grid.row([text(&table["keyspace"]), text(&table["table"]), status.to_owned()]);
        }
        return grid.text(" ");
    }
    let status = match running {
        0 if !tables.is_empty() => "not running",
        running if running == tables.len() => "running",
        _ => "partially running",
    };
    format!("{status}\n")
}
