//! Order of the replicas of a read, slow ones last, and the delay of speculative retry: by the recent read latencies of this shard.

use std::sync::Arc;
use std::time::Duration;

use replica::{Partitions, ReadCommand};
use rt::{Instant, Rt};
use schema::{Schema, SpeculativeRetry, Table};
use topology::{ClusterView, NodeIndex};

use crate::recent::RecentReads;
use crate::slowness::{Hosts, Waiting, Waits};

/// The recent latencies of a shard's reads: by table, and by node.
pub(crate) struct ReadLatencies {
    rt: Rt,
    /// Reads of several replicas, by table.
    recent: RecentReads,
    /// How long the reads of other nodes took.
    waits: Waits,
}

impl ReadLatencies {
    pub(crate) fn new(rt: &Rt) -> Self {
        Self { rt: rt.clone(), recent: RecentReads::default(), waits: Waits::default() }
    }

    /// Forgets nodes that are not in the cluster any more.
    pub(crate) fn keep_hosts(&self, view: &ClusterView) {
        self.waits.keep(|host| view.index_of(host).is_some());
    }

    /// After how long a read of a table is sent to a further replica (speculative retry).
    pub(crate) fn speculation(&self, table: &Table) -> Option<Duration> {
        let now = self.rt.now();
        speculation_delay(&table.options.speculative_retry, |share| self.recent.below(table.id, share, now))
    }

    /// A read that began then has ended; `schema` has the tables that there are.
    pub(crate) fn note(
        &self,
        command: &ReadCommand,
        (began, now): (Instant, Instant),
        schema: impl Fn() -> Arc<Schema>,
    ) {
        if is_of_one_partition(command) {
            let known = |id| schema().table_by_id(id).is_some();
            self.recent.ended(command.table.id, now - began, now, known);
        }
    }

    /// Of these replicas, those that have been slow of late, compared with others as near.
    pub(crate) fn slow_among(&self, view: &ClusterView, replicas: &[NodeIndex]) -> Hosts {
        let now = self.rt.now();
        let slow = |far: bool| {
            let others = replicas.iter().filter(|node| **node != view.own() && view.is_alive(**node));
            let equals =
                others.filter(|node| (view.distance(**node) >= ClusterView::OTHER_DATACENTER) == far);
            let equals: Hosts = equals.map(|node| view.node(*node).host).collect();
            if equals.len() > 1 { self.waits.slow(&equals, now) } else { Hosts::new() }
        };
        let mut all = slow(false);
        all.extend(slow(true));
        assert!(all.len() <= replicas.len(), "only replicas are slow ones");
        debug_assert!(!all.contains(&view.node(view.own()).host), "a node does not wait for itself");
        all
    }

    /// A read is sent to a node: until the result is dropped, the node is waited for. None for reads that say nothing about a node.
    pub(crate) fn wait_for(
        &self,
        view: &ClusterView,
        node: NodeIndex,
        command: &ReadCommand,
    ) -> Option<Waiting<'_>> {
        let is_telling = node != view.own() && is_of_one_partition(command);
        is_telling.then(|| Waiting::new(&self.waits, &self.rt, view.node(node).host))
    }
}

/// Reads of one partition are alike enough to be compared.
fn is_of_one_partition(command: &ReadCommand) -> bool {
    matches!(&command.partitions, Partitions::Keys(keys) if keys.len() == 1)
}

/// After how long a further replica is queried, when those queried have not answered. `latency` gives the latency below which a
/// share (0–1) of the recent reads stayed.
pub(crate) fn speculation_delay(
    retry: &SpeculativeRetry,
    latency: impl Fn(f64) -> Option<Duration>,
) -> Option<Duration> {
    // A schema of an earlier version may hold a number that is no time.
    let millis = |millis: f64| Duration::try_from_secs_f64(millis.max(0.0) / 1000.0).unwrap_or(Duration::MAX);
    match retry {
        SpeculativeRetry::Never => None,
        SpeculativeRetry::Always => Some(Duration::ZERO),
        SpeculativeRetry::Millis(fixed) => Some(millis(*fixed)),
        SpeculativeRetry::Percentile(percentile) => latency(percentile / 100.0),
        SpeculativeRetry::Hybrid { min, percentile, millis: fixed } => {
            let fixed = millis(*fixed);
            let measured = latency(percentile / 100.0).unwrap_or(fixed);
            Some(if *min { measured.min(fixed) } else { measured.max(fixed) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_of_speculative_retry() {
        let measured = |share: f64| (share > 0.5).then_some(Duration::from_millis(20));
        let millis =
            |retry: &SpeculativeRetry| speculation_delay(retry, measured).map(|delay| delay.as_millis());
        let hybrid = |min, percentile, millis| SpeculativeRetry::Hybrid { min, percentile, millis };
        assert_eq!(millis(&SpeculativeRetry::Never), None);
        assert_eq!(millis(&SpeculativeRetry::Always), Some(0));
        assert_eq!(millis(&SpeculativeRetry::Millis(7.0)), Some(7));
        assert_eq!(millis(&SpeculativeRetry::Percentile(99.0)), Some(20));
        assert_eq!(millis(&SpeculativeRetry::Percentile(10.0)), None, "not measured yet");
        assert_eq!(millis(&hybrid(true, 99.0, 7.0)), Some(7));
        assert_eq!(millis(&hybrid(false, 99.0, 7.0)), Some(20));
        assert_eq!(millis(&hybrid(false, 10.0, 7.0)), Some(7));
        // Values that an earlier version accepted: no time, and too long a time.
        assert_eq!(millis(&SpeculativeRetry::Millis(f64::NAN)), Some(0));
        for long in [f64::INFINITY, 1e300] {
            assert_eq!(millis(&SpeculativeRetry::Millis(long)), Some(Duration::MAX.as_millis()));
            assert_eq!(millis(&hybrid(true, 99.0, long)), Some(20));
        }
    }
}
