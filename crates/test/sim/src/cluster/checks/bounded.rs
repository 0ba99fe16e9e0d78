//! Checker: when clients send no requests any more, nothing is queued in the nodes, and their memory and disk keep to the limits, by their
//! own metrics.

use std::net::SocketAddr;
use std::time::Duration;

use crate::cluster::director::ClusterDirector;
use crate::cluster::models::bounded::judge;
use crate::cluster::node::METRICS_PORT;
use crate::rest;

/// How long the nodes may take to come to rest.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Reads the metrics of every node until they are as they must be.
pub(crate) async fn check(director: &mut ClusterDirector) -> Result<(), String> {
    for nth in director.present() {
        let address = SocketAddr::new(director.server(nth).ip(), METRICS_PORT);
        let begun = director.sim.now();
        loop {
            let metrics = rest::get(&director.rt, address, "/metrics").await;
            let metrics = metrics.map_err(|problem| format!("metrics of node {nth}: {problem}"))?;
            let Some(problem) = judge(&metrics) else { break };
            if director.sim.now() - begun > TIME_MAX {
                return Err(format!("node {nth} after {TIME_MAX:?} of rest: {problem}"));
            }
            director.rt.sleep(Duration::from_secs(1)).await;
        }
    }
    Ok(())
}
