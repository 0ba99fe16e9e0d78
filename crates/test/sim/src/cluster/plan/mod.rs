//! The choices of a seed that hold for a whole run of a cluster: its machines, their racks, their faults.

pub(crate) mod fault;
pub(crate) mod focus;
pub(crate) mod focused;
pub(crate) mod grace;
pub(crate) mod limits;
pub(crate) mod replication;
pub(crate) mod ring_event;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use rt_sim::{LinkConfig, NameDurability, Rng};
use server::{Config, Size};

use crate::api::API_PORT;
use crate::cluster::plan::fault::Fault;
use crate::cluster::plan::focus::Focus;
use crate::cluster::plan::grace::Grace;
use crate::cluster::plan::limits::{draw_client_limits, draw_limits};
use crate::cluster::plan::replication::{Copies, Levels};
use crate::cluster::plan::ring_event::RingEvent;
use crate::plan::{Plan, Sync, one_in, pick};
use crate::table::Scale;

/// Nodes without which a cluster is not begun; those above may join later.
const FOUNDERS_MIN: usize = 3;
/// The first nodes, which the others know: some of them may be gone.
pub(crate) const SEEDS: usize = 3;

/// Lifetimes, milliseconds; the last are long enough that nodes convict each other.
const LIVES: [u64; 6] = [200, 1_000, 4_000, 20_000, 60_000, 60_000];
/// The same with topology changes: they take their time, and are to happen while clients work.
const LIVES_OF_CHANGE: [u64; 3] = [20_000, 20_000, 60_000];
const LIFETIME_OF_LONG_FAULTS: u64 = 400_000;
/// Faults of up to this end before a node that gains a range gives up waiting for the replicas of its datacenter.
const NEIGHBOUR_WAIT_MILLIS: u64 = 30_000;
/// Of the seeds without a focus whose nodes could serve the DynamoDB API one in so many has clients of it.
const ITEMS_ONE_IN: u64 = 4;
/// In lifetimes from this on clients take their time, about so many requests each.
const LONG_LIFETIME_MILLIS: u64 = 20_000;
const LONG_LIFETIME_REQUESTS: u64 = 150;

/// The scenario of a seed.
#[derive(Clone, Debug)]
pub(crate) struct ClusterPlan {
    /// The machines and their settings, as in a single node's plan.
    pub(crate) machine: Plan,
    /// Shards of each node.
    pub(crate) shards: Vec<u16>,
    /// The datacenter of each node.
    pub(crate) datacenters: Vec<String>,
    /// The rack of each node.
    pub(crate) racks: Vec<String>,
    /// Nodes that are there from the beginning; the others join while clients work.
    pub(crate) founders: usize,
    /// The replication of the clients' keyspace.
    pub(crate) copies: Copies,
    pub(crate) levels: Levels,
    /// Up to how long a client waits between two requests, microseconds.
    pub(crate) pause_micros: u64,
    /// Of a hundred steps of a client, so many are lightweight transactions.
    pub(crate) serial_percent: u64,
    /// The nodes' limits are watched while clients work.
    pub(crate) watched: bool,
    /// Each quiescent phase ends with one node down, while QUORUM must succeed through the others.
    pub(crate) probes: bool,
    /// Draws that were added later.
    pub(crate) operations: Operations,
    /// A client truncates a table of its own.
    pub(crate) truncates: bool,
    /// Clients write a table with materialized views.
    pub(crate) views: bool,
    /// The changes of that table are captured.
    pub(crate) captured: bool,
    /// Replication factors between which a client alters a keyspace of its own; none for no such client.
    pub(crate) replications: Vec<usize>,
    /// And so many of the others writes; two are for flushes and compactions, and the rest reads.
    pub(crate) writes_percent: u64,
    /// Clients that change the schema.
    pub(crate) changers: usize,
    /// The focus of the scenario, if there is one.
    pub(crate) focus: Option<Focus>,
    /// How much the clients' tables hold.
    pub(crate) scale: Scale,
    /// All tables but the first are of counters, of one column.
    pub(crate) counters: bool,
    /// Hinted handoff is enabled.
    pub(crate) hints: bool,
    /// While clients work, packets between any two nodes are lost.
    pub(crate) is_lossy: bool,
    /// The links between nodes, if they are not as good as usual.
    pub(crate) links: Option<LinkConfig>,
    /// One way between two datacenters.
    pub(crate) distance: Option<Duration>,
    /// Times of work under faults, each followed by a quiescent phase in which everything is compared.
    pub(crate) rounds: u64,
    /// The kinds of faults.
    pub(crate) faults: Vec<Fault>,
    /// The topology changes.
    pub(crate) ring: Vec<RingEvent>,
    /// Up to how long nothing new happens.
    pub(crate) fault_millis: u64,
    /// Faulty nodes at once, at most.
    pub(crate) faulty_max: usize,
    /// When clients have ended, an operator's action needs a repair: the removal of a dead node is forced, or damaged files are removed.
    pub(crate) forces: bool,
    /// Draws time limits and sizes that an operator may set; none for the usual ones.
    pub(crate) limits: Option<u64>,
    /// Tokens of each node.
    pub(crate) tokens: u16,
    /// When deletions may be forgotten.
    pub(crate) grace: Grace,
    /// How often nodes are delayed at points of their own while clients work, per million.
    pub(crate) buggify: u32,
    /// Clocks jump by hours, not only by seconds.
    pub(crate) hours: bool,
    /// Drift of each node's clocks, parts per million.
    pub(crate) drifts: Vec<i32>,
}

