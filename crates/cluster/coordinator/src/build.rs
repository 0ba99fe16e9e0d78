//! Builds materialized views of the rows that their bases had before, in the background of shard 0 (docs/design/views.md).
//!
//! Every node reads its own part of the base and writes the view's rows to the view's replicas. Writes of the base meanwhile are followed
//! by each of its replicas (`derived`), and the rows of both merge, so nothing has to wait.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mutation::{PartitionRange, PartitionUpdate, RingPosition, Seconds};
use replica::{Form, Limits, PartitionResult, Partitions, Read, ReadCommand, ReadPage, ReplicaError};
use rt::preempt::Pace;
use rt::{Group, Instant, ShardId, Task};
use schema::{Schema, Table, TableId};
use topology::NodeIndex;
use views::View;

use crate::logged::{Batches, Delivery};
use crate::peer_error::PeerError;
use crate::view_builds::{BuildProgress, BuildRows, Builds, ViewBuildStatus};
use crate::{Coordinator, RequestError, ViewNode, shard_calls};

/// Rows of the base that are read at once, and bytes.
const PAGE: Limits = Limits { rows: 512, rows_per_partition: u64::MAX, bytes: 256 << 10 };
/// The time that the replicas of a view have for the rows of a page.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after a failure, at first and at most.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// How often the progress of a build is stored.
const NOTE_PERIOD: Duration = Duration::from_secs(2);
/// How often the log says how far a build is.
const LOG_PERIOD: Duration = Duration::from_secs(30);

const _: () = assert!(RETRY_PAUSE.0.as_millis() < RETRY_PAUSE.1.as_millis(), "pauses grow up to the longest");

/// The reason for which a build stops early.
enum Stop {
    /// The view is gone, or to be built from the beginning.
    Outdated,
    Failed(String),
}

