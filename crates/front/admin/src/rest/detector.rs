//! The failure detector over REST, at ScyllaDB's paths.

use std::rc::Rc;

use serde_json::{Value, json};

use super::ring;
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
        ["endpoints"] => ring::endpoints(node).await,
        ["endpoint_phi_values"] => others(node)
            .into_iter()
            .map(|(endpoint, phi, _)| json!({ "endpoint": endpoint, "phi": phi }))
            .collect(),
        ["simple_states"] => others(node)
            .into_iter()
            .map(
                |(endpoint, _, alive)| json!({ "key": endpoint, "value": if alive { "UP" } else { "DOWN" } }),
            )
            .collect(),
        ["count", "endpoint", "up"] => count(true),
        ["count", "endpoint", "down"] => count(false),
        ["phi"] => {
            let threshold = node.setting("phi_convict_threshold")?;
            json!(threshold.value)
        }
        _ => return None,
    })
}
