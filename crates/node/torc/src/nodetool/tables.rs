//! Verbs about tables: tablestats, flush, compact, rebuild_index.

use clap::{Arg, ArgAction, ArgMatches};
use serde_json::{Value, json};

use super::api::{Api, Failure, escape};
use super::grid::size;
use super::ring::text;
use super::{Verb, given, silent, texts, words};

pub(super) const TABLESTATS: Verb = Verb {
    name: "tablestats",
    about: "Print statistics on tables",
    arguments: || {
        let human = Arg::new("human-readable").short('H').long("human-readable").action(ArgAction::SetTrue);
        let others = Arg::new("ignore").short('i').action(ArgAction::SetTrue);
        vec![
            human.help("Display bytes in human readable form, i.e. KiB, MiB, GiB, TiB"),
            others.help("Ignore the list of tables and display the remaining tables"),
            words("tables", "Keyspaces, or tables as keyspace.table"),
        ]
    },
    ask: ask_tables,
    show: show_tables,
};

pub(super) const FLUSH: Verb = Verb {
    name: "flush",
    about: "Flush one or more tables",
    arguments: || vec![words("names", "A keyspace and its tables; everything when not given")],
    ask: |api, arguments| maintain(api, arguments, "keyspace_flush", ""),
    show: silent,
};

pub(super) const COMPACT: Verb = Verb {
    name: "compact",
    about: "Force a (major) compaction on one or more tables",
    arguments: || {
        let flush = Arg::new("flush-memtables").long("flush-memtables").value_parser(["true", "false"]);
        let split = Arg::new("split-output").short('s').long("split-output").action(ArgAction::SetTrue);
        vec![
            flush.default_value("true").help("Whether memtables are written first"),
            split.help("Understood for Cassandra's sake, and makes no difference").hide(true),
            words("names", "A keyspace and its tables; everything when not given"),
        ]
    },
    ask: |api, arguments| {
        let flush = arguments.get_one::<String>("flush-memtables").expect("it has a default");
        maintain(api, arguments, "keyspace_compaction", &format!("flush_memtables={flush}"))
    },
    show: silent,
};

pub(super) const REBUILD_INDEX: Verb = Verb {
    name: "rebuild_index",
    about: "A full rebuild of native secondary indexes for a given table",
    arguments: || {
        let name = |name: &'static str, help: &'static str| Arg::new(name).required(true).help(help);
        let indexes = Arg::new("indexes").num_args(1..).required(true);
        vec![
            name("keyspace", "The keyspace"),
            name("table", "The table"),
            indexes.help("The indexes; each may have its table before it, as <table>.<index>"),
        ]
    },
    ask: rebuild_index,
    show: silent,
};

fn rebuild_index(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let name = |name: &str| arguments.get_one::<String>(name).expect("it is required");
    let (keyspace, table) = (name("keyspace"), name("table"));
    let own = format!("{table}.");
    let indexes = given(arguments, "indexes");
    let indexes: Vec<String> =
        indexes.iter().map(|index| escape(index.strip_prefix(own.as_str()).unwrap_or(index))).collect();
    let (keyspace, table) = (escape(keyspace), escape(table));
    api.post(&format!("/torc/rebuild_index/{keyspace}/{table}?index={}", indexes.join(",")))?;
    Ok(Value::Null)
}

fn maintain(api: &Api, arguments: &ArgMatches, path: &str, query: &str) -> Result<Value, Failure> {
    let names = given(arguments, "names");
    let (keyspaces, tables) = match names.split_first() {
        Some((keyspace, tables)) => (vec![(*keyspace).to_owned()], tables),
        None => (texts(&api.get("/storage_service/keyspaces")?), &names[..]),
    };
    let tables: Vec<String> = tables.iter().map(|table| escape(table)).collect();
    let query = format!("?cf={}&{query}", tables.join(","));
    for keyspace in keyspaces {
        api.post(&format!("/storage_service/{path}/{}{query}", escape(&keyspace)))?;
    }
    Ok(Value::Null)
}

fn ask_tables(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let names = given(arguments, "tables");
    let all = api.get("/torc/tables?histograms=true")?;
    let all: Vec<&Value> = all.as_array().into_iter().flatten().collect();
    let is = |table: &Value, name: &str| {
        let keyspace = text(&table["keyspace"]);
        name == keyspace || name == format!("{keyspace}.{}", text(&table["table"]))
    };
    for name in &names {
        if !all.iter().any(|table| is(table, name)) {
            return Err(match name.split_once('.') {
                Some((keyspace, table)) => format!("Unknown tables: {table} in keyspace: {keyspace}"),
                None => format!("Unknown keyspace: {name}"),
            });
        }
    }
    let ignore = arguments.get_flag("ignore");
    let wanted = |table: &&&Value| names.is_empty() || names.iter().any(|name| is(table, name)) != ignore;
    let chosen: Vec<&Value> = all.iter().filter(wanted).copied().collect();
    let mut out = serde_json::Map::new();
    out.insert("total_number_of_tables".to_owned(), json!(all.len()));
    for group in chosen.chunk_by(|a, b| a["keyspace"] == b["keyspace"]) {
        out.insert(text(&group[0]["keyspace"]), keyspace_figures(group));
    }
    // Not a figure, but how the text shows them.
    out.insert("human_readable".to_owned(), json!(arguments.get_flag("human-readable")));
    Ok(out.into())
}

