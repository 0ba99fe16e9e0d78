//! The metrics of a node as a whole, by ScyllaDB's names: its operation mode and version, gossip, and the progress of topology changes and repairs.

use std::rc::Rc;

use cluster::state::MemberStatus;
use gossip::Standing;
use repair::JobState;
use topology::HostId;

use crate::prometheus::{escape, head, sample};
use crate::{Node, ShardFigures, topology_changes};

/// ScyllaDB's names of operations of a node.
const OPERATIONS: &[&str] = &["bootstrap", "decommission", "rebuild", "removenode", "repair", "replace"];

pub(crate) fn write(node: &Rc<dyn Node>, shards: &[ShardFigures], out: &mut String) {
    let modes = "Starting 1, joining 2, normal 3, leaving 4, decommissioned 5, draining 6, drained 7.";
    head(out, "scylla_node_operation_mode", "gauge", modes);
    sample(out, "scylla_node_operation_mode", "", f64::from(node.mode().number()));
    let version = format!("version=\"{}\",shard=\"0\"", escape(&node.info().version));
    head(out, "scylla_scylladb_current_version", "gauge", "Version of the server; always 0.");
    sample(out, "scylla_scylladb_current_version", &version, 0.0);
    if let Some(liveness) = node.liveness() {
        let live = liveness.peers.values().filter(|peer| peer.standing == Standing::Alive).count();
        let down = liveness.peers.len() - live;
        for (name, kind, help, value) in [
            (
                "scylla_gossip_heart_beat",
                "counter",
                "Heartbeat that the node gossips.",
                liveness.own.heartbeat as f64,
            ),
            ("scylla_gossip_live", "gauge", "Other nodes that are up, as the node sees them.", live as f64),
            (
                "scylla_gossip_unreachable",
                "gauge",
                "Other nodes that are down, as the node sees them.",
                down as f64,
            ),
        ] {
            head(out, name, kind, help);
            sample(out, name, "shard=\"0\"", value);
        }
    }
    let name = "scylla_node_ops_finished_percentage";
    head(
        out,
        name,
        "gauge",
        "The finished share of an operation of the node, from 0 to 1; 1 when none is under way.",
    );
    for operation in OPERATIONS {
        let labels = format!("ops=\"{operation}\",shard=\"0\"");
        sample(out, name, &labels, finished(node, shards, operation));
    }
}

/// The finished share of an operation; 1 when it is not under way.
fn finished(node: &Rc<dyn Node>, shards: &[ShardFigures], operation: &str) -> f64 {
    if operation == "repair" {
        let jobs = node.repair().map(|repair| repair.statuses()).unwrap_or_default();
        let running = jobs.iter().filter(|job| job.state == JobState::Running);
        return running.map(|job| job.share).fold(1.0, f64::min);
    }
    match under_way(node) == Some(operation) {
        true => topology_changes::finished_share(shards),
        false => 1.0,
    }
}

/// The topology change under way.
fn under_way(node: &Rc<dyn Node>) -> Option<&'static str> {
    if node.rebuilds_from().is_some() {
        return Some("rebuild");
    }
    let state = node.cluster_state()?;
    let change = state.change.as_ref()?;
    let removes =
        |host: HostId| state.member(host).is_some_and(|member| member.status == MemberStatus::Removing);
    match (change.joins, change.leaves) {
        (Some(_), Some(_)) => Some("replace"),
        (Some(_), None) => Some("bootstrap"),
        (None, Some(host)) if removes(host) => Some("removenode"),
        (None, Some(_)) => Some("decommission"),
        (None, None) => None,
    }
}
