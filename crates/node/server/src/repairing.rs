//! Repair in its node: its view of the cluster, its options, and its system tables.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use catalog::RepairFacts;
use coordinator::Coordinator;
use repair::{ClusterContext, FollowerConfig, Members, Repair, RepairConfig, RepairSettings};
use rpc::Messenger;
use rt::Rt;
use rt::sync::GateGuard;
use schema::{Keyspace, Schema, Table};
use topology::HostId;

use crate::{Config, NodeError};

/// The cluster as repair is to see it.
struct Around(Coordinator);

impl ClusterContext for Around {
    fn schema(&self) -> Arc<Schema> {
        self.0.schema()
    }

    fn members(&self) -> Members {
        let view = self.0.view();
        let ring = view.ring().clone();
        // Owners of tokens come first among the nodes of a view.
        let alive = ring.indexes().map(|node| view.is_alive(node)).collect();
        // A replication of the schema by which nobody reads yet is a change to come.
        let schema = self.0.schema();
        let is_to_be = |keyspace: &Arc<Keyspace>| *view.replication_of(keyspace) != keyspace.replication;
        let changing = view.is_changing() || schema.keyspaces().any(is_to_be);
        let (topology, tablets) = (view.topology_version(), view.tablets().clone());
        Members { own: view.own(), alive, changing, ring, topology, tablets }
    }

    fn admit(&self, topology: u64) -> Result<GateGuard, u64> {
        self.0.admit_exactly(topology)
    }

    fn takes(&self, table: &Table, token: i64) -> bool {
        self.0.takes_token(table, token)
    }
}

/// This shard's repair service; shard 0 stores the history of repairs in `directory`.
pub(crate) async fn open(
    rt: &Rt,
    (host, config): (HostId, RepairConfig),
    messenger: &Messenger,
    coordinator: &Coordinator,
    directory: &Path,
) -> Result<Repair, NodeError> {
    let around = Rc::new(Around(coordinator.clone()));
    let replica = coordinator.replica().clone();
    Ok(Repair::open(rt, host, messenger, replica, around, config, directory).await?)
}

/// The settings of repair, from the node's options.
pub(crate) fn settings(config: &Config, canaries: rt::Injected<repair::Canaries>) -> RepairConfig {
    let default = RepairConfig::default();
    let kept_bytes_max = match usize::try_from(config.repair_session_space.0).unwrap_or(usize::MAX) {
        0 => default.follower.kept_bytes_max,
        bytes => bytes,
    };
    RepairConfig {
        follower: FollowerConfig { kept_bytes_max, ..default.follower },
        settings: live_settings(config),
        timeout: config.repair_request_timeout,
        canaries,
        ..default
    }
}

/// Those that may change while the node runs.
pub(crate) fn live_settings(config: &Config) -> RepairSettings {
    let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    RepairSettings {
        bytes_per_second: config.stream_throughput_outbound.0,
        automatic: config.auto_repair_enabled,
        full_interval: seconds(config.auto_repair_full_interval),
        interval_max: seconds(config.auto_repair_threshold),
    }
}

/// Every shard's knowledge of past repairs: each table's ranges with their times.
pub(crate) fn facts(coordinator: &Coordinator) -> Vec<RepairFacts> {
    let engine = coordinator.replica().engine();
    let schema = coordinator.schema();
    let tables = schema.tables().map(|table| (table.id, engine.repaired(table.id)));
    let facts = tables.flat_map(|(table, repaired)| {
        let ranges = repaired.ranges().to_vec();
        ranges.into_iter().map(move |(after, upto, at)| RepairFacts { table, after, upto, seconds: at })
    });
    facts.collect()
}
