//! Small questions that ScyllaDB's `nodetool` and Scylla Manager ask at its paths: work that waits, caches that do not exist here, messages by
//! node, streams.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{averages, figures, ring, table_metrics, tables};
use crate::names::{bad, given};
use crate::{Answer, Call, Node};

/// How long a read barrier waits when the request does not say.
const BARRIER_TIMEOUT: Duration = Duration::from_secs(60);

/// The answer to such a request; none when it is for something else.
pub(super) async fn answer(
    node: &Rc<dyn Node>,
    call: &Call,
    segments: &[&str],
) -> Option<Result<Answer, Answer>> {
    if call.method != "GET" || segments.first() == Some(&"task_manager") {
        return change(node, call, segments).await;
    }
    if let Some(asked) = table_metrics::answer(node, segments).await {
        return Some(asked.map(|value| Answer::json(&value)));
    }
    let value = match segments {
        ["compaction_manager", "metrics", "pending_tasks_by_table"] => pending(node).await,
        ["cache_service", "metrics", cache, figure] => cached(node, cache, figure).await?,
        [
            "cache_service",
            "key_cache_save_period" | "row_cache_save_period" | "counter_cache_save_period",
        ] => {
            json!(0)
        }
        // Thrift is not spoken.
        ["storage_service", "rpc_server"] => json!(false),
        ["storage_service", "is_initialized"] => {
            json!(!matches!(node.mode(), crate::Mode::Starting | crate::Mode::Joining))
        }
        // Exceptions are not counted: a request's failures are among the metrics of its kind.
        ["storage_service", "metrics", "exceptions"] => json!(0),
        ["storage_service", "data_file", "locations"] => {
            json!([node.setting("data_file_directories")?.value])
        }
        ["storage_service", "commitlog"] => json!(node.setting("commitlog_directory")?.value),
        // Caches are not saved.
        ["storage_service", "saved_caches", "location"] => json!(""),
        ["storage_service", "drain"] => json!("Drained 0/0 ColumnFamilies"),
        // /torc/topology shows the streams of a topology change.
        ["stream_manager"] => json!([]),
        ["messaging_service", "messages", kind] => messages(node, kind).await?,
        ["v2", "error_injection", "injection"] => json!([]),
        _ => return None,
    };
    Some(Ok(Answer::json(&value)))
}

async fn change(node: &Rc<dyn Node>, call: &Call, segments: &[&str]) -> Option<Result<Answer, Answer>> {
    Some(match (call.method.as_str(), segments) {
        ("POST", ["storage_service", "compact"]) => compact_all(node, call).await,
        ("POST", ["storage_service", "keyspace_offstrategy_compaction", keyspace]) => {
            // No SSTables are kept apart for such compactions: none was needed.
            let known = tables::chosen(node, call, keyspace);
            known.map(|_| Answer::json(&json!(false)))
        }
        ("POST" | "DELETE", ["storage_service", "gossiping"]) => {
            Err(bad("a member always gossips; drain or stop the node to take it out of service"))
        }
        // Streams follow the ring by themselves.
        ("POST", ["storage_service", "cdc_streams_check_and_repair"]) => Ok(Answer::done()),
        ("POST", ["storage_service", "relocal_schema"]) => Err(bad(
            "the schema is in the cluster's log, and a node cannot have another: there is nothing to reload",
        )),
        ("POST", ["storage_service", "exclude_node"]) => {
            Err(bad("nodes are not excluded: remove one that will not come back with remove_node"))
        }
        (_, ["task_manager", ..]) => Err(bad(
            "there is no task manager: /compaction_manager, /storage_service/repair_async and /torc/topology show the work under way",
        )),
        (_, ["storage_service", "tablets", ..]) => Err(bad(
            "there are no tablets: tables lie with their keyspaces, and nodetool repair repairs them",
        )),
        (_, ["storage_service", "backup" | "restore"]) => Err(bad(
            "SSTables are not sent to object storage: copy the files of a snapshot, and load them by /torc/import",
        )),
        (_, ["storage_service", "truncate", ..]) => {
            Err(bad("a table is truncated on all nodes at once: use the statement TRUNCATE of CQL"))
        }
        ("POST", ["raft", "read_barrier"]) => read_barrier(node, call).await,
        (_, ["raft", ..]) => Err(bad(
            "the cluster's log is no Raft group of ScyllaDB's: only /raft/read_barrier means something here",
        )),
        // Permissions are not cached.
        ("POST", ["authorization_cache", "reset"]) => Ok(Answer::done()),
        _ => return None,
    })
}

