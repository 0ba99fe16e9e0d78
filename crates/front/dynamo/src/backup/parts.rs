//! The parts that nodes have in a backup or a restoration, and the decision whether those that are done are all that there is. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json as to_json};

/// How long the part of a node that is down is awaited, microseconds.
pub(crate) const PATIENCE_MICROS: i64 = 60_000_000;
/// How long a restoration whose nodes record no progress is continued, microseconds: longer than a cluster is down for its upgrade or a node for its
/// repair, and no longer than an operator should wait to be told.
pub(crate) const IDLE_MICROS_MAX: i64 = 6 * 3_600_000_000;
/// How long a snapshot of a node that is alive is awaited, microseconds.
const SNAPSHOT_MICROS_MAX: i64 = 600_000_000;

/// The state of a node's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// To be carried out.
    Pending,
    /// Carried out; of a backup, bytes of the node's files.
    Done(u64),
    /// It failed, or is not there any more.
    Gone,
}

/// A node that has a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodePart {
    /// The key of the node's replication factor.
    pub(crate) datacenter: String,
    pub(crate) part: Part,
}

/// The parts by the id of their node, and the replicas in each datacenter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) nodes: BTreeMap<String, NodePart>,
    pub(crate) factors: BTreeMap<String, u32>,
}

/// A node as the cluster sees it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Alive,
    Down,
    /// No member any more.
    Departed,
}

/// The state of all parts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Parts are awaited.
    Wait,
    /// The parts that are done have every write that was acknowledged.
    Complete,
    /// They have not, and will not.
    Failed,
}

impl Parts {
    /// Whether these nodes have every acknowledged write: so many replicas of each range that each quorum has one of them.
    pub(crate) fn covers(&self, has: impl Fn(&str, &NodePart) -> bool) -> bool {
        self.factors.iter().all(|(datacenter, factor)| {
            let nodes = self.nodes.iter().filter(|(_, node)| node.datacenter == *datacenter);
            let lacking = nodes.filter(|(host, node)| !has(host, node)).count();
            // All nodes that lack their part may be replicas of one range, and one fewer than a quorum.
            lacking as u64 <= u64::from(factor / 2)
        })
    }

    fn is_done(node: &NodePart) -> bool {
        matches!(node.part, Part::Done(_))
    }

    fn has_pending(&self, of: impl Fn(&str) -> bool) -> bool {
        self.nodes.iter().any(|(host, node)| node.part == Part::Pending && of(host))
    }

    /// That of a backup: it is of one moment, so that a part that is late comes too late.
    pub(crate) fn outcome_of_backup(&self, age_micros: i64, standing: impl Fn(&str) -> Standing) -> Outcome {
        let awaited = self.has_pending(|host| match standing(host) {
            Standing::Alive => age_micros < SNAPSHOT_MICROS_MAX,
            Standing::Down => age_micros < PATIENCE_MICROS,
            Standing::Departed => false,
        });
        match (awaited, self.covers(|_, node| Self::is_done(node))) {
            (true, _) => Outcome::Wait,
            (false, true) => Outcome::Complete,
            (false, false) => Outcome::Failed,
        }
    }

    /// That of a restoration: it waits for parts that it cannot do without, as long as there is progress: `idle_micros` since the last.
    pub(crate) fn outcome_of_restoration(
        &self,
        (age_micros, idle_micros): (i64, i64),
        standing: impl Fn(&str) -> Standing,
    ) -> Outcome {
        let (is_patient, is_idle) = (age_micros < PATIENCE_MICROS, idle_micros >= IDLE_MICROS_MAX);
        let awaited = self.has_pending(|host| match standing(host) {
            Standing::Alive => !is_idle,
            Standing::Down => is_patient,
            Standing::Departed => false,
        });
        let may_have = |host: &str, node: &NodePart| {
            Self::is_done(node)
                || node.part == Part::Pending && !is_idle && standing(host) != Standing::Departed
        };
        match () {
            () if !self.covers(may_have) => Outcome::Failed,
            () if awaited => Outcome::Wait,
            () if self.covers(|_, node| Self::is_done(node)) => Outcome::Complete,
            () => Outcome::Wait,
        }
    }

    /// Bytes of all nodes' files.
    pub(crate) fn bytes(&self) -> u64 {
        self.nodes.values().fold(0, |sum, node| match node.part {
            Part::Done(bytes) => sum.saturating_add(bytes),
            Part::Pending | Part::Gone => sum,
        })
    }

    pub(crate) fn json(&self) -> Json {
        let node = |(host, node): (&String, &NodePart)| {
            let part = match node.part {
                Part::Pending => to_json!("pending"),
                Part::Done(bytes) => to_json!(bytes),
                Part::Gone => to_json!("gone"),
            };
            (host.clone(), to_json!([node.datacenter, part]))
        };
        let nodes: Map<String, Json> = self.nodes.iter().map(node).collect();
        to_json!({ "nodes": nodes, "factors": self.factors })
    }

