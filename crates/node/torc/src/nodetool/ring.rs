//! Verbs about the ring: status, ring, describering, getendpoints.

use std::collections::BTreeMap;
use std::net::IpAddr;

use clap::{Arg, ArgAction, ArgMatches};
use serde_json::{Value, json};

use super::api::{Api, Failure, escape};
use super::grid::{Grid, percent, size};
use super::{Verb, texts};

pub(super) const STATUS: Verb = Verb {
    name: "status",
    about: "Print cluster information (state, load, IDs, ...)",
    arguments: ring_arguments,
    ask: ask_status,
    show: show_status,
};

pub(super) const RING: Verb = Verb {
    name: "ring",
    about: "Print information about the token ring",
    arguments: ring_arguments,
    ask: ask_ring,
    show: show_ring,
};

pub(super) const DESCRIBERING: Verb = Verb {
    name: "describering",
    about: "Shows the token ranges info of a given keyspace",
    arguments: || {
        vec![
            Arg::new("keyspace").required(true).help("The keyspace"),
            Arg::new("table").help("A table of it; all of a keyspace have the same ranges"),
        ]
    },
    ask: |api, arguments| {
        let keyspace = arguments.get_one::<String>("keyspace").expect("it is required");
        let table = arguments.get_one::<String>("table").map(|table| format!("?table={}", escape(table)));
        let path =
            format!("/storage_service/describe_ring/{}{}", escape(keyspace), table.unwrap_or_default());
        let ranges = api.get(&path).map_err(|failure| in_cassandras_words(keyspace, failure))?;
        let version = api.text("/storage_service/schema_version")?;
        Ok(json!({ "schema_version": version, "ranges": ranges }))
    },
    show: show_ranges,
};

pub(super) const GETENDPOINTS: Verb = Verb {
    name: "getendpoints",
    about: "Print the end points that owns the key",
    arguments: || {
        vec![
            Arg::new("keyspace").required(true).help("The keyspace"),
            Arg::new("table").required(true).help("The table"),
            Arg::new("key").required(true).help("The partition key; several columns with colons between"),
        ]
    },
    ask: |api, arguments| {
        let given = |name| arguments.get_one::<String>(name).expect("it is required").as_str();
        let keyspace = given("keyspace");
        let [of, table, key] = [keyspace, given("table"), given("key")].map(escape);
        let found = api.get(&format!("/storage_service/natural_endpoints/{of}?cf={table}&key={key}"));
        found.map_err(|failure| in_cassandras_words(keyspace, failure))
    },
    show: |answer| texts(answer).iter().map(|address| format!("{address}\n")).collect(),
};

/// The error of a keyspace that is not there, in the words of Cassandra's tool.
fn in_cassandras_words(keyspace: &str, failure: Failure) -> Failure {
    match failure == format!("Can't find a keyspace {keyspace}") {
        true => format!("The keyspace {keyspace}, does not exist"),
        false => failure,
    }
}

/// Shown when keyspaces differ and none was named.
const MEANINGLESS: &str = "Non-system keyspaces don't have the same replication settings, effective ownership \
                           information is meaningless";

/// The keyspace by whose replicas ownership is counted (none: the ring's tokens), and a note about it.
fn counted_by(api: &Api, keyspace: Option<&String>) -> Result<(Option<String>, Value), Failure> {
    if let Some(keyspace) = keyspace {
        return Ok((Some(keyspace.clone()), Value::Null));
    }
    let users = texts(&api.get("/storage_service/keyspaces?type=user")?);
    let all = api.get("/torc/keyspaces")?;
    let settings = |name: &String| {
        let found = all.as_array().into_iter().flatten().find(|keyspace| keyspace["name"] == **name);
        found.map(|keyspace| keyspace["replication"].clone())
    };
    let Some(first) = users.first() else { return Ok((None, Value::Null)) };
    if users.iter().any(|name| settings(name) != settings(first)) {
        return Ok((None, json!(MEANINGLESS)));
    }
    Ok((Some(first.clone()), Value::Null))
}

fn ring_arguments() -> Vec<Arg> {
    let resolve = Arg::new("resolve-ip").short('r').long("resolve-ip").action(ArgAction::SetTrue);
    vec![
        resolve.help("Show node domain names instead of IPs"),
        Arg::new("keyspace").help("Count ownership by this keyspace's replication"),
    ]
}

/// The name that the system's resolver has for an address; the address where it has none.
fn resolved(address: &str) -> String {
    let found = std::process::Command::new("getent").args(["hosts", address]).output();
    let found = found.ok().filter(|output| output.status.success());
    let text = found.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    name_in(&text).unwrap_or(address).to_owned()
}

