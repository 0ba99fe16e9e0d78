//! Prometheus metrics: the samples of the metrics that the parts of a node have registered ([`rt::metrics`]), by metric and shard.

use coordinator::{BatchlogStats, ReplicationStats, RequestFigures};
use engine::{EngineStats, stats::TableStats};
use rpc::RpcStats;
use rt::metrics;
use rt::metrics::{Metric, Sample, collect};
use rt::{GroupStats, IoStats};
use schema::Schema;

use crate::prometheus::{escape, head, sample, write_all};
use crate::{NodeInfo, ShardFigures};

/// Everything in Prometheus' text format, version 0.0.4.
pub fn exposition(info: &NodeInfo, schema: &Schema, shards: &[ShardFigures], now_micros: i64) -> String {
    let mut out = String::with_capacity(64 << 10);
    let mut samples = Vec::new();
    for (shard, figures) in shards.iter().enumerate() {
        collect_shard(&shard.to_string(), figures, schema, &mut samples);
    }
    write_all(&mut out, &samples);
    let uptime = (now_micros - info.started_micros).max(0) as f64 / 1e6;
    let version = format!("version=\"{}\",cluster=\"{}\"", escape(&info.version), escape(&info.cluster_name));
    head(&mut out, "torc_build_info", "gauge", "Version of the server; always 1.");
    sample(&mut out, "torc_build_info", &version, 1.0);
    head(&mut out, "torc_uptime_seconds", "gauge", "Seconds since the node started.");
    sample(&mut out, "torc_uptime_seconds", "", uptime);
    out
}

impl ShardFigures {
    /// The metrics of a shard as a whole.
    const METRICS: &[Metric<Self>] = metrics! {
        counter "scylla_reactor_cpu_busy_ms" "CPU time of a shard's tasks, milliseconds." |s| s.groups.iter().map(|(_, group)| group.run_ns).sum::<u64>() as f64 / 1e6;
        counter "scylla_storage_proxy_coordinator_cas_total_operations" "Conditional writes and serial reads." |s| [&s.serial_reads, &s.conditional_writes].iter().flat_map(|requests| requests.latencies.buckets).sum::<u64>() as f64;
    };
}

fn collect_shard(shard: &str, figures: &ShardFigures, schema: &Schema, out: &mut Vec<Sample>) {
    let labels = [("shard", shard)];
    collect(ShardFigures::METRICS, figures, &labels, out);
    collect(EngineStats::METRICS, &figures.engine, &labels, out);
    for (id, stats) in &figures.engine.tables {
        if let Some(table) = schema.table_by_id(*id) {
            let labels = [("shard", shard), ("ks", &table.keyspace), ("cf", &table.name)];
            collect(TableStats::METRICS, stats, &labels, out);
        }
    }
    for (name, stats) in &figures.groups {
        collect(GroupStats::METRICS, stats, &[("shard", shard), ("group", name)], out);
    }
    for (name, stats) in &figures.io {
        collect(IoStats::METRICS, stats, &[("shard", shard), ("class", name)], out);
    }
    for (metrics, requests) in [
        (RequestFigures::READ_METRICS, &figures.coordinated_reads),
        (RequestFigures::RANGE_METRICS, &figures.coordinated_ranges),
        (RequestFigures::VIEW_WRITE_METRICS, &figures.view_writes),
        (RequestFigures::WRITE_METRICS, &figures.coordinated_writes),
        (RequestFigures::SERIAL_READ_METRICS, &figures.serial_reads),
        (RequestFigures::CONDITIONAL_WRITE_METRICS, &figures.conditional_writes),
    ] {
        collect(metrics, requests, &labels, out);
    }
    collect(BatchlogStats::METRICS, &figures.batchlog, &labels, out);
    collect(ReplicationStats::METRICS, &figures.replication, &labels, out);
    collect(RpcStats::METRICS, &figures.rpc, &labels, out);
    for one in &figures.samples {
        let mut one = one.clone();
        one.labels.insert(0, ("shard", shard.to_owned()));
        out.push(one);
    }
}
