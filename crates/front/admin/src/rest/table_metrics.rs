//! Figures of a table by ScyllaDB's names, as its tools ask for them: `/column_family/metrics/FIGURE/KEYSPACE:TABLE`, and of all tables without a
//! name.

use std::rc::Rc;

use engine::{SnapshotRecord, TableStats};
use schema::{Table, TableId};
use serde_json::{Value, json};

use super::averages::{meter, moments};
use super::{requests, stored};
use crate::{Answer, Node};

/// Figures that follow from those of the table's shards together.
type Figure = fn(&TableStats) -> Value;

/// By name. The memory of bloom filters, index summaries and compression offsets is counted together here, as that of the filters.
const FIGURES: &[(&str, Figure)] = &[
    ("all_memtables_live_data_size", |stats| json!(stats.memtable_bytes)),
    ("all_memtables_off_heap_size", |stats| json!(stats.memtable_bytes)),
    ("all_memtables_on_heap_size", |_| json!(0)),
    ("bloom_filter_disk_space_used", |stats| json!(stats.metadata_bytes)),
    ("bloom_filter_false_positives", |stats| json!(stats.bloom_false_positives)),
    ("bloom_filter_false_ratio", false_ratio),
    ("bloom_filter_off_heap_memory_used", |stats| json!(stats.metadata_bytes)),
    ("compression_metadata_off_heap_memory_used", |_| json!(0)),
    ("compression_ratio", |stats| json!(ratio(stats.data_bytes, stats.uncompressed_bytes))),
    ("estimated_row_count", |stats| json!(stats.partitions_estimate)),
    ("index_summary_off_heap_memory_used", |_| json!(0)),
    // There is no cache of keys.
    ("key_cache_hit_rate", |_| json!(0.0)),
    ("live_disk_space_used", |stats| json!(stats.disk_bytes)),
    ("live_ss_table_count", |stats| json!(stats.sstables)),
    ("max_row_size", |stats| json!(stats.partition_bytes_max)),
    ("mean_row_size", |stats| json!(stats.partition_bytes_sum / stats.partitions_estimate.max(1))),
    ("memtable_columns_count", |stats| json!(stats.memtable_cells)),
    ("memtable_live_data_size", |stats| json!(stats.memtable_bytes)),
    ("memtable_off_heap_size", |stats| json!(stats.memtable_bytes)),
    ("memtable_on_heap_size", |_| json!(0)),
    ("memtable_switch_count", |stats| json!(stats.memtable_switches)),
    ("pending_compactions", |stats| json!(stats.compactions_pending)),
    ("pending_flushes", |stats| json!(stats.flushes_pending)),
    ("read", |stats| json!(stats.reads)),
    ("recent_bloom_filter_false_ratio", false_ratio),
    ("row_cache_hit", |stats| json!(stats.cache_hits)),
    ("row_cache_miss", |stats| json!(stats.cache_misses)),
    ("total_disk_space_used", |stats| json!(stats.total_disk_bytes)),
    ("write", |stats| json!(stats.writes)),
];

/// Figures of a table with a form of their own.
const OTHERS: &[(&str, &str)] = &[
    ("coordinator/read", "object"),
    ("coordinator/scan", "object"),
    ("estimated_column_count_histogram/{name}", "object"),
    ("estimated_row_size_histogram/{name}", "object"),
    ("live_scanned_histogram/{name}", "object"),
    ("min_row_size", "long"),
    ("min_row_size/{name}", "long"),
    ("range_latency/estimated_histogram/{name}", "object"),
    ("range_latency/estimated_recent_histogram/{name}", "object"),
    ("read_latency/{name}", "long"),
    ("read_latency/estimated_histogram/{name}", "object"),
    ("read_latency/estimated_recent_histogram/{name}", "object"),
    ("read_latency/histogram/{name}", "object"),
    ("read_latency/moving_average_histogram/{name}", "object"),
    ("snapshots_size/{name}", "long"),
    ("sstables_per_read_histogram/{name}", "object"),
    ("tombstone_scanned_histogram/{name}", "object"),
    ("true_snapshots_size", "long"),
    ("write_latency/{name}", "long"),
    ("write_latency/estimated_histogram/{name}", "object"),
    ("write_latency/estimated_recent_histogram/{name}", "object"),
    ("write_latency/histogram/{name}", "object"),
    ("write_latency/moving_average_histogram/{name}", "object"),
];

