//! The node as administration sees it, and its two ports.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use admin::{
    Access, ClientFigures, Entrance, HttpServer, HttpServerConfig, MetricsService, Mode, Node, NodeInfo,
    RestService, Service, Setting, SettingKind, ShardFigures,
};
use cluster::SchemaEdit;
use cluster::liveness::Liveness;
use cluster::state::{ClusterState, MemberStatus};
use coordinator::{
    ClusterView, DerivedCheck, DerivedCheckError, DerivedCheckStatus, HintFigures, SchemaChangeError,
    ViewBuildStatus, ViewNode,
};
use engine::{Rewrite, RewriteReport, Sampled, SnapshotRecord, SstableFigures, StopRequest, TableHistograms};
use futures_util::future::join_all;
use membership::{Membership, TopologyChanges, TopologyRequest};
use replica::{
    Imported, ReplicaError, SnapshotContent, SnapshotError, SnapshotNotes, Snapshots, TableOperation,
};
use rt::mesh::Port;
use rt::sync::Semaphore;
use rt::{DiskError, Group, LocalBoxFuture, Rt, ShardId, Task};
use schema::{Cidr, CidrGroup, Schema, Table, TableId};
use session::ConnectionInfo;
use topology::HostId;

use crate::boot::Boot;
use crate::draining::Draining;

use crate::importing::{UPLOAD, import};
use crate::login::AdminLogin;
use crate::orders::{
    ChangeSetting, CloseNative, DropHints, Figures, ListenNative, Order, PauseHints, Quiesce, Report,
    ResumeNative,
};
use crate::shard::RunningShard;
use crate::{Config, NodeError};

/// Between two times that the others hear how much is stored here.
const LOAD_INTERVAL: Duration = Duration::from_secs(60);
/// The time that other nodes have to say how far they are with building a view.
const VIEW_BUILDS_TIMEOUT: Duration = Duration::from_secs(5);

/// The administration and metrics ports of a node, on shard 0.
pub(crate) struct AdminNode {
    api: Option<HttpServer>,
    metrics: Option<HttpServer>,
    load: Task<()>,
}

impl AdminNode {
    /// Opens the ports.
    pub(crate) async fn start(
        rt: &Rt,
        boot: &Arc<Boot>,
        shard: Rc<RunningShard>,
        port: Port<Order, Report>,
        membership: &Membership,
        changes: &TopologyChanges,
    ) -> Result<Self, NodeError> {
        let config = &boot.config;
        let info = NodeInfo {
            version: crate::VERSION.to_owned(),
            cluster_name: config.cluster_name.clone(),
            host_id: boot.identity.host_id,
            address: config.rpc_address,
            datacenter: config.datacenter.clone(),
            rack: config.rack.clone(),
            tokens: boot.identity.tokens.clone(),
            started_micros: boot.started_micros,
            release_version: crate::facts::RELEASE_VERSION.to_owned(),
        };
        let entrance = entrance(boot, &shard);
        let snapshots = Snapshots::new(shard.replica(), boot.directories.data.clone());
        let view: Rc<dyn Node> = Rc::new(View {
            rt: rt.clone(),
            boot: boot.clone(),
            info,
            shard,
            port,
            membership: membership.clone(),
            changes: changes.clone(),
            data: boot.directories.data.clone(),
            draining: Rc::new(Draining::new()),
            snapshots,
            native: Rc::new(NativeSwitch { is_open: Cell::new(true), changing: Semaphore::new(1) }),
        });
        let load = rt.spawn(Group::Maintenance, publish_load(rt.clone(), view.clone(), membership.clone()));
        let rest: Rc<dyn Service> = Rc::new(RestService::new(view.clone()));
        let metrics: Rc<dyn Service> = Rc::new(MetricsService::new(view));
        let open = |what, option, address, port: u16, service: Rc<dyn Service>| {
            let (http, entrance) = (http_config(config), entrance.clone());
            async move {
                if port == 0 {
                    return Ok(None);
                }
                let address = SocketAddr::new(address, port);
                let started = HttpServer::start(rt, address, http, entrance, service).await;
                started.map(Some).map_err(|error| NodeError::Listen { what, error, option })
            }
        };
        let (address, port) = (config.api_address, config.api_port);
        let api = open("the administration port", "api_port", address, port, rest).await?;
        let (address, port) = (config.prometheus_address, config.prometheus_port);
        let metrics = open("the metrics port", "prometheus_port", address, port, metrics).await?;
        Ok(Self { api, metrics, load })
    }

