//! Checker: each node, asked alone, shows all that was acknowledged: after a reading at ALL in any case, and before it when no node
//! has lost hints that it had not made durable.

use wire::Consistency;

use crate::cluster::director::ClusterDirector;
use crate::{session, workload};

/// Reads everything at ONE through every node; a node that has a copy answers from its own.
pub(crate) async fn check(director: &mut ClusterDirector) -> Result<(), String> {
    let tables = director.world.borrow().tables.len();
    for nth in director.present() {
        let mut connection = director.connect(nth).await?;
        connection.consistency = Consistency::One;
        for table in 0..tables {
            let (query, question) = workload::whole_table(&director.world.borrow().tables[table], false);
            let asked = session::ask(&director.world, &mut connection, table, &query, &question, 100).await;
            if director.failed() {
                return Ok(());
            }
            match asked {
                Ok(Some(_)) => {}
                Ok(None) => return Err(format!("node {nth} does not answer")),
                Err(failure) => return Err(format!("node {nth}: {failure}")),
            }
        }
    }
    Ok(())
}
