//! The client side of a shard: sessions over an executor over the coordinator, and the tables in which the node describes
//! itself.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use admin::CidrFigures;
use catalog::Facts;
use coordinator::{
    Change, ChangedObject, ComputedRows, ComputedTables, Coordinator, SchemaEvent, ViewBuildStatus,
};
use dynamo::ApiFigures;
use exec::StatementCounts;
use exec::native::PreparedStatements;
use futures_util::stream::{self, StreamExt};
use replica::ReadCommand;
use rpc::Messenger;
use rt::mesh::Mesh;
use rt::metrics::{Sample, collect};
use rt::{Rt, Task};
use schema::TableId;
use session::{ClientTls, NodeDescription, SessionConfig, SessionMetrics, Sessions, SessionsEndpoint};
use topology::HostId;
use wire::{ChangeType, Event, SchemaChange, SchemaTarget};

use crate::announce::Announcer;
use crate::audit::ShardAudit;
use crate::backups::Snapshots;
use crate::boot::Boot;
use crate::directory::ShardDirectory;
use crate::executor::{self, Processor, ShardFrontend, StatementsEndpoint};
use crate::facts::{self, NodeFigures};
use crate::place::PlaceCheck;
use crate::{Config, NodeError};

/// How long requests under way may take when the node stops.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// The time that nodes have to report their progress of view builds, and the views that they are asked for at once.
const VIEW_BUILDS_TIMEOUT: Duration = Duration::from_secs(2);
const VIEW_BUILDS_AT_ONCE: usize = 16;

/// Bytes of answers for which there is room however little memory there is.
const ANSWER_BYTES_LEAST: usize = 16 << 20;

/// A shard's ends of the meshes of the client ports.
pub(crate) struct FrontEndpoint {
    sessions: SessionsEndpoint,
    statements: StatementsEndpoint,
    alternator: dynamo::HandOverEndpoint,
}

impl FrontEndpoint {
    /// One a shard.
    pub(crate) fn all(shard_count: u16, queue_max: usize) -> Vec<Self> {
        let ends = session::sessions_mesh(shard_count).into_iter().zip(Mesh::new(shard_count, queue_max));
        let ends = ends.zip(dynamo::hand_over_mesh(shard_count, queue_max));
        ends.map(|((sessions, statements), alternator)| Self { sessions, statements, alternator }).collect()
    }
}

/// Has clients that want to know hear of every change of the schema.
fn publish_schema_changes(coordinator: &Coordinator, sessions: &Sessions<Processor>) {
    let publisher = sessions.clone();
    coordinator.on_schema_change(Box::new(move |_, events| {
        events.iter().map(schema_change).for_each(|change| publisher.publish(Event::Schema(change)));
    }));
}

/// The CQL server and the DynamoDB API of one shard.
pub(crate) struct Front {
    rt: Rt,
    config: Config,
    client_tls: Option<ClientTls>,
    alternator_tls: Option<Arc<tls::Credentials>>,
    sessions: Sessions<Processor>,
    executor: ShardFrontend,
    audit: ShardAudit,
    directory: Option<Rc<ShardDirectory>>,
    place: Rc<PlaceCheck>,
    authenticator: Rc<dyn session::Authenticator>,
    /// The ways to all shards, once this one is open.
    node: Rc<OnceCell<NodeFigures>>,
    alternator: dynamo::Server<Coordinator>,
    announcer: Announcer,
    /// Names slow statements in the log.
    _slow: Task<()>,
}

impl Front {
    /// Does parts of other shards' aggregations, of this node and of others.
    pub(crate) fn serve_parts(&self, messenger: &Messenger) {
        let executor = Rc::downgrade(&self.executor);
        Coordinator::serve_parts(messenger, move |body, deadline| {
            let executor = executor.upgrade();
            async move {
                let executor = executor.ok_or_else(|| "this node ends".to_owned())?;
                executor.executor().aggregate_part(&body, deadline).await
            }
        });
    }

