//! REST administration, in the shape of ScyllaDB's API, so that tools made for it work; resources without a path there stand
//! under `/torc`.

mod averages;
mod cidr;
mod detector;
mod figures;
mod gossip_states;
mod hints;
mod logging;
mod nodes;
mod refused;
mod requests;
mod ring;
mod routes;
mod samples;
mod settings;
mod sstables;
mod stored;
mod sync_points;
mod table_metrics;
mod tables;
mod tools;

use std::rc::Rc;

use replica::TableOperation;
use rt::LocalBoxFuture;
use serde_json::{Value, json};

use crate::{
    Answer, Call, Mode, Node, Service, derived_checks, metrics, names, node_metrics, repairs,
    topology_changes, uuid,
};

pub use figures::load;

/// Answers the administration port of a node.
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

    /// All requests but GETs, and the GETs of ScyllaDB that write SSTables anew.
    fn outlives_client(&self, call: &Call) -> bool {
        let mut segments = call.path.split('/').filter(|segment| !segment.is_empty());
        let place = (segments.next(), segments.next());
        let rewrites =
            matches!(place, (Some("storage_service"), Some("keyspace_scrub" | "keyspace_upgrade_sstables")));
        call.method != "GET" || rewrites
    }
}

/// Answers the metrics port of a node: metrics, and nothing else.
pub struct MetricsService {
    node: Rc<dyn Node>,
}

impl MetricsService {
    /// A service over a node.
    pub fn new(node: Rc<dyn Node>) -> Self {
        Self { node }
    }
}

impl Service for MetricsService {
    fn call(&self, call: Call) -> LocalBoxFuture<Answer> {
        let node = self.node.clone();
        Box::pin(async move {
            let path = call.path.trim_end_matches('/');
            match (call.method.as_str(), path) {
                ("GET", "/metrics") => metrics_page(&node).await,
                ("GET", "") => greeting("Torc: metrics under /metrics\n"),
                _ => unknown(&call),
            }
        })
    }
}

fn greeting(text: &str) -> Answer {
    Answer { status: 200, content_type: "text/plain; charset=utf-8", body: text.to_owned() }
}

async fn metrics_page(node: &Rc<dyn Node>) -> Answer {
    let shards = node.figures().await;
    let mut body = metrics::exposition(node.info(), &node.schema(), &shards, node.now_micros());
    node_metrics::write(node, &shards, &mut body);
    if let Some(repair) = node.repair() {
        repairs::metrics(&repair, &node.schema(), node.now_micros(), &mut body);
    }
    Answer { status: 200, content_type: "text/plain; version=0.0.4; charset=utf-8", body }
}

async fn answer(node: Rc<dyn Node>, call: Call) -> Result<Answer, Answer> {
    let segments: Vec<&str> = call.path.split('/').filter(|segment| !segment.is_empty()).collect();
    if let Some(why) = refused::why(&call.method, &segments) {
        return Err(names::bad(why));
    }
    if !routes::serves(&call.method, &segments) {
        return Err(unknown(&call));
    }
    if let Some(description) = routes::answer(&segments) {
        return Ok(Answer::json(&description));
    }
    if let Some(answer) = repairs::answer(&node, &call, &segments).await {
        return answer;
    }
    if let Some(answer) = topology_changes::answer(&node, &call, &segments).await {
        return answer;
    }
    if let Some(answer) = derived_checks::answer(&node, &call, &segments) {
        return answer;
    }
    if let Some(answer) = settings::answer(&node, &call, &segments).await {
        return answer;
    }
    if let Some(answer) = hints::answer(&node, &call, &segments).await {
        return answer;
    }
    if let Some(answer) = cidr::answer(&node, &call, &segments).await {
        return answer;
    }
    if let Some(answer) = sstables::answer(&node, &call, &segments).await {
        return answer;
    }
    if let Some(answer) = logging::answer(&node, &call, &segments).await {
        return answer;
    }
    if let Some(answer) = tools::answer(&node, &call, &segments).await {
        return answer;
    }
    if let Some(answer) = stored::answer(&node, &call, &segments).await {
        return answer;
    }
    match (call.method.as_str(), segments.as_slice()) {
        ("GET", [] | [""]) => Ok(greeting(
            "Torc: administration under /storage_service and others; metrics are on the port prometheus_port\n",
        )),
        ("GET", rest) => Ok(Answer::json(&question(&node, &call, rest).await?)),
        _ => change(&node, &call, &segments).await,
    }
}

