//! Checker: all nodes agree on a keyspace's replication factor after ALTER KEYSPACE under faults, and each replica has everything once it was
//! repaired.

use std::collections::BTreeSet;
use std::time::Duration;

use model::{ColumnType, Scalar, ScalarType, Value};
use wire::Consistency;

use crate::cluster::director::ClusterDirector;
use crate::cluster::models::replicating::{KEYSPACE, TABLE, alter_text, replication};
use crate::cluster::nemesis::repair::repair_all;
use crate::plan::pick;
use crate::statement::{Query, decode_value};

/// How long the nodes may take in a quiescent phase until a change goes through.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Makes the keyspace.
pub(crate) async fn prepare(director: &mut ClusterDirector) -> Result<(), String> {
    let Some(&copies) = director.plan.replications.first() else { return Ok(()) };
    let mut connection = director.connect(0).await?;
    let own = [
        format!("CREATE KEYSPACE {KEYSPACE} WITH {}", replication(copies)),
        format!("CREATE TABLE {TABLE} (k bigint PRIMARY KEY)"),
    ];
    for text in own.into_iter().chain(director.lwt.create_texts(KEYSPACE)) {
        let answer = connection.query(&Query::text(&text), None).await;
        answer.map_err(|failure| format!("{text}: {failure}"))?;
    }
    director.copied.borrow_mut().may.insert(copies);
    Ok(())
}

/// Compares the nodes' schemas, changes the factor once more, and reads every row on every replica, before and after.
pub(crate) async fn check(director: &mut ClusterDirector) -> Result<(), String> {
    agree(director).await?;
    compare(director).await?;
    let copies = *pick(&mut director.details, &director.plan.replications.clone());
    let begun = director.sim.now();
    loop {
        let nth = director.any_node();
        let mut connection = director.connect(nth).await?;
        match connection.query(&Query::text(alter_text(copies)), None).await {
            Ok(_) => break,
            Err(failure) if director.sim.now() - begun > TIME_MAX => {
                return Err(format!("{} by node {nth}: {failure}", alter_text(copies)));
            }
            Err(_) => director.rt.sleep(Duration::from_secs(1)).await,
        }
    }
    director.copied.borrow_mut().may = [copies].into();
    agree(director).await?;
    compare(director).await
}

/// All nodes have the same replication factor, one of the possible ones.
async fn agree(director: &mut ClusterDirector) -> Result<(), String> {
    let text = format!("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = '{KEYSPACE}'");
    let mut all = BTreeSet::new();
    for nth in director.present() {
        let rows = director.ask(nth, &text, Consistency::One).await?;
        let [row] = rows.as_slice() else { return Err(format!("node {nth} shows {} keyspaces", rows.len())) };
        all.insert(
            number(row[0].as_deref().unwrap_or_default()).map_err(|why| format!("node {nth}: {why}"))?,
        );
    }
    let mut copied = director.copied.borrow_mut();
    if all.len() != 1 || !all.is_subset(&copied.may) {
        return Err(format!(
            "{KEYSPACE} has the replication factors {all:?} by node; possible are {:?}",
            copied.may
        ));
    }
    copied.may = all;
    Ok(())
}

/// The replication factor in a keyspace's description.
fn number(description: &[u8]) -> Result<usize, String> {
    let Value::Map(map) = decode_value(ColumnType::Map(ScalarType::Text, ScalarType::Text), description)?
    else {
        return Err("a replication is no map".to_owned());
    };
    match map.get(&Scalar::Text("replication_factor".to_owned())) {
        Some(Scalar::Text(number)) => number.parse().map_err(|_| format!("{number} copies")),
        other => Err(format!("the replication factor is {other:?}")),
    }
}

/// Reads the keyspace at every node alone, before a repair and after it.
async fn compare(director: &mut ClusterDirector) -> Result<(), String> {
    // A new replica fetches the rows of others. Rows that only a dead node has are lost when its removal is forced.
    if !director.plan.forces {
        each_has_all(director, "before a repair").await?;
    }
    repair_all(director, KEYSPACE).await?;
    each_has_all(director, "after a repair").await
}

async fn each_has_all(director: &mut ClusterDirector, when: &str) -> Result<(), String> {
    let expected = director.copied.borrow().rows.clone();
    for nth in director.present() {
        let rows = director.ask(nth, &format!("SELECT k FROM {TABLE}"), Consistency::One).await?;
        let key = |row: &Vec<Option<Vec<u8>>>| row[0].as_deref()?.try_into().ok();
        let found: BTreeSet<i64> = rows.iter().filter_map(key).map(i64::from_be_bytes).collect();
        let missing: Vec<&i64> = expected.difference(&found).collect();
        if !missing.is_empty() {
            return Err(format!("{when} node {nth} does not show {missing:?} of {TABLE}"));
        }
    }
    Ok(())
}
