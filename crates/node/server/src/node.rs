//! One function that puts a node together, for production and simulation alike.
//!
//! Shard 0 leads: it locks the directory, reads the node's identity and its schema, has every shard open its part,
//! has every shard listen, and at the end has every shard stop. The other shards follow shard 0 over a mesh of
//! their own; everything that can fail does so before the first client is accepted.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::rollback::RollbackGuard;
use cluster::state::MemberStatus;
use cluster::{DroppedTable, NewTokens, NodeIdentity};
use futures_util::future::{Either, join_all, select};
use membership::{Membership, TopologyChanges};
use rpc::RpcConfig;
use rt::mesh::{Endpoint, Mesh};
use rt::{LockGuard, Rt, ShardId, ShardMain, Task};
use schema::Schema;
use topology::HostId;

use crate::admin_node::AdminNode;
use crate::audit::SyslogHook;
use crate::boot::{Boot, Directories};
use crate::directory::{Directory, ResolveHook};
use crate::member::{self, Shards};
use crate::orders::{CloseClients, Connect, Follower, Listen, Open, Order, Quiesce, Replay, Report, Stop};
use crate::security::Security;
use crate::settings::{LogLevelHook, LogTailHook, ProcessHooks, Settings};
use crate::shard::{ShardSetup, engine_config};
use crate::{Canaries, Config, NodeError, object_store};

/// Requests from shard to shard that may wait for each kind of message; bounds the memory of a burst.
const MESH_QUEUE_MAX: usize = 4096;

/// How long a node that starts waits to hear of the others before it serves.
const HEARING_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a node that starts waits for the first superuser to be created.
const SUPERUSER_TIMEOUT: Duration = Duration::from_secs(10);

/// The assumed memory of a node, where it is unknown, as in a simulation.
const MEMORY_ASSUMED: u64 = 4 << 30;

/// The callback when clients can connect: with the CQL addresses that the node listens on.
pub type ReadyHook = Arc<dyn Fn(&ReadyReport) + Send + Sync>;

/// The callbacks of a node into its process.
#[derive(Clone)]
pub struct NodeHooks {
    /// Called when clients can connect.
    pub ready: ReadyHook,
    /// Changes the level of the log; none where the log is not this node's alone.
    pub log_level: Option<LogLevelHook>,
    /// Gives the last lines of the log; none where the log is not this node's alone.
    pub log_tail: Option<LogTailHook>,
    /// Opens the way to a server of syslog, for the audit log.
    pub syslog: Option<SyslogHook>,
    /// Finds the addresses of names; none where only addresses are understood.
    pub resolve: Option<ResolveHook>,
}

impl<F: Fn(&ReadyReport) + Send + Sync + 'static> From<Arc<F>> for NodeHooks {
    fn from(ready: Arc<F>) -> Self {
        Self { ready, log_level: None, log_tail: None, syslog: None, resolve: None }
    }
}

/// The report of a node that is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyReport {
    /// The address of CQL clients.
    pub cql: std::net::SocketAddr,
    /// The address of shard-aware clients.
    pub shard_aware: Option<std::net::SocketAddr>,
    /// The address of the DynamoDB API.
    pub alternator: Option<std::net::SocketAddr>,
    /// The address of the DynamoDB API with TLS.
    pub alternator_https: Option<std::net::SocketAddr>,
    /// The address of administration.
    pub api: Option<std::net::SocketAddr>,
    /// The address of metrics.
    pub metrics: Option<std::net::SocketAddr>,
    /// Milliseconds since the node's start.
    pub start_millis: u64,
    /// Shards.
    pub shards: u16,
}

/// The mains of a node with this configuration, one a shard; each returns why the node ended, if not on request.
///
/// # Errors
/// A main returns a [`NodeError`] when the node cannot start, or ends because its disk or its cluster's log failed.
pub fn mains(
    config: Config,
    shard_count: u16,
    hooks: impl Into<NodeHooks>,
) -> Vec<ShardMain<Result<(), NodeError>>> {
    mains_with_canaries(config, rt::Injected::default(), shard_count, hooks)
}

