//! Verbs about groups of addresses from which roles may log in.

use clap::{Arg, ArgMatches};
use serde_json::{Value, json};

use super::api::{Api, Failure, escape};
use super::grid::Grid;
use super::{Verb, given, silent, texts};

pub(super) const UPDATECIDRGROUP: Verb = Verb {
    name: "updatecidrgroup",
    about: "Insert/Update CIDR group",
    arguments: || {
        let cidrs = Arg::new("cidrs").required(true).num_args(1..);
        vec![
            group("The group").required(true),
            cidrs.help("Its ranges of addresses, as 10.0.0.0/8; they replace those of before"),
        ]
    },
    ask: |api, arguments| {
        let cidrs: Vec<String> = given(arguments, "cidrs").into_iter().map(escape).collect();
        api.post(&format!("/torc/cidr_groups/{}?cidrs={}", named(arguments), cidrs.join(",")))
    },
    show: silent,
};

pub(super) const DROPCIDRGROUP: Verb = Verb {
    name: "dropcidrgroup",
    about: "Drop an existing cidr group",
    arguments: || vec![group("The group").required(true)],
    ask: |api, arguments| api.delete(&format!("/torc/cidr_groups/{}", named(arguments))),
    show: silent,
};

pub(super) const LISTCIDRGROUPS: Verb = Verb {
    name: "listcidrgroups",
    about: "List existing cidr groups",
    arguments: || vec![group("The group whose ranges are listed; all groups are, without it")],
    ask: list,
    show: |answer| match answer["cidrs"].is_array() {
        true => set("CIDRs", &texts(&answer["cidrs"])),
        false => set("CIDR Groups", &texts(&answer["groups"])),
    },
};

pub(super) const GETCIDRGROUPSOFIP: Verb = Verb {
    name: "getcidrgroupsofip",
    about: "Print CIDR groups associated with given IP",
    arguments: || vec![Arg::new("address").required(true).help("The address")],
    ask: |api, arguments| {
        let address = escape(arguments.get_one::<String>("address").expect("it is required"));
        Ok(json!({ "groups": api.get(&format!("/torc/cidr_groups_of/{address}"))? }))
    },
    show: |answer| set("CIDR Groups", &texts(&answer["groups"])),
};

pub(super) const CIDRFILTERINGSTATS: Verb = Verb {
    name: "cidrfilteringstats",
    about: "Print statistics on CIDR filtering",
    arguments: Vec::new,
    ask: |api, _| api.get("/torc/cidr_filtering_stats"),
    show: |answer| {
        let table = |title: &str, rows: &Value, columns: &[&str]| {
            let mut grid = Grid::default();
            grid.row(columns);
            for row in rows.as_array().into_iter().flatten() {
                grid.row(columns.iter().map(|column| figure(&row[*column])));
            }
            format!("{title}: \n{}\n", grid.text(" "))
        };
        let counts = table("cidr_filtering_metrics_counts", &answer["counts"], &["name", "value"]);
        let columns = ["name", "p50th", "p95th", "p99th", "p999th", "max"];
        counts + &table("cidr_filtering_metrics_latencies", &answer["latencies"], &columns)
    },
};

/// A text, a count, or a figure as Java writes it: from ten million on with an exponent.
fn figure(value: &Value) -> String {
    match (value.as_str(), value.as_f64().filter(|_| value.is_f64())) {
        (Some(text), _) => text.to_owned(),
        (None, Some(figure)) if figure >= 1e7 => {
            let text = format!("{figure:E}");
            if text.contains('.') { text } else { text.replace('E', ".0E") }
        }
        (None, Some(figure)) => format!("{figure:?}"),
        (None, None) => value.to_string(),
    }
}

fn group(help: &'static str) -> Arg {
    Arg::new("group").help(help)
}

fn named(arguments: &ArgMatches) -> String {
    escape(arguments.get_one::<String>("group").expect("it is required"))
}

fn list(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let groups = api.get("/torc/cidr_groups")?;
    let Some(name) = arguments.get_one::<String>("group") else {
        let names: Vec<&String> = groups.as_object().into_iter().flatten().map(|(name, _)| name).collect();
        return Ok(json!({ "groups": names }));
    };
    let cidrs = groups.get(name).cloned().unwrap_or_else(|| json!([]));
    Ok(json!({ "cidrs": cidrs }))
}

/// A title and its values; nothing without any.
fn set(title: &str, values: &[String]) -> String {
    if values.is_empty() {
        return String::new();
    }
    let mut grid = Grid::default();
    grid.row([format!("{title}: ")]);
    values.iter().for_each(|value| grid.row([value.clone()]));
    grid.text(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_java() {
        let shown = |value: Value| figure(&value);
        assert_eq!(shown(json!(1.5)), "1.5");
        assert_eq!(shown(json!(9_999_999.0)), "9999999.0");
        assert_eq!(shown(json!(1e7)), "1.0E7");
        assert_eq!(shown(json!(12_345_678.0)), "1.2345678E7");
        assert_eq!(shown(json!(12_345_678)), "12345678", "a count");
    }
}
