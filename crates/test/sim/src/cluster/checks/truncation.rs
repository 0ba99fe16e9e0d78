//! Checker: truncated rows stay away, although hints and batches from before are still to be delivered.

use std::time::Duration;

use wire::client::ResultBody;

use crate::cluster::director::ClusterDirector;
use crate::cluster::plan::focus::Focus;
use crate::plan::one_in;
use crate::statement::Query;

/// How long the nodes may take until all of them take part.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Now and then truncates a table, without concurrent writes and with all nodes up; resurrected rows are found by the other checks.
pub(crate) async fn truncate(director: &mut ClusterDirector) -> Result<(), String> {
    let tables = director.world.borrow().tables.len() as u64;
    // Of batches in a truncated table nothing is known any more.
    if !one_in(&mut director.rng, 4) || director.plan.focus == Some(Focus::Batches) {
        return Ok(());
    }
    let table = director.rng.below(tables) as usize;
    let text = format!("TRUNCATE {}", director.world.borrow().tables[table].full_name());
    let begun = director.sim.now();
    loop {
        let nth = director.any_node();
        let mut connection = director.connect(nth).await?;
        match connection.query(&Query::text(&text), None).await {
            Ok(ResultBody::Void) => break,
            Ok(other) => return Err(format!("{text} was answered with {other:?}")),
            // A node may still have another one convicted.
            Err(failure) if director.sim.now() - begun > TIME_MAX => {
                return Err(format!("{text} by node {nth}: {failure}"));
            }
            Err(_) => director.rt.sleep(Duration::from_secs(1)).await,
        }
    }
    let mut world = director.world.borrow_mut();
    world.stats.truncations += 1;
    world.forget_table(table);
    Ok(())
}
