//! The metadata of an SSTable as text, with the names that `sstablemetadata` uses.

use std::fmt::Write;

use mutation::{NO_DELETION, Seconds};
use rt::Rt;

use super::time::american;
use crate::big::summary::Summary;
use crate::compression_info::CompressionInfo;
use crate::reader::read_metadata;
use crate::{Component, DecodeError, Descriptor, SstableError};

/// Components beyond this size are not loaded.
const COMPONENT_LEN_MAX: usize = 1 << 30;
/// Characters of the longest bar of a histogram.
const BAR_LEN: u64 = 30;

/// The metadata of an SSTable. `now` and `gc_grace` decide which tombstones count as droppable.
///
/// # Errors
/// [`SstableError::Missing`] when the SSTable or its statistics are not there, [`SstableError::Corrupt`] when a
/// component is damaged, [`SstableError::Disk`].
pub async fn describe(
    rt: &Rt,
    descriptor: &Descriptor,
    now: Seconds,
    gc_grace: Seconds,
) -> Result<String, SstableError> {
    let metadata = read_metadata(rt.disk(), descriptor).await?;
    let data_len = rt.disk().len(descriptor.path(Component::Data)).await?;
    let index_len = rt.disk().len(descriptor.path(Component::Index)).await?;
    let compression = load(rt, descriptor, Component::CompressionInfo, |bytes| {
        CompressionInfo::decode(bytes, descriptor.version, data_len)
    });
    let compression = compression.await?;
    let summary = load(rt, descriptor, Component::Summary, |bytes| Summary::decode(bytes, index_len)).await?;
    let stats = &metadata.stats;
    let mut out = String::new();
    let mut field =
        |name: &str, value: String| writeln!(out, "{name}: {value}").expect("a string takes all text");
    field("SSTable", descriptor.to_string());
    field("Partitioner", metadata.partitioner.clone());
    field("Bloom Filter FP chance", metadata.bloom_fp_chance.to_string());
    for (name, micros) in
        [("Minimum timestamp", stats.min_timestamp), ("Maximum timestamp", stats.max_timestamp)]
    {
        field(name, format!("{} ({micros})", american(micros.div_euclid(1_000_000))));
    }
    for (name, local) in [
        ("SSTable min local deletion time", stats.min_local_deletion),
        ("SSTable max local deletion time", stats.max_local_deletion),
    ] {
        field(name, if local == NO_DELETION { "no tombstones".to_owned() } else { seconds(local) });
    }
    field(
        "Compressor",
        compression.as_ref().map_or("-".to_owned(), |info| {
            format!("org.apache.cassandra.io.compress.{}", info.algorithm.class_name())
        }),
    );
    if compression.is_some() {
        field("Compression ratio", stats.compression_ratio.to_string());
    }
    field("TTL min", duration(stats.min_ttl));
    field("TTL max", duration(stats.max_ttl));
    if let Some(summary) = &summary {
        for (name, key) in [("First token", &summary.first), ("Last token", &summary.last)] {
            field(name, format!("{} ({:02x})", key.token, key.key));
        }
    }
    for (name, values) in
        [("minClusteringValues", &stats.min_clustering), ("maxClusteringValues", &stats.max_clustering)]
    {
        let types = &metadata.header.clustering_types;
        let texts: Vec<String> = values.iter().zip(types).map(|(value, (ty, _))| ty.to_text(value)).collect();
        field(name, format!("[{}]", texts.join(", ")));
    }
    let ratio = stats.droppable_tombstone_ratio(now.saturating_sub(gc_grace));
    field("Estimated droppable tombstones", ratio.to_string());
    field("SSTable Level", stats.level.to_string());
    field(
        "Repaired at",
        match stats.repaired_at {
            0 => "0".to_owned(),
            millis => format!("{millis} ({})", american(millis.div_euclid(1000))),
        },
    );
    field("Originating host id", uuid(stats.host_id));
    field("Pending repair", uuid(stats.pending_repair));
    let intervals: Vec<String> = stats
        .commit_log_intervals
        .iter()
        .map(|((a, b), (c, d))| format!("({a}, {b}) to ({c}, {d})"))
        .collect();
    field("Replay positions covered", format!("{{{}}}", intervals.join(", ")));
    field("totalColumnsSet", stats.total_columns_set.to_string());
    field("totalRows", stats.total_rows.to_string());

    out.push_str("Estimated tombstone drop times:\n");
    let bins = stats.tombstones.bins().map(|(time, count)| (seconds(time), count));
    histogram("Drop Time", &bins.collect::<Vec<_>>(), &mut out);
    for (title, name, sizes) in [
        ("Partition Size", "Size (bytes)", &stats.partition_sizes),
        ("Column Count", "Columns", &stats.cell_counts),
    ] {
        writeln!(out, "{title}:").expect("a string takes all text");
        let named = |bound: Option<u64>| bound.map_or("more".to_owned(), |bound| bound.to_string());
        let rows =
            sizes.buckets().filter(|(_, count)| *count > 0).map(|(bound, count)| (named(bound), count));
        histogram(name, &rows.collect::<Vec<_>>(), &mut out);
        for (label, share) in [("50th", 0.5), ("75th", 0.75), ("95th", 0.95), ("98th", 0.98), ("99th", 0.99)]
        {
            writeln!(out, "   {label:<10}{}", sizes.percentile(share)).expect("a string takes all text");
        }
    }
    let mut field =
        |name: &str, value: String| writeln!(out, "{name}: {value}").expect("a string takes all text");
    if let Some(sketch) = &metadata.cardinality {
        field("Estimated cardinality", sketch.estimate().to_string());
    }
    let header = &metadata.header;
    field("EncodingStats minTTL", duration(header.encoding.min_ttl));
    field("EncodingStats minLocalDeletionTime", seconds(header.encoding.min_local_deletion));
    let micros = header.encoding.min_timestamp;
    field("EncodingStats minTimestamp", format!("{} ({micros})", american(micros.div_euclid(1_000_000))));
    field("KeyType", header.key_class.clone());
    field("ClusteringTypes", format!("[{}]", header.clustering_classes.join(", ")));
    for (name, columns) in [("StaticColumns", &header.statics), ("RegularColumns", &header.regulars)] {
        let columns: Vec<String> =
            columns.iter().map(|column| format!("{}:{}", column.name, column.class)).collect();
        field(name, columns.join(", "));
    }
    field("IsTransient", stats.is_transient.to_string());
    Ok(out)
}

