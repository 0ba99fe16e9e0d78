//! Verbs that change the ring: decommission, removenode, assassinate and the like. Each returns when the change is done.

use clap::{Arg, ArgAction};
use serde_json::Value;

use super::api::escape;
use super::ring::text;
use super::sstables::jobs;
use super::{Verb, given, silent, texts, words};

pub(super) const DECOMMISSION: Verb = Verb {
    name: "decommission",
    about: "Decommission the *node I am connecting to*",
    arguments: || {
        let force = Arg::new("force").short('f').long("force").action(ArgAction::SetTrue);
        vec![force.help("Force decommission of this node even when it reduces the number of replicas to below configured RF")]
    },
    ask: |api, arguments| {
        if let Some(text) = queued_behind(&api.get("/torc/topology")?["change"]) {
            eprintln!("{text}");
        }
        api.post(&format!("/storage_service/decommission?force={}", arguments.get_flag("force")))
    },
    show: silent,
};

/// The change that a decommission is queued behind; nothing where it begins or is refused.
fn queued_behind(change: &Value) -> Option<String> {
    let keyspaces = Some(texts(&change["alters"])).filter(|names| !names.is_empty())?;
    let waits_for = Some(texts(&change["waits_for"])).filter(|names| !names.is_empty());
    let waits_for =
        waits_for.map(|names| format!(", which waits for {}", names.join(", "))).unwrap_or_default();
    Some(format!(
        "The replicas of keyspace {} are being moved{waits_for}: the decommission begins when that is over (nodetool netstats; abortdecommission takes it back).",
        keyspaces.join(", ")
    ))
}

pub(super) const ABORTDECOMMISSION: Verb = Verb {
    name: "abortdecommission",
    about: "Have the node that I am connecting to stay, while its decommission is under way",
    arguments: Vec::new,
    ask: |api, _| api.post("/storage_service/abort_decommission"),
    show: silent,
};

pub(super) const ABORTREBUILD: Verb = Verb {
    name: "abortrebuild",
    about: "Cancel the rebuild of the node that I am connecting to; streamed data stays",
    arguments: Vec::new,
    ask: |api, _| api.post("/storage_service/abort_rebuild"),
    show: silent,
};

pub(super) const REMOVENODE: Verb = Verb {
    name: "removenode",
    about: "Show status of current node removal, force completion of pending removal or remove provided ID",
    arguments: || {
        let what = Arg::new("remove_operation").value_name("status|force|ID").required(true);
        let ignored = Arg::new("ignore-dead-nodes").long("ignore-dead-nodes").value_name("IDS");
        vec![
            what.help(
                "Show status of current node removal, force completion of pending removal, or remove provided ID",
            ),
            ignored.help(
                "Other dead nodes, host ids or addresses with commas between: nobody waits for them, and the ranges are streamed from the replicas left; \
                 remove or replace them next, and run repair",
            ),
        ]
    },
    ask: |api, arguments| {
        let what = arguments.get_one::<String>("remove_operation").expect("clap asks for it");
        match what.as_str() {
            "status" => api.get("/storage_service/removal_status"),
            "force" => {
                let status = api.get("/storage_service/removal_status")?;
                api.post("/storage_service/force_remove_completion")?;
                Ok(status)
            }
            host => {
                let ignored = arguments.get_one::<String>("ignore-dead-nodes").map_or("", String::as_str);
                let (host, ignored) = (escape(host), escape(ignored));
                api.post(&format!("/storage_service/remove_node?host_id={host}&ignore_nodes={ignored}"))
            }
        }
    },
    show: |answer| match answer {
        Value::Null => String::new(),
        status => format!("RemovalStatus: {}\n", text(status)),
    },
};