    /// Ready to own connections, but not listening.
    ///
    /// # Errors
    /// When the audit log has no way to its server of syslog.
    pub(crate) fn new(
        rt: &Rt,
        boot: &Arc<Boot>,
        coordinator: Coordinator,
        endpoint: FrontEndpoint,
    ) -> Result<Self, NodeError> {
        let executor = executor::executor(rt, boot, &coordinator, endpoint.statements);
        let syslog = boot.settings.process().syslog.as_ref();
        let audit =
            ShardAudit::new(rt, &boot.config, &boot.directories.audit, syslog, Some(executor.executor()));
        let audit = audit.map_err(NodeError::Open)?;
        executor.executor().audit_with(audit.log());
        let directory = directory(rt, boot, &executor);
        let place = Rc::new(PlaceCheck::new(rt, &boot.config, &coordinator));
        let places = (place.clone(), directory.clone());
        let authenticator = crate::login::authenticator(rt, &boot.config, &coordinator, &audit, places);
        let processor = Processor::new(rt, executor.clone());
        let sessions = Sessions::new(
            rt,
            SessionConfig {
                canaries: boot.canaries.part(|all| &all.session),
                ..session_config(&boot.config)
            },
            description(boot),
            authenticator.clone(),
            endpoint.sessions,
            processor,
        );
        publish_schema_changes(&coordinator, &sessions);
        let publisher = sessions.clone();
        let announcer = Announcer::start(rt, coordinator.view(), move |event| publisher.publish(event));
        let seen = announcer.clone();
        coordinator.on_view_change(Box::new(move |_, view| seen.see(view)));
        let node = Rc::new(OnceCell::new());
        let tables = Tables {
            rt: rt.clone(),
            boot: boot.clone(),
            coordinator: coordinator.clone(),
            sessions: sessions.clone(),
            executor: executor.clone(),
            node: node.clone(),
        };
        coordinator.compute_with(Rc::new(tables));
        let api = alternator(rt, boot, &executor, place.clone());
        let alternator = dynamo::Server::new(
            rt,
            api,
            alternator_limits(rt, &boot.config),
            boot.config.alternator_ttl_period,
            endpoint.alternator,
        );
        Ok(Self {
            _slow: executor::log_slow(rt, &executor),
            rt: rt.clone(),
            config: boot.config.clone(),
            client_tls: boot.client_tls.clone(),
            alternator_tls: boot.alternator_tls.clone(),
            sessions,
            executor,
            audit,
            directory,
            place,
            authenticator,
            node,
            alternator,
            announcer,
        })
    }

    /// Lets clients in; shard 0 accepts for all.
    pub(crate) async fn listen(&self) -> Result<(), NodeError> {
        if self.rt.shard().0 != 0 {
            return Ok(());
        }
        self.listen_native().await?;
        let config = &self.config;
        let plain = (config.alternator_port, None, "the port of the DynamoDB API", "alternator_port");
        let with_tls = (
            config.alternator_https_port,
            self.alternator_tls.clone(),
            "the port of the DynamoDB API with TLS",
            "alternator_https_port",
        );
        self.alternator.expire();
        for (port, tls, what, option) in [plain, with_tls] {
            let Some(address) = config.alternator_on(port) else { continue };
            let listening = self.alternator.listen(address, tls).await;
            listening.map_err(|error| NodeError::Listen { what, option, error })?;
        }
        Ok(())
    }

    /// Lets clients of CQL in, on shard 0.
    pub(crate) async fn listen_native(&self) -> Result<(), NodeError> {
        self.sessions.listen_with(self.client_tls.clone()).await.map_err(|error| {
            let config = &self.config;
            let port = error.address.map_or(0, |address| address.port());
            let (what, option) = if port == config.native_shard_aware_transport_port {
                ("the shard-aware CQL port", "native_shard_aware_transport_port")
            } else if port == config.native_transport_port_ssl {
                ("the CQL port with TLS", "native_transport_port_ssl")
            } else if port == config.native_shard_aware_transport_port_ssl {
                ("the shard-aware CQL port with TLS", "native_shard_aware_transport_port_ssl")
            } else {
                ("the CQL port", "native_transport_port")
            };
            NodeError::Listen { what, option, error }
        })?;
        Ok(())
    }

    /// Closes the ports of CQL on shard 0, and the connections of this shard when their requests have ended.
    pub(crate) async fn close_native(&self) {
        let left = self.sessions.stop(STOP_GRACE).await;
        if left > 0 {
            tracing::warn!(
                "{left} connections were still busy after {STOP_GRACE:?}; they end with their requests"
            );
        }
    }

