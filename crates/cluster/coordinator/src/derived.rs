//! Materialized views: the updates derived from writes of their bases on this shard, and their path to the views' replicas
//! (docs/design/views.md).
//!
//! The updates of views that follow from a write are stored as a batch of several nodes in the log entry of the write, and delivered when that
//! is applied. A batch that is left, by a crash or because the view's replicas were not there, is delivered by the batchlog.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mutation::{Fragment, PartitionRange, PartitionUpdate, RangeTombstone, Row, Seconds, Slices};
use replica::{
    Derivation, Derived, Engine, EngineRead, EngineRowLookup, FollowUp, Origin, TakenOver, WriteError,
    WriteObserver,
};
use rt::preempt::Pace;
use rt::sync::{Permit, Semaphore};
use rt::{Group, Rt};
use schema::{Schema, Table, TableId};
use stdx::{HashMap, HashSet};
use views::View;

use crate::batch_row;
use crate::batchlog::Active;
use crate::canaries::without_row_deletions;
use crate::coordinator::WeakCoordinator;
use crate::logged::{Batches, Delivery};
use crate::{Coordinator, RequestError};

/// Bytes of view updates of a shard that are on their way. Writes of bases wait when there are more.
const PENDING_BYTES_MAX: usize = 16 << 20;
/// Bytes of a base partition that are read for one write.
const READ_BYTES_MAX: usize = 16 << 20;
/// The time that the replicas of a view have for an update, before the batchlog tries it again.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a write waits for its views that have `synchronous_updates`: longer than its coordinator does, which answers with a timeout
/// before that.
const SYNCHRONOUS_TIME_MAX: Duration = Duration::from_secs(12);
/// Between two attempts at that.
const SYNCHRONOUS_PAUSE: Duration = Duration::from_millis(200);

const _: () = assert!(
    DELIVERY_TIMEOUT.as_millis() + SYNCHRONOUS_PAUSE.as_millis() < SYNCHRONOUS_TIME_MAX.as_millis(),
    "a synchronous update is tried more than once"
);

impl Coordinator {
    /// Has views of this shard's tables follow their bases from now on.
    pub fn derive_views(&self) {
        let observer = ViewObserver {
            rt: self.context().rt().clone(),
            coordinator: self.downgrade(),
            views: Views::of(&self.schema()),
            intents: Intents::default(),
        };
        self.replica().engine().observe(Rc::new(observer));
    }
}

/// The views of a schema, by the tables that they follow.
#[derive(Default)]
struct Views(RefCell<HashMap<TableId, Rc<[View]>>>);

impl Views {
    fn of(schema: &Schema) -> Self {
        let mut views = HashMap::default();
        schema.tables().for_each(|table| add_view(&mut views, schema, table));
        Self(RefCell::new(shared(views).collect()))
    }

    /// The views that follow a table.
    fn following(&self, table: TableId) -> Option<Rc<[View]>> {
        self.0.borrow().get(&table).cloned()
    }

    /// Takes over the changes of a schema, all in the last step.
    async fn take_over(&self, before: &Schema, schema: &Schema) {
        let mut bases = HashSet::default();
        for table in schema.table_differences(before).flat_map(|(old, new)| old.into_iter().chain(new)) {
            match view_base(table) {
                Some(base) => drop(bases.insert(base)),
                // A table that gets its first view differs in that view.
                None if self.0.borrow().contains_key(&table.id) => drop(bases.insert(table.id)),
                None => {}
            }
        }
        if bases.is_empty() {
            return;
        }
        let (mut views, mut pace) = (HashMap::default(), Pace::new());
        for table in schema.tables() {
            if view_base(table).is_some_and(|base| bases.contains(&base)) {
                add_view(&mut views, schema, table);
            }
            pace.step().await;
        }
        assert!(views.keys().all(|base| bases.contains(base)), "views of other tables stay as they are");
        let mut all = self.0.borrow_mut();
        all.retain(|base, _| !bases.contains(base));
        all.extend(shared(views));
    }
}

/// The table that a view follows; none of a table that is no view.
fn view_base(table: &Table) -> Option<TableId> {
    table.derivation.as_ref().filter(|derivation| derivation.is_view()).map(|derivation| derivation.base())
}

