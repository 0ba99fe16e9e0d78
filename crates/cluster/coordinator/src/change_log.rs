//! Change data capture: the rows of logs that follow from writes of their tables on this shard (docs/design/cdc.md).
//!
//! A stream is where the partitions are whose changes it has, so the rows of a log are a part of the write's own entry of the commit log. Where
//! it is elsewhere, because the ring has just changed, they are stored with the write and delivered, as the updates of views are.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use cdc::{Log, Naming, StreamId, stream_of};
use cluster::state::STATE_VERSION_OF_CDC_NAMES;
use mutation::{PartitionUpdate, Timestamp};
use replica::{Derivation, Derived, Engine, Origin, TakenOver, WriteError, WriteObserver};
use rt::preempt::Pace;
use schema::{CdcGeneration, Schema, Table, TableId};
use stdx::HashMap;
use topology::Sharder;

use crate::Coordinator;
use crate::canaries::without_row_deletions;
use crate::cdc_times::generation_at;
use crate::coordinator::WeakCoordinator;
use crate::derived::{Intents, read_before};

impl Coordinator {
    /// Has logs of changes of this shard's tables follow them from now on.
    pub fn capture_changes(&self) {
        let observer = ChangeObserver {
            coordinator: self.downgrade(),
            state: RefCell::new(State::of(&self.schema())),
            streams: RefCell::default(),
            intents: Intents::default(),
        };
        self.replica().engine().observe(Rc::new(observer));
    }
}

/// The logs and generations of a schema.
struct State {
    logs: HashMap<TableId, Rc<Log>>,
    generations: Vec<Arc<CdcGeneration>>,
}

impl State {
    fn of(schema: &Schema) -> Self {
        let logs = schema.tables().filter_map(|base| log_of(schema, base)).collect();
        Self { logs, generations: schema.cdc_generations().to_vec() }
    }

    /// Whether a change of the schema changes it.
    fn is_affected(&self, before: &Schema, schema: &Schema) -> bool {
        let mut tables = schema.table_differences(before).flat_map(|(old, new)| old.into_iter().chain(new));
        schema.cdc_generations() != self.generations
            || tables.any(|it| it.options.cdc.enabled || it.is_cdc_log() || self.logs.contains_key(&it.id))
    }
}

/// The log of a table whose changes are captured, by the table's id.
fn log_of(schema: &Schema, base: &Arc<Table>) -> Option<(TableId, Rc<Log>)> {
    if !base.options.cdc.enabled {
        return None;
    }
    match Log::new(base, schema.cdc_log_of(base)?.clone()) {
        Ok(log) => Some((base.id, Rc::new(log))),
        Err(error) => {
            tracing::error!("changes of a table are not captured: {error}");
            None
        }
    }
}

/// Names a stream: the start of its generation, the last token of its range, its shard.
type StreamPlace = (i64, i64, u16);

/// Derives the rows of logs.
struct ChangeObserver {
    /// It holds the engine, which holds this.
    coordinator: WeakCoordinator,
    state: RefCell<State>,
    /// The streams that were looked for, of the generations that there are.
    streams: RefCell<HashMap<StreamPlace, StreamId>>,
    intents: Intents,
}

impl ChangeObserver {
    async fn derive(&self, engine: &Engine, update: &PartitionUpdate) -> Result<Derivation, WriteError> {
        let log = self.state.borrow().logs.get(&update.table.id).cloned();
        let Some(log) = log else { return Ok(Derivation::default()) };
        let Some(coordinator) = self.coordinator.upgrade() else { return Err(WriteError::Stopped) };
        let before = match log.reads_before() {
            true => Some(read_before(engine, update, &Log::rows_read(update), "CDC").await?),
            false => None,
        };
        let context = coordinator.context();
        let update = match context.injected().unlogged_deletions {
            true => &without_row_deletions(update),
            false => update,
        };
        // A node that has another name for the write logs its changes again.
        let naming = match context.view().oldest_version() < STATE_VERSION_OF_CDC_NAMES {
            true => Naming::Encoded,
            false => Naming::Canonical,
        };
        let token = update.key.token;
        let stream = &mut |timestamp| self.stream(timestamp, token, context.injected().former_streams);
        let changes = log.changes(before.as_ref(), update, stream, naming);
        let (mut updates, mut others) = (Vec::new(), Vec::new());
        for change in changes {
            let (table, stream) = (&change.table, change.key.token);
            let is_here = context.maps().takes_token(table, stream)
                && context.replica().shard_of(table.id, stream) == context.shard();
            if !is_here {
                others.push(change);
                continue;
            }
            // The other nodes that take writes of the stream derive them as well, if the write goes to all of them.
            if !context.maps().go_with(table, stream, token) {
                others.push(change.clone());
            }
            updates.push(change);
        }
        let (intent, follow_up) = self.intents.of(&coordinator, others, false).await?;
        updates.extend(intent);
        Ok(Derivation { updates, follow_up })
    }

    /// The stream of a partition's changes with a timestamp; for an injected bug of the generation before.
    fn stream(&self, timestamp: Timestamp, token: i64, of_former: bool) -> StreamId {
        let state = self.state.borrow();
        let known =
            &state.generations[..state.generations.len().saturating_sub(usize::from(of_former)).max(1)];
        let generation = generation_at(known, timestamp).expect("a log comes with a generation");
        let vnode = generation.vnodes[generation.vnode_of(token)];
        let shard = Sharder::new(vnode.shards).shard_of(token);
        let place = (generation.start_millis, vnode.upto, shard);
        assert!(shard < vnode.shards, "a stream is of a shard of its range");
        *self.streams.borrow_mut().entry(place).or_insert_with(|| stream_of(generation, token))
    }
}

impl ChangeObserver {
    /// Takes over the changes of a schema, all in the last step.
    async fn take_over(&self, before: &Schema, schema: &Schema) {
        if !self.state.borrow().is_affected(before, schema) {
            return;
        }
        let mut state = State { logs: HashMap::default(), generations: schema.cdc_generations().to_vec() };
        let mut pace = Pace::new();
        for base in schema.tables() {
            state.logs.extend(log_of(schema, base));
            pace.step().await;
        }
        let is_known = |(start, ..): &StreamPlace, _: &mut StreamId| {
            state.generations.iter().any(|generation| generation.start_millis == *start)
        };
        self.streams.borrow_mut().retain(is_known);
        assert!(state.logs.keys().all(|base| schema.table_by_id(*base).is_some()), "logs are of tables");
        *self.state.borrow_mut() = state;
    }
}

impl WriteObserver for ChangeObserver {
    /// Data that moves between replicas is no change.
    fn observes(&self, table: &Table, origin: Origin) -> bool {
        let is_change =
            matches!(origin, Origin::Client | Origin::PaxosCommit | Origin::Hint | Origin::Batchlog);
        is_change && self.state.borrow().logs.contains_key(&table.id)
    }

    fn derive<'a>(&'a self, engine: &'a Engine, _: Origin, update: &'a PartitionUpdate) -> Derived<'a> {
        Box::pin(self.derive(engine, update))
    }

    fn is_needed(&self) -> bool {
        !self.state.borrow().logs.is_empty()
    }

    fn use_schema<'a>(&'a self, before: &'a Schema, schema: &'a Schema) -> TakenOver<'a> {
        Box::pin(self.take_over(before, schema))
    }
}
