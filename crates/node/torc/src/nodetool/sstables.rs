//! Verbs about the SSTables of tables: garbagecollect, import, refresh, scrub, upgradesstables, verify, verifyindex, and stop, which ends such work and
//! compactions.

use clap::{Arg, ArgAction, ArgMatches};
use serde_json::{Value, json};

use super::api::{Api, Failure, escape};
use super::ring::text;
use super::{Verb, given, texts, words};

pub(super) const GARBAGECOLLECT: Verb = Verb {
    name: "garbagecollect",
    about: "Remove deleted data from one or more tables",
    arguments: || {
        let granularity = Arg::new("granularity").short('g').long("granularity");
        let granularity = granularity.default_value("ROW").value_parser(["ROW", "CELL"]).ignore_case(true);
        vec![
            granularity.help("ROW: deleted partitions and rows; CELL: also overwritten or deleted cells"),
            names(),
        ]
    },
    ask: |api, arguments| {
        let granularity = arguments.get_one::<String>("granularity").expect("it has a default");
        let query = format!("granularity={}", granularity.to_uppercase());
        on_tables(api, arguments, "garbage_collect", &query, false)
    },
    show,
};

pub(super) const SCRUB: Verb = Verb {
    name: "scrub",
    about: "Scrub (rebuild sstables for) one or more tables",
    arguments: || {
        let mode = Arg::new("mode").short('m').long("mode");
        let mode = mode.value_parser(["ABORT", "SKIP", "VALIDATE", "SEGREGATE"]).hide_possible_values(true);
        let quarantine = Arg::new("quarantine-mode").short('q').long("quarantine-mode");
        let quarantine = quarantine.value_parser(["INCLUDE", "EXCLUDE", "ONLY"]).ignore_case(true);
        vec![
            flag("no-snapshot").help("Do not snapshot the tables first (-ns)"),
            flag("skip-corrupted").short('s').conflicts_with("mode").help("The mode SKIP"),
            quarantine.default_value("INCLUDE").help("ONLY: nothing, for no SSTable is quarantined").hide(true),
            flag("no-validate").short('n').help(UNDERSTOOD).hide(true),
            jobs(),
            mode.ignore_case(true).default_value("SKIP").help(
                "SKIP drops partitions that cannot be read, ABORT leaves a damaged SSTable as it is, VALIDATE only reads",
            ),
            names(),
        ]
    },
    ask: |api, arguments| {
        let mode = arguments.get_one::<String>("mode").expect("it has a default");
        let without = arguments.get_flag("no-snapshot");
        let quarantine = arguments.get_one::<String>("quarantine-mode").expect("it has a default");
        let (mode, quarantine) = (mode.to_uppercase(), quarantine.to_uppercase());
        let query = format!("scrub_mode={mode}&disable_snapshot={without}&quarantine_mode={quarantine}");
        on_tables(api, arguments, "scrub", &query, false)
    },
    show,
};

pub(super) const UPGRADESSTABLES: Verb = Verb {
    name: "upgradesstables",
    about: "Rewrite sstables (for the requested tables) that are not on the current version",
    arguments: || {
        let all = flag("include-all-sstables").short('a');
        vec![all.help("Include all sstables, even those already on the current version"), jobs(), names()]
    },
    ask: |api, arguments| {
        let query = format!("exclude_current_version={}", !arguments.get_flag("include-all-sstables"));
        on_tables(api, arguments, "upgrade", &query, true)
    },
    show,
};

pub(super) const VERIFY: Verb = Verb {
    name: "verify",
    about: "Verify (check data checksum for) one or more tables",
    arguments: || {
        vec![
            flag("extended-verify")
                .short('e')
                .help("Also compare indexes with the data; that is always done"),
            flag("force").short('f').help("Understood for Cassandra's sake: it verifies without it, too"),
            names(),
        ]
    },
    ask: |api, arguments| on_tables(api, arguments, "verify", "", false),
    show,
};

pub(super) const VERIFYINDEX: Verb = Verb {
    name: "verifyindex",
    about: "Compare the indexes of one or more tables with their rows, and repair them",
    arguments: || vec![flag("repair").help("Replace the indexes that differ"), names()],
    ask: |api, arguments| {
        let query = format!("repair={}", arguments.get_flag("repair"));
        on_tables(api, arguments, "verify_indexes", &query, false)
    },
    show,
};

pub(super) const IMPORT: Verb = Verb {
    name: "import",
    about: "Import new SSTables to the system",
    arguments: || {
        let copies = flag("copy-data");
        let directories = Arg::new("directories").required(true).num_args(1..);
        let mut arguments = one_table();
        arguments.extend([
            copies.help("Copy data from source directories instead of moving them; that is always done"),
            directories.help("Directories of the node's machine with the SSTables"),
        ]);
        arguments
    },
    ask: |api, arguments| {
        let mut all = Vec::new();
        for directory in given(arguments, "directories") {
            let query = format!("?directory={}", escape(directory));
            all.push(import(api, arguments, &query, directory)?);
        }
        Ok(json!({ "directories": all }))
    },
    show: show_imported,
};

pub(super) const REFRESH: Verb = Verb {
    name: "refresh",
    about: "Load newly placed SSTables to the system without restart",
    arguments: || {
        let understood = |name: &'static str| flag(name).help(UNDERSTOOD).hide(true);
        let mut arguments = one_table();
        arguments.extend([
            flag("load-and-stream").help("Refused: each replica imports its own files (-las)").hide(true),
            understood("skip-cleanup"),
            understood("skip-reshape"),
        ]);
        arguments
    },
    ask: |api, arguments| {
        if arguments.get_flag("load-and-stream") {
            return Err(
                "--load-and-stream is not known here: a node imports the partitions of which it is a replica; put the SSTables on each replica, and run nodetool repair afterwards"
                    .to_owned().into(),
            );
        }
        Ok(json!({ "directories": [import(api, arguments, "", "upload")?] }))
    },
    show: show_imported,
};