    /// The login of CQL clients.
    pub(crate) fn authenticator(&self) -> Rc<dyn session::Authenticator> {
        self.authenticator.clone()
    }

    /// Has the tables of the node show the figures of all shards.
    pub(crate) fn show_node_with(&self, figures: NodeFigures) {
        assert!(self.node.set(figures).is_ok(), "a shard is opened once");
    }

    /// The figures of the check of the addresses of logins.
    pub(crate) fn cidr_figures(&self) -> CidrFigures {
        self.place.cidr_figures()
    }

    /// Lets clients change settings by CQL from now on.
    pub(crate) fn change_settings_with(&self, change: exec::SettingChange) {
        self.executor.executor().change_settings_with(change);
    }

    /// Uses changed settings for the requests that begin from now on.
    pub(crate) fn configure(&self, config: &Config) {
        self.executor.executor().set_limits(executor::limits(config));
        self.alternator.configure(alternator_settings(config));
        self.audit.configure(config);
        self.executor.executor().audit_with(self.audit.log());
    }

    /// The sessions of clients.
    pub(crate) fn sessions(&self) -> &Sessions<Processor> {
        &self.sessions
    }

    /// The metrics of this moment of the interfaces for clients; those of the DynamoDB API where it has a port.
    pub(crate) fn collect(&self, out: &mut Vec<Sample>) {
        collect(SessionMetrics::METRICS, self.sessions.metrics(), &[], out);
        collect(PreparedStatements::METRICS, self.executor.prepared_statements(), &[], out);
        collect(StatementCounts::METRICS, self.executor.executor().statement_counts(), &[], out);
        if self.config.has_alternator() {
            collect(ApiFigures::METRICS, &self.alternator.figures(), &[], out);
        }
    }

    /// Finishes the requests under way and closes the connections.
    pub(crate) async fn stop(&self) {
        self.announcer.stop();
        self.alternator.stop(STOP_GRACE).await;
        let left = self.sessions.stop(STOP_GRACE).await;
        if left > 0 {
            tracing::warn!("{left} connections were still busy after {STOP_GRACE:?} and are cut");
        }
        if let Some(directory) = &self.directory {
            directory.stop();
        }
        self.audit.stop().await;
    }
}

/// The directory of users as this shard uses it.
fn directory(rt: &Rt, boot: &Boot, executor: &ShardFrontend) -> Option<Rc<ShardDirectory>> {
    let directory = boot.directory.clone()?;
    let executor = executor.executor().clone();
    if boot.config.uses_directory_groups() {
        executor.follow_directory();
    }
    let take_over = Box::new(move |user: &str, roles| executor.set_directory_roles(user, roles));
    Some(ShardDirectory::start(rt, directory, take_over))
}

/// The DynamoDB API of this shard.
fn alternator(
    rt: &Rt,
    boot: &Boot,
    executor: &ShardFrontend,
    place: Rc<PlaceCheck>,
) -> dynamo::Dynamo<Coordinator> {
    let config = &boot.config;
    let isolation = dynamo::Isolation::from_name(&config.alternator_write_isolation);
    let replica = executor.executor().coordinator().replica();
    let snapshots = Snapshots::new(rt, replica, boot.directories.data.clone());
    let api = dynamo::Dynamo::new(executor.executor().clone(), isolation.unwrap_or_default())
        .with_settings(alternator_settings(config))
        .with_host_names(config.host_names().collect())
        .with_streams_window(config.alternator_streams_time_window)
        .admitting_by(Rc::new(move |role, address| place.check(role, address)))
        .with_snapshots(Rc::new(snapshots))
        .with_canaries(boot.canaries.part(|all| &all.dynamo));
    match &config.alternator_export_directory {
        Some(directory) => api.with_export_directory(rt, directory.clone(), boot.objects.clone()),
        None => api,
    }
}

