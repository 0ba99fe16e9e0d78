//! The phases of a run: process lifetimes of the node, each with a workload and an end, and after each start a reading of everything.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rt::Group;
use wire::client::ResultBody;

use crate::client::{Connection, Failure};
use crate::plan::{self, one_in};
use crate::single::director::Director;
use crate::single::schemer::{self, Schemer};
use crate::single::worker::Worker;
use crate::statement::Query;
use crate::table::Table;
use crate::world::Excuses;
use crate::{session, workload};

/// A node that is not ready by then will not be.
const START_TIME_MAX: Duration = Duration::from_secs(120);

/// How a lifetime ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Kill,
    Power,
    Stop,
}

impl Director {
    /// The whole run.
    pub(crate) async fn run(mut self) {
        for lifetime in 0..self.plan.lifetimes {
            if !self.start().await {
                return;
            }
            if lifetime == 0 {
                self.create().await;
            } else {
                self.verify().await;
            }
            if self.failed() {
                return;
            }
            self.work().await;
            let end = self.draw_end();
            self.end(end).await;
            if self.failed() {
                return;
            }
        }
        self.last_lifetime().await;
    }

    /// The faults have ended: the node starts, has everything, takes writes, flushes and compacts, and still has everything.
    async fn last_lifetime(&mut self) {
        if !self.start().await {
            return;
        }
        self.verify().await;
        if self.failed() {
            return;
        }
        let until = self.sim.now() + Duration::from_millis(30);
        let tasks = self.spawn_workers();
        while self.sim.now() < until && !self.failed() {
            self.rt.sleep(Duration::from_millis(1)).await;
        }
        self.world.borrow_mut().hold = true;
        while self.world.borrow().tables.iter().any(|table| table.busy > 0) && !self.failed() {
            self.rt.sleep(Duration::from_millis(1)).await;
        }
        for keyspace in 0..self.plan.keyspaces {
            let path = format!("/storage_service/keyspace_compaction/k{keyspace}");
            let api = SocketAddr::new(self.server().ip(), 10_000);
            if let Err(problem) = crate::rest::post(&self.rt, api, &path).await {
                return self.world.borrow_mut().fail(format!("POST {path}: {problem}"));
            }
        }
        if !self.failed() {
            self.verify().await;
        }
        self.world.borrow_mut().down = true;
        for task in tasks {
            task.await;
        }
    }

    /// Starts the node, now and then only to end it while it starts. False when it does not come up.
    async fn start(&mut self) -> bool {
        for _ in 0..4 {
            if !one_in(&mut self.rng, 4) || self.world.borrow().stats.starts == 0 {
                break;
            }
            self.world.borrow_mut().stats.starts += 1;
            if self.plan.disk_faults && one_in(&mut self.rng, 2) {
                self.fault_start();
            }
            self.sim.start(self.node);
            let until = Duration::from_micros(self.rng.below(30_000));
            self.rt.sleep(until).await;
            let end = if self.plan.power && one_in(&mut self.rng, 2) { End::Power } else { End::Kill };
            self.end(end).await;
        }
        self.heal_disk();
        self.set_links(None);
        if self.plan.reshards && self.world.borrow().stats.starts > 0 && one_in(&mut self.rng, 2) {
            let shards = 1 + self.rng.below(4) as u16;
            self.world.borrow_mut().shards = shards;
            self.sim.set_shards(self.node, shards);
        }
        let before = self.ready.load(Ordering::Relaxed);
        self.world.borrow_mut().stats.starts += 1;
        self.sim.start(self.node);
        let begun = self.sim.now();
        loop {
            self.rt.sleep(Duration::from_millis(1)).await;
            if self.ready.load(Ordering::Relaxed) > before {
                let mut world = self.world.borrow_mut();
                world.down = false;
                world.hold = false;
                world.excuses = Excuses::default();
                drop(world);
                self.unsynced_since = None;
                self.disk_failed = false;
                return true;
            }
            if !self.sim.is_running(self.node) {
                let exits = self.sim.exits(self.node);
                self.world.borrow_mut().fail(format!("the node does not start: {exits:?}"));
                return false;
            }
            if self.sim.now() - begun > START_TIME_MAX {
                self.world.borrow_mut().fail(format!("the node is not ready after {START_TIME_MAX:?}"));
                return false;
            }
        }
    }

    async fn connect(&mut self) -> Option<Connection> {
        for _ in 0..20 {
            let speech = session::speech(&mut self.rng);
            match Connection::open(&self.rt, self.server(), speech).await {
                Ok(connection) => return Some(connection),
                Err(failure) => {
                    self.world.borrow_mut().classify(&failure, "STARTUP");
                }
            }
            self.rt.sleep(Duration::from_millis(20)).await;
        }
        self.world.borrow_mut().fail("the node takes no connection");
        None
    }

    /// Makes keyspaces and tables.
    async fn create(&mut self) {
        let Some(mut connection) = self.connect().await else { return };
        for keyspace in 0..self.plan.keyspaces {
            let text = format!(
                "CREATE KEYSPACE k{keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
            );
            self.change_schema(&mut connection, &text).await;
        }
        for number in 0..self.plan.tables {
            let counter = number > 0 && one_in(&mut self.rng, 3);
            let (keyspace, options) =
                (format!("k{}", self.rng.below(self.plan.keyspaces)), plan::options(&mut self.rng));
            let shape = plan::shape(&mut self.rng, counter, &mut self.world.borrow_mut().next_column);
            let name = format!("t{number}");
            let table = Table::new(keyspace, name, shape, options);
            let text = table.create_text();
            self.world.borrow_mut().tables.push(table);
            self.change_schema(&mut connection, &text).await;
        }
    }

