//! The limits that a node's metrics may not exceed while clients work, and the queues that must be empty when they have ended.

/// Must be zero on every shard once the nodes are at rest.
const EMPTY: [&str; 14] = [
    "torc_hints_kept",
    "torc_hints_kept_bytes",
    "torc_hints_replaying",
    "scylla_hints_manager_size_of_hints_in_progress",
    "scylla_hints_manager_pending_sends",
    "scylla_rpc_client_pending",
    "torc_rpc_pending_bytes",
    "torc_rpc_waiting",
    "torc_rpc_forwarding",
    "torc_rpc_calls_shared",
    "scylla_database_requests_blocked_memory_current",
    "scylla_commitlog_pending_allocations",
    "torc_batchlog_waiting",
    "torc_transport_requests_waiting",
];

/// The first may not be larger than the second by more than the third: requests admitted below the limit are admitted whole, and a write that is
/// applied as one (a batch, a page of rows from a repair), with the terms of its rows in indexes, takes this much here at most.
const LIMITED: [(&str, &str, f64); 1] =
    [("scylla_memory_allocated_memtables", "scylla_memory_memtables_max", 40_960.0)];
/// Limits that no shard may ever exceed, as the crates state them.
const NEVER_ABOVE: [(&str, f64); 6] = [
    // `hints::HintsConfig`: bytes that wait to be written, and hints on their way to two nodes at once.
    ("scylla_hints_manager_size_of_hints_in_progress", 8_388_608.0),
    ("scylla_hints_manager_pending_sends", 64.0),
    // `rpc::Limits`: pending bytes; requests of three classes; their bytes, with the extra ones of bulk and urgent requests.
    ("torc_rpc_pending_bytes", 134_217_728.0),
    ("torc_rpc_serving", 12_288.0),
    ("torc_rpc_waiting", 196_608.0),
    ("torc_rpc_inbound_bytes", 184_549_376.0),
];

/// A limit that is exceeded, which must never be.
pub(crate) fn exceeded(metrics: &str) -> Option<String> {
    for (name, most) in NEVER_ABOVE {
        if let Some((labels, value)) = values(metrics, name).find(|(_, value)| *value > most) {
            return Some(format!("{name}{labels} is {value}, more than {most}"));
        }
    }
    for (name, limit, beyond) in LIMITED {
        for (labels, value) in values(metrics, name) {
            let most = values(metrics, limit).find(|(of, _)| *of == labels);
            if most.is_none_or(|(_, most)| value > most + beyond) {
                return Some(format!("{name}{labels} is {value}, {limit} says {most:?}"));
            }
        }
    }
    None
}

/// The violation in the metrics of a node at rest, if there is one.
pub(crate) fn judge(metrics: &str) -> Option<String> {
    for name in EMPTY {
        if let Some((labels, value)) = values(metrics, name).find(|(_, value)| *value != 0.0) {
            return Some(format!("{name}{labels} is {value}"));
        }
    }
    exceeded(metrics)
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
        let rest = "scylla_memory_allocated_memtables{shard=\"0\"} 40970\nscylla_memory_memtables_max{shard=\"0\"} 10\n";
        assert_eq!(judge(rest), None);
        let waits = format!("{rest}torc_batchlog_waiting{{shard=\"1\"}} 2\n");
        assert_eq!(judge(&waits).as_deref(), Some("torc_batchlog_waiting{shard=\"1\"} is 2"));
        let large = rest.replace("max{shard=\"0\"} 10", "max{shard=\"0\"} 9");
        assert!(judge(&large).is_some_and(|problem| problem.contains("is 40970")));
    }
}
