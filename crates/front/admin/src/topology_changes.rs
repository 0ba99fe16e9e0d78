//! Topology changes over REST: requested and watched in the shape of ScyllaDB's API. A request returns when the change is done;
//! the change continues when no client waits for it.

use coordinator::Phase;
use membership::{FetchFigures, TopologyRequest};
use std::collections::BTreeSet;
use std::rc::Rc;

use cluster::state::{ChangeStep, ClusterState, MemberStatus, TopologyChange};
use serde_json::{Value, json};
use topology::{HostId, NodeIndex};

use crate::{Answer, Call, Node, ShardFigures, names};

/// Answers requests about topology changes; none for any other.
pub(crate) async fn answer(
    node: &Rc<dyn Node>,
    call: &Call,
    segments: &[&str],
) -> Option<Result<Answer, Answer>> {
    match (call.method.as_str(), segments) {
        ("GET", ["storage_service", "removal_status"]) => {
            return Some(Ok(Answer::json(&json!(removal_status(node)))));
        }
        // Whether the node owns tokens.
        ("GET", ["storage_service", "join_ring"]) => {
            let joined = !matches!(node.mode(), crate::Mode::Starting | crate::Mode::Joining);
            return Some(Ok(Answer::json(&json!(joined))));
        }
        ("GET", ["torc", "topology"]) => return Some(Ok(Answer::json(&status(node).await))),
        _ => {}
    }
    let request = match (call.method.as_str(), segments) {
        ("POST", ["storage_service", "decommission"]) => {
            Ok(TopologyRequest::Decommission { force: flag(call, "force") })
        }
        ("POST", ["storage_service", "abort_decommission"]) => Ok(TopologyRequest::AbortDecommission),
        ("POST", ["storage_service", "remove_node"]) => {
            let of = ignored(node, call).and_then(|ignored| Ok((host(call)?, ignored)));
            of.map(|(host, ignored)| TopologyRequest::Remove { host, ignored })
        }
        ("POST", ["storage_service", "force_remove_completion"]) => Ok(TopologyRequest::ForceRemoval),
        ("POST", ["storage_service", "join_ring"]) => Ok(TopologyRequest::Join),
        ("POST", ["storage_service", "rebuild"]) => {
            let source = names::given(call, "source_dc").map(str::to_owned);
            match source.is_none() && flag(call, "force") {
                true => {
                    Err(names::bad("The `source_dc` option must be provided for using the `force` option"))
                }
                false => Ok(TopologyRequest::Rebuild { source }),
            }
        }
        ("POST", ["storage_service", "abort_rebuild"]) => Ok(TopologyRequest::AbortRebuild),
        ("POST", ["storage_service", "keyspace_cleanup", keyspace]) => {
            tables(node, call, keyspace).map(|tables| TopologyRequest::Cleanup { tables })
        }
        ("POST", ["storage_service", "cleanup_all"]) => {
            let schema = node.schema();
            let tables = schema.stored().tables().map(|table| table.id).collect();
            Ok(TopologyRequest::Cleanup { tables })
        }
        ("POST", ["gossiper", "assassinate", address]) => {
            by_address(node, address).map(|host| TopologyRequest::Assassinate { host })
        }
        _ => return None,
    };
    Some(match request {
        Ok(request) => match node.change_topology(request).await {
            Ok(()) => Ok(Answer::done()),
            Err(why) => Err(Answer::error(400, why)),
        },
        Err(answer) => Err(answer),
    })
}

