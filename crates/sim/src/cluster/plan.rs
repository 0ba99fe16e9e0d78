//! The choices of a seed that hold for a whole run of a cluster: its machines, where they stand, what happens to them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use rt_sim::{LinkConfig, NameDurability, Rng};
use server::Config;
use wire::Consistency;

use crate::cluster::nemesis::Trouble;
use crate::plan::{Plan, Sync, one_in, pick};

/// Nodes without which a cluster is not begun; those above may join later.
const FOUNDERS_MIN: usize = 3;

/// Long enough that nodes take each other for dead, with clients that take their time.
const LONG_LIFE_MILLIS: u64 = 20_000;
const LONG_LIFE_PAUSE_MICROS: u64 = 300_000;

/// What a seed decides at the beginning.
#[derive(Clone, Debug)]
pub(crate) struct ClusterPlan {
    /// What a single node's plan would say of the machines and their settings.
    pub(crate) machine: Plan,
    /// Shards of each node.
    pub(crate) shards: Vec<u16>,
    /// The datacenter of each node.
    pub(crate) datacenters: Vec<String>,
    /// The rack of each node.
    pub(crate) racks: Vec<String>,
    /// Nodes that are there from the beginning; the others join while clients work.
    pub(crate) founders: usize,
    /// `replication` of the keyspace, as CQL writes it.
    pub(crate) replication: String,
    pub(crate) levels: Levels,
    /// Up to how long a client waits between two requests, microseconds.
    pub(crate) pause_micros: u64,
    /// Clients use lightweight transactions.
    pub(crate) serial: bool,
    /// Clients that change the schema.
    pub(crate) changers: usize,
    /// One way between two datacenters.
    pub(crate) distance: Option<Duration>,
    /// Times of work under faults, each followed by a calm in which everything is compared.
    pub(crate) rounds: u64,
    /// What happens.
    pub(crate) troubles: Vec<Trouble>,
    /// Nodes that are in trouble at once, at most.
    pub(crate) troubled_max: usize,
    /// Drift of each node's clocks, parts per million.
    pub(crate) drifts: Vec<i32>,
}

/// The consistency levels that clients use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Levels {
    /// Of writes and reads that have a replica in common.
    pub(crate) strong_writes: Vec<Consistency>,
    pub(crate) strong_reads: Vec<Consistency>,
    /// Of writes that are only promised to be there in the end.
    pub(crate) weak_writes: Vec<Consistency>,
    /// Of reads that only have to show nothing that nobody wrote.
    pub(crate) weak_reads: Vec<Consistency>,
    /// Two strong reads have a replica in common as well: what one has seen the next sees.
    pub(crate) reads_overlap: bool,
}

impl Levels {
    fn draw(rng: &mut Rng, datacenters: usize, by_datacenter: bool) -> Self {
        use Consistency::{All, EachQuorum, LocalOne, LocalQuorum, One, Quorum, Two};
        if datacenters == 1 {
            let strong = vec![Quorum, Quorum, LocalQuorum, All];
            return Self {
                strong_writes: strong.clone(),
                strong_reads: strong,
                weak_writes: vec![One, LocalOne],
                weak_reads: vec![One, LocalOne],
                reads_overlap: true,
            };
        }
        let weak = if by_datacenter { vec![One, LocalOne, Two] } else { vec![One] };
        let (strong_writes, strong_reads, reads_overlap) = match (by_datacenter, one_in(rng, 2)) {
            (true, true) => {
                (vec![EachQuorum, EachQuorum, All], vec![LocalQuorum, LocalQuorum, Quorum, All], false)
            }
            (true, false) => {
                (vec![Quorum, Quorum, EachQuorum, All], vec![Quorum, Quorum, EachQuorum, All], true)
            }
            (false, _) => (vec![Quorum, Quorum, All], vec![Quorum, Quorum, All], true),
        };
        Self { strong_writes, strong_reads, weak_writes: weak.clone(), weak_reads: weak, reads_overlap }
    }
}