/// Reads a component that may be missing.
async fn load<T>(
    rt: &Rt,
    descriptor: &Descriptor,
    component: Component,
    decode: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
) -> Result<Option<T>, SstableError> {
    let path = descriptor.path(component);
    match rt.disk().read_to_end(&path, COMPONENT_LEN_MAX).await {
        Ok(bytes) => decode(&bytes).map(Some).map_err(|error| error.in_file(&path, 0)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn seconds(time: Seconds) -> String {
    format!("{} ({time})", american(i64::from(time)))
}

/// Seconds, and the same in days, hours, minutes and seconds.
fn duration(seconds: Seconds) -> String {
    let parts = [
        (seconds / 86_400, "day"),
        (seconds / 3600 % 24, "hour"),
        (seconds / 60 % 60, "minute"),
        (seconds % 60, "second"),
    ];
    let words: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, unit)| format!("{count} {unit}{}", if *count == 1 { "" } else { "s" }))
        .collect();
    if words.is_empty() { "0".to_owned() } else { format!("{seconds} ({})", words.join(" ")) }
}

fn uuid(id: Option<[u8; 16]>) -> String {
    id.map_or("--".to_owned(), |id| schema::TableId(id).to_string())
}

fn histogram(title: &str, rows: &[(String, u64)], out: &mut String) {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(title.len());
    let all = rows.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
    let most = rows.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    writeln!(out, "   {title:<width$} | Count  (%)  Histogram").expect("a string takes all text");
    for (name, count) in rows {
        let bar = "O".repeat((u128::from(*count) * u128::from(BAR_LEN) / u128::from(most)) as usize);
        let share = u128::from(*count) * 100 / u128::from(all.max(1));
        writeln!(out, "   {name:<width$} | {count:>5} ({share:>3}) {bar}").expect("a string takes all text");
    }
}