    /// A statement that changes the schema; whether it was acknowledged.
    async fn change_schema(&mut self, connection: &mut Connection, text: &str) -> bool {
        let answer = connection.query(&Query::text(text), None).await;
        let mut world = self.world.borrow_mut();
        match answer {
            Ok(ResultBody::SchemaChange(_)) => {
                world.stats.schema_changes += 1;
                return true;
            }
            Ok(other) => world.fail(format!("{text} was answered with {other:?}")),
            Err(failure) => {
                world.classify(&failure, text);
            }
        }
        false
    }

    /// Has clients work for a while.
    async fn work(&mut self) {
        let most = if one_in(&mut self.rng, 4) { 3_000 } else { self.plan.lifetime_millis * 1_000 };
        let until = self.sim.now() + Duration::from_micros(1 + self.rng.below(most));
        let mut tasks = self.spawn_workers();
        if self.plan.schema_changes {
            let schemer = Schemer {
                rt: self.rt.clone(),
                world: self.world.clone(),
                server: self.server(),
                rng: self.sim.rng(1_000 + self.rng.below(1 << 40)),
            };
            tasks.push(self.rt.spawn(Group::Statement, schemer.run()));
        }
        self.draw_links();
        self.disturb(until).await;
        // The process ends while the clients work; they end when they notice.
        self.world.borrow_mut().down = true;
        self.tasks_of_lifetime = tasks;
    }

    fn spawn_workers(&mut self) -> Vec<rt::Task<()>> {
        let mut tasks = Vec::new();
        for _ in 0..self.plan.workers {
            let stream = 1_000 + self.rng.below(1 << 40);
            let worker = Worker {
                rt: self.rt.clone(),
                world: self.world.clone(),
                server: self.server(),
                rng: self.sim.rng(stream),
            };
            tasks.push(self.rt.spawn(Group::Statement, worker.run()));
        }
        tasks
    }

    fn draw_end(&mut self) -> End {
        match self.rng.below(8) {
            0 => End::Stop,
            1..=4 if self.plan.power => End::Power,
            _ => End::Kill,
        }
    }

    /// Ends the node, and waits for the clients.
    async fn end(&mut self, end: End) {
        let now = self.world.borrow().now();
        let ended = *self.unsynced_since.get_or_insert(now);
        match end {
            End::Kill => {
                self.world.borrow_mut().stats.kills += 1;
                self.sim.kill(self.node);
            }
            End::Power => {
                self.world.borrow_mut().stats.power_losses += 1;
                self.sim.crash(self.node);
                if let Some(window) = self.loss_window() {
                    self.world.borrow_mut().forget_since(ended.saturating_sub(window.as_nanos() as u64));
                }
            }
            End::Stop => self.sim.request_stop(self.node),
        }
        for task in std::mem::take(&mut self.tasks_of_lifetime) {
            task.await;
        }
        let begun = self.sim.now();
        while self.sim.is_running(self.node) {
            self.rt.sleep(Duration::from_millis(1)).await;
            if self.sim.now() - begun > START_TIME_MAX {
                return self.world.borrow_mut().fail("the node does not stop");
            }
        }
        let exits = self.sim.exits(self.node);
        if end == End::Stop && exits.iter().any(|exit| exit != "Ok(())") {
            self.world.borrow_mut().fail(format!("the node stopped with {exits:?}"));
        }
    }

    /// Reads everything while nobody writes.
    async fn verify(&mut self) {
        let Some(mut connection) = self.connect().await else { return };
        if let Err(problem) = schemer::resolve(&self.world, &mut connection).await {
            return self.world.borrow_mut().fail(problem);
        }
        let count = self.world.borrow().tables.len();
        for table in 0..count {
            if !self.world.borrow().tables[table].exists {
                continue;
            }
            let keys: Vec<_> = self.world.borrow().tables[table].partitions.keys().cloned().collect();
            for key in keys {
                let (query, question, page) = {
                    let world = self.world.borrow();
                    let table = &world.tables[table];
                    let reversed = !table.shape.clustering.is_empty() && one_in(&mut self.rng, 2);
                    let (query, question) =
                        workload::whole_partition(table, &key, reversed, one_in(&mut self.rng, 2));
                    (query, question, *plan::pick(&mut self.rng, &[1, 3, 100]))
                };
                let asked = session::ask(&self.world, &mut connection, table, &query, &question, page).await;
                if self.failed() {
                    return;
                }
                match asked {
                    Ok(Some(proofs)) => {
                        proofs
                            .iter()
                            .for_each(|(key, proof)| self.world.borrow_mut().settle(table, key, proof));
                    }
                    Ok(None) | Err(Failure::Error(_)) => {
                        return self.world.borrow_mut().fail("nothing can be read");
                    }
                    Err(failure) => return self.world.borrow_mut().fail(failure.to_string()),
                }
            }
            let (query, question) = workload::whole_table(&self.world.borrow().tables[table], false);
            let page = *plan::pick(&mut self.rng, &[1, 2, 5, 100]);
            let asked = session::ask(&self.world, &mut connection, table, &query, &question, page).await;
            if self.failed() {
                return;
            }
            if !matches!(asked, Ok(Some(_))) {
                return self.world.borrow_mut().fail("a table cannot be read");
            }
        }
    }
}
