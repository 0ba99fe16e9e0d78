//! One shard of a node: its collaborators, in the order in which they need each other.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use commitlog::{CommitLogConfig, SyncMode};
use coordinator::{Coordinator, Handoff, NodeRequest, NodeResponse, PaxosStats};
use engine::{Engine, EngineConfig, EngineSettings, EngineStats, FailurePolicy, ShareSettings};
use hints::{HintFigures, Hints, HintsConfig, HintsStats};
use membership::RangeStreamer;
use repair::Repair;
use replica::{Replica, ReplicaConfig, ShardRequest, ShardResponse};
use rpc::{HandoverEndpoint, Messenger};
use rt::mesh::{Endpoint, Mesh, PortStats};
use rt::metrics::{Sample, collect};
use rt::{Group, Rt, ShardId, Task};
use streaming::{Streaming, StreamingConfig};
use topology::HostId;

use crate::boot::Boot;
use crate::facts::NodeFigures;
use crate::front::{Front, FrontEndpoint};
use crate::memory_metrics::MemoryFigures;
use crate::settings::Settings;
use crate::{Config, NodeError};

/// A shard's ends of the meshes, on their way to the shard.
pub(crate) struct ShardSetup {
    /// Taken when the shard is connected, which is before it is opened.
    pub(crate) handover: Option<HandoverEndpoint>,
    replica: Endpoint<ShardRequest, ShardResponse>,
    coordinator: Endpoint<NodeRequest, NodeResponse>,
    front: FrontEndpoint,
}

impl ShardSetup {
    /// One a shard.
    pub(crate) fn all(shard_count: u16, queue_max: usize) -> Vec<Self> {
        let replicas = Mesh::new(shard_count, queue_max);
        let coordinators = Mesh::new(shard_count, queue_max);
        let fronts = FrontEndpoint::all(shard_count, queue_max);
        let handovers = rpc::handover_mesh(shard_count);
        let all = replicas.into_iter().zip(coordinators).zip(fronts).zip(handovers);
        all.map(|(((replica, coordinator), front), handover)| Self {
            handover: Some(handover),
            replica,
            coordinator,
            front,
        })
        .collect()
    }
}

/// A shard that has opened its storage.
pub(crate) struct RunningShard {
    boot: Arc<Boot>,
    engine: Engine,
    replica: Replica,
    coordinator: Coordinator,
    /// Completes the batches that other coordinators, or an earlier process, left.
    batches: RefCell<Option<Task<()>>>,
    /// Shard 0: builds materialized views.
    views: RefCell<Option<Task<()>>>,
    /// Shard 0: has the streams of changes follow the ring.
    streams: RefCell<Option<Task<()>>>,
    front: Front,
    handoff: Handoff,
    repair: Repair,
    transfers: Streaming,
    streamer: RangeStreamer,
    messenger: Messenger,
}

impl RunningShard {
    /// Opens storage and makes everything above it, without letting clients in.
    pub(crate) async fn open(
        rt: &Rt,
        boot: Arc<Boot>,
        setup: ShardSetup,
        messenger: Messenger,
    ) -> Result<Self, NodeError> {
        let config = &boot.config;
        let engine =
            Engine::open(rt.clone(), engine_config(&boot, rt), Arc::new(boot.schema.stored())).await?;
        let replica = Replica::new(rt, engine.clone(), setup.replica.attach(rt), replica_config(config));
        let coordinator = Coordinator::new(
            rt.clone(),
            boot.view.clone(),
            replica.clone(),
            setup.coordinator.attach(rt),
            boot.schema.clone(),
        );
        let memtables = usize::try_from(config.memtable_space.0 / u64::from(rt.shard_count()));
        coordinator.set_kept_batch_bytes_max(
            (memtables.unwrap_or(usize::MAX) / KEPT_BATCHES_SHARE).clamp(KEPT_BATCHES_MIN, KEPT_BATCHES_MAX),
        );
        coordinator.inject(boot.canaries.part(|all| &all.coordinator));
        coordinator.derive_views();
        coordinator.capture_changes();
        coordinator.connect(&messenger);
        let hints = Hints::open(rt, &boot.directories.hints, hints_config(&boot, rt)).await;
        let hints = hints.map_err(|error| NodeError::Open(error.to_string()))?;
        let handoff = Handoff::start(&coordinator, hints);
        let host = HostId(boot.identity.host_id);
        let who = (host, crate::repairing::settings(config, boot.canaries.part(|all| &all.repair)));
        let repair =
            crate::repairing::open(rt, who, &messenger, &coordinator, &boot.directories.node).await?;
        let transfers = Streaming::open(rt, host, &messenger, &engine, transfer_config(&boot, rt)).await;
        let transfers = transfers.map_err(|error| NodeError::Open(error.to_string()))?;
        let front = Front::new(rt, &boot, coordinator.clone(), setup.front)?;
        front.serve_parts(&messenger);
        let batches = RefCell::new(Some(coordinator.replay_left_batches(2 * config.write_request_timeout)));
        let streamer = RangeStreamer::new(&coordinator, &engine, &transfers);
        Ok(Self {
            boot,
            engine,
            replica,
            coordinator,
            batches,
            views: RefCell::new(None),
            streams: RefCell::new(None),
            front,
            handoff,
            repair,
            transfers,
            streamer,
            messenger,
        })
    }

