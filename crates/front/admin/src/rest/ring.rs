//! The ring over REST: members, liveness, ownership.

use std::collections::BTreeMap;
use std::rc::Rc;

use cluster::state::MemberStatus;
use coordinator::{Phase, ViewNode};
use gossip::{Endpoint, Key, Standing, status};
use mutation::DecoratedKey;
use schema::{Replication, Table};
use serde_json::{Value, json};
use topology::{HostId, Location, NodeIndex, TokenRange};

use super::figures;
use crate::names::{self, given, mandatory};
use crate::uuid;
use crate::{Answer, Call, Node};

/// How a node is named: its address for other nodes (`broadcast_address`), as in Cassandra and ScyllaDB.
pub(super) fn name(node: &ViewNode) -> String {
    node.internode.ip().to_string()
}

fn pair(key: impl ToString, value: impl Into<Value>) -> Value {
    json!({ "key": key.to_string(), "value": value.into() })
}

/// The gossip state of all nodes, by host id, this node included; empty while the node is alone.
pub(super) fn gossiped(node: &Rc<dyn Node>) -> BTreeMap<HostId, (Endpoint, Standing)> {
    let Some(liveness) = node.liveness() else { return BTreeMap::new() };
    let peers = liveness.peers.into_values().map(|peer| (peer.endpoint, peer.standing));
    let own = (liveness.own, Standing::Alive);
    peers.chain([own]).map(|(endpoint, standing)| (endpoint.host, (endpoint, standing))).collect()
}

/// Whether a node has left the ring: it is listed no more, also where it still runs, or serves its last clients.
pub(super) fn has_left(node: &Rc<dyn Node>, of: &ViewNode) -> bool {
    let is_own = of.host == HostId(node.info().host_id);
    let status = node.cluster_state().and_then(|state| Some(state.member(of.host)?.status));
    status == Some(MemberStatus::Left) || (is_own && node.mode() == crate::Mode::Decommissioned)
}

/// Those that say that they join while the view does not have them.
pub(super) fn joining(node: &Rc<dyn Node>) -> Vec<Endpoint> {
    let view = node.view();
    let all = gossiped(node).into_values().map(|(endpoint, _)| endpoint);
    let joins = |endpoint: &Endpoint| {
        let known = view.nodes().iter().any(|node| node.host == endpoint.host);
        endpoint.text(Key::STATUS) == Some(status::BOOT) && !known
    };
    all.filter(joins).collect()
}

pub(super) fn replication(node: &Rc<dyn Node>, keyspace: &str) -> Result<Replication, Answer> {
    names::keyspace(&node.schema(), keyspace).map(|keyspace| keyspace.replication.clone())
}

/// Addresses and host ids.
pub(super) fn host_ids(node: &Rc<dyn Node>) -> Value {
    let view = node.view();
    let present = view.nodes().iter().filter(|of| !has_left(node, of));
    let members = present.map(|node| pair(name(node), uuid(&node.host.0)));
    let joining = joining(node);
    let joining = joining.iter().map(|joins| pair(joins.address.ip(), uuid(&joins.host.0)));
    json!(members.chain(joining).collect::<Vec<_>>())
}

/// The tokens of a node, or of this one; none of an address that no member has.
pub(super) fn tokens_of(node: &Rc<dyn Node>, address: Option<&str>) -> Value {
    let view = node.view();
    let of = match address {
        Some(address) => names::member(&view, address),
        None => Some(view.node(view.own())),
    };
    let mut tokens = of.map_or_else(Vec::new, |of| of.tokens.clone());
    tokens.sort_unstable();
    json!(tokens.iter().map(ToString::to_string).collect::<Vec<_>>())
}

/// Every token and its owner.
pub(super) fn tokens(node: &Rc<dyn Node>) -> Value {
    let view = node.view();
    let one = |(token, owner): &(i64, _)| pair(token, name(view.node(*owner)));
    json!(view.ring().tokens().iter().map(one).collect::<Vec<_>>())
}

