//! REST administration, in the shape of ScyllaDB's API, so that tools made for it work.

use std::rc::Rc;
use std::sync::Arc;

use replica::{ReplicaError, TableOperation};
use rt::LocalBoxFuture;
use schema::{Schema, Table};
use serde_json::{Value, json};

use crate::{Answer, Call, Node, Service, metrics, repairs};

/// Answers the administration port and the metrics port of a node.
pub struct RestService {
    node: Rc<dyn Node>,
}

impl RestService {
    /// A service over a node.
    pub fn new(node: Rc<dyn Node>) -> Self {
        Self { node }
    }
}

impl Service for RestService {
    fn call(&self, call: Call) -> LocalBoxFuture<Answer> {
        let node = self.node.clone();
        Box::pin(async move { answer(node, call).await.unwrap_or_else(|error| error) })
    }
}

async fn answer(node: Rc<dyn Node>, call: Call) -> Result<Answer, Answer> {
    let segments: Vec<&str> = call.path.split('/').filter(|segment| !segment.is_empty()).collect();
    if let Some(answer) = repairs::answer(&node, &call, &segments).await {
        return answer;
    }
    match (call.method.as_str(), segments.as_slice()) {
        ("GET", ["metrics"]) => {
            let shards = node.figures().await;
            let body = metrics::exposition(node.info(), &node.schema(), &shards, node.now_micros());
            Ok(Answer { status: 200, content_type: "text/plain; version=0.0.4; charset=utf-8", body })
        }
        ("GET", [] | [""]) => Ok(Answer {
            status: 200,
            content_type: "text/plain; charset=utf-8",
            body: "Torc: administration under /storage_service, metrics under /metrics\n".to_owned(),
        }),
        ("POST", ["storage_service", "keyspace_flush", keyspace]) => {
            operate(&node, &call, keyspace, TableOperation::Flush).await
        }
        ("POST", ["storage_service", "keyspace_compaction", keyspace]) => {
            operate(&node, &call, keyspace, TableOperation::Compact).await
        }
        ("POST", ["storage_service", "flush"]) => {
            for keyspace in node.schema().keyspaces() {
                operate(&node, &call, &keyspace.name, TableOperation::Flush).await?;
            }
            Ok(Answer::json(&Value::Null))
        }
        ("POST", ["storage_service", "snapshots"]) => snapshot(&node, &call).await,
        ("DELETE", ["storage_service", "snapshots"]) => clear_snapshots(&node, &call).await,
        ("POST", ["storage_service", "stop_daemon"]) => {
            node.request_stop();
            Ok(Answer::json(&Value::Null))
        }
        ("GET", rest) => Ok(Answer::json(&question(&node, &call, rest).await?)),
        _ => Err(unknown(&call)),
    }
}

fn unknown(call: &Call) -> Answer {
    Answer::error(404, format!("{} {} is not known", call.method, call.path))
}

/// What can be asked.
async fn question(node: &Rc<dyn Node>, call: &Call, segments: &[&str]) -> Result<Value, Answer> {
    let info = node.info();
    let address = info.address.to_string();
    Ok(match segments {
        ["storage_service", "release_version" | "scylla_release_version"] => json!(info.version),
        ["storage_service", "operation_mode"] => json!("NORMAL"),
        ["storage_service", "is_starting"] => json!(false),
        ["storage_service", "native_transport" | "gossiping"] => json!(true),
        ["storage_service", "hostid", "local"] => json!(uuid(&info.host_id)),
        ["storage_service", "host_id"] => json!([{ "key": address, "value": uuid(&info.host_id) }]),
        ["storage_service", "tokens", ..] => {
            json!(info.tokens.iter().map(ToString::to_string).collect::<Vec<_>>())
        }
        ["storage_service", "schema_version"] => json!(uuid(&node.schema().version())),
        ["storage_service", "keyspaces"] => keyspaces(&node.schema(), call.parameter("type")),
        ["storage_service", "cluster_name"] => json!(info.cluster_name),
        ["gossiper", "endpoint", "live"] => json!([address]),
        ["gossiper", "endpoint", "down"] => json!([]),
        ["snitch", "datacenter"] => json!(info.datacenter),
        ["snitch", "rack"] => json!(info.rack),
        ["snitch", "name"] => json!("org.apache.cassandra.locator.GossipingPropertyFileSnitch"),
        ["system", "uptime_ms"] => json!((node.now_micros() - info.started_micros) / 1_000),
        ["column_family"] => tables(&node.schema()),
        ["column_family", "name"] => {
            json!(node.schema().tables().map(|t| format!("{}:{}", t.keyspace, t.name)).collect::<Vec<_>>())
        }
        ["column_family", "metrics", figure, name] => table_figure(node, figure, name).await?,
        ["compaction_manager", "compaction_history"] => compaction_history(node).await,
        ["compaction_manager", "metrics", "pending_tasks"] => {
            let shards = node.figures().await;
            let pending = |figures: &crate::ShardFigures| {
                figures.engine.tables.iter().map(|(_, table)| table.compactions_pending).sum::<u64>()
            };
            json!(shards.iter().map(pending).sum::<u64>())
        }
        _ => return Err(unknown(call)),
    })
}