impl From<ReplicaError> for Stop {
    fn from(error: ReplicaError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<RequestError> for Stop {
    fn from(error: RequestError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl Coordinator {
    /// Shard 0: builds the materialized views that this node has not built, now and whenever one is created. Ends when the result is
    /// dropped.
    ///
    /// # Panics
    /// On another shard.
    pub fn build_views(&self) -> Task<()> {
        assert_eq!(self.context().rt().shard(), ShardId(0), "shard 0 builds views");
        let requests = self.operations().build_requests.clone();
        self.on_schema_change(Box::new(move |_, _| requests.wake()));
        let coordinator = self.clone();
        self.context().rt().spawn(Group::Maintenance, async move { coordinator.run_builds().await })
    }

    async fn run_builds(&self) {
        let requests = &self.operations().build_requests;
        let mut pause = RETRY_PAUSE.0;
        loop {
            match self.build_all().await {
                Ok(()) => {
                    pause = RETRY_PAUSE.0;
                    requests.woken().await;
                }
                Err(Stop::Outdated) => {}
                Err(Stop::Failed(error)) => {
                    tracing::warn!("building a materialized view failed and will be tried again: {error}");
                    self.context().rt().sleep(pause).await;
                    pause = (2 * pause).min(RETRY_PAUSE.1);
                }
            }
        }
    }

    /// Builds the views that are not built. One that cannot be built does not keep the others waiting; the first failure is returned.
    async fn build_all(&self) -> Result<(), Stop> {
        // Before the builds are read: a truncation after that takes rows out of views that they say are built, or half built.
        let restarts = self.operations().build_requests.restarts();
        let schema = self.schema();
        let views: Vec<&Arc<Table>> = schema.tables().filter(|table| table.is_view()).collect();
        let rows = BuildRows::new(self.context().rt(), self.replica(), &schema);
        let mut builds = rows.read().await?;
        rows.forget_stale(&mut builds).await?;
        let mut outcome = Ok(());
        for table in views {
            if builds.built.contains(&table.id) {
                continue;
            }
            let base = table.derivation.as_ref().and_then(|derivation| schema.table_by_id(derivation.base()));
            let Some(base) = base else { continue };
            match View::new(base, table.clone()) {
                Ok(view) => match self.build(&schema, &view, base, &builds, restarts).await {
                    Err(Stop::Failed(error)) => outcome = outcome.and(Err(Stop::Failed(error))),
                    Err(Stop::Outdated) => return Err(Stop::Outdated),
                    Ok(()) => {}
                },
                Err(error) => tracing::error!("a materialized view cannot be built: {error}"),
            }
        }
        outcome
    }

    /// Builds one view, as `builds` say, which were read when views had been built anew so many times.
    async fn build(
        &self,
        schema: &Arc<Schema>,
        view: &View,
        base: &Arc<Table>,
        builds: &Builds,
        restarts: u64,
    ) -> Result<(), Stop> {
        let (rt, table) = (self.context().rt(), view.table());
        let requests = &self.operations().build_requests;
        if requests.restarts() != restarts {
            return Err(Stop::Outdated);
        }
        let rows = BuildRows::new(rt, self.replica(), schema);
        let mut progress = builds.begun.get(&table.id).copied().unwrap_or_default();
        tracing::info!("building the materialized view {} of {}", table.full_name(), base.full_name());
        let start = progress.last_token.map_or(RingPosition::BeforeToken(i64::MIN), RingPosition::AfterToken);
        let range = PartitionRange { start, end: RingPosition::AfterToken(i64::MAX) };
        let mut command = ReadCommand {
            limits: PAGE,
            bypass_cache: true,
            form: Form::Whole,
            ..ReadCommand::all_of(base.clone(), Partitions::Range(range), 0)
        };
        requests.begin(table.id, rt.now(), progress.last_token);
        let (mut noted, mut logged) = (None::<Instant>, rt.now());
        loop {
            if rt.now() - logged >= LOG_PERIOD {
                let far = BuildProgress::new(progress.last_token, requests.begun(table.id, rt.now()));
                tracing::info!("building the materialized view {}: {far}", table.full_name());
                logged = rt.now();
            }
            if noted.is_none_or(|noted| rt.now() - noted >= NOTE_PERIOD) {
                rows.note_progress(table, builds, progress).await?;
                noted = Some(rt.now());
            }
            command.now = Seconds::try_from(rt.wall_micros() / 1_000_000).unwrap_or(0);
            // Before the page is read: a truncation of the view that begins later removes it.
            let at_micros = self.context().hinting().begin_write();
            let page = self.replica().read(Read::of(&command).over_all_tombstones()).await?;
            self.write_page(view, base, &page, at_micros).await?;
            let is_current = self.schema().table_by_id(table.id).is_some() && requests.restarts() == restarts;
            if !is_current {
                return Err(Stop::Outdated);
            }
            progress.keys_built += i64::try_from(page.partitions.len()).unwrap_or(0);
            let Some(more) = page.more else { break };
            // The partition of that place may not be finished.
            progress.last_token = more.key.token.checked_sub(1).or(progress.last_token);
            command.resume = Some(more);
        }
        rows.note_built(table, builds).await?;
        tracing::info!(
            "built the materialized view {}: {} partitions",
            table.full_name(),
            progress.keys_built
        );
        Ok(())
    }

    /// Writes the rows of the view that follow from a page of the base.
    async fn write_page(
        &self,
        view: &View,
        base: &Arc<Table>,
        page: &ReadPage,
        at_micros: i64,
    ) -> Result<(), Stop> {
        let now = Seconds::try_from(self.context().rt().wall_micros() / 1_000_000).unwrap_or(0);
        let (mut updates, mut pace) = (Vec::new(), Pace::new());
        for partition in &page.partitions {
            // Of a range that this node will have, or had, others know more.
            if self.context().maps().is_complete(base, partition.key.token) {
                updates.extend(view.all(&update_of(base, partition), now));
            }
            pace.step().await;
        }
        let batches = Batches::new(self.context(), &self.operations().batchlog);
        Ok(batches.write_late(updates, at_micros, (Delivery::Again, WRITE_TIMEOUT)).await?)
    }

    /// The progress of each node of the ring in building a materialized view, as reported before the deadline; in the
    /// order of their addresses.
    pub async fn view_build_statuses(
        &self,
        view: TableId,
        deadline: Instant,
    ) -> Vec<(ViewNode, ViewBuildStatus)> {
        let cluster = self.view();
        let one = |node: NodeIndex| {
            let cluster = &cluster;
            async move {
                let asked = match node == cluster.own() {
                    true => {
                        let here = async { self.view_build_here(view).await.map_err(PeerError::Invalid) };
                        self.context().here(deadline, here).await
                    }
                    false if !cluster.is_alive(node) => Ok(ViewBuildStatus::Unknown),
                    false => self.context().remote().view_build((cluster, node), view, deadline).await,
                };
                let status = asked.unwrap_or_else(|error| {
                    tracing::warn!(
                        "/{} did not say how far it is with a view: {error:?}",
                        cluster.node(node).native.ip()
                    );
                    ViewBuildStatus::Unknown
                });
                (cluster.node(node).clone(), status)
            }
        };
        let mut statuses = join_all(cluster.indexes().map(one)).await;
        statuses.sort_by_key(|(node, _)| node.native);
        statuses
    }

    /// How far this node is with building a view.
    pub(crate) async fn view_build_here(&self, view: TableId) -> Result<ViewBuildStatus, String> {
        self.context().port().ask(ShardId(0), shard_calls::ViewBuild { view }).await
    }

    /// The same, on shard 0.
    pub(crate) async fn view_build(&self, view: TableId) -> Result<ViewBuildStatus, String> {
        assert_eq!(self.shard(), 0, "shard 0 builds views");
        let schema = self.schema();
        let rows = BuildRows::new(self.context().rt(), self.replica(), &schema);
        let begun = self.operations().build_requests.begun(view, self.context().rt().now());
        rows.read().await.map(|builds| builds.status(view, begun)).map_err(|error| error.to_string())
    }

    /// Has every node build the views of a table from the beginning.
    pub(crate) async fn rebuild_views_here(&self, base: TableId) -> Result<(), String> {
        assert_eq!(self.shard(), 0, "shard 0 builds views");
        let requests = &self.operations().build_requests;
        let schema = self.schema();
        let rows = BuildRows::new(self.context().rt(), self.replica(), &schema);
        // A build under way reads later rows from here on, and the rows that it has written may not be there any more.
        requests.restart();
        let unbuilt = async {
            let builds = rows.read().await?;
            for view in schema.tables().filter(|table| table.is_view() && table.is_derived_from(base)) {
                rows.note_unbuilt(view, &builds).await?;
            }
            Ok::<_, ReplicaError>(())
        };
        let unbuilt = unbuilt.await.map_err(|error| error.to_string());
        requests.restart();
        requests.wake();
        unbuilt
    }
}

/// The partition of a page, as an update.
fn update_of(base: &Arc<Table>, partition: &PartitionResult) -> PartitionUpdate {
    let rows = partition.rows.clone();
    let mut update = PartitionUpdate::with_rows(base.clone(), partition.key.clone(), rows);
    update.add_deletion(partition.deletion);
    for range in partition.range_tombstones.iter() {
        update.add_range_tombstone(range.clone());
    }
    update
}
