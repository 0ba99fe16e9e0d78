//! The phases of a cluster's run: it comes up, and then in turns clients work under faults, and in a quiescent phase
//! everything is compared.

use std::net::SocketAddr;
use std::time::Duration;

use rt::{Group, Task};
use wire::client::ResultBody;

use crate::client::Connection;
use crate::cluster::checks::{self, CHECKS, available, items, kept, replicating};
use crate::cluster::clients::bounded::Watcher;
use crate::cluster::clients::ddl::Changer;
use crate::cluster::clients::indexed::Indexer;
use crate::cluster::clients::items::{self as item_clients, ItemClient};
use crate::cluster::clients::replicating::Replicator;
use crate::cluster::clients::stamps::Stamper;
use crate::cluster::clients::steady::{self, Prober};
use crate::cluster::clients::synchronous::Mirrorer;
use crate::cluster::clients::truncating::Truncater;
use crate::cluster::clients::views::{BaseWriter, CLIENTS};
use crate::cluster::clients::worker::ClusterWorker;
use crate::cluster::director::{ClusterDirector, SETTLE_TIME};
use crate::cluster::health::{Health, Machine};
use crate::cluster::models::synchronous::{self, Mirrored};
use crate::cluster::models::{indexed, serial, stamps, truncating, views};
use crate::cluster::node::Member;
use crate::cluster::plan::SEEDS;
use crate::plan::{one_in, shape};
use crate::statement::Query;
use crate::table::Table;
use crate::world::Excuses;

/// Clients change the schema up to so long after each other, or more slowly when all are slow.
const CHANGE_PAUSE_MICROS: u64 = 150_000;
/// Draws of the client of timestamps, above those of all others.
const STAMPER_STREAM: u64 = 1 << 50;
/// Draws of the client of indexes.
const INDEXER_STREAM: u64 = 1 << 51;
/// The same for the clients of a table with views.
const BASE_WRITER_STREAM: u64 = 1 << 52;
/// The same for the clients of the DynamoDB API.
const ITEM_CLIENT_STREAM: u64 = 1 << 53;
/// The same for the client of a synchronous view.
const MIRRORER_STREAM: u64 = 1 << 54;

impl ClusterDirector {
    /// The whole run.
    pub(crate) async fn run(mut self) {
        for (nth, drift) in self.plan.drifts.clone().into_iter().enumerate() {
            self.sim.set_clock_drift(self.nodes[nth].id, drift);
        }
        for nth in 0..self.nodes.len() {
            self.set_links(nth, None);
        }
        for nth in 0..self.plan.founders {
            self.start(nth);
            // The first one founds the cluster when every other seed has answered that it has none.
            if one_in(&mut self.rng, 2) && nth + 1 >= SEEDS.min(self.plan.founders) {
                self.wait_ready(nth).await;
            }
        }
        for nth in 0..self.plan.founders {
            self.wait_ready(nth).await;
        }
        self.reunite().await;
        self.create().await;
        for round in 0..self.plan.rounds {
            if self.failed() {
                return;
            }
            self.reuse_machines().await;
            if round + 1 == self.plan.rounds && !self.joins_in_scenarios() {
                // All that are left, at once.
                while self.next_joiner().is_some() {
                    self.join_one();
                }
            }
            self.work().await;
            self.quiesce().await;
        }
        self.world.borrow_mut().down = true;
    }

    /// Makes a keyspace and tables.
    async fn create(&mut self) {
        if self.failed() {
            return;
        }
        let mut connection = match self.connect(0).await {
            Ok(connection) => connection,
            Err(problem) => return self.world.borrow_mut().fail(problem),
        };
        let class = self.copies.replication();
        self.change_schema(&mut connection, &format!("CREATE KEYSPACE k0 WITH replication = {{{class}}}"))
            .await;
        for number in 0..self.plan.machine.tables {
            let counter = number > 0 && (one_in(&mut self.rng, 2) || self.plan.counters);
            let options = self.plan.grace.options(&mut self.rng);
            let mut shape = shape(&mut self.rng, counter, &mut self.world.borrow_mut().next_column);
            if counter && self.plan.counters {
                shape.columns.truncate(1);
            }
            let mut table = Table::new("k0".to_owned(), format!("t{number}"), shape, options);
            table.scale = self.plan.scale;
            let text = table.create_text();
            self.world.borrow_mut().tables.push(table);
            self.change_schema(&mut connection, &text).await;
        }
        if self.plan.serial_percent > 0 {
            self.change_schema(&mut connection, &serial::create_text()).await;
        }
        for text in self.lwt.create_texts("k0") {
            self.change_schema(&mut connection, &text).await;
        }
        if self.plan.operations.stamps {
            self.change_schema(&mut connection, &stamps::create_text()).await;
        }
        if self.plan.truncates {
            self.change_schema(&mut connection, &truncating::create_text()).await;
            for text in indexed::create_texts() {
                self.change_schema(&mut connection, &text).await;
            }
        }
        if self.plan.views {
            let texts = views::create_texts(self.plan.captured).into_iter();
            for text in texts.chain(synchronous::create_texts()) {
                self.change_schema(&mut connection, &text).await;
            }
        }
        if self.plan.probes {
            self.change_schema(&mut connection, &available::create_text()).await;
            self.change_schema(&mut connection, &steady::create_text()).await;
        }
        for prepared in
            [kept::prepare(self).await, replicating::prepare(self).await, items::prepare(self).await]
        {
            if let Err(problem) = prepared {
                self.world.borrow_mut().fail(problem);
            }
        }
        if let Some(window) = self.plan.loss_window() {
            self.rt.sleep(window).await;
        }
    }