    /// The settings of the node.
    pub(crate) fn settings(&self) -> &Settings {
        &self.boot.settings
    }

    /// The part that serves clients.
    pub(crate) fn front(&self) -> &Front {
        &self.front
    }

    /// Has the tables of the node show the figures of all shards.
    pub(crate) fn show_node_with(&self, figures: NodeFigures) {
        self.front.show_node_with(figures);
    }

    /// Lets clients change settings by CQL from now on.
    pub(crate) fn change_settings_with(&self, change: exec::SettingChange) {
        self.front.change_settings_with(change);
    }

    /// Uses changed settings from now on.
    pub(crate) fn configure(&self, rt: &Rt, config: &Config) {
        let shards = u64::from(rt.shard_count());
        self.engine.set_settings(engine_settings(config, shards));
        self.replica.set_config(replica_config(config));
        self.front.configure(config);
        self.handoff.hints().set_enabled(config.hinted_handoff_enabled);
        self.handoff.hints().set_window(config.max_hint_window);
        self.handoff.set_throttle(hints_throttle(config, shards));
        self.transfers.set_bandwidth(stream_bandwidth(config, shards));
        self.repair.set_settings(crate::repairing::live_settings(config));
    }

    /// Completes the logged batches that a crash interrupted.
    pub(crate) async fn replay_batches(&self) -> Result<(), NodeError> {
        let replayed = self.coordinator.replay_batches().await;
        match replayed.map_err(|error| NodeError::Open(error.to_string()))? {
            0 => {}
            replayed => tracing::info!("completed {replayed} logged batches that were interrupted"),
        }
        Ok(())
    }

    /// Shard 0: builds materialized views from now on.
    pub(crate) fn build_views(&self) {
        *self.views.borrow_mut() = Some(self.coordinator.build_views());
    }

    /// Shard 0: has the streams of changes follow the ring from now on.
    pub(crate) fn follow_ring(&self) {
        *self.streams.borrow_mut() = Some(self.coordinator.renew_cdc_generations());
    }

    /// Lets clients in.
    pub(crate) async fn listen(&self) -> Result<(), NodeError> {
        self.front.listen().await
    }

    /// The coordinator.
    pub(crate) fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// The replica.
    pub(crate) fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Repair, which shard 0 leads.
    pub(crate) fn repair(&self) -> &Repair {
        &self.repair
    }

    /// The hints that the shard stores.
    pub(crate) fn hints(&self) -> &Hints {
        self.handoff.hints()
    }

    /// The shard's part in topology changes.
    pub(crate) fn streamer(&self) -> &RangeStreamer {
        &self.streamer
    }