/// The settings of the DynamoDB API that change while the node runs.
fn alternator_settings(config: &Config) -> dynamo::ApiSettings {
    let threshold = config.alternator_response_compression_threshold_in_bytes;
    dynamo::ApiSettings {
        enforces_authorization: config.alternator_enforce_authorization,
        warns_authorization: config.alternator_warn_authorization,
        writes_system_tables: config.alternator_allow_system_table_write,
        described_endpoint: dynamo::DescribedEndpoint::from_option(&config.alternator_describe_endpoints),
        timeout: Some(config.alternator_timeout).filter(|timeout| !timeout.is_zero()),
        batch_writes_max: usize::try_from(config.alternator_max_items_in_batch_write).unwrap_or(usize::MAX),
        compression: dynamo::Compression {
            bytes_min: usize::try_from(threshold).unwrap_or(usize::MAX),
            level: config.alternator_response_gzip_compression_level.into(),
        },
    }
}

/// This shard's part of the limits of the DynamoDB API.
fn alternator_limits(rt: &Rt, config: &Config) -> dynamo::HttpLimits {
    let shards = usize::from(rt.shard_count()).max(1);
    let memory = usize::try_from(config.memory_size.0).unwrap_or(usize::MAX);
    let defaults = dynamo::HttpLimits::default();
    dynamo::HttpLimits {
        connections_max: (config.connection_limits().alternator / shards)
            .max(1)
            .min(defaults.connections_max),
        // A body is parsed into several times its bytes. The largest may have arrived packed and be unpacked, beside it other clients
        // have room for one.
        bytes_in_flight_max: (memory / 64 / shards).max(3 * defaults.body_bytes_max),
        answer_bytes_max: (memory / 32 / shards).max(64 << 20),
        ..defaults
    }
}

/// The node as its clients' drivers learn of it.
fn description(boot: &Boot) -> NodeDescription {
    NodeDescription {
        cql_version: "3.4.7".to_owned(),
        host_id: schema::TableId(boot.identity.host_id).to_string(),
        partitioner: "org.apache.cassandra.dht.Murmur3Partitioner".to_owned(),
        sharding_ignore_msb: topology::SHARDING_IGNORE_MSB,
        shard_aware_port_ssl: shard_aware_port_ssl(&boot.config),
        tablets: false,
    }
}

/// The port that shard-aware clients with TLS connect to.
fn shard_aware_port_ssl(config: &Config) -> Option<u16> {
    let ports = [config.native_shard_aware_transport_port_ssl, config.native_shard_aware_transport_port];
    ports.into_iter().find(|port| *port != 0).filter(|_| config.client_encryption_options_enabled)
}

fn session_config(config: &Config) -> SessionConfig {
    let bytes = |size: crate::Size| usize::try_from(size.0).unwrap_or(usize::MAX);
    let limit = |n: u64| (n > 0).then(|| usize::try_from(n).unwrap_or(usize::MAX));
    let address = SocketAddr::new(config.rpc_address, config.native_transport_port);
    let aware = config.native_shard_aware_transport_port;
    let connections = config.connection_limits().cql;
    SessionConfig {
        shard_aware_address: (aware != 0).then(|| SocketAddr::new(config.rpc_address, aware)),
        native_transport_max_frame_size: bytes(config.native_transport_max_frame_size),
        native_transport_max_concurrent_connections: Some(
            limit(config.native_transport_max_concurrent_connections)
                .map_or(connections, |limit| limit.min(connections)),
        )
        .filter(|limit| *limit != usize::MAX),
        native_transport_max_concurrent_connections_per_ip: limit(
            config.native_transport_max_concurrent_connections_per_ip,
        ),
        native_transport_max_request_data_in_flight: bytes(
            config.native_transport_max_request_data_in_flight,
        ),
        native_transport_max_request_data_in_flight_per_ip: bytes(
            config.native_transport_max_request_data_in_flight_per_ip,
        ),
        // Beside memtables, caches and requests: answers for clients, and those that they do not read.
        answer_bytes_max: (bytes(config.memory_size) / 16).max(ANSWER_BYTES_LEAST),
        native_transport_idle_timeout: Some(config.native_transport_idle_timeout).filter(|t| !t.is_zero()),
        ..SessionConfig::new(address)
    }
}