    /// The address of administration.
    pub(crate) fn api_address(&self) -> Option<SocketAddr> {
        self.api.as_ref().map(HttpServer::address)
    }

    /// The address of metrics.
    pub(crate) fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(HttpServer::address)
    }

    /// Closes the ports.
    pub(crate) async fn stop(self) {
        self.load.cancel().await;
        for server in [self.api, self.metrics].into_iter().flatten() {
            server.stop().await;
        }
    }
}

/// The proofs of identity that the two ports take: the passwords of CQL clients, where those have any, and certificates.
fn entrance(boot: &Boot, shard: &RunningShard) -> Entrance {
    let config = &boot.config;
    if config.exposes_passwords() {
        tracing::warn!(
            "api_address or prometheus_address is not loopback, and there is no TLS there: passwords of administrators go over the network in the clear \
             (api_encryption_options)"
        );
    }
    let log_in = || -> Rc<dyn admin::Login> {
        Rc::new(AdminLogin::new(config, shard.front().authenticator(), shard.coordinator().clone()))
    };
    Entrance {
        tls: boot.api_tls.clone(),
        login: (!config.asks_nobody()).then(log_in),
        local_login: config.api_local_login,
    }
}

/// Limits of the two ports, and their access rules.
fn http_config(config: &Config) -> HttpServerConfig {
    let access = Access { host_names: config.host_names().collect() };
    let defaults = HttpServerConfig::default();
    let connections_max = defaults.connections_max.min(config.connection_limits().http);
    HttpServerConfig { access, connections_max, ..defaults }
}

/// Gossips the stored bytes of this node from time to time.
async fn publish_load(rt: Rt, node: Rc<dyn Node>, membership: Membership) {
    loop {
        membership.set_load(admin::load(&node).await);
        rt.sleep(LOAD_INTERVAL).await;
    }
}

struct View {
    rt: Rt,
    boot: Arc<Boot>,
    info: NodeInfo,
    shard: Rc<RunningShard>,
    port: Port<Order, Report>,
    membership: Membership,
    changes: TopologyChanges,
    data: PathBuf,
    draining: Rc<Draining>,
    snapshots: Snapshots,
    native: Rc<NativeSwitch>,
}

/// Whether an operator lets clients of CQL in.
struct NativeSwitch {
    is_open: Cell<bool>,
    /// One change at a time.
    changing: Semaphore,
}

/// The type of an option's value by its name in `system.config`.
fn kind_of(name: &str) -> SettingKind {
    match name {
        "bool" => SettingKind::Truth,
        "integer" => SettingKind::Integer,
        "double" => SettingKind::Float,
        _ => SettingKind::Text,
    }
}

impl Node for View {
    fn info(&self) -> &NodeInfo {
        &self.info
    }

    fn schema(&self) -> Arc<Schema> {
        self.shard.coordinator().schema()
    }

    fn figures(&self) -> LocalBoxFuture<Vec<ShardFigures>> {
        let port = self.port.clone();
        Box::pin(async move {
            let figures = join_all(port.ask_each(Figures {})).await;
            figures.into_iter().map(|figures| *figures).collect()
        })
    }

    fn operate(&self, table: TableId, operation: TableOperation) -> LocalBoxFuture<Result<(), ReplicaError>> {
        let replica = self.shard.replica().clone();
        Box::pin(async move { replica.table_operation(table, operation).await })
    }

    fn sample(&self, table: TableId, places: usize, during: Duration) -> LocalBoxFuture<Option<Sampled>> {
        let (rt, replica) = (self.rt.clone(), self.shard.replica().clone());
        // It ends although nobody waits for it any more.
        let counting = {
            let rt = rt.clone();
            async move {
                replica.sample(table, Some(places)).await;
                rt.sleep(during).await;
                replica.sample(table, None).await
            }
        };
        Box::pin(async move { rt.uncancelled(Group::Maintenance, counting).await })
    }

    fn view(&self) -> Arc<ClusterView> {
        self.shard.coordinator().view()
    }

    fn liveness(&self) -> Option<Liveness> {
        Some(self.membership.liveness())
    }

