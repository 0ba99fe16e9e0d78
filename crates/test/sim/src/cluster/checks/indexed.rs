//! Checker: an index finds each row of a value and no row of another, through every node.

use std::time::Duration;

use wire::Consistency;

use crate::cluster::clients::indexed::{VALUES, Way};
use crate::cluster::director::ClusterDirector;
use crate::cluster::models::indexed::TABLE;

/// How long the nodes may take in a quiescent phase until they have built the index.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Reads each value by its index through every node.
pub(crate) async fn check(director: &mut ClusterDirector) -> Result<(), String> {
    let begun = director.sim.now();
    for nth in director.present() {
        for (level, value, way) in [Consistency::Quorum, Consistency::All]
            .into_iter()
            .flat_map(|level| (0..VALUES).map(move |value| (level, value)))
            .flat_map(|(level, value)| Way::ALL.map(|way| (level, value, way)))
        {
            let mut connection = director.connect(nth).await?;
            connection.consistency = level;
            let found = loop {
                match way.shown(&mut connection, value as i32, 7).await {
                    Ok(found) => break found,
                    Err(failure)
                        if failure.to_string().contains("not yet available")
                            && director.sim.now() - begun < TIME_MAX => {}
                    Err(failure) => return Err(format!("node {nth} at {level:?}: {failure}")),
                }
                director.rt.sleep(Duration::from_secs(1)).await;
            };
            if let Some(problem) = director.indexed.borrow().problem(value as i32, &found) {
                return Err(format!(
                    "of {TABLE} where v = {value} ({way:?}), read by node {nth} at {level:?}, {problem}"
                ));
            }
        }
    }
    Ok(())
}