/// The first name in a line of `getent hosts`: address, name, other names.
fn name_in(line: &str) -> Option<&str> {
    line.split_whitespace().nth(1)
}

/// Every node by itself, with names where those are wanted, in the order of addresses; those that share one in that of their ports.
fn ask_nodes(api: &Api, keyspace: Option<&String>, by_name: bool) -> Result<Vec<Value>, Failure> {
    let keyspace = keyspace.map(|keyspace| format!("?keyspace={}", escape(keyspace))).unwrap_or_default();
    let answer = api.get(&format!("/torc/nodes{keyspace}"))?;
    let mut nodes = answer.as_array().cloned().unwrap_or_default();
    nodes.sort_by_key(|node| {
        let address = text(&node["address"]);
        (address.parse::<IpAddr>().ok(), address, node["port"].as_u64())
    });
    for node in nodes.iter_mut().filter(|_| by_name) {
        node["address"] = json!(resolved(&text(&node["address"])));
    }
    Ok(nodes)
}

fn ask_status(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let (keyspace, note) = counted_by(api, arguments.get_one::<String>("keyspace"))?;
    let mut datacenters: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for node in ask_nodes(api, keyspace.as_ref(), arguments.get_flag("resolve-ip"))? {
        let up = if node["up"] == true { "U" } else { "D" };
        let state = text(&node["state"]).to_uppercase();
        datacenters.entry(text(&node["datacenter"])).or_default().push(json!({
            "status": format!("{up}{}", state.get(..1).unwrap_or("?")),
            "address": node["address"],
            "load": node["load"],
            "tokens": node["tokens"].as_array().map_or(0, Vec::len),
            "owns": node["owns"],
            "host_id": node["host_id"],
            "rack": node["rack"],
        }));
    }
    let one = |(name, nodes)| json!({ "datacenter": name, "nodes": nodes });
    let datacenters: Vec<Value> = datacenters.into_iter().map(one).collect();
    let change = api.get("/torc/topology")?["change"].clone();
    Ok(
        json!({ "datacenters": datacenters, "owns_effective": keyspace.is_some(), "note": note, "change": change }),
    )
}

fn show_status(answer: &Value) -> String {
    let mut out = String::new();
    for datacenter in answer["datacenters"].as_array().into_iter().flatten() {
        let head = format!("Datacenter: {}", text(&datacenter["datacenter"]));
        let line = "=".repeat(head.chars().count());
        out.push_str(&format!("{head}\n{line}\nStatus=Up/Down\n|/ State=Normal/Leaving/Joining/Moving\n"));
        let mut grid = Grid::default();
        let owns = if answer["owns_effective"] == true { "Owns (effective)" } else { "Owns" };
        grid.row(["--", "Address", "Load", "Tokens", owns, "Host ID", "Rack"]);
        for node in datacenter["nodes"].as_array().into_iter().flatten() {
            let owns = node["owns"].as_f64().map_or("?".to_owned(), |owns| percent(owns, 1));
            grid.row([
                text(&node["status"]),
                text(&node["address"]),
                load(&node["load"]),
                text(&node["tokens"]),
                owns,
                text(&node["host_id"]),
                text(&node["rack"]),
            ]);
        }
        // The last column of the head is as wide as the word, as in Cassandra.
        out.push_str(&grid.text("  "));
        out.push('\n');
    }
    if let Some(note) = answer["note"].as_str() {
        out.push_str(&format!("Note: {note}\n"));
    }
    if let Some(text) = held_up(&answer["change"]) {
        out.push_str(&format!("Note: {text}\n"));
    }
    out
}

/// The nodes that are down while a topology change is under way, and the ways out for an operator; none where no node is down.
pub(super) fn held_up(change: &Value) -> Option<String> {
    let down: Vec<String> = change["down"]
        .as_array()?
        .iter()
        .map(|node| format!("{} (host {})", text(&node["address"]), text(&node["host_id"])))
        .collect();
    if down.is_empty() || change["step"] != "fetching" {
        return None;
    }
    Some(format!(
        "A topology change is under way while nodes are down: {}. It may wait for their data (reported in the log of the node that streams): start them, or have it go \
         on without them: `nodetool removenode ID --ignore-dead-nodes IDS` of the node that is removed, or start the node that replaces another again with \
         ignore_dead_nodes_for_replace",
        down.join(", ")
    ))
}

