//! Verbs about settings that change while the node runs: throughputs, timeouts, backups, hinted handoff.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches};
use serde_json::{Value, json};
use server::Size;
use server::config::OptionValue;

use super::api::{Api, Failure, escape};
use super::{Verb, silent};

const MEBIBYTE: f64 = 1_048_576.0;
/// Bytes of a megabit.
const MEGABIT: f64 = 125_000.0;

/// The timeouts by Cassandra's names of their types.
const TIMEOUTS: &[(&str, &str)] = &[
    ("read", "read_request_timeout"),
    ("range", "range_request_timeout"),
    ("write", "write_request_timeout"),
    ("counterwrite", "counter_write_request_timeout"),
    ("cascontention", "cas_contention_timeout"),
    ("truncate", "truncate_request_timeout"),
];

pub(super) const DISABLEBACKUP: Verb =
    setter("disablebackup", "Disable incremental backup", Vec::new, |api, _| {
        change(api, "incremental_backups", "false")
    });

pub(super) const DISABLEHANDOFF: Verb =
    setter("disablehandoff", "Disable storing hinted handoffs", Vec::new, |api, _| {
        change(api, "hinted_handoff_enabled", "false")
    });

pub(super) const ENABLEBACKUP: Verb =
    setter("enablebackup", "Enable incremental backup", Vec::new, |api, _| {
        change(api, "incremental_backups", "true")
    });

pub(super) const ENABLEHANDOFF: Verb =
    setter("enablehandoff", "Reenable future hints storing on the current node", Vec::new, |api, _| {
        change(api, "hinted_handoff_enabled", "true")
    });

pub(super) const GETCOMPACTIONTHROUGHPUT: Verb = Verb {
    name: "getcompactionthroughput",
    about: "Print the throughput cap (as a rounded number) for compaction in the system",
    arguments: || vec![flag("precise-mib", 'd', "Print it exactly")],
    ask: |api, arguments| {
        let mebibytes = bytes(api, "compaction_throughput")? / MEBIBYTE;
        let exact = arguments.get_flag("precise-mib");
        if !exact && mebibytes.fract() != 0.0 {
            return Err(
                "Use the -d flag to quiet this error and get the exact throughput in MiB/s".to_owned()
            );
        }
        Ok(json!({ "mebibytes_per_second": mebibytes, "exact": exact }))
    },
    show: |answer| {
        let mebibytes = answer["mebibytes_per_second"].as_f64().unwrap_or(0.0);
        match answer["exact"] == true {
            true => format!("Current compaction throughput: {mebibytes:?} MiB/s\n"),
            false => format!("Current compaction throughput: {mebibytes} MB/s\n"),
        }
    },
};

pub(super) const GETCONCURRENTCOMPACTORS: Verb = Verb {
    name: "getconcurrentcompactors",
    about: "Get the number of concurrent compactors of each shard",
    arguments: Vec::new,
    ask: |api, _| Ok(json!({ "concurrent_compactors": setting(api, "concurrent_compactors")? })),
    show: |answer| {
        format!("Current concurrent compactors in the system is: \n{}\n", answer["concurrent_compactors"])
    },
};

pub(super) const GETDEFAULTRF: Verb = Verb {
    name: "getdefaultrf",
    about: "Gets default keyspace replication factor",
    arguments: Vec::new,
    ask: |api, _| Ok(json!({ "default_keyspace_rf": setting(api, "default_keyspace_rf")? })),
    show: |answer| format!("{}\n", answer["default_keyspace_rf"]),
};

pub(super) const SETDEFAULTRF: Verb = setter(
    "setdefaultrf",
    "Sets default keyspace replication factor",
    || vec![value("default_rf", "Replication factor of keyspaces that do not say theirs, from 1")],
    |api, arguments| {
        let factor = number(arguments, "default_rf")?;
        change(api, "default_keyspace_rf", &factor.to_string())
    },
);

