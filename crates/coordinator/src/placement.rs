//! How many copies a keyspace has and how many of them can be reached.

use schema::{Keyspace, Replication};
use topology::Consistency;

use crate::RequestError;

/// The copies of one keyspace's data as seen from one datacenter. Today's cluster is this node alone: it holds one copy
/// of whatever is to be kept in its datacenter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Copies in this datacenter, and how many of them are alive.
    local: (usize, usize),
    /// Copies in the other datacenters; none of them is alive.
    remote: Vec<usize>,
}

impl Placement {
    /// For a node alone in datacenter `local`.
    pub fn single_node(keyspace: &Keyspace, local: &str) -> Self {
        match &keyspace.replication {
            Replication::Local | Replication::Everywhere => Self { local: (1, 1), remote: Vec::new() },
            Replication::Simple { factor } => {
                let copies = *factor as usize;
                Self { local: (copies, copies.min(1)), remote: Vec::new() }
            }
            Replication::NetworkTopology { factors } => {
                let copies = factors.get(local).copied().unwrap_or(0) as usize;
                let remote =
                    factors.iter().filter(|(dc, _)| *dc != local).map(|(_, n)| *n as usize).collect();
                Self { local: (copies, copies.min(1)), remote }
            }
        }
    }

    /// Whether enough replicas are alive for a consistency level.
    pub fn check(&self, consistency: Consistency) -> Result<(), RequestError> {
        let (copies, alive) = self.local;
        let all = copies + self.remote.iter().sum::<usize>();
        let required = match consistency {
            Consistency::LocalOne | Consistency::LocalQuorum | Consistency::LocalSerial => {
                consistency.required(copies)
            }
            Consistency::EachQuorum => {
                let each = std::iter::once(copies).chain(self.remote.iter().copied()).filter(|n| *n > 0);
                each.map(|copies| consistency.required(copies)).sum()
            }
            _ => consistency.required(all),
        };
        // ANY is content with a hint, which a node alone can always keep: for itself.
        if alive >= required || consistency == Consistency::Any {
            return Ok(());
        }
        Err(RequestError::Unavailable { consistency, required: required as u32, alive: alive as u32 })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn check(replication: Replication, consistency: Consistency) -> Option<(u32, u32)> {
        let placement = Placement::single_node(&Keyspace::new("ks", replication), "dc1");
        match placement.check(consistency) {
            Ok(()) => None,
            Err(RequestError::Unavailable { required, alive, .. }) => Some((required, alive)),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn one_node_serves_what_one_node_can() {
        let simple = |factor| Replication::Simple { factor };
        let each = |pairs: &[(&str, u32)]| Replication::NetworkTopology {
            factors: pairs.iter().map(|(dc, n)| ((*dc).to_owned(), *n)).collect::<BTreeMap<_, _>>(),
        };
        assert_eq!(check(simple(1), Consistency::All), None);
        assert_eq!(check(simple(3), Consistency::One), None);
        assert_eq!(check(simple(3), Consistency::Quorum), Some((2, 1)));
        assert_eq!(check(simple(3), Consistency::LocalQuorum), Some((2, 1)));
        assert_eq!(check(each(&[("dc1", 1)]), Consistency::EachQuorum), None);
        assert_eq!(check(each(&[("dc1", 1), ("dc2", 1)]), Consistency::LocalQuorum), None);
        assert_eq!(check(each(&[("dc1", 1), ("dc2", 1)]), Consistency::EachQuorum), Some((2, 1)));
        assert_eq!(check(each(&[("dc2", 3)]), Consistency::One), Some((1, 0)));
        assert_eq!(check(each(&[("dc2", 3)]), Consistency::Any), None);
    }
}
