//! Logged batches over several nodes: all or none, although the coordinator may be lost in the middle.
//!
//! The batch is stored by this node and by up to two others of its datacenter before any of it is applied, and taken out
//! by all of them when it is (docs/design/batchlog.md). A batch that is still there after a while is replayed by the nodes that store it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use cdc::{Log, Naming, stream_of};
use futures_util::StreamExt;
use futures_util::future::join;
use futures_util::stream::FuturesUnordered;
use mutation::{DecoratedKey, PartitionUpdate, Timestamp};
use replica::{Origin, ReplicaError, Truncation, Write};
use rpc::{Refusal, Verb};
use rt::Group;
use schema::{Replication, Schema, Table};
use topology::{NodeIndex, Replicas};

use crate::batch_row::{self, StoredBatch};
use crate::batchlog::Batchlog;
use crate::cdc_times::generation_at;
use crate::context::Context;
use crate::ongoing::Age;
use crate::peer_error::PeerError;
use crate::write::Writes;
use crate::{ClusterView, Consistency, Phase, RequestError, WriteKind, WriteOptions};

/// Nodes beside the coordinator that keep a batch, at most.
const HOLDERS_MAX: usize = 2;

const _: () = assert!(HOLDERS_MAX >= 2, "two nodes store a batch also where the coordinator does not");
/// The time that one update of a batch has when all are completed.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(10);
/// Updates of a batch that was left that are written at once, at most.
const AT_ONCE_MAX: usize = 32;
/// Batches that were left and are replayed at once: one whose replica does not answer keeps few others waiting.
const REPLAYED_AT_ONCE: usize = 4;
/// Batches that a pass of the replay finds not to be possible yet, about: more are left to the next pass.
const NOT_YET_MAX: usize = 1_000;

/// The nodes that keep a batch beside this node: live nodes of its datacenter that are no longer joining, in other racks than its own and in
/// different ones where there are such. `turn` varies the choice.
fn choose_holders(view: &ClusterView, turn: usize) -> Replicas {
    let own = &view.node(view.own()).location;
    let mut racks: BTreeMap<(bool, &str), Vec<NodeIndex>> = BTreeMap::new();
    for index in view.indexes() {
        let location = &view.node(index).location;
        let serves = view.is_alive(index) && view.node(index).phase != Phase::Joining;
        if index != view.own() && serves && location.datacenter == own.datacenter {
            racks.entry((location.rack == own.rack, &location.rack)).or_default().push(index);
        }
    }
    // One of each other rack, then another of each, and so on; then those of the own rack.
    let mut order: Vec<((bool, usize, usize), NodeIndex)> = Vec::new();
    let others = racks.keys().filter(|(is_own, _)| !is_own).count().max(1);
    for (number, ((is_own, _), nodes)) in racks.into_iter().enumerate() {
        let count = nodes.len();
        for (place, node) in nodes.into_iter().enumerate() {
            let round = (place + count - turn % count) % count;
            order.push(((is_own, round, (number + turn) % others), node));
        }
    }
    order.sort_by_key(|(rank, _)| *rank);
    let holders: Replicas = order.into_iter().map(|(_, node)| node).take(HOLDERS_MAX).collect();
    assert!(!holders.contains(&view.own()), "a batch is kept by other nodes beside this one");
    holders
}

/// Which delivery of a stored batch it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// That of the write itself: nothing later can have been forgotten yet. Replicas that are there have the updates also where they are no
    /// quorum, and the others hints.
    First,
    /// One more attempt at that, while the write waits.
    Repeated,
    /// A later one, by the batchlog.
    Again,
}

/// The outcome of completing a stored batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    /// It is applied and taken out.
    Applied,
    /// Its updates cannot be decoded: its row stays, for a version that can.
    Unreadable,
}

/// Logged batches of one shard.
pub(crate) struct Batches<'a> {
    context: &'a Context,
    log: &'a Batchlog,
}

impl<'a> Batches<'a> {
    pub(crate) fn new(context: &'a Context, log: &'a Batchlog) -> Self {
        Self { context, log }
    }