    /// Figures of this moment.
    pub(crate) fn figures(&self, rt: &Rt) -> admin::ShardFigures {
        let (coordinated_reads, coordinated_writes) = self.coordinator.request_figures();
        let (serial_reads, conditional_writes) = self.coordinator.cas_figures();
        let engine = self.engine.stats();
        admin::ShardFigures {
            samples: self.samples(rt, &engine),
            engine,
            groups: Group::ALL.map(|group| (group.name().to_owned(), rt.group_stats(group))).into(),
            io: Group::ALL.map(|group| (group.name().to_owned(), rt.disk().queue().stats(group))).into(),
            batchlog: self.coordinator.batchlog_stats(),
            replication: self.coordinator.replication_stats(),
            coordinated_reads,
            coordinated_ranges: self.coordinator.range_figures(),
            view_writes: self.coordinator.view_write_figures(),
            coordinated_writes,
            serial_reads,
            conditional_writes,
            fetch: self.streamer.figures(),
            rpc: self.messenger.stats(),
            cidr: self.front.cidr_figures(),
        }
    }

    /// The metrics of this moment of the parts whose figures nothing else shows.
    fn samples(&self, rt: &Rt, engine: &EngineStats) -> Vec<Sample> {
        let mut out = Vec::new();
        let memory = MemoryFigures {
            total: self.boot.config.memory_size.0 / u64::from(rt.shard_count()),
            allocated: engine.memtable_bytes + engine.row_cache_bytes + engine.block_cache_bytes,
        };
        collect(MemoryFigures::METRICS, &memory, &[], &mut out);
        collect(PortStats::METRICS, &self.replica.port_stats(), &[], &mut out);
        collect(PaxosStats::METRICS, &self.coordinator.paxos_stats(), &[], &mut out);
        collect(HintsStats::METRICS, &self.handoff.hints().stats(), &[], &mut out);
        collect(HintFigures::METRICS, &self.handoff.kept(), &[], &mut out);
        self.front.collect(&mut out);
        out
    }

    /// Lets no clients in any more.
    pub(crate) async fn close_front(&self) {
        self.front.stop().await;
    }

    /// Takes no more requests, and finishes those under way.
    pub(crate) async fn quiet(&self) {
        self.front.stop().await;
        drop(self.batches.borrow_mut().take());
        drop(self.views.borrow_mut().take());
        drop(self.streams.borrow_mut().take());
        self.coordinator.stop_derived_checks().await;
        self.repair.stop().await;
        self.transfers.stop();
        // Before the storage of any shard ends; later writes are not hinted.
        self.handoff.stop().await;
        self.coordinator.stop_following().await;
        self.messenger.stop().await;
    }

    /// Ends storage; no shard has requests any more.
    pub(crate) async fn stop(&self) -> Result<(), NodeError> {
        self.engine.stop().await?;
        Ok(())
    }
}

fn hints_config(boot: &Boot, rt: &Rt) -> HintsConfig {
    let config = &boot.config;
    HintsConfig {
        enabled: config.hinted_handoff_enabled,
        window: config.max_hint_window,
        window_persistent: config.hint_window_persistent_enabled,
        flush_period: config.hints_flush_period,
        file_bytes_max: config.max_hints_file_size.0,
        host_bytes_max: config.max_hints_size_per_host.0.div_ceil(u64::from(rt.shard_count())),
        throttle_bytes: hints_throttle(config, rt.shard_count().into()),
        hosts_at_once: usize::from(config.max_hints_delivery_threads),
        canaries: boot.canaries.part(|all| &all.hints),
        ..HintsConfig::default()
    }
}

fn transfer_config(boot: &Boot, rt: &Rt) -> StreamingConfig {
    StreamingConfig {
        bytes_per_second: stream_bandwidth(&boot.config, rt.shard_count().into()),
        ..StreamingConfig::new(boot.directories.node.join("streams"))
    }
}

fn replica_config(config: &Config) -> ReplicaConfig {
    ReplicaConfig { tombstone_failure_threshold: config.tombstone_failure_threshold }
}

/// Each shard delivers its hints, and so has its part of the rate.
fn hints_throttle(config: &Config, shards: u64) -> u64 {
    config.hinted_handoff_throttle.0.div_ceil(shards)
}

/// This shard's part of the node's outbound stream throughput, bytes a second; none for no limit.
fn stream_bandwidth(config: &Config, shards: u64) -> Option<u64> {
    let bytes = config.stream_throughput_outbound.0;
    (bytes > 0).then(|| bytes.div_ceil(shards))
}

