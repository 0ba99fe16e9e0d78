//! Figures of the whole node over REST: load, caches, latencies, tasks, messages.

use std::rc::Rc;

use rpc::{Dropped, Verb};
use rt::metrics::{self, Latencies, Sample};
use serde_json::{Value, json};

use crate::{Node, ShardFigures};

/// The bytes of a node's live SSTables, over all shards.
pub async fn load(node: &Rc<dyn Node>) -> u64 {
    let shards = node.figures().await;
    shards.iter().flat_map(|shard| &shard.engine.tables).map(|(_, table)| table.disk_bytes).sum()
}

/// A figure of storage, over all shards.
pub(super) async fn storage_figure(node: &Rc<dyn Node>, of: fn(&engine::EngineStats) -> u64) -> Value {
    let shards = node.figures().await;
    json!(shards.iter().map(|shard| of(&shard.engine)).sum::<u64>())
}

/// A figure of a cache; none when there is no such figure or cache.
pub(super) async fn cache(node: &Rc<dyn Node>, cache: &str, figure: &str) -> Option<Value> {
    let shards = node.figures().await;
    let engine =
        |of: fn(&engine::EngineStats) -> u64| shards.iter().map(|shard| of(&shard.engine)).sum::<u64>();
    let tables = |of: fn(&engine::TableStats) -> u64| {
        shards.iter().flat_map(|shard| &shard.engine.tables).map(|(_, table)| of(table)).sum::<u64>()
    };
    let (entries, bytes, hits, misses) = match cache {
        "row" => (
            engine(|e| e.row_cache_rows),
            engine(|e| e.row_cache_bytes),
            tables(|t| t.cache_hits),
            tables(|t| t.cache_misses),
        ),
        // Blocks of files, index blocks among them.
        "chunk" => (
            0,
            engine(|e| e.block_cache_bytes),
            engine(|e| e.block_cache_hits),
            engine(|e| e.block_cache_misses),
        ),
        _ => return None,
    };
    let requests = hits + misses;
    Some(match figure {
        "entries" => json!(entries),
        "size" => json!(bytes),
        "capacity" => json!(engine(|e| e.cache_bytes_max)),
        "hits" => json!(hits),
        "requests" => json!(requests),
        "hit_rate" => json!(hits as f64 / requests.max(1) as f64),
        _ => return None,
    })
}

/// The sum of a gauge or counter among the metrics, over all shards.
pub(super) async fn sample(node: &Rc<dyn Node>, name: &str) -> Value {
    let shards = node.figures().await;
    let number = |sample: &Sample| match sample.value {
        metrics::Value::Number(number) if sample.name == name => Some(number),
        _ => None,
    };
    json!(shards.iter().flat_map(|shard| &shard.samples).filter_map(number).sum::<f64>() as u64)
}

/// Latencies of a kind of request as bounds in microseconds and counts, with one count more for longer ones.
pub(super) async fn histogram(node: &Rc<dyn Node>, kind: &str) -> Option<Value> {
    let of: fn(&ShardFigures) -> &Latencies = match kind {
        "read" => |shard| &shard.coordinated_reads.latencies,
        "range" => |shard| &shard.coordinated_ranges.latencies,
        "write" => |shard| &shard.coordinated_writes.latencies,
        "cas_read" => |shard| &shard.serial_reads.latencies,
        "cas_write" => |shard| &shard.conditional_writes.latencies,
        "view_write" => |shard| &shard.view_writes.latencies,
        _ => return None,
    };
    let shards = node.figures().await;
    let bounds: Vec<u64> = (0..).map_while(Latencies::bound_micros).collect();
    let mut counts = vec![0_u64; bounds.len() + 1];
    for latencies in shards.iter().map(of) {
        counts.iter_mut().zip(latencies.buckets).for_each(|(sum, count)| *sum += count);
    }
    Some(json!({ "bucket_offsets": bounds, "buckets": counts }))
}