/// Adds a table to the views of its base, if it is one.
fn add_view(views: &mut HashMap<TableId, Vec<View>>, schema: &Schema, table: &Arc<Table>) {
    let Some(base) = view_base(table).and_then(|base| schema.table_by_id(base)) else { return };
    match View::new(base, table.clone()) {
        Ok(view) => {
            assert_eq!(view.table().id, table.id, "a view's rows are in its table");
            views.entry(base.id).or_default().push(view);
        }
        Err(error) => tracing::error!("a materialized view does not follow its base: {error}"),
    }
}

fn shared(views: HashMap<TableId, Vec<View>>) -> impl Iterator<Item = (TableId, Rc<[View]>)> {
    views.into_iter().map(|(base, views)| (base, views.into()))
}

/// Derives the updates of views.
struct ViewObserver {
    rt: Rt,
    /// It holds the engine, which holds this.
    coordinator: WeakCoordinator,
    views: Views,
    intents: Intents,
}

/// The updates of other replicas that follow from writes of this shard, as far as they are on their way.
pub(crate) struct Intents {
    /// Of [`PENDING_BYTES_MAX`].
    room: Semaphore,
}

impl Default for Intents {
    fn default() -> Self {
        Self { room: Semaphore::new(PENDING_BYTES_MAX) }
    }
}

impl Intents {
    /// The intent that is stored with a write so that `changes` follow from it, and their delivery, which the write waits for where that is
    /// `synchronous`. Waits for room.
    pub(crate) async fn of(
        &self,
        coordinator: &Coordinator,
        changes: Vec<PartitionUpdate>,
        synchronous: bool,
    ) -> Result<(Option<PartitionUpdate>, Option<Box<dyn FollowUp>>), WriteError> {
        if changes.is_empty() {
            return Ok((None, None));
        }
        let schema = coordinator.schema();
        let Some(batches) = batch_row::table_of(&schema) else { return Ok((None, None)) };
        let log = &coordinator.operations().batchlog;
        log.check_room().map_err(WriteError::Overloaded)?;
        let bytes: usize = changes.iter().map(PartitionUpdate::memory_size).sum();
        let room = self.room.acquire(bytes.min(PENDING_BYTES_MAX)).await.map_err(|_| WriteError::Stopped)?;
        let active = log.begin(changes.iter());
        let row = active.batch.row(batches);
        let is_here = |change: &PartitionUpdate| {
            coordinator.context().maps().is_only_here(&change.table, change.key.token)
        };
        let (coordinator, are_here) = (coordinator.clone(), changes.iter().all(is_here));
        let pending = Pending { coordinator, active, synchronous, are_here, is_applied: false, _room: room };
        Ok((Some(row), Some(Box::new(pending))))
    }
}

/// View updates of one write, from before it is applied until they are delivered.
struct Pending {
    coordinator: Coordinator,
    active: Active,
    /// The write waits for them.
    synchronous: bool,
    /// This node is the only replica of all of them.
    are_here: bool,
    is_applied: bool,
    _room: Permit,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_applied {
            self.coordinator.operations().batchlog.note_gone(&self.active.batch.key);
        }
    }
}

impl Pending {
    /// Writes the updates to the views' replicas; a quorum of each has them then.
    async fn try_to_deliver(&self, delivery: Delivery) -> Result<(), RequestError> {
        let (context, operations) = (self.coordinator.context(), self.coordinator.operations());
        let (batch, began) = (self.active.batch.clone(), context.rt().now());
        let batches = Batches::new(context, &operations.batchlog);
        let delivered = batches.complete(batch, delivery, DELIVERY_TIMEOUT).await.map(drop);
        operations.view_writes.ended(context.rt().now() - began, &delivered);
        delivered
    }

    /// Writes the updates to the views' replicas, or leaves them to the batchlog.
    async fn deliver(self) {
        if let Err(error) = self.try_to_deliver(Delivery::First).await {
            tracing::debug!("updates of materialized views are left to the batchlog: {error}");
        }
    }

    /// The same again and again, until it has succeeded or nobody waits any more.
    async fn deliver_in_time(self) -> Result<(), WriteError> {
        let rt = self.coordinator.context().rt().clone();
        let until = rt.now() + SYNCHRONOUS_TIME_MAX;
        let mut delivery = Delivery::First;
        loop {
            match self.try_to_deliver(std::mem::replace(&mut delivery, Delivery::Repeated)).await {
                Ok(()) => return Ok(()),
                Err(error) if rt.now() >= until => {
                    tracing::debug!(
                        "synchronous updates of materialized views are left to the batchlog: {error}"
                    );
                    return Err(WriteError::FollowUp(error.to_string()));
                }
                Err(_) => rt.sleep(SYNCHRONOUS_PAUSE).await,
            }
        }
    }
}