fn failure_policy(name: &str) -> FailurePolicy {
    match name {
        "ignore" => FailurePolicy::Ignore,
        "die" => FailurePolicy::Die,
        "best_effort" => FailurePolicy::Ignore,
        "stop_commit" => FailurePolicy::StopWrites,
        // The configuration was checked: the remaining values are `stop` and `stop_paranoid`.
        _ => FailurePolicy::Stop,
    }
}

/// This shard's part of the commit log's limit, bytes.
fn commitlog_share(config: &Config, rt: &Rt) -> u64 {
    let (total, shards) = (config.commitlog_total_space.0, u64::from(rt.shard_count()));
    let share = CommitLogConfig::share(total, config.commitlog_segment_size.0, shards);
    if share * shards > total && rt.shard() == ShardId(0) {
        tracing::warn!(
            "commitlog_total_space is {} MiB, and {shards} shards need {} MiB for a few segments each, which they may take; \
             raise it, or lower commitlog_segment_size",
            total >> 20,
            share * shards >> 20
        );
    }
    share
}

fn sync_mode(config: &Config) -> SyncMode {
    match &*config.commitlog_sync {
        "batch" => SyncMode::Batch,
        "group" => SyncMode::Group { window: config.commitlog_sync_group_window },
        _ => SyncMode::Periodic { period: config.commitlog_sync_period.max(Duration::from_millis(1)) },
    }
}

/// The share of a shard's memtables that keys of logged batches and updates of views may take, which wait for replicas that are down.
const KEPT_BATCHES_SHARE: usize = 8;
/// At least, bytes.
const KEPT_BATCHES_MIN: usize = 4 << 20;
/// At most, bytes.
const KEPT_BATCHES_MAX: usize = 64 << 20;

/// From where on partitions, rows and cells are large.
fn large_thresholds(config: &Config) -> engine::LargeThresholds {
    let mebibytes = |count: u32| u64::from(count) << 20;
    engine::LargeThresholds {
        partition_bytes: mebibytes(config.compaction_large_partition_warning_threshold_mb),
        partition_rows: config.compaction_rows_count_warning_threshold.into(),
        row_bytes: mebibytes(config.compaction_large_row_warning_threshold_mb),
        cell_bytes: mebibytes(config.compaction_large_cell_warning_threshold_mb),
        elements: config.compaction_collection_elements_count_warning_threshold.into(),
        guarded: config.partition_bounds().expect("they were checked with the configuration"),
    }
}

/// The settings of a shard's engine that may change while it runs.
fn engine_settings(config: &Config, shards: u64) -> EngineSettings {
    EngineSettings {
        // A limit that leaves a shard less than a byte is a limit all the same.
        compaction_bytes_per_second: config.compaction_throughput.0.div_ceil(shards),
        shares: ShareSettings {
            compaction_static: config.compaction_static_shares,
            compaction_max: config.compaction_max_shares,
            flush_static: config.memtable_flush_static_shares,
        },
        compactors_max: usize::from(config.concurrent_compactors).max(1),
        auto_snapshot: config.auto_snapshot,
        incremental_backups: config.incremental_backups,
        large: large_thresholds(config),
    }
}

/// The engine's settings for one shard: its part of the node's.
pub(crate) fn engine_config(boot: &Boot, rt: &Rt) -> EngineConfig {
    let config = &boot.config;
    let shards = u64::from(rt.shard_count());
    let part = |bytes: u64| usize::try_from(bytes / shards).unwrap_or(usize::MAX);
    let commitlog = CommitLogConfig {
        sync: sync_mode(config),
        segment_bytes: config.commitlog_segment_size.0,
        total_bytes_max: commitlog_share(config, rt),
        archive_directory: config.commitlog_archive.clone(),
        ignore_errors: config.commitlog_ignore_errors,
        ..CommitLogConfig::new(boot.directories.commitlog.clone())
    };
    EngineConfig {
        commitlog,
        memtable_bytes_max: part(config.memtable_space.0),
        cache_bytes_max: part(config.cache_size.0),
        settings: engine_settings(config, shards),
        disk_failure_policy: failure_policy(&config.disk_failure_policy),
        commit_failure_policy: failure_policy(&config.commit_failure_policy),
        host_id: boot.identity.host_id,
        canaries: boot.canaries.part(|all| &all.engine),
        ..EngineConfig::new(boot.directories.data.clone(), boot.directories.commitlog.clone())
    }
}