    fn mode(&self) -> Mode {
        if self.changes.has_left() {
            return Mode::Decommissioned;
        }
        match (self.draining.mode(), self.changes.status()) {
            (Mode::Normal, Some(MemberStatus::Joining)) if !self.changes.has_tokens() => Mode::Starting,
            (Mode::Normal, Some(MemberStatus::Joining)) => Mode::Joining,
            (Mode::Normal, Some(MemberStatus::Leaving | MemberStatus::Left)) => Mode::Leaving,
            (mode, _) => mode,
        }
    }

    fn change_topology(&self, request: TopologyRequest) -> LocalBoxFuture<Result<(), String>> {
        let (changes, rt) = (self.changes.clone(), self.rt.clone());
        // It continues when the client is gone.
        Box::pin(async move {
            rt.uncancelled(Group::Maintenance, async move { changes.ask(request).await }).await
        })
    }

    fn rebuilds_from(&self) -> Option<String> {
        self.changes.rebuilds_from()
    }

    fn cluster_state(&self) -> Option<Arc<ClusterState>> {
        Some(self.membership.group().applied().state)
    }

    fn drain(&self) -> LocalBoxFuture<Result<(), ReplicaError>> {
        if self.changes.has_left() {
            return Box::pin(std::future::ready(Ok(())));
        }
        let (draining, port, rt) = (self.draining.clone(), self.port.clone(), self.rt.clone());
        let (replica, schema) = (self.shard.replica().clone(), self.schema());
        let membership = self.membership.clone();
        let quiet = async move {
            membership.set_ready(false);
            // While there are connections to say it over.
            membership.say_good_bye().await;
            join_all(port.ask_each(Quiesce {})).await;
        };
        let flush = async move {
            let mut done = Ok(());
            for table in schema.stored().tables() {
                let flushed = replica.table_operation(table.id, TableOperation::Flush).await;
                if let Err(error) = flushed
                    && !matches!(error, ReplicaError::UnknownTable(_))
                {
                    done = done.and(Err(error));
                }
            }
            done
        };
        // It continues when the client is gone.
        let all = async move { draining.run(quiet, flush).await };
        Box::pin(async move { rt.uncancelled(Group::Maintenance, all).await })
    }

    fn change_cidr_group(
        &self,
        name: &str,
        cidrs: Option<BTreeSet<Cidr>>,
    ) -> LocalBoxFuture<Result<(), String>> {
        let edit = match cidrs {
            Some(cidrs) => SchemaEdit::PutCidrGroup(CidrGroup { name: name.to_owned(), cidrs }),
            None => SchemaEdit::DropCidrGroup(name.to_owned()),
        };
        let coordinator = self.shard.coordinator().clone();
        Box::pin(async move {
            loop {
                // The edit fits any other change.
                let base = coordinator.schema().version();
                match coordinator.change_schema(base, vec![edit.clone()]).await {
                    Ok(()) => return Ok(()),
                    Err(SchemaChangeError::Moved) => {}
                    Err(error) => return Err(error.to_string()),
                }
            }
        })
    }

    fn has_native_transport(&self) -> bool {
        self.native.is_open.get()
    }

    fn set_native_transport(&self, is_open: bool) -> LocalBoxFuture<Result<(), String>> {
        let (native, port, membership) = (self.native.clone(), self.port.clone(), self.membership.clone());
        let (draining, changes) = (self.draining.clone(), self.changes.clone());
        // It ends although nobody waits for it any more.
        let changing = async move {
            let stopping = || "the node is stopping".to_owned();
            let _one = native.changing.acquire(1).await.map_err(|_| stopping())?;
            if native.is_open.get() == is_open {
                return Ok(());
            }
            if !draining.is_normal() || changes.has_left() {
                return Err(
                    "the node is drained or has left its cluster, and serves no clients any more".to_owned()
                );
            }
            if is_open {
                join_all(port.ask_each(ResumeNative {})).await;
                let listening = port.ask(ShardId(0), ListenNative {}).await;
                listening.map_err(|error| error.to_string())?;
                native.is_open.set(true);
                membership.set_ready(true);
                tracing::info!("an operator opened the native transport: clients of CQL are let in again");
            } else {
                native.is_open.set(false);
                membership.set_ready(false);
                join_all(port.ask_each(CloseNative {})).await;
                tracing::warn!(
                    "an operator closed the native transport: no client of CQL is let in until nodetool enablebinary"
                );
            }
            Ok(())
        };
        let rt = self.rt.clone();
        Box::pin(async move { rt.uncancelled(Group::Maintenance, changing).await })
    }

