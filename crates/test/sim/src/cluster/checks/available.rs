//! Checker: with one node down and a majority of the replicas healthy and connected, writes and reads at QUORUM succeed through
//! every other node within a stated time.

use std::time::Duration;

use wire::Consistency;
use wire::client::ResultBody;

use crate::cluster::director::{ClusterDirector, SETTLE_TIME};
use crate::plan::pick;
use crate::statement::Query;

/// The table that this checker writes and reads.
const TABLE: &str = "k0.available";
/// Rows written and read through each node.
const ROWS: i64 = 8;
/// How long nodes may take to convict the one that is down: until then a read may be sent to it.
const CONVICTION_TIME_MAX: Duration = Duration::from_secs(40);
/// How long a write may take from the first moment on. It is sent to all replicas; those of another datacenter get it by way of
/// one of them, which is given up after a second when it does not answer.
const WRITE_TIME_MAX: Duration = Duration::from_millis(1_500);
/// How long a read may take after the conviction.
const READ_TIME_MAX: Duration = Duration::from_secs(1);

/// Creates the table.
pub(crate) fn create_text() -> String {
    format!("CREATE TABLE {TABLE} (k bigint PRIMARY KEY, v bigint)")
}

/// Takes one node down, and has each of the others coordinate writes at once and reads after the conviction.
pub(crate) async fn check(director: &mut ClusterDirector) -> Result<(), String> {
    let present = director.present();
    if director.copies.total() < 3 || director.change.is_some() || present.len() < 3 {
        return Ok(());
    }
    let down = *pick(&mut director.details, &present);
    let id = director.nodes[down].id;
    match director.details.below(3) {
        0 => director.sim.kill(id),
        1 => director.sim.isolate(id),
        _ => director.sim.pause(id),
    }
    director.nodes[down].faulty = true;
    director.world.borrow_mut().forget_seen();
    let others: Vec<usize> = present.into_iter().filter(|nth| *nth != down).collect();
    for nth in &others {
        for row in 0..ROWS {
            let text = format!("INSERT INTO {TABLE} (k, v) VALUES ({row}, {nth})");
            within(director, *nth, &text, WRITE_TIME_MAX).await?;
        }
    }
    director.rt.sleep(CONVICTION_TIME_MAX).await;
    for nth in &others {
        for row in 0..ROWS {
            let text = format!("SELECT v FROM {TABLE} WHERE k = {row}");
            within(director, *nth, &text, READ_TIME_MAX).await?;
        }
    }
    director.relieve(down);
    director.wait_ready(down).await;
    director.reunite().await;
    director.rt.sleep(SETTLE_TIME).await;
    Ok(())
}

/// Carries a statement out at QUORUM through a node, in a time.
async fn within(
    director: &mut ClusterDirector,
    nth: usize,
    text: &str,
    time_max: Duration,
) -> Result<(), String> {
    let mut connection = director.connect(nth).await?;
    connection.consistency = Consistency::Quorum;
    let begun = director.sim.now();
    let answer = connection.query(&Query::text(text), None).await;
    let took = director.sim.now() - begun;
    match answer {
        Ok(ResultBody::Void | ResultBody::Rows(_)) if took <= time_max => Ok(()),
        Ok(ResultBody::Void | ResultBody::Rows(_)) => Err(format!(
            "{text} at QUORUM by node {nth} took {took:?}, at most {time_max:?} with one node down"
        )),
        Ok(other) => Err(format!("{text} was answered with {other:?}")),
        Err(failure) => Err(format!("{text} at QUORUM by node {nth}, with one node down: {failure}")),
    }
}
