//! Scenarios of a cluster that look closely at one thing: a seed in four has one, and each injected bug is looked for in the one that shows
//! it. A focus changes a plan that was drawn as any other, with numbers of its own, so that the seeds without one stay as they are.

use std::time::Duration;

use rt_sim::{LinkConfig, NameDurability, Rng};

use crate::cluster::nemesis::Fault;
use crate::cluster::plan::{ClusterPlan, Copies, Grace, Levels};
use crate::plan::{Sync, one_in, pick};
use crate::table::Scale;

/// Draws of the focus of a seed.
const STREAM: u64 = 11;
/// One seed in so many has a focus.
const ONE_IN: u64 = 4;
/// The random stream of later draws, and how many of the other seeds make one.
const LATER_STREAM: u64 = 14;
const LATER_ONE_IN: u64 = 12;
/// The same for the latest draws.
const LAST_STREAM: u64 = 16;
const LAST_ONE_IN: u64 = 6;
/// The same of restored disks.
const ROLLBACK_STREAM: u64 = 22;
const ROLLBACK_ONE_IN: u64 = 20;
/// The same of rows of partitions under transactions.
const ROWS_STREAM: u64 = 24;
const ROWS_ONE_IN: u64 = 20;
/// The same of materialized views.
const VIEWS_STREAM: u64 = 26;
const VIEWS_ONE_IN: u64 = 20;
/// The same of change data capture.
const CHANGES_STREAM: u64 = 28;
const CHANGES_ONE_IN: u64 = 20;
/// The same of topology changes with a grace period between them.
const GRACES_STREAM: u64 = 30;
const GRACES_ONE_IN: u64 = 20;

/// The focus of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Focus {
    /// Few rows that everybody writes and reads, and replicas that hear of a write at very different times.
    Lag,
    /// The same of lightweight transactions and of the schema.
    Votes,
    /// Nodes that are down for a while and lose nothing: hints alone bring their missed writes.
    Away,
    /// Nodes that join under load, while others do not reach each other.
    Joining,
    /// Logged batches over partitions that few nodes have, whose coordinators end in the middle of them.
    Batches,
    /// A topology change of which a node does not hear, while clients ask it.
    Deaf,
    /// Nodes that join when a replica has just missed writes without hints.
    Stale,
    /// Replicas that miss writes without hints, and repairs; and deletions that are purged after them.
    Repairs,
    /// A disk whose files of tables rot, until the machine gets another.
    Rot,
    /// A node alone to which others are added, and the replication factor with them.
    Growth,
    /// Topology changes one after the other, some of them aborted or forced.
    Rings,
    /// A minority under fault after fault, while QUORUM must succeed in time through all others.
    Steady,
    /// Lightweight transactions on several rows of tables that are truncated, or whose replication factor changes.
    Rows,
    /// Disks that are restored from older images.
    Rollback,
    /// A table with materialized views whose rows few nodes have, while nodes end and the ring changes.
    Views,
    /// The same of such a table whose changes are captured.
    Changes,
    /// Nodes that join and leave, one a round: between two changes everything is repaired, and deletions are purged.
    Graces,
    /// Nodes that hold little of clients' requests at a time, and give it back when these are answered. No seed draws it by itself, for
    /// many have low limits.
    Scarce,
}

