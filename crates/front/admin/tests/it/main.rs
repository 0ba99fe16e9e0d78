//! REST administration over a made-up node of a cluster of several nodes.

mod entrance;
mod http;
mod port;
mod stored;
mod tools;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use admin::{
    Answer, Call, ClientFigures, MetricsService, Mode, Node, NodeInfo, RestService, Service, Setting,
    SettingKind, ShardFigures,
};
use bytes::Bytes;
use cluster::liveness::{Liveness, PeerLiveness};
use coordinator::{ClusterView, HintFigures, Phase, ViewNode};
use engine::{Rewrite, RewriteReport, Sampled, SnapshotRecord, SstableFigures, StopRequest, TableHistograms};
use gossip::{DownReason, Endpoint, Key, Standing, Versioned, status};
use mutation::DecoratedKey;
use replica::{Imported, ReplicaError, SnapshotContent, SnapshotError, TableOperation};
use rt::{DiskError, LocalBoxFuture};
use schema::{Cidr, CidrGroup, Keyspace, Replication, Schema, Table, TableBuilder, TableId};
use serde_json::{Value, json};
use topology::{HostId, Location};
use types::CqlType;

fn native(node: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node], 9042))
}

fn internode(node: u8) -> SocketAddr {
    SocketAddr::from(([10, 1, 0, node], 7000))
}

/// Node 1 of a ring of three in two datacenters; 3 is down, and 4 is about to join.
struct Fake {
    info: NodeInfo,
    alone: bool,
    stops: Rc<Cell<u32>>,
    /// The calls that change something.
    calls: Rc<RefCell<Vec<String>>>,
}

fn view_node(node: u8, tokens: &[i64], alive: bool) -> ViewNode {
    let location = Location::new(if node == 3 { "dc2" } else { "dc1" }, format!("rack{node}"));
    let host = HostId([node; 16]);
    let (native, internode) = (native(node), internode(node));
    let phase = if node == 2 { Phase::Leaving } else { Phase::Normal };
    let (tokens, release_version) = (tokens.to_vec(), "5.0.6".to_owned());
    let schema_version = Some([1; 16]);
    ViewNode {
        host,
        native,
        internode,
        location,
        shards: 2,
        tokens,
        alive,
        ready: alive,
        release_version,
        schema_version,
        phase,
    }
}

fn endpoint(node: u8, state: &str) -> Endpoint {
    let value = |text: &str| Versioned { version: 4, value: Bytes::copy_from_slice(text.as_bytes()) };
    let mut states = BTreeMap::from([
        (Key::STATUS, value(state)),
        (Key::LOAD, value("5000")),
        (Key::SCHEMA, value("01010101-0101-0101-0101-010101010101")),
        (Key::DC, value("dc1")),
        (Key::RACK, value("rack4")),
        (Key(99), value("from a later version")),
    ]);
    // A member does not say so itself: the cluster's log does.
    if state.is_empty() {
        states.remove(&Key::STATUS);
    }
    let host = HostId([node; 16]);
    Endpoint { host, generation: 77, address: internode(node), heartbeat: 9, states: Arc::new(states) }
}

impl Node for Fake {
    fn info(&self) -> &NodeInfo {
        &self.info
    }

    fn schema(&self) -> Arc<Schema> {
        let id = TableId([7; 16]);
        let one = TableBuilder::new("ks", "t", id).partition_key("k", CqlType::Int).build_known();
        let two = TableBuilder::new("ks", "pair", TableId([8; 16]))
            .partition_key("a", CqlType::Int)
            .partition_key("b", CqlType::Text)
            .build_known();
        let ks = Keyspace::new("ks", Replication::Simple { factor: 2 });
        let schema =
            Schema::default().with_keyspace(ks).with_keyspace(Keyspace::new("own", Replication::Local));
        let group = |name: &str, cidrs: &[&str]| CidrGroup {
            name: name.to_owned(),
            cidrs: cidrs.iter().map(|text| text.parse().expect("a range")).collect(),
        };
        let schema = schema.with_cidr_group(group("office", &["10.1.0.0/16", "fd00::/8"]));
        let schema = schema.with_cidr_group(group("lab", &["10.1.2.0/24"]));
        Arc::new(schema.with_table((*one).clone()).with_table((*two).clone()).with_version([1; 16]))
    }

