//! Checker: after a repair the next read sees all that one read has seen, acknowledged or not, on any node and level.

use wire::Consistency;

use crate::cluster::director::ClusterDirector;
use crate::plan::pick;
use crate::{session, workload};

/// How often each table is read.
const READINGS: usize = 6;

/// Reads everything at ONE through random nodes, each time in view of the readings before.
pub(crate) async fn check(director: &mut ClusterDirector) -> Result<(), String> {
    director.world.borrow_mut().checking = Some("monotonic");
    let tables = director.world.borrow().tables.len();
    for table in 0..tables {
        for _ in 0..READINGS {
            let nth = director.any_node();
            let mut connection = director.connect(nth).await?;
            connection.consistency = Consistency::One;
            let (query, question) = workload::whole_table(&director.world.borrow().tables[table], false);
            let page = *pick(&mut director.rng, &[1, 3, 100]);
            let asked = session::ask(&director.world, &mut connection, table, &query, &question, page).await;
            if director.failed() {
                return Ok(());
            }
            match asked {
                Ok(Some(proofs)) => director.world.borrow_mut().note_seen(table, &proofs),
                Ok(None) => return Err(format!("node {nth} does not answer")),
                Err(failure) => return Err(format!("node {nth}: {failure}")),
            }
        }
    }
    Ok(())
}
