//! Checker: in the end the log of a table whose changes are captured, replayed, is the table, through every node, and its rows are where readers
//! look for them; and a node verifies the log with the same result. The table and its clients are those of the views.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use wire::Consistency;

use crate::client::{Connection, Failure};
use crate::cluster::clients::views::shown;
use crate::cluster::director::ClusterDirector;
use crate::cluster::models::changes::{Generation, Logged, logged, misplaced, problem, stream_ids};
use crate::cluster::models::views::TABLE;
use crate::cluster::node::REST_PORT;
use crate::rest;
use crate::statement::Query;

/// How long the log may take in a quiescent phase: rows that were to be delivered are tried again after a while.
const TIME_MAX: Duration = Duration::from_secs(120);

async fn log(connection: &mut Connection) -> Result<Vec<Logged>, Failure> {
    let text = format!(
        "SELECT \"cdc$stream_id\", \"cdc$time\", \"cdc$operation\", p, c, v, \"cdc$deleted_v\", w, \"cdc$deleted_w\" FROM {TABLE}_scylla_cdc_log"
    );
    let rows = connection.rows(&Query::text(text), 100).await?;
    let strange = |row: &Vec<Option<Vec<u8>>>| Failure::Protocol(format!("no row of a log: {row:?}"));
    rows.iter().map(|row| logged(row).ok_or_else(|| strange(row))).collect()
}

/// The generations of streams, as readers look for them.
async fn generations(connection: &mut Connection) -> Result<Vec<Generation>, Failure> {
    let text = "SELECT time, streams FROM system_distributed.cdc_streams_descriptions_v2";
    let mut generations: BTreeMap<i64, BTreeSet<Vec<u8>>> = BTreeMap::new();
    for row in connection.rows(&Query::text(text), 100).await? {
        let strange = || Failure::Protocol(format!("no row of streams: {row:?}"));
        let [Some(time), Some(streams)] = row.as_slice() else { return Err(strange()) };
        let start = time.as_slice().try_into().map(i64::from_be_bytes).map_err(|_| strange())?;
        generations.entry(start).or_default().extend(stream_ids(streams).ok_or_else(strange)?);
    }
    Ok(generations.into_iter().collect())
}

/// Replays the log, read through every node.
pub(crate) async fn check(director: &mut ClusterDirector) -> Result<(), String> {
    let begun = director.sim.now();
    for nth in director.present() {
        loop {
            let mut connection = director.connect(nth).await?;
            connection.consistency = Consistency::All;
            let failed = |failure: Failure| format!("node {nth}: {failure}");
            let base = shown(&mut connection, "p, c, v, w", TABLE).await.map_err(failed)?;
            let log = log(&mut connection).await.map_err(failed)?;
            let generations = generations(&mut connection).await.map_err(failed)?;
            let found = problem(&base, &log).or_else(|| misplaced(&log, &generations));
            let Some(problem) = found else { break };
            if director.sim.now() - begun > TIME_MAX {
                return Err(format!("the log of {TABLE}, read by node {nth}, {problem}"));
            }
            director.rt.sleep(Duration::from_secs(5)).await;
        }
    }
    verify(director).await
}

/// Has the first node compare the table with its log.
async fn verify(director: &ClusterDirector) -> Result<(), String> {
    let Some(nth) = director.present().first().copied() else { return Ok(()) };
    let server = SocketAddr::new(director.ip(nth), REST_PORT);
    let path = format!("/torc/cdc_checks/{}", TABLE.replace('.', "/"));
    let failed = |answer: String| format!("node {nth} does not verify the log of {TABLE}: {answer}");
    let begun = director.sim.now();
    let id = rest::call(&director.rt, server, "POST", &path).await.map_err(failed)?;
    let id = format!("\"id\":{},", rest::body(&id));
    loop {
        let all = rest::get(&director.rt, server, "/torc/cdc_checks").await.map_err(failed)?;
        let found = rest::body(&all).split("},{").find(|check| check.contains(&id));
        let check = found.ok_or_else(|| failed(all.clone()))?;
        let has = |text: &str| check.contains(text);
        match has("\"state\":\"RUNNING\"") {
            true if director.sim.now() - begun < TIME_MAX => director.rt.sleep(Duration::from_secs(1)).await,
            true => return Err(failed(format!("it does not end: {check}"))),
            false => {
                let is_verified = has("\"state\":\"FINISHED\"")
                    && ["unlogged", "unapplied", "unsettled"].iter().all(|it| has(&format!("\"{it}\":0")));
                return if is_verified { Ok(()) } else { Err(failed(check.to_owned())) };
            }
        }
    }
}