pub(super) const GETSEEDS: Verb = Verb {
    name: "getseeds",
    about: "Get the currently in use seed node IP list excluding the node IP",
    arguments: Vec::new,
    ask: |api, _| {
        let own = api.text("/v2/config/broadcast_address").unwrap_or_default();
        let own =
            if own.is_empty() { api.text("/v2/config/listen_address").unwrap_or_default() } else { own };
        Ok(json!({ "seeds": setting(api, "seeds")?, "own": own }))
    },
    show: |answer| {
        let own = answer["own"].as_str().unwrap_or_default();
        let seeds = answer["seeds"].as_str().unwrap_or_default().split(',').map(str::trim);
        let host = |seed: &str| seed.rsplit_once(':').map_or(seed.to_owned(), |(host, _)| host.to_owned());
        let others: Vec<&str> = seeds.filter(|seed| !seed.is_empty() && host(seed) != own).collect();
        match others.is_empty() {
            true => "Seed node list does not contain any remote node IPs\n".to_owned(),
            false => format!(
                "Current list of seed node IPs, excluding the current node's IP: {}\n",
                others.join(" ")
            ),
        }
    },
};

pub(super) const GETMAXHINTWINDOW: Verb = Verb {
    name: "getmaxhintwindow",
    about: "Print the max hint window in ms",
    arguments: Vec::new,
    ask: |api, _| Ok(json!({ "milliseconds": millis(api, "max_hint_window")? })),
    show: |answer| format!("Current max hint window: {} ms\n", answer["milliseconds"]),
};

pub(super) const GETSTREAMTHROUGHPUT: Verb = Verb {
    name: "getstreamthroughput",
    about: "Print the throughput cap for streaming in the system",
    arguments: || {
        vec![
            flag("mib", 'm', "Print it in MiB/s"),
            flag("precise-mbit", 'd', "Print it in megabits/s, exactly").conflicts_with("mib"),
        ]
    },
    ask: |api, arguments| {
        let bytes = bytes(api, "stream_throughput_outbound")?;
        let (unit, value) = match arguments.get_flag("mib") {
            true => ("MiB/s", bytes / MEBIBYTE),
            false => ("Mb/s", bytes / MEGABIT),
        };
        let exact = arguments.get_flag("mib") || arguments.get_flag("precise-mbit");
        if !exact && value.fract() != 0.0 {
            let why = "Use the -d flag to quiet this error and get the exact throughput in megabits/s";
            return Err(why.to_owned());
        }
        Ok(json!({ "throughput": value, "unit": unit, "exact": exact }))
    },
    show: |answer| {
        let (value, unit) =
            (answer["throughput"].as_f64().unwrap_or(0.0), answer["unit"].as_str().unwrap_or_default());
        match answer["exact"] == true {
            true => format!("Current stream throughput: {value:?} {unit}\n"),
            false => format!("Current stream throughput: {value} {unit}\n"),
        }
    },
};

pub(super) const GETTIMEOUT: Verb = Verb {
    name: "gettimeout",
    about: "Print the timeout of the given type in ms",
    arguments: || vec![timeout_type()],
    ask: |api, arguments| {
        let (kind, name) = timeout(arguments)?;
        Ok(json!({ "type": kind, "milliseconds": millis(api, name)? }))
    },
    show: |answer| {
        let kind = answer["type"].as_str().unwrap_or_default();
        format!("Current timeout for type {kind}: {} ms\n", answer["milliseconds"])
    },
};

pub(super) const SETCOMPACTIONTHROUGHPUT: Verb = setter(
    "setcompactionthroughput",
    "Set the MiB/s throughput cap for compaction in the system, or 0 to disable throttling",
    || vec![value("value", "Value in MiB/s, 0 to disable throttling")],
    |api, arguments| change(api, "compaction_throughput", &format!("{}MiB", number(arguments, "value")?)),
);

pub(super) const SETCONCURRENTCOMPACTORS: Verb = setter(
    "setconcurrentcompactors",
    "Set the number of concurrent compactors of each shard",
    || vec![value("value", "Number of concurrent compactors, at least 1")],
    |api, arguments| change(api, "concurrent_compactors", &number(arguments, "value")?.to_string()),
);

pub(super) const SETHINTEDHANDOFFTHROTTLEKB: Verb = setter(
    "sethintedhandoffthrottlekb",
    "Set hinted handoff throttle in KiB/s, or 0 to disable throttling",
    || vec![value("throttle_in_kb", "Value in KiB/s")],
    |api, arguments| {
        let kibibytes = number(arguments, "throttle_in_kb")?;
        change(api, "hinted_handoff_throttle", &format!("{kibibytes}KiB"))
    },
);