impl Focus {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Lag,
        Self::Votes,
        Self::Away,
        Self::Joining,
        Self::Batches,
        Self::Deaf,
        Self::Stale,
        Self::Repairs,
        Self::Rot,
        Self::Growth,
        Self::Rings,
        Self::Steady,
        Self::Rows,
        Self::Rollback,
        Self::Views,
        Self::Changes,
        Self::Graces,
        Self::Scarce,
    ];
    /// Those that existed when the first seeds were recorded.
    const FIRST: [Self; 7] =
        [Self::Lag, Self::Votes, Self::Away, Self::Joining, Self::Batches, Self::Deaf, Self::Stale];
    const LATER: [Self; 2] = [Self::Repairs, Self::Rot];
    const LAST: [Self; 3] = [Self::Growth, Self::Rings, Self::Steady];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lag => "lag",
            Self::Votes => "votes",
            Self::Away => "away",
            Self::Joining => "joining",
            Self::Batches => "batches",
            Self::Deaf => "deaf",
            Self::Stale => "stale",
            Self::Repairs => "repairs",
            Self::Rot => "rot",
            Self::Growth => "growth",
            Self::Rings => "rings",
            Self::Steady => "steady",
            Self::Rows => "rows",
            Self::Rollback => "rollback",
            Self::Views => "views",
            Self::Changes => "changes",
            Self::Graces => "graces",
            Self::Scarce => "scarce",
        }
    }

    /// The focus of this name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|focus| focus.name() == name)
    }

    /// The focus of a seed, and what draws its details.
    pub(crate) fn of(seed: u64, wanted: Option<Self>) -> Option<(Self, Rng)> {
        let mut rng = Rng::new(seed, STREAM);
        let drawn = one_in(&mut rng, ONE_IN).then(|| *pick(&mut rng, &Self::FIRST));
        let mut later = Rng::new(seed, LATER_STREAM);
        let drawn =
            drawn.or_else(|| one_in(&mut later, LATER_ONE_IN).then(|| *pick(&mut later, &Self::LATER)));
        let mut last = Rng::new(seed, LAST_STREAM);
        let drawn = drawn.or_else(|| one_in(&mut last, LAST_ONE_IN).then(|| *pick(&mut last, &Self::LAST)));
        let mut restored = Rng::new(seed, ROLLBACK_STREAM);
        let drawn = drawn.or_else(|| one_in(&mut restored, ROLLBACK_ONE_IN).then_some(Self::Rollback));
        let mut rows = Rng::new(seed, ROWS_STREAM);
        let drawn = drawn.or_else(|| one_in(&mut rows, ROWS_ONE_IN).then_some(Self::Rows));
        let mut views = Rng::new(seed, VIEWS_STREAM);
        let drawn = drawn.or_else(|| one_in(&mut views, VIEWS_ONE_IN).then_some(Self::Views));
        let mut changes = Rng::new(seed, CHANGES_STREAM);
        let drawn = drawn.or_else(|| one_in(&mut changes, CHANGES_ONE_IN).then_some(Self::Changes));
        let mut graces = Rng::new(seed, GRACES_STREAM);
        let drawn = drawn.or_else(|| one_in(&mut graces, GRACES_ONE_IN).then_some(Self::Graces));
        wanted.or(drawn).map(|focus| (focus, rng))
    }

    /// How many nodes it takes.
    pub(crate) fn size(self, rng: &mut Rng) -> usize {
        match self {
            Self::Lag | Self::Votes | Self::Rows | Self::Scarce => *pick(rng, &[3, 3, 4]),
            Self::Away => *pick(rng, &[3, 3, 4, 5]),
            Self::Joining => *pick(rng, &[4, 4, 5]),
            Self::Batches => *pick(rng, &[4, 5, 6]),
            Self::Deaf => 4,
            Self::Stale => *pick(rng, &[4, 5, 5]),
            Self::Repairs | Self::Rot => *pick(rng, &[3, 3, 4]),
            Self::Growth => *pick(rng, &[2, 3, 3, 4]),
            Self::Rings | Self::Views | Self::Changes | Self::Graces => *pick(rng, &[4, 5]),
            Self::Rollback => *pick(rng, &[3, 3, 4, 5]),
            Self::Steady => *pick(rng, &[3, 3, 4, 5]),
        }
    }

    /// Changes a plan.
    pub(crate) fn apply(self, plan: &mut ClusterPlan, rng: &mut Rng) {
        let nodes = plan.shards.len();
        plan.focus = Some(self);
        plan.rounds = 1;
        plan.watched = true;
        plan.grace = Grace::Never;
        plan.ring = Vec::new();
        plan.founders = nodes;
        plan.faulty_max = 1;
        plan.datacenters = vec!["dc1".to_owned(); nodes];
        plan.distance = None;
        plan.copies = Copies::Anywhere(3);
        plan.levels = Levels::draw(rng, 1, false);
        plan.serial_percent = 0;
        plan.changers = 0;
        match self {
            Self::Lag => lag(plan, rng),
            Self::Votes => votes(plan, rng),
            Self::Away => away(plan, rng),
            Self::Joining => joining(plan, rng),
            Self::Batches => batches(plan, rng),
            Self::Deaf => deaf(plan, rng),
            Self::Stale => stale(plan, rng),
            Self::Repairs => repairs(plan, rng),
            Self::Rot => rot(plan, rng),
            Self::Growth => growth(plan, rng),
            Self::Rings => rings(plan, rng),
            Self::Steady => steady(plan, rng),
            Self::Rows => rows(plan, rng),
            Self::Rollback => changing(plan, rng),
            Self::Views => views(plan, rng),
            Self::Graces => graces(plan, rng),
            Self::Scarce => scarce(plan, rng),
            Self::Changes => {
                views(plan, rng);
                plan.captured = true;
            }
        }
    }
}

/// Clients that do not rest for so long.
fn busy(plan: &mut ClusterPlan, lifetime_millis: u64, pause_micros: u64) {
    (plan.machine.lifetime_millis, plan.pause_micros) = (lifetime_millis, pause_micros);
    plan.machine.workers = 6;
}