/// [`mains`] of a node with injected bugs, for the simulator's tests of itself. No configuration leads here.
///
/// # Errors
/// As [`mains`].
pub fn mains_with_canaries(
    mut config: Config,
    canaries: rt::Injected<Canaries>,
    shard_count: u16,
    hooks: impl Into<NodeHooks>,
) -> Vec<ShardMain<Result<(), NodeError>>> {
    let hooks = hooks.into();
    config.size_by_memory(MEMORY_ASSUMED);
    let orders = Mesh::new(shard_count, MESH_QUEUE_MAX);
    let setups = ShardSetup::all(shard_count, MESH_QUEUE_MAX);
    let config = Arc::new(config);
    let one = |(orders, setup): (Endpoint<Order, Report>, ShardSetup)| {
        let (config, hooks) = (config.clone(), hooks.clone());
        let main = move |rt: Rt| -> rt::LocalBoxFuture<Result<(), NodeError>> {
            Box::pin(async move {
                rt.allow_injected(&canaries);
                let follower = Follower::start(&rt, orders, setup);
                if rt.shard() == ShardId(0) {
                    lead(rt, (Config::clone(&config), canaries), follower, hooks).await
                } else {
                    follower.ended().await;
                    Ok(())
                }
            })
        };
        Box::new(main) as ShardMain<Result<(), NodeError>>
    };
    orders.into_iter().zip(setups).map(one).collect()
}

