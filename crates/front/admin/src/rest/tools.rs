//! Small questions that ScyllaDB's `nodetool` and Scylla Manager ask at its paths: work that waits, caches that do not exist here, messages by
//! node, streams.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use engine::EngineStats;
use membership::FetchFigures;
use rpc::Verb;
use serde_json::{Value, json};

use super::{averages, figures, hints, ring, table_metrics, tables};
use crate::names::{self, bad, given};
use crate::{Answer, Call, Node};

/// How long a read barrier waits when the request does not say.
const BARRIER_TIMEOUT: Duration = Duration::from_secs(60);

/// The answer to such a request; none when it is for something else.
pub(super) async fn answer(
    node: &Rc<dyn Node>,
    call: &Call,
    segments: &[&str],
) -> Option<Result<Answer, Answer>> {
    if call.method != "GET" {
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
        ["stream_manager", "metrics", "incoming"] => {
            streamed(node, |fetch| fetch.bytes + fetch.file_bytes).await
        }
        ["stream_manager", "metrics", "outgoing"] => streamed(node, |fetch| fetch.sending_bytes).await,
        ["storage_service", "raft_topology", "upgrade"] => json!("done"),
        ["storage_service", "metrics", "load"] => json!(figures::load(node).await),
        ["storage_service", "metrics", "total_hints"] => hints::count(node).await,
        ["storage_service", "metrics", "hints_in_progress"] => {
            figures::sample(node, "scylla_hints_manager_pending_sends").await
        }
        ["service_levels", "count_connections"] => connections(node).await,
        ["commitlog", "segments", which @ ("active" | "archiving")] => {
            let [active, archiving] = node.commitlog_segments().await;
            json!(if *which == "active" { active } else { archiving })
        }
        ["commitlog", "metrics", figure] => commit_log(node, figure).await?,
        ["messaging_service", "messages", "dropped_by_ver"] => dropped(node).await,
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
        ("POST", ["storage_service", "drop_quarantined_sstables"]) => drop_quarantined(node, call),
        // Streams follow the ring by themselves, permissions are not cached, and each request looks for its service level.
        ("POST", ["storage_service", "cdc_streams_check_and_repair"])
        | ("POST", ["authorization_cache", "reset"])
        | ("POST", ["service_levels", "switch_tenants"]) => Ok(Answer::done()),
        ("POST", ["raft", "read_barrier"]) => read_barrier(node, call).await,
        _ => return None,
    })
}

/// Drops no SSTable, for none of a table is quarantined: damaged ones are out of it. Names that are not there are refused.
fn drop_quarantined(node: &Rc<dyn Node>, call: &Call) -> Result<Answer, Answer> {
    match given(call, "keyspace") {
        Some(keyspace) => drop(names::tables(&node.schema(), keyspace, call.parameter("tables"))?),
        None if given(call, "tables").is_some() => {
            return Err(bad("tables are those of a keyspace: name it"));
        }
        None => {}
    }
    Ok(Answer::done())
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

/// A figure of the streaming of the last topology change.
async fn streamed(node: &Rc<dyn Node>, of: fn(&FetchFigures) -> u64) -> Value {
    json!(node.figures().await.iter().map(|shard| of(&shard.fetch)).sum::<u64>())
}

/// A figure of the commit log; none for another.
async fn commit_log(node: &Rc<dyn Node>, figure: &str) -> Option<Value> {
    let of: fn(&EngineStats) -> u64 = match figure {
        "completed_tasks" => |engine| engine.commitlog_entries,
        "pending_tasks" => |engine| engine.commitlog_pending,
        "total_commit_log_size" => |engine| engine.commitlog_disk_bytes,
        "max_disk_size" => {
            let mib: u64 = node.setting("commitlog_total_space_in_mb")?.value.parse().ok()?;
            return Some(json!(mib << 20));
        }
        _ => return None,
    };
    Some(figures::storage_figure(node, of).await)
}

/// Connections of CQL by their service level and role.
async fn connections(node: &Rc<dyn Node>) -> Value {
    let mut counts: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for client in node.clients().await {
        let of_level = counts.entry(format!("sl:{}", client.service_level)).or_default();
        *of_level.entry(client.username).or_insert(0) += 1;
    }
    json!(counts)
}

/// Dropped messages by verb.
async fn dropped(node: &Rc<dyn Node>) -> Value {
    let shards = node.figures().await;
    let one = |verb: &Verb| json!({ "verb": verb.name(), "count": figures::dropped(&shards, *verb) });
    Verb::ALL.iter().map(one).collect()
}

/// Messages by the node that they are exchanged with; none for another kind.
async fn messages(node: &Rc<dyn Node>, kind: &str) -> Option<Value> {
    let of: fn(&rpc::PeerStats) -> u64 = match kind {
        "pending" => |peer| peer.pending.count,
        "sent" => |peer| peer.sent.count,
        "dropped" => |peer| peer.overloaded.count + peer.expired_unsent.count + peer.unsent.count,
        "timeout" => |peer| peer.timeouts,
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