    fn figures(&self) -> LocalBoxFuture<Vec<ShardFigures>> {
        let mut shard = ShardFigures::default();
        let stats = engine::TableStats {
            disk_bytes: 1_000,
            sstables: 2,
            reads: 3,
            memtable_rows: 5,
            memtable_cells: 11,
            flushes_pending: 2,
            sstables_per_level: vec![1, 2],
            metadata_bytes: 300,
            bloom_false_positives: 1,
            bloom_true_positives: 3,
            data_bytes: 500,
            uncompressed_bytes: 1_000,
            partition_bytes_max: 90,
            partition_bytes_sum: 200,
            partitions_estimate: 10,
            compactions_pending: 5,
            ..Default::default()
        };
        shard.engine.tables = vec![(TableId([7; 16]), stats)];
        shard.engine.cache_bytes_max = 1 << 19;
        shard.coordinated_reads.latencies.buckets[2] = 5;
        shard.coordinated_ranges.latencies.buckets[2] = 2;
        shard.view_writes.latencies.buckets[3] = 7;
        shard.engine.commitlog_entries = 6;
        let peer = rpc::PeerStats {
            sent: rpc::Amount { count: 7, bytes: 70 },
            unsent: rpc::Amount { count: 2, bytes: 20 },
            timeouts: 3,
            ..Default::default()
        };
        shard.rpc.peers = BTreeMap::from([(HostId([2; 16]), peer), (HostId([9; 16]), peer)]);
        Box::pin(std::future::ready(vec![shard.clone(), shard]))
    }

    fn operate(&self, table: TableId, operation: TableOperation) -> LocalBoxFuture<Result<(), ReplicaError>> {
        self.calls.borrow_mut().push(format!("{} {operation:?}", table.0[0]));
        Box::pin(std::future::ready(Ok(())))
    }

    fn rewrite_sstables(
        &self,
        table: TableId,
        how: Rewrite,
    ) -> LocalBoxFuture<Result<RewriteReport, ReplicaError>> {
        self.calls.borrow_mut().push(format!("{} {how:?}", table.0[0]));
        let problems = if table.0[0] == 7 { vec!["t is damaged".to_owned()] } else { Vec::new() };
        Box::pin(std::future::ready(Ok(RewriteReport {
            sstables: 2,
            set_aside: 1,
            problems,
            ..RewriteReport::default()
        })))
    }

    fn import_sstables(
        &self,
        table: &Table,
        directory: Option<PathBuf>,
    ) -> LocalBoxFuture<Result<Imported, String>> {
        self.calls.borrow_mut().push(format!("import {} {directory:?}", table.name));
        let imported = Imported { sstables: 2, partitions: 9, removed_sources: directory.is_none() };
        Box::pin(std::future::ready(Ok(imported)))
    }

    fn change_cidr_group(
        &self,
        name: &str,
        cidrs: Option<BTreeSet<Cidr>>,
    ) -> LocalBoxFuture<Result<(), String>> {
        self.calls.borrow_mut().push(format!("group {name} {cidrs:?}"));
        Box::pin(std::future::ready(Ok(())))
    }

    fn stop_operations(&self, wanted: StopRequest) -> LocalBoxFuture<u64> {
        self.calls.borrow_mut().push(format!("{wanted:?}"));
        Box::pin(std::future::ready(3))
    }

    fn set_native_transport(&self, is_open: bool) -> LocalBoxFuture<Result<(), String>> {
        self.calls.borrow_mut().push(format!("native {is_open}"));
        let done = if is_open { Ok(()) } else { Err("the node is drained".to_owned()) };
        Box::pin(std::future::ready(done))
    }

    fn sample(&self, table: TableId, places: usize, during: Duration) -> LocalBoxFuture<Option<Sampled>> {
        assert_eq!((places, during), (16, Duration::from_millis(5)));
        let mut sampled = Sampled::new(places);
        let key = match table {
            TableId([8, ..]) => DecoratedKey::compose(&[&7i32.to_be_bytes(), b"x"]),
            _ => DecoratedKey::compose(&[&(-7i32).to_be_bytes()]),
        };
        sampled.reads.count(&key);
        sampled.reads.count(&key);
        Box::pin(std::future::ready((!self.alone).then_some(sampled)))
    }

    fn table_histograms(&self, table: TableId) -> LocalBoxFuture<Option<TableHistograms>> {
        let mut histograms = TableHistograms::default();
        if table == TableId([7; 16]) {
            histograms.sstables = 2;
            histograms.partition_bytes.add(700);
            histograms.cells.add(3);
        }
        Box::pin(std::future::ready(Some(histograms)))
    }

    fn sampled_tokens(&self, table: TableId) -> LocalBoxFuture<Vec<i64>> {
        let tokens = if table == TableId([7; 16]) { vec![-4, 9] } else { vec![3, 9] };
        Box::pin(std::future::ready(tokens))
    }

