//! The effect of a focus on a plan that was drawn as any other.

use std::time::Duration;

use rt_sim::{LinkConfig, NameDurability, Rng};

use crate::cluster::plan::ClusterPlan;
use crate::cluster::plan::fault::Fault;
use crate::cluster::plan::focus::Focus;
use crate::cluster::plan::grace::Grace;
use crate::cluster::plan::replication::{Copies, Levels};
use crate::cluster::plan::ring_event::RingEvent;
use crate::plan::{Sync, one_in, pick};
use crate::table::Scale;

impl Focus {
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
            Self::Items => items(plan, rng),
            Self::Moves => moves(plan, rng),
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
    // Shorter than a conviction takes: a TRUNCATE needs all of them.
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
    // Updates that one replica loses are derived by no other.
    plan.copies = Copies::Anywhere(*pick(rng, &[1, 1, 2, 3]));
    plan.links = Some(slow(*pick(rng, &[5, 50, 200])));
    if one_in(rng, 2) {
        plan.founders = plan.shards.len() - 1;
    }
    busy(plan, 20_000, 50_000);
    plan.machine.workers = 2;
}

fn items(plan: &mut ClusterPlan, rng: &mut Rng) {
    plan.scale = Scale { partitions: 6, rows: 2, ..Scale::default() };
    plan.faults = Fault::ALL.into_iter().filter(|_| one_in(rng, 2)).collect();
    (plan.machine.sync, plan.machine.names) = (Sync::Batch, NameDurability::SyncDir);
    plan.levels.weak_writes.clear();
    plan.links = Some(slow(*pick(rng, &[5, 30, 100])));
    plan.buggify = *pick(rng, &[0, 10_000, 100_000]);
    plan.fault_millis = *pick(rng, &[1_000, 6_000]);
    plan.machine.tables = 1;
    busy(plan, 20_000, 50_000);
    plan.machine.workers = 2;
    plan.hours = plan.faults.contains(&Fault::ClockJump) && !one_in(rng, 3);
}

/// Items beside topology changes: by chance beside the faults, or (where `ring` is empty) one change after the other. Six nodes and more stand in two
/// datacenters, of which the second has one replica or three. The last machine is a spare one of the first.
fn moves(plan: &mut ClusterPlan, rng: &mut Rng) {
    items(plan, rng);
    let nodes = plan.shards.len();
    plan.founders = nodes - 1;
    plan.tokens = *pick(rng, &[2, 4]);
    plan.links = Some(slow(*pick(rng, &[5, 30])));
    plan.rounds = *pick(rng, &[1, 2]);
    plan.ring = if one_in(rng, 2) { RingEvent::ALL.to_vec() } else { Vec::new() };
    busy(plan, 20_000, 50_000);
    plan.machine.workers = 2;
    let second: &[usize] = match nodes {
        6 => &[1, 4],
        7 => &[1, 3, 5],
        _ => &[],
    };
    if !second.is_empty() {
        second.iter().for_each(|nth| plan.datacenters[*nth] = "dc2".to_owned());
        plan.distance = *pick(rng, &[None, Some(Duration::from_millis(5)), Some(Duration::from_millis(40))]);
        let copies = if second.len() < 3 { 1 } else { 3 };
        plan.copies = Copies::ByDatacenter([("dc1".to_owned(), 3), ("dc2".to_owned(), copies)].into());
        plan.levels = Levels::draw(rng, 2, true);
    }
    plan.levels.weak_writes.clear();
    plan.levels.reads_overlap = false;
}