/// Operations that came later than the others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Operations {
    /// Half of the lightweight transactions are on several rows and columns.
    pub(crate) rows: bool,
    /// There is such a table that is truncated, and one in the keyspace whose replication factor changes.
    pub(crate) rows_truncated: bool,
    pub(crate) rows_copied: bool,
    /// Rounds of the table that stays as it is are those of one datacenter, and each partition belongs to one.
    pub(crate) local_rounds: bool,
    /// A client writes with the timestamps of its coordinators.
    pub(crate) stamps: bool,
    /// Clients of the DynamoDB API write and read items.
    pub(crate) items: bool,
}

/// Draws the topology changes of a seed.
fn draw_ring(rng: &mut Rng) -> Vec<RingEvent> {
    if one_in(rng, 3) {
        return Vec::new();
    }
    RingEvent::ALL.into_iter().filter(|_| one_in(rng, 2)).collect()
}

fn draw_faults(rng: &mut Rng) -> Vec<Fault> {
    let mut faults: Vec<Fault> = Fault::ALL.into_iter().filter(|_| one_in(rng, 3)).collect();
    match rng.below(8) {
        0 => faults.clear(),
        // Only then hints alone may bring a node's missed writes.
        1..=3 => {
            faults.retain(|fault| !fault.loses_memory());
            faults.push(*pick(rng, &[Fault::Isolate, Fault::Pause]));
        }
        _ => {}
    }
    faults
}

/// Draws the number of founding nodes; a replacement needs a node besides them.
fn draw_founders(rng: &mut Rng, nodes: usize, ring: &[RingEvent]) -> usize {
    match nodes {
        0..=FOUNDERS_MIN => nodes,
        _ if one_in(rng, 3) && !ring.contains(&RingEvent::Replace) => nodes,
        _ => FOUNDERS_MIN.max(nodes - 1 - rng.below(2) as usize),
    }
}

/// Whether one replica may be the only one with a write, lose its hints, and give its range away or end for good.
fn may_lose_weak_writes(faults: &[Fault], ring: &[RingEvent], moves: bool) -> bool {
    let loses_memory = faults.iter().any(|fault| fault.loses_memory());
    moves && loses_memory || ring.iter().any(|event| event.loses_node())
}

/// Up to how long a client waits between two requests in a lifetime of so many milliseconds, microseconds.
fn pause_in(lifetime_millis: u64) -> u64 {
    if lifetime_millis < LONG_LIFETIME_MILLIS { 0 } else { lifetime_millis * 1_000 / LONG_LIFETIME_REQUESTS }
}

