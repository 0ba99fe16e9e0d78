//! The failure detector over REST, at ScyllaDB's paths.

use std::rc::Rc;

use coordinator::ViewNode;
use serde_json::{Value, json};

use super::gossip_states;
use crate::Node;

/// A node of the cluster other than this one: its internode address, its phi, and whether it counts as up.
fn others(node: &Rc<dyn Node>) -> Vec<(String, f64, bool)> {
    let view = node.view();
    let own = view.node(view.own()).host;
    let others = view.nodes().iter().filter(|other| other.host != own);
    others.map(|other| (other.internode.to_string(), node.phi(other.host), other.alive)).collect()
}

/// The answer to a GET below `/failure_detector`; none for another path.
pub(super) async fn answer(node: &Rc<dyn Node>, segments: &[&str]) -> Option<Value> {
    let count = |up: bool| {
        let own = usize::from(up);
        json!(own + others(node).iter().filter(|(.., alive)| *alive == up).count())
    };
    Some(match segments {
        ["endpoints"] => gossip_states::endpoints(node).await,
        ["endpoint_phi_values"] => others(node)
            .into_iter()
            .map(|(endpoint, phi, _)| json!({ "endpoint": endpoint, "phi": phi }))
            .collect(),
        // By address, this node among them.
        ["simple_states"] => {
            let view = node.view();
            let own = view.node(view.own()).host;
            let state = |member: &ViewNode| {
                let state = if member.alive || member.host == own { "UP" } else { "DOWN" };
                json!({ "key": member.internode.ip().to_string(), "value": state })
            };
            view.nodes().iter().map(state).collect()
        }
        ["count", "endpoint", "up"] => count(true),
        ["count", "endpoint", "down"] => count(false),
        ["phi"] => {
            let threshold: f64 = node.setting("phi_convict_threshold")?.value.parse().ok()?;
            match threshold.fract() == 0.0 {
                true => json!(threshold as u64),
                false => json!(threshold),
            }
        }
        _ => return None,
    })
}