/// A figure of read repair; none when there is no such figure.
pub(super) async fn read_repair(node: &Rc<dyn Node>, figure: &str) -> Option<Value> {
    let shards = node.figures().await;
    Some(match figure {
        "read_repair_attempted" => {
            json!(shards.iter().map(|shard| shard.replication.mismatches).sum::<u64>())
        }
        "read_repair_repaired_blocking" => {
            json!(shards.iter().map(|shard| shard.replication.repaired).sum::<u64>())
        }
        // There is no repair behind the client's back.
        "read_repair_repaired_background" => json!(0),
        _ => return None,
    })
}

/// The scheduling groups, over all shards.
pub(super) async fn groups(node: &Rc<dyn Node>) -> Value {
    let shards = node.figures().await;
    let names: Vec<&String> =
        shards.first().iter().flat_map(|shard| &shard.groups).map(|(name, _)| name).collect();
    let one = |name: &&String| {
        let of = shards.iter().flat_map(|shard| &shard.groups).filter(|(group, _)| group == *name);
        let sum =
            |figure: fn(&rt::GroupStats) -> u64| of.clone().map(|(_, stats)| figure(stats)).sum::<u64>();
        json!({
            "name": name,
            "tasks": sum(|stats| stats.tasks as u64),
            "ready": sum(|stats| stats.ready as u64),
            "polls": sum(|stats| stats.polls),
        })
    };
    json!(names.iter().map(one).collect::<Vec<_>>())
}

/// How many messages of a verb were dropped, for any reason.
pub(super) fn dropped(shards: &[ShardFigures], verb: Verb) -> u64 {
    let of_shard =
        |shard: &ShardFigures| Dropped::ALL.iter().map(|why| shard.rpc.dropped(verb, *why)).sum::<u64>();
    shards.iter().map(of_shard).sum()
}

/// Messages between nodes by verb, over all shards, with requests of clients that were refused for overload.
pub(super) async fn messages(node: &Rc<dyn Node>) -> Value {
    let shards = node.figures().await;
    let one = |verb: &Verb| {
        let sum = |figure: fn(&rpc::VerbStats) -> u64| {
            shards.iter().map(|shard| figure(&shard.rpc.verb(*verb))).sum::<u64>()
        };
        json!({
            "verb": verb.name(),
            "class": verb.class().name(),
            "sent": sum(|stats| stats.sent),
            "received": sum(|stats| stats.received),
            "timeouts": sum(|stats| stats.timeouts),
            "dropped": dropped(&shards, *verb),
        })
    };
    let depth = |of: fn(&rpc::RpcStats) -> usize| shards.iter().map(|shard| of(&shard.rpc)).sum::<usize>();
    json!({
        "verbs": Verb::ALL.iter().map(one).collect::<Vec<_>>(),
        "outgoing": depth(|rpc| rpc.outgoing_count),
        "waiting": depth(|rpc| rpc.calls_waiting),
    })
}

/// Bytes in memory and on disk, over all shards.
pub(super) async fn storage(node: &Rc<dyn Node>) -> Value {
    let shards = node.figures().await;
    let engine =
        |of: fn(&engine::EngineStats) -> u64| shards.iter().map(|shard| of(&shard.engine)).sum::<u64>();
    let tables = |of: fn(&engine::TableStats) -> u64| {
        shards.iter().flat_map(|shard| &shard.engine.tables).map(|(_, table)| of(table)).sum::<u64>()
    };
    json!({
        "memtable_bytes": engine(|e| e.memtable_bytes),
        "cache_bytes": engine(|e| e.row_cache_bytes + e.block_cache_bytes),
        "metadata_bytes": tables(|t| t.metadata_bytes),
        "disk_bytes": tables(|t| t.disk_bytes),
        "uncompressed_bytes": tables(|t| t.uncompressed_bytes),
    })
}
