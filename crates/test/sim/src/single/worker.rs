//! A client of the workload: connects, draws statements, sends them, and compares the answers, until it is stopped.

use std::net::SocketAddr;
use std::time::Duration;

use rt::Rt;
use rt_sim::Rng;
use wire::client::ResultBody;

use crate::client::{Connection, Failure};
use crate::plan::{one_in, pick};
use crate::session::{ask, connect, speech};
use crate::workload::{self, Prepared};
use crate::world::SharedWorld;

/// The state of a client.
pub(crate) struct Worker {
    pub(crate) rt: Rt,
    pub(crate) world: SharedWorld,
    pub(crate) server: SocketAddr,
    pub(crate) rng: Rng,
}

impl Worker {
    fn is_down(&self) -> bool {
        self.world.borrow().down
    }

    /// Works until the world is down.
    pub(crate) async fn run(mut self) {
        while !self.is_down() {
            let speech = speech(&mut self.rng);
            if let Some(mut connection) = connect(&self.rt, &self.world, self.server, speech).await {
                self.work(&mut connection, speech.prepared).await;
            }
        }
    }

    /// Works on one connection until it breaks, or for a while.
    async fn work(&mut self, connection: &mut Connection, bound: bool) {
        for _ in 0..200 {
            if self.is_down() {
                return;
            }
            if one_in(&mut self.rng, 12) {
                let pause = Duration::from_micros(self.rng.below(20_000));
                self.rt.sleep(pause).await;
            }
            let Some(table) = self.take_table() else {
                self.rt.sleep(Duration::from_millis(1)).await;
                continue;
            };
            let whole = match self.rng.below(100) {
                0..=59 => self.write(connection, table, bound).await,
                60..=97 => self.read(connection, table, bound).await,
                _ => {
                    self.maintain(table).await;
                    true
                }
            };
            self.world.borrow_mut().tables[table].busy -= 1;
            if !whole {
                return;
            }
        }
    }

    /// A table that may be used, marked as busy.
    fn take_table(&mut self) -> Option<usize> {
        let mut world = self.world.borrow_mut();
        if world.hold {
            return None;
        }
        let free: Vec<usize> = (0..world.tables.len())
            .filter(|at| world.tables[*at].exists && !world.tables[*at].frozen)
            .collect();
        if free.is_empty() {
            return None;
        }
        let table = *pick(&mut self.rng, &free);
        world.tables[table].busy += 1;
        Some(table)
    }

    /// False when the connection is of no more use.
    async fn write(&mut self, connection: &mut Connection, table: usize, bound: bool) -> bool {
        let drawn = workload::draw_write(&mut self.world.borrow_mut(), &mut self.rng, table, bound);
        let Some(Prepared { query, writes, .. }) = drawn else {
            self.rt.sleep(Duration::from_millis(1)).await;
            return true;
        };
        let answer = connection.query(&query, None).await;
        let mut world = self.world.borrow_mut();
        match answer {
            Ok(ResultBody::Void) => world.end(table, &writes, None),
            Ok(other) => world.fail(format!("a write was answered with {other:?}: {}", query.shown)),
            Err(failure) => {
                let outcome = world.classify(&failure, &query.shown);
                world.end(table, &writes, Some(outcome));
                return matches!(failure, Failure::Error(_));
            }
        }
        true
    }

    async fn read(&mut self, connection: &mut Connection, table: usize, bound: bool) -> bool {
        let (query, question, page) =
            workload::draw_read(&mut self.rng, &self.world.borrow().tables[table], bound);
        let usable = ask(&self.world, connection, table, &query, &question, page).await;
        usable.is_ok_and(|answered| answered.is_some())
    }

    /// Asks the node to flush or compact.
    async fn maintain(&mut self, table: usize) {
        let path = {
            let mut world = self.world.borrow_mut();
            world.stats.maintenance += 1;
            let table = &world.tables[table];
            let verb = *pick(&mut self.rng, &["keyspace_flush", "keyspace_flush", "keyspace_compaction"]);
            let one = if one_in(&mut self.rng, 2) { format!("?cf={}", table.name) } else { String::new() };
            format!("/storage_service/{verb}/{}{one}", table.keyspace)
        };
        let api = SocketAddr::new(self.server.ip(), 10_000);
        let done = crate::rest::post(&self.rt, api, &path).await;
        if let Err(problem) = done {
            let mut world = self.world.borrow_mut();
            if !world.down && !world.excuses.errors && !world.excuses.connections {
                world.fail(format!("POST {path}: {problem}"));
            }
        }
    }
}
