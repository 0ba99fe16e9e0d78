//! Figures of a table by ScyllaDB's names, as its tools ask for them: `/column_family/metrics/FIGURE/KEYSPACE:TABLE` and the like.

use std::rc::Rc;

use engine::TableStats;
use schema::Table;
use serde_json::{Value, json};

use super::averages::{meter, moments};
use super::stored;
use crate::{Answer, Node};

/// Figures that follow from those of the table's shards together.
type Figure = fn(&TableStats) -> Value;

/// By name. The memory of bloom filters, index summaries and compression offsets is counted together here, as that of the filters.
const FIGURES: &[(&str, Figure)] = &[
    ("all_memtables_live_data_size", |stats| json!(stats.memtable_bytes)),
    ("all_memtables_off_heap_size", |stats| json!(stats.memtable_bytes)),
    ("all_memtables_on_heap_size", |_| json!(0)),
    ("bloom_filter_disk_space_used", |stats| json!(stats.metadata_bytes)),
    ("bloom_filter_false_ratio", false_ratio),
    ("bloom_filter_off_heap_memory_used", |stats| json!(stats.metadata_bytes)),
    ("compression_metadata_off_heap_memory_used", |_| json!(0)),
    ("compression_ratio", |stats| json!(ratio(stats.data_bytes, stats.uncompressed_bytes))),
    ("index_summary_off_heap_memory_used", |_| json!(0)),
    ("max_row_size", |stats| json!(stats.partition_bytes_max)),
    ("mean_row_size", |stats| json!(stats.partition_bytes_sum / stats.partitions_estimate.max(1))),
    ("memtable_off_heap_size", |stats| json!(stats.memtable_bytes)),
    ("pending_flushes", |stats| json!(stats.flushes_pending)),
    ("recent_bloom_filter_false_ratio", false_ratio),
    ("row_cache_hit", |stats| json!(stats.cache_hits)),
    ("row_cache_miss", |stats| json!(stats.cache_misses)),
];

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn false_ratio(stats: &TableStats) -> Value {
    json!(ratio(stats.bloom_false_positives, stats.bloom_false_positives + stats.bloom_true_positives))
}

/// The answer to a GET about a table; none for another path.
pub(super) async fn answer(node: &Rc<dyn Node>, segments: &[&str]) -> Option<Result<Value, Answer>> {
    Some(match segments {
        ["column_family", "sstables", "per_level", name] => per_level(node, name).await,
        ["column_family", "droppable_ratio", name] => {
            sums(node, name).await.map(|stats| json!(stats.droppable_tombstone_ratio))
        }
        ["column_family", "compaction_strategy", name] => option_of(node, name, compaction_class),
        ["column_family", "compression_parameters", name] => option_of(node, name, compression),
        ["column_family", "metrics", kind @ ("read_latency" | "write_latency"), rest @ ..] => match rest {
            [name] => latency(node, kind, name).await.map(|moments| json!(moments.0)),
            ["moving_average_histogram", name] => latency(node, kind, name).await.map(|moments| moments.1),
            _ => return None,
        },
        [
            "column_family",
            "metrics",
            kind @ ("live_scanned_histogram" | "tombstone_scanned_histogram"),
            name,
        ] => scanned(node, kind, name).await,
        ["column_family", "metrics", "min_row_size", name] => smallest(node, name).await,
        ["column_family", "metrics", "snapshots_size", name] => snapshots(node, name).await,
        ["column_family", "metrics", figure, name] => {
            let (_, figure) = FIGURES.iter().find(|(known, _)| known == figure)?;
            sums(node, name).await.map(|stats| figure(&stats))
        }
        _ => return None,
    })
}

/// An option of a table's definition.
fn option_of(node: &Rc<dyn Node>, name: &str, of: fn(&Table) -> Value) -> Result<Value, Answer> {
    stored::table(node, name).map(|table| of(&table))
}

/// The class of compaction without its package.
fn compaction_class(table: &Table) -> Value {
    let class = table.options.compaction.get("class").map_or("", String::as_str);
    json!(class.rsplit('.').next())
}

fn compression(table: &Table) -> Value {
    let pair = |(name, value): (&String, &String)| json!({ "key": name, "value": value });
    table.options.compression.iter().map(pair).collect()
}

