//! Verbs about a table as the node stores it: tablehistograms, getsstables, datapaths, rangekeysample.

use clap::{Arg, ArgAction, ArgMatches};
use serde_json::{Value, json};

use super::api::{Api, Failure, escape};
use super::load::summary;
use super::ring::text;
use super::{Verb, given, texts, words};

pub(super) const TABLEHISTOGRAMS: Verb = Verb {
    name: "tablehistograms",
    about: "Print statistic histograms for a given table",
    arguments: || {
        vec![words("names", "A keyspace and a table, or <keyspace>.<table>; every table when not given")]
    },
    ask: ask_histograms,
    show: show_histograms,
};

pub(super) const GETSSTABLES: Verb = Verb {
    name: "getsstables",
    about: "Print the sstable filenames that own the key",
    arguments: || {
        let name = |name: &'static str, help: &'static str| Arg::new(name).required(true).help(help);
        vec![
            name("keyspace", "The keyspace"),
            name("table", "The table"),
            name("key", "The partition key, several columns with colons between").allow_hyphen_values(true),
            Arg::new("hex-format")
                .long("hex-format")
                .action(ArgAction::SetTrue)
                .help("The key is written in hexadecimal digits (-hf)"),
        ]
    },
    ask: |api, arguments| {
        let name = |name: &str| arguments.get_one::<String>(name).expect("it is required");
        let table = escape(&format!("{}:{}", name("keyspace"), name("table")));
        let format = if arguments.get_flag("hex-format") { "hex" } else { "plain" };
        api.get(&format!(
            "/column_family/sstables/by_key/{table}?format={format}&key={}",
            escape(name("key"))
        ))
    },
    show: |answer| texts(answer).iter().map(|path| format!("{path}\n")).collect(),
};

pub(super) const DATAPATHS: Verb = Verb {
    name: "datapaths",
    about: "Print all directories where data of tables are stored",
    arguments: || {
        vec![words("names", "Keyspaces, or tables as <keyspace>.<table>; everything when not given")]
    },
    ask: ask_paths,
    show: show_paths,
};

pub(super) const RANGEKEYSAMPLE: Verb = Verb {
    name: "rangekeysample",
    about: "Shows the sampled keys held across all keyspaces",
    arguments: Vec::new,
    ask: |api, _| api.get("/storage_service/sample_key_range"),
    show: |answer| {
        let tokens = texts(answer);
        let lines: String = tokens.iter().map(|token| format!("\t{token}\n")).collect();
        format!("RangeKeySample: \n{lines}")
    },
};

/// The columns of the text: figure, its histogram, title, unit.
const COLUMNS: [(&str, &str, &str, &str); 5] = [
    ("read_latency", "read_latency/estimated_histogram", "Read Latency", "(micros)"),
    ("write_latency", "write_latency/estimated_histogram", "Write Latency", "(micros)"),
    ("sstables_per_read", "sstables_per_read_histogram", "SSTables", ""),
    ("partition_size", "estimated_row_size_histogram", "Partition Size", "(bytes)"),
    ("cell_count", "estimated_column_count_histogram", "Cell Count", ""),
];

/// The tables that the words name: none, `keyspace table` or `keyspace.table`.
fn tables(api: &Api, arguments: &ArgMatches) -> Result<Vec<(String, String)>, Failure> {
    let names = given(arguments, "names");
    let pair = |keyspace: &str, table: &str| vec![(keyspace.to_owned(), table.to_owned())];
    match names[..] {
        [] => {
            let all = api.get("/torc/tables")?;
            let one = |table: &Value| (text(&table["keyspace"]), text(&table["table"]));
            Ok(all.as_array().into_iter().flatten().map(one).collect())
        }
        [keyspace, table] => Ok(pair(keyspace, table)),
        [name] if name.contains('.') => {
            let (keyspace, table) = name.split_once('.').expect("it has a dot");
            Ok(pair(keyspace, table))
        }
        _ => Err("tablehistograms requires keyspace and table name arguments".to_owned()),
    }
}

