//! Verbs about one node: info, version, drain, and the traced share of its requests.

use clap::{Arg, ArgAction, ArgMatches};
use serde_json::{Value, json};

use super::api::{Api, Failure, escape};
use super::grid::size;
use super::ring::text;
use super::settings::status;
use super::{Verb, silent, texts};

pub(super) const INFO: Verb = Verb {
    name: "info",
    about: "Print node information (uptime, load, ...)",
    arguments: || {
        let tokens = Arg::new("tokens").short('T').long("tokens").action(ArgAction::SetTrue);
        vec![tokens.help("Display all tokens")]
    },
    ask: ask_info,
    show: show_info,
};

pub(super) const VERSION: Verb = Verb {
    name: "version",
    about: "Print the version whose interface the node has, and its own",
    arguments: Vec::new,
    ask: |api, _| {
        Ok(json!({
            "ReleaseVersion": api.text("/storage_service/release_version")?,
            "TorcVersion": api.text("/storage_service/scylla_release_version")?,
        }))
    },
    show: |answer| {
        let of = |name: &str| text(&answer[name]);
        format!("ReleaseVersion: {}\nTorcVersion: {}\n", of("ReleaseVersion"), of("TorcVersion"))
    },
};

pub(super) const DRAIN: Verb = Verb {
    name: "drain",
    about: "Drain the node (stop accepting writes and flush all tables)",
    arguments: Vec::new,
    ask: |api, _| api.post("/storage_service/drain"),
    show: silent,
};

pub(super) const STATUSBINARY: Verb = Verb {
    name: "statusbinary",
    about: "Status of native transport (binary protocol)",
    arguments: Vec::new,
    ask: |api, _| Ok(json!({ "running": api.get("/storage_service/native_transport")? })),
    show: |answer| format!("{}\n", status(answer)),
};

pub(super) const ENABLEBINARY: Verb = Verb {
    name: "enablebinary",
    about: "Reenable native transport (binary protocol)",
    arguments: Vec::new,
    ask: |api, _| api.post("/storage_service/native_transport"),
    show: silent,
};

pub(super) const DISABLEBINARY: Verb = Verb {
    name: "disablebinary",
    about: "Disable native transport (binary protocol)",
    arguments: || {
        let force = Arg::new("force").short('f').long("force").action(ArgAction::SetTrue);
        vec![force.help("Understood for Cassandra's sake: connections end when their requests have, after 5 s at the latest")]
    },
    ask: |api, _| api.delete("/storage_service/native_transport"),
    show: silent,
};

pub(super) const STATUSGOSSIP: Verb = Verb {
    name: "statusgossip",
    about: "Status of gossip",
    arguments: Vec::new,
    ask: |api, _| Ok(json!({ "running": api.get("/storage_service/gossiping")? })),
    show: |answer| format!("{}\n", status(answer)),
};

pub(super) const STOPDAEMON: Verb = Verb {
    name: "stopdaemon",
    about: "Stop the node",
    arguments: Vec::new,
    ask: |api, _| api.post("/storage_service/stop_daemon"),
    show: silent,
};

pub(super) const GETTRACEPROBABILITY: Verb = Verb {
    name: "gettraceprobability",
    about: "Print the current trace probability value",
    arguments: Vec::new,
    ask: |api, _| Ok(json!({ "trace_probability": api.get("/storage_service/trace_probability")? })),
    show: |answer| {
        let probability = answer["trace_probability"].as_f64().unwrap_or(0.0);
        format!("Current trace probability: {probability:?}\n")
    },
};

pub(super) const SETTRACEPROBABILITY: Verb = Verb {
    name: "settraceprobability",
    about: "Sets the probability for tracing any given request to value. 0 disables, 1 enables for all requests, 0 is the default",
    arguments: || {
        let value =
            Arg::new("trace_probability").value_name("value").required(true).allow_hyphen_values(true);
        vec![value.help("Trace probability between 0 and 1 (ex: 0.2)")]
    },
    ask: |api, arguments| {
        let value = arguments.get_one::<String>("trace_probability").expect("clap asks for it");
        api.post(&format!("/storage_service/trace_probability?probability={}", escape(value)))
    },
    show: silent,
};