    /// Writes a batch of several partitions. On success enough replicas of each partition have acknowledged it; after an error all of
    /// it is written later or nothing.
    pub(crate) async fn write(
        &self,
        updates: Vec<PartitionUpdate>,
        options: WriteOptions,
    ) -> Result<(), RequestError> {
        assert!(updates.len() > 1, "a batch of one update needs no log");
        self.log.check_room().map_err(RequestError::Overloaded)?;
        let logged_anyway = self.context.injected().logged_failed_batches.then(|| updates.clone());
        let writes = match Writes::new(self.context).plan_with_lease(updates, &options).await {
            Ok(writes) => writes,
            Err(error) => {
                self.log_changes_alone(logged_anyway).await;
                return Err(error);
            }
        };
        let view = self.context.view();
        let holders = choose_holders(&view, self.context.next_turn());
        let active = self.log.begin(writes.iter().map(|write| &write.update));
        if let Err(error) = self.keep_batch(&view, &active.batch, &holders, options).await {
            // Nothing of it was applied: it should not be applied later. A node that misses this message replays all of it.
            self.forget_later(&view, &active.batch, &holders);
            self.log_changes_alone(logged_anyway).await;
            return Err(error);
        }
        if self.context.injected().early_removal {
            self.forget_later(&view, &active.batch, &holders);
        }
        let result = Writes::new(self.context)
            .write_planned(writes, options, Age::New(self.context.hinting().begin_write()))
            .await;
        if result.is_ok() {
            self.forget_later(&view, &active.batch, &holders);
        }
        result
    }

    /// An injected bug: writes the changes of updates to their logs, without the updates.
    async fn log_changes_alone(&self, updates: Option<Vec<PartitionUpdate>>) {
        let Some(updates) = updates else { return };
        let schema = self.context.schema();
        let changes = updates.iter().flat_map(|update| changes_alone(&schema, update)).collect();
        let deadline = self.context.rt().now() + COMPLETION_TIMEOUT;
        let options = WriteOptions { consistency: Consistency::Any, kind: WriteKind::Batch, deadline };
        let writes = Writes::new(self.context);
        if let Ok(planned) = writes.plan_with_lease(changes, &options).await {
            let age = Age::New(self.context.hinting().begin_write());
            drop(writes.write_planned(planned, options, age).await);
        }
    }