fn keyspace_figures(tables: &[&Value]) -> Value {
    let sum = |name: &str| tables.iter().filter_map(|table| table[name].as_u64()).sum::<u64>();
    let one = |table: &&Value| (text(&table["table"]), table_figures(table));
    // The mean over the requests of all tables, as far as their recent ones tell.
    let mean = |count: &str, recent: &str| {
        let one = |table: &&Value| {
            let count = table[count].as_f64().filter(|count| *count > 0.0)?;
            Some((count, count * table["recent"][recent].as_f64()? / 1e3))
        };
        let (requests, sum) = tables.iter().filter_map(one).fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
        (requests > 0.0).then(|| sum / requests)
    };
    json!({
        "read_count": sum("reads"),
        "read_latency": mean("reads", "read_micros_mean"),
        "write_count": sum("writes"),
        "write_latency": mean("writes", "write_micros_mean"),
        "pending_flushes": sum("pending_flushes"),
        "tables": tables.iter().map(one).collect::<serde_json::Map<String, Value>>(),
    })
}

/// A table's figures under Cassandra's names.
fn table_figures(table: &Value) -> Value {
    let of = |name: &str| table[name].as_u64().unwrap_or(0);
    let (data, uncompressed) = (of("data_bytes"), of("uncompressed_bytes"));
    let ratio = if uncompressed == 0 { -1.0 } else { data as f64 / uncompressed as f64 };
    let recent = &table["recent"];
    let millis = |name: &str| recent[name].as_f64().map(|micros| micros / 1e3);
    let positives = of("bloom_false_positives") + of("bloom_true_positives");
    json!({
        "sstable_count": of("sstables"),
        "sstables_in_each_level": table["sstables_per_level"],
        "space_used_live": of("disk_bytes"),
        "space_used_total": of("total_disk_bytes"),
        "space_used_by_snapshots_total": of("snapshot_bytes"),
        "off_heap_memory_used_total": of("memtable_bytes") + of("metadata_bytes"),
        "sstable_compression_ratio": ratio,
        "number_of_partitions_estimate": of("partitions_estimate"),
        "memtable_cell_count": of("memtable_cells"),
        "memtable_data_size": of("memtable_bytes"),
        "memtable_switch_count": of("memtable_switches"),
        "local_read_count": of("reads"),
        "local_read_latency_ms": millis("read_micros_mean"),
        "local_write_count": of("writes"),
        "local_write_latency_ms": millis("write_micros_mean"),
        "local_read_write_ratio": share(of("reads"), of("writes")),
        "pending_flushes": of("pending_flushes"),
        "pending_compactions": of("compactions_pending"),
        "bloom_filter_false_positives": of("bloom_false_positives"),
        "bloom_filter_false_ratio": share(of("bloom_false_positives"), positives),
        "bloom_filter_space_used": of("metadata_bytes"),
        "bloom_filter_off_heap_memory_used": of("metadata_bytes"),
        "compacted_partition_minimum_bytes": recent["partition_bytes_min"].as_u64().unwrap_or(0),
        "compacted_partition_maximum_bytes": of("partition_bytes_max"),
        "compacted_partition_mean_bytes": of("partition_bytes_sum").checked_div(of("partitions_estimate")).unwrap_or(0),
        "average_live_cells_per_slice_last_five_minutes": recent["rows_mean"],
        "maximum_live_cells_per_slice_last_five_minutes": recent["rows_max"].as_u64().unwrap_or(0),
        "average_tombstones_per_slice_last_five_minutes": recent["tombstones_mean"],
        "maximum_tombstones_per_slice_last_five_minutes": recent["tombstones_max"].as_u64().unwrap_or(0),
        "percent_repaired": (10_000.0 * share(of("repaired_bytes"), of("data_bytes"))).round() / 100.0,
        "bytes_repaired": of("repaired_bytes"),
        "bytes_unrepaired": of("data_bytes").saturating_sub(of("repaired_bytes")),
        "droppable_tombstone_ratio": table["droppable_tombstone_ratio"],
    })
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// How a figure is printed.
enum Form {
    Plain,
    Bytes,
    /// Five decimals.
    Ratio,
    /// Three decimals and the unit; NaN where there was no request.
    Millis,
    /// As it is; NaN where there was no request.
    Mean,
}

const FIGURES: &[(&str, &str, Form)] = &[
    ("Space used (live)", "space_used_live", Form::Bytes),
    ("Space used (total)", "space_used_total", Form::Bytes),
    ("Space used by snapshots (total)", "space_used_by_snapshots_total", Form::Bytes),
    ("Off heap memory used (total)", "off_heap_memory_used_total", Form::Bytes),
    ("SSTable Compression Ratio", "sstable_compression_ratio", Form::Ratio),
    ("Number of partitions (estimate)", "number_of_partitions_estimate", Form::Plain),
    ("Memtable cell count", "memtable_cell_count", Form::Plain),
    ("Memtable data size", "memtable_data_size", Form::Bytes),
    ("Memtable switch count", "memtable_switch_count", Form::Plain),
    ("Local read count", "local_read_count", Form::Plain),
    ("Local read latency", "local_read_latency_ms", Form::Millis),
    ("Local write count", "local_write_count", Form::Plain),
    ("Local write latency", "local_write_latency_ms", Form::Millis),
    ("Local read/write ratio", "local_read_write_ratio", Form::Ratio),
    ("Pending flushes", "pending_flushes", Form::Plain),
    ("Pending compactions", "pending_compactions", Form::Plain),
    ("Percent repaired", "percent_repaired", Form::Plain),
    ("Bytes repaired", "bytes_repaired", Form::Bytes),
    ("Bytes unrepaired", "bytes_unrepaired", Form::Bytes),
    ("Bloom filter false positives", "bloom_filter_false_positives", Form::Plain),
    ("Bloom filter false ratio", "bloom_filter_false_ratio", Form::Ratio),
    ("Bloom filter space used", "bloom_filter_space_used", Form::Bytes),
    ("Bloom filter off heap memory used", "bloom_filter_off_heap_memory_used", Form::Bytes),
    ("Compacted partition minimum bytes", "compacted_partition_minimum_bytes", Form::Plain),
    ("Compacted partition maximum bytes", "compacted_partition_maximum_bytes", Form::Plain),
    ("Compacted partition mean bytes", "compacted_partition_mean_bytes", Form::Plain),
    (
        "Average live cells per slice (last five minutes)",
        "average_live_cells_per_slice_last_five_minutes",
        Form::Mean,
    ),
    (
        "Maximum live cells per slice (last five minutes)",
        "maximum_live_cells_per_slice_last_five_minutes",
        Form::Plain,
    ),
    (
        "Average tombstones per slice (last five minutes)",
        "average_tombstones_per_slice_last_five_minutes",
        Form::Mean,
    ),
    (
        "Maximum tombstones per slice (last five minutes)",
        "maximum_tombstones_per_slice_last_five_minutes",
        Form::Plain,
    ),
    ("Droppable tombstone ratio", "droppable_tombstone_ratio", Form::Ratio),
];

/// A mean as it is, as Java prints it where there is none.
fn mean(value: &Value) -> String {
    if value.is_null() { "NaN".to_owned() } else { text(value) }
}

fn show_tables(answer: &Value) -> String {
    let human = answer["human_readable"] == true;
    let mut out =
        format!("Total number of tables: {}\n----------------\n", text(&answer["total_number_of_tables"]));
    for (name, keyspace) in answer.as_object().into_iter().flatten().filter(|(_, value)| value.is_object()) {
        let of = |name: &str| text(&keyspace[name]);
        out.push_str(&format!(
            "Keyspace: {name}\n\tRead Count: {}\n\tRead Latency: {} ms\n\tWrite Count: {}\n\tWrite Latency: {} ms\n\tPending Flushes: {}\n",
            of("read_count"),
            mean(&keyspace["read_latency"]),
            of("write_count"),
            mean(&keyspace["write_latency"]),
            of("pending_flushes")
        ));
        for (table, figures) in keyspace["tables"].as_object().into_iter().flatten() {
            out.push_str(&format!(
                "\t\tTable: {table}\n\t\tSSTable count: {}\n",
                text(&figures["sstable_count"])
            ));
            let levels: Vec<String> =
                figures["sstables_in_each_level"].as_array().into_iter().flatten().map(text).collect();
            if levels.len() > 1 {
                out.push_str(&format!("\t\tSSTables in each level: [{}]\n", levels.join(", ")));
            }
            for (title, key, form) in FIGURES {
                let number = figures[key].as_f64().unwrap_or(f64::NAN);
                let shown = match form {
                    Form::Ratio => format!("{number:.5}"),
                    Form::Millis if number.is_nan() => "NaN ms".to_owned(),
                    Form::Millis => format!("{number:.3} ms"),
                    Form::Mean => mean(&figures[key]),
                    Form::Bytes if human => size(number),
                    Form::Bytes | Form::Plain => text(&figures[key]),
                };
                out.push_str(&format!("\t\t{title}: {shown}\n"));
            }
            out.push('\n');
        }
        out.push_str("----------------\n");
    }
    out
}
