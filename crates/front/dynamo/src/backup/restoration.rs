//! The restoration of a table: each node writes the rows of its snapshot to the cluster as it is now. So owners, replicas and topology may be others than
//! those of the backup; timestamps and deletions are as they were, and a row that was written twice is there once.

use std::time::Duration;

use cluster::SchemaEdit;
use coordinator::{ClusterView, Consistency, WriteKind, WriteOptions};
use exec::backend::Coordinator;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use mutation::PartitionUpdate;
use rt::Rt;
use schema::{Schema, TableBuilder, TombstoneGc};

use super::parts::{IDLE_MICROS_MAX, Outcome, Part};
use super::record::Status;
use super::{SnapshotError, Worker, place, standing, table_by_id};
use crate::error::{ErrorKind, Result};
use crate::store::Store;
use crate::table::{self, ApiTable, keyspace_name};

/// Writes of a node at once.
const WRITES_MAX: usize = 32;
/// The pause before a write that failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How long a restored table keeps all deletions, microseconds: longer than any hint of a restored row is kept, which an old deletion has to hide.
const DELETIONS_KEPT_MICROS: i64 = 24 * 3_600_000_000;

/// How often a node that writes rows records that it makes progress, microseconds.
const PROGRESS_MICROS: i64 = IDLE_MICROS_MAX / 12;

/// How often a node tries to record that its part has ended.
const SET_TRIES_MAX: u32 = 60;

/// The end of a node's part.
enum Ended {
    Part(Part),
    /// The table is gone.
    Dropped,
}

