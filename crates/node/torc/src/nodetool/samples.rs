//! The verb toppartitions: the most requested partitions of a node.

use clap::{Arg, ArgMatches, value_parser};
use serde_json::{Value, json};

use super::Verb;
use super::api::{Api, Failure, escape};
use super::grid::Grid;
use super::ring::text;

pub(super) const TOPPARTITIONS: Verb = Verb {
    name: "toppartitions",
    about: "Sample and print the most active partitions of a table",
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
            Arg::new("keyspace").required(true).help("The table's keyspace"),
            Arg::new("table").required(true).help("The table"),
            Arg::new("duration")
                .default_value("10000")
                .value_parser(value_parser!(u32).range(1..=600_000))
                .help("How long, in milliseconds"),
        ]
    },
    ask,
    show,
};

fn ask(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let name = |name: &str| arguments.get_one::<String>(name).expect("clap asks for it");
    let number = |name: &str| *arguments.get_one::<u32>(name).expect("it has a default");
    let table = escape(&format!("{}:{}", name("keyspace"), name("table")));
    let found = api.get(&format!(
        "/column_family/toppartitions/{table}?duration={}&list_size={}&capacity={}",
        number("duration"),
        number("top-count"),
        number("capacity"),
    ))?;
    let samplers = arguments.get_many::<String>("samplers").into_iter().flatten().map(|sampler| {
        let kind = if sampler == "READS" { "read" } else { "write" };
        json!({
            "sampler": sampler,
            "table": format!("{}.{}", name("keyspace"), name("table")),
            "cardinality": found[format!("{kind}_cardinality")],
            "capacity": found["capacity"],
            "partitions": found[kind],
        })
    });
    Ok(samplers.collect())
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
            grid.row([text(&sampler["table"]), of("partition"), of("count"), of("error")]);
        }
        for line in grid.text(" ").lines() {
            out.push_str(&format!("   {line}\n"));
        }
        out + "\n"
    };
    answer.as_array().into_iter().flatten().map(one).collect()
}
