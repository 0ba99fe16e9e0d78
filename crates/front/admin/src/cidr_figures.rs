//! The figures of the check of addresses at logins (`cidr_authorizer`), by the names of Cassandra's `cidr_filtering_metrics_counts` and
//! `cidr_filtering_metrics_latencies`.

use std::collections::BTreeMap;

use stdx::RecentFigures;

/// The checks of a shard, or of all of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CidrFigures {
    /// Logins that were let in since the start, by the group of their address.
    pub accepted: BTreeMap<String, u64>,
    /// Logins that were refused since the start, by the group of their address.
    pub rejected: BTreeMap<String, u64>,
    /// Nanoseconds of the checks of the last one to two minutes.
    pub checks: RecentFigures,
    /// Nanoseconds of the searches for the groups of an address, of the same time.
    pub lookups: RecentFigures,
}

impl CidrFigures {
    /// The sum of those of shards.
    pub fn sum<'a>(shards: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sum = Self::default();
        for shard in shards {
            for (to, from) in [(&mut sum.accepted, &shard.accepted), (&mut sum.rejected, &shard.rejected)] {
                from.iter().for_each(|(group, count)| *to.entry(group.clone()).or_default() += count);
            }
            sum.checks.merge(&shard.checks);
            sum.lookups.merge(&shard.lookups);
        }
        sum
    }

    /// The counts. The groups are in the schema and no cache of them is ever loaded again: the last one is 0.
    pub fn counts(&self) -> Vec<(String, u64)> {
        let named = |how: &'static str| {
            move |(group, count): (&String, &u64)| {
                (format!("Number of CIDR accesses {how} from CIDR group - {group}"), *count)
            }
        };
        let accepted = self.accepted.iter().map(named("accepted"));
        let rejected = self.rejected.iter().map(named("rejected"));
        let reloads = ("CIDR groups cache reload count".to_owned(), 0);
        accepted.chain(rejected).chain([reloads]).collect()
    }

    /// The latencies in nanoseconds, each as its percentiles 50, 95, 99 and 99.9 and the largest.
    pub fn latencies(&self) -> Vec<(&'static str, [f64; 5])> {
        let of = |figures: &RecentFigures| {
            let at = |share| figures.percentile(share) as f64;
            [at(0.5), at(0.95), at(0.99), at(0.999), figures.max as f64]
        };
        vec![
            ("CIDR checks latency (ns)", of(&self.checks)),
            ("CIDR groups cache reload latency (ns)", [0.0; 5]),
            ("Lookup IP in CIDR groups cache latency (ns)", of(&self.lookups)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use stdx::Recent;

    use super::*;

    #[test]
    fn shards_are_added_and_named_as_in_cassandra() {
        let recent = Recent::default();
        (1..=4).for_each(|value| recent.add(value, 1));
        let groups = |pairs: &[(&str, u64)]| -> BTreeMap<String, u64> {
            pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
        };
        let one = CidrFigures {
            accepted: groups(&[("a", 2)]),
            rejected: groups(&[("b", 1)]),
            checks: recent.figures(1),
            ..CidrFigures::default()
        };
        let sum = CidrFigures::sum([&one, &one, &CidrFigures::default()]);
        let counts = sum.counts();
        assert_eq!(counts[0], ("Number of CIDR accesses accepted from CIDR group - a".to_owned(), 4));
        assert_eq!(counts[1], ("Number of CIDR accesses rejected from CIDR group - b".to_owned(), 2));
        assert_eq!(counts[2].1, 0);
        assert_eq!(sum.latencies()[0], ("CIDR checks latency (ns)", [2.0, 4.0, 4.0, 4.0, 4.0]));
    }
}
