//! A synchronous materialized view while things happen to a cluster: a client that writes the base at QUORUM, and reads the view at QUORUM.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rt::Rt;
use rt_sim::Rng;
use wire::Consistency;

use crate::client::{Connection, Failure};
use crate::cluster::clients::views::shown;
use crate::cluster::models::synchronous::{Mirrored, TABLE, VIEW};
use crate::cluster::plan::ClusterPlan;
use crate::session::connect_any;
use crate::statement::Query;
use crate::world::SharedWorld;

const PARTITIONS: u64 = 6;
const ROWS: u64 = 2;
const VALUES: u64 = 3;

/// A client that writes the base and reads the view.
pub(crate) struct Mirrorer {
    pub(crate) rt: Rt,
    pub(crate) world: SharedWorld,
    pub(crate) plan: Rc<ClusterPlan>,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) rng: Rng,
    pub(crate) rows: Mirrored,
}

impl Mirrorer {
    /// Works until the world is down.
    pub(crate) async fn run(mut self) {
        while !self.world.borrow().down {
            let opened = connect_any(&self.rt, &self.world, &self.servers, &mut self.rng).await;
            if let Some((mut connection, _)) = opened {
                connection.consistency = Consistency::Quorum;
                // Until it fails.
                let _ = self.work(&mut connection).await;
            }
        }
    }

    async fn work(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        for _ in 0..1 + self.rng.below(30) {
            if self.world.borrow().down {
                break;
            }
            self.rt.sleep(Duration::from_micros(self.rng.below(self.plan.pause_micros.max(20_000)))).await;
            self.write(connection).await?;
            let value = self.rng.below(VALUES) as i32;
            let found =
                self.answered(shown(connection, "p, c, v", &format!("{VIEW} WHERE v = {value}")).await)?;
            let keys: Vec<_> = found.iter().filter_map(|row| Some((row[0]?, row[1]?))).collect();
            if let Some(problem) = self.rows.problem(value, &keys) {
                let text = format!("checker synchronous: of {VIEW} where v = {value}, {problem}");
                self.world.borrow_mut().fail(text);
            }
        }
        Ok(())
    }

    async fn write(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        let key = (self.rng.below(PARTITIONS) as i32, self.rng.below(ROWS) as i32);
        let value = (self.rng.below(4) > 0).then(|| self.rng.below(VALUES) as i32);
        let at = self.rows.begin(key, value);
        let (p, c) = key;
        let text = match value {
            Some(v) => format!("INSERT INTO {TABLE} (p, c, v) VALUES ({p}, {c}, {v}) USING TIMESTAMP {at}"),
            None => format!("DELETE FROM {TABLE} USING TIMESTAMP {at} WHERE p = {p} AND c = {c}"),
        };
        self.answered(connection.query(&Query::text(&text), None).await)?;
        self.rows.acknowledged(key, value);
        Ok(())
    }

    fn answered<T>(&self, answer: Result<T, Failure>) -> Result<T, Failure> {
        answer.inspect_err(|failure| {
            self.world.borrow_mut().classify(failure, "of a synchronous view");
        })
    }
}