    async fn change_schema(&mut self, connection: &mut Connection, text: &str) {
        let answer = connection.query(&Query::text(text), None).await;
        let mut world = self.world.borrow_mut();
        match answer {
            Ok(ResultBody::SchemaChange(_)) => world.stats.schema_changes += 1,
            Ok(other) => world.fail(format!("{text} was answered with {other:?}")),
            Err(failure) => world.fail(format!("{text}: {failure}")),
        }
    }

    /// Has clients work for a while, under all faults.
    async fn work(&mut self) {
        self.world.borrow_mut().down = false;
        (self.changed, self.hints_lost) = (false, false);
        self.began = self.sim.now();
        let length = self.plan.machine.lifetime_millis * 1_000;
        let until = self.sim.now() + Duration::from_micros(length / 4 + self.rng.below(length));
        let servers: Vec<SocketAddr> = self
            .present()
            .into_iter()
            .filter(|nth| self.is_ready(*nth))
            .chain(self.later_servers())
            .map(|nth| self.server(nth))
            .collect();
        let mut workers: Vec<_> = (0..self.plan.machine.workers)
            .map(|_| {
                let worker = ClusterWorker {
                    rt: self.rt.clone(),
                    world: self.world.clone(),
                    registers: self.registers.clone(),
                    lwt: self.lwt.clone(),
                    plan: self.plan.clone(),
                    servers: servers.clone(),
                    rng: self.sim.rng(1_000 + self.rng.below(1 << 40)),
                };
                self.rt.spawn(Group::Statement, worker.run())
            })
            .collect();
        for number in 0..self.plan.changers {
            let changer = Changer {
                rt: self.rt.clone(),
                world: self.world.clone(),
                schema: self.schema.clone(),
                servers: servers.clone(),
                rng: self.sim.rng(1_000 + self.rng.below(1 << 40)),
                pause_micros: CHANGE_PAUSE_MICROS.max(self.plan.pause_micros * 4),
                number,
            };
            workers.push(self.rt.spawn(Group::Statement, changer.run()));
        }
        workers.extend(self.begin_others(&servers));
        self.sim.set_buggify(self.plan.buggify);
        // Shorter time limits than usual may be too short now and then.
        self.world.borrow_mut().excuses.errors |= self.plan.buggify > 0 || self.plan.limits.is_some();
        self.inject_faults(until).await;
        self.sim.set_buggify(0);
        self.world.borrow_mut().down = true;
        for worker in workers {
            worker.await;
        }
        if let Err(problem) = self.after_work().await {
            self.world.borrow_mut().fail(problem);
        }
    }