    fn sstables_of(&self, _: TableId, key: Vec<u8>) -> LocalBoxFuture<Result<Vec<PathBuf>, ReplicaError>> {
        let found = match key[..] {
            [0, 0, 0, 5] => Ok(vec![PathBuf::from("/data/ks/t/oa-1-big-Data.db")]),
            [0, 0, 0, 6] => Ok(Vec::new()),
            _ => Err(ReplicaError::Storage("the file is damaged".to_owned())),
        };
        Box::pin(std::future::ready(found))
    }

    fn sstables(&self, table: TableId) -> LocalBoxFuture<Result<Vec<SstableFigures>, ReplicaError>> {
        let one = |generation: &str, created_micros| SstableFigures {
            generation: generation.to_owned(),
            version: "nb",
            level: 1,
            disk_bytes: 900,
            data_bytes: 700,
            index_bytes: 90,
            filter_bytes: 16,
            created_micros,
        };
        let found = match table {
            TableId([7, ..]) => Ok(vec![one("1", None), one("2", Some(60_000_000))]),
            _ => Err(ReplicaError::UnknownTable(table)),
        };
        Box::pin(std::future::ready(found))
    }

    fn built_indexes(&self) -> LocalBoxFuture<Vec<(TableId, String)>> {
        let built = [7, 8].map(|table| (TableId([table; 16]), format!("index_{table}")));
        Box::pin(std::future::ready(built.to_vec()))
    }

    fn commitlog_segments(&self) -> LocalBoxFuture<[Vec<String>; 2]> {
        let names = [vec!["CommitLog-0-1.log".to_owned()], Vec::new()];
        Box::pin(std::future::ready(names))
    }

    fn table_directory(&self, table: &Table) -> PathBuf {
        PathBuf::from(format!("/data/{}/{}", table.keyspace, table.name))
    }

    fn phi(&self, host: HostId) -> f64 {
        f64::from(host.0[0]) / 4.0
    }

    fn pending_hints(&self) -> LocalBoxFuture<BTreeMap<HostId, HintFigures>> {
        let figures = HintFigures {
            count: 5,
            bytes: 500,
            oldest_micros: 1_000_000,
            newest_micros: 2_000_000,
            files: 2,
        };
        Box::pin(std::future::ready([3, 9].map(|node| (HostId([node; 16]), figures)).into()))
    }

    fn pause_hints(&self, is_paused: bool) -> LocalBoxFuture<()> {
        self.calls.borrow_mut().push(format!("paused {is_paused}"));
        Box::pin(std::future::ready(()))
    }

    fn drop_hints(&self, host: Option<HostId>) -> LocalBoxFuture<()> {
        self.calls.borrow_mut().push(format!("dropped {:?}", host.map(|host| host.0[0])));
        Box::pin(std::future::ready(()))
    }

    fn view(&self) -> Arc<ClusterView> {
        let own = view_node(1, &[-100, 0], true);
        if self.alone {
            return Arc::new(ClusterView::alone(own));
        }
        let nodes = vec![own, view_node(2, &[100], true), view_node(3, &[i64::MIN / 2], false)];
        Arc::new(ClusterView::new(HostId([1; 16]), nodes).unwrap())
    }

    fn liveness(&self) -> Option<Liveness> {
        let peer = |node, standing, state| {
            let endpoint = endpoint(node, state);
            (endpoint.host, PeerLiveness { endpoint, standing, since_micros: 0 })
        };
        let peers = BTreeMap::from([
            peer(2, Standing::Alive, status::LEAVING),
            peer(3, Standing::Down(DownReason::Convicted), ""),
            peer(4, Standing::Alive, status::BOOT),
        ]);
        (!self.alone).then(|| Liveness { version: 1, own: endpoint(1, status::NORMAL), peers })
    }

    fn mode(&self) -> Mode {
        Mode::Normal
    }

    fn drain(&self) -> LocalBoxFuture<Result<(), ReplicaError>> {
        Box::pin(std::future::ready(Err(ReplicaError::Storage("the disk is full".to_owned()))))
    }

    fn take_snapshot(
        &self,
        tables: Vec<Arc<Table>>,
        name: String,
        content: SnapshotContent,
    ) -> LocalBoxFuture<Result<(), SnapshotError>> {
        let names: Vec<String> = tables.iter().map(|table| table.full_name()).collect();
        let how = if content == SnapshotContent::Flushed { " as it is on disk" } else { "" };
        self.calls.borrow_mut().push(format!("snapshot {name} of {}{how}", names.join(", ")));
        let exists = SnapshotError::Exists { table: "ks.t".to_owned(), name: name.clone() };
        Box::pin(std::future::ready(if name == "a" { Err(exists) } else { Ok(()) }))
    }

