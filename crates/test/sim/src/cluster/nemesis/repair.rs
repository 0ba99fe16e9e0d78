//! Repairs that an operator asks for, and waits for: of every node's ranges, fully or incrementally.

use std::net::SocketAddr;
use std::time::Duration;

use crate::cluster::director::ClusterDirector;
use crate::cluster::node::REST_PORT;
use crate::plan::one_in;
use crate::rest;

/// How long a node's repair may take with nothing in its way.
const TIME_MAX: Duration = Duration::from_secs(300);
/// Clocks that are behind by more are set.
const CLOCK_MICROS_MAX: i64 = 20_000_000;
const LOOK_PERIOD: Duration = Duration::from_millis(200);

/// The path that starts a repair of a node's ranges of a keyspace, or of its primary ranges: full, or incremental.
pub(crate) fn repair_path(keyspace: &str, primary: bool, incremental: bool) -> String {
    format!("/storage_service/repair_async/{keyspace}?primaryRange={primary}&incremental={incremental}")
}

/// Repairs every node's ranges of a keyspace, each fully or incrementally.
pub(crate) async fn repair_all(director: &mut ClusterDirector, keyspace: &str) -> Result<(), String> {
    correct_clocks(director);
    let primary = one_in(&mut director.rng, 2);
    for nth in director.present() {
        let path = repair_path(keyspace, primary, !one_in(&mut director.details, 3));
        repair(director, nth, &path).await.map_err(|problem| format!("{path} at node {nth}: {problem}"))?;
    }
    Ok(())
}

/// Sets all clocks to the one that is ahead: a repair is not recorded while clocks are far apart.
fn correct_clocks(director: &mut ClusterDirector) {
    let latest = director.nodes.iter().map(|node| director.sim.wall_micros(node.id)).max().unwrap_or(0);
    for node in &director.nodes {
        let behind = latest - director.sim.wall_micros(node.id);
        if behind > CLOCK_MICROS_MAX {
            director.world.borrow_mut().note_jump(node.id);
            director.sim.jump_clock(node.id, behind);
        }
    }
}

async fn repair(director: &mut ClusterDirector, nth: usize, path: &str) -> Result<(), String> {
    director.world.borrow_mut().stats.repairs += 1;
    let server = SocketAddr::new(director.ip(nth), REST_PORT);
    let begun = director.sim.now();
    let answer = rest::call(&director.rt, server, "POST", path).await?;
    let id = rest::body(&answer).to_owned();
    loop {
        let answer =
            rest::get(&director.rt, server, &format!("/storage_service/repair_status?id={id}&timeout=0"))
                .await?;
        match rest::body(&answer) {
            "\"SUCCESSFUL\"" => return Ok(()),
            "\"RUNNING\"" if director.sim.now() - begun < TIME_MAX => {}
            _ => {
                let jobs = rest::get(&director.rt, server, "/storage_service/repairs").await?;
                return Err(format!(
                    "{} after {:?}: {}",
                    rest::body(&answer),
                    director.sim.now() - begun,
                    rest::body(&jobs)
                ));
            }
        }
        director.rt.sleep(LOOK_PERIOD).await;
    }
}
