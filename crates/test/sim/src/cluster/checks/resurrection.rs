//! Checker: deleted rows do not come back when deletions are purged, provided that everything was repaired within their
//! grace.

use std::net::SocketAddr;

use crate::cluster::checks::equal;
use crate::cluster::director::ClusterDirector;
use crate::cluster::nemesis::repair::repair_all;
use crate::cluster::node::REST_PORT;
use crate::cluster::plan::grace::Grace;
use crate::rest;

/// More than a second by which clocks differ and times are rounded.
const MARGIN_SECONDS: u32 = 10;

/// Repairs everything, lets the grace pass, makes every node purge its deletions, and compares.
pub(crate) async fn check(director: &mut ClusterDirector) -> Result<(), String> {
    match director.plan.grace {
        Grace::Never => return Ok(()),
        Grace::Timeout(grace) => {
            repair_all(director, "k0").await?;
            pass(director, grace);
        }
        Grace::Repair(delay) => {
            pass(director, delay);
            // Deletions since the last repair may not be purged yet, however old they are.
            compact_all(director).await?;
            repair_all(director, "k0").await?;
        }
    }
    compact_all(director).await?;
    director.keep_promises();
    equal::check(director).await
}

/// Every node merges all its files of each table.
async fn compact_all(director: &ClusterDirector) -> Result<(), String> {
    for nth in director.present() {
        let server = SocketAddr::new(director.ip(nth), REST_PORT);
        let done = rest::post(&director.rt, server, "/storage_service/keyspace_compaction/k0").await;
        done.map_err(|problem| format!("compaction of node {nth}: {problem}"))?;
    }
    Ok(())
}

/// All clocks show that so many seconds have passed.
fn pass(director: &ClusterDirector, seconds: u32) {
    let micros = i64::from(seconds + MARGIN_SECONDS) * 1_000_000;
    for node in &director.nodes {
        director.sim.jump_clock(node.id, micros);
    }
}