/// The paths of all figures below `/column_family/metrics`, each with the type of its answer and a summary.
pub(super) fn paths() -> Vec<(String, &'static str, &'static str)> {
    let mut all = Vec::new();
    for (name, _) in FIGURES {
        let kind = if name.ends_with("ratio") || name.ends_with("rate") { "double" } else { "long" };
        all.push((format!("{name}/{{name}}"), kind, "A figure of a table."));
        // Of each shard.
        let kind = if ["read", "write"].contains(name) { "array" } else { kind };
        all.push(((*name).to_owned(), kind, "The figure of all tables."));
    }
    all.extend(OTHERS.iter().map(|(path, kind)| ((*path).to_owned(), *kind, "A figure of tables.")));
    all
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn false_ratio(stats: &TableStats) -> Value {
    json!(ratio(stats.bloom_false_positives, stats.bloom_false_positives + stats.bloom_true_positives))
}

/// The answer to a GET about a table; none for another path.
pub(super) async fn answer(node: &Rc<dyn Node>, segments: &[&str]) -> Option<Result<Value, Answer>> {
    Some(match segments {
        ["column_family", "estimate_keys", name] => {
            sums(node, name).await.map(|stats| json!(stats.partitions_estimate))
        }
        ["column_family", "sstables", "per_level", name] => per_level(node, name).await,
        ["column_family", "droppable_ratio", name] => {
            sums(node, name).await.map(|stats| json!(stats.droppable_tombstone_ratio))
        }
        ["column_family", "compaction_strategy", name] => option_of(node, name, compaction_class),
        ["column_family", "compression_parameters", name] => option_of(node, name, compression),
        ["column_family", "sstables", "unleveled", name] => unleveled(node, name).await,
        ["column_family", "metrics", "coordinator", which @ ("read" | "scan")] => {
            let kind = if *which == "read" { "read" } else { "range" };
            Ok(requests::metric(node, kind, "histogram").await?)
        }
        ["column_family", "metrics", kind @ ("read_latency" | "write_latency"), rest @ ..] => match rest {
            [name] => latency(node, kind, name).await.map(|moments| json!(moments.0)),
            ["histogram", name] => latency(node, kind, name).await.map(|moments| moments.1["hist"].clone()),
            ["moving_average_histogram", name] => latency(node, kind, name).await.map(|moments| moments.1),
            _ => return None,
        },
        [
            "column_family",
            "metrics",
            kind @ ("live_scanned_histogram" | "tombstone_scanned_histogram"),
            name,
        ] => scanned(node, kind, name).await,
        ["column_family", "metrics", "min_row_size", name] => match stored::table(node, name) {
            Ok(table) => Ok(smallest(node, &[table.id]).await),
            Err(unknown) => Err(unknown),
        },
        ["column_family", "metrics", "snapshots_size", name] => snapshots(node, Some(name)).await,
        ["column_family", "metrics", "true_snapshots_size"] => snapshots(node, None).await,
        ["column_family", "metrics", "min_row_size"] => {
            let tables: Vec<TableId> = node.schema().stored().tables().map(|table| table.id).collect();
            Ok(smallest(node, &tables).await)
        }
        ["column_family", "metrics", figure @ ("read" | "write")] => Ok(by_shard(node, figure).await),
        ["column_family", "metrics", figure] => {
            let figure = figure_of(figure)?;
            Ok(figure(&of_all(node).await))
        }
        ["column_family", "metrics", figure, name] => {
            let figure = figure_of(figure)?;
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

/// The figure of a name.
fn figure_of(name: &str) -> Option<Figure> {
    FIGURES.iter().find(|(known, _)| *known == name).map(|(_, figure)| *figure)
}

/// The figures of a table on all shards that such figures need.
async fn sums(node: &Rc<dyn Node>, name: &str) -> Result<TableStats, Answer> {
    let table = stored::table(node, name)?;
    let mut all = TableStats::default();
    for (_, stats) in of(&node.figures().await, &table) {
        add(&mut all, stats);
    }
    Ok(all)
}

/// The figures of all tables together.
async fn of_all(node: &Rc<dyn Node>) -> TableStats {
    let mut all = TableStats::default();
    let mut removed = 0;
    for shard in node.figures().await {
        for (_, stats) in &shard.engine.tables {
            add(&mut all, stats);
        }
        // Each table counts the SSTables of its shard that are yet to be removed.
        let of_shard = shard
            .engine
            .tables
            .iter()
            .map(|(_, stats)| stats.total_disk_bytes.saturating_sub(stats.disk_bytes));
        removed += of_shard.max().unwrap_or(0);
    }
    all.total_disk_bytes = all.disk_bytes + removed;
    all
}

/// The reads or writes of all tables on each shard.
async fn by_shard(node: &Rc<dyn Node>, figure: &str) -> Value {
    let shards = node.figures().await;
    let of = |stats: &TableStats| if figure == "read" { stats.reads } else { stats.writes };
    shards.iter().map(|shard| shard.engine.tables.iter().map(|(_, stats)| of(stats)).sum::<u64>()).collect()
}

fn add(all: &mut TableStats, stats: &TableStats) {
    all.sstables += stats.sstables;
    all.disk_bytes += stats.disk_bytes;
    all.total_disk_bytes += stats.total_disk_bytes;
    all.metadata_bytes += stats.metadata_bytes;
    all.bloom_false_positives += stats.bloom_false_positives;
    all.bloom_true_positives += stats.bloom_true_positives;
    all.data_bytes += stats.data_bytes;
    all.uncompressed_bytes += stats.uncompressed_bytes;
    all.partition_bytes_max = all.partition_bytes_max.max(stats.partition_bytes_max);
    all.partition_bytes_sum += stats.partition_bytes_sum;
    all.partitions_estimate += stats.partitions_estimate;
    all.memtable_bytes += stats.memtable_bytes;
    all.memtable_cells += stats.memtable_cells;
    all.memtable_switches += stats.memtable_switches;
    all.flushes_pending += stats.flushes_pending;
    all.compactions_pending += stats.compactions_pending;
    all.cache_hits += stats.cache_hits;
    all.cache_misses += stats.cache_misses;
    all.droppable_tombstone_ratio = all.droppable_tombstone_ratio.max(stats.droppable_tombstone_ratio);
    all.reads += stats.reads;
    all.writes += stats.writes;
    all.sstables_per_level.resize(all.sstables_per_level.len().max(stats.sstables_per_level.len()), 0);
    all.sstables_per_level.iter_mut().zip(&stats.sstables_per_level).for_each(|(sum, more)| *sum += more);
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

/// The SSTables of level 0 with leveled compaction, 0 with any other.
async fn unleveled(node: &Rc<dyn Node>, name: &str) -> Result<Value, Answer> {
    let class = option_of(node, name, compaction_class)?;
    let stats = sums(node, name).await?;
    let count = stats.sstables_per_level.first().filter(|_| class == "LeveledCompactionStrategy");
    Ok(json!(count.unwrap_or(&0)))
}

/// Bytes that only snapshots of a table hold, or of all.
async fn snapshots(node: &Rc<dyn Node>, name: Option<&str>) -> Result<Value, Answer> {
    let table = name.map(|name| stored::table(node, name)).transpose()?;
    let records = node.snapshots().await.map_err(|error| Answer::error(500, error.to_string()))?;
    let is_meant = |one: &&SnapshotRecord| {
        table.as_ref().is_none_or(|table| (&one.keyspace, &one.table) == (&table.keyspace, &table.name))
    };
    Ok(json!(records.iter().filter(is_meant).map(|record| record.true_bytes).sum::<u64>()))
}

/// The size of the smallest partition of tables.
async fn smallest(node: &Rc<dyn Node>, tables: &[TableId]) -> Value {
    let mut found: Option<u64> = None;
    for table in tables {
        let histograms = node.table_histograms(*table).await.unwrap_or_default();
        let first = histograms.partition_bytes.buckets().find(|(_, count)| *count > 0);
        let bound = first.and_then(|(bound, _)| bound);
        found = found.into_iter().chain(bound).min();
    }
    json!(found.unwrap_or(0))
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