fn keyspaces(schema: &Schema, kind: Option<&str>) -> Value {
    let wanted = |system: bool| match kind {
        Some("user") => !system,
        Some("non_local_strategy" | "all") | None => true,
        Some(_) => false,
    };
    json!(schema.keyspaces().filter(|k| wanted(k.system)).map(|k| k.name.clone()).collect::<Vec<_>>())
}

fn tables(schema: &Schema) -> Value {
    let one =
        |table: &Arc<Table>| json!({ "ks": table.keyspace, "cf": table.name, "type": "ColumnFamilies" });
    json!(schema.tables().map(one).collect::<Vec<_>>())
}

async fn table_figure(node: &Rc<dyn Node>, figure: &str, name: &str) -> Result<Value, Answer> {
    let (keyspace, table) = name.split_once(':').unwrap_or((name, ""));
    let schema = node.schema();
    let table = schema
        .table(keyspace, table)
        .ok_or_else(|| Answer::error(404, format!("there is no table {name}; name it keyspace:table")))?;
    let mut total = 0u64;
    for figures in node.figures().await {
        for (_, stats) in figures.engine.tables.iter().filter(|(id, _)| *id == table.id) {
            total += match figure {
                "live_ss_table_count" => stats.sstables,
                "live_disk_space_used" => stats.disk_bytes,
                "total_disk_space_used" => stats.total_disk_bytes,
                "memtable_live_data_size" | "all_memtables_live_data_size" => stats.memtable_bytes,
                "memtable_columns_count" => stats.memtable_rows,
                "memtable_switch_count" => stats.memtable_switches,
                "read" => stats.reads,
                "write" => stats.writes,
                "pending_compactions" => stats.compactions_pending,
                "bloom_filter_false_positives" => stats.bloom_false_positives,
                "estimated_row_count" => stats.partitions_estimate,
                _ => return Err(Answer::error(404, format!("the figure {figure} is not known"))),
            };
        }
    }
    Ok(json!(total))
}

async fn compaction_history(node: &Rc<dyn Node>) -> Value {
    let mut records = Vec::new();
    for figures in node.figures().await {
        records.extend(figures.engine.compaction_history);
    }
    records.sort_by_key(|record| record.ended_micros);
    let one = |record: &engine::CompactionRecord| {
        json!({
            "id": uuid(&record.id), "ks": record.keyspace, "cf": record.table,
            "compacted_at": record.ended_micros / 1_000,
            "bytes_in": record.bytes_in, "bytes_out": record.bytes_out,
        })
    };
    json!(records.iter().map(one).collect::<Vec<_>>())
}

/// The tables that a call names: those of its `cf` parameter, or all of the keyspace.
fn chosen(node: &Rc<dyn Node>, call: &Call, keyspace: &str) -> Result<Vec<Arc<Table>>, Answer> {
    let schema = node.schema();
    let Some(known) = schema.keyspace(keyspace) else {
        return Err(Answer::error(404, format!("Can't find a keyspace {keyspace}")));
    };
    let Some(names) = call.parameter("cf").filter(|names| !names.is_empty()) else {
        return Ok(known.tables.values().cloned().collect());
    };
    let find = |name: &str| {
        let missing =
            || Answer::error(400, format!("Can't find a column family {name} in keyspace {keyspace}"));
        known.tables.get(name).cloned().ok_or_else(missing)
    };
    names.split(',').map(find).collect()
}

async fn operate(
    node: &Rc<dyn Node>,
    call: &Call,
    keyspace: &str,
    operation: TableOperation,
) -> Result<Answer, Answer> {
    for table in chosen(node, call, keyspace)? {
        let done = match node.operate(table.id, operation.clone()).await {
            // Dropped since it was listed: there is nothing left to do.
            Err(ReplicaError::UnknownTable(_)) => Ok(()),
            done => done,
        };
        done.map_err(|error| Answer::error(500, format!("{}: {error}", table.full_name())))?;
    }
    Ok(Answer::json(&Value::Null))
}

/// Keyspaces that a call names in `kn`, or all of the users'.
fn named_keyspaces(node: &Rc<dyn Node>, call: &Call) -> Vec<String> {
    match call.parameter("kn").filter(|names| !names.is_empty()) {
        Some(names) => names.split(',').map(str::to_owned).collect(),
        None => node.schema().keyspaces().filter(|k| !k.system).map(|k| k.name.clone()).collect(),
    }
}

async fn snapshot(node: &Rc<dyn Node>, call: &Call) -> Result<Answer, Answer> {
    let name = call.parameter("tag").unwrap_or_default();
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(Answer::error(400, "a snapshot needs a tag that can be a directory's name"));
    }
    for keyspace in named_keyspaces(node, call) {
        operate(node, call, &keyspace, TableOperation::Snapshot { name: name.to_owned() }).await?;
    }
    Ok(Answer::json(&Value::Null))
}

async fn clear_snapshots(node: &Rc<dyn Node>, call: &Call) -> Result<Answer, Answer> {
    let name = call.parameter("tag").filter(|name| !name.is_empty()).map(str::to_owned);
    for keyspace in named_keyspaces(node, call) {
        operate(node, call, &keyspace, TableOperation::ClearSnapshot { name: name.clone() }).await?;
    }
    Ok(Answer::json(&Value::Null))
}

fn uuid(id: &[u8; 16]) -> String {
    schema::TableId(*id).to_string()
}