/// Links on which a packet takes anything up to so long.
fn slow(millis: u64) -> LinkConfig {
    LinkConfig { latency_max: Duration::from_millis(millis), ..LinkConfig::default() }
}

fn lag(plan: &mut ClusterPlan, rng: &mut Rng) {
    plan.scale = Scale { partitions: 2, rows: *pick(rng, &[2, 6]), ..Scale::default() };
    plan.is_lossy = !one_in(rng, 3);
    plan.links = Some(slow(*pick(rng, &[60, 200]))).filter(|_| !plan.is_lossy);
    plan.faults = Vec::new();
    plan.machine.tables = 2;
    plan.counters = true;
    busy(plan, 20_000, 2_000);
    plan.machine.workers = 12;
}

fn votes(plan: &mut ClusterPlan, rng: &mut Rng) {
    lag(plan, rng);
    plan.is_lossy = false;
    plan.links = Some(slow(*pick(rng, &[60, 200])));
    plan.machine.tables = 1;
    plan.serial_percent = 60;
    plan.changers = 2;
    plan.machine.workers = 6;
}

fn rows(plan: &mut ClusterPlan, rng: &mut Rng) {
    votes(plan, rng);
    plan.links = Some(slow(*pick(rng, &[5, 30])));
    plan.serial_percent = 30;
    plan.changers = 0;
    // Shorter than what makes others believe that a node is down: a TRUNCATE needs all of them.
    plan.faults = vec![Fault::Isolate, Fault::OneWay, Fault::Pause];
    plan.fault_millis = 2_000;
    plan.truncates = true;
    plan.replications = vec![1, 2, 3];
}

fn away(plan: &mut ClusterPlan, rng: &mut Rng) {
    plan.scale = Scale { partitions: 40, rows: 2, ..Scale::default() };
    plan.faults = vec![*pick(rng, &[Fault::Isolate, Fault::Pause]), Fault::OneWay, Fault::Rift];
    plan.writes_percent = 85;
    busy(plan, *pick(rng, &[20_000, 60_000]), 200_000);
}

fn joining(plan: &mut ClusterPlan, rng: &mut Rng) {
    plan.scale = Scale { partitions: 400, rows: 2, ..Scale::default() };
    plan.fault_millis = 4_000;
    plan.faulty_max = 2;
    plan.founders = 3;
    plan.tokens = 16;
    plan.machine.tables = 2;
    plan.links = Some(slow(*pick(rng, &[20, 100])));
    plan.faults = vec![Fault::OneWay, Fault::Rift];
    plan.writes_percent = 93;
    busy(plan, *pick(rng, &[20_000, 60_000]), 50_000);
}

fn batches(plan: &mut ClusterPlan, rng: &mut Rng) {
    // Hardly any cell is written twice: a later write would hide that a part is missing.
    plan.scale = Scale { partitions: 5_000, rows: 2, one_batch_in: 1, one_elsewhere_in: 1 };
    plan.copies = Copies::Anywhere(*pick(rng, &[1, 1, 2]));
    plan.faults = vec![Fault::Power];
    plan.machine.tables = 1;
    (plan.machine.sync, plan.machine.names) = (Sync::Batch, NameDurability::SyncDir);
    plan.levels.weak_writes.clear();
    plan.writes_percent = 90;
    busy(plan, 40_000, 200_000);
    plan.machine.workers = 12;
}

/// Only then a missed write stays missing until it is read or repaired.
fn without_hints(plan: &mut ClusterPlan) {
    plan.hints = false;
    plan.levels.weak_writes.clear();
}

fn deaf(plan: &mut ClusterPlan, rng: &mut Rng) {
    joining(plan, rng);
    without_hints(plan);
    busy(plan, 20_000, 20_000);
}

fn stale(plan: &mut ClusterPlan, rng: &mut Rng) {
    joining(plan, rng);
    without_hints(plan);
    busy(plan, 20_000, 20_000);
}

fn repairs(plan: &mut ClusterPlan, rng: &mut Rng) {
    plan.grace = *pick(rng, &[Grace::Never, Grace::Never, Grace::Repair(300), Grace::Timeout(3_600)]);
    // Where little is written twice, later writes do not hide rows that a repair left out; but a deletion has to meet something.
    plan.scale = match plan.grace {
        Grace::Never => Scale { partitions: *pick(rng, &[40, 1_000]), rows: 2, ..Scale::default() },
        Grace::Timeout(_) | Grace::Repair(_) => Scale { partitions: 30, rows: 2, ..Scale::default() },
    };
    plan.faults = vec![Fault::Power];
    plan.machine.tables = 1;
    (plan.machine.sync, plan.machine.names) = (Sync::Batch, NameDurability::SyncDir);
    plan.levels.weak_writes.clear();
    plan.probes = true;
    // A client's read at QUORUM repairs.
    plan.writes_percent = 96;
    busy(plan, 20_000, 100_000);
    plan.machine.workers = 12;
}

