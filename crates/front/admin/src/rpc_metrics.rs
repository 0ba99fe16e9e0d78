//! Metrics of the connections between nodes, by verb; named as ScyllaDB's are where the meaning is the same.

use rpc::{Class, Dropped, RpcStats, Verb, VerbStats};

use crate::node::ShardFigures;
use crate::prometheus::{head, sample};

type Counter = (&'static str, &'static str, fn(&VerbStats) -> u64);

/// By verb.
const COUNTERS: [Counter; 9] = [
    ("scylla_rpc_client_sent_messages", "Requests and messages sent to other nodes.", |v| v.sent),
    ("scylla_rpc_client_replied", "Answers that came from other nodes, refusals included.", |v| v.answers),
    ("scylla_rpc_client_timeout", "Calls of other nodes that ended without an answer in time.", |v| {
        v.timeouts
    }),
    ("torc_rpc_sent_bytes", "Bytes of requests and messages sent to other nodes.", |v| v.sent_bytes),
    ("torc_rpc_replied_bytes", "Bytes of answers that came from other nodes, unpacked.", |v| v.answers_bytes),
    ("torc_rpc_received_messages", "Requests and messages of other nodes.", |v| v.received),
    ("torc_rpc_received_bytes", "Bytes of requests and messages of other nodes, unpacked.", |v| {
        v.received_bytes
    }),
    ("torc_rpc_served", "Requests of other nodes that were served to their end.", |v| v.served),
    ("torc_rpc_served_bytes", "Bytes of answers to other nodes.", |v| v.served_bytes),
];

type Figure = (&'static str, &'static str, &'static str, fn(&RpcStats) -> f64);

/// By shard alone.
const FIGURES: [Figure; 11] = [
    ("scylla_rpc_client_pending", "gauge", "Messages that wait to be written to other nodes.", |s| {
        s.outgoing_count as f64
    }),
    ("scylla_rpc_client_wait_reply", "gauge", "Calls that wait for an answer of another node.", |s| {
        s.calls_waiting as f64
    }),
    ("torc_rpc_pending_bytes", "gauge", "Bytes that wait to be written to other nodes.", |s| {
        s.outgoing_bytes as f64
    }),
    ("torc_rpc_serving", "gauge", "Requests of other nodes that are being served.", |s| s.serving as f64),
    ("torc_rpc_waiting", "gauge", "Requests of other nodes that wait to be served.", |s| s.waiting as f64),
    ("torc_rpc_inbound_bytes", "gauge", "Bytes of requests of other nodes, waiting or being served.", |s| {
        s.inbound_bytes as f64
    }),
    (
        "torc_rpc_forwarding",
        "gauge",
        "Requests of other nodes over connections of this shard that other shards are serving.",
        |s| s.forwarding as f64,
    ),
    (
        "torc_rpc_calls_shared",
        "gauge",
        "Calls of this shard under way over connections of other shards.",
        |s| s.calls_shared as f64,
    ),
    ("torc_rpc_connect_failures", "counter", "Attempts to connect to other nodes that failed.", |s| {
        s.connect_failures as f64
    }),
    ("torc_rpc_connections_lost", "counter", "Connections between nodes that broke.", |s| {
        s.connections_lost as f64
    }),
    (
        "torc_rpc_connections_refused",
        "counter",
        "Connections between nodes that were refused, or closed because of invalid bytes.",
        |s| s.connections_refused as f64,
    ),
];

/// Writes all of them. Verbs that a shard has not met are left out.
pub(crate) fn write(out: &mut String, shards: &[ShardFigures]) {
    let by_shard = || shards.iter().map(|figures| &figures.rpc).enumerate();
    for (name, help, of) in COUNTERS {
        head(out, name, "counter", help);
        for (shard, stats) in by_shard() {
            for verb in Verb::ALL {
                let counted = stats.verb(*verb);
                if counted != VerbStats::default() {
                    let labels = format!("shard=\"{shard}\",domain=\"{}\"", verb.name());
                    sample(out, name, &labels, of(&counted) as f64);
                }
            }
        }
    }
    head(out, "torc_rpc_dropped", "counter", "Messages between nodes that were dropped, by reason.");
    for (shard, stats) in by_shard() {
        for verb in Verb::ALL {
            for why in Dropped::ALL {
                let count = stats.dropped(*verb, why);
                if count > 0 {
                    let labels =
                        format!("shard=\"{shard}\",domain=\"{}\",reason=\"{}\"", verb.name(), why.name());
                    sample(out, "torc_rpc_dropped", &labels, count as f64);
                }
            }
        }
    }
    for (name, help, of) in [
        (
            "scylla_rpc_client_count",
            "Open connections that this node has made to others.",
            out_of as fn(&RpcStats, usize) -> usize,
        ),
        ("torc_rpc_server_count", "Open connections that other nodes have made to this one.", in_of),
    ] {
        head(out, name, "gauge", help);
        for (shard, stats) in by_shard() {
            for class in Class::ALL {
                let labels = format!("shard=\"{shard}\",domain=\"{}\"", class.name());
                sample(out, name, &labels, of(stats, class as usize) as f64);
            }
        }
    }
    for (name, kind, help, of) in FIGURES {
        head(out, name, kind, help);
        for (shard, stats) in by_shard() {
            sample(out, name, &format!("shard=\"{shard}\""), of(stats));
        }
    }
}

fn out_of(stats: &RpcStats, class: usize) -> usize {
    stats.connections_out.get(class).copied().unwrap_or(0)
}

fn in_of(stats: &RpcStats, class: usize) -> usize {
    stats.connections_in.get(class).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_verbs_are_exported_by_name() {
        let mut rpc = RpcStats { verbs: vec![VerbStats::default(); Verb::COUNT], ..RpcStats::default() };
        rpc.verbs[Verb::Read.index()] = VerbStats { sent: 3, timeouts: 1, ..VerbStats::default() };
        rpc.verbs[Verb::Apply.index()].dropped[Dropped::QueueFull.index()] = 2;
        rpc.connections_out[Class::Bulk as usize] = 5;
        let mut out = String::new();
        write(&mut out, &[ShardFigures { rpc, ..ShardFigures::default() }]);
        for line in [
            "scylla_rpc_client_sent_messages{shard=\"0\",domain=\"read\"} 3",
            "scylla_rpc_client_timeout{shard=\"0\",domain=\"read\"} 1",
            "torc_rpc_dropped{shard=\"0\",domain=\"apply\",reason=\"queue_full\"} 2",
            "scylla_rpc_client_count{shard=\"0\",domain=\"bulk\"} 5",
            "scylla_rpc_client_pending{shard=\"0\"} 0",
        ] {
            assert!(out.lines().any(|other| other == line), "{line} is not in:\n{out}");
        }
        assert!(!out.contains("domain=\"gossip\""), "it was not met");
    }
}