fn one_table() -> Vec<Arg> {
    let name = |name: &'static str, help: &'static str| Arg::new(name).required(true).help(help);
    vec![name("keyspace", "The keyspace"), name("table", "The table")]
}

fn import(api: &Api, arguments: &ArgMatches, query: &str, directory: &str) -> Result<Value, Failure> {
    let name = |name: &str| escape(arguments.get_one::<String>(name).expect("it is required"));
    let mut done = api.post(&format!("/torc/import/{}/{}{query}", name("keyspace"), name("table")))?;
    done["directory"] = json!(directory);
    Ok(done)
}

/// A line for each directory.
fn show_imported(answer: &Value) -> String {
    let mut out = String::new();
    for one in answer["directories"].as_array().into_iter().flatten() {
        let directory = text(&one["directory"]);
        out.push_str(&match one["sstables"].as_u64() {
            Some(0) => format!("{directory}: no SSTables found\n"),
            _ => format!("{directory}: {} SSTables, {} partitions\n", one["sstables"], one["partitions"]),
        });
    }
    out
}

pub(super) const STOP: Verb = Verb {
    name: "stop",
    about: "Stop compaction",
    arguments: || {
        let id = Arg::new("compaction-id").long("compaction-id");
        let kind = Arg::new("type").ignore_case(true);
        vec![
            id.help("The id of the compaction to stop, out of compactionstats (-id)"),
            kind.help(
                "COMPACTION, CLEANUP, SCRUB, UPGRADE_SSTABLES, GARBAGE_COLLECT or VERIFY; all work of that type is stopped",
            ),
        ]
    },
    ask: |api, arguments| {
        let value = |name: &str| arguments.get_one::<String>(name);
        let query = match (value("compaction-id"), value("type")) {
            (Some(id), None) => format!("id={}", escape(id)),
            (None, Some(kind)) => format!("type={}", escape(kind)),
            _ => {
                return Err(
                    "name either the type of compactions to stop, or -id and the id of one".to_owned()
                );
            }
        };
        let stopped = api.post(&format!("/compaction_manager/stop_compaction?{query}"))?;
        Ok(json!({ "stopped": stopped, "by_id": value("compaction-id").is_some() }))
    },
    show: |answer| match (answer["by_id"] == true, answer["stopped"].as_u64()) {
        // Scripts that stop nothing in particular want no output.
        (true, Some(0)) => "No compaction has this id; it may have ended.\n".to_owned(),
        _ => String::new(),
    },
};

/// Whether a verification found no problem.
pub(super) fn is_sound(answer: &Value) -> bool {
    reports(answer).all(|report| texts(&report["problems"]).is_empty())
}

fn flag(name: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue)
}

const UNDERSTOOD: &str = "Understood for Cassandra's sake, and makes no difference";

/// How many SSTables at a time; the node decides that.
pub(super) fn jobs() -> Arg {
    Arg::new("jobs")
        .short('j')
        .long("jobs")
        .value_parser(clap::value_parser!(u32))
        .help(UNDERSTOOD)
        .hide(true)
}

fn names() -> Arg {
    words("names", "A keyspace and its tables; everything of users when not given")
}

/// Has the node work on the SSTables of tables, one keyspace after the other; the outcome for each table. System tables are among them where
/// that is wanted.
fn on_tables(
    api: &Api,
    arguments: &ArgMatches,
    how: &str,
    query: &str,
    with_system: bool,
) -> Result<Value, Failure> {
    let names = given(arguments, "names");
    let kind = if with_system { "all" } else { "user" };
    let (keyspaces, tables) = match names.split_first() {
        Some((keyspace, tables)) => (vec![(*keyspace).to_owned()], tables),
        None => (texts(&api.get(&format!("/storage_service/keyspaces?type={kind}"))?), &names[..]),
    };
    let tables: Vec<String> = tables.iter().map(|table| escape(table)).collect();
    let mut all = Vec::new();
    for keyspace in keyspaces {
        let (keyspace, tables) = (escape(&keyspace), tables.join(","));
        let done = api.post(&format!("/torc/sstables/{how}/{keyspace}?cf={tables}&{query}"))?;
        all.extend(done.as_array().cloned().unwrap_or_default());
    }
    Ok(json!({ "operation": how, "tables": all }))
}

fn reports(answer: &Value) -> impl Iterator<Item = &Value> {
    answer["tables"].as_array().into_iter().flatten()
}

/// Nothing where all is well, and one line for each problem.
fn show(answer: &Value) -> String {
    let mut out = String::new();
    for report in reports(answer) {
        let table = format!("{}.{}", text(&report["keyspace"]), text(&report["table"]));
        for problem in texts(&report["problems"]) {
            out.push_str(&format!("{table}: {problem}\n"));
        }
        if report["indexes_replaced"].as_u64().is_some_and(|count| count > 0) {
            out.push_str(&format!(
                "{table}: {} indexes of SSTables were replaced\n",
                report["indexes_replaced"]
            ));
        }
        if report["set_aside"].as_u64().is_some_and(|count| count > 0) {
            out.push_str(&format!(
                "{table}: the files of {} damaged SSTables are in its directory under snapshots/damaged-*; run nodetool repair to get dropped \
                 partitions back from other replicas\n",
                report["set_aside"]
            ));
        }
    }
    out
}