/// How many copies are kept where, as CQL writes it, and whether that is said by datacenter.
fn replication(rng: &mut Rng, datacenters: &[String]) -> (String, bool) {
    let wanted = *pick(rng, &[3, 3, 3, 3, 2, 5]);
    if one_in(rng, 3) {
        let copies = wanted.min(datacenters.len());
        return (format!("'class': 'SimpleStrategy', 'replication_factor': {copies}"), false);
    }
    let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
    datacenters.iter().for_each(|name| *sizes.entry(name).or_default() += 1);
    let mut text = "'class': 'NetworkTopologyStrategy'".to_owned();
    for (name, size) in sizes {
        let here = wanted.min(size).min(3);
        text.push_str(&format!(", '{name}': {here}"));
    }
    (text, true)
}

impl ClusterPlan {
    /// The plan of a seed for so many nodes.
    pub(crate) fn draw(rng: &mut Rng, nodes: usize) -> Self {
        let mut machine = Plan::draw(rng);
        machine.tables = 1 + rng.below(2);
        machine.workers = 3 + rng.below(4);
        machine.life_millis = *pick(rng, &[200, 1_000, 4_000, LONG_LIFE_MILLIS, LONG_LIFE_MILLIS]);
        let troubles: Vec<Trouble> = Trouble::ALL.into_iter().filter(|_| one_in(rng, 3)).collect();
        if troubles.contains(&Trouble::Power) || troubles.contains(&Trouble::DiskErrors) {
            // What is acknowledged must not depend on what a node had not synced.
            machine.sync = Sync::Batch;
            machine.names = NameDurability::SyncDir;
        }
        let founders = match nodes {
            0..=FOUNDERS_MIN => nodes,
            _ if one_in(rng, 3) => nodes,
            _ => FOUNDERS_MIN.max(nodes - 1 - rng.below(2) as usize),
        };
        let centers = if nodes < FOUNDERS_MIN { 1 } else { *pick(rng, &[1, 1, 1, 2, 2, 3]) };
        let datacenters: Vec<String> = (0..nodes).map(|nth| format!("dc{}", 1 + nth % centers)).collect();
        let (replication, by_datacenter) = replication(rng, &datacenters[..founders]);
        let distance = *pick(rng, &[None, Some(Duration::from_millis(5)), Some(Duration::from_millis(40))]);
        let mut levels = Levels::draw(rng, centers, by_datacenter);
        let loses = |trouble: &Trouble| trouble.loses_memory();
        if founders < nodes && troubles.iter().any(loses) {
            // One replica may be all that has it, lose its hints, and give its range away.
            levels.weak_writes.clear();
        }
        Self {
            shards: (0..nodes).map(|_| *pick(rng, &[1, 1, 2, 3, 4])).collect(),
            racks: (0..nodes).map(|_| format!("rack{}", rng.below(3))).collect(),
            datacenters,
            founders,
            replication,
            levels,
            pause_micros: if machine.life_millis == LONG_LIFE_MILLIS { LONG_LIFE_PAUSE_MICROS } else { 0 },
            serial: one_in(rng, 2),
            changers: *pick(rng, &[0, 0, 1, 2, 3]),
            distance: distance.filter(|_| centers > 1),
            rounds: 1 + rng.below(3),
            troubles,
            troubled_max: if one_in(rng, 4) { nodes } else { nodes.saturating_sub(1) / 2 },
            drifts: (0..nodes).map(|_| *pick(rng, &[0, 0, 50, -50, 300])).collect(),
            machine,
        }
    }

    /// The link between two nodes when nothing is wrong; none for the usual one.
    pub(crate) fn link(&self, one: usize, other: usize) -> Option<LinkConfig> {
        let latency_min = self.distance.filter(|_| self.datacenters[one] != self.datacenters[other])?;
        Some(LinkConfig { latency_min, latency_max: latency_min * 5 / 4, ..LinkConfig::default() })
    }

    /// The settings of a node for one life.
    pub(crate) fn config(&self, rng: &mut Rng, nth: usize, address: IpAddr, seed: IpAddr) -> Config {
        Config {
            seeds: seed.to_string(),
            datacenter: self.datacenters[nth].clone(),
            rack: self.racks[nth].clone(),
            ..self.machine.config(rng, address, self.shards[nth])
        }
    }
}

/// Nodes of the cluster of a seed that does not say how many.
pub(crate) fn size(rng: &mut Rng) -> usize {
    *pick(rng, &[3, 3, 3, 3, 4, 4, 4, 5, 5, 6, 9])
}
