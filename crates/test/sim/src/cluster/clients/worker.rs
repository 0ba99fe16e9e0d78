//! A client of a cluster: connects to one node after another, writes and reads at consistency levels that it draws, and
//! checks the results against the guarantees of the level.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rt::Rt;
use rt_sim::Rng;
use wire::client::ResultBody;

use crate::client::{Connection, Failure};
use crate::cluster::clients::{lwt, serial};
use crate::cluster::models::lwt::LwtTables;
use crate::cluster::models::serial::SharedRegisters;
use crate::cluster::plan::ClusterPlan;
use crate::plan::{one_in, pick};
use crate::session::{ask, connect_any};
use crate::workload::{self, Prepared};
use crate::world::SharedWorld;

/// The state of a client.
pub(crate) struct ClusterWorker {
    pub(crate) rt: Rt,
    pub(crate) world: SharedWorld,
    pub(crate) registers: SharedRegisters,
    pub(crate) lwt: LwtTables,
    pub(crate) plan: Rc<ClusterPlan>,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) rng: Rng,
}

impl ClusterWorker {
    fn is_down(&self) -> bool {
        self.world.borrow().down
    }

    /// Works until the world is down.
    pub(crate) async fn run(mut self) {
        while !self.is_down() {
            let opened = connect_any(&self.rt, &self.world, &self.servers, &mut self.rng).await;
            if let Some((mut connection, server)) = opened {
                let bound = connection.speech().prepared;
                self.work(&mut connection, server, bound).await;
            }
        }
    }

    /// Works on one connection until it breaks, or for a while.
    async fn work(&mut self, connection: &mut Connection, server: SocketAddr, bound: bool) {
        let home = self.plan.home(self.world.borrow().nth_at(server));
        for _ in 0..1 + self.rng.below(60) {
            if self.is_down() {
                return;
            }
            if self.plan.pause_micros > 0 {
                let pause = Duration::from_micros(self.rng.below(self.plan.pause_micros));
                self.rt.sleep(pause).await;
            } else if one_in(&mut self.rng, 8) {
                let pause = Duration::from_micros(self.rng.below(30_000));
                self.rt.sleep(pause).await;
            }
            if let Some(lwt) = self.lwt.pick_changing(&mut self.rng) {
                if lwt::step(&self.world, lwt, &mut self.rng, (connection, home)).await {
                    continue;
                }
                return;
            }
            let tables = self.world.borrow().tables.len() as u64;
            let table = self.rng.below(tables) as usize;
            let whole = match self.rng.below(100) {
                step if step < self.plan.serial_percent => match &self.lwt.guarded {
                    Some(lwt) if one_in(&mut self.rng, 2) => {
                        lwt::step(&self.world, lwt, &mut self.rng, (connection, home)).await
                    }
                    _ => {
                        let one = self.plan.is_one_datacenter();
                        serial::step(&self.world, &self.registers, &mut self.rng, connection, one).await
                    }
                },
                step if step < self.plan.writes_percent => self.write(connection, table, bound).await,
                ..98 => self.read(connection, table, bound).await,
                _ => {
                    self.maintain(server).await;
                    true
                }
            };
            if !whole {
                return;
            }
        }
    }

    /// False when the connection is of no more use.
    async fn write(&mut self, connection: &mut Connection, table: usize, bound: bool) -> bool {
        let drawn = workload::draw_write(&mut self.world.borrow_mut(), &mut self.rng, table, bound);
        let Some(Prepared { query, writes, logged }) = drawn else {
            self.rt.sleep(Duration::from_millis(1)).await;
            return true;
        };
        if logged && writes.len() > 1 {
            let parts = writes.iter().map(|(key, id)| (table, key.clone(), *id)).collect();
            self.world.borrow_mut().batches.begin(parts);
        }
        let levels = &self.plan.levels;
        let strong = levels.weak_writes.is_empty() || !one_in(&mut self.rng, 12);
        let allowed = if strong { &levels.strong_writes } else { &levels.weak_writes };
        connection.consistency = *pick(&mut self.rng, allowed);
        let answer = connection.query(&query, None).await;
        let mut world = self.world.borrow_mut();
        match answer {
            Ok(ResultBody::Void) if strong => world.end(table, &writes, None),
            Ok(ResultBody::Void) => world.promise(table, writes),
            Ok(other) => world.fail(format!("a write was answered with {other:?}: {}", query.shown)),
            Err(failure) => {
                let what = format!("{} at {:?}", query.shown, connection.consistency);
                let outcome = world.classify(&failure, &what);
                world.end(table, &writes, Some(outcome));
                return matches!(failure, Failure::Error(_));
            }
        }
        true
    }

    async fn read(&mut self, connection: &mut Connection, table: usize, bound: bool) -> bool {
        let (query, mut question, page) =
            workload::draw_read(&mut self.rng, &self.world.borrow().tables[table], bound);
        let levels = &self.plan.levels;
        question.weak = one_in(&mut self.rng, 8);
        let allowed = if question.weak { &levels.weak_reads } else { &levels.strong_reads };
        connection.consistency = *pick(&mut self.rng, allowed);
        let epoch = self.world.borrow().seen_epoch;
        let asked = ask(&self.world, connection, table, &query, &question, page).await;
        if let Ok(Some(proofs)) = &asked {
            let mut world = self.world.borrow_mut();
            let all = world.tables[table].shape.columns.len() == question.columns.len();
            if all && !question.weak && levels.reads_overlap && epoch == world.seen_epoch {
                world.note_seen(table, proofs);
            }
        }
        asked.is_ok_and(|answered| answered.is_some())
    }

    /// Asks a node to flush or compact.
    async fn maintain(&mut self, server: SocketAddr) {
        self.world.borrow_mut().stats.maintenance += 1;
        let verb = *pick(&mut self.rng, &["keyspace_flush", "keyspace_flush", "keyspace_compaction"]);
        let path = format!("/storage_service/{verb}/k0");
        let done = crate::rest::post(&self.rt, SocketAddr::new(server.ip(), 10_000), &path).await;
        if let Err(problem) = done {
            let mut world = self.world.borrow_mut();
            if !world.down && !world.excuses.errors {
                world.fail(format!("POST {path}: {problem}"));
            }
        }
    }
}