    /// Clients with tables and keyspaces of their own, and the watcher of the nodes' limits.
    fn begin_others(&mut self, servers: &[SocketAddr]) -> Vec<Task<()>> {
        let mut tasks = Vec::new();
        if self.plan.watched {
            let watcher = Watcher {
                rt: self.rt.clone(),
                world: self.world.clone(),
                servers: servers.to_vec(),
                period: Duration::from_millis(self.plan.machine.lifetime_millis / 4),
            };
            tasks.push(self.rt.spawn(Group::Statement, watcher.run()));
        }
        if self.plan.probes {
            let prober = Prober {
                rt: self.rt.clone(),
                world: self.world.clone(),
                health: self.health(),
                plan: self.plan.clone(),
                copies: self.copies.total(),
                rng: self.sim.rng(1_000 + self.details.below(1 << 40)),
            };
            tasks.push(self.rt.spawn(Group::Statement, prober.run()));
        }
        if self.plan.operations.stamps {
            let stamper = Stamper {
                rt: self.rt.clone(),
                world: self.world.clone(),
                stamps: self.stamps.clone(),
                plan: self.plan.clone(),
                servers: servers.to_vec(),
                rng: self.sim.rng(STAMPER_STREAM + self.sim.now().as_nanos() as u64),
            };
            tasks.push(self.rt.spawn(Group::Statement, stamper.run()));
        }
        if self.plan.truncates {
            let truncater = Truncater {
                rt: self.rt.clone(),
                world: self.world.clone(),
                cut: self.cut.clone(),
                lwt: self.lwt.cut.clone(),
                plan: self.plan.clone(),
                servers: servers.to_vec(),
                rng: self.sim.rng(1_000 + self.details.below(1 << 40)),
            };
            tasks.push(self.rt.spawn(Group::Statement, truncater.run()));
            let indexer = Indexer {
                rt: self.rt.clone(),
                world: self.world.clone(),
                indexed: self.indexed.clone(),
                plan: self.plan.clone(),
                servers: servers.to_vec(),
                rng: self.sim.rng(INDEXER_STREAM + self.sim.now().as_nanos() as u64),
            };
            tasks.push(self.rt.spawn(Group::Statement, indexer.run()));
        }
        tasks.extend(self.begin_base_writers(servers).chain(self.begin_mirrorer(servers)));
        tasks.extend(self.begin_item_clients(servers));
        if !self.plan.replications.is_empty() {
            let replicator = Replicator {
                rt: self.rt.clone(),
                world: self.world.clone(),
                copied: self.copied.clone(),
                replications: self.plan.replications.clone(),
                pause_micros: self.plan.pause_micros,
                servers: servers.to_vec(),
                rng: self.sim.rng(1_000 + self.details.below(1 << 40)),
            };
            tasks.push(self.rt.spawn(Group::Statement, replicator.run()));
        }
        tasks
    }

    /// The clients of a table with materialized views, if there is one.
    fn begin_base_writers(&self, servers: &[SocketAddr]) -> impl Iterator<Item = Task<()>> {
        let now = self.sim.now().as_nanos() as u64;
        let clients = if self.plan.views { CLIENTS } else { 0 };
        (0..clients).map(move |number| {
            let writer = BaseWriter {
                rt: self.rt.clone(),
                world: self.world.clone(),
                plan: self.plan.clone(),
                servers: servers.to_vec(),
                rng: self.sim.rng(BASE_WRITER_STREAM + number + now),
            };
            self.rt.spawn(Group::Statement, writer.run())
        })
    }

    /// The client of a synchronous view, if there is one.
    fn begin_mirrorer(&self, servers: &[SocketAddr]) -> Option<Task<()>> {
        let mirrorer = Mirrorer {
            rt: self.rt.clone(),
            world: self.world.clone(),
            plan: self.plan.clone(),
            servers: servers.to_vec(),
            rng: self.sim.rng(MIRRORER_STREAM + self.sim.now().as_nanos() as u64),
            rows: Mirrored::default(),
        };
        self.plan.views.then(|| self.rt.spawn(Group::Statement, mirrorer.run()))
    }

    /// The clients of the DynamoDB API, if there are any.
    fn begin_item_clients(&self, servers: &[SocketAddr]) -> impl Iterator<Item = Task<()>> {
        let now = self.sim.now().as_nanos() as u64;
        let clients = if self.plan.operations.items { item_clients::CLIENTS } else { 0 };
        (0..clients).map(move |number| {
            let client = ItemClient {
                rt: self.rt.clone(),
                world: self.world.clone(),
                items: self.items.clone(),
                plan: self.plan.clone(),
                servers: servers.to_vec(),
                rng: self.sim.rng(ITEM_CLIENT_STREAM + number + now),
                home: 0,
            };
            self.rt.spawn(Group::Statement, client.run())
        })
    }

    /// The record of healthy machines, from now on, when all are.
    fn health(&self) -> Health {
        let machine = |node: &Member| Machine {
            id: node.id,
            place: node.place.clone(),
            served: node.served.clone(),
            disk: self.plan.machine.disk(),
        };
        Health::new(&self.sim, self.nodes.iter().map(machine).collect())
    }

    /// Ends all faults, waits until the cluster has recovered, and compares everything.
    async fn quiesce(&mut self) {
        if self.failed() {
            return;
        }
        self.sim.heal_all();
        for nth in self.standing() {
            self.relieve(nth);
        }
        for nth in self.present() {
            self.wait_ready(nth).await;
        }
        self.settle_ring().await;
        self.reunite().await;
        self.rt.sleep(SETTLE_TIME).await;
        {
            let mut world = self.world.borrow_mut();
            world.excuses = Excuses::default();
            world.forget_seen();
        }
        for check in CHECKS {
            if self.failed() {
                return;
            }
            self.world.borrow_mut().checking = Some(check);
            let found = checks::check(self, check).await;
            if let Err(problem) = found {
                self.world.borrow_mut().fail(problem);
            }
        }
        self.world.borrow_mut().checking = None;
        self.world.borrow_mut().raise_floor();
    }
}
