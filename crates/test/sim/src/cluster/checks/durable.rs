//! Checker: acknowledged writes are there, read at QUORUM, and at ALL also those that one replica acknowledged. Each write
//! of unknown outcome is there wholly or not at all.

use wire::Consistency;

use crate::cluster::director::ClusterDirector;
use crate::plan::{one_in, pick};
use crate::{session, workload};

/// Reads every partition through random nodes; settles writes of unknown outcome.
pub(crate) async fn check(director: &mut ClusterDirector) -> Result<(), String> {
    let tables = director.world.borrow().tables.len();
    for table in 0..tables {
        read(director, table, Consistency::Quorum).await?;
        // Every replica is read, and no write is in flight any more: a write that is missing now never comes.
        director.world.borrow_mut().keep_promises(table);
        read(director, table, Consistency::All).await?;
    }
    Ok(())
}

async fn read(director: &mut ClusterDirector, table: usize, consistency: Consistency) -> Result<(), String> {
    let keys: Vec<_> = director.world.borrow().tables[table].partitions.keys().cloned().collect();
    let nth = director.any_node();
    let mut connection = director.connect(nth).await?;
    connection.consistency = consistency;
    for key in keys {
        let (query, question) = {
            let world = director.world.borrow();
            let known = &world.tables[table];
            let reversed = !known.shape.clustering.is_empty() && one_in(&mut director.rng, 2);
            workload::whole_partition(known, &key, reversed, one_in(&mut director.rng, 2))
        };
        let page = *pick(&mut director.rng, &[1, 3, 100]);
        let asked = session::ask(&director.world, &mut connection, table, &query, &question, page).await;
        if director.failed() {
            return Ok(());
        }
        let proofs = match asked {
            Ok(Some(proofs)) => proofs,
            Ok(None) => return Err(format!("node {nth} does not answer at {consistency:?}")),
            Err(failure) => return Err(format!("node {nth} at {consistency:?}: {failure}")),
        };
        if consistency == Consistency::All {
            proofs.iter().for_each(|(key, proof)| director.world.borrow_mut().settle(table, key, proof));
        }
    }
    Ok(())
}