impl FollowUp for Pending {
    fn applied(&mut self) {
        assert!(!self.is_applied, "a write is applied once");
        self.is_applied = true;
    }

    fn durable(self: Box<Self>) -> Pin<Box<dyn Future<Output = Result<(), WriteError>>>> {
        if self.synchronous {
            return Box::pin(self.deliver_in_time());
        }
        // Views that are all on this node are up to date when the write is acknowledged.
        if self.are_here {
            return Box::pin(async move {
                self.deliver().await;
                Ok(())
            });
        }
        let rt = self.coordinator.context().rt().clone();
        rt.spawn(Group::Statement, self.deliver()).detach();
        Box::pin(std::future::ready(Ok(())))
    }
}

impl ViewObserver {
    async fn derive(&self, engine: &Engine, update: &PartitionUpdate) -> Result<Derivation, WriteError> {
        let Some(views) = self.views.following(update.table.id) else { return Ok(Derivation::default()) };
        let Some(coordinator) = self.coordinator.upgrade() else { return Err(WriteError::Stopped) };
        let context = coordinator.context();
        if !context.maps().is_complete(&update.table, update.key.token) {
            // This node would lack rows that the others had before.
            return Ok(Derivation::default());
        }
        let slices = View::rows_read(update);
        let before = read_before(engine, update, &slices, "materialized views").await?;
        let now = Seconds::try_from(self.rt.wall_micros() / 1_000_000).unwrap_or(0);
        let (mut changes, mut pace) = (Vec::new(), Pace::new());
        for view in views.iter() {
            let mut derived = view.changes(&before, update, now);
            if context.injected().kept_view_rows {
                derived.iter_mut().for_each(|change| *change = without_row_deletions(change));
            }
            let id = view.table().id;
            assert!(derived.iter().all(|change| change.table.id == id), "a view's changes are of the view");
            changes.extend(derived);
            pace.steps(1 + before.rows().len().max(update.rows().len())).await;
        }
        let is_here = |change: &PartitionUpdate| {
            context.replica().shard_of(change.table.id, change.key.token) == context.shard()
                && context.maps().is_only_here(&change.table, change.key.token)
        };
        // Changes of this very shard are applied with the write and need not be stored for later.
        let (mut updates, changes): (Vec<_>, Vec<_>) = changes.into_iter().partition(is_here);
        let synchronous = views.iter().any(|view| view.table().options.synchronous_updates)
            && !context.injected().unsynchronised_views;
        let (intent, follow_up) = self.intents.of(&coordinator, changes, synchronous).await?;
        updates.extend(intent.filter(|_| !context.injected().lost_view_updates));
        Ok(Derivation { updates, follow_up })
    }
}

impl WriteObserver for ViewObserver {
    fn observes(&self, table: &Table, _: Origin) -> bool {
        self.views.0.borrow().contains_key(&table.id)
    }

    fn derive<'a>(&'a self, engine: &'a Engine, _: Origin, update: &'a PartitionUpdate) -> Derived<'a> {
        Box::pin(self.derive(engine, update))
    }

    fn is_needed(&self) -> bool {
        !self.views.0.borrow().is_empty()
    }

    fn use_schema<'a>(&'a self, before: &'a Schema, schema: &'a Schema) -> TakenOver<'a> {
        Box::pin(self.views.take_over(before, schema))
    }
}