    fn remove_snapshots(&self, records: Vec<SnapshotRecord>) -> LocalBoxFuture<Result<u64, ReplicaError>> {
        let mut calls = self.calls.borrow_mut();
        calls.extend(
            records.iter().map(|record| format!("{} {}.{}", record.name, record.keyspace, record.table)),
        );
        Box::pin(std::future::ready(Ok(records.len() as u64)))
    }

    fn snapshots(&self) -> LocalBoxFuture<Result<Vec<SnapshotRecord>, DiskError>> {
        let of = |keyspace: &str, name: &str, table: &str, true_bytes| SnapshotRecord {
            name: name.to_owned(),
            keyspace: keyspace.to_owned(),
            table: table.to_owned(),
            true_bytes,
            disk_bytes: 50,
            created_micros: Some(7_000),
        };
        let record = |name: &str, table: &str, true_bytes| of("ks", name, table, true_bytes);
        let mut records = vec![record("a", "pair", 0), record("a", "t", 40), record("b", "t", 2)];
        if self.alone {
            // Of a table and of a keyspace that were dropped.
            records.extend([record("dropped-7-old", "old", 9), of("gone", "b", "t", 3)]);
        }
        Box::pin(std::future::ready(Ok(records)))
    }

    fn setting(&self, name: &str) -> Option<Setting> {
        let (value, kind) = match name {
            "trace_probability" => ("0.25", SettingKind::Float),
            "incremental_backups" => ("true", SettingKind::Truth),
            "compaction_throughput" => ("64MiB", SettingKind::Text),
            "phi_convict_threshold" => ("8", SettingKind::Float),
            "log_level" => ("info,engine=debug", SettingKind::Text),
            "slow_query_tracing" | "slow_query_tracing_fast" => ("false", SettingKind::Truth),
            "slow_query_tracing_ttl_in_s" => ("86400", SettingKind::Integer),
            "slow_query_tracing_threshold_in_us" => ("500000", SettingKind::Integer),
            "commitlog_total_space_in_mb" => ("8", SettingKind::Integer),
            "commitlog_directory" => ("/log", SettingKind::Text),
            name if name.ends_with("_in_ms") => ("5000", SettingKind::Integer),
            "tombstone_warn_threshold" => ("1000", SettingKind::Integer),
            "data_file_directories" => ("/data", SettingKind::Text),
            "concurrent_compactors" => ("2", SettingKind::Integer),
            "client_encryption_options_enabled" => ("true", SettingKind::Truth),
            "client_encryption_options_keyfile" => ("", SettingKind::Text),
            "client_encryption_options_require_client_auth" => ("optional", SettingKind::Text),
            _ => return None,
        };
        Some(Setting { value: value.to_owned(), kind })
    }

    fn change_setting(&self, name: &str, value: &str) -> LocalBoxFuture<Result<(), String>> {
        let done = match (name, value) {
            ("trace_probability", "0.125")
            | ("compaction_throughput", "8MiB")
            | ("incremental_backups", "false")
            | ("slow_query_tracing" | "slow_query_tracing_fast", "true" | "false")
            | ("slow_query_tracing_ttl_in_s", "8600")
            | ("slow_query_tracing_threshold_in_us", "10000")
            | ("tombstone_failure_threshold", "7")
            | ("log_level", "info,engine=trace" | "warn") => Ok(()),
            _ => Err(format!("{name} is never {value}")),
        };
        Box::pin(std::future::ready(done))
    }

    fn request_stop(&self) {
        self.stops.set(self.stops.get() + 1);
    }

    fn now_micros(&self) -> i64 {
        60_000_000
    }

    fn sleep(&self, time: Duration) -> LocalBoxFuture<()> {
        self.calls.borrow_mut().push(format!("slept {time:?}"));
        Box::pin(std::future::ready(()))
    }

    fn clients(&self) -> LocalBoxFuture<Vec<ClientFigures>> {
        let one = |username: &str, level: &str| ClientFigures {
            address: native(9),
            encrypted: false,
            protocol_version: 4,
            username: username.to_owned(),
            service_level: level.to_owned(),
            keyspace: None,
            requests: 1,
            driver: [None, None],
        };
        let clients = vec![one("ann", "gold"), one("ann", "gold"), one("bob", "default")];
        Box::pin(std::future::ready(clients))
    }
}

fn ask(alone: bool, method: &str, path: &str) -> Answer {
    call(&RestService::new(fake(alone)), method, path)
}

fn fake(alone: bool) -> Rc<dyn Node> {
    let info = NodeInfo {
        version: "0.1.0".to_owned(),
        cluster_name: "c".to_owned(),
        host_id: [1; 16],
        address: native(1).ip(),
        datacenter: "dc1".to_owned(),
        rack: "rack1".to_owned(),
        tokens: vec![-100, 0],
        started_micros: 20_000_000,
        release_version: "5.0.6".to_owned(),
    };
    Rc::new(Fake { info, alone, stops: Rc::default(), calls: Rc::default() })
}

