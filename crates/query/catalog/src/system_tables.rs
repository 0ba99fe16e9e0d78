//! `system` and `system_views`: the node, its clients, its work.

use std::collections::BTreeMap;

use schema::Schema;

use crate::rows::{Datum, RowBuilder};
use crate::{
    CacheFacts, ClientFacts, CompactionFacts, Facts, PreparedFacts, RepairFacts, SizeFacts, TaskFacts,
    estimates, gossip, internode, large, nodes, repair_jobs, requests, ring, running, served,
};

pub(crate) async fn fill(rows: &mut RowBuilder, schema: &Schema, facts: &Facts) {
    match rows.table().name.clone().as_str() {
        "local" => nodes::local(rows, schema, &facts.node, &facts.view),
        "peers" => nodes::peers(rows, schema, &facts.view).await,
        "peers_v2" => nodes::peers_v2(rows, schema, &facts.view).await,
        "cluster_status" => ring::cluster_status(rows, &facts.view).await,
        "pending_hints" => nodes::pending_hints(rows, &facts.hints, &facts.view).await,
        "repair_history" => rows.each(&facts.repairs, |rows, one| repair(rows, schema, one)).await,
        "size_estimates" | "table_estimates" => estimates::fill(rows, schema, facts).await,
        "compaction_history" => rows.each(&facts.compactions, compaction).await,
        "prepared_statements" => rows.each(&facts.prepared, prepared).await,
        "settings" => facts.settings.iter().for_each(|(name, value)| {
            rows.row([("name", name.as_str().into()), ("value", value.as_str().into())]);
        }),
        "clients" if rows.table().keyspace == "system" => {
            rows.each(&facts.clients, client_of_shard).await;
        }
        "clients" => rows.each(&facts.clients, client).await,
        "sstable_tasks" => rows.each(&facts.tasks, task).await,
        "cql_metrics" => facts.cql.iter().for_each(|(name, value)| {
            rows.row([("name", (*name).into()), ("value", (*value).into())]);
        }),
        "caches" => facts.caches.iter().for_each(|one| cache(rows, one)),
        "thread_pools" => facts.pools.iter().for_each(|pool| {
            rows.row([
                ("name", pool.name.as_str().into()),
                ("active_tasks", pool.active.into()),
                ("active_tasks_limit", i32::MAX.into()),
                ("blocked_tasks", 0i64.into()),
                ("blocked_tasks_all_time", 0i64.into()),
                ("completed_tasks", pool.completed.into()),
                ("pending_tasks", pool.pending.into()),
            ]);
        }),
        "disk_usage" => mebibytes(rows, schema, facts, |size| size.disk_bytes).await,
        "max_partition_size" => mebibytes(rows, schema, facts, |size| size.partition_bytes_max).await,
        "max_sstable_size" => mebibytes(rows, schema, facts, |size| size.sstable_bytes_max).await,
        "max_sstable_duration" => {
            sizes(rows, schema, facts, |size| ("max_sstable_duration", size.sstable_millis_max)).await;
        }
        "token_ring" => ring::token_ring(rows, schema, &facts.view).await,
        "gossip_info" => gossip::fill(rows, &facts.gossip).await,
        "coordinator_read_latency"
        | "coordinator_scan_latency"
        | "coordinator_write_latency"
        | "local_read_latency"
        | "local_scan_latency"
        | "local_write_latency"
        | "rows_per_read"
        | "tombstones_per_read" => requests::fill(rows, schema, &facts.requests).await,
        "batch_metrics" => served::batches(rows, &facts.batches),
        "queries" => rows.each(&facts.queries, served::query).await,
        "system_logs" => rows.each(&facts.log, served::line).await,
        "sai_column_indexes" => served::column_indexes(rows, schema, &facts.built_indexes).await,
        "view_build_status" => {
            rows.each(&facts.view_builds, |rows, build| view_build(rows, schema, build)).await;
        }
        "IndexInfo" => rows.each(&facts.built_indexes, |rows, built| index_info(rows, schema, built)).await,
        "large_partitions" | "large_rows" | "large_cells" => large::fill(rows, schema, &facts.large).await,
        "internode_inbound" | "internode_outbound" => internode::fill(rows, &facts.peers, &facts.view).await,
        // `system.repairs` is another table, which has no rows here.
        "repairs" if rows.table().keyspace == "system_views" => {
            repair_jobs::fill(rows, &facts.repair_jobs, &facts.view).await;
        }
        "cidr_filtering_metrics_counts" | "cidr_filtering_metrics_latencies" => {
            internode::cidr(rows, &facts.cidr_counts, &facts.cidr_latencies)
        }
        _ => running::fill(rows, facts).await,
    }
}

/// A built index, under the name of its keyspace: the column's name has been wrong since Cassandra's first version of it.
fn index_info(rows: &mut RowBuilder, schema: &Schema, (table, index): &(schema::TableId, String)) {
    if let Some(table) = schema.table_by_id(*table) {
        rows.row([("table_name", table.keyspace.as_str().into()), ("index_name", index.as_str().into())]);
    }
}

