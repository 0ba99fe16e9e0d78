//! Materialized views while things happen to a cluster: clients that write the base, and the readings of base and views.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rt::Rt;
use rt_sim::Rng;

use crate::client::{Connection, Failure};
use crate::cluster::models::views::{BaseRow, TABLE};
use crate::cluster::plan::ClusterPlan;
use crate::plan::pick;
use crate::session::connect_any;
use crate::statement::Query;
use crate::world::SharedWorld;

const PARTITIONS: u64 = 8;
const ROWS: u64 = 3;
const VALUES: u64 = 4;
/// Clients of the table.
pub(crate) const CLIENTS: u64 = 3;

/// A client that writes the base.
pub(crate) struct BaseWriter {
    pub(crate) rt: Rt,
    pub(crate) world: SharedWorld,
    pub(crate) plan: Rc<ClusterPlan>,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) rng: Rng,
}

impl BaseWriter {
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
            let text = self.statement();
            connection.consistency = *pick(&mut self.rng, &self.plan.levels.strong_writes);
            if let Err(failure) = connection.query(&Query::text(&text), None).await {
                self.world.borrow_mut().classify(&failure, &text);
                return;
            }
        }
    }

    fn statement(&mut self) -> String {
        // Of captured changes there are more batches, for one that fails must not be in the log.
        let batches = if self.plan.captured { 4 } else { 1 };
        match self.rng.below(10) {
            drawn if drawn < batches => {
                format!("BEGIN BATCH {}; {}; {} APPLY BATCH", self.change(), self.change(), self.change())
            }
            _ => self.change(),
        }
    }

    fn change(&mut self) -> String {
        let mut below = |limit| self.rng.below(limit);
        let (p, c, v, w) = (below(PARTITIONS), below(ROWS), below(VALUES), below(VALUES));
        match below(10) {
            0..=3 => format!("INSERT INTO {TABLE} (p, c, v, w) VALUES ({p}, {c}, {v}, {w})"),
            4 | 5 => format!("UPDATE {TABLE} SET v = {v} WHERE p = {p} AND c = {c}"),
            6 => format!("UPDATE {TABLE} SET w = {w} WHERE p = {p} AND c = {c}"),
            7 => format!("DELETE v FROM {TABLE} WHERE p = {p} AND c = {c}"),
            8 => format!("DELETE FROM {TABLE} WHERE p = {p} AND c = {c}"),
            _ => format!("DELETE FROM {TABLE} WHERE p = {p}"),
        }
    }
}

/// The rows that a table or view shows.
pub(crate) async fn shown(
    connection: &mut Connection,
    columns: &str,
    table: &str,
) -> Result<Vec<BaseRow>, Failure> {
    let text = format!("SELECT {columns} FROM {table}");
    let rows = connection.rows(&Query::text(text), 7).await?;
    let number = |cell: &Option<Vec<u8>>| match cell {
        None => Ok(None),
        Some(bytes) => match bytes.as_slice().try_into() {
            Ok(bytes) => Ok(Some(i32::from_be_bytes(bytes))),
            Err(_) => Err(Failure::Protocol("not an int".to_owned())),
        },
    };
    rows.iter().map(|row| row.iter().map(number).collect()).collect()
}