fn flag(call: &Call, name: &str) -> bool {
    call.parameter(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// The tables that `cf` names, separated by commas, or all of a keyspace; those with data of their own.
fn tables(node: &Rc<dyn Node>, call: &Call, keyspace: &str) -> Result<Vec<schema::TableId>, Answer> {
    let schema = node.schema();
    let found = names::keyspace(&schema, keyspace)?;
    let wanted = names::tables(&schema, keyspace, call.parameter("cf"))?;
    Ok(wanted.iter().filter(|table| !found.computes(&table.name)).map(|table| table.id).collect())
}

/// The dead nodes without which a removal is to go on.
fn ignored(node: &Rc<dyn Node>, call: &Call) -> Result<BTreeSet<HostId>, Answer> {
    let (view, mut ignored) = (node.view(), BTreeSet::new());
    for name in names::list(call.parameter("ignore_nodes").unwrap_or_default()) {
        let member = names::member(&view, name)
            .ok_or_else(|| names::bad(format!("ignore_nodes: there is no node {name} in the cluster")))?;
        if member.alive {
            return Err(names::bad(format!("ignore_nodes: {name} is up, and takes part in the removal")));
        }
        ignored.insert(member.host);
    }
    Ok(ignored)
}

fn host(call: &Call) -> Result<HostId, Answer> {
    let text = call.parameter("host_id").unwrap_or_default();
    let id = cluster::parse_id(text).map(|id| HostId(id.0));
    id.ok_or_else(|| Answer::error(400, format!("host_id is the UUID of a node, not '{text}'")))
}

fn by_address(node: &Rc<dyn Node>, address: &str) -> Result<HostId, Answer> {
    let unknown = || Answer::error(400, format!("there is no node {address} in the cluster"));
    let wanted: std::net::IpAddr = address.parse().map_err(|_| unknown())?;
    let state = node.cluster_state().ok_or_else(unknown)?;
    let here =
        |info: &cluster::state::MemberInfo| info.internode.ip() == wanted || info.native.ip() == wanted;
    let found = state.members.iter().find(|(_, member)| here(&member.info)).map(|(host, _)| *host);
    found.ok_or_else(unknown)
}

fn name(host: HostId) -> String {
    schema::TableId(host.0).to_string()
}

/// The nodes that have yet to stream.
fn waits_for(node: &Rc<dyn Node>, state: &ClusterState, change: &TopologyChange) -> Vec<String> {
    if change.step != ChangeStep::Fetching {
        return Vec::new();
    }
    let view = node.view();
    let placed = view.place_each(state.schema.keyspaces());
    let pending_nodes = placed.iter().flat_map(|(_, copies)| copies.pending_nodes());
    let waiting = pending_nodes.filter(|index| !view.is_ignored(*index)).map(|index| view.node(index));
    let waiting = waiting.filter(|node| !change.fetched.contains(&node.host));
    let mut names: Vec<String> = waiting.map(|node| node.internode.ip().to_string()).collect();
    names.sort();
    names.dedup();
    names
}

/// The nodes that are down and for whose data a topology change may wait, and those that are down and that it ignores.
fn down(node: &Rc<dyn Node>) -> [Vec<Value>; 2] {
    let view = node.view();
    let down =
        view.indexes().filter(|index| !view.is_alive(*index) && view.node(*index).phase != Phase::Removing);
    let (ignored, awaited): (Vec<_>, Vec<_>) = down.partition(|index| view.is_ignored(*index));
    let named = |index: NodeIndex| {
        let member = view.node(index);
        json!({ "address": member.internode.ip().to_string(), "host_id": name(member.host) })
    };
    [awaited, ignored].map(|nodes| nodes.into_iter().map(named).collect())
}

/// The address of the node whose topology change this node's join is queued behind.
fn comes_before(node: &Rc<dyn Node>, state: &ClusterState, change: &TopologyChange) -> Option<String> {
    let own = HostId(node.info().host_id);
    let waits = state.member(own)?.status == MemberStatus::Joining && change.joins != Some(own);
    let who = change.joins.or(change.leaves).filter(|_| waits)?;
    Some(state.member(who)?.info.internode.ip().to_string())
}

/// How the removal of a dead node stands, in Cassandra's words.
fn removal_status(node: &Rc<dyn Node>) -> String {
    let none = || "No token removals in process.".to_owned();
    let Some(state) = node.cluster_state() else { return none() };
    let Some(change) = state.change.as_ref().filter(|change| change.joins.is_none()) else { return none() };
    let leaves = change.leaves.and_then(|host| state.member(host));
    match leaves.filter(|member| member.status == MemberStatus::Removing) {
        Some(member) => {
            let token = member.tokens.first().copied().unwrap_or_default();
            let waiting = waits_for(node, &state, change).join(",");
            format!("Removing token ({token}). Waiting for replication confirmation from [{waiting}].")
        }
        None => none(),
    }
}

/// How much of the streaming is done, and of how much. Files come first; the ranges are compared when they are here.
fn progress(shards: &[ShardFigures]) -> (u64, u64) {
    let sum = |of: fn(&FetchFigures) -> u64| shards.iter().map(|shard| of(&shard.fetch)).sum::<u64>();
    let files = (sum(|f| f.file_bytes), sum(|f| f.file_bytes_total));
    if files.0 < files.1 { files } else { (sum(|f| f.ranges_done), sum(|f| f.ranges_total)) }
}

/// The finished share of this node's streaming; 0 before it has begun.
pub(crate) fn finished_share(shards: &[ShardFigures]) -> f64 {
    let (part, whole) = progress(shards);
    part as f64 / whole.max(1) as f64
}

/// The topology change that is under way, and the progress of this node's streaming.
async fn status(node: &Rc<dyn Node>) -> Value {
    let shards = node.figures().await;
    let sum = |of: fn(&FetchFigures) -> u64| shards.iter().map(|shard| of(&shard.fetch)).sum::<u64>();
    let (done, total) = (sum(|f| f.ranges_done), sum(|f| f.ranges_total));
    let began = shards.iter().map(|shard| shard.fetch.began_micros).filter(|began| *began > 0).min();
    let elapsed = began.map(|began| (node.now_micros() - began).max(0) / 1_000);
    let known = shards.iter().all(|shard| shard.fetch.file_bytes_known || !shard.fetch.active);
    let (part, whole) = progress(&shards);
    let left = elapsed.filter(|_| known && part > 0 && part < whole).map(|elapsed| {
        let (part, whole) = (i128::from(part), i128::from(whole));
        i64::try_from(i128::from(elapsed) * (whole - part) / part).unwrap_or(i64::MAX)
    });
    let fetch = json!({
        "active": shards.iter().any(|shard| shard.fetch.active),
        "ranges_done": done,
        "ranges_total": total,
        "partitions": sum(|f| f.partitions),
        "bytes": sum(|f| f.bytes),
        "sstables": sum(|f| f.sstables),
        "file_bytes": sum(|f| f.file_bytes),
        "file_bytes_total": sum(|f| f.file_bytes_total),
        "file_bytes_known": known,
        "sending_bytes": sum(|f| f.sending_bytes),
        "sending_bytes_total": sum(|f| f.sending_bytes_total),
        "elapsed_ms": elapsed,
        "left_ms": left,
    });
    let change = node.cluster_state().and_then(|state| {
        let change = state.change.as_ref()?;
        let [down, ignored] = down(node);
        Some(json!({
            "number": change.number,
            "joins": change.joins.map(name),
            "leaves": change.leaves.map(name),
            "alters": change.alters.keys().collect::<Vec<_>>(),
            "step": match change.step {
                ChangeStep::Announced => "announced",
                ChangeStep::Fetching => "fetching",
                ChangeStep::Switched => "switched",
            },
            "waits_for": waits_for(node, &state, change),
            "down": down,
            "ignored": ignored,
            "before_own": comes_before(node, &state, change),
        }))
    });
    let rebuild = node.rebuilds_from();
    json!({ "mode": node.mode().name(), "change": change, "rebuild": rebuild, "fetch": fetch })
}
