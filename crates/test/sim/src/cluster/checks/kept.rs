//! Checker: rows that all replicas had before the faults are still on all replicas after them, after any topology changes: each node, queried
//! alone, shows it. Neither hints nor reads nor repairs are needed for that, so that nothing may hide a range that was not moved.

use std::collections::BTreeSet;

use wire::Consistency;

use crate::cluster::director::ClusterDirector;
use crate::statement::Query;

const TABLE: &str = "k0.kept";
/// Rows, each a partition.
const ROWS: i32 = 48;

/// Makes the table, and writes its rows to all replicas.
pub(crate) async fn prepare(director: &mut ClusterDirector) -> Result<(), String> {
    let mut connection = director.connect(0).await?;
    connection.consistency = Consistency::All;
    let mut texts = vec![format!("CREATE TABLE {TABLE} (k int PRIMARY KEY)")];
    texts.extend((0..ROWS).map(|k| format!("INSERT INTO {TABLE} (k) VALUES ({k})")));
    for text in texts {
        let answer = connection.query(&Query::text(&text), None).await;
        answer.map_err(|failure| format!("{text}: {failure}"))?;
    }
    Ok(())
}

/// Reads all rows at ONE through every node; a node that has a copy answers from its own.
pub(crate) async fn check(director: &mut ClusterDirector) -> Result<(), String> {
    for nth in director.present() {
        let rows = director.ask(nth, &format!("SELECT k FROM {TABLE}"), Consistency::One).await?;
        let found: BTreeSet<i32> = rows
            .iter()
            .filter_map(|row| row[0].as_deref()?.try_into().ok().map(i32::from_be_bytes))
            .collect();
        let missing: Vec<i32> = (0..ROWS).filter(|k| !found.contains(k)).collect();
        if !missing.is_empty() {
            return Err(format!("node {nth} does not show {missing:?} of {TABLE}, which all replicas had"));
        }
    }
    Ok(())
}