/// `system_distributed.view_build_status`: how far a node is with building a view.
fn view_build(
    rows: &mut RowBuilder,
    schema: &Schema,
    (view, host, status): &(schema::TableId, topology::HostId, &'static str),
) {
    if let Some(view) = schema.table_by_id(*view) {
        rows.row([
            ("keyspace_name", view.keyspace.as_str().into()),
            ("view_name", view.name.as_str().into()),
            ("host_id", host.0.into()),
            ("status", (*status).into()),
        ]);
    }
}

fn prepared(rows: &mut RowBuilder, prepared: &PreparedFacts) {
    rows.row([
        ("prepared_id", prepared.id.clone().into()),
        ("logged_keyspace", prepared.keyspace.clone().into()),
        ("query_string", prepared.text.as_str().into()),
    ]);
}

/// A figure of bytes in mebibytes, rounded up as Cassandra does.
async fn mebibytes(rows: &mut RowBuilder, schema: &Schema, facts: &Facts, bytes: impl Fn(&SizeFacts) -> i64) {
    let figure = |size: &SizeFacts| ("mebibytes", (bytes(size).max(0) as u64).div_ceil(1 << 20) as i64);
    sizes(rows, schema, facts, figure).await;
}

async fn sizes(
    rows: &mut RowBuilder,
    schema: &Schema,
    facts: &Facts,
    figure: impl Fn(&SizeFacts) -> (&'static str, i64),
) {
    let add = |rows: &mut RowBuilder, size: &SizeFacts| {
        if let Some(table) = schema.table_by_id(size.table) {
            let (name, value) = figure(size);
            rows.row([
                ("keyspace_name", table.keyspace.as_str().into()),
                ("table_name", table.name.as_str().into()),
                (name, value.into()),
            ]);
        }
    };
    rows.each(&facts.sizes, add).await;
}

/// ScyllaDB's table. Which repair it was is not known: the id is that of the range.
fn repair(rows: &mut RowBuilder, schema: &Schema, one: &RepairFacts) {
    let Some(table) = schema.table_by_id(one.table) else { return };
    let mut id = [0; 16];
    id[..8].copy_from_slice(&one.after.to_be_bytes());
    id[8..].copy_from_slice(&one.upto.to_be_bytes());
    rows.row([
        ("table_uuid", one.table.0.into()),
        ("repair_time", (i64::from(one.seconds) * 1_000).into()),
        ("repair_uuid", id.into()),
        ("keyspace_name", table.keyspace.as_str().into()),
        ("range_end", one.upto.into()),
        ("range_start", one.after.into()),
        ("table_name", table.name.as_str().into()),
    ]);
}

fn compaction(rows: &mut RowBuilder, record: &CompactionFacts) {
    let merged = record.rows_merged.iter().enumerate().filter(|(_, count)| **count > 0);
    let merged = merged.map(|(n, count)| (Datum::Int(n as i32 + 1), Datum::Bigint(*count))).collect();
    let properties = BTreeMap::from([("compaction_type".to_owned(), record.properties.clone())]);
    rows.row([
        ("id", record.id.into()),
        ("bytes_in", record.bytes_in.into()),
        ("bytes_out", record.bytes_out.into()),
        ("columnfamily_name", record.table.as_str().into()),
        ("compacted_at", (record.ended_micros / 1_000).into()),
        ("compaction_properties", (&properties).into()),
        ("keyspace_name", record.keyspace.as_str().into()),
        ("rows_merged", Datum::Map(merged)),
    ]);
}

fn client(rows: &mut RowBuilder, client: &ClientFacts) {
    rows.row([
        ("address", client.address.into()),
        ("port", i32::from(client.port).into()),
        ("client_options", (&client.options).into()),
        // ScyllaDB's table has the names in capital letters.
        ("connection_stage", client.stage.to_lowercase().into()),
        ("driver_name", client.driver_name.clone().into()),
        ("driver_version", client.driver_version.clone().into()),
        ("hostname", client.address.to_string().into()),
        ("keyspace_name", client.keyspace.clone().into()),
        ("protocol_version", client.protocol_version.into()),
        ("request_count", client.requests.into()),
        ("ssl_enabled", client.encrypted.into()),
        ("username", client.username.as_str().into()),
    ]);
}

/// A row of ScyllaDB's table of clients.
fn client_of_shard(rows: &mut RowBuilder, client: &ClientFacts) {
    rows.row([
        ("address", client.address.into()),
        ("port", i32::from(client.port).into()),
        ("client_type", "cql".into()),
        ("client_options", (&client.options).into()),
        ("connection_stage", client.stage.as_str().into()),
        ("driver_name", client.driver_name.clone().into()),
        ("driver_version", client.driver_version.clone().into()),
        ("hostname", client.address.to_string().into()),
        ("protocol_version", client.protocol_version.into()),
        ("shard_id", client.shard.into()),
        ("ssl_enabled", client.encrypted.into()),
        ("username", client.username.as_str().into()),
    ]);
}

fn task(rows: &mut RowBuilder, task: &TaskFacts) {
    let ratio = if task.total == 0 { 0.0 } else { task.done as f64 / task.total as f64 };
    rows.row([
        ("keyspace_name", task.keyspace.as_str().into()),
        ("table_name", task.table.as_str().into()),
        ("task_id", task.id.into()),
        ("completion_ratio", ratio.min(1.0).into()),
        ("kind", task.kind.into()),
        ("progress", task.done.into()),
        ("sstables", task.sstables.into()),
        ("total", task.total.into()),
        ("unit", "bytes".into()),
    ]);
}

fn cache(rows: &mut RowBuilder, cache: &CacheFacts) {
    let ratio = if cache.requests == 0 { 0.0 } else { cache.hits as f64 / cache.requests as f64 };
    rows.row([
        ("name", cache.name.as_str().into()),
        ("capacity_bytes", cache.capacity_bytes.into()),
        ("entry_count", cache.entries.into()),
        ("hit_count", cache.hits.into()),
        ("hit_ratio", ratio.into()),
        ("request_count", cache.requests.into()),
        ("size_bytes", cache.size_bytes.into()),
    ]);
}