/// Each member's part of the data, in the view's order: of the ring's tokens without a keyspace, of its replicas with one.
pub(super) fn shares(node: &Rc<dyn Node>, keyspace: Option<&str>) -> Result<Vec<f64>, Answer> {
    let view = node.view();
    let lengths = view.ring().range_lengths();
    let mut owned = vec![0_u128; view.nodes().len()];
    match keyspace.map(|keyspace| replication(node, keyspace)).transpose()? {
        None => view.ring().tokens().iter().zip(&lengths).for_each(|((_, owner), length)| {
            owned[usize::from(owner.0)] += length;
        }),
        Some(Replication::Local) => owned.fill(1 << 64),
        Some(replication) => {
            for ((_, replicas), length) in view.place(&replication).now().ranges().zip(&lengths) {
                replicas.iter().for_each(|replica| owned[usize::from(replica.0)] += length);
            }
        }
    }
    Ok(owned.into_iter().map(|owned| owned as f64 / 2_f64.powi(64)).collect())
}

/// Each node's part of the data: of the ring's tokens without a keyspace, of its replicas with one.
pub(super) fn ownership(node: &Rc<dyn Node>, keyspace: Option<&str>) -> Result<Value, Answer> {
    let (view, owned) = (node.view(), shares(node, keyspace)?);
    let one = |(node, owned): (&ViewNode, f64)| pair(name(node), owned.to_string());
    Ok(json!(view.nodes().iter().zip(owned).map(one).collect::<Vec<_>>()))
}

/// The ranges of the ring and their replicas. All tables of a keyspace have the same.
pub(super) fn describe(node: &Rc<dyn Node>, call: &Call, keyspace: &str) -> Result<Value, Answer> {
    if let Some(table) = given(call, "table") {
        names::table(&node.schema(), keyspace, table)?;
    }
    let view = node.view();
    let placement = view.place(&replication(node, keyspace)?);
    let mut ranges = Vec::new();
    for (range, replicas) in placement.now().ranges() {
        let replicas: Vec<&ViewNode> = replicas.iter().map(|replica| view.node(*replica)).collect();
        let details = |node: &&ViewNode| {
            let Location { datacenter, rack } = &node.location;
            json!({ "host": name(node), "datacenter": datacenter, "rack": rack })
        };
        ranges.push(json!({
            "start_token": range.after.to_string(),
            "end_token": range.upto.to_string(),
            "endpoints": replicas.iter().map(|node| name(node)).collect::<Vec<_>>(),
            "rpc_endpoints": replicas.iter().map(|node| node.native.ip().to_string()).collect::<Vec<_>>(),
            "endpoint_details": replicas.iter().map(details).collect::<Vec<_>>(),
        }));
    }
    Ok(json!(ranges))
}

/// The ranges of the ring, by their ends, with the addresses of their replicas: those for nodes, or for clients with `rpc`.
pub(super) fn endpoints_of_ranges(node: &Rc<dyn Node>, call: &Call, keyspace: &str) -> Result<Value, Answer> {
    let for_clients = names::flag(call, "rpc", false)?;
    let view = node.view();
    let placement = view.place(&replication(node, keyspace)?);
    let address = |of: &ViewNode| if for_clients { of.native.ip() } else { of.internode.ip() };
    let one = |(range, replicas): (TokenRange, &[NodeIndex])| {
        let ends = [range.after, range.upto].map(|token| token.to_string());
        let replicas = replicas.iter().map(|replica| address(view.node(*replica)).to_string());
        json!({ "key": ends, "value": replicas.collect::<Vec<_>>() })
    };
    Ok(json!(placement.now().ranges().map(one).collect::<Vec<_>>()))
}

/// The ranges of a keyspace that nodes will be replicas of and are not yet, by their ends, with the addresses of these nodes.
pub(super) fn pending(node: &Rc<dyn Node>, keyspace: &str) -> Result<Value, Answer> {
    let view = node.view();
    let placement = view.place(&replication(node, keyspace)?);
    let mut ranges: BTreeMap<(i64, i64), Vec<String>> = BTreeMap::new();
    for pending in placement.pending_nodes() {
        for range in placement.gained(pending) {
            ranges.entry((range.after, range.upto)).or_default().push(name(view.node(pending)));
        }
    }
    let one = |((after, upto), nodes): ((i64, i64), Vec<String>)| json!({ "key": [after.to_string(), upto.to_string()], "value": nodes });
    Ok(ranges.into_iter().map(one).collect())
}