    fn rewrite_sstables(
        &self,
        table: TableId,
        how: Rewrite,
    ) -> LocalBoxFuture<Result<RewriteReport, ReplicaError>> {
        let replica = self.shard.replica().clone();
        Box::pin(async move { replica.rewrite_sstables(table, how).await })
    }

    fn import_sstables(
        &self,
        table: &Table,
        directory: Option<PathBuf>,
    ) -> LocalBoxFuture<Result<Imported, String>> {
        let keep = directory.is_some();
        let directory = directory.unwrap_or_else(|| self.table_directory(table).join(UPLOAD));
        let (shard, membership, table) = (self.shard.clone(), self.membership.clone(), table.clone());
        let serves = self.draining.is_normal() && !self.changes.has_left();
        let rt = self.rt.clone();
        Box::pin(async move {
            // It ends although nobody waits for it any more.
            let importing = async move {
                if !serves {
                    return Err("the node is drained or has left its cluster".to_owned());
                }
                import(&shard, &membership, &table, directory, keep).await
            };
            rt.uncancelled(Group::Maintenance, importing).await
        })
    }

    fn stop_operations(&self, wanted: StopRequest) -> LocalBoxFuture<u64> {
        let replica = self.shard.replica().clone();
        Box::pin(async move { replica.stop_operations(wanted).await })
    }

    fn clients(&self) -> LocalBoxFuture<Vec<ClientFigures>> {
        let (sessions, schema) = (self.shard.front().sessions().clone(), self.schema());
        Box::pin(async move {
            let one = |info: ConnectionInfo| {
                let username = info.username.unwrap_or_else(|| "anonymous".to_owned());
                ClientFigures {
                    address: info.address,
                    encrypted: info.encrypted,
                    protocol_version: info.protocol_version.unwrap_or(0),
                    service_level: auth::roles::service_level(&schema, &username).shares_of,
                    username,
                    keyspace: info.keyspace_name,
                    requests: info.request_count,
                    driver: [info.driver_name, info.driver_version],
                }
            };
            sessions.connections().await.into_iter().map(one).collect()
        })
    }

    fn take_snapshot(
        &self,
        tables: Vec<Arc<Table>>,
        name: String,
        content: SnapshotContent,
    ) -> LocalBoxFuture<Result<(), SnapshotError>> {
        let (snapshots, rt, schema) = (self.snapshots.clone(), self.rt.clone(), self.schema());
        let at_millis = rt.wall_micros().div_euclid(1_000);
        // Without its client it would leave a part.
        let taking = async move {
            let definition = |table: &Table| exec::describe::definition(&schema, table);
            let created_at = exec::describe::instant(at_millis);
            let notes = SnapshotNotes { definition: &definition, created_at: &created_at };
            snapshots.take(&tables, &name, content, notes).await
        };
        Box::pin(async move { rt.uncancelled(Group::Maintenance, taking).await })
    }

    fn remove_snapshots(&self, records: Vec<SnapshotRecord>) -> LocalBoxFuture<Result<u64, ReplicaError>> {
        let snapshots = self.snapshots.clone();
        Box::pin(async move { snapshots.remove(&records).await })
    }

    fn snapshots(&self) -> LocalBoxFuture<Result<Vec<SnapshotRecord>, DiskError>> {
        let (rt, data) = (self.rt.clone(), self.data.clone());
        Box::pin(async move { engine::list_snapshots(rt.disk(), &data).await })
    }

    fn table_histograms(&self, table: TableId) -> LocalBoxFuture<Option<TableHistograms>> {
        let replica = self.shard.replica().clone();
        Box::pin(async move { replica.table_histograms(table).await })
    }

    fn sampled_tokens(&self, table: TableId) -> LocalBoxFuture<Vec<i64>> {
        let replica = self.shard.replica().clone();
        Box::pin(async move { replica.sampled_tokens(table).await })
    }

    fn sstables_of(
        &self,
        table: TableId,
        key: Vec<u8>,
    ) -> LocalBoxFuture<Result<Vec<PathBuf>, ReplicaError>> {
        let replica = self.shard.replica().clone();
        Box::pin(async move { replica.sstables_of(table, key).await })
    }