fn ask_histograms(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let mut out = Vec::new();
    for (keyspace, table) in tables(api, arguments)? {
        let name = escape(&format!("{keyspace}:{table}"));
        let mut figures = serde_json::Map::new();
        for (figure, path, ..) in COLUMNS {
            let path = match path.strip_suffix("/estimated_histogram") {
                Some(latency) => format!("{latency}/estimated_histogram/{name}"),
                None => format!("{path}/{name}"),
            };
            let histogram = api.get(&format!("/column_family/metrics/{path}"))?;
            figures.insert(figure.to_owned(), distribution(&histogram));
        }
        out.push(json!({ "keyspace": keyspace, "table": table, "histograms": figures }));
    }
    Ok(out.into())
}

/// Percentiles of a histogram; the largest value where the node knows it; none of a table without SSTables.
fn distribution(histogram: &Value) -> Value {
    if histogram["sstables"] == 0 {
        return Value::Null;
    }
    let numbers = |name: &str| -> Vec<u64> {
        histogram[name].as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
    };
    let mut found = summary(&numbers("bucket_offsets"), &numbers("buckets"));
    if let Some(max) = histogram["max"].as_u64() {
        for bound in found.as_object_mut().into_iter().flat_map(|found| found.values_mut()) {
            *bound = json!(bound.as_u64().unwrap_or(0).min(max));
        }
        found["Max"] = json!(max);
    }
    found
}

fn show_histograms(answer: &Value) -> String {
    let mut out = String::new();
    let line = |first: &str, cells: [String; 5]| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>18}")).collect();
        format!("{first:<10}{cells}\n")
    };
    for table in answer.as_array().into_iter().flatten() {
        let histograms = &table["histograms"];
        if histograms["partition_size"].is_null() {
            out.push_str(
                "No SSTables exists, unable to calculate 'Partition Size' and 'Cell Count' percentiles\n",
            );
        }
        out.push_str(&format!("{}/{} histograms\n", text(&table["keyspace"]), text(&table["table"])));
        out.push_str(&line("Percentile", COLUMNS.map(|(.., title, _)| title.to_owned())));
        out.push_str(&line("", COLUMNS.map(|(.., unit)| unit.to_owned())));
        for name in ["50%", "75%", "95%", "98%", "99%", "Min", "Max"] {
            let cell = |(figure, ..): (&str, &str, &str, &str)| {
                let value = histograms[figure][name].as_f64();
                match figure {
                    "partition_size" | "cell_count" => {
                        value.map_or("NaN".to_owned(), |value| format!("{value:.0}"))
                    }
                    _ => format!("{:.2}", value.unwrap_or(0.0)),
                }
            };
            out.push_str(&line(name, COLUMNS.map(cell)));
        }
        out.push('\n');
    }
    out
}

fn ask_paths(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let names = given(arguments, "names");
    if names.is_empty() {
        return api.get("/torc/data_paths");
    }
    let mut out = Vec::new();
    for name in names {
        let (keyspace, table) = name.split_once('.').unwrap_or((name, ""));
        let path = format!("/torc/data_paths?keyspace={}&cf={}", escape(keyspace), escape(table));
        out.extend(api.get(&path)?.as_array().into_iter().flatten().cloned());
    }
    Ok(out.into())
}

fn show_paths(answer: &Value) -> String {
    let mut out = String::new();
    let tables = answer.as_array().map_or(&[][..], Vec::as_slice);
    for keyspace in tables.chunk_by(|one, other| one["keyspace"] == other["keyspace"]) {
        out.push_str(&format!("Keyspace: {}\n", text(&keyspace[0]["keyspace"])));
        for table in keyspace {
            out.push_str(&format!("\tTable: {}\n\tPaths:\n", text(&table["table"])));
            texts(&table["paths"]).iter().for_each(|path| out.push_str(&format!("\t\t{path}\n")));
            out.push('\n');
        }
    }
    out
}