fn schema_change(event: &SchemaEvent) -> SchemaChange {
    let change = match event.change {
        Change::Created => ChangeType::Created,
        Change::Updated => ChangeType::Updated,
        Change::Dropped => ChangeType::Dropped,
    };
    let target = match &event.object {
        ChangedObject::Keyspace => SchemaTarget::Keyspace,
        ChangedObject::Table(name) => SchemaTarget::Table(name.clone()),
        ChangedObject::Type(name) => SchemaTarget::Type(name.clone()),
        ChangedObject::Function(one) => {
            SchemaTarget::Function { name: one.name.clone(), arguments: one.arguments.clone() }
        }
        ChangedObject::Aggregate(one) => {
            SchemaTarget::Aggregate { name: one.name.clone(), arguments: one.arguments.clone() }
        }
    };
    SchemaChange { change, keyspace: event.keyspace.clone(), target }
}

/// The computed tables of the node.
struct Tables {
    rt: Rt,
    boot: Arc<Boot>,
    coordinator: Coordinator,
    sessions: Sessions<Processor>,
    executor: ShardFrontend,
    node: Rc<OnceCell<NodeFigures>>,
}

/// The facts that cost nothing to gather.
fn no_facts(boot: &Boot, coordinator: &Coordinator) -> Facts {
    Facts {
        node: facts::node(boot),
        view: coordinator.view(),
        settings: Vec::new(),
        clients: Vec::new(),
        compactions: Vec::new(),
        prepared: Vec::new(),
        sizes: Vec::new(),
        caches: Vec::new(),
        pools: Vec::new(),
        tasks: Vec::new(),
        hints: BTreeMap::new(),
        repairs: Vec::new(),
        cql: Vec::new(),
        snapshots: Vec::new(),
        options: Vec::new(),
        runtime: Vec::new(),
        large: Vec::new(),
        batches: Vec::new(),
        queries: Vec::new(),
        log: Vec::new(),
        built_indexes: Vec::new(),
        view_builds: Vec::new(),
        requests: Vec::new(),
        gossip: Vec::new(),
        peers: Vec::new(),
        repair_jobs: Vec::new(),
        cidr_counts: Vec::new(),
        cidr_latencies: Vec::new(),
    }
}

impl ComputedTables for Tables {
    fn rows(&self, command: &ReadCommand) -> Pin<Box<dyn Future<Output = ComputedRows>>> {
        let table = command.table.clone();
        let (boot, coordinator) = (self.boot.clone(), self.coordinator.clone());
        if let Some(stored) = catalog::StoredSchema::new(command, &coordinator.schema()) {
            return Box::pin(std::future::ready(ComputedRows::InOrder(Box::new(stored))));
        }
        let (rt, sessions, executor) = (self.rt.clone(), self.sessions.clone(), self.executor.clone());
        let node = self.node.clone();
        Box::pin(async move {
            let mut facts = no_facts(&boot, &coordinator);
            // Only the columns that the table needs are gathered: drivers ask for system.local all the time.
            match table.name.as_str() {
                "settings" => facts.settings = facts::settings(&boot.settings.current()),
                "clients" => facts.clients = facts::clients(&sessions.connections().await),
                "prepared_statements" => {
                    facts.prepared = facts::prepared(&executor.prepared_statements().all());
                }
                "cql_metrics" => {
                    facts.cql = facts::cql(sessions.metrics(), executor.prepared_statements());
                }
                "sstable_tasks" => facts.tasks = facts::tasks(&coordinator.replica().stats().await),
                "thread_pools" => facts.pools = facts::pools(&rt),
                "compaction_history" => {
                    facts.compactions = facts::compactions(&coordinator.replica().stats().await);
                }
                "pending_hints" => facts.hints = coordinator.kept_hints().await,
                "repair_history" => facts.repairs = crate::repairing::facts(&coordinator),
                "caches" => facts.caches = facts::caches(&coordinator.replica().stats().await),
                "snapshots" => facts.snapshots = snapshots(&rt, &boot).await,
                "gossip_info" => {
                    facts.gossip = coordinator.gossiped().await.map_or_else(Vec::new, facts::gossip)
                }
                name @ ("coordinator_read_latency"
                | "coordinator_scan_latency"
                | "coordinator_write_latency") => {
                    let figures = coordinator.table_figures().await;
                    facts.requests = facts::coordinated(name, &coordinator.schema(), &figures);
                }
                name @ ("local_read_latency"
                | "local_scan_latency"
                | "local_write_latency"
                | "rows_per_read"
                | "tombstones_per_read") => {
                    facts.requests = facts::local(name, &coordinator.replica().local_figures().await);
                }
                "large_partitions" | "large_rows" | "large_cells" => {
                    facts.large = facts::large(&coordinator.replica().stats().await);
                }
                "IndexInfo" | "sai_column_indexes" => {
                    facts.built_indexes = coordinator.replica().built_indexes().await
                }
                "view_build_status" => facts.view_builds = view_builds(&rt, &coordinator).await,
                "config" => facts.options = facts::options(&boot.settings.current()),
                "runtime_info" => {
                    let shards = coordinator.replica().stats().await;
                    facts.runtime = facts::runtime(&shards, &boot, rt.wall_micros());
                }
                "size_estimates"
                | "table_estimates"
                | "disk_usage"
                | "max_partition_size"
                | "max_sstable_size"
                | "max_sstable_duration" => {
                    facts.sizes = facts::sizes(&coordinator.replica().stats().await);
                }
                name => served(name, &mut facts, (&boot, &rt), (&executor, &node)).await,
            }
            ComputedRows::All(catalog::rows(&table, &coordinator.schema(), &facts).await)
        })
    }
}

