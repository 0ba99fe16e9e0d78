//! ALTER KEYSPACE under faults: a client that changes the replication factor of a keyspace and writes to all replicas,
//! and the checker that all nodes agree on the number in the end, and that each copy has everything once it was repaired.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use model::{ColumnType, Scalar, ScalarType, Value};
use rt::Rt;
use rt_sim::Rng;
use wire::Consistency;

use crate::client::{Connection, Failure};
use crate::cluster::director::ClusterDirector;
use crate::cluster::repaired;
use crate::plan::pick;
use crate::session::connect_any;
use crate::statement::{Query, decode_value};
use crate::world::SharedWorld;

/// The keyspace.
pub(crate) const KEYSPACE: &str = "k1";
const TABLE: &str = "k1.copied";
/// The server's code of a statement that is refused.
const INVALID: i32 = 0x2200;
/// How long the nodes may take in a quiescent phase until a change goes through.
const TIME_MAX: Duration = Duration::from_secs(60);

/// The client's knowledge of the keyspace.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    next: i64,
    /// Rows that all replicas of some moment have acknowledged.
    rows: BTreeSet<i64>,
    /// The possible replication factors now.
    may: BTreeSet<usize>,
}

/// Shared by the client and the checker.
pub(crate) type SharedCopied = Rc<RefCell<Copied>>;

fn replication(copies: usize) -> String {
    format!("replication = {{'class': 'SimpleStrategy', 'replication_factor': {copies}}}")
}

fn alter_text(copies: usize) -> String {
    format!("ALTER KEYSPACE {KEYSPACE} WITH {}", replication(copies))
}

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

/// A client that changes the replication factor.
pub(crate) struct Replicator {
    pub(crate) rt: Rt,
    pub(crate) world: SharedWorld,
    pub(crate) copied: SharedCopied,
    pub(crate) replications: Vec<usize>,
    pub(crate) pause_micros: u64,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) rng: Rng,
}

impl Replicator {
    /// Works until the world is down.
    pub(crate) async fn run(mut self) {
        while !self.world.borrow().down {
            let opened = connect_any(&self.rt, &self.world, &self.servers, &mut self.rng).await;
            let Some((mut connection, _)) = opened else { continue };
            for _ in 0..1 + self.rng.below(20) {
                let pause = self.rng.below(self.pause_micros.max(50_000));
                self.rt.sleep(Duration::from_micros(pause)).await;
                if self.world.borrow().down || self.step(&mut connection).await.is_err() {
                    break;
                }
            }
        }
    }

    async fn step(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        // Each is a topology change, which moves data and cleans up.
        if self.rng.below(60) == 0 {
            let copies = *pick(&mut self.rng, &self.replications);
            let answer = connection.query(&Query::text(alter_text(copies)), None).await;
            let mut copied = self.copied.borrow_mut();
            match &answer {
                Ok(_) => {
                    self.world.borrow_mut().stats.schema_changes += 1;
                    copied.may = [copies].into();
                }
                // The ring changes.
                Err(Failure::Error(error)) if error.code() == INVALID => {}
                Err(failure) => {
                    copied.may.insert(copies);
                    self.world.borrow_mut().classify(failure, &alter_text(copies));
                }
            }
            return answer.map(drop);
        }
        let k = {
            let mut copied = self.copied.borrow_mut();
            copied.next += 1;
            copied.next
        };
        let text = format!("INSERT INTO {TABLE} (k) VALUES ({k})");
        connection.consistency = Consistency::All;
        match connection.query(&Query::text(&text), None).await {
            Ok(_) => {
                self.copied.borrow_mut().rows.insert(k);
                Ok(())
            }
            Err(failure) => {
                self.world.borrow_mut().classify(&failure, &text);
                Err(failure)
            }
        }
    }
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
    // Who becomes a replica fetches what others have. What only a dead node has is lost when its removal is forced.
    if !director.plan.forces {
        each_has_all(director, "before a repair").await?;
    }
    repaired::repair_all(director, KEYSPACE).await?;
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
