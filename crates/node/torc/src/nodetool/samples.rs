//! The verb toppartitions: the most requested partitions of a node.

use clap::{Arg, ArgMatches, value_parser};
use serde_json::{Value, json};

use super::Verb;
use super::api::{Api, Failure, escape};
use super::grid::Grid;
use super::ring::text;

pub(super) const TOPPARTITIONS: Verb = Verb {
    name: "toppartitions",
    about: "Sample and print the most active partitions of a table, or of several",
    arguments: || {
        let number = |name: &'static str, short: char, default: &'static str| {
            Arg::new(name)
                .short(short)
                .default_value(default)
                .value_parser(value_parser!(u32).range(1..=65_536))
        };
        vec![
            number("top-count", 'k', "10").long("top-count").help("How many partitions to list"),
            number("capacity", 's', "256")
                .long("capacity")
                .help("Partitions that are counted at a time; more are more exact"),
            Arg::new("samplers")
                .short('a')
                .long("samplers")
                .default_value("READS,WRITES")
                .value_delimiter(',')
                .value_parser(["READS", "WRITES"])
                .help("The samplers"),
            Arg::new("ks-filters").long("ks-filters").help("Only these keyspaces, with commas between"),
            Arg::new("cf-filters")
                .long("cf-filters")
                .help("Only these tables, as <keyspace>:<table> with commas between"),
            millis("milliseconds")
                .short('d')
                .long("duration")
                .help("How long, in milliseconds; 10000 by default"),
            Arg::new("keyspace").requires("table").help("The table's keyspace; all tables when not given"),
            Arg::new("table").conflicts_with_all(["ks-filters", "cf-filters"]).help("The table"),
            millis("duration").conflicts_with("milliseconds").help("How long, in milliseconds"),
        ]
    },
    ask,
    show,
};

fn millis(name: &'static str) -> Arg {
    Arg::new(name).value_parser(value_parser!(u32).range(1..=600_000))
}

fn ask(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let text = |name: &str| arguments.get_one::<String>(name);
    let number = |name: &str| arguments.get_one::<u32>(name).copied();
    let filter = match (text("keyspace"), text("table")) {
        (Some(keyspace), Some(table)) => format!("&table_filters={}", escape(&format!("{keyspace}:{table}"))),
        _ => {
            let filter = |name: &str, parameter: &str| {
                text(name).map(|list| format!("&{parameter}={}", escape(list))).unwrap_or_default()
            };
            filter("ks-filters", "keyspace_filters") + &filter("cf-filters", "table_filters")
        }
    };
    let found = api.get(&format!(
        "/storage_service/toppartitions?duration={}&list_size={}&capacity={}{filter}",
        number("milliseconds").or(number("duration")).unwrap_or(10_000),
        number("top-count").expect("it has a default"),
        number("capacity").expect("it has a default"),
    ))?;
    let samplers = arguments.get_many::<String>("samplers").into_iter().flatten().map(|sampler| {
        let kind = if sampler == "READS" { "read" } else { "write" };
        let partitions = found[kind].as_array().into_iter().flatten().map(with_table);
        json!({
            "sampler": sampler,
            "cardinality": found[format!("{kind}_cardinality")],
            "capacity": found["capacity"],
            "partitions": partitions.collect::<Vec<_>>(),
        })
    });
    Ok(samplers.collect())
}

/// `(ks:cf) key` as a table and a key.
fn with_table(partition: &Value) -> Value {
    let name = text(&partition["partition"]);
    let parts = name.strip_prefix('(').and_then(|rest| rest.split_once(") "));
    let (table, key) = parts.unwrap_or(("", &name));
    json!({
        "table": table.replacen(':', ".", 1), "partition": key, "count": partition["count"],
        "error": partition["error"],
    })
}

fn show(answer: &Value) -> String {
    let one = |sampler: &Value| {
        let kind = if sampler["sampler"] == "READS" { "reads" } else { "writes" };
        let mut out = format!("Frequency of {kind} by partition:\n");
        let partitions = sampler["partitions"].as_array().map_or(&[][..], Vec::as_slice);
        if partitions.is_empty() {
            return out + "   Nothing recorded during sampling period...\n\n";
        }
        let mut grid = Grid::default();
        grid.row(["Table", "Partition", "Count", "+/-"]);
        for partition in partitions {
            let of = |name: &str| text(&partition[name]);
            grid.row([of("table"), of("partition"), of("count"), of("error")]);
        }
        for line in grid.text(" ").lines() {
            out.push_str(&format!("   {line}\n"));
        }
        out + "\n"
    };
    answer.as_array().into_iter().flatten().map(one).collect()
}
