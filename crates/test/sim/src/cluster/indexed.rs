//! Secondary indexes while things happen to a cluster: a client writes and reads a table by an indexed column, and the checker that an
//! index finds each row of a value and no row of another, at every strong read and, when all is quiet, through every node. Each row has a
//! vector made of its value, too, so that the rows nearest to that of a value have to be the rows of the value.
//!
//! The client is alone on its table and gives its writes timestamps in their order, so a row has the value of its last acknowledged
//! write, or of one without an answer since.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rt::Rt;
use rt_sim::Rng;
use wire::Consistency;

use crate::client::{Connection, Failure};
use crate::cluster::director::ClusterDirector;
use crate::cluster::plan::ClusterPlan;
use crate::plan::pick;
use crate::session::connect_any;
use crate::statement::Query;
use crate::world::SharedWorld;

const TABLE: &str = "k0.indexed";
const PARTITIONS: u64 = 6;
const ROWS: u64 = 4;
const VALUES: u64 = 3;
/// How long the nodes may take in a quiescent phase until they have built the index.
const TIME_MAX: Duration = Duration::from_secs(60);

type Key = (i32, i32);

/// The client's knowledge of the table's rows: what each may be, a value or none.
#[derive(Default)]
pub(crate) struct Indexed {
    timestamp: i64,
    rows: BTreeMap<Key, BTreeSet<Option<i32>>>,
}

/// Shared by the client and the checker.
pub(crate) type SharedIndexed = Rc<RefCell<Indexed>>;

impl Indexed {
    fn begin(&mut self, key: Key, value: Option<i32>) -> i64 {
        self.timestamp += 1;
        self.rows.entry(key).or_insert_with(|| [None].into()).insert(value);
        self.timestamp
    }

    fn acknowledged(&mut self, key: Key, value: Option<i32>) {
        self.rows.insert(key, [value].into());
    }

    /// The violation in the answer to a query of one value.
    fn problem(&self, value: i32, found: &[(Key, i32)]) -> Option<String> {
        let shown: BTreeSet<Key> = found.iter().map(|(key, _)| *key).collect();
        if shown.len() != found.len() {
            return Some(format!("a row comes twice in {found:?}"));
        }
        if let Some(other) = found.iter().find(|(_, other)| *other != value) {
            return Some(format!("{other:?} has another value"));
        }
        let never = BTreeSet::from([None]);
        let may = |key: &Key| self.rows.get(key).unwrap_or(&never);
        if let Some(key) = shown.iter().find(|key| !may(key).contains(&Some(value))) {
            return Some(format!("row {key:?} is found, which is one of {:?}", may(key)));
        }
        let must = |may: &BTreeSet<Option<i32>>| may.len() == 1 && may.contains(&Some(value));
        let missed = self.rows.iter().find(|(key, may)| must(may) && !shown.contains(key));
        missed.map(|(key, _)| format!("row {key:?} is not found"))
    }
}

/// Creates the table and its index.
pub(crate) fn create_texts() -> [String; 3] {
    [
        format!("CREATE TABLE {TABLE} (p int, c int, v int, near vector<float, 2>, PRIMARY KEY (p, c))"),
        format!("CREATE INDEX indexed_by_v ON {TABLE} (v)"),
        format!(
            "CREATE INDEX indexed_by_near ON {TABLE} (near) USING 'sai' WITH OPTIONS = {{'similarity_function': 'euclidean'}}"
        ),
    ]
}

/// A client that writes the table and reads it by value.
pub(crate) struct Indexer {
    pub(crate) rt: Rt,
    pub(crate) world: SharedWorld,
    pub(crate) indexed: SharedIndexed,
    pub(crate) plan: Rc<ClusterPlan>,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) rng: Rng,
}

impl Indexer {
    /// Works until the world is down.
    pub(crate) async fn run(mut self) {
        while !self.world.borrow().down {
            let opened = connect_any(&self.rt, &self.world, &self.servers, &mut self.rng).await;
            if let Some((mut connection, _)) = opened {
                self.work(&mut connection).await;
            }
        }
    }

    async fn work(&mut self, connection: &mut Connection) {
        for _ in 0..1 + self.rng.below(30) {
            if self.world.borrow().down {
                return;
            }
            self.rt.sleep(Duration::from_micros(self.rng.below(self.plan.pause_micros.max(20_000)))).await;
            let step = match self.rng.below(4) {
                0 => self.read(connection).await,
                _ => self.write(connection).await,
            };
            if step.is_err() {
                return;
            }
        }
    }

    async fn write(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        let key = (self.rng.below(PARTITIONS) as i32, self.rng.below(ROWS) as i32);
        let value = (self.rng.below(4) > 0).then(|| self.rng.below(VALUES) as i32);
        let at = self.indexed.borrow_mut().begin(key, value);
        let (p, c) = key;
        let text = match value {
            Some(v) => format!(
                "INSERT INTO {TABLE} (p, c, v, near) VALUES ({p}, {c}, {v}, [{v}, 1]) USING TIMESTAMP {at}"
            ),
            None => format!("DELETE FROM {TABLE} USING TIMESTAMP {at} WHERE p = {p} AND c = {c}"),
        };
        connection.consistency = *pick(&mut self.rng, &self.plan.levels.strong_writes);
        match connection.query(&Query::text(&text), None).await {
            Ok(_) => {
                self.indexed.borrow_mut().acknowledged(key, value);
                Ok(())
            }
            Err(failure) => {
                self.world.borrow_mut().classify(&failure, &text);
                Err(failure)
            }
        }
    }