    /// Stores a batch on this node and on one of the others at least, or on two others.
    async fn keep_batch(
        &self,
        view: &ClusterView,
        batch: &StoredBatch,
        holders: &Replicas,
        options: WriteOptions,
    ) -> Result<(), RequestError> {
        let schema = self.context.schema();
        let Some(batches) = batch_row::table_of(&schema) else { return Ok(()) };
        let message = batch.to_message();
        let mut asked: FuturesUnordered<_> = holders
            .iter()
            .map(|node| {
                let to = view.owner(*node, batches.id, batch.key.token);
                self.context.remote().call(to, Verb::BatchStore, message.clone(), options.deadline)
            })
            .collect();
        let here = self.context.replica().apply(Write::one(Origin::System, batch.row(batches)));
        let stored = async {
            match join(here, next_stored(&mut asked)).await {
                (Ok(()), Err(None)) if holders.is_empty() => Ok(()),
                (Ok(()), elsewhere) => elsewhere,
                // Two nodes store it in any case: one may be lost.
                (Err(error), Ok(())) => {
                    tracing::debug!("a logged batch is not stored by its coordinator: {error}");
                    next_stored(&mut asked).await
                }
                (Err(_), elsewhere) => elsewhere,
            }
        };
        match self.context.rt().timeout_at(options.deadline, stored).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Some(why))) => Err(RequestError::Invalid(why)),
            Ok(Err(None)) | Err(_) => Err(not_kept(options)),
        }
    }

    /// Takes a batch out everywhere, without anyone waiting for it.
    fn forget_later(&self, view: &ClusterView, batch: &StoredBatch, holders: &Replicas) {
        let (removal, schema) = (batch.to_removal(), self.context.schema());
        let Some(batches) = batch_row::table_of(&schema) else { return };
        for node in holders {
            let to = view.owner(*node, batches.id, batch.key.token);
            self.context.remote().send(to, Verb::BatchRemove, removal.clone());
        }
        let (context, log) = (self.context.clone(), self.log.clone());
        let (key, at_micros) = (batch.key.clone(), batch.at_micros);
        let forget = async move {
            let schema = context.schema();
            if let Some(batches) = batch_row::table_of(&schema) {
                log.forget(batches, key, at_micros).await;
            }
        };
        self.context.rt().spawn(Group::Statement, forget).detach();
    }

    /// Keeps a batch that another node coordinates.
    pub(crate) fn keep_batch_of_another(
        &self,
        body: &Bytes,
    ) -> Result<impl Future<Output = Result<(), ReplicaError>> + use<>, Refusal> {
        let batch = StoredBatch::from_message(body)?;
        self.log.note_kept(batch.key.clone(), batch.at_micros);
        let context = self.context.clone();
        Ok(async move {
            match batch_row::table_of(&context.schema()) {
                Some(batches) => {
                    context.replica().apply(Write::one(Origin::System, batch.row(batches))).await
                }
                None => Ok(()),
            }
        })
    }

    /// Takes out a batch that another node has applied.
    pub(crate) fn remove_batch_of_another(
        &self,
        body: &Bytes,
    ) -> Result<impl Future<Output = Result<(), ReplicaError>> + use<>, Refusal> {
        let (key, at_micros) = StoredBatch::from_removal(body)?;
        let (context, log) = (self.context.clone(), self.log.clone());
        Ok(async move {
            let now = context.rt().wall_micros();
            match batch_row::table_of(&context.schema()) {
                Some(batches) => {
                    // One that stays is seen to later: on a full disk this fails, or ends with its message's time.
                    let removal = batch_row::removal(batches, key.clone(), at_micros, now);
                    context.replica().apply(Write::one(Origin::System, removal)).await?;
                    log.note_gone(&key);
                    Ok(())
                }
                None => Ok(()),
            }
        })
    }

    /// Applies the batches of several nodes that this shard keeps for longer than `age` and that nobody is applying. A pass ends where
    /// [`NOT_YET_MAX`] of them cannot be applied, because their replicas are down; the next one continues there.
    pub(crate) async fn replay_older(&self, age: Duration) -> Result<(), ReplicaError> {
        let (mut not_yet, mut after) = (0, self.log.pass_end().take());
        while not_yet < NOT_YET_MAX {
            let (page, end) = self.log.left(age, after.as_ref());
            let replays = futures_util::stream::iter(page).map(|key| self.replay_key(key, age / 2));
            let mut replays = pin!(replays.buffer_unordered(REPLAYED_AT_ONCE));
            while let Some(done) = replays.next().await {
                not_yet += usize::from(!done?);
            }
            after = end;
            if after.is_none() {
                break;
            }
            self.context.rt().maybe_yield().await;
        }
        if not_yet > 0 {
            tracing::warn!("{not_yet} logged batches could not be completed yet and will be tried again");
        }
        *self.log.pass_end().borrow_mut() = after;
        Ok(())
    }

    /// Applies a batch that was left, if it is still there. False when that is not possible yet.
    async fn replay_key(&self, key: DecoratedKey, timeout: Duration) -> Result<bool, ReplicaError> {
        match self.log.find(&key).await? {
            Some(_) if self.context.rt().buggify_fails("batchlog: a replay fails") => return Ok(false),
            Some(batch) => return Ok(self.replay_left(batch, timeout).await.is_ok()),
            None => self.log.note_gone(&key),
        }
        Ok(true)
    }

    /// Completes all batches that this shard keeps, but those whose updates cannot be decoded, and those that cannot be applied now: they stay,
    /// the latter to be tried again. How many were applied.
    ///
    /// # Errors
    /// When `system.batches` cannot be read.
    pub(crate) async fn complete_all(&self) -> Result<u64, ReplicaError> {
        let (mut completed, mut after) = (0, None);
        loop {
            let (page, end) = self.log.left(Duration::ZERO, after.as_ref());
            for key in page {
                let Some(batch) = self.log.find(&key).await? else { continue };
                let id = batch.id();
                match self.replay_left(batch, COMPLETION_TIMEOUT).await {
                    Ok(done) => completed += u64::from(done == Completion::Applied),
                    Err(error) => tracing::error!(
                        "the logged batch {id} could not be completed and will be tried again: {error}"
                    ),
                }
            }
            after = end;
            if after.is_none() {
                return Ok(completed);
            }
        }
    }

    /// Applies a batch that was left, as far as its nodes are there; the others get hints.
    async fn replay_left(&self, batch: StoredBatch, timeout: Duration) -> Result<Completion, RequestError> {
        let done = self.complete(batch, Delivery::Again, timeout).await?;
        if done == Completion::Applied {
            self.log.note_replayed();
        }
        Ok(done)
    }

    /// Applies a stored batch as far as its nodes are there, the others get hints, and takes it out.
    ///
    /// # Errors
    /// When too few replicas of an update acknowledge it.
    pub(crate) async fn complete(
        &self,
        batch: StoredBatch,
        delivery: Delivery,
        timeout: Duration,
    ) -> Result<Completion, RequestError> {
        let schema = self.context.schema();
        let again = (delivery == Delivery::Again).then(|| self.context.rt().wall_micros());
        let updates = match batch.updates(&schema, again) {
            Ok(updates) => updates,
            Err(error) => {
                // The next start tries it again.
                tracing::error!(
                    "the logged batch {} is not applied and stays in system.batches: {error}",
                    batch.id()
                );
                self.log.note_gone(&batch.key);
                return Ok(Completion::Unreadable);
            }
        };
        self.write_late(updates, batch.at_micros, (delivery, timeout)).await?;
        if let Some(batches) = batch_row::table_of(&schema) {
            self.log.forget(batches, batch.key, batch.at_micros).await;
        }
        Ok(Completion::Applied)
    }

    /// Writes updates that were taken up at a time in microseconds, as far as the nodes of each are there; the others get hints. Tables that
    /// were truncated since get none. Succeeds when each update has a quorum.
    pub(crate) async fn write_late(
        &self,
        updates: Vec<PartitionUpdate>,
        at_micros: i64,
        (delivery, timeout): (Delivery, Duration),
    ) -> Result<(), RequestError> {
        let engine = self.context.replica().engine();
        let later = |update: &PartitionUpdate| engine.truncated_at(update.table.id) < at_micros;
        let (here, elsewhere) = self.split(updates.into_iter().filter(later).collect());
        if !here.is_empty() {
            self.write_here(here, at_micros).await?;
        }
        // One that cannot be written now does not keep the others waiting.
        let write = |update| self.write_left(update, at_micros, (delivery, timeout));
        let mut writes = futures_util::stream::iter(elsewhere).map(write).buffer_unordered(AT_ONCE_MAX);
        let mut outcome = Ok(());
        while let Some(written) = writes.next().await {
            match written {
                Err(RequestError::Invalid(why)) => left_out(&why),
                written => outcome = outcome.and(written),
            }
        }
        outcome
    }

    /// Writes updates that this node alone keeps: those of a shard as one or, where some cannot be written at all, each by itself.
    async fn write_here(&self, updates: Vec<PartitionUpdate>, at_micros: i64) -> Result<(), RequestError> {
        let _under_way = self.context.fence().enter();
        let apply = async |updates: Vec<PartitionUpdate>| {
            let write = Write::all(Origin::Batchlog, updates);
            let write = write.with_truncation(Truncation::LeavesOut(at_micros));
            self.context.replica().apply(write).await.map_err(PeerError::from)
        };
        let failed = |error: PeerError| RequestError::Overloaded(error.message().to_owned());
        match apply(updates.clone()).await {
            Err(PeerError::Invalid(_)) => {}
            applied => return applied.map_err(failed),
        }
        for update in updates {
            match apply(vec![update]).await {
                Err(PeerError::Invalid(why)) => left_out(&why),
                applied => applied.map_err(failed)?,
            }
        }
        Ok(())
    }

    /// Splits updates into those of tables that this node alone keeps, and those that have replicas on several.
    fn split(&self, updates: Vec<PartitionUpdate>) -> (Vec<PartitionUpdate>, Vec<PartitionUpdate>) {
        updates
            .into_iter()
            .partition(|update| self.context.maps().is_only_here(&update.table, update.key.token))
    }

    async fn write_left(
        &self,
        update: PartitionUpdate,
        at_micros: i64,
        (delivery, timeout): (Delivery, Duration),
    ) -> Result<(), RequestError> {
        let consistency = self.replay_level(&update.table);
        let deadline = self.context.rt().now() + timeout;
        let options = WriteOptions { consistency, kind: WriteKind::Batch, deadline };
        let writes = Writes::new(self.context);
        if delivery == Delivery::First
            && let Err(error @ RequestError::Unavailable { .. }) = writes.find_targets(&update, consistency)
        {
            // The replicas that are there have it at once, and the others a hint; it stays stored until there is a quorum.
            let options = WriteOptions { consistency: Consistency::Any, ..options };
            let planned = writes.plan_with_lease(vec![update], &options).await?;
            writes.write_planned(planned, options, Age::Late(at_micros)).await?;
            return Err(error);
        }
        let planned = writes.plan_with_lease(vec![update], &options).await?;
        writes.write_planned(planned, options, Age::Late(at_micros)).await
    }

    /// How many replicas must have an update before its batch is taken out: a quorum, of this datacenter where it has replicas.
    fn replay_level(&self, table: &Table) -> Consistency {
        let view = self.context.view();
        let own = &view.node(view.own()).location.datacenter;
        match self.context.maps().placement_of(table) {
            Ok((_, Replication::NetworkTopology { factors }))
                if factors.get(own).is_some_and(|copies| *copies > 0) =>
            {
                Consistency::LocalQuorum
            }
            _ => Consistency::Quorum,
        }
    }
}

