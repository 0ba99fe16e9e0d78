//! Verbs about the cluster as a whole: describecluster, failuredetector, gossipinfo.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::api::{Api, Failure};
use super::ring::text;
use super::{Verb, pairs, texts};

pub(super) const DESCRIBECLUSTER: Verb = Verb {
    name: "describecluster",
    about: "Print the name, snitch, partitioner and schema version of a cluster",
    arguments: Vec::new,
    ask: |api, _| ask_cluster(api),
    show: show_cluster,
};

pub(super) const GOSSIPINFO: Verb = Verb {
    name: "gossipinfo",
    about: "Shows the gossip information for the cluster",
    arguments: Vec::new,
    ask: |api, _| api.get("/torc/gossip"),
    show: show_gossip,
};

pub(super) const FAILUREDETECTOR: Verb = Verb {
    name: "failuredetector",
    about: "Shows the failure detector information for the cluster",
    arguments: Vec::new,
    ask: |api, _| api.get("/failure_detector/endpoint_phi_values"),
    show: |answer| {
        let mut out = format!("{:>10},{:>16}\n", "Endpoint", "Phi");
        for one in answer.as_array().into_iter().flatten() {
            let phi = one["phi"].as_f64().unwrap_or(0.0);
            out.push_str(&format!("{:>10},{phi:>16.8}\n", text(&one["endpoint"])));
        }
        out
    },
};

fn ask_cluster(api: &Api) -> Result<Value, Failure> {
    let count = |path: &str| Ok::<_, Failure>(texts(&api.get(path)?).len());
    let (live, down) =
        (texts(&api.get("/gossiper/endpoint/live")?), texts(&api.get("/gossiper/endpoint/down")?));
    let mut datacenters: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for address in live.iter().chain(&down) {
        let name = api.text(&format!("/snitch/datacenter?host={}", super::api::escape(address)))?;
        let counts = datacenters.entry(name).or_default();
        counts.0 += 1;
        counts.1 += usize::from(down.contains(address));
    }
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for endpoint in api.get("/failure_detector/endpoints")?.as_array().into_iter().flatten() {
        let states = endpoint["application_state"].as_array().into_iter().flatten();
        let release = states.clone().find(|state| state["name"] == "RELEASE_VERSION");
        let address = format!("{}:{}", text(&endpoint["addrs"]), text(&endpoint["port"]));
        versions
            .entry(release.map_or("?".to_owned(), |state| text(&state["value"])))
            .or_default()
            .push(address);
    }
    let schema: Vec<Value> = pairs(&api.get("/storage_proxy/schema_versions")?)
        .into_iter()
        .map(|(version, nodes)| json!({ "version": version, "nodes": nodes }))
        .collect();
    let datacenter = |(name, (nodes, down))| json!({ "datacenter": name, "nodes": nodes, "down": down });
    Ok(json!({
        "name": api.text("/storage_service/cluster_name")?,
        "snitch": api.text("/snitch/name")?,
        "partitioner": api.text("/storage_service/partitioner_name")?,
        "schema_versions": schema,
        "live": live.len(),
        "joining": count("/storage_service/nodes/joining")?,
        "moving": count("/storage_service/nodes/moving")?,
        "leaving": count("/storage_service/nodes/leaving")?,
        "unreachable": down.len(),
        "datacenters": datacenters.into_iter().map(datacenter).collect::<Vec<_>>(),
        "database_versions": versions,
        "keyspaces": api.get("/torc/keyspaces")?,
    }))
}

fn show_cluster(answer: &Value) -> String {
    let field = |name: &str| text(&answer[name]);
    let mut out = format!(
        "Cluster Information:\n\tName: {}\n\tSnitch: {}\n\tDynamicEndPointSnitch: disabled\n\tPartitioner: {}\n\tSchema \
         versions:\n",
        field("name"),
        field("snitch"),
        field("partitioner")
    );
    for version in answer["schema_versions"].as_array().into_iter().flatten() {
        let nodes = texts(&version["nodes"]).join(", ");
        out.push_str(&format!("\t\t{}: [{nodes}]\n\n", text(&version["version"])));
    }
    out.push_str("Stats for all nodes:\n");
    for (name, key) in [
        ("Live", "live"),
        ("Joining", "joining"),
        ("Moving", "moving"),
        ("Leaving", "leaving"),
        ("Unreachable", "unreachable"),
    ] {
        out.push_str(&format!("\t{name}: {}\n", field(key)));
    }
    out.push_str("\nData Centers: \n");
    for datacenter in answer["datacenters"].as_array().into_iter().flatten() {
        let of = |name: &str| text(&datacenter[name]);
        out.push_str(&format!("\t{} #Nodes: {} #Down: {}\n", of("datacenter"), of("nodes"), of("down")));
    }
    out.push_str("\nDatabase versions:\n");
    for (version, nodes) in answer["database_versions"].as_object().into_iter().flatten() {
        out.push_str(&format!("\t{version}: [{}]\n", texts(nodes).join(", ")));
    }
    out.push_str("\nKeyspaces:\n");
    for keyspace in answer["keyspaces"].as_array().into_iter().flatten() {
        let options = keyspace["replication"].as_object().cloned().unwrap_or_default();
        let class = options.get("class").map(text).unwrap_or_default();
        let class = class.rsplit('.').next().unwrap_or_default().to_owned();
        let others = options.iter().filter(|(name, _)| *name != "class");
        let others: Vec<String> = others.map(|(name, value)| format!("{name}={}", text(value))).collect();
        let name = text(&keyspace["name"]);
        out.push_str(&format!("\t{name} -> Replication class: {class} {{{}}}\n", others.join(", ")));
    }
    out
}

fn show_gossip(answer: &Value) -> String {
    let mut out = String::new();
    for endpoint in answer.as_array().into_iter().flatten() {
        let of = |name: &str| text(&endpoint[name]);
        out.push_str(&format!(
            "/{}\n  generation:{}\n  heartbeat:{}\n",
            of("addrs"),
            of("generation"),
            of("version")
        ));
        for state in endpoint["application_state"].as_array().into_iter().flatten() {
            let of = |name: &str| text(&state[name]);
            out.push_str(&format!("  {}:{}:{}\n", of("name"), of("version"), of("value")));
        }
        if let Some(id) = endpoint["host_id"].as_str() {
            // It is no value that changes: the node is known by it.
            out.push_str(&format!("  HOST_ID:0:{id}\n"));
        }
    }
    out.push('\n');
    out
}
