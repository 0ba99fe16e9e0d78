//! The server's own keyspaces whose tables are stored like any other. Virtual tables (`system`,
//! `system_schema`, `system_views`) is not here: it has no second copy that could drift.

use std::sync::Arc;

use schema::{Keyspace, Replication, Schema, Table, TableBuilder, TableId};
use types::CqlType;

/// The schema of a node before anyone has made a keyspace.
pub fn own_schema() -> Schema {
    let mut traces = Keyspace::new("system_traces", Replication::Simple { factor: 2 });
    traces.system = true;
    for table in [sessions(), events(), sessions_by_time(), slow(), slow_by_time()] {
        traces.tables.insert(table.name.clone(), table);
    }
    let schema = Schema::default().with_keyspace(traces);
    assert!(schema.keyspaces().all(|keyspace| keyspace.system), "the server's own keyspaces are not stored");
    schema
}

fn id(text: &str) -> TableId {
    crate::stored_value::parse_id(text).expect("a UUID written in the code")
}

/// `system_traces.sessions`: one row a traced request.
fn sessions() -> Arc<Table> {
    let text_map = CqlType::map(CqlType::Text, CqlType::Text, false);
    let mut builder =
        TableBuilder::new("system_traces", "sessions", id("c5e99f16-8677-3914-b17e-960613512345"))
            .partition_key("session_id", CqlType::Uuid)
            .regular("client", CqlType::Inet)
            .regular("command", CqlType::Text)
            .regular("coordinator", CqlType::Inet)
            .regular("coordinator_port", CqlType::Int)
            .regular("duration", CqlType::Int)
            .regular("parameters", text_map)
            .regular("request", CqlType::Text)
            .regular("started_at", CqlType::Timestamp);
    builder.options.comment = "tracing sessions".to_owned();
    builder.options.gc_grace_seconds = 0;
    builder.build_known()
}

/// `system_traces.sessions_time_idx` of ScyllaDB: the traced requests of a minute.
fn sessions_by_time() -> Arc<Table> {
    let mut builder =
        TableBuilder::new("system_traces", "sessions_time_idx", id("0ebf001c-c1d1-3693-9a63-c3d96ac53318"))
            .partition_key("minute", CqlType::Timestamp)
            .clustering("started_at", CqlType::Timestamp, false)
            .clustering("session_id", CqlType::Uuid, false);
    builder.options.comment = "traced requests by the minute in which they began".to_owned();
    builder.options.gc_grace_seconds = 0;
    builder.build_known()
}

/// `system_traces.node_slow_log` of ScyllaDB: one row a request that took longer than `slow_query_tracing_threshold`.
fn slow() -> Arc<Table> {
    let mut builder =
        TableBuilder::new("system_traces", "node_slow_log", id("bfcc4e62-5b63-3aa1-a1c3-6f5e47f3325c"))
            .partition_key("start_time", CqlType::Timeuuid)
            .clustering("node_ip", CqlType::Inet, false)
            .clustering("shard", CqlType::Int, false)
            .regular("command", CqlType::Text)
            .regular("date", CqlType::Timestamp)
            .regular("duration", CqlType::Int)
            .regular("parameters", CqlType::map(CqlType::Text, CqlType::Text, false))
            .regular("session_id", CqlType::Uuid)
            .regular("source_ip", CqlType::Inet)
            .regular("table_names", CqlType::set(CqlType::Text, false))
            .regular("username", CqlType::Text);
    builder.options.comment = "slow requests".to_owned();
    builder.options.gc_grace_seconds = 0;
    builder.build_known()
}

/// `system_traces.node_slow_log_time_idx` of ScyllaDB: the slow requests of a minute.
fn slow_by_time() -> Arc<Table> {
    let id = id("c20c8ef8-8a2b-3c1a-9b0f-5a5a6e0dcb7f");
    let mut builder = TableBuilder::new("system_traces", "node_slow_log_time_idx", id)
        .partition_key("minute", CqlType::Timestamp)
        .clustering("started_at", CqlType::Timestamp, false)
        .clustering("session_id", CqlType::Uuid, false)
        .regular("node_ip", CqlType::Inet)
        .regular("shard", CqlType::Int)
        .regular("start_time", CqlType::Timeuuid);
    builder.options.comment = "slow requests by the minute in which they began".to_owned();
    builder.options.gc_grace_seconds = 0;
    builder.build_known()
}

/// `system_traces.events`: one row a step of a traced request.
fn events() -> Arc<Table> {
    let mut builder =
        TableBuilder::new("system_traces", "events", id("8826e8e9-e16a-3728-8753-3bc1fc713c25"))
            .partition_key("session_id", CqlType::Uuid)
            .clustering("event_id", CqlType::Timeuuid, false)
            .regular("activity", CqlType::Text)
            .regular("source", CqlType::Inet)
            .regular("source_elapsed", CqlType::Int)
            .regular("source_port", CqlType::Int)
            .regular("thread", CqlType::Text);
    builder.options.comment = "tracing events".to_owned();
    builder.options.gc_grace_seconds = 0;
    builder.build_known()
}