fn call(service: &dyn Service, method: &str, path: &str) -> Answer {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let query = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let call = Call { method: method.to_owned(), path: path.to_owned(), query };
    let mut answer = service.call(call);
    match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("nothing here waits"),
    }
}

#[test]
fn the_metrics_port_serves_metrics_only() {
    let stops = Rc::<Cell<u32>>::default();
    let info = fake(true).info().clone();
    let node: Rc<dyn Node> = Rc::new(Fake { info, alone: true, stops: stops.clone(), calls: Rc::default() });
    let (metrics, rest) = (MetricsService::new(node.clone()), RestService::new(node));
    for (method, path) in [
        ("POST", "/storage_service/stop_daemon"),
        ("POST", "/storage_service/drain"),
        ("POST", "/metrics"),
        ("DELETE", "/storage_service/snapshots"),
        ("GET", "/storage_service/host_id"),
        ("GET", "/torc/nodes"),
        ("GET", "/metrics/storage_service/stop_daemon"),
    ] {
        assert_eq!(call(&metrics, method, path).status, 404, "{method} {path}");
    }
    assert_eq!(stops.get(), 0);
    let answer = call(&metrics, "GET", "/metrics");
    assert!(answer.status == 200 && answer.body.contains("scylla_node_operation_mode 3"), "{}", answer.body);
    let of_cluster = call(&MetricsService::new(fake(false)), "GET", "/metrics").body;
    for line in [
        "scylla_gossip_live{shard=\"0\"} 2",
        "scylla_gossip_unreachable{shard=\"0\"} 1",
        "scylla_node_ops_finished_percentage{ops=\"bootstrap\",shard=\"0\"} 1",
        "scylla_storage_proxy_coordinator_cas_total_operations{shard=\"0\"} 0",
        "scylla_cache_partition_hits{shard=\"0\"",
    ] {
        assert!(of_cluster.contains(line), "{line}");
    }
    assert_eq!(call(&rest, "GET", "/metrics").status, 404, "metrics have their own port");
    assert_eq!(call(&rest, "POST", "/storage_service/stop_daemon").status, 200);
    assert_eq!(stops.get(), 1);
}