fn rot(plan: &mut ClusterPlan, rng: &mut Rng) {
    plan.scale = Scale { partitions: *pick(rng, &[6, 60]), rows: 6, ..Scale::default() };
    plan.faults = Vec::new();
    // Writes on one node alone go with its disk.
    plan.levels.weak_writes.clear();
    busy(plan, 20_000, 50_000);
    plan.forces = one_in(rng, 2);
}

/// Nodes end in the middle of changes of replicas: acknowledged writes are on their disks, and others that were read may be missing.
fn changing(plan: &mut ClusterPlan, rng: &mut Rng) {
    plan.scale = Scale { partitions: *pick(rng, &[6, 100]), rows: 4, ..Scale::default() };
    plan.faults = vec![Fault::Kill, Fault::Power, Fault::Pause, Fault::Isolate];
    (plan.machine.sync, plan.machine.names) = (Sync::Batch, NameDurability::SyncDir);
    plan.levels.weak_writes.clear();
    plan.levels.reads_overlap = false;
    plan.serial_percent = *pick(rng, &[0, 12]);
    plan.changers = *pick(rng, &[0, 0, 1]);
    plan.machine.tables = 1 + rng.below(2);
    busy(plan, 60_000, 400_000);
    plan.machine.workers = 4;
}

fn growth(plan: &mut ClusterPlan, rng: &mut Rng) {
    changing(plan, rng);
    plan.founders = 1;
    plan.copies = Copies::Anywhere(1);
    plan.probes = true;
}

fn rings(plan: &mut ClusterPlan, rng: &mut Rng) {
    changing(plan, rng);
    plan.founders = plan.shards.len() - 1;
    plan.tokens = *pick(rng, &[2, 4, 16]);
    plan.replications = if one_in(rng, 2) { vec![2, 3] } else { Vec::new() };
    plan.forces = one_in(rng, 2);
    if plan.forces {
        // The votes that only a dead node has are lost when its removal is forced.
        plan.serial_percent = 0;
    }
}

fn graces(plan: &mut ClusterPlan, rng: &mut Rng) {
    changing(plan, rng);
    plan.grace = *pick(rng, &[Grace::Repair(300), Grace::Timeout(3_600)]);
    plan.rounds = 4;
    plan.founders = plan.shards.len() - 1;
    // Each node has a part only, which grows and shrinks.
    plan.copies = Copies::Anywhere(2);
    plan.tokens = *pick(rng, &[2, 4, 16]);
    plan.scale = Scale { partitions: 30, rows: 2, ..Scale::default() };
    (plan.serial_percent, plan.changers) = (0, 0);
    busy(plan, 20_000, 100_000);
}

fn scarce(plan: &mut ClusterPlan, rng: &mut Rng) {
    plan.limits = Some(rng.next_u64());
    plan.machine.idles = true;
    busy(plan, 20_000, 20_000);
}

fn steady(plan: &mut ClusterPlan, rng: &mut Rng) {
    plan.scale = Scale { partitions: *pick(rng, &[6, 100]), rows: 4, ..Scale::default() };
    plan.faults = Fault::ALL.into_iter().filter(|fault| *fault != Fault::Split).collect();
    (plan.machine.sync, plan.machine.names) = (Sync::Batch, NameDurability::SyncDir);
    plan.levels.weak_writes.clear();
    plan.fault_millis = *pick(rng, &[1_000, 8_000]);
    plan.probes = true;
    if plan.shards.len() == 5 && one_in(rng, 2) {
        (plan.copies, plan.faulty_max) = (Copies::Anywhere(5), 2);
    } else if plan.shards.len() > 3 && one_in(rng, 2) {
        plan.founders = plan.shards.len() - 1;
    }
    busy(plan, 40_000, 400_000);
    plan.machine.workers = 4;
}

fn views(plan: &mut ClusterPlan, rng: &mut Rng) {
    changing(plan, rng);
    plan.views = true;
    (plan.serial_percent, plan.changers, plan.machine.tables) = (0, 0, 1);
    // What one replica loses no other derives.
    plan.copies = Copies::Anywhere(*pick(rng, &[1, 1, 2, 3]));
    plan.links = Some(slow(*pick(rng, &[5, 50, 200])));
    if one_in(rng, 2) {
        plan.founders = plan.shards.len() - 1;
    }
    busy(plan, 20_000, 50_000);
    plan.machine.workers = 2;
}