/// Requests that change something, but for those of modules of their own.
async fn change(node: &Rc<dyn Node>, call: &Call, segments: &[&str]) -> Result<Answer, Answer> {
    match (call.method.as_str(), segments) {
        ("POST", ["storage_service", "keyspace_flush", keyspace]) => {
            tables::operate(node, call, keyspace, TableOperation::Flush).await
        }
        ("POST", ["storage_service", "keyspace_compaction", keyspace]) => {
            tables::compact(node, call, keyspace).await
        }
        ("POST", ["torc", "rebuild_index", keyspace, table]) => {
            tables::rebuild_indexes(node, call, keyspace, table).await
        }
        ("POST", ["storage_service", "flush"]) => {
            for keyspace in node.schema().keyspaces() {
                tables::operate(node, call, &keyspace.name, TableOperation::Flush).await?;
            }
            Ok(Answer::done())
        }
        ("POST", ["storage_service", "snapshots"]) => tables::snapshot(node, call).await,
        ("DELETE", ["storage_service", "snapshots"]) => tables::clear_snapshots(node, call).await,
        ("POST", ["storage_service", "drain"]) => {
            node.drain().await.map_err(|error| Answer::error(500, error.to_string()))?;
            Ok(Answer::done())
        }
        (method @ ("POST" | "DELETE"), ["storage_service", "native_transport"]) => {
            let changed = node.set_native_transport(method == "POST").await;
            changed.map_err(|error| Answer::error(500, error))?;
            Ok(Answer::done())
        }
        ("POST", ["storage_service", "stop_daemon"]) => {
            node.request_stop();
            Ok(Answer::done())
        }
        _ => Err(unknown(call)),
    }
}

/// Whether clients are let in.
fn serves(mode: Mode) -> bool {
    matches!(mode, Mode::Starting | Mode::Normal | Mode::Leaving)
}

fn unknown(call: &Call) -> Answer {
    Answer::error(404, format!("{} {} is not known", call.method, call.path))
}

/// The answers of GET requests.
async fn question(node: &Rc<dyn Node>, call: &Call, segments: &[&str]) -> Result<Value, Answer> {
    Ok(match segments {
        ["storage_service", "keyspaces"] => {
            tables::keyspaces(&node.schema(), call.parameter("type"), call.parameter("replication"))
        }
        ["storage_service", "snapshots"] => tables::snapshots(node).await?,
        ["storage_service", "snapshots", "size", "true"] => tables::snapshots_true_size(node).await?,
        ["storage_service", "toppartitions"] => samples::of_filter(node, call).await?,
        ["storage_service", "view_build_statuses", keyspace, view] => {
            tables::view_build_statuses(node, keyspace, view).await?
        }
        ["storage_service", rest @ ..] => storage_service(node, call, rest).await?,
        ["gossiper" | "failure_detector" | "storage_proxy" | "snitch", ..] => {
            cluster(node, call, segments).await?
        }
        // SSTables are written in one version.
        ["system", "chosen_sstable_version" | "highest_supported_sstable_version"] => json!("nb"),
        ["system", "uptime_ms"] => json!((node.now_micros() - node.info().started_micros) / 1_000),
        ["column_family", "toppartitions", name] => samples::of_table(node, call, name).await?,
        ["column_family"] => tables::tables(&node.schema()),
        ["column_family", "name"] => {
            let schema = node.schema();
            json!(schema.tables().map(|t| format!("{}:{}", t.keyspace, t.name)).collect::<Vec<_>>())
        }
        ["column_family", "name", "keyspace"] => tables::keyspaces(&node.schema(), None, None),
        ["compaction_manager", "compaction_history"] => tables::compaction_history(node).await,
        ["compaction_manager", "compactions"] => tables::compactions(node).await,
        ["compaction_manager", "compaction_info"] => tables::compaction_info(node).await,
        ["compaction_manager", "metrics", "completed_tasks" | "total_compactions_completed"] => {
            figures::storage_figure(node, |engine| engine.compactions_done).await
        }
        ["compaction_manager", "metrics", "failed_tasks"] => {
            figures::storage_figure(node, |engine| engine.compactions_failed).await
        }
        ["compaction_manager", "metrics", "bytes_compacted"] => {
            figures::storage_figure(node, |engine| engine.compaction_bytes_in).await
        }
        ["compaction_manager", "metrics", "pending_tasks"] => {
            figures::storage_figure(node, |engine| {
                engine.tables.iter().map(|(_, table)| table.compactions_pending).sum()
            })
            .await
        }
        ["cache_service", "metrics", cache, figure] => {
            figures::cache(node, cache, figure).await.ok_or_else(|| unknown(call))?
        }
        ["torc", "tables"] => tables::table_figures(node, call).await?,
        ["torc", "gossip"] => gossip_states::whole(node).await,
        ["torc", "clients"] => nodes::clients(node).await,
        ["torc", "groups"] => figures::groups(node).await,
        ["torc", "storage"] => figures::storage(node).await,
        ["torc", "messages"] => figures::messages(node).await,
        ["torc", "keyspaces"] => ring::replications(node),
        ["torc", "nodes"] => nodes::nodes(node, call.parameter("keyspace")).await?,
        _ => return Err(unknown(call)),
    })
}