fn get(path: &str) -> Value {
    let answer = ask(false, "GET", path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    serde_json::from_str(&answer.body).unwrap()
}

fn refused(path: &str) -> (u16, String) {
    let answer = ask(false, "GET", path);
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    (answer.status, body["message"].as_str().unwrap().to_owned())
}

fn pair(key: &str, value: impl Into<Value>) -> Value {
    json!({ "key": key, "value": value.into() })
}

#[test]
fn members_and_liveness() {
    assert_eq!(get("/gossiper/endpoint/live"), json!(["10.1.0.1", "10.1.0.2"]));
    assert_eq!(get("/gossiper/endpoint/down"), json!(["10.1.0.3"]));
    assert_eq!(get("/storage_service/nodes/leaving"), json!(["10.1.0.2"]), "named as the others name it");
    assert_eq!(get("/storage_service/nodes/joining"), json!(["10.1.0.4"]), "not in the ring yet");
    assert_eq!(get("/storage_service/nodes/moving"), json!([]));
    assert_eq!(refused("/storage_service/nodes/dancing").0, 404);
    let ids = get("/storage_service/host_id");
    assert_eq!(ids.as_array().unwrap().len(), 4, "those that join are listed");
    assert_eq!(ids[1], pair("10.1.0.2", "02020202-0202-0202-0202-020202020202"));
    assert_eq!(get("/snitch/datacenter?host=10.0.0.3"), json!("dc2"));
    assert_eq!(get("/snitch/rack?host=10.1.0.3"), json!("rack3"), "by either address");
    assert_eq!(get("/snitch/rack?host=10.1.0.4"), json!("rack4"), "as it says itself");
    assert_eq!(get("/snitch/rack"), json!("rack1"));
    assert_eq!(get("/snitch/rack?host=10.9.9.9"), json!("UNKNOWN_RACK"), "it may just have left");
    assert_eq!(get("/snitch/datacenter?host=10.9.9.9"), json!("UNKNOWN_DC"));
    let loads = json!([
        pair("10.1.0.1", 2000),
        pair("10.1.0.2", 5000),
        pair("10.1.0.3", 5000),
        pair("10.1.0.4", 5000)
    ]);
    assert_eq!(get("/storage_service/load_map"), loads);
}

#[test]
fn nodes_are_listed_one_by_one() {
    let nodes = get("/torc/nodes?keyspace=own");
    let said = |node: usize, what: &str| nodes[node][what].clone();
    let of = |what: &str| (0..4).map(|node| said(node, what)).collect::<Vec<_>>();
    assert_eq!(nodes.as_array().unwrap().len(), 4);
    assert_eq!(of("address"), ["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4"]);
    assert_eq!(of("state"), ["normal", "leaving", "normal", "joining"]);
    assert_eq!(of("up"), [json!(true), json!(true), json!(false), json!(true)]);
    assert_eq!(
        of("tokens"),
        [json!(["-100", "0"]), json!(["100"]), json!(["-4611686018427387904"]), json!([])]
    );
    assert_eq!(
        of("owns"),
        [json!(1.0), json!(1.0), json!(1.0), json!(null)],
        "a joining node owns nothing yet"
    );
    assert_eq!(of("load"), [2000.0, 5000.0, 5000.0, 5000.0]);
    assert_eq!((said(2, "datacenter"), said(3, "rack")), (json!("dc2"), json!("rack4")));
    assert_eq!(
        (said(1, "port"), said(1, "host_id")),
        (json!(7000), json!("02020202-0202-0202-0202-020202020202"))
    );
    let ring = get("/torc/nodes");
    assert!((ring[2]["owns"].as_f64().unwrap() - 0.75).abs() < 1e-9, "{ring}");
    assert_eq!(refused("/torc/nodes?keyspace=nope"), (404, "The keyspace nope, does not exist".to_owned()));
}

#[test]
fn settings_are_shown_and_changed_by_name() {
    assert_eq!(get("/storage_service/trace_probability"), json!(0.25));
    assert_eq!(get("/storage_service/incremental_backups"), json!(true));
    assert_eq!(get("/v2/config/compaction_throughput"), json!("64MiB"));
    assert_eq!(get("/v2/config/concurrent_compactors"), json!(2));
    assert_eq!(get("/v2/config/data_file_directories"), json!(["/data"]));
    let client = json!({ "enabled": "true", "require_client_auth": "optional" });
    assert_eq!(get("/v2/config/client_encryption_options"), client);
    assert_eq!(get("/v2/config/alternator_encryption_options"), json!({}));
    assert_eq!(get("/v2/config/rpc_port"), json!(9160));
    assert_eq!(get("/v2/config/experimental_features"), json!([]));
    assert_eq!(get("/v2/config/workdir"), json!("/"));
    assert_eq!(refused("/v2/config/nope"), (400, "No such config entry: nope".to_owned()));
    let set = |path: &str| {
        let answer = ask(false, "POST", path);
        (answer.status, answer.body)
    };
    assert_eq!(set("/storage_service/trace_probability?probability=0.125").0, 200);
    assert_eq!(set("/v2/config/compaction_throughput?value=8MiB").0, 200);
    let (status, body) = set("/v2/config/compaction_throughput?value=much");
    assert!(status == 400 && body.contains("compaction_throughput is never much"), "{status} {body}");
    let (status, body) = set("/storage_service/trace_probability?value=1");
    assert!(status == 400 && body.contains("Missing mandatory parameter 'probability'"), "{status} {body}");
    for (probability, why) in [
        ("abc", "Bad format in a probability value: \\\"abc\\\""),
        ("1e300", "must be from 0 to 1, not 1e300"),
        ("-1", "must be from 0 to 1, not -1"),
    ] {
        let (status, body) = set(&format!("/storage_service/trace_probability?probability={probability}"));
        assert!(status == 400 && body.contains(why), "{status} {body}");
    }
    // Any other value than true and 1 is false.
    assert_eq!(set("/storage_service/incremental_backups?value=bogus").0, 200);
    assert_eq!(set("/storage_service/incremental_backups?value=1").0, 400, "the fake node has no true");
}

#[test]
fn owners_of_ranges() {
    let tokens = [("-4611686018427387904", 3), ("-100", 1), ("0", 1), ("100", 2)];
    let expected: Vec<Value> =
        tokens.iter().map(|(token, node)| pair(token, format!("10.1.0.{node}"))).collect();
    assert_eq!(get("/storage_service/tokens_endpoint"), json!(expected));
    assert_eq!(get("/storage_service/tokens"), json!(["-100", "0"]));
    assert_eq!(get("/storage_service/tokens/10.0.0.2"), json!(["100"]));
    assert_eq!(get("/storage_service/tokens/10.9.9.9"), json!([]));
    let shares = |path: &str| -> Vec<f64> {
        let shares = get(path);
        shares
            .as_array()
            .unwrap()
            .iter()
            .map(|pair| pair["value"].as_str().unwrap().parse().unwrap())
            .collect()
    };
    let ring = shares("/storage_service/ownership");
    assert!((ring.iter().sum::<f64>() - 1.0).abs() < 1e-9 && (ring[2] - 0.75).abs() < 1e-9, "{ring:?}");
    let copies = shares("/storage_service/ownership/ks");
    assert!((copies.iter().sum::<f64>() - 2.0).abs() < 1e-9, "two replicas of everything: {copies:?}");
    assert_eq!(shares("/storage_service/ownership/own"), [1.0, 1.0, 1.0], "each node has its own");
    assert_eq!(get("/storage_service/ownership/null"), get("/storage_service/ownership"));
    let missing = (400, "Can't find a keyspace nope".to_owned());
    assert_eq!(refused("/storage_service/ownership/nope"), missing);
    assert_eq!(refused("/storage_service/describe_ring/nope"), missing);
    let missing = (400, "Can't find a column family nope in keyspace ks".to_owned());
    assert_eq!(refused("/storage_service/describe_ring/ks?table=nope"), missing);
    let ranges = get("/storage_service/describe_ring/ks");
    assert_eq!(ranges.as_array().unwrap().len(), 4);
    assert_eq!(
        ranges[0],
        json!({
            "start_token": "100", "end_token": "-4611686018427387904",
            "endpoints": ["10.1.0.3", "10.1.0.1"], "rpc_endpoints": ["10.0.0.3", "10.0.0.1"],
            "endpoint_details": [
                { "host": "10.1.0.3", "datacenter": "dc2", "rack": "rack3" },
                { "host": "10.1.0.1", "datacenter": "dc1", "rack": "rack1" },
            ],
        })
    );
}

#[test]
fn where_a_partition_is() {
    // The token of the int 5 is -7509452495886106294 (Cassandra's `SELECT token(k)`): the first range of the ring.
    let path = "/storage_service/natural_endpoints/ks?cf=t&key=5";
    assert_eq!(get(path), json!(["10.1.0.3", "10.1.0.1"]));
    let pair = get("/storage_service/natural_endpoints/ks?cf=pair&key=5:x");
    assert_eq!(pair.as_array().unwrap().len(), 2);
    let refused = |query: &str| refused(&format!("/storage_service/natural_endpoints/{query}"));
    let missing = "Can't find a column family nope in keyspace ks";
    assert_eq!(refused("ks?cf=nope&key=5"), (400, missing.to_owned()));
    assert_eq!(refused("ks?cf=t"), (400, "Missing mandatory parameter 'key'".to_owned()));
    assert_eq!(refused("ks?key=5"), (400, "Missing mandatory parameter 'cf'".to_owned()));
    assert!(refused("ks?cf=t&key=five").1.starts_with("the key does not fit ks.t: "));
    let parts = "the key does not fit ks.pair: it has 2 columns, with colons between; 1 were given";
    assert_eq!(refused("ks?cf=pair&key=5"), (400, parts.to_owned()));
    assert_eq!(refused("nope?cf=t&key=5"), (400, "Can't find a keyspace nope".to_owned()));
}

#[test]
fn gossip_states() {
    let endpoints = get("/torc/gossip");
    assert_eq!(endpoints.as_array().unwrap().len(), 4);
    let second = &endpoints[1];
    assert_eq!(
        (&second["generation"], &second["version"], &second["is_alive"]),
        (&json!(77), &json!(9), &json!(true))
    );
    let states = second["application_state"].as_array().unwrap();
    let state = json!({ "application_state": 0, "name": "STATUS", "version": 4, "value": "LEAVING" });
    assert_eq!(states[0], state);
    assert_eq!(states.last().unwrap()["name"], "UNKNOWN_99", "an unknown value is shown");
    let third = &endpoints[2];
    assert_eq!(third["is_alive"], false);
    let named = |name: &str| {
        let states = third["application_state"].as_array().unwrap();
        states.iter().find(|state| state["name"] == name).map(|state| state["value"].clone())
    };
    assert_eq!(named("STATUS_WITH_PORT"), Some(json!("NORMAL,-4611686018427387904")));
    assert_eq!((named("TOKENS"), named("STATUS")), (Some(json!("<hidden>")), None));
    assert_eq!(get("/storage_service/generation_number"), json!(77));
    assert_eq!(
        get("/storage_proxy/schema_versions"),
        json!([
            pair("01010101-0101-0101-0101-010101010101", json!(["10.1.0.1", "10.1.0.2"])),
            pair("UNREACHABLE", json!(["10.1.0.3"])),
        ])
    );
    // A node that is alone shows its own endpoint.
    let alone: Value = serde_json::from_str(&ask(true, "GET", "/failure_detector/endpoints").body).unwrap();
    assert_eq!((alone[0]["generation"].clone(), alone[0]["version"].clone()), (json!(20), json!(40)));
    let numbers = |endpoint: &Value| -> Vec<u64> {
        let states = endpoint["application_state"].as_array().unwrap();
        states.iter().map(|state| state["application_state"].as_u64().unwrap()).collect()
    };
    assert_eq!(numbers(&alone[0]), [0, 1, 2, 3, 4, 5, 8, 17, 7, 12], "ScyllaDB's numbers");
    assert_eq!(alone[0]["application_state"][6]["value"], "10.0.0.1", "without a port");
    assert_eq!(alone[0]["update_time"], 60_000);
    let scylla = get("/failure_detector/endpoints");
    assert_eq!(
        numbers(&scylla[1]),
        [0, 1, 2, 3, 4, 7, 12],
        "a value that ScyllaDB does not have is left out"
    );
    assert_eq!(numbers(&scylla[2]), [1, 2, 3, 4, 0, 13, 7, 12]);
}

#[test]
fn keyspaces_by_their_kind() {
    for (query, names) in [
        ("", json!(["ks", "own"])),
        ("?type=non_local_strategy", json!(["ks"])),
        ("?type=bogus", json!(["ks", "own"])),
        ("?replication=vnodes", json!(["ks", "own"])),
        ("?type=user&replication=all", json!(["ks", "own"])),
        ("?type=user&replication=tablets", json!([])),
    ] {
        assert_eq!(get(&format!("/storage_service/keyspaces{query}")), names, "{query}");
    }
}

#[test]
fn figures_and_snapshots() {
    assert_eq!(get("/storage_service/load"), json!(2000));
    let table = &get("/torc/tables?keyspace=ks")[0];
    assert_eq!((&table["table"], &table["sstables"], &table["reads"]), (&json!("t"), &json!(4), &json!(6)));
    assert_eq!(table["snapshot_bytes"], 42);
    assert_eq!(refused("/torc/tables?keyspace=nope").0, 404);
    let histogram = get("/storage_proxy/metrics/read/estimated_histogram");
    assert_eq!(histogram["buckets"][2], 10);
    assert_eq!(get("/storage_proxy/metrics/range/estimated_histogram")["buckets"][2], 4);
    assert_eq!(get("/storage_proxy/metrics/view_write/estimated_histogram")["buckets"][3], 14);
    assert_eq!((&table["memtable_cells"], &table["pending_flushes"]), (&json!(22), &json!(4)));
    for (figure, value) in [("memtable_columns_count", 22), ("pending_flushes", 4)] {
        assert_eq!(get(&format!("/column_family/metrics/{figure}/ks:t")), json!(value));
    }
    assert_eq!(
        histogram["buckets"].as_array().unwrap().len(),
        histogram["bucket_offsets"].as_array().unwrap().len() + 1
    );
    assert_eq!(refused("/storage_proxy/metrics/nope/estimated_histogram").0, 404);
    assert_eq!(get("/cache_service/metrics/row/capacity"), json!(1 << 20));
    assert_eq!(get("/cache_service/metrics/row/hit_rate"), json!(0.0));
    assert_eq!(refused("/cache_service/metrics/row/nope").0, 404);
    let in_b = json!([{ "ks": "ks", "cf": "t", "total": 50, "live": 2 }]);
    assert_eq!(get("/storage_service/snapshots")[1], pair("b", in_b));
    assert_eq!(get("/storage_service/snapshots/size/true"), json!(42));
    let failed = ask(false, "POST", "/storage_service/drain");
    assert_eq!(failed.status, 500);
    assert!(failed.body.contains("the disk is full"), "{}", failed.body);
    assert_eq!(get("/torc/messages")["verbs"].as_array().unwrap().len(), rpc::Verb::COUNT);
}

#[test]
fn partitions_that_are_asked_for_most() {
    for (table, key) in [("t", "-7"), ("pair", "7:x")] {
        let answer = get(&format!("/column_family/toppartitions/ks:{table}?duration=5&capacity=16"));
        assert_eq!(answer["read"], json!([{ "partition": key, "count": 2, "error": 0 }]));
        assert_eq!((&answer["read_cardinality"], &answer["write"]), (&json!(1), &json!([])));
    }
    let refused = |path: &str| {
        let answer = ask(false, "GET", path);
        (answer.status, answer.body)
    };
    assert_eq!(refused("/column_family/toppartitions/ks:none").0, 400);
    let (status, body) = refused("/column_family/toppartitions/ks:t?duration=0");
    assert!(status == 400 && body.contains("duration is 0"), "{body}");
    assert_eq!(refused("/storage_service/toppartitions").0, 400);
    let other = ask(true, "GET", "/column_family/toppartitions/ks:t?duration=5&capacity=16");
    assert!(other.status == 409 && other.body.contains("for somebody else"), "{}", other.body);
}