/// Shard 0: from an empty process to a node, and back.
async fn lead(
    rt: Rt,
    config: (Config, rt::Injected<Canaries>),
    follower: Follower,
    hooks: NodeHooks,
) -> Result<(), NodeError> {
    let NodeHooks { ready, log_level, log_tail, syslog, resolve } = hooks;
    let process = ProcessHooks { log_level, log_tail, syslog, resolve };
    let begun = begin(&rt, config, &follower, process).await;
    let served = match &begun {
        Ok(begun) => serve(&rt, begun, &follower, ready).await,
        Err(_) => Ok(()),
    };
    // A request of one shard may need another: none ends before all are quiet.
    join_all(follower.port().ask_each(Quiesce {})).await;
    if let Ok(begun) = &begun {
        begun.membership.stop().await;
    }
    let stopped = follower.order_all(Stop {}).await;
    // The lock goes last.
    match begun.and_then(|begun| served.and(stopped).map(|()| begun)) {
        Ok(_) => Ok(()),
        Err(NodeError::Interrupted) => {
            tracing::info!("stopped before the node was ready");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// A node that is a member of its cluster, with no storage open yet.
struct Begun {
    _locks: Vec<LockGuard>,
    _certificates: Option<Task<()>>,
    boot: Arc<Boot>,
    membership: Membership,
    /// DROP statements that a crash interrupted.
    drops: Vec<DroppedTable>,
}

/// From a member to a node that serves, until it stops.
async fn serve(rt: &Rt, begun: &Begun, follower: &Follower, ready: ReadyHook) -> Result<(), NodeError> {
    let Begun { boot, membership, .. } = begun;
    let served = match open(rt, begun, follower).await {
        Ok((admin, changes)) => {
            ready(&ReadyReport::new(rt, &boot.config, &admin));
            rt.stop_requested().await;
            tracing::info!("stopping");
            if membership.was_removed() {
                // A write that it acknowledged from here on would be lost.
                join_all(follower.port().ask_each(CloseClients {})).await;
            }
            changes.stop().await;
            membership.set_ready(false);
            admin.stop().await;
            Ok(())
        }
        Err(error) => Err(error),
    };
    membership.say_good_bye().await;
    served
}

/// The result of `step`, unless the node is stopped before.
async fn unless_stopped<T>(
    rt: &Rt,
    step: impl Future<Output = Result<T, NodeError>>,
) -> Result<T, NodeError> {
    match select(pin!(step), pin!(rt.stop_requested())).await {
        Either::Left((result, _)) => result,
        Either::Right(_) => Err(NodeError::Interrupted),
    }
}

impl ReadyReport {
    fn new(rt: &Rt, config: &Config, admin: &AdminNode) -> Self {
        let address = config.rpc_address;
        let port = config.native_shard_aware_transport_port;
        ReadyReport {
            cql: (address, config.native_transport_port).into(),
            shard_aware: (port != 0).then(|| (address, port).into()),
            alternator: config.alternator_on(config.alternator_port),
            alternator_https: config.alternator_on(config.alternator_https_port),
            api: admin.api_address(),
            metrics: admin.metrics_address(),
            start_millis: rt.now().as_nanos() / 1_000_000,
            shards: rt.shard_count(),
        }
    }
}

/// From nothing to a member of a cluster.
async fn begin(
    rt: &Rt,
    (config, canaries): (Config, rt::Injected<Canaries>),
    follower: &Follower,
    process: ProcessHooks,
) -> Result<Begun, NodeError> {
    let directories = Directories::of(&config);
    for directory in [&directories.data, &directories.commitlog, &directories.node, &directories.hints] {
        rt.disk().create_dir_durably(directory).await?;
    }
    let mut locks = Vec::new();
    for directory in directories.locked() {
        locks.push(rt.disk().lock_exclusive(directory.join("lock")).await?);
    }
    let tokens = new_tokens(&config)?;
    let mut identity = NodeIdentity::open(rt, &directories.node, &config.cluster_name, &tokens).await?;
    let guard = open_guard(rt, &directories, &identity, (&config, canaries)).await?;
    let generation = begin_life(rt, &mut identity, &directories).await?;
    let own = member::config(&config, &identity, (generation, guard.clone()), &directories)?;
    let security = Security::read(rt, &config).await?;
    let directory = Directory::open(rt, &config, process.resolve.as_ref()).await?;
    let objects = object_store::open(rt, &config, process.resolve.as_ref()).await?;
    let rpc_config =
        RpcConfig { secure: security.internode(&config), ..member::rpc_config(&config, own.host) };
    follower.order_all(Connect { config: Arc::new(rpc_config) }).await?;
    let messenger = follower.messenger().expect("shard 0 was just connected");
    guard.serve(&messenger);
    messenger.listen().await.map_err(|error| NodeError::Listen {
        what: "the port for other nodes",
        option: "storage_port",
        error,
    })?;
    let found = membership::open_group(rt, &messenger, &own, own_schema());
    let group = unless_stopped(rt, async { Ok(found.await?) }).await?;
    let drops = group.unfinished_drops();
    // Before gossip sends this generation, and after the disk is known not to be rolled back.
    guard.begin(generation).await;
    let membership = Membership::start(rt, &messenger, own, group);
    let state = membership.group().applied().state;
    if let Some(member) = state.member(HostId(identity.host_id)) {
        if member.status == MemberStatus::Left {
            return Err(left(&identity));
        }
        identity.tokens = member.tokens.clone();
    }
    let view = membership.view(None).ok_or_else(|| left(&identity))?;
    let view = Arc::new(coordinator::placed(view, None).await);
    let schema = state.schema.clone();
    let boot = Boot {
        client_tls: security.clients(&config),
        alternator_tls: security.alternator(),
        api_tls: security.api(),
        settings: Settings::new(config.clone(), process),
        config,
        canaries,
        directories,
        identity,
        schema,
        view,
        directory,
        objects,
        started_micros: rt.wall_micros(),
    };
    Ok(Begun { _locks: locks, _certificates: security.watch(rt), boot: Arc::new(boot), membership, drops })
}

/// Opens a member's storage and its ports; a joining one streams its ranges before that.
async fn open(
    rt: &Rt,
    begun: &Begun,
    follower: &Follower,
) -> Result<(AdminNode, TopologyChanges), NodeError> {
    let Begun { boot, membership, drops, .. } = begun;
    finish_drops(rt, boot, drops, membership.group()).await?;
    engine::prepare(rt, &engine_config(&boot, rt), &Arc::new(boot.schema.stored())).await?;
    boot.remember_shard_count(rt).await?;
    follower.order_all(Open { boot: boot.clone() }).await?;
    follower.order_all(Replay {}).await?;
    let running = follower.running().expect("shard 0 was just opened");
    membership.follow(running.coordinator());
    let port = follower.port().clone();
    let shards = Rc::new(Shards::new(port.clone()));
    let changes = TopologyChanges::new(rt, membership, running.coordinator(), shards);
    let admin = AdminNode::start(rt, boot, running.clone(), port, membership, &changes).await?;
    match enter(rt, begun, follower, &changes).await {
        Ok(()) => {
            running.repair().start().await;
            running.build_views();
            running.follow_ring();
            Ok((admin, changes))
        }
        Err(error) => {
            admin.stop().await;
            Err(error)
        }
    }
}

/// Takes the node's place in the ring, and lets clients in.
async fn enter(
    rt: &Rt,
    begun: &Begun,
    follower: &Follower,
    changes: &TopologyChanges,
) -> Result<(), NodeError> {
    let Begun { boot, membership, .. } = begun;
    membership.hear_of_others(rt.now() + HEARING_TIMEOUT).await;
    if membership.is_joining() && !boot.config.join_ring && !changes.has_tokens() {
        tracing::info!("join_ring is false: this node coordinates, and owns nothing until nodetool join");
        unless_stopped(rt, async { Ok(membership.catch_up(rt.now() + HEARING_TIMEOUT).await?) }).await?;
    } else if membership.is_joining() {
        tracing::info!("joining the cluster");
        unless_stopped(rt, async { Ok(changes.join().await?) }).await?;
        tracing::info!("joined the cluster");
    } else {
        unless_stopped(rt, async { Ok(membership.catch_up(rt.now() + HEARING_TIMEOUT).await?) }).await?;
    }
    membership.check_disk()?;
    create_superuser(rt, begun, follower).await;
    follower.order_all(Listen {}).await?;
    membership.set_ready(true);
    changes.start();
    Ok(())
}

/// Sees to it that there is a role to log in as. Where that cannot be decided soon, the node lets clients in all the same, and goes
/// on trying.
async fn create_superuser(rt: &Rt, begun: &Begun, follower: &Follower) {
    let config = &begun.boot.config;
    if config.asks_nobody() {
        return;
    }
    let Some(running) = follower.running() else { return };
    let (coordinator, config, own) = (running.coordinator().clone(), config.clone(), rt.clone());
    let work = rt.uncancelled(rt::Group::Maintenance, async move {
        let create = crate::login::create_superuser(&own, &config, &coordinator);
        select(pin!(create), pin!(own.stop_requested())).await;
    });
    if rt.timeout(SUPERUSER_TIMEOUT, work).await.is_err() {
        tracing::warn!("it is not decided yet whether a first superuser is needed");
    }
}

/// The number of this process lifetime.
async fn begin_life(
    rt: &Rt,
    identity: &mut NodeIdentity,
    directories: &Directories,
) -> Result<u64, NodeError> {
    match identity.begin_life(rt, &directories.node).await {
        Ok(generation) => Ok(generation),
        // The data can still be read. The clock alone separates this generation from the next.
        Err(error) if error.is_disk_full() => {
            tracing::warn!("the data directory's file system is full: {error}");
            Ok(identity.generation)
        }
        Err(error) => Err(error.into()),
    }
}

/// The guard that detects whether the disk was rolled back since others last saw this node.
async fn open_guard(
    rt: &Rt,
    directories: &Directories,
    identity: &NodeIdentity,
    (config, canaries): (&Config, rt::Injected<Canaries>),
) -> Result<RollbackGuard, NodeError> {
    let host = HostId(identity.host_id);
    let allowed = config.allow_rolled_back || canaries.rollback_unnoticed;
    Ok(RollbackGuard::open(rt, &directories.node, host, identity.generation, allowed).await?)
}

/// The tokens of a node that has none yet.
fn new_tokens(config: &Config) -> Result<NewTokens, NodeError> {
    let given = config.initial_tokens().map_err(|error| NodeError::Open(error.to_string()))?;
    Ok(if given.is_empty() { NewTokens::Random(config.num_tokens) } else { NewTokens::These(given) })
}

fn left(identity: &NodeIdentity) -> NodeError {
    let host = schema::TableId(identity.host_id);
    NodeError::Cluster(format!(
        "host {host} has left its cluster; clear its data directory, and it joins again as a new node"
    ))
}

/// Finishes DROP statements that a crash interrupted.
async fn finish_drops(
    rt: &Rt,
    boot: &Boot,
    drops: &[DroppedTable],
    group: &cluster::group::Group,
) -> Result<(), NodeError> {
    let unfinished = |dropped: &DroppedTable| engine::UnfinishedDrop {
        keyspace: dropped.keyspace.clone(),
        name: dropped.name.clone(),
        id: dropped.id,
        at_micros: dropped.at_micros,
        snapshot: boot.config.auto_snapshot && dropped.allow_snapshot,
        definition: dropped.definition.clone(),
    };
    // One that has come back since, by its id, is opened as it is.
    let gone = drops.iter().filter(|dropped| boot.schema.table_by_id(dropped.id).is_none());
    let unfinished: Vec<engine::UnfinishedDrop> = gone.map(unfinished).collect();
    engine::finish_drops(rt, &engine_config(boot, rt), &unfinished).await?;
    let ids: Vec<schema::TableId> = unfinished.iter().map(|dropped| dropped.id).collect();
    Ok(group.forget_drops(&ids).await?)
}

/// The schema of a node before anyone has created a keyspace: its stored and virtual system tables.
fn own_schema() -> Schema {
    catalog::computed_keyspaces().into_iter().fold(cluster::own_schema(), Schema::with_keyspace)
}