impl ClusterPlan {
    /// The plan of a seed for so many nodes.
    pub(crate) fn draw(rng: &mut Rng, nodes: usize) -> Self {
        let mut machine = Plan::draw(rng);
        machine.tables = 1 + rng.below(3);
        machine.workers = 3 + rng.below(4);
        machine.lifetime_millis = *pick(rng, &LIVES);
        let faults = draw_faults(rng);
        if faults.contains(&Fault::Power) || faults.contains(&Fault::DiskErrors) {
            // Acknowledged writes must not depend on a node's unsynced ones.
            machine.sync = Sync::Batch;
            machine.names = NameDurability::SyncDir;
        }
        let mut ring = draw_ring(rng);
        let founders = draw_founders(rng, nodes, &ring);
        let centers = if nodes < FOUNDERS_MIN { 1 } else { *pick(rng, &[1, 1, 1, 2, 2, 3]) };
        if founders < nodes || ring.iter().any(|event| event.moves_data()) {
            machine.lifetime_millis = *pick(rng, &LIVES_OF_CHANGE);
        }
        let datacenters: Vec<String> = (0..nodes).map(|nth| format!("dc{}", 1 + nth % centers)).collect();
        let shrinks = ring.iter().any(|event| matches!(event, RingEvent::Leave | RingEvent::Remove));
        let copies = Copies::draw(rng, &datacenters[..founders], usize::from(shrinks));
        let by_datacenter = matches!(copies, Copies::ByDatacenter(_));
        ring.retain(|event: &RingEvent| !event.loses_node() || copies.total() > 1);
        let distance = *pick(rng, &[None, Some(Duration::from_millis(5)), Some(Duration::from_millis(40))]);
        let mut levels = Levels::draw(rng, centers, by_datacenter);
        let moves = founders < nodes || ring.iter().any(|event| event.moves_data());
        if may_lose_weak_writes(&faults, &ring, moves) {
            levels.weak_writes.clear();
        }
        let grace = Grace::draw(rng, &faults);
        Self {
            shards: (0..nodes).map(|_| *pick(rng, &[1, 1, 2, 3, 4])).collect(),
            racks: (0..nodes).map(|_| format!("rack{}", rng.below(3))).collect(),
            datacenters,
            founders,
            copies,
            ring,
            levels,
            pause_micros: pause_in(machine.lifetime_millis),
            serial_percent: if one_in(rng, 2) { 12 } else { 0 },
            writes_percent: 55,
            operations: Operations::default(),
            watched: false,
            probes: false,
            truncates: false,
            views: false,
            captured: false,
            replications: Vec::new(),
            focus: None,
            scale: Scale::default(),
            counters: false,
            hints: true,
            is_lossy: false,
            links: None,
            changers: *pick(rng, &[0, 0, 1, 2, 3]),
            distance: distance.filter(|_| centers > 1),
            rounds: 1 + rng.below(3),
            faults,
            fault_millis: machine.lifetime_millis * 3 / 10,
            faulty_max: if one_in(rng, 4) { nodes } else { nodes.saturating_sub(1) / 2 },
            forces: false,
            limits: None,
            tokens: *pick(rng, &[1, 2, 2, 4, 4, 16]),
            grace,
            buggify: 0,
            hours: false,
            drifts: (0..nodes).map(|_| *pick(rng, &[0, 0, 50, -50, 300])).collect(),
            machine,
        }
    }

    /// Later draws, by random numbers of their own.
    pub(crate) fn draw_details(&mut self, rng: &mut Rng) {
        self.truncates = one_in(rng, 3);
        let stays = self.ring.iter().all(|event| !event.moves_data());
        // With a replica in the wrong place only, until a repair, no node may give its ranges away or be lost.
        let least = if self.founders == self.shards.len() { 1 } else { 2 };
        if stays && one_in(rng, 3) {
            self.replications = (least..=3.min(self.founders)).collect();
        }
        self.watched = self.truncates || !self.replications.is_empty();
        self.probes = one_in(rng, 3);
        if self.faults.contains(&Fault::Power) && one_in(rng, 2) {
            self.faults.push(Fault::Blackout);
        }
        self.hours = self.faults.contains(&Fault::ClockJump) && one_in(rng, 2);
        if one_in(rng, 16) {
            // Faults that last longer than any timeout below days.
            self.machine.lifetime_millis = LIFETIME_OF_LONG_FAULTS;
            self.pause_micros = pause_in(LIFETIME_OF_LONG_FAULTS);
            self.fault_millis = LIFETIME_OF_LONG_FAULTS / 2;
        }
        if self.faults.contains(&Fault::Power) && !self.faults.contains(&Fault::DiskErrors) && one_in(rng, 2)
        {
            self.lose_the_last_period(rng);
        }
        if one_in(rng, 3) {
            self.limits = Some(rng.next_u64());
        }
        if one_in(rng, 2) {
            self.buggify = *pick(rng, &[10_000, 100_000, 400_000]);
        }
    }

    /// Operations that came later than the others, by numbers of their own.
    pub(crate) fn draw_operations(&mut self, rng: &mut Rng) {
        self.operations = Operations {
            rows: self.serial_percent > 0 && !one_in(rng, 3),
            // Where no acknowledged write is lost.
            stamps: one_in(rng, 3) && self.loss_window().is_none() && !self.forces,
            rows_truncated: false,
            // A removal that is forced loses votes.
            rows_copied: !self.replications.is_empty() && !self.forces,
            local_rounds: false,
            items: false,
        };
        let by_datacenter = matches!(self.copies, Copies::ByDatacenter(_)) && !self.is_one_datacenter();
        if self.operations.rows && by_datacenter && one_in(rng, 2) {
            self.operations.local_rounds = true;
            // Writes acknowledged by the only replica of a datacenter are lost with it.
            if let Copies::ByDatacenter(copies) = &self.copies
                && copies.values().any(|copies| *copies < 2)
            {
                self.ring.retain(|event| !event.loses_node());
            }
            // A node that gains a range waits a minute for the replicas of its datacenter.
            if self.fault_millis > NEIGHBOUR_WAIT_MILLIS {
                self.ring.clear();
                self.founders = self.shards.len();
            }
        }
        let is_focus = self.focus == Some(Focus::Rows);
        self.operations.rows_truncated = self.truncates && !self.forces && (is_focus || one_in(rng, 2));
        self.operations.items = match self.focus {
            Some(Focus::Moves) => true,
            Some(Focus::Items) => self.serves_items(),
            Some(_) => false,
            None => self.serves_items() && !self.hours && one_in(rng, ITEMS_ONE_IN),
        };
    }

