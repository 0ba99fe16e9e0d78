//! TRUNCATE while things happen to a cluster: a client that fills a table and truncates it again and again, and now and then a table of lightweight
//! transactions.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rt::Rt;
use rt_sim::Rng;

use crate::client::{Connection, Failure};
use crate::cluster::clients::lwt;
use crate::cluster::models::lwt::SharedLwt;
use crate::cluster::models::truncating::{SharedCut, TABLE};
use crate::cluster::plan::ClusterPlan;
use crate::plan::{one_in, pick};
use crate::session::connect_any;
use crate::statement::Query;
use crate::world::SharedWorld;

/// Longer than a truncation that was answered with an error may go on: twice its time limit ([`lwt::truncate_text`]).
const GIVEN_UP: Duration = Duration::from_secs(15);
/// One step in so many truncates the table of lightweight transactions.
const LWT_ONE_IN: u64 = 16;

/// A client that fills and truncates the table.
pub(crate) struct Truncater {
    pub(crate) rt: Rt,
    pub(crate) world: SharedWorld,
    pub(crate) cut: SharedCut,
    /// A table of lightweight transactions that it truncates too.
    pub(crate) lwt: Option<SharedLwt>,
    pub(crate) plan: Rc<ClusterPlan>,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) rng: Rng,
}

impl Truncater {
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
            if let Some(lwt) = &self.lwt
                && one_in(&mut self.rng, LWT_ONE_IN)
            {
                if lwt::truncate((&self.rt, &self.world, lwt), connection, GIVEN_UP).await.is_err() {
                    return;
                }
                continue;
            }
            let step = match self.rng.below(12) {
                0 => self.truncate(connection).await,
                1..=3 => self.read(connection).await,
                _ => self.insert(connection).await,
            };
            if step.is_err() {
                return;
            }
        }
    }

    async fn insert(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        let k = {
            let mut cut = self.cut.borrow_mut();
            cut.next += 1;
            cut.next
        };
        let text = format!("INSERT INTO {TABLE} (k) VALUES ({k})");
        connection.consistency = *pick(&mut self.rng, &self.plan.levels.strong_writes);
        match connection.query(&Query::text(&text), None).await {
            Ok(_) => {
                self.cut.borrow_mut().insert(k);
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
        let page = *pick(&mut self.rng, &[3, 100]);
        match shown(connection, page).await {
            Ok(rows) => {
                let problem = self.cut.borrow().problem(&rows, true);
                if let Some(problem) = problem {
                    let text = format!("checker truncating: of {TABLE}, {problem}");
                    self.world.borrow_mut().fail(text);
                }
                Ok(())
            }
            Err(failure) => {
                self.world.borrow_mut().classify(&failure, "a reading of the truncated table");
                Err(failure)
            }
        }
    }

    async fn truncate(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        let answer = connection.query(&Query::text(lwt::truncate_text(TABLE)), None).await;
        match answer {
            Ok(_) => {
                self.world.borrow_mut().stats.truncations += 1;
                self.cut.borrow_mut().truncated();
                Ok(())
            }
            // A node is down, or is convicted: a truncation needs all of them.
            Err(failure @ Failure::Error(_)) => {
                self.cut.borrow_mut().maybe_truncated();
                self.rt.sleep(GIVEN_UP).await;
                Err(failure)
            }
            Err(failure) => {
                let mut cut = self.cut.borrow_mut();
                cut.maybe_truncated();
                cut.is_unanswered = true;
                Err(failure)
            }
        }
    }
}

/// The rows that a scan shows.
pub(crate) async fn shown(connection: &mut Connection, page: i32) -> Result<BTreeSet<i64>, Failure> {
    let rows = connection.rows(&Query::text(format!("SELECT k FROM {TABLE}")), page).await?;
    let key = |row: Vec<Option<Vec<u8>>>| row.into_iter().next().flatten()?.try_into().ok();
    Ok(rows.into_iter().filter_map(key).map(i64::from_be_bytes).collect())
}
