//! Verb about logs of changes: verifycdc.

use clap::{Arg, ArgMatches};
use serde_json::Value;

use super::api::{Api, Failure, escape};
use super::ring::text;
use super::{Verb, checks};

pub(super) const VERIFYCDC: Verb = Verb {
    name: "verifycdc",
    about: "Compare a table with its replayed log of changes",
    arguments,
    ask,
    show,
};

fn arguments() -> Vec<Arg> {
    let since = Arg::new("since")
        .long("since")
        .value_parser(clap::value_parser!(u32))
        .help("Writes from this time on only, in seconds since 1970: when CDC was off before");
    checks::names("table").into_iter().chain([since]).chain(checks::arguments()).collect()
}

fn ask(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let (keyspace, table) = checks::name(arguments, "verifycdc", "table")?;
    let since = arguments.get_one::<u32>("since").map(u32::to_string).unwrap_or_default();
    let query = checks::query(arguments).into_iter().chain([("since", since)]);
    let path = format!("/torc/cdc_checks/{}/{}", escape(keyspace), escape(table));
    checks::run(api, "/torc/cdc_checks", &path, query, &|check| {
        let (base, log) = (&check["base_rows"], &check["log_rows"]);
        format!("{keyspace}.{table} verified: {base} rows of the table, {log} of its log")
    })
}

/// Whether a check went over all its tokens and nothing differs.
pub(super) fn is_verified(check: &Value) -> bool {
    let none = |name: &str| check[name].as_u64() == Some(0);
    check["state"] == "FINISHED" && none("unlogged") && none("unapplied") && none("unsettled")
}

fn show(check: &Value) -> String {
    let name = format!("{}.{}", text(&check["keyspace"]), text(&check["table"]));
    let compared = format!(
        "{name}: {} rows of the table and {} rows of its log compared in {} seconds\n",
        check["base_rows"], check["log_rows"], check["elapsed_seconds"]
    );
    let found = format!(
        "unlogged: {}, unapplied: {}, unsettled: {}\n",
        check["unlogged"], check["unapplied"], check["unsettled"]
    );
    compared + &found + &checks::rest(check)
}