/// The replicas of a partition (`cf`, `key`), the first one first.
pub(super) fn natural_endpoints(node: &Rc<dyn Node>, call: &Call, keyspace: &str) -> Result<Value, Answer> {
    let (table, text) = (mandatory(call, "cf")?, mandatory(call, "key")?);
    let schema = node.schema();
    let found = names::table(&schema, keyspace, table)?;
    replicas_of(node, found, key(found, text))
}

/// The replicas of a partition whose key has each column in a `key_component` of its own.
pub(super) fn natural_endpoints_of_parts(
    node: &Rc<dyn Node>,
    call: &Call,
    keyspace: &str,
) -> Result<Value, Answer> {
    let table = mandatory(call, "cf")?;
    mandatory(call, "key_component")?;
    let schema = node.schema();
    let found = names::table(&schema, keyspace, table)?;
    let parts = call.query.iter().filter(|(name, _)| name == "key_component");
    let parts: Vec<&str> = parts.map(|(_, value)| value.as_str()).collect();
    replicas_of(node, found, key_of(found, &parts))
}

fn replicas_of(
    node: &Rc<dyn Node>,
    table: &Table,
    key: Result<bytes::Bytes, String>,
) -> Result<Value, Answer> {
    let replication = replication(node, &table.keyspace)?;
    let key = key.map_err(|error| {
        Answer::error(400, format!("the key does not fit {}: {error}", table.full_name()))
    })?;
    let view = node.view();
    let placement = view.place(&replication);
    let replicas = match replication {
        Replication::Local => vec![view.own()],
        _ => placement.replicas(DecoratedKey::new(key).token).to_vec(),
    };
    Ok(json!(replicas.into_iter().map(|replica| name(view.node(replica))).collect::<Vec<_>>()))
}

/// A partition key from its text: several columns have colons between.
pub(super) fn key(table: &Table, text: &str) -> Result<bytes::Bytes, String> {
    match table.partition_key().len() {
        1 => key_of(table, &[text]),
        _ => key_of(table, &text.split(':').collect::<Vec<_>>()),
    }
}

/// A partition key from the texts of its columns.
fn key_of(table: &Table, parts: &[&str]) -> Result<bytes::Bytes, String> {
    let columns = table.partition_key();
    if parts.len() != columns.len() {
        return Err(format!(
            "it has {} columns, with colons between; {} were given",
            columns.len(),
            parts.len()
        ));
    }
    let values: Result<Vec<Vec<u8>>, String> = columns
        .iter()
        .zip(parts)
        .map(|(column, part)| column.ty.from_string(part).map_err(|error| error.to_string()))
        .collect();
    let values = values?;
    if values.iter().any(|value| value.len() > usize::from(u16::MAX)) {
        return Err("a part of a key has at most 65,535 bytes".to_owned());
    }
    Ok(DecoratedKey::compose(&values.iter().map(Vec::as_slice).collect::<Vec<_>>()))
}

/// A figure of a node's gossip, named by its address or host id: the generation, the heartbeat, or for how many milliseconds it has been
/// down. None for another figure.
pub(super) fn of_gossip(node: &Rc<dyn Node>, figure: &str, name: &str) -> Option<Result<Value, Answer>> {
    if !["downtime", "generation_number", "heart_beat_version"].contains(&figure) {
        return None;
    }
    let unknown = || names::bad(format!("there is no node {name} in the cluster"));
    let host = names::member(&node.view(), name).map(|member| member.host);
    let peer = |host| {
        let liveness = node.liveness()?;
        let down = liveness.peers.get(&host).filter(|peer| matches!(peer.standing, Standing::Down(_)));
        let since = down.map(|peer| peer.since_micros);
        let peers = liveness.peers.into_values().map(|peer| peer.endpoint).chain([liveness.own]);
        peers.into_iter().find(|endpoint| endpoint.host == host).map(|endpoint| (endpoint, since))
    };
    Some(host.and_then(peer).ok_or_else(unknown).map(|(endpoint, since)| match figure {
        "generation_number" => json!(endpoint.generation),
        "heart_beat_version" => json!(endpoint.heartbeat),
        _ => json!(since.map_or(0, |since| (node.now_micros() - since).max(0) / 1_000)),
    }))
}