    pub(crate) fn read(json: &Json) -> Option<Self> {
        let node = |(host, node): (&String, &Json)| {
            let part = node.get(1)?;
            let part = match (part.as_str(), part.as_u64()) {
                (Some("pending"), _) => Part::Pending,
                (Some("gone"), _) => Part::Gone,
                (_, Some(bytes)) => Part::Done(bytes),
                _ => return None,
            };
            let datacenter = node.get(0)?.as_str()?.to_owned();
            Some((host.clone(), NodePart { datacenter, part }))
        };
        let factor =
            |(name, factor): (&String, &Json)| Some((name.clone(), u32::try_from(factor.as_u64()?).ok()?));
        let nodes = json.get("nodes")?.as_object()?.iter().map(node).collect::<Option<_>>()?;
        let factors = json.get("factors")?.as_object()?.iter().map(factor).collect::<Option<_>>()?;
        Some(Self { nodes, factors })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes `a`, `b`, … of one datacenter with these parts.
    fn parts(factor: u32, states: &[Part]) -> Parts {
        let node = |(at, part): (usize, &Part)| {
            let host = char::from(b'a' + at as u8).to_string();
            (host, NodePart { datacenter: "dc".to_owned(), part: *part })
        };
        Parts {
            nodes: states.iter().enumerate().map(node).collect(),
            factors: BTreeMap::from([("dc".to_owned(), factor)]),
        }
    }

    use Outcome::{Complete, Failed, Wait};
    use Part::{Done, Gone, Pending};
    const D: Part = Done(7);

    #[test]
    fn parts_are_enough_when_every_quorum_has_one() {
        for (factor, done, lacking_max) in [(1, 3, 0), (2, 3, 1), (3, 5, 1), (4, 5, 2), (5, 7, 2)] {
            for lacking in 0..=done {
                let states: Vec<Part> = (0..done).map(|at| if at < lacking { Gone } else { D }).collect();
                let covers = parts(factor, &states).covers(|_, node| Parts::is_done(node));
                assert_eq!(covers, lacking <= lacking_max, "factor {factor}, {lacking} of {done} lack it");
            }
        }
        let mut elsewhere = parts(3, &[D, D, D]);
        let far = NodePart { datacenter: "far".to_owned(), part: Gone };
        elsewhere.nodes.insert("z".to_owned(), far);
        assert!(elsewhere.covers(|_, node| Parts::is_done(node)), "there are no replicas");
    }

    #[test]
    fn a_backup_waits_for_a_while_and_then_does_without() {
        let of = |factor, states: &[Part], age, standing: Standing| {
            parts(factor, states).outcome_of_backup(age, |_| standing)
        };
        let late = PATIENCE_MICROS;
        assert_eq!(of(3, &[D, D, Pending], 0, Standing::Alive), Wait);
        assert_eq!(of(3, &[D, D, Pending], 0, Standing::Down), Wait);
        assert_eq!(of(3, &[D, D, Pending], 0, Standing::Departed), Complete);
        assert_eq!(of(3, &[D, D, Pending], late, Standing::Alive), Wait);
        assert_eq!(of(3, &[D, D, Pending], late, Standing::Down), Complete);
        assert_eq!(of(3, &[D, D, Pending], SNAPSHOT_MICROS_MAX, Standing::Alive), Complete);
        assert_eq!(of(3, &[D, Pending, Pending], SNAPSHOT_MICROS_MAX, Standing::Alive), Failed);
        assert_eq!(of(3, &[D, D, Gone], 0, Standing::Alive), Complete);
        assert_eq!(of(1, &[D, D, Gone], 0, Standing::Alive), Failed);
        assert_eq!(of(1, &[D, Pending], late, Standing::Down), Failed);
    }

    #[test]
    fn a_restoration_waits_for_nodes_that_it_needs() {
        let of = |factor, states: &[Part], age, standing: Standing| {
            parts(factor, states).outcome_of_restoration((age, 0), |_| standing)
        };
        let idle = |factor, states: &[Part], idle, standing: Standing| {
            parts(factor, states).outcome_of_restoration((2 * IDLE_MICROS_MAX, idle), |_| standing)
        };
        let late = PATIENCE_MICROS;
        assert_eq!(of(3, &[D, D, Pending], late, Standing::Alive), Wait);
        assert_eq!(of(3, &[D, D, Pending], 0, Standing::Down), Wait);
        assert_eq!(of(3, &[D, D, Pending], late, Standing::Down), Complete);
        assert_eq!(of(1, &[D, D, Pending], late, Standing::Down), Wait, "it comes back");
        assert_eq!(of(1, &[D, D, Pending], late, Standing::Departed), Failed);
        assert_eq!(of(3, &[D, D, D], 0, Standing::Alive), Complete);
        assert_eq!(of(3, &[D, Gone, Gone], 0, Standing::Alive), Failed);
        assert_eq!(of(3, &[Pending, Gone, Gone], 0, Standing::Alive), Failed, "at once");
        for standing in [Standing::Alive, Standing::Down] {
            assert_eq!(idle(1, &[D, D, Pending], IDLE_MICROS_MAX - 1, standing), Wait);
            assert_eq!(idle(1, &[D, D, Pending], IDLE_MICROS_MAX, standing), Failed, "nobody acts");
            assert_eq!(idle(3, &[D, D, Pending], IDLE_MICROS_MAX, standing), Complete, "nor needs to");
        }
    }

    #[test]
    fn parts_are_read_as_they_were_written() {
        let written = parts(3, &[Pending, D, Gone]);
        assert_eq!(Parts::read(&written.json()), Some(written));
        assert_eq!(Parts::read(&to_json!({ "nodes": { "a": ["dc", "lost"] }, "factors": {} })), None);
        assert_eq!(Parts::read(&Json::Null), None);
    }
}
