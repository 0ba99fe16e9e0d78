//! The replicas of the clients' keyspace, and the consistency levels that clients use of them.

use std::collections::BTreeMap;

use rt_sim::Rng;
use wire::Consistency;

use crate::plan::{one_in, pick};

/// The replication of everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    /// So many, wherever.
    Anywhere(usize),
    /// So many in each datacenter.
    ByDatacenter(BTreeMap<String, usize>),
}

impl Copies {
    /// For nodes in these datacenters, so many of which may leave.
    pub(crate) fn draw(rng: &mut Rng, datacenters: &[String], leave: usize) -> Self {
        let wanted = *pick(rng, &[3, 3, 3, 3, 2, 5]);
        if one_in(rng, 3) {
            return Self::Anywhere(wanted.min(datacenters.len() - leave));
        }
        let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
        datacenters.iter().for_each(|name| *sizes.entry(name.clone()).or_default() += 1);
        sizes.values_mut().for_each(|size| *size = wanted.min(size.saturating_sub(leave).max(1)).min(3));
        Self::ByDatacenter(sizes)
    }

    /// `replication` of a keyspace, as CQL writes it.
    pub(crate) fn replication(&self) -> String {
        match self {
            Self::Anywhere(copies) => format!("'class': 'SimpleStrategy', 'replication_factor': {copies}"),
            Self::ByDatacenter(copies) => {
                let each = copies.iter().map(|(name, copies)| format!(", '{name}': {copies}"));
                format!("'class': 'NetworkTopologyStrategy'{}", each.collect::<String>())
            }
        }
    }

    /// All of them.
    pub(crate) fn total(&self) -> usize {
        match self {
            Self::Anywhere(copies) => *copies,
            Self::ByDatacenter(copies) => copies.values().sum(),
        }
    }

    /// Those that one datacenter has, if each has its own.
    pub(crate) fn of_datacenter(&self, name: &str) -> Option<usize> {
        match self {
            Self::Anywhere(_) => None,
            Self::ByDatacenter(copies) => copies.get(name).copied(),
        }
    }

    /// Whether nodes in these datacenters have a place for each.
    pub(crate) fn fit(&self, datacenters: &[&str]) -> bool {
        match self {
            Self::Anywhere(copies) => datacenters.len() >= *copies,
            Self::ByDatacenter(copies) => copies.iter().all(|(name, copies)| {
                datacenters.iter().filter(|center| **center == name.as_str()).count() >= *copies
            }),
        }
    }
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
    /// Two strong reads have a replica in common as well: the next sees the rows that one has seen.
    pub(crate) reads_overlap: bool,
}

impl Levels {
    /// Of a cluster of so many datacenters.
    pub(crate) fn draw(rng: &mut Rng, datacenters: usize, by_datacenter: bool) -> Self {
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