/// The nodes that join, leave or move; none for another state.
pub(super) fn in_state(node: &Rc<dyn Node>, state: &str) -> Option<Value> {
    let view = node.view();
    let present: Vec<&ViewNode> = view.nodes().iter().filter(|of| !has_left(node, of)).collect();
    let in_phase = |phase: Phase| present.iter().filter(move |node| node.phase == phase).map(|of| name(of));
    Some(match state {
        "joining" => {
            let others = joining(node).into_iter().map(|joins| joins.address.ip().to_string());
            json!(in_phase(Phase::Joining).chain(others).collect::<Vec<_>>())
        }
        "leaving" => json!(in_phase(Phase::Leaving).chain(in_phase(Phase::Removing)).collect::<Vec<_>>()),
        // A node never changes its tokens, and none is excluded.
        "moving" | "excluded" => json!([]),
        _ => return None,
    })
}

/// The nodes that are believed to live, or not to.
pub(super) fn by_life(node: &Rc<dyn Node>, alive: bool) -> Value {
    let view = node.view();
    let own = view.node(view.own()).host;
    let present = view.nodes().iter().filter(|of| !has_left(node, of));
    let found = present.filter(|node| (node.alive || node.host == own) == alive);
    json!(found.map(name).collect::<Vec<_>>())
}

/// Bytes on disk, as a node gossips them.
pub(super) fn load_of(endpoint: &Endpoint) -> Option<f64> {
    endpoint.text(Key::LOAD)?.parse().ok()
}

/// Bytes on disk of the nodes that gossip them, as whole numbers.
pub(super) async fn loads(node: &Rc<dyn Node>) -> Value {
    let own = figures::load(node).await;
    let (view, gossiped) = (node.view(), gossiped(node));
    let mut loads = Vec::new();
    for (index, of) in view.indexes().zip(view.nodes()) {
        let gossiped_value = gossiped.get(&of.host).and_then(|(endpoint, _)| load_of(endpoint));
        let load = if index == view.own() { Some(own as f64) } else { gossiped_value };
        loads.extend(load.map(|load| pair(name(of), load as u64)));
    }
    for joins in joining(node) {
        loads.extend(load_of(&joins).map(|load| pair(joins.address.ip(), load as u64)));
    }
    json!(loads)
}

/// This node's generation.
pub(super) fn generation(node: &Rc<dyn Node>) -> u64 {
    let started = u64::try_from(node.info().started_micros / 1_000_000).unwrap_or(0);
    node.liveness().map_or(started, |liveness| liveness.own.generation)
}

/// Which nodes have which version of the schema; those that are down under `UNREACHABLE`.
pub(super) fn schema_versions(node: &Rc<dyn Node>) -> Value {
    let own = uuid(&node.schema().version());
    let (view, gossiped) = (node.view(), gossiped(node));
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (index, of) in view.indexes().zip(view.nodes()) {
        let gossiped_value = gossiped.get(&of.host).and_then(|(endpoint, _)| endpoint.text(Key::SCHEMA));
        let version = match (index == view.own(), view.is_alive(index)) {
            (true, _) => own.clone(),
            (false, true) => gossiped_value.unwrap_or("UNKNOWN").to_owned(),
            (false, false) => "UNREACHABLE".to_owned(),
        };
        versions.entry(version).or_default().push(name(of));
    }
    json!(versions.into_iter().map(|(version, nodes)| pair(version, nodes)).collect::<Vec<_>>())
}

/// A node's datacenter and rack; ScyllaDB's default ones for one that is not there, or has just left.
pub(super) fn location(node: &Rc<dyn Node>, address: &str) -> Location {
    if let Some(joins) = joining(node).iter().find(|joins| joins.address.ip().to_string() == address) {
        let text = |key| joins.text(key).unwrap_or_default();
        return Location::new(text(Key::DC), text(Key::RACK));
    }
    let found = names::member(&node.view(), address).map(|node| node.location.clone());
    found.unwrap_or_else(|| Location::new("UNKNOWN_DC", "UNKNOWN_RACK"))
}

/// The replication of every keyspace.
pub(super) fn replications(node: &Rc<dyn Node>) -> Value {
    let schema = node.schema();
    let one = |keyspace: &std::sync::Arc<schema::Keyspace>| json!({ "name": keyspace.name, "replication": keyspace.replication.to_map() });
    json!(schema.keyspaces().map(one).collect::<Vec<_>>())
}
