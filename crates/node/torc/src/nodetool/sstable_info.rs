//! The verb sstableinfo, of ScyllaDB's tool: the SSTables of tables.

use clap::{Arg, ArgMatches};
use serde_json::{Value, json};

use super::api::{Api, Failure, escape};
use super::{Verb, given, words};

pub(super) const SSTABLEINFO: Verb = Verb {
    name: "sstableinfo",
    about: "Print information about the SSTables of tables",
    arguments,
    ask,
    show,
};

fn arguments() -> Vec<Arg> {
    vec![words("names", "A keyspace and its tables; all of them when not given")]
}

fn ask(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let names = given(arguments, "names");
    let query = match names.split_first() {
        None => String::new(),
        Some((keyspace, tables)) => {
            format!("?keyspace={}&cf={}", escape(keyspace), escape(&tables.join(",")))
        }
    };
    Ok(json!({ "tables": api.get(&format!("/storage_service/sstable_info{query}"))? }))
}

/// The figures of an SSTable: the name that is printed, and that of the answer.
const FIGURES: &[(&str, &str)] = &[
    ("data size", "data_size"),
    ("filter size", "filter_size"),
    ("index size", "index_size"),
    ("level", "level"),
    ("size", "size"),
    ("generation", "generation"),
    ("version", "version"),
    ("timestamp", "timestamp"),
];

fn show(answer: &Value) -> String {
    let mut out = String::new();
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    for table in answer["tables"].as_array().into_iter().flatten() {
        let (keyspace, name) = (word(&table["keyspace"]), word(&table["table"]));
        out.push_str(&format!("\nkeyspace : {keyspace}\n   table : {name}\nsstables :\n"));
        for (number, sstable) in table["sstables"].as_array().into_iter().flatten().enumerate() {
            out.push_str(&format!("{number:>8} :\n"));
            for (shown, figure) in FIGURES.iter().filter(|(_, figure)| !sstable[*figure].is_null()) {
                out.push_str(&format!("{shown:>19} : {}\n", word(&sstable[*figure])));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sstables_are_listed_by_table() {
        let sstable = json!({ "data_size": 7, "level": 0, "generation": "3", "version": "nb" });
        let tables = json!({ "tables": [{ "keyspace": "ks", "table": "t", "sstables": [sstable] }] });
        let expected = "\nkeyspace : ks\n   table : t\nsstables :\n       0 :\n          data size : 7\n              level : 0\n         \
                        generation : 3\n            version : nb\n";
        assert_eq!(show(&tables), expected);
        assert_eq!(show(&json!({ "tables": [] })), "");
    }
}