pub(super) const SETMAXHINTWINDOW: Verb = setter(
    "setmaxhintwindow",
    "Set the specified max hint window in ms",
    || vec![value("value_in_ms", "Value of maxhintwindow in ms")],
    |api, arguments| change(api, "max_hint_window", &format!("{}ms", number(arguments, "value_in_ms")?)),
);

pub(super) const SETSTREAMTHROUGHPUT: Verb = setter(
    "setstreamthroughput",
    "Set throughput cap for streaming in the system in megabits/s or MiB/s, or 0 to disable throttling",
    || {
        vec![
            value("value_in_mb", "Value in megabits/s, 0 to disable throttling"),
            flag("mib", 'm', "The value is in MiB/s"),
        ]
    },
    |api, arguments| {
        let given = number(arguments, "value_in_mb")?;
        let unit = if arguments.get_flag("mib") { 1 << 20 } else { MEGABIT as u64 };
        let bytes = given.checked_mul(unit).ok_or_else(|| format!("{given} is too large"))?;
        change(api, "stream_throughput_outbound", &format!("{bytes}B"))
    },
);

pub(super) const SETTIMEOUT: Verb = setter(
    "settimeout",
    "Set the specified timeout in ms",
    || vec![timeout_type(), value("timeout_in_ms", "Value in ms")],
    |api, arguments| {
        let (_, name) = timeout(arguments)?;
        change(api, name, &format!("{}ms", number(arguments, "timeout_in_ms")?))
    },
);

pub(super) const STATUSBACKUP: Verb = Verb {
    name: "statusbackup",
    about: "Status of incremental backup",
    arguments: Vec::new,
    ask: |api, _| Ok(json!({ "running": setting(api, "incremental_backups")? })),
    show: |answer| format!("{}\n", status(answer)),
};

pub(super) const STATUSHANDOFF: Verb = Verb {
    name: "statushandoff",
    about: "Status of storing future hints on the current node",
    arguments: Vec::new,
    ask: |api, _| Ok(json!({ "running": setting(api, "hinted_handoff_enabled")? })),
    show: |answer| format!("Hinted handoff is {}\n", status(answer)),
};

/// Whether the thing that a verb is about runs.
pub(super) fn status(answer: &Value) -> &'static str {
    if answer["running"] == true { "running" } else { "not running" }
}

/// A verb that changes a setting, and prints nothing.
pub(super) const fn setter(
    name: &'static str,
    about: &'static str,
    arguments: fn() -> Vec<Arg>,
    ask: fn(&Api, &ArgMatches) -> Result<Value, Failure>,
) -> Verb {
    Verb { name, about, arguments, ask, show: silent }
}

pub(super) fn setting(api: &Api, name: &str) -> Result<Value, Failure> {
    api.get(&format!("/v2/config/{name}"))
}

pub(super) fn change(api: &Api, name: &str, value: &str) -> Result<Value, Failure> {
    api.post(&format!("/v2/config/{name}?value={}", escape(value)))
}

/// A setting that is a size, in bytes.
pub(super) fn bytes(api: &Api, name: &str) -> Result<f64, Failure> {
    Ok(Size::parse(&api.text(&format!("/v2/config/{name}"))?)?.0 as f64)
}

/// A setting that is a duration.
fn millis(api: &Api, name: &str) -> Result<u64, Failure> {
    let duration = Duration::parse(&api.text(&format!("/v2/config/{name}"))?)?;
    Ok(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn flag(name: &'static str, short: char, help: &'static str) -> Arg {
    Arg::new(name).long(name).short(short).action(ArgAction::SetTrue).help(help)
}

fn value(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).required(true).allow_hyphen_values(true).help(help)
}

fn timeout_type() -> Arg {
    value("timeout_type", "read, range, write, counterwrite, cascontention or truncate")
}

/// A timeout's type and setting.
fn timeout(arguments: &ArgMatches) -> Result<(&'static str, &'static str), Failure> {
    let given = arguments.get_one::<String>("timeout_type").expect("clap asks for it");
    let known = TIMEOUTS.iter().find(|(kind, _)| kind == given).copied();
    known.ok_or_else(|| {
        "Timeout type requires one of (read, range, write, counterwrite, cascontention, truncate)".to_owned()
    })
}

fn number(arguments: &ArgMatches, name: &str) -> Result<u64, Failure> {
    let given = arguments.get_one::<String>(name).expect("clap asks for it");
    given.parse().map_err(|_| format!("{name}: '{given}' is not a number from 0 on"))
}