/// Rows of the partition of an update as they were, for a table with `followers`.
pub(crate) async fn read_before(
    engine: &Engine,
    update: &PartitionUpdate,
    slices: &Slices,
    followers: &str,
) -> Result<PartitionUpdate, WriteError> {
    let failed = |error: &dyn std::fmt::Display| WriteError::Read(error.to_string());
    let mut before = PartitionUpdate::new(update.table.clone(), update.key.clone());
    if let Some(row) = only_row_before(engine, update, slices)? {
        row.into_iter().for_each(|row| before.add_row(row));
        return Ok(before);
    }
    let range = PartitionRange::single(&update.key);
    let read = EngineRead::new(update.table.id, &range, slices);
    let mut reader = engine.read(&read).map_err(|error| failed(&error))?;
    let (mut bytes, mut open) = (0, None);
    while let Some(fragment) = reader.next().await.map_err(|error| failed(&error))? {
        bytes += fragment.memory_size();
        if bytes > READ_BYTES_MAX {
            return Err(WriteError::TooMuchToRead(format!(
                "the write changes more rows of {} than can be read at once ({} MiB), and {followers} follow from them; \
                 delete or change fewer rows by one statement",
                update.table.full_name(),
                READ_BYTES_MAX >> 20
            )));
        }
        match fragment {
            Fragment::PartitionStart { deletion, .. } => before.add_deletion(deletion),
            Fragment::Row(row) => before.add_row(row),
            Fragment::RangeTombstoneChange { bound, deletion } => {
                if let Some((start, deletion)) = open.take() {
                    before.add_range_tombstone(RangeTombstone { start, end: bound.clone(), deletion });
                }
                open = (!deletion.is_live()).then_some((bound, deletion));
            }
            Fragment::StaticRow(row) => before.add_static(row),
            Fragment::PartitionEnd => {}
        }
    }
    Ok(before)
}

/// The same of the only row that there is of `slices`, if there is one; none where memory does not know that it is all.
fn only_row_before(
    engine: &Engine,
    update: &PartitionUpdate,
    slices: &Slices,
) -> Result<Option<Option<Row>>, WriteError> {
    // Memory may still hold cells of dropped columns.
    if !update.table.dropped_columns.is_empty() {
        return Ok(None);
    }
    let lookup = EngineRowLookup { key: &update.key, slices, bypass_cache: false, values_only: false };
    let copy = |row: Option<&Row>| match row {
        Some(row) if row.memory_size() > READ_BYTES_MAX => None,
        row => Some(row.cloned()),
    };
    engine.visit_only_row(&update.table, &lookup, copy).map_err(|error| WriteError::Read(error.to_string()))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use schema::{HIDDEN, Keyspace, Replication, TableBuilder};
    use types::CqlType;

    use super::*;

    fn base(id: u8, regular: &str) -> Table {
        let table = TableBuilder::new("ks", format!("base{id}"), TableId([id; 16]))
            .partition_key("k", CqlType::Int)
            .regular(regular, CqlType::Text)
            .regular("v", CqlType::Text);
        table.build().expect("a table")
    }

    fn view(id: u8, of: u8) -> Table {
        let mut view = TableBuilder::new("ks", format!("view{id}"), TableId([id; 16]))
            .partition_key("v", CqlType::Text)
            .clustering("k", CqlType::Int, false)
            .regular(HIDDEN, CqlType::Text);
        let (where_clause, conditions) = (String::new(), Vec::new());
        let base = TableId([of; 16]);
        view.derivation =
            Some(schema::Derivation::View { base, all_columns: false, where_clause, conditions });
        view.build().expect("a table")
    }

    fn shown(views: &Views) -> Vec<String> {
        let views = views.0.borrow();
        let mut shown: Vec<String> = views.iter().map(|entry| format!("{entry:?}")).collect();
        shown.sort();
        shown
    }

    /// Each change results in the views that a start with the schema finds.
    #[test]
    fn changes_of_bases_and_views_are_taken_over() {
        let empty = Schema::default().with_keyspace(Keyspace::new("ks", Replication::Local));
        let two = empty.clone().with_table(base(1, "a")).with_table(base(2, "a"));
        let viewed = two.clone().with_table(view(11, 1)).with_table(view(21, 2));
        let more = viewed.clone().with_table(view(12, 1));
        let altered = more.clone().with_table(base(1, "b"));
        let fewer = altered.clone().without_table("ks", "view21");
        let schemas = [empty.clone(), two, viewed, more, altered, fewer, empty];
        let (views, mut counts) = (Views::default(), Vec::new());
        for pair in schemas.windows(2) {
            views
                .take_over(&pair[0], &pair[1])
                .now_or_never()
                .expect("nothing yields outside of an executor");
            assert_eq!(shown(&views), shown(&Views::of(&pair[1])));
            counts.push(views.0.borrow().values().map(|views| views.len()).sum::<usize>());
        }
        assert_eq!(counts, [0, 2, 3, 3, 2, 0]);
    }
}