/// An update of a batch cannot be written, now or later.
fn left_out(why: &str) {
    tracing::warn!("a part of a logged batch is left out, for it cannot be written: {why}");
}

/// Waits until one more of the queried nodes has stored a batch. Fails when none is left, with the reason of one that refused it.
async fn next_stored(
    asked: &mut FuturesUnordered<impl Future<Output = Result<Bytes, PeerError>>>,
) -> Result<(), Option<String>> {
    let mut wrong = None;
    while let Some(answer) = asked.next().await {
        match answer {
            Ok(_) => return Ok(()),
            Err(PeerError::Invalid(why)) => wrong = Some(why),
            Err(error) => tracing::debug!("a logged batch is not stored by another node: {error:?}"),
        }
    }
    Err(wrong)
}

fn not_kept(options: WriteOptions) -> RequestError {
    let WriteOptions { consistency, .. } = options;
    RequestError::WriteTimeout { consistency, received: 0, required: 1, kind: WriteKind::BatchLog }
}

/// The rows of the log of an update, which is not written itself; none where its table has no log.
fn changes_alone(schema: &Schema, update: &PartitionUpdate) -> Vec<PartitionUpdate> {
    let log = schema.cdc_log_of(&update.table).and_then(|log| Log::new(&update.table, log.clone()).ok());
    let Some(log) = log else { return Vec::new() };
    let generations = schema.cdc_generations();
    let mut stream = |timestamp: Timestamp| {
        let generation = generation_at(generations, timestamp).expect("a log comes with a generation");
        stream_of(generation, update.key.token)
    };
    log.changes(None, update, &mut stream, Naming::Canonical)
}

#[cfg(test)]
#[path = "logged_tests.rs"]
mod tests;