    async fn read(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        connection.consistency = *pick(&mut self.rng, &self.plan.levels.strong_reads);
        let value = self.rng.below(VALUES) as i32;
        let page = *pick(&mut self.rng, &[1, 3, 100]);
        let by_nearness = self.indexed.borrow().timestamp % 2 == 0;
        let shown = match by_nearness {
            true => shown_nearest(connection, value).await,
            false => shown(connection, value, page).await,
        };
        match shown {
            Ok(found) => {
                if let Some(problem) = self.indexed.borrow().problem(value, &found) {
                    let how = if by_nearness { "near" } else { "where v =" };
                    let text = format!("checker indexed: of {TABLE} {how} {value}, {problem}");
                    self.world.borrow_mut().fail(text);
                }
                Ok(())
            }
            Err(failure) => {
                // A node that has SSTables of others may have to index them first.
                if !failure.to_string().contains("not yet available") {
                    self.world.borrow_mut().classify(&failure, "a reading by an index");
                }
                Err(failure)
            }
        }
    }
}

async fn shown(connection: &mut Connection, value: i32, page: i32) -> Result<Vec<(Key, i32)>, Failure> {
    let text = format!("SELECT p, c, v FROM {TABLE} WHERE v = {value}");
    rows(connection, text, page).await
}

/// The rows that are as near to the vector of a value as those of the value are. They come first.
async fn shown_nearest(connection: &mut Connection, value: i32) -> Result<Vec<(Key, i32)>, Failure> {
    let limit = PARTITIONS * ROWS;
    let text = format!("SELECT p, c, v FROM {TABLE} ORDER BY near ANN OF [{value}, 1] LIMIT {limit}");
    let found = rows(connection, text, 1_000).await?;
    let distance = |row: &(Key, i32)| row.1.abs_diff(value);
    if !found.is_sorted_by_key(distance) {
        return Err(Failure::Protocol(format!(
            "rows in another order than that of their nearness: {found:?}"
        )));
    }
    Ok(found.into_iter().take_while(|row| distance(row) == 0).collect())
}

async fn rows(connection: &mut Connection, text: String, page: i32) -> Result<Vec<(Key, i32)>, Failure> {
    let rows = connection.rows(&Query::text(text), page).await?;
    let number = |cell: &Option<Vec<u8>>| {
        let bytes = cell.as_deref().and_then(|bytes| bytes.try_into().ok());
        bytes.map(i32::from_be_bytes).ok_or_else(|| Failure::Protocol("not an int".to_owned()))
    };
    rows.iter().map(|row| Ok(((number(&row[0])?, number(&row[1])?), number(&row[2])?))).collect()
}

/// Reads each value by its index through every node.
pub(crate) async fn check(director: &mut ClusterDirector) -> Result<(), String> {
    let begun = director.sim.now();
    for nth in director.present() {
        for (level, value, by_nearness) in [Consistency::Quorum, Consistency::All]
            .into_iter()
            .flat_map(|level| (0..VALUES).map(move |value| (level, value)))
            .flat_map(|(level, value)| [false, true].map(|by_nearness| (level, value, by_nearness)))
        {
            let mut connection = director.connect(nth).await?;
            connection.consistency = level;
            let found = loop {
                let shown = match by_nearness {
                    true => shown_nearest(&mut connection, value as i32).await,
                    false => shown(&mut connection, value as i32, 7).await,
                };
                match shown {
                    Ok(found) => break found,
                    Err(failure)
                        if failure.to_string().contains("not yet available")
                            && director.sim.now() - begun < TIME_MAX => {}
                    Err(failure) => return Err(format!("node {nth} at {level:?}: {failure}")),
                }
                director.rt.sleep(Duration::from_secs(1)).await;
            };
            if let Some(problem) = director.indexed.borrow().problem(value as i32, &found) {
                return Err(format!(
                    "of {TABLE} where v = {value} (by nearness: {by_nearness}), read by node {nth} at {level:?}, {problem}"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_missed_and_rows_of_other_values_are_found() {
        let mut indexed = Indexed::default();
        indexed.begin((1, 1), Some(2));
        assert_eq!(indexed.problem(2, &[]), None, "without an answer it may be there or not");
        assert_eq!(indexed.problem(2, &[((1, 1), 2)]), None);
        indexed.acknowledged((1, 1), Some(2));
        assert!(indexed.problem(2, &[]).is_some_and(|problem| problem.contains("is not found")));
        assert!(indexed.problem(2, &[((1, 1), 2), ((1, 1), 2)]).is_some());
        assert!(indexed.problem(1, &[((1, 1), 2)]).is_some());
        indexed.begin((1, 1), None);
        assert_eq!(indexed.problem(2, &[]), None);
        indexed.acknowledged((1, 1), None);
        assert!(indexed.problem(2, &[((1, 1), 2)]).is_some_and(|problem| problem.contains("is found")));
    }
}