    fn sstables(&self, table: TableId) -> LocalBoxFuture<Result<Vec<SstableFigures>, ReplicaError>> {
        let replica = self.shard.replica().clone();
        Box::pin(async move { replica.sstables(table).await })
    }

    fn built_indexes(&self) -> LocalBoxFuture<Vec<(TableId, String)>> {
        let replica = self.shard.replica().clone();
        Box::pin(async move { replica.built_indexes().await })
    }

    fn commitlog_segments(&self) -> LocalBoxFuture<[Vec<String>; 2]> {
        let replica = self.shard.replica().clone();
        Box::pin(async move { replica.commitlog_segments().await })
    }

    fn table_directory(&self, table: &Table) -> PathBuf {
        engine::table_dir(&self.data, table)
    }

    fn phi(&self, host: HostId) -> f64 {
        self.membership.phi(host)
    }

    fn pending_hints(&self) -> LocalBoxFuture<BTreeMap<HostId, HintFigures>> {
        let coordinator = self.shard.coordinator().clone();
        Box::pin(async move { coordinator.kept_hints().await })
    }

    fn pause_hints(&self, is_paused: bool) -> LocalBoxFuture<()> {
        let port = self.port.clone();
        Box::pin(async move { drop(join_all(port.ask_each(PauseHints { is_paused })).await) })
    }

    fn drop_hints(&self, host: Option<HostId>) -> LocalBoxFuture<()> {
        let port = self.port.clone();
        Box::pin(async move { drop(join_all(port.ask_each(DropHints { host })).await) })
    }

    fn view_builds(&self, view: TableId) -> LocalBoxFuture<Vec<(ViewNode, ViewBuildStatus)>> {
        let (coordinator, deadline) = (self.shard.coordinator().clone(), self.rt.now() + VIEW_BUILDS_TIMEOUT);
        Box::pin(async move { coordinator.view_build_statuses(view, deadline).await })
    }

    fn begin_derived_check(&self, wanted: DerivedCheck) -> Result<u64, DerivedCheckError> {
        self.shard.coordinator().begin_derived_check(wanted)
    }

    fn derived_checks(&self) -> Vec<DerivedCheckStatus> {
        self.shard.coordinator().derived_checks()
    }

    fn cancel_derived_check(&self, id: u64) -> bool {
        self.shard.coordinator().cancel_derived_check(id)
    }

    fn read_barrier(&self, timeout: Duration) -> LocalBoxFuture<Result<(), String>> {
        let (group, deadline) = (self.membership.group().clone(), self.rt.now() + timeout);
        Box::pin(async move { group.barrier(deadline).await.map(drop).map_err(|error| error.to_string()) })
    }

    fn setting(&self, name: &str) -> Option<Setting> {
        let option = Config::option(name).ok()?;
        let mut value = self.boot.settings.current().value_of(option.name)?;
        let in_use = match option.name {
            "commitlog_directory" => Some(&self.boot.directories.commitlog),
            "hints_directory" => Some(&self.boot.directories.hints),
            _ => None,
        };
        if let Some(directory) = in_use {
            value = directory.to_string_lossy().into_owned();
        }
        let unit = option.aliases.iter().find(|(alias, _)| *alias == name).map(|(_, unit)| *unit);
        if let Some(number) = unit.and_then(|unit| crate::config::in_unit(&value, unit)) {
            return Some(Setting { value: number.to_string(), kind: SettingKind::Integer });
        }
        Some(Setting { value, kind: kind_of(option.kind) })
    }

    fn change_setting(&self, name: &str, value: &str) -> LocalBoxFuture<Result<(), String>> {
        let port = self.port.clone();
        let call = ChangeSetting { name: name.to_owned(), value: value.to_owned() };
        Box::pin(async move { port.ask(ShardId(0), call).await })
    }

    fn repair(&self) -> Option<repair::Repair> {
        self.draining.is_normal().then(|| self.shard.repair().clone())
    }

    fn request_stop(&self) {
        self.rt.request_stop();
    }

    fn now_micros(&self) -> i64 {
        self.rt.wall_micros()
    }

    fn sleep(&self, time: Duration) -> LocalBoxFuture<()> {
        let rt = self.rt.clone();
        Box::pin(async move { rt.sleep(time).await })
    }
}
