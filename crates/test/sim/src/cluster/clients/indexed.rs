//! Secondary indexes while things happen to a cluster: a client that writes a table, and reads it by an indexed column, by nearness to a
//! vector, by the words of texts and by their relevance.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rt::Rt;
use rt_sim::Rng;

use crate::client::{Connection, Failure};
use crate::cluster::models::indexed::{Key, SharedIndexed, TABLE};
use crate::cluster::plan::ClusterPlan;
use crate::plan::pick;
use crate::session::connect_any;
use crate::statement::Query;
use crate::world::SharedWorld;

const PARTITIONS: u64 = 6;
const ROWS: u64 = 4;
/// Values of the indexed column.
pub(crate) const VALUES: u64 = 3;

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
                "INSERT INTO {TABLE} (p, c, v, near, words) VALUES ({p}, {c}, {v}, [{v}, 1], 'common value{v} row{p}x{c}') \
                 USING TIMESTAMP {at}"
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
        let way = Way::ALL[self.indexed.borrow().timestamp as usize % Way::ALL.len()];
        match way.shown(connection, value, page).await {
            Ok(found) => {
                if let Some(problem) = self.indexed.borrow().problem(value, &found) {
                    let text = format!("checker indexed: of {TABLE} {way:?} where v = {value}, {problem}");
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

/// How the rows of a value are read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// By the index of the value.
    Everywhere,
    /// By the same index, in one partition after the other.
    EachPartition,
    /// By nearness to the vector of the value.
    Nearness,
    /// By two indexes together, of the value and of words.
    Together,
    /// By the relevance of texts to a query of full text.
    Relevance,
}

impl Way {
    pub(crate) const ALL: [Self; 5] =
        [Self::Everywhere, Self::EachPartition, Self::Nearness, Self::Together, Self::Relevance];

    /// The rows of a value.
    pub(crate) async fn shown(
        self,
        connection: &mut Connection,
        value: i32,
        page: i32,
    ) -> Result<Vec<(Key, i32)>, Failure> {
        match self {
            Self::Everywhere => shown(connection, value, page).await,
            Self::EachPartition => {
                let mut found = Vec::new();
                for p in 0..PARTITIONS {
                    let text = format!("SELECT p, c, v FROM {TABLE} WHERE p = {p} AND v = {value}");
                    found.extend(rows(connection, text, page).await?);
                }
                Ok(found)
            }
            Self::Nearness => shown_nearest(connection, value).await,
            Self::Together => {
                let condition = format!("v = {value} AND words : 'value{value} common'");
                // The index of the value is not of SAI, which alone answers several conditions.
                let text = format!("SELECT p, c, v FROM {TABLE} WHERE {condition} ALLOW FILTERING");
                rows(connection, text, page).await
            }
            Self::Relevance => {
                let others: String = (0..VALUES as i32)
                    .filter(|other| *other != value)
                    .map(|other| format!(" -value{other}"))
                    .collect();
                let (query, limit) = (format!("\"common value{value}\"{others}"), PARTITIONS * ROWS);
                let text =
                    format!("SELECT p, c, v FROM {TABLE} ORDER BY BM25(words, '{query}') LIMIT {limit}");
                rows(connection, text, 1_000).await
            }
        }
    }
}

/// The rows of a value, by its index.
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
