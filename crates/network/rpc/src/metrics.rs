//! The metrics of the connections between nodes, by verb; named as ScyllaDB's are where the meaning is the same.

use rt::metrics;
use rt::metrics::{Labels, Metric};

use crate::stats::{Dropped, RpcStats, VerbStats};
use crate::verb::{Class, Verb};

type Each<'a> = &'a mut dyn FnMut(Labels<'_>, f64);

/// Verbs that a shard has not met are left out.
fn by_verb(stats: &RpcStats, each: Each<'_>, of: fn(&VerbStats) -> u64) {
    for verb in Verb::ALL {
        let counted = stats.verb(*verb);
        if counted != VerbStats::default() {
            each(&[("domain", verb.name())], of(&counted) as f64);
        }
    }
}

fn dropped(stats: &RpcStats, each: Each<'_>) {
    for verb in Verb::ALL {
        for why in Dropped::ALL {
            let count = stats.dropped(*verb, why);
            if count > 0 {
                each(&[("domain", verb.name()), ("reason", why.name())], count as f64);
            }
        }
    }
}

fn by_class(connections: &[usize], each: Each<'_>) {
    for (class, count) in Class::ALL.iter().zip(connections) {
        each(&[("domain", class.name())], *count as f64);
    }
}

impl RpcStats {
    /// The metrics of a shard's connections to other nodes.
    pub const METRICS: &[Metric<Self>] = metrics! {
        counter "scylla_rpc_client_sent_messages" "Requests and messages sent to other nodes." each |s, each| by_verb(s, each, |v| v.sent);
        counter "scylla_rpc_client_replied" "Answers that came from other nodes, refusals included." each |s, each| by_verb(s, each, |v| v.answers);
        counter "scylla_rpc_client_timeout" "Calls of other nodes that ended without an answer in time." each |s, each| by_verb(s, each, |v| v.timeouts);
        counter "torc_rpc_sent_bytes" "Bytes of requests and messages sent to other nodes." each |s, each| by_verb(s, each, |v| v.sent_bytes);
        counter "torc_rpc_replied_bytes" "Bytes of answers that came from other nodes, unpacked." each |s, each| by_verb(s, each, |v| v.answers_bytes);
        counter "torc_rpc_received_messages" "Requests and messages of other nodes." each |s, each| by_verb(s, each, |v| v.received);
        counter "torc_rpc_received_bytes" "Bytes of requests and messages of other nodes, unpacked." each |s, each| by_verb(s, each, |v| v.received_bytes);
        counter "torc_rpc_served" "Requests of other nodes that were served to their end." each |s, each| by_verb(s, each, |v| v.served);
        counter "torc_rpc_served_bytes" "Bytes of answers to other nodes." each |s, each| by_verb(s, each, |v| v.served_bytes);
        counter "torc_rpc_dropped" "Messages between nodes that were dropped, by reason." each |s, each| dropped(s, each);
        gauge "scylla_rpc_client_count" "Open connections that this node has made to others." each |s, each| by_class(&s.connections_out, each);
        gauge "torc_rpc_server_count" "Open connections that other nodes have made to this one." each |s, each| by_class(&s.connections_in, each);
        gauge "scylla_rpc_client_pending" "Messages that wait to be written to other nodes." |s| s.outgoing_count as f64;
        gauge "scylla_rpc_client_wait_reply" "Calls that wait for an answer of another node." |s| s.calls_waiting as f64;
        gauge "torc_rpc_pending_bytes" "Bytes that wait to be written to other nodes." |s| s.outgoing_bytes as f64;
        gauge "torc_rpc_serving" "Requests of other nodes that are being served." |s| s.serving as f64;
        gauge "torc_rpc_waiting" "Requests of other nodes that wait to be served." |s| s.waiting as f64;
        gauge "torc_rpc_inbound_bytes" "Bytes of requests of other nodes, waiting or being served." |s| s.inbound_bytes as f64;
        gauge "torc_rpc_forwarding" "Requests of other nodes over connections of this shard that other shards are serving." |s| s.forwarding as f64;
        gauge "torc_rpc_calls_shared" "Calls of this shard under way over connections of other shards." |s| s.calls_shared as f64;
        counter "torc_rpc_connect_failures" "Attempts to connect to other nodes that failed." |s| s.connect_failures as f64;
        counter "torc_rpc_connections_lost" "Connections between nodes that broke." |s| s.connections_lost as f64;
        counter "torc_rpc_connections_refused" "Connections between nodes that were refused, or closed because of invalid bytes." |s| s.connections_refused as f64;
    };
}

#[cfg(test)]
mod tests {
    use rt::metrics::{Value, collect};

    use super::*;

    #[test]
    fn used_verbs_are_exported_by_name() {
        let mut stats = RpcStats { verbs: vec![VerbStats::default(); Verb::COUNT], ..RpcStats::default() };
        stats.verbs[Verb::Read.index()] = VerbStats { sent: 3, timeouts: 1, ..VerbStats::default() };
        stats.verbs[Verb::Apply.index()].dropped[Dropped::QueueFull.index()] = 2;
        stats.connections_out[Class::Bulk as usize] = 5;
        let mut samples = Vec::new();
        collect(RpcStats::METRICS, &stats, &[], &mut samples);
        let value = |name: &str, labels: &[&str]| {
            let found = samples.iter().find(|sample| {
                sample.name == name
                    && sample.labels.iter().map(|(_, value)| value.as_str()).eq(labels.iter().copied())
            });
            found.map(|sample| sample.value.clone())
        };
        assert_eq!(value("scylla_rpc_client_sent_messages", &["read"]), Some(Value::Number(3.0)));
        assert_eq!(value("scylla_rpc_client_timeout", &["read"]), Some(Value::Number(1.0)));
        assert_eq!(value("torc_rpc_dropped", &["apply", "queue_full"]), Some(Value::Number(2.0)));
        assert_eq!(value("scylla_rpc_client_count", &["bulk"]), Some(Value::Number(5.0)));
        assert_eq!(value("scylla_rpc_client_pending", &[]), Some(Value::Number(0.0)));
        assert_eq!(value("scylla_rpc_client_sent_messages", &["gossip"]), None, "it was not met");
    }
}
