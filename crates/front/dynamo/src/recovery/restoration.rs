//! Restores a table to a point in time, part by part: copies the items as they are, and writes over them the images before the changes behind
//! that time, so that the first of each item wins (docs/design/pitr.md).

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use coordinator::Consistency;
use exec::backend::Coordinator;
use futures_util::StreamExt;
use futures_util::stream;
use mutation::{PartitionRange, PartitionUpdate, RingPosition};
use replica::{Limits, Partitions, ReadCommand, ReadPage};
use rt::Rt;
use rt::preempt::Pace;
use schema::{Schema, Table};
use stdx::HashSet;

use super::Recovered;
use crate::backup::parts::IDLE_MICROS_MAX;
use crate::backup::table_by_id;
use crate::error::{ErrorKind, Result};
use crate::store::Store;
use crate::streams::Streams;
use crate::streams::change::Change;
use crate::streams::position::Position;
use crate::streams::reader::ShardRead;
use crate::streams::shard::tokens;
use crate::table::{self, ApiTable, RowKey, RowWrite};

/// Rows and bytes that are copied at once, and bytes of images.
const PAGE_ROWS: u64 = 100;
const PAGE_BYTES: usize = 1 << 20;
const IMAGES_BYTES: usize = 4 << 20;
/// Writes at once.
const WRITES_MAX: usize = 32;
/// How far the timestamp of a captured write may be ahead of its replica's clock, microseconds.
const AHEAD_MICROS_MAX: i64 = 5_000_000;
/// A read that failed is tried so often again, and the pause before it.
const TRIES_MAX: u32 = 60;
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long a restoration may take, microseconds: less than the day for which the log outlives the period.
pub(crate) const MICROS_MAX: i64 = 23 * 3_600_000_000;
/// Items of which the first change is remembered, so that later ones need not be written.
const SEEN_MAX: usize = 100_000;

/// A restoration on this node.
struct Job<'a> {
    rt: &'a Rt,
    streams: &'a Streams,
    recovered: &'a Recovered,
    source: ApiTable,
    log: Arc<Table>,
    target: &'a ApiTable,
    /// Of all its reads and writes.
    level: Consistency,
}

/// The source of a restoration and its log, while changes are captured for it.
fn source_of(schema: &Schema, recovered: &Recovered) -> Option<(ApiTable, Arc<Table>)> {
    let source = table_by_id(schema, recovered.source_id).ok()?;
    let is_captured = source.recovery().days().is_some() && source.table.options.cdc.enabled;
    let log = schema.cdc_log_of(&source.table).filter(|_| is_captured)?.clone();
    Some((source, log))
}

/// The name of a table that is being restored from the one with this id, if there is one.
pub(crate) fn restored_from(schema: &Schema, source: schema::TableId) -> Option<String> {
    let is_from =
        |table: &ApiTable| table.details().recovered.is_some_and(|recovered| recovered.source_id == source);
    table::all(schema).filter(ApiTable::is_restoring).find(is_from).map(|table| table.name().to_owned())
}

