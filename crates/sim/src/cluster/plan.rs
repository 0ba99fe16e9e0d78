//! The choices of a seed that hold for a whole run of a cluster: its machines, where they stand, what happens to them.

use std::net::IpAddr;

use rt_sim::{NameDurability, Rng};
use server::Config;

use crate::cluster::nemesis::Trouble;
use crate::plan::{Plan, Sync, one_in, pick};

/// Copies of the data, at most.
const COPIES_MAX: usize = 3;

/// What a seed decides at the beginning.
#[derive(Clone, Debug)]
pub(crate) struct ClusterPlan {
    /// What a single node's plan would say of the machines and their settings.
    pub(crate) machine: Plan,
    /// Shards of each node.
    pub(crate) shards: Vec<u16>,
    /// The rack of each node.
    pub(crate) racks: Vec<String>,
    /// Copies of the data.
    pub(crate) copies: usize,
    /// Times of work under faults, each followed by a calm in which everything is compared.
    pub(crate) rounds: u64,
    /// What happens.
    pub(crate) troubles: Vec<Trouble>,
    /// Nodes that are in trouble at once, at most.
    pub(crate) troubled_max: usize,
    /// Drift of each node's clocks, parts per million.
    pub(crate) drifts: Vec<i32>,
}

impl ClusterPlan {
    /// The plan of a seed for so many nodes.
    pub(crate) fn draw(rng: &mut Rng, nodes: usize) -> Self {
        let mut machine = Plan::draw(rng);
        machine.tables = 1 + rng.below(2);
        machine.workers = 3 + rng.below(4);
        machine.life_millis = *pick(rng, &[200, 1_000, 4_000]);
        let troubles: Vec<Trouble> = Trouble::ALL.into_iter().filter(|_| one_in(rng, 3)).collect();
        if troubles.contains(&Trouble::Power) || troubles.contains(&Trouble::DiskErrors) {
            // What is acknowledged must not depend on what a node had not synced.
            machine.sync = Sync::Batch;
            machine.names = NameDurability::SyncDir;
        }
        Self {
            shards: (0..nodes).map(|_| *pick(rng, &[1, 1, 2, 3])).collect(),
            racks: (0..nodes).map(|_| format!("rack{}", rng.below(3))).collect(),
            copies: nodes.min(COPIES_MAX),
            rounds: 1 + rng.below(3),
            troubles,
            troubled_max: if one_in(rng, 4) { nodes } else { nodes.saturating_sub(1) / 2 },
            drifts: (0..nodes).map(|_| *pick(rng, &[0, 0, 50, -50, 300])).collect(),
            machine,
        }
    }

    /// The settings of a node for one life.
    pub(crate) fn config(&self, rng: &mut Rng, nth: usize, address: IpAddr, seed: IpAddr) -> Config {
        Config {
            seeds: seed.to_string(),
            rack: self.racks[nth].clone(),
            ..self.machine.config(rng, address, self.shards[nth])
        }
    }
}
