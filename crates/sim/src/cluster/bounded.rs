//! Checker: when nothing is asked of the nodes any more, nothing waits in them, and what they hold keeps to its limits, by their
//! own metrics.

use std::net::SocketAddr;
use std::time::Duration;

use crate::cluster::director::ClusterDirector;

/// Must be zero on every shard once the nodes are at rest.
const EMPTY: [&str; 4] = [
    "scylla_database_requests_blocked_memory_current",
    "scylla_commitlog_pending_allocations",
    "torc_batchlog_waiting",
    "torc_transport_requests_waiting",
];
/// The first may not be larger than the second.
const LIMITED: [(&str, &str); 1] = [("scylla_memory_allocated_memtables", "scylla_memory_memtables_max")];
/// How long the nodes may take to come to rest.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Reads the metrics of every node until they are as they must be.
pub(crate) async fn check(director: &mut ClusterDirector) -> Result<(), String> {
    for nth in director.present() {
        let address = SocketAddr::new(director.server(nth).ip(), crate::cluster::METRICS_PORT);
        let begun = director.sim.now();
        loop {
            let metrics = crate::rest::get(&director.rt, address, "/metrics").await;
            let metrics = metrics.map_err(|problem| format!("metrics of node {nth}: {problem}"))?;
            let Some(problem) = judge(&metrics) else { break };
            if director.sim.now() - begun > TIME_MAX {
                return Err(format!("node {nth} after {TIME_MAX:?} of rest: {problem}"));
            }
            director.rt.sleep(Duration::from_secs(1)).await;
        }
    }
    Ok(())
}

/// What is wrong with a node's metrics, if anything.
fn judge(metrics: &str) -> Option<String> {
    for name in EMPTY {
        if let Some((labels, value)) = values(metrics, name).find(|(_, value)| *value != 0.0) {
            return Some(format!("{name}{labels} is {value}"));
        }
    }
    for (name, limit) in LIMITED {
        for (labels, value) in values(metrics, name) {
            let most = values(metrics, limit).find(|(of, _)| *of == labels);
            if most.is_none_or(|(_, most)| value > most) {
                return Some(format!("{name}{labels} is {value}, {limit} says {most:?}"));
            }
        }
    }
    None
}

/// Labels and value of every line of a metric.
fn values<'a>(metrics: &'a str, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
    metrics.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = rest.rsplit_once(' ')?;
        (labels.is_empty() || labels.starts_with('{')).then_some((labels, value.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_judged() {
        let rest = "scylla_memory_allocated_memtables{shard=\"0\"} 10\nscylla_memory_memtables_max{shard=\"0\"} 10\n";
        assert_eq!(judge(rest), None);
        let waits = format!("{rest}torc_batchlog_waiting{{shard=\"1\"}} 2\n");
        assert_eq!(judge(&waits).as_deref(), Some("torc_batchlog_waiting{shard=\"1\"} is 2"));
        let large = rest.replace("max{shard=\"0\"} 10", "max{shard=\"0\"} 9");
        assert!(judge(&large).is_some_and(|problem| problem.contains("is 10")));
    }
}
