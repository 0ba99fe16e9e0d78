//! Checker: when the faults are over and the nodes have found each other, no hint, no logged batch and no stream stays behind.

use std::path::Path;
use std::time::Duration;

use wire::Consistency;

use crate::cluster::director::ClusterDirector;

/// How long the nodes may take to deliver their hints, batches and streams.
const TIME_MAX: Duration = Duration::from_secs(300);
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// The directory of a node's hints; an operator sees the files.
const HINTS: &str = "/torc/hints/";
/// The same of files that are on their way to another node, or come from there.
const STREAMS: &str = "streams";

/// Waits until none is stored any more.
pub(crate) async fn check(director: &mut ClusterDirector) -> Result<(), String> {
    let begun = director.sim.now();
    loop {
        let Some(left) = find(director).await? else { return Ok(()) };
        if director.sim.now() - begun > TIME_MAX {
            return Err(format!("after {TIME_MAX:?} there is still {left}"));
        }
        director.rt.sleep(LOOK_PERIOD).await;
    }
}

/// A hint, batch or stream that is still stored.
async fn find(director: &mut ClusterDirector) -> Result<Option<String>, String> {
    for nth in director.present() {
        let files = director.sim.files(director.nodes[nth].id);
        // Beside its hints the directory has the lock of the process.
        let hints = |path: &Path| path.starts_with(HINTS) && !path.ends_with("lock");
        if let Some((path, len)) = files.iter().find(|(path, len)| hints(path) && *len > 0) {
            return Ok(Some(format!("{} of {len} bytes on node {nth}", path.display())));
        }
        let streams = |path: &Path| path.components().any(|part| part.as_os_str() == STREAMS);
        if let Some((path, len)) = files.iter().find(|(path, _)| streams(path)) {
            return Ok(Some(format!("{} of {len} bytes on node {nth}", path.display())));
        }
        let batches = director.ask(nth, "SELECT id FROM system.batches", Consistency::One).await?;
        if !batches.is_empty() {
            return Ok(Some(format!("{} logged batches on node {nth}", batches.len())));
        }
    }
    Ok(None)
}