/// The facts that all shards of the node have together; none before this shard is open.
async fn of_node(name: &str, facts: &mut Facts, node: &OnceCell<NodeFigures>) {
    let Some(node) = node.get() else { return };
    if name == "repairs" {
        facts.repair_jobs = facts::repair_jobs((node.repairs)().await);
        return;
    }
    let shards = (node.shards)().await;
    let cidr = || CidrFigures::sum(shards.iter().map(|shard| &shard.cidr));
    match name {
        "cidr_filtering_metrics_counts" => facts.cidr_counts = cidr().counts(),
        "cidr_filtering_metrics_latencies" => facts.cidr_latencies = cidr().latencies(),
        name => facts.peers = facts::peers(&shards, name == "internode_inbound"),
    }
}

/// The facts about the statements of this shard, about the log of the process, and about the node; none for the other tables.
async fn served(
    name: &str,
    facts: &mut Facts,
    (boot, rt): (&Boot, &Rt),
    (executor, node): (&ShardFrontend, &OnceCell<NodeFigures>),
) {
    match name {
        "queries" => {
            // This statement is listed once it has waited.
            rt.yield_now().await;
            facts.queries = facts::queries(executor, rt);
        }
        "batch_metrics" => facts.batches = facts::batches(executor.executor()),
        "system_logs" => {
            let tail = boot.settings.process().log_tail.as_ref();
            facts.log = tail.map_or_else(Vec::new, |tail| facts::log(&tail()));
        }
        "internode_inbound"
        | "internode_outbound"
        | "repairs"
        | "cidr_filtering_metrics_counts"
        | "cidr_filtering_metrics_latencies" => of_node(name, facts, node).await,
        _ => {}
    }
}

/// How far nodes are with building the materialized views; of those that have begun. Each node that is up is queried for each view.
async fn view_builds(rt: &Rt, coordinator: &Coordinator) -> Vec<(TableId, HostId, &'static str)> {
    let (schema, deadline) = (coordinator.schema(), rt.now() + VIEW_BUILDS_TIMEOUT);
    let views = stream::iter(schema.tables().filter(|table| table.is_view()).map(|table| table.id));
    let asked =
        views.map(|view| async move { (view, coordinator.view_build_statuses(view, deadline).await) });
    let mut asked = pin!(asked.buffered(VIEW_BUILDS_AT_ONCE));
    let mut builds = Vec::new();
    while let Some((view, nodes)) = asked.next().await {
        let begun = nodes.iter().filter(|(_, status)| *status != ViewBuildStatus::Unknown);
        builds.extend(begun.map(|(node, status)| (view, node.host, status.name())));
    }
    builds
}

async fn snapshots(rt: &Rt, boot: &Boot) -> Vec<catalog::SnapshotFacts> {
    let listed = engine::list_snapshots(rt.disk(), &boot.directories.data).await;
    let listed = listed.inspect_err(|error| tracing::warn!("snapshots cannot be listed: {error}"));
    facts::snapshots(listed.unwrap_or_default())
}