fn ask_info(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let mut caches = serde_json::Map::new();
    for cache in ["row", "chunk"] {
        let mut figures = serde_json::Map::new();
        for figure in ["entries", "size", "capacity", "hits", "requests", "hit_rate"] {
            figures.insert(figure.to_owned(), api.get(&format!("/cache_service/metrics/{cache}/{figure}"))?);
        }
        caches.insert(cache.to_owned(), figures.into());
    }
    let storage = api.get("/torc/storage")?;
    let bytes = |name: &str| storage[name].as_u64().unwrap_or(0);
    let mode = api.text("/storage_service/operation_mode")?;
    Ok(json!({
        "id": api.text("/storage_service/hostid/local")?,
        "gossip_active": api.get("/storage_service/gossiping")?,
        "native_transport_active": api.get("/storage_service/native_transport")?,
        "load": bytes("disk_bytes"),
        "uncompressed_load": bytes("uncompressed_bytes"),
        "generation": api.get("/storage_service/generation_number")?,
        "uptime_seconds": api.get("/system/uptime_ms")?.as_u64().unwrap_or(0) / 1_000,
        "memory_bytes": bytes("memtable_bytes") + bytes("cache_bytes") + bytes("metadata_bytes"),
        "datacenter": api.text("/snitch/datacenter")?,
        "rack": api.text("/snitch/rack")?,
        "caches": caches,
        "tokens": texts(&api.get("/storage_service/tokens")?),
        "show_tokens": arguments.get_flag("tokens"),
        "mode": mode,
    }))
}

fn show_info(answer: &Value) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| out.push_str(&format!("{name:<23}: {value}\n"));
    let of = |name: &str| text(&answer[name]);
    let bytes = |name: &str| size(answer[name].as_f64().unwrap_or(0.0));
    line("ID", of("id"));
    line("Gossip active", of("gossip_active"));
    line("Native Transport active", of("native_transport_active"));
    line("Load", bytes("load"));
    line("Uncompressed load", bytes("uncompressed_load"));
    line("Generation No", of("generation"));
    line("Uptime (seconds)", of("uptime_seconds"));
    let memory = answer["memory_bytes"].as_f64().unwrap_or(0.0) / f64::from(1 << 20);
    line("Off Heap Memory (MB)", format!("{memory:.2}"));
    line("Data Center", of("datacenter"));
    line("Rack", of("rack"));
    line("Row Cache", format!("{}, 0 save period in seconds", cache(&answer["caches"]["row"])));
    line("Chunk Cache", cache(&answer["caches"]["chunk"]));
    let tokens = texts(&answer["tokens"]);
    match (answer["show_tokens"] == true, &tokens[..]) {
        (true, tokens) => tokens.iter().for_each(|token| line("Token", token.clone())),
        (false, [token]) => line("Token", token.clone()),
        (false, tokens) => {
            line("Token", format!("(invoke with -T/--tokens to see all {} tokens)", tokens.len()));
        }
    }
    let joining = answer["mode"] == "JOINING";
    line("Bootstrap state", if joining { "IN_PROGRESS" } else { "COMPLETED" }.to_owned());
    line("Decommissioning", (answer["mode"] == "LEAVING").to_string());
    out
}

fn cache(figures: &Value) -> String {
    let bytes = |name: &str| size(figures[name].as_f64().unwrap_or(0.0));
    let rate = figures["hit_rate"].as_f64().map_or("NaN".to_owned(), |rate| format!("{rate:.3}"));
    format!(
        "entries {}, size {}, capacity {}, {} hits, {} requests, {rate} recent hit rate",
        text(&figures["entries"]),
        bytes("size"),
        bytes("capacity"),
        text(&figures["hits"]),
        text(&figures["requests"]),
    )
}
