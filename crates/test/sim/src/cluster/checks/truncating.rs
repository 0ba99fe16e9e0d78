//! Checker: rows from before an acknowledged truncation never come back, whichever node missed it, and later rows stay.

use std::time::Duration;

use wire::Consistency;
use wire::client::ResultBody;

use crate::cluster::clients::truncating::shown;
use crate::cluster::director::ClusterDirector;
use crate::cluster::models::truncating::TABLE;
use crate::statement::Query;

/// How long the nodes may take in a quiescent phase until all of them take part.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Reads the table at a strong level and at every node alone, truncates it, and looks again.
pub(crate) async fn check(director: &mut ClusterDirector) -> Result<(), String> {
    compare(director).await?;
    // The network is whole and nodes run.
    director.cut.borrow_mut().is_unanswered = false;
    let begun = director.sim.now();
    loop {
        let nth = director.any_node();
        let mut connection = director.connect(nth).await?;
        match connection.query(&Query::text(format!("TRUNCATE {TABLE}")), None).await {
            Ok(ResultBody::Void) => break,
            Ok(other) => return Err(format!("TRUNCATE was answered with {other:?}")),
            Err(failure) if director.sim.now() - begun > TIME_MAX => {
                return Err(format!("TRUNCATE by node {nth}: {failure}"));
            }
            Err(_) => director.rt.sleep(Duration::from_secs(1)).await,
        }
    }
    director.cut.borrow_mut().truncated();
    compare(director).await
}

async fn compare(director: &mut ClusterDirector) -> Result<(), String> {
    for nth in director.present() {
        let mut connection = director.connect(nth).await?;
        for (level, strong) in [(Consistency::Quorum, true), (Consistency::One, false)] {
            connection.consistency = level;
            let rows = shown(&mut connection, 100).await;
            let rows = rows.map_err(|failure| format!("node {nth} at {level:?}: {failure}"))?;
            if let Some(problem) = director.cut.borrow().problem(&rows, strong) {
                return Err(format!("of {TABLE}, read by node {nth} at {level:?}, {problem}"));
            }
        }
    }
    Ok(())
}