pub(super) const REBUILD: Verb = Verb {
    name: "rebuild",
    about: "Rebuild data by streaming from other nodes (similarly to bootstrap)",
    arguments: || {
        let source = Arg::new("src-dc-name").value_name("SOURCE_DC");
        let force = Arg::new("force").long("force").action(ArgAction::SetTrue);
        vec![
            source.help("Name of DC from which to select sources for streaming; any by default"),
            force.help("Understood for ScyllaDB's sake; it needs a SOURCE_DC, as there"),
        ]
    },
    ask: |api, arguments| {
        let name = arguments.get_one::<String>("src-dc-name").map_or("", String::as_str);
        let (name, force) = (escape(name), arguments.get_flag("force"));
        api.post(&format!("/storage_service/rebuild?source_dc={name}&force={force}"))
    },
    show: silent,
};

pub(super) const CLEANUP: Verb = Verb {
    name: "cleanup",
    about: "Triggers the immediate cleanup of keys no longer belonging to a node. By default, clean all keyspaces",
    arguments: || vec![jobs(), words("keyspace_tables", "The keyspace followed by one or many tables")],
    ask: |api, arguments| match &*given(arguments, "keyspace_tables") {
        [] => api.post("/storage_service/cleanup_all"),
        [keyspace, tables @ ..] => {
            let (keyspace, tables) = (escape(keyspace), escape(&tables.join(",")));
            api.post(&format!("/storage_service/keyspace_cleanup/{keyspace}?cf={tables}"))
        }
    },
    show: silent,
};

pub(super) const CHECKANDREPAIRCDCSTREAMS: Verb = Verb {
    name: "checkandrepaircdcstreams",
    about: "Checks that CDC streams reflect current cluster topology and regenerates them if not; they always do",
    arguments: Vec::new,
    ask: |api, _| api.post("/storage_service/cdc_streams_check_and_repair"),
    show: silent,
};

pub(super) const JOIN: Verb = Verb {
    name: "join",
    about: "Join the ring",
    arguments: Vec::new,
    ask: |api, _| match api.get("/storage_service/join_ring")? {
        Value::Bool(true) => Err("This node has already joined the ring.".to_owned()),
        _ => api.post("/storage_service/join_ring"),
    },
    show: silent,
};

pub(super) const BOOTSTRAP: Verb = Verb {
    name: "bootstrap",
    about: "Show whether the node still enters the ring; fetching resumes by itself, after a restart too",
    arguments: || {
        let what = Arg::new("bootstrap_operation").value_name("resume").value_parser(["resume"]);
        vec![what.help("Accepted as in Cassandra; a change under way needs no resuming")]
    },
    ask: |api, _| api.get("/torc/topology"),
    show: |answer| {
        match answer["mode"].as_str() {
            Some("STARTING") => {
                "The node is configured not to join the ring (join_ring: false); nodetool join lets it in.\n"
            }
            Some("JOINING") => {
                "The node is joining and continues by itself; nodetool netstats shows how far it is.\n"
            }
            _ => "Node is already bootstrapped.\n",
        }
        .to_owned()
    },
};

pub(super) const ASSASSINATE: Verb = Verb {
    name: "assassinate",
    about: "Forcefully remove a dead node without re-replicating any data. Use as a last resort if you cannot removenode",
    arguments: || {
        let address = Arg::new("ip_address").required(true);
        vec![address.help("IP address of the endpoint to assassinate")]
    },
    ask: |api, arguments| {
        let address = arguments.get_one::<String>("ip_address").expect("clap asks for it");
        api.post(&format!("/gossiper/assassinate/{}", escape(address)))
    },
    show: silent,
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_decommission_says_what_it_waits_for() {
        let change = json!({ "alters": ["ks"], "waits_for": ["10.0.0.2"], "joins": null });
        let text = queued_behind(&change).unwrap();
        assert!(text.contains("keyspace ks are being moved, which waits for 10.0.0.2:"), "{text}");
        assert!(!queued_behind(&json!({ "alters": ["ks"], "waits_for": [] })).unwrap().contains("waits for"));
        assert_eq!(queued_behind(&json!({ "alters": [], "joins": "x" })), None, "that is refused");
        assert_eq!(queued_behind(&Value::Null), None);
    }
}