/// The figures of a table on all shards that such figures need.
async fn sums(node: &Rc<dyn Node>, name: &str) -> Result<TableStats, Answer> {
    let table = stored::table(node, name)?;
    let mut all = TableStats::default();
    for (_, stats) in of(&node.figures().await, &table) {
        all.metadata_bytes += stats.metadata_bytes;
        all.bloom_false_positives += stats.bloom_false_positives;
        all.bloom_true_positives += stats.bloom_true_positives;
        all.data_bytes += stats.data_bytes;
        all.uncompressed_bytes += stats.uncompressed_bytes;
        all.partition_bytes_max = all.partition_bytes_max.max(stats.partition_bytes_max);
        all.partition_bytes_sum += stats.partition_bytes_sum;
        all.partitions_estimate += stats.partitions_estimate;
        all.memtable_bytes += stats.memtable_bytes;
        all.flushes_pending += stats.flushes_pending;
        all.cache_hits += stats.cache_hits;
        all.cache_misses += stats.cache_misses;
        all.droppable_tombstone_ratio = all.droppable_tombstone_ratio.max(stats.droppable_tombstone_ratio);
        all.reads += stats.reads;
        all.writes += stats.writes;
        all.sstables_per_level.resize(all.sstables_per_level.len().max(stats.sstables_per_level.len()), 0);
        all.sstables_per_level.iter_mut().zip(&stats.sstables_per_level).for_each(|(sum, more)| *sum += more);
    }
    Ok(all)
}

fn of<'a>(
    shards: &'a [crate::ShardFigures],
    table: &Table,
) -> impl Iterator<Item = &'a (schema::TableId, TableStats)> {
    let id = table.id;
    shards.iter().flat_map(|shard| &shard.engine.tables).filter(move |(of, _)| *of == id)
}

async fn per_level(node: &Rc<dyn Node>, name: &str) -> Result<Value, Answer> {
    sums(node, name).await.map(|stats| json!(stats.sstables_per_level))
}

async fn snapshots(node: &Rc<dyn Node>, name: &str) -> Result<Value, Answer> {
    let table = stored::table(node, name)?;
    let records = node.snapshots().await.map_err(|error| Answer::error(500, error.to_string()))?;
    let mine = records.iter().filter(|one| (&one.keyspace, &one.table) == (&table.keyspace, &table.name));
    Ok(json!(mine.map(|record| record.true_bytes).sum::<u64>()))
}

async fn smallest(node: &Rc<dyn Node>, name: &str) -> Result<Value, Answer> {
    let table = stored::table(node, name)?;
    let histograms = node.table_histograms(table.id).await.unwrap_or_default();
    let first = histograms.partition_bytes.buckets().find(|(_, count)| *count > 0);
    Ok(json!(first.and_then(|(bound, _)| bound).unwrap_or(0)))
}

async fn scanned(node: &Rc<dyn Node>, kind: &str, name: &str) -> Result<Value, Answer> {
    let table = stored::table(node, name)?;
    let requests = node.table_histograms(table.id).await.unwrap_or_default().requests;
    let met = if kind == "live_scanned_histogram" { requests.rows } else { requests.tombstones };
    Ok(moments(met.buckets(), 1.0))
}

/// The microseconds of all reads or writes of a table, from their number and the mean of the recent ones; and rates, with the recent ones as a
/// histogram in nanoseconds.
async fn latency(node: &Rc<dyn Node>, kind: &str, name: &str) -> Result<(u64, Value), Answer> {
    let table = stored::table(node, name)?;
    let stats = sums(node, name).await?;
    let requests = node.table_histograms(table.id).await.unwrap_or_default().requests;
    let (all, recent) = match kind {
        "read_latency" => (stats.reads, requests.reads),
        _ => (stats.writes, requests.writes),
    };
    let hist = moments(recent.buckets(), 1_000.0);
    let micros = all as f64 * hist["mean"].as_f64().unwrap_or(0.0) / 1_000.0;
    let meter = meter(all, recent.per_second, node);
    Ok((micros as u64, json!({ "meter": meter, "hist": hist })))
}