fn ask_ring(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let (keyspace, note) = counted_by(api, arguments.get_one::<String>("keyspace"))?;
    let mut ring: BTreeMap<i64, Value> = BTreeMap::new();
    for node in ask_nodes(api, keyspace.as_ref(), arguments.get_flag("resolve-ip"))? {
        let state = match node["state"].as_str() {
            Some("joining") => "Joining",
            Some("leaving") => "Leaving",
            _ => "Normal",
        };
        for token in texts(&node["tokens"]) {
            let Ok(place) = token.parse() else { continue };
            let owner = json!({
                "datacenter": node["datacenter"],
                "address": node["address"],
                "rack": node["rack"],
                "status": if node["up"] == true { "Up" } else { "Down" },
                "state": state,
                "load": node["load"],
                "owns": node["owns"],
                "token": token,
            });
            ring.insert(place, owner);
        }
    }
    let mut datacenters: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for mut token in ring.into_values() {
        let datacenter = token["datacenter"].take();
        token.as_object_mut().expect("it was made as one").remove("datacenter");
        datacenters.entry(text(&datacenter)).or_default().push(token);
    }
    let one = |(name, tokens)| json!({ "datacenter": name, "tokens": tokens });
    let datacenters: Vec<Value> = datacenters.into_iter().map(one).collect();
    Ok(json!({ "datacenters": datacenters, "owns_effective": keyspace.is_some(), "note": note }))
}

fn show_ring(answer: &Value) -> String {
    let datacenters: Vec<&Value> = answer["datacenters"].as_array().into_iter().flatten().collect();
    let tokens = |datacenter: &Value| datacenter["tokens"].as_array().cloned().unwrap_or_default();
    let lengths = datacenters.iter().flat_map(|datacenter| tokens(datacenter));
    // Cassandra leaves room for a port behind the address.
    let width =
        lengths.map(|token| text(&token["address"]).chars().count()).max().unwrap_or(0) + ":7000".len();
    let line = |cells: [&str; 7]| {
        let [address, rack, status, state, load, owns, token] = cells;
        format!("{address:<width$}  {rack:<12}{status:<7}{state:<8}{load:<16}{owns:<20}{token:<44}\n")
    };
    let mut out = String::new();
    for datacenter in datacenters {
        out.push_str(&format!("\nDatacenter: {}\n==========\n", text(&datacenter["datacenter"])));
        out.push_str(&line(["Address", "Rack", "Status", "State", "Load", "Owns", "Token"]));
        let tokens = tokens(datacenter);
        match tokens.last() {
            Some(last) if tokens.len() > 1 => {
                out.push_str(&line(["", "", "", "", "", "", &text(&last["token"])]))
            }
            _ => out.push('\n'),
        }
        for token in &tokens {
            let owns = token["owns"].as_f64().map_or("?".to_owned(), |owns| percent(owns, 2));
            let column = |name: &str| text(&token[name]);
            out.push_str(&line([
                &column("address"),
                &column("rack"),
                &column("status"),
                &column("state"),
                &load(&token["load"]),
                &owns,
                &column("token"),
            ]));
        }
    }
    out.push_str(
        "\n  Warning: \"nodetool ring\" is used to output all the tokens of a node.\n  \
         To view status related info of a node use \"nodetool status\" instead.\n",
    );
    if let Some(note) = answer["note"].as_str() {
        out.push_str(&format!("  Note: {note}\n"));
    }
    out
}

fn show_ranges(answer: &Value) -> String {
    let mut out = format!("Schema Version:{}\nTokenRange: \n", text(&answer["schema_version"]));
    for range in answer["ranges"].as_array().into_iter().flatten() {
        let list = |name: &str| texts(&range[name]).join(", ");
        let detail = |of: &Value| {
            let (host, datacenter, rack) = (text(&of["host"]), text(&of["datacenter"]), text(&of["rack"]));
            format!("EndpointDetails(host:{host}, datacenter:{datacenter}, rack:{rack})")
        };
        let details: Vec<String> =
            range["endpoint_details"].as_array().into_iter().flatten().map(detail).collect();
        out.push_str(&format!(
            "\tTokenRange(start_token:{}, end_token:{}, endpoints:[{}], rpc_endpoints:[{}], endpoint_details:[{}])\n",
            text(&range["start_token"]),
            text(&range["end_token"]),
            list("endpoints"),
            list("rpc_endpoints"),
            details.join(", "),
        ));
    }
    out
}

/// A text without its quotes; anything else in JSON.
pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn load(value: &Value) -> String {
    value.as_f64().map_or("?".to_owned(), size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_of_an_address() {
        assert_eq!(name_in("127.0.0.1       localhost loopback\n"), Some("localhost"));
        assert_eq!((name_in("127.0.0.1\n"), name_in("")), (None, None));
        // TEST-NET has no names.
        assert_eq!(resolved("192.0.2.1"), "192.0.2.1");
        assert_eq!(resolved("not an address"), "not an address");
    }
}