impl<C: Coordinator> Store<'_, C> {
    /// Carries out this node's parts of restorations, and ends those whose parts are done; how many parts there were.
    pub(crate) async fn restore(&self, rt: &Rt, worker: &Worker) -> Result<u64> {
        let (mut count, mut failed) = (0, None);
        let schema = self.executor.coordinator().schema();
        // One that fails does not keep the others.
        for table in table::all(&schema).filter(ApiTable::is_restoring) {
            match self.do_restoration(rt, worker, &table).await {
                Ok(is_done) => count += u64::from(is_done),
                Err(error) => failed = Some(error),
            }
            if let Err(error) = self.end(&table).await {
                failed = Some(error);
            }
        }
        for table in table::all(&schema).filter(keeps_deletions) {
            let details = table.details();
            let ended = details.restore.map(|restore| restore.ended_millis);
            let ended = ended.or(details.recovered.map(|recovered| recovered.ended_millis)).unwrap_or(0);
            if self.age(ended * 1000) >= DELETIONS_KEPT_MICROS {
                self.forget_deletions(&table).await?;
            }
        }
        failed.map_or(Ok(count), Err)
    }

    /// Carries out this node's part of a restoration, if it is to be.
    async fn do_restoration(&self, rt: &Rt, worker: &Worker, table: &ApiTable) -> Result<bool> {
        let own = &worker.own;
        let restore = table.details().restore.unwrap_or_default();
        if restore.parts.nodes.get(own).map(|node| node.part) != Some(Part::Pending) {
            return Ok(false);
        }
        let Ended::Part(part) = self.restore_part(rt, worker, table).await? else { return Ok(false) };
        self.set_part(rt, table, own, part).await?;
        Ok(true)
    }

    /// Has the deletions of a restored table forgotten after their grace from now on, as those of others.
    async fn forget_deletions(&self, table: &ApiTable) -> Result<()> {
        let change = |found: &ApiTable, builder: &mut TableBuilder, _: &ClusterView| {
            let is_due = keeps_deletions(found);
            if is_due {
                builder.options.tombstone_gc = TombstoneGc::Timeout;
            }
            is_due
        };
        self.change_table(table, change).await
    }

    /// Writes the rows of this node's snapshot.
    async fn restore_part(&self, rt: &Rt, worker: &Worker, table: &ApiTable) -> Result<Ended> {
        let restore = table.details().restore.unwrap_or_default();
        let own = &worker.own;
        let backup = self.backup(&restore.backup).await?.map(|(backup, _)| backup);
        let backup = backup.filter(|backup| backup.status == Status::Available);
        let part = backup.as_ref().and_then(|backup| backup.parts.nodes.get(own));
        let (Some(backup), Some(Part::Done(bytes))) = (&backup, part.map(|node| node.part)) else {
            tracing::error!(
                "the backup {} that {} is restored from is gone",
                restore.source_arn(),
                table.name()
            );
            return Ok(Ended::Part(Part::Gone));
        };
        tracing::info!("restoring this node's part of {} from {}", table.name(), backup.arn());
        let mut rows = match worker.snapshots.rows(&place(backup), bytes, table.table.clone()).await {
            Ok(rows) => rows,
            Err(error) => return self.unreadable(rt, table, error).await,
        };
        let mut writes = FuturesUnordered::new();
        let mut shown = self.executor.clock().wall_micros();
        loop {
            self.show_progress(table, &mut shown).await;
            if writes.len() == WRITES_MAX
                && let Some(false) = writes.next().await
            {
                return Ok(Ended::Dropped);
            }
            match rows.next().await {
                Ok(Some(update)) => {
                    writes.push(self.write_restored(rt, table, update, Consistency::LocalQuorum))
                }
                Ok(None) => break,
                Err(error) => return self.unreadable(rt, table, error).await,
            }
        }
        while let Some(written) = writes.next().await {
            if !written {
                return Ok(Ended::Dropped);
            }
        }
        Ok(Ended::Part(Part::Done(bytes)))
    }

    /// Records now and then that there is progress; `shown` is when it last did, microseconds since 1970.
    pub(crate) async fn show_progress(&self, table: &ApiTable, shown: &mut i64) {
        if self.age(*shown) < PROGRESS_MICROS {
            return;
        }
        *shown = self.executor.clock().wall_micros();
        if let Err(error) = self.change_restoring(table, |_| {}).await {
            tracing::debug!("the progress of {} is not recorded: {}", table.name(), error.message);
        }
    }

    /// A snapshot that cannot be read: for good, or until the next look.
    async fn unreadable(&self, rt: &Rt, table: &ApiTable, error: SnapshotError) -> Result<Ended> {
        match error {
            SnapshotError::Lost(why) => {
                tracing::error!("this node's snapshot for {} is lost: {why}", table.name());
                Ok(Ended::Part(Part::Gone))
            }
            SnapshotError::Failed(why) => {
                tracing::warn!("this node's snapshot for {} cannot be read now: {why}", table.name());
                rt.sleep(RETRY_PAUSE).await;
                Err(crate::ApiError::new(ErrorKind::InternalServer, why))
            }
        }
    }

    /// Writes rows until they are written; false when the table is gone.
    pub(crate) async fn write_restored(
        &self,
        rt: &Rt,
        table: &ApiTable,
        update: PartitionUpdate,
        consistency: Consistency,
    ) -> bool {
        let coordinator = self.executor.coordinator();
        loop {
            if table_by_id(&coordinator.schema(), table.table.id).is_err() {
                return false;
            }
            let options = WriteOptions {
                consistency,
                kind: WriteKind::Simple,
                deadline: self.deadline(self.executor.limits().write_timeout),
            };
            match coordinator.write(vec![update.clone()], options).await {
                Ok(()) => return true,
                Err(error) => {
                    tracing::debug!("rows of {} are written again: {error:?}", table.name());
                    rt.sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// Records a part that has ended, for which all its work would be done again otherwise.
    async fn set_part(&self, rt: &Rt, table: &ApiTable, own: &str, part: Part) -> Result<()> {
        let set = |details: &mut table::Details| {
            let restore = details.restore.get_or_insert_default();
            if let Some(node) = restore.parts.nodes.get_mut(own) {
                node.part = part;
            }
        };
        let mut tries = 0;
        loop {
            match self.change_restoring(table, set).await {
                Err(error) if error.kind != ErrorKind::ResourceNotFound && tries < SET_TRIES_MAX => {
                    tries += 1
                }
                ended => return ended,
            }
            rt.sleep(RETRY_PAUSE).await;
        }
    }

    /// Changes a table while it is being restored, and records that there is progress; one that is not any more stays.
    pub(crate) async fn change_restoring(
        &self,
        table: &ApiTable,
        change: impl Fn(&mut table::Details),
    ) -> Result<()> {
        let change = |found: &ApiTable, builder: &mut TableBuilder, view: &ClusterView| {
            let mut details = found.details();
            let now_millis = self.executor.clock().wall_micros().div_euclid(1000);
            if let Some(restore) = &mut details.restore {
                restore.progress_millis = now_millis;
            }
            if let Some(recovered) = &mut details.recovered {
                recovered.progress_millis = now_millis;
            }
            change(&mut details);
            details.write(builder, found.key_names(), view);
            found.is_restoring()
        };
        self.change_table(table, change).await
    }

    /// Changes a table; `change` says whether there is something to change.
    async fn change_table(
        &self,
        table: &ApiTable,
        change: impl Fn(&ApiTable, &mut TableBuilder, &ClusterView) -> bool,
    ) -> Result<()> {
        let plan = |schema: &Schema, view: &ClusterView, _: [u8; 16]| {
            let found = table_by_id(schema, table.table.id)?;
            let mut builder = found.table.to_builder();
            if !change(&found, &mut builder, view) {
                return Ok(Vec::new());
            }
            let table = builder.build().map_err(|error| crate::ApiError::validation(error.to_string()))?;
            Ok::<_, crate::ApiError>(vec![SchemaEdit::PutTable(table)])
        };
        self.executor.change_schema_by(None, plan).await
    }

    /// Ends a restoration whose parts have ended.
    async fn end(&self, table: &ApiTable) -> Result<()> {
        let coordinator = self.executor.coordinator();
        let Ok(table) = table_by_id(&coordinator.schema(), table.table.id) else { return Ok(()) };
        let Some(restore) = table.details().restore.filter(|_| table.is_restoring()) else { return Ok(()) };
        let (view, age) = (coordinator.view(), self.age(restore.at_millis * 1000));
        let idle = self.age(restore.at_millis.max(restore.progress_millis) * 1000);
        match restore.parts.outcome_of_restoration((age, idle), |host| standing(&view, host)) {
            Outcome::Wait => Ok(()),
            Outcome::Complete => {
                let ended_millis = self.executor.clock().wall_micros().div_euclid(1000);
                self.change_restoring(&table, |details| {
                    let restore = details.restore.get_or_insert_default();
                    restore.in_progress = false;
                    restore.ended_millis = ended_millis;
                })
                .await?;
                tracing::info!("{} is restored from {}", table.name(), restore.source_arn());
                Ok(())
            }
            Outcome::Failed => {
                let why = match idle >= IDLE_MICROS_MAX {
                    true => "nodes whose snapshots are needed have made no progress for six hours",
                    false => "too few of its snapshots are left",
                };
                self.remove_restoring(&table, &restore.source_arn(), why).await
            }
        }
    }

    /// Removes a table that cannot be restored.
    pub(crate) async fn remove_restoring(&self, table: &ApiTable, from: &str, why: &str) -> Result<()> {
        tracing::error!("{} cannot be restored from {from}: {why}; the table is removed", table.name());
        let plan = |schema: &Schema, _: &ClusterView, _: [u8; 16]| {
            let found = table_by_id(schema, table.table.id).ok().filter(ApiTable::is_restoring);
            let keyspace = found.map(|_| SchemaEdit::DropKeyspace(keyspace_name(table.name())));
            Ok::<_, crate::ApiError>(keyspace.into_iter().collect())
        };
        self.executor.change_schema_by(None, plan).await
    }
}

/// Whether a table was restored and keeps all deletions.
fn keeps_deletions(table: &ApiTable) -> bool {
    !table.is_restoring()
        && table.table.options.tombstone_gc == TombstoneGc::Disabled
        && (table.details().restore.is_some() || table.details().recovered.is_some())
}