async fn storage_service(node: &Rc<dyn Node>, call: &Call, segments: &[&str]) -> Result<Value, Answer> {
    let info = node.info();
    Ok(match segments {
        ["release_version"] => json!(info.release_version),
        ["scylla_release_version"] => json!(info.version),
        ["operation_mode"] => json!(node.mode().name()),
        ["is_starting"] => json!(false),
        ["native_transport"] => json!(serves(node.mode()) && node.has_native_transport()),
        // A node alone gossips with nobody, and would if there were somebody.
        ["gossiping"] => json!(!matches!(node.mode(), Mode::Draining | Mode::Drained | Mode::Decommissioned)),
        ["hostid", "local"] => json!(uuid(&info.host_id)),
        ["host_id"] => ring::host_ids(node),
        ["tokens"] => ring::tokens_of(node, None),
        ["tokens", address] => ring::tokens_of(node, Some(address)),
        ["tokens_endpoint"] => ring::tokens(node),
        ["ownership"] | ["ownership", "null"] => ring::ownership(node, None)?,
        ["ownership", keyspace] => ring::ownership(node, Some(keyspace))?,
        ["describe_ring", keyspace] => ring::describe(node, call, keyspace)?,
        ["pending_range", keyspace] => ring::pending(node, keyspace)?,
        ["natural_endpoints", keyspace] => ring::natural_endpoints(node, call, keyspace)?,
        ["natural_endpoints", "v2", keyspace] => ring::natural_endpoints_of_parts(node, call, keyspace)?,
        ["range_to_endpoint_map", keyspace] => ring::endpoints_of_ranges(node, call, keyspace)?,
        ["nodes", state] => ring::in_state(node, state).ok_or_else(|| unknown(call))?,
        ["load"] => json!(figures::load(node).await),
        ["load_map"] => ring::loads(node).await,
        ["generation_number"] => json!(ring::generation(node)),
        ["schema_version"] => json!(uuid(&node.schema().version())),
        ["partitioner_name"] => json!("org.apache.cassandra.dht.Murmur3Partitioner"),
        ["cluster_name"] => json!(info.cluster_name),
        _ => return Err(unknown(call)),
    })
}

/// The answers about the cluster.
async fn cluster(node: &Rc<dyn Node>, call: &Call, segments: &[&str]) -> Result<Value, Answer> {
    let info = node.info();
    Ok(match segments {
        ["gossiper", "endpoint", "live"] => ring::by_life(node, true),
        ["gossiper", "endpoint", "down"] => ring::by_life(node, false),
        ["failure_detector", "endpoints", "states", address] => gossip_states::text(node, address).await?,
        ["failure_detector", rest @ ..] => detector::answer(node, rest).await.ok_or_else(|| unknown(call))?,
        ["storage_proxy", "schema_versions"] => ring::schema_versions(node),
        ["storage_proxy", "metrics", kind, "estimated_histogram"] => {
            figures::histogram(node, kind).await.ok_or_else(|| unknown(call))?
        }
        ["storage_proxy", figure] if figure.starts_with("read_repair_") => {
            figures::read_repair(node, figure).await.ok_or_else(|| unknown(call))?
        }
        ["storage_proxy", rest @ ..] => requests::answer(node, rest).await.ok_or_else(|| unknown(call))?,
        ["gossiper", figure, name] => ring::of_gossip(node, figure, name).ok_or_else(|| unknown(call))??,
        ["snitch", "datacenter"] => match call.parameter("host") {
            Some(host) => json!(ring::location(node, host).datacenter),
            None => json!(info.datacenter),
        },
        ["snitch", "rack"] => match call.parameter("host") {
            Some(host) => json!(ring::location(node, host).rack),
            None => json!(info.rack),
        },
        ["snitch", "name"] => {
            let setting = node.setting("endpoint_snitch").map(|setting| setting.value);
            let class = setting.unwrap_or_else(|| "GossipingPropertyFileSnitch".to_owned());
            match class.contains('.') {
                true => json!(class),
                false => json!(format!("org.apache.cassandra.locator.{class}")),
            }
        }
        _ => return Err(unknown(call)),
    })
}