    /// Whether the requests to items have an order: in one datacenter, of three replicas that stay and lose no acknowledged write.
    fn serves_items(&self) -> bool {
        let has_replicas = self.is_one_datacenter() && self.founders >= FOUNDERS_MIN;
        has_replicas && self.keeps_replicas() && self.loss_window().is_none() && !self.forces
    }

    /// The datacenters.
    pub(crate) fn homes(&self) -> BTreeSet<&str> {
        self.datacenters.iter().map(String::as_str).collect()
    }

    /// The place of a node's datacenter among them.
    pub(crate) fn home(&self, nth: usize) -> usize {
        self.homes().into_iter().position(|name| name == self.datacenters[nth]).expect("it is one of them")
    }

    /// Nodes sync every so often only, and lose the writes acknowledged since with a power failure. Clients that keep a history of their own
    /// have no place for that.
    fn lose_the_last_period(&mut self, rng: &mut Rng) {
        self.machine.sync = Sync::Periodic(Duration::from_millis(5 + rng.below(195)));
        self.levels.weak_writes.clear();
        (self.truncates, self.replications) = (false, Vec::new());
    }

    /// How long before a power failure acknowledged writes may be lost with it; none where no acknowledged write is.
    pub(crate) fn loss_window(&self) -> Option<Duration> {
        match self.machine.sync {
            // A sync begins with the period, and takes its time.
            Sync::Periodic(period) => Some(period * 2),
            Sync::Batch | Sync::Group(_) => None,
        }
    }

    /// The same nodes have the same replicas from the beginning to the end.
    pub(crate) fn keeps_replicas(&self) -> bool {
        self.ring.is_empty() && self.founders == self.shards.len()
    }

    /// All nodes stand in one datacenter.
    pub(crate) fn is_one_datacenter(&self) -> bool {
        self.datacenters.iter().all(|name| *name == self.datacenters[0])
    }

    /// The link between two nodes when nothing is wrong; none for the usual one.
    pub(crate) fn link(&self, one: usize, other: usize) -> Option<LinkConfig> {
        let latency_min = self.distance.filter(|_| self.datacenters[one] != self.datacenters[other]);
        let far = |latency_min| LinkConfig {
            latency_min,
            latency_max: latency_min * 5 / 4,
            ..LinkConfig::default()
        };
        latency_min.map(far).or(self.links)
    }

    /// The settings of a node for one process lifetime.
    pub(crate) fn config(&self, rng: &mut Rng, nth: usize, address: IpAddr) -> Config {
        let seeds: Vec<String> = (1..=self.shards.len().min(SEEDS)).map(|n| format!("10.0.0.{n}")).collect();
        let mut config = self.machine.config(rng, address, self.shards[nth]);
        if let Some(seed) = self.limits {
            let mut drawn = Rng::new(seed, 0);
            draw_limits(&mut drawn, &mut config);
            // Some requests have to succeed in time.
            if !self.probes {
                draw_client_limits(&mut drawn, &mut config);
            }
            if self.focus == Some(Focus::Scarce) {
                config.native_transport_max_request_data_in_flight = BYTES_IN_FLIGHT_WHEN_SCARCE;
                config.native_transport_max_request_data_in_flight_per_ip = BYTES_IN_FLIGHT_WHEN_SCARCE;
            }
        }
        Config {
            seeds: seeds.join(","),
            num_tokens: self.tokens,
            datacenter: self.datacenters[nth].clone(),
            rack: self.racks[nth].clone(),
            hinted_handoff_enabled: self.hints,
            alternator_port: if self.operations.items { API_PORT } else { 0 },
            ..config
        }
    }
}

/// Enough for all that ask in a quiescent phase.
const BYTES_IN_FLIGHT_WHEN_SCARCE: Size = Size(8_000);

/// One seed in so many has a large cluster, of small nodes.
const LARGE_ONE_IN: u64 = 50;

/// Nodes of the large cluster that a seed has, if it has one.
pub(crate) fn large(rng: &mut Rng) -> Option<usize> {
    one_in(rng, LARGE_ONE_IN).then(|| *pick(rng, &[12, 20, 30]))
}

/// Nodes of the cluster of a seed that does not say how many.
pub(crate) fn size(rng: &mut Rng, details: &mut Rng) -> usize {
    match *pick(rng, &[3, 3, 3, 3, 4, 4, 4, 5, 5, 6, 9]) {
        9 => *pick(details, &[7, 8, 9]),
        fewer => fewer,
    }
}