impl<C: Coordinator> Store<'_, C> {
    /// Carries out this node's parts of restorations to a point in time, and ends those that are done; how many parts there were.
    pub(crate) async fn recover(&self, rt: &Rt, streams: &Streams, own: &str) -> Result<u64> {
        let (mut count, mut failed) = (0, None);
        let schema = self.executor.coordinator().schema();
        // One that fails does not keep the others.
        for target in table::all(&schema).filter(ApiTable::is_restoring) {
            let Some(recovered) = target.details().recovered else { continue };
            if let Some((source, log)) = source_of(&schema, &recovered) {
                let level = self.settled_consistency(&source.table);
                let job = Job { rt, streams, recovered: &recovered, source, log, target: &target, level };
                match self.do_parts(&job, own).await {
                    Ok(parts) => count += parts,
                    Err(error) => failed = Some(error),
                }
            }
            if let Err(error) = self.end_recovery(&target).await {
                failed = Some(error);
            }
        }
        failed.map_or(Ok(count), Err)
    }

    /// The parts that this node is to carry out: the live nodes have them in turn.
    fn own_parts(&self, recovered: &Recovered, own: &str) -> Vec<u32> {
        let view = self.executor.coordinator().view();
        let live = view.members().iter().filter(|node| view.is_alive_host(node.host));
        let mut live: Vec<String> = live.map(|node| node.host.to_string()).collect();
        live.sort();
        let is_own =
            |part: &u32| live.get(*part as usize % live.len().max(1)).is_some_and(|node| node == own);
        recovered.left().filter(is_own).collect()
    }

    /// Carries out this node's parts; how many there were.
    async fn do_parts(&self, job: &Job<'_>, own: &str) -> Result<u64> {
        let parts = self.own_parts(job.recovered, own);
        if parts.is_empty() {
            return Ok(0);
        }
        let mut shown = self.executor.clock().wall_micros();
        for part in &parts {
            if !self.copy_part(job, *part, &mut shown).await? {
                return Ok(0);
            }
        }
        // All that the copy may have seen is in the log before that time.
        let until = self.executor.clock().wall_micros() + AHEAD_MICROS_MAX;
        loop {
            let left = until + job.streams.window_micros - self.executor.clock().wall_micros();
            if left < 0 {
                break;
            }
            job.rt.sleep(Duration::from_micros(left.unsigned_abs() + 1)).await;
        }
        for part in &parts {
            if !self.write_images(job, *part, until, &mut shown).await? {
                return Ok(0);
            }
            let set = |details: &mut table::Details| {
                if let Some(recovered) = &mut details.recovered {
                    recovered.done |= 1 << part;
                }
            };
            self.retrying(job.rt, || self.change_restoring(job.target, set)).await?;
        }
        Ok(parts.len() as u64)
    }

    /// Does something until it succeeds, a minute and more.
    async fn retrying<T>(&self, rt: &Rt, act: impl AsyncFn() -> Result<T>) -> Result<T> {
        let mut tries = 0;
        loop {
            match act().await {
                Err(error) if error.kind != ErrorKind::ResourceNotFound && tries < TRIES_MAX => tries += 1,
                ended => return ended,
            }
            rt.sleep(RETRY_PAUSE).await;
        }
    }

    /// Writes rows into the restored table; false when it is gone.
    async fn write_all(&self, job: &Job<'_>, updates: Vec<PartitionUpdate>) -> bool {
        let writes =
            updates.into_iter().map(|update| self.write_restored(job.rt, job.target, update, job.level));
        let mut writes = stream::iter(writes).buffer_unordered(WRITES_MAX);
        while let Some(is_there) = writes.next().await {
            if !is_there {
                return false;
            }
        }
        true
    }

    /// Copies the items of a part as they are; false when the restored table is gone.
    async fn copy_part(&self, job: &Job<'_>, part: u32, shown: &mut i64) -> Result<bool> {
        let (first, last) = tokens(job.recovered.part_bits, part);
        let range =
            PartitionRange { start: RingPosition::BeforeToken(first), end: RingPosition::AfterToken(last) };
        let mut resume = None;
        loop {
            let command = ReadCommand {
                limits: Limits { rows: PAGE_ROWS, bytes: PAGE_BYTES, ..Limits::NONE },
                resume,
                bypass_cache: true,
                ..ReadCommand::all_of(job.source.table.clone(), Partitions::Range(range.clone()), self.now())
            };
            let mut page = self.retrying(job.rt, || self.read(&command, job.level)).await?;
            resume = page.more.take();
            let updates = self.copies(job, &page).await;
            if !self.write_all(job, updates).await {
                return Ok(false);
            }
            self.show_progress(job.target, shown).await;
            if resume.is_none() {
                return Ok(true);
            }
        }
    }

    /// The writes of the items of a page.
    async fn copies(&self, job: &Job<'_>, page: &ReadPage) -> Vec<PartitionUpdate> {
        let (now, timestamp, mut pace) = (self.now(), job.recovered.timestamp_of_copy(), Pace::default());
        let mut updates = Vec::new();
        for partition in &page.partitions {
            let mut rows = Vec::new();
            for row in &partition.rows {
                pace.step().await;
                let key = RowKey { partition: partition.key.clone(), clustering: row.clustering.clone() };
                let state = job.source.readable_state(&key, row, now, &|what| {
                    tracing::warn!(
                        "{what} of {} is no value of DynamoDB and is not restored",
                        job.source.name()
                    );
                    Ok(())
                });
                match state {
                    Ok(state) => rows.extend(
                        state
                            .item
                            .map(|item| job.target.row(&key, &RowWrite::Put(Rc::new(item)), timestamp, now)),
                    ),
                    Err(error) => tracing::warn!("a row is not restored: {}", error.message),
                }
            }
            if !rows.is_empty() {
                let table = job.target.table.clone();
                updates.push(PartitionUpdate::with_rows(table, partition.key.clone(), rows));
            }
        }
        updates
    }

    /// Writes the image before each change of a part behind the point in time, up to another; false when the restored table is gone.
    async fn write_images(&self, job: &Job<'_>, part: u32, until: i64, shown: &mut i64) -> Result<bool> {
        let of = (job.recovered.part_bits, part);
        let read = ShardRead::of_job((&job.source, &job.log), of, until, (&job.streams.known, self));
        let (mut from, mut seen) = (Position::before(job.recovered.micros), HashSet::default());
        while from.micros < until {
            let (changes, walked) = self
                .retrying(job.rt, async || {
                    let _turn = job.streams.readers.acquire(1).await;
                    read.changes(self, from, IMAGES_BYTES).await
                })
                .await?;
            if let Some(micros) = walked.unseen_micros {
                let why = unseen(micros);
                self.remove_restoring(job.target, &recovered_from(job.recovered), &why).await?;
                return Ok(false);
            }
            let updates = self.images(job, changes, &mut seen).await;
            if !self.write_all(job, updates).await {
                return Ok(false);
            }
            self.show_progress(job.target, shown).await;
            assert!(walked.next > from || walked.next.micros >= until, "a read makes progress");
            from = walked.next;
        }
        Ok(true)
    }

    /// The writes of the images before changes, but for those of items of which an earlier change was `seen`.
    async fn images(
        &self,
        job: &Job<'_>,
        changes: Vec<Change>,
        seen: &mut HashSet<u128>,
    ) -> Vec<PartitionUpdate> {
        let (now, mut pace) = (self.now(), Pace::default());
        let mut updates = Vec::new();
        for change in changes {
            pace.step().await;
            if seen.len() >= SEEN_MAX {
                seen.clear();
            }
            // A key that only CQL can write.
            let Ok(key) = job.target.key(&change.key) else { continue };
            if !seen.insert(key.hash()) {
                continue;
            }
            let timestamp = job.recovered.timestamp_of_image(change.position.micros);
            let write = change.before.map_or(RowWrite::Delete, |item| RowWrite::Put(Rc::new(item)));
            updates.push(job.target.update(&key, &write, timestamp, now));
        }
        updates
    }

    /// Ends a restoration whose parts are done, or that cannot be completed.
    async fn end_recovery(&self, target: &ApiTable) -> Result<()> {
        let schema = self.executor.coordinator().schema();
        let Ok(table) = table_by_id(&schema, target.table.id) else { return Ok(()) };
        let Some(recovered) = table.details().recovered.filter(Recovered::in_progress) else { return Ok(()) };
        let from = recovered_from(&recovered);
        if recovered.left().next().is_none() {
            let ended_millis = self.executor.clock().wall_micros().div_euclid(1000);
            self.change_restoring(&table, |details| {
                if let Some(recovered) = &mut details.recovered {
                    recovered.ended_millis = ended_millis;
                }
            })
            .await?;
            tracing::info!("{} is restored from {from}", table.name());
            return Ok(());
        }
        let last = recovered.at_micros.max(recovered.progress_millis * 1000);
        let why = if source_of(&schema, &recovered).is_none() {
            "the table or the log of its changes is gone"
        } else if self.age(recovered.at_micros) >= MICROS_MAX {
            "it has taken longer than the log of changes is kept for it"
        } else if self.age(last) >= IDLE_MICROS_MAX {
            "nodes have made no progress for six hours"
        } else {
            return Ok(());
        };
        self.remove_restoring(&table, &from, why).await
    }
}

/// Why no earlier time can be restored than that of a deletion.
pub(crate) fn unseen(micros: i64) -> String {
    format!(
        "a statement of CQL has deleted a partition or a range of rows at {micros} (microseconds since 1970), of which the log has no items: \
         choose a later time"
    )
}

/// The source of a restoration for the log.
fn recovered_from(recovered: &Recovered) -> String {
    format!("{} at {} (microseconds since 1970)", recovered.source, recovered.micros)
}