/// Returns when the node has applied all that the cluster's log had: one log there is, so that the group is not asked for.
async fn read_barrier(node: &Rc<dyn Node>, call: &Call) -> Result<Answer, Answer> {
    let timeout = match given(call, "timeout") {
        None => BARRIER_TIMEOUT,
        Some(text) => {
            let seconds = text.parse::<u32>().ok().filter(|seconds| *seconds > 0);
            let seconds =
                seconds.ok_or_else(|| bad(format!("timeout is a number of seconds, not {text}")))?;
            Duration::from_secs(seconds.into())
        }
    };
    node.read_barrier(timeout).await.map(|()| Answer::done()).map_err(|error| Answer::error(500, error))
}

async fn compact_all(node: &Rc<dyn Node>, call: &Call) -> Result<Answer, Answer> {
    for keyspace in node.schema().keyspaces() {
        tables::compact(node, call, &keyspace.name).await?;
    }
    Ok(Answer::done())
}

/// Compactions that wait, of the tables that have some.
async fn pending(node: &Rc<dyn Node>) -> Value {
    let schema = node.schema();
    let mut waiting = BTreeMap::new();
    for shard in node.figures().await {
        for (id, stats) in shard.engine.tables {
            *waiting.entry(id).or_insert(0) += stats.compactions_pending;
        }
    }
    let one = |(id, count): (schema::TableId, u64)| {
        let table = schema.table_by_id(id).filter(|_| count > 0)?;
        Some(json!({ "ks": table.keyspace, "cf": table.name, "task": count }))
    };
    waiting.into_iter().filter_map(one).collect()
}

/// A figure of a cache that does not exist here, or a moving average; none for the others.
async fn cached(node: &Rc<dyn Node>, cache: &str, figure: &str) -> Option<Value> {
    let count = match figure {
        "hits_moving_avrage" => Some("hits"),
        "requests_moving_avrage" => Some("requests"),
        _ => None,
    };
    match (cache, count) {
        ("key" | "counter", Some(_)) => Some(averages::counted(0, node)),
        ("key" | "counter", None) => {
            let known = ["entries", "size", "capacity", "hits", "requests", "hit_rate"];
            known.contains(&figure).then(|| json!(0))
        }
        ("row", Some(count)) => {
            let count = figures::cache(node, cache, count).await?.as_u64()?;
            Some(averages::counted(count, node))
        }
        _ => None,
    }
}

/// Messages by the node that they are exchanged with; none for another kind.
async fn messages(node: &Rc<dyn Node>, kind: &str) -> Option<Value> {
    let of: fn(&rpc::PeerStats) -> u64 = match kind {
        "pending" => |peer| peer.pending.count,
        "sent" => |peer| peer.sent.count,
        // Answers are among the received messages.
        "respond_completed" => |peer| peer.received.count,
        "respond_pending" => |_| 0,
        _ => return None,
    };
    let mut sums = BTreeMap::new();
    for shard in node.figures().await {
        for (host, peer) in &shard.rpc.peers {
            *sums.entry(*host).or_insert(0) += of(peer);
        }
    }
    let view = node.view();
    let known = view.nodes().iter().filter_map(|member| Some((member, sums.get(&member.host)?)));
    let one = |(member, count)| json!({ "key": ring::name(member), "value": count });
    Some(known.map(one).collect())
}
