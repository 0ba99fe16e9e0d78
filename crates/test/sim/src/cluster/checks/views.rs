//! Checker: in the end each materialized view has the rows that its definition gives over the rows of the base, through every node.

use std::time::Duration;

use wire::Consistency;

use crate::client::Failure;
use crate::cluster::clients::views::shown;
use crate::cluster::director::ClusterDirector;
use crate::cluster::models::views::{TABLE, VIEWS, problem};

/// How long views may take in a quiescent phase until they have followed: a batch that was left is written again after a while.
const TIME_MAX: Duration = Duration::from_secs(120);

/// Compares each view with the base, through every node.
pub(crate) async fn check(director: &mut ClusterDirector) -> Result<(), String> {
    let begun = director.sim.now();
    for nth in director.present() {
        for view in &VIEWS {
            loop {
                let mut connection = director.connect(nth).await?;
                connection.consistency = Consistency::All;
                let failed = |failure: Failure| format!("node {nth}: {failure}");
                let base = shown(&mut connection, "p, c, v, w", TABLE).await.map_err(failed)?;
                let name = format!("k0.{}", view.name);
                let found = shown(&mut connection, view.columns, &name).await.map_err(failed)?;
                let Some(problem) = problem(view, &base, &found) else { break };
                if director.sim.now() - begun > TIME_MAX {
                    return Err(format!("of the view {name}, read by node {nth}, {problem}"));
                }
                director.rt.sleep(Duration::from_secs(5)).await;
            }
        }
    }
    Ok(())
}
