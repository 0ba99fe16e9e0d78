//! Compaction of one shard's tables: when it runs, and how its result enters the set.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use compaction::worker::{Outcome, run, shard_of};
use compaction::{
    Candidate, Choice, Hiding, Job, OwnedRanges, Progress, Reason, Strategy, TableFigures, WorkerError,
};
use mutation::purge::PurgeRule;
use mutation::{DecoratedKey, PartitionRange, Repaired, Seconds, Timestamp};
use rt::Group;
use schema::DroppedColumn;
use sstable::filter::HashedKey;
use sstable::{Descriptor, EncodingStats, Sstable, SstableError, SstableWriter, WriterOptions};

use crate::MaintenanceError;
use crate::compactions::{Claim, Operation};
use crate::edit::Edit;
use crate::edits::Moment;
use crate::engine::Inner;
use crate::error::disk_or_source;
use crate::indexes::Speed;
use crate::live::{LiveSstable, covers_all};
use crate::sharding::mark_of;
use crate::stats::{CompactionRecord, TaskKind};
use crate::store::Store;
use crate::taken::Taken;

/// Free space that compactions leave to others, bytes; on a small file system it is a twentieth.
pub(crate) const ROOM_SPARED_MAX: u64 = 1 << 30;

/// Partitions that an output of a merge by shards is made for in any case.
const PARTITIONS_MIN: u64 = 10_000;
/// Samples of an index that are counted between two looks at the other tasks.
const SAMPLES_BETWEEN_YIELDS: usize = 256;

/// See [`crate::Engine::compact`].
pub(crate) async fn major(inner: &Rc<Inner>, store: &Rc<Store>) -> Result<(), MaintenanceError> {
    merge_all(inner, store).await?;
    store.refuse_left_out(|_| true)
}

async fn merge_all(inner: &Rc<Inner>, store: &Rc<Store>) -> Result<(), MaintenanceError> {
    crate::flush::flush(inner, store).await?;
    store.damages.refuse_any()?;
    let begun = store.edits.now();
    store.edits.stop_minor();
    let _alone = store.edits.alone().await?;
    // One that is damaged stays, with all that it may hide.
    let inputs: Vec<Rc<LiveSstable>> =
        store.set().iter().filter(|live| !live.suspect.get()).cloned().collect();
    if inputs.is_empty() || store.dropped.get() {
        return Ok(());
    }
    let strategy = Strategy::of(&store.table().options.compaction);
    let (output_bytes_max, shards) = strategy.major_output(&candidates(inner, store, &inputs));
    let (inputs, _room) = make_room(inner, store, &inputs, None).await?;
    let level = inputs.iter().map(|live| live.sstable.level()).max().unwrap_or(0);
    let choice = Choice { inputs: Vec::new(), reason: Reason::Tier, level, output_bytes_max, shards };
    let operation = inner.compactions.operation(TaskKind::Compaction, store.table());
    match compact(inner, store, inputs, &choice, CompactionType::plain(MAJOR, operation, begun)).await {
        // A truncation or the table's end came between: there is nothing left to merge.
        Err(MaintenanceError::Cancelled) if !inner.health.is_stopped() => Ok(()),
        done => done,
    }
}

/// The type of a compaction.
pub(crate) struct CompactionType<'a> {
    /// Its name in the history.
    pub(crate) name: &'a str,
    /// The ranges that it retains, if not all.
    pub(crate) kept: Option<OwnedRanges>,
    /// The other SSTables by which it drops hidden data, instead of those that the table's options name.
    pub(crate) hiding: Option<Hiding>,
    /// The work that an operator can stop.
    pub(crate) operation: Rc<Operation>,
    /// When the work began: requests to stop since then count, those between two of its SSTables, too.
    pub(crate) begun: Moment,
}

impl<'a> CompactionType<'a> {
    /// A merge of everything in its inputs.
    pub(crate) fn plain(name: &'a str, operation: Rc<Operation>, begun: Moment) -> Self {
        Self { name, kept: None, hiding: None, operation, begun }
    }

    /// Only operators, truncation and the end of the table stop it.
    fn is_major(&self) -> bool {
        self.name == MAJOR || self.operation.kind != TaskKind::Compaction
    }
}

/// The name of a major compaction in the history; only operators, truncation and the end of the table stop it.
const MAJOR: &str = "major";

/// Starts the compactions that are possible; called when SSTables were added, and from time to time.
pub(crate) fn start_due(inner: &Rc<Inner>) {
    if !inner.config.auto_compaction || inner.health.is_stopped() {
        return;
    }
    // Each table in turn, from the one behind the last: those that come late in the order must not wait for ever.
    let mut stores = inner.stores_in_order();
    let last = inner.compactions.last();
    let behind = last.map_or(0, |last| stores.partition_point(|store| store.id <= last));
    stores.rotate_left(behind);
    let mut is_started = true;
    while is_started {
        is_started = false;
        for store in &stores {
            if inner.compactions.running() >= inner.settings.get().compactors_max as u64 {
                return;
            }
            if start(inner, store) {
                let running = inner.compactions.running();
                assert!(
                    running <= inner.settings.get().compactors_max as u64,
                    "compactions are limited in number"
                );
                inner.compactions.set_last(store.id);
                is_started = true;
            }
        }
    }
}

/// Starts one compaction of a table, if there is one worth it.
fn start(inner: &Rc<Inner>, store: &Rc<Store>) -> bool {
    let set = store.set();
    if store.auto_compaction_stopped.get() {
        return false;
    }
    if set.is_empty() || !store.damages.is_empty() || inner.compactions.is_paused(store.id, inner.rt.now()) {
        return false;
    }
    let strategy = Strategy::of(&store.table().options.compaction);
    let candidates = candidates(inner, store, &set);
    // Repaired SSTables are compacted apart from the others.
    let (repaired, fresh): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|one| store.marks.is_repaired(set[one.id].covered_by.get()));
    let figures = table_figures(inner, store);
    let choice = strategy.choose(&fresh, &figures).or_else(|| strategy.choose(&repaired, &figures));
    let Some(choice) = choice else { return false };
    let inputs: Vec<Rc<LiveSstable>> = choice.inputs.iter().map(|id| set[*id].clone()).collect();
    let repaired = inputs.iter().filter(|live| store.marks.is_repaired(live.covered_by.get())).count();
    assert!(repaired == 0 || repaired == inputs.len(), "repaired SSTables are merged with each other only");
    let mut taken = Taken::new(inputs);
    inner.compactions.begin();
    let (shard, store) = (inner.clone(), store.clone());
    let task = inner.rt.spawn(Group::Compaction, async move {
        let done = compact_chosen(&shard, &store, &mut taken, &choice).await;
        drop(taken);
        shard.compactions.end();
        match done {
            Ok(()) => {
                shard.compactions.resume(store.id);
                shard.compactions.check.notify_one();
            }
            Err(error) => compaction_failed(&shard, &store, error),
        }
    });
    inner.keep_task(task);
    true
}

/// A compaction failed: an SSTable that is damaged is left out from now on, and the log says why, once.
fn compaction_failed(inner: &Inner, store: &Store, error: MaintenanceError) {
    inner.compactions.count_failure();
    if matches!(error, MaintenanceError::Interrupted) {
        inner.compactions.rest(store.id, inner.rt.now());
        return;
    }
    if matches!(error, MaintenanceError::Cancelled | MaintenanceError::Stopped) {
        return;
    }
    if let MaintenanceError::Source(source) = &error
        && let Some(error @ SstableError::Corrupt(damage)) = source.downcast_ref::<SstableError>()
        && let Some((descriptor, _)) = Descriptor::parse(&damage.file)
    {
        // It may have been read beside the inputs.
        let set = store.set();
        let damaged = set.iter().filter(|live| *live.sstable.descriptor() == descriptor);
        damaged.for_each(|live| store.met_damage(live, error));
    }
    let text = format!("a compaction of {} failed: {error}", store.table().full_name());
    inner.compactions.pause(store.id, inner.rt.now(), text);
}

/// Takes the room on disk that merging these SSTables may need, or fails; with `choice` fewer of them may be merged.
pub(crate) async fn make_room(
    inner: &Rc<Inner>,
    store: &Store,
    inputs: &[Rc<LiveSstable>],
    choice: Option<&Choice>,
) -> Result<(Vec<Rc<LiveSstable>>, Claim), MaintenanceError> {
    assert!(!inputs.is_empty(), "room is claimed for the merge of something");
    let disk = inner.rt.disk();
    let (free, total) = (disk.free_space(&store.dir).await?, disk.total_space(&store.dir).await?);
    // Flushes need some of it, and the commit log.
    let spared = ROOM_SPARED_MAX.min(total / 20) + inner.compactions.claimed();
    let room = free.saturating_sub(spared);
    let bytes: Vec<u64> = inputs.iter().map(|live| live.sstable.disk_len()).collect();
    let needed: u64 = bytes.iter().sum();
    let by_place = |choice: &Choice| Choice { inputs: (0..inputs.len()).collect(), ..choice.clone() };
    let places = match choice {
        Some(choice) => by_place(choice).within(&bytes, room).map(|choice| choice.inputs),
        None => (needed <= room).then(|| (0..inputs.len()).collect()),
    };
    let Some(places) = places else {
        let reason = format!(
            "it may need {} MiB in {}, and only {} MiB of the file system's free {} MiB may be taken; free space, or add \
             to it",
            needed.div_ceil(1 << 20),
            store.dir.display(),
            room >> 20,
            free >> 20
        );
        return Err(MaintenanceError::Source(reason.into()));
    };
    let claimed = places.iter().map(|place| bytes[*place]).sum();
    assert!(!places.is_empty() && places.is_sorted_by(|one, next| one < next), "an input is merged once");
    assert!(claimed <= room, "a compaction claims no more room than is free");
    let taken = places.into_iter().map(|place| inputs[place].clone()).collect();
    Ok((taken, inner.compactions.claim(claimed)))
}

async fn compact_chosen(
    inner: &Rc<Inner>,
    store: &Rc<Store>,
    taken: &mut Taken<LiveSstable>,
    choice: &Choice,
) -> Result<(), MaintenanceError> {
    let _one = store.edits.one().await?;
    let begun = store.edits.now();
    // A truncation or major compaction may have come between the choice and here.
    let set = store.set();
    if !taken.sstables().iter().all(|input| set.iter().any(|live| Rc::ptr_eq(live, input))) {
        return Ok(());
    }
    drop(set);
    if choice.reason == Reason::Expired {
        return drop_expired(inner, store, taken.sstables()).await;
    }
    let (inputs, _room) = make_room(inner, store, taken.sstables(), Some(choice)).await?;
    taken.retain(&inputs);
    let operation = inner.compactions.operation(TaskKind::Compaction, store.table());
    compact(inner, store, inputs, choice, CompactionType::plain(choice.reason.name(), operation, begun)).await
}

/// Figures of a table beside those of its SSTables.
pub(crate) fn table_figures(inner: &Inner, store: &Store) -> TableFigures {
    TableFigures { now: inner.now_seconds(), flush_bytes: store.counters.flush_bytes.get() }
}

/// Figures of the SSTables that are free to be compacted.
pub(crate) fn candidates(inner: &Inner, store: &Store, set: &[Rc<LiveSstable>]) -> Vec<Candidate> {
    let now = inner.now_seconds();
    let expiry = Expiry::of(store, set, now);
    let overlapped = overlapped(set);
    let free = set.iter().enumerate().filter(|(_, live)| !live.compacting.get() && !live.suspect.get());
    free.map(|(id, live)| {
        let sstable = &live.sstable;
        let droppable = sstable.droppable_tombstone_ratio(expiry.gc_before(live));
        let since = live.since_micros / 1_000_000;
        Candidate {
            id,
            bytes: sstable.data_len(),
            level: sstable.level(),
            first: sstable.first().token,
            last: sstable.last().token,
            timestamp_max: sstable.max_timestamp(),
            droppable,
            age: (i64::from(now) - since).max(0) as u64,
            expired: expiry.may_go(live),
            overlapped: overlapped[id],
        }
    })
    .collect()
}

pub(crate) async fn controller(inner: Rc<Inner>) {
    loop {
        inner.compactions.check.notified().await;
        start_due(&inner);
    }
}

fn overlaps(one: &LiveSstable, other: &LiveSstable) -> bool {
    one.sstable.first() <= other.sstable.last() && other.sstable.first() <= one.sstable.last()
}

/// Of each SSTable whether another one overlaps it.
fn overlapped(set: &[Rc<LiveSstable>]) -> Vec<bool> {
    let mut sorted: Vec<(&DecoratedKey, &DecoratedKey, usize)> =
        set.iter().enumerate().map(|(id, live)| (live.sstable.first(), live.sstable.last(), id)).collect();
    sorted.sort_unstable();
    let mut overlapped = vec![false; set.len()];
    // The one of those before that ends last.
    let mut before: Option<(&DecoratedKey, usize)> = None;
    for (first, last, id) in sorted {
        if let Some((end, other)) = before
            && first <= end
        {
            (overlapped[id], overlapped[other]) = (true, true);
        }
        if before.is_none_or(|(end, _)| end < last) {
            before = Some((last, id));
        }
    }
    overlapped
}

/// The SSTables that have expired and may go as a whole.
struct Expiry<'a> {
    /// Those that hold something alive, in order of their smallest timestamp.
    alive: Vec<&'a Rc<LiveSstable>>,
    rule: PurgeRule,
    /// The smallest timestamp in memtables.
    in_memtables: Timestamp,
    /// The rows that it hides elsewhere are not asked for.
    is_aggressive: bool,
}

impl<'a> Expiry<'a> {
    fn of(store: &Store, set: &'a [Rc<LiveSstable>], now: Seconds) -> Self {
        let in_memtables = store.memtables.all().iter().map(|memtable| memtable.stats().timestamp_min).min();
        let mut expiry = Self {
            alive: Vec::new(),
            rule: store.purge_rule(now),
            in_memtables: in_memtables.unwrap_or(Timestamp::MAX),
            is_aggressive: Strategy::expires_aggressively(&store.table().options.compaction),
        };
        let mut alive: Vec<_> = set.iter().filter(|live| !expiry.has_expired(live)).collect();
        alive.sort_by_key(|live| live.sstable.min_timestamp());
        expiry.alive = alive;
        expiry
    }

    fn gc_before(&self, live: &LiveSstable) -> Seconds {
        let sstable = &live.sstable;
        self.rule.gc_before_of(sstable.first().token.saturating_sub(1), sstable.last().token)
    }

    /// Whether nothing in it is alive, and no tombstone of it is needed for its grace.
    fn has_expired(&self, live: &LiveSstable) -> bool {
        live.sstable.max_local_deletion() < self.gc_before(live)
    }

    /// Whether it has expired and hides nothing: its content is older than everything in memtables, and than every SSTable of
    /// the same tokens that holds something alive.
    fn may_go(&self, live: &Rc<LiveSstable>) -> bool {
        let latest = live.sstable.max_timestamp();
        let hides_any = || {
            let older = self.alive.iter().take_while(|other| other.sstable.min_timestamp() <= latest);
            older.into_iter().any(|other| overlaps(live, other))
        };
        self.has_expired(live) && (self.is_aggressive || (latest < self.in_memtables && !hides_any()))
    }
}

/// Removes SSTables that have expired, without reading them.
async fn drop_expired(
    inner: &Rc<Inner>,
    store: &Rc<Store>,
    inputs: &[Rc<LiveSstable>],
) -> Result<(), MaintenanceError> {
    let id = crate::commit::unique_id(inner);
    let edit = Edit::begin(inner.rt.disk(), &store.dir, "compaction", id).await?;
    // Something older may have been written meanwhile.
    let set = store.set();
    let expiry = Expiry::of(store, &set, inner.now_seconds());
    let doomed: Vec<Rc<LiveSstable>> = inputs.iter().filter(|live| expiry.may_go(live)).cloned().collect();
    drop(expiry);
    if doomed.is_empty() || store.dropped.get() {
        // The next start removes its log when this fails.
        let _ = edit.abort().await;
        return Ok(());
    }
    let names: Vec<Descriptor> = doomed.iter().map(|live| live.sstable.descriptor().clone()).collect();
    let committed = crate::commit::commit(inner, store, edit, &names).await?;
    store.sstables.change(Vec::new(), &doomed);
    crate::marks::note(inner, store).await;
    crate::commit::retire(inner, &doomed, committed, true).await;
    record(inner, store, id, &doomed, 0, vec![0; doomed.len()], Reason::Expired.name());
    Ok(())
}

/// Merges SSTables of a table and replaces them by the result, as one edit.
pub(crate) async fn compact(
    inner: &Rc<Inner>,
    store: &Rc<Store>,
    inputs: Vec<Rc<LiveSstable>>,
    choice: &Choice,
    kind: CompactionType<'_>,
) -> Result<(), MaintenanceError> {
    assert!(!inputs.is_empty(), "a compaction has inputs");
    let set = store.set();
    let is_member = |input: &Rc<LiveSstable>| set.iter().any(|live| Rc::ptr_eq(live, input));
    assert!(inputs.iter().all(is_member), "a compaction merges members of the set");
    drop(set);
    let id = crate::commit::unique_id(inner);
    let mut edit = Edit::begin(inner.rt.disk(), &store.dir, "compaction", id).await?;
    let task = inner.compactions.show(id, &kind.operation, inputs.len());
    match merge(inner, store, &inputs, choice, (&kind, &task.progress), &mut edit).await {
        Ok((added, bytes_out, rows_merged)) => {
            let names: Vec<Descriptor> =
                inputs.iter().map(|live| live.sstable.descriptor().clone()).collect();
            inner.rt.buggify("compaction: merged, not committed").await;
            let stop = || is_stopped(inner, store, &kind);
            crate::indexes::build_new(inner, store, &added, Speed::Limited(&stop, None)).await;
            if stop() {
                crate::indexes::discard(inner, &added).await;
                return abandon(edit, &kind, MaintenanceError::Cancelled).await;
            }
            let committed = crate::commit::commit(inner, store, edit, &names).await?;
            inner.rt.buggify("compaction: committed, readers go by the inputs").await;
            let covered_by = covers_all(&inputs);
            added.iter().for_each(|live| live.covered_by.set(covered_by));
            store.sstables.change(added, &inputs);
            crate::marks::note(inner, store).await;
            crate::commit::retire(inner, &inputs, committed, true).await;
            record(inner, store, id, &inputs, bytes_out, rows_merged, kind.name);
            inner.compactions.check.notify_one();
            Ok(())
        }
        Err(error) => abandon(edit, &kind, error).await,
    }
}

/// Undoes a compaction that did not come to its end.
async fn abandon(
    edit: Edit,
    kind: &CompactionType<'_>,
    error: MaintenanceError,
) -> Result<(), MaintenanceError> {
    // The next start tries again by the edit's log when this fails.
    let _ = edit.abort().await;
    let is_interrupted = matches!(error, MaintenanceError::Cancelled) && kind.operation.is_stopped();
    Err(if is_interrupted { MaintenanceError::Interrupted } else { error })
}

/// Whether a compaction is to end before it is done.
fn is_stopped(inner: &Inner, store: &Store, kind: &CompactionType<'_>) -> bool {
    let for_major = !kind.is_major() && store.edits.makes_way_since(kind.begun);
    for_major
        || kind.operation.is_stopped()
        || store.edits.is_stopped_since(kind.begun)
        || store.dropped.get()
        || inner.health.is_stopped()
}

fn record(
    inner: &Inner,
    store: &Store,
    id: [u8; 16],
    inputs: &[Rc<LiveSstable>],
    bytes_out: u64,
    rows_merged: Vec<u64>,
    kind: &str,
) {
    assert_eq!(rows_merged.len(), inputs.len(), "partitions are counted by how many inputs had them");
    let bytes_in: u64 = inputs.iter().map(|live| live.sstable.data_len()).sum();
    let table = store.table();
    inner.compactions.record(CompactionRecord {
        id,
        keyspace: table.keyspace.clone(),
        table: table.name.clone(),
        ended_micros: inner.rt.wall_micros(),
        bytes_in,
        bytes_out,
        rows_merged,
        properties: kind.to_owned(),
    });
}

/// The deletions that a compaction may purge; with the injected bug as if everything had just been repaired.
fn purge_rule(inner: &Inner, store: &Store, now: Seconds) -> PurgeRule {
    if inner.config.canaries.all_repaired {
        let repaired = Repaired::new([(i64::MIN, i64::MAX, now)]);
        return PurgeRule::for_table(&store.table(), now, &Arc::new(repaired));
    }
    store.purge_rule(now)
}

/// The SSTables that share tokens with a compaction's inputs, where the table wants the data dropped that they hide
/// (`provide_overlapping_tombstones`). None that is merged itself at this time: of two merges beside each other, each could drop its copy of a
/// deletion because of the copy in the other, and the data in a third SSTable would come back.
fn overlapping(
    store: &Store,
    inputs: &[Rc<LiveSstable>],
    kind: &CompactionType<'_>,
) -> (Option<Hiding>, Vec<Rc<LiveSstable>>) {
    let wanted = Strategy::hides_by(&store.table().options.compaction);
    let Some(granularity) = wanted.filter(|_| kind.operation.kind == TaskKind::Compaction) else {
        return (None, Vec::new());
    };
    let is_input = |live: &Rc<LiveSstable>| inputs.iter().any(|input| Rc::ptr_eq(input, live));
    let others: Vec<Rc<LiveSstable>> = store
        .set()
        .iter()
        .filter(|live| !is_input(live) && !live.compacting.get() && !live.suspect.get())
        .filter(|live| inputs.iter().any(|input| overlaps(input, live)))
        .cloned()
        .collect();
    let sstables: Vec<Rc<Sstable>> = others.iter().map(|live| live.sstable.clone()).collect();
    ((!sstables.is_empty()).then_some(Hiding { others: sstables, granularity }), others)
}

/// Writes the merged SSTables and opens them.
async fn merge(
    inner: &Rc<Inner>,
    store: &Rc<Store>,
    inputs: &[Rc<LiveSstable>],
    choice: &Choice,
    (kind, progress): (&CompactionType<'_>, &Progress),
    edit: &mut Edit,
) -> Result<(Vec<Rc<LiveSstable>>, u64, Vec<u64>), MaintenanceError> {
    let sstables: Vec<Rc<Sstable>> = inputs.iter().map(|live| live.sstable.clone()).collect();
    // A column of the name of a dropped one would show these cells.
    let is_wanted = |dropped: &DroppedColumn| sstables.iter().any(|sstable| sstable.may_hold_newer(dropped));
    let table = store.table().with_dropped_columns(is_wanted);
    let rule = purge_rule(inner, store, inner.now_seconds());
    // They are held, so that their files stay while they are read.
    let (hiding, _others) = overlapping(store, inputs, kind);
    let encoding = sstables
        .iter()
        .map(|sstable| sstable.metadata().header.encoding)
        .reduce(EncodingStats::merge)
        .unwrap_or(EncodingStats::NONE);
    let partitions = partitions_of_output(inner, &sstables, choice).await;
    let job = Job {
        table: table.clone(),
        inputs: sstables.clone(),
        range: PartitionRange::all(),
        kept: kind.kept.clone(),
        hiding: kind.hiding.clone().or(hiding),
        rule,
        output_bytes_max: choice.output_bytes_max,
        shards: choice.shards,
    };
    let stop = || is_stopped(inner, store, kind);
    let max_purgeable = |key: &DecoratedKey| max_purgeable(inner, store, inputs, key);
    let edit = Cell::new(Some(edit));
    let open_output = async || {
        let generation = store.sstables.next_generation(inner.rt.shard().0, inner.rt.shard_count());
        let taken = edit.take().expect("outputs are opened one after another");
        let added = taken.add(&Descriptor::new(&store.dir, generation)).await;
        edit.set(Some(taken));
        added?;
        let mut options = WriterOptions::for_table(&table, partitions);
        (options.level, options.large) = (choice.level, inner.settings.get().large);
        options.host_id = Some(inner.config.host_id);
        options.owner = mark_of(&inner.sharding.sharder_of(table.id), inner.rt.shard().0);
        SstableWriter::new(&inner.rt, store.dir.clone(), generation, table.clone(), options, encoding).await
    };
    let outcome =
        run(&inner.rt, job, &inner.compactions.throttle, progress, stop, max_purgeable, open_output).await;
    let outcome = outcome.map_err(merge_error)?;
    check(&outcome);
    let bytes_out = outcome.written.iter().map(|written| written.data_len).sum();
    let mut added = Vec::with_capacity(outcome.written.len());
    for written in outcome.written {
        let descriptor = written.descriptor.clone();
        let opened = Sstable::open(&inner.rt, descriptor, store.table(), inner.blocks.clone()).await;
        let sstable = crate::large::warned(&table, opened.map_err(disk_or_source)?);
        crate::large::guarded(&table, &written);
        added.push(LiveSstable::new(sstable, &inner.trash, inner.rt.wall_micros()));
    }
    Ok((added, bytes_out, outcome.merged))
}

/// How many partitions the largest output of a merge may have. Each output's filter is made for so many and folded when there are fewer: of
/// all inputs' partitions, a merge into hundreds of outputs would have hundreds of times the filters that it needs.
async fn partitions_of_output(inner: &Inner, inputs: &[Rc<Sstable>], choice: &Choice) -> u64 {
    let all: u64 = inputs.iter().map(|sstable| sstable.estimated_partitions()).sum();
    let bytes: u64 = inputs.iter().map(|sstable| sstable.data_len()).sum();
    let outputs = choice.output_bytes_max.map_or(1, |max| bytes.div_ceil(max.max(1))).max(1);
    // Small partitions may lie together.
    let by_size = if outputs > 1 { (all / outputs).saturating_mul(2) } else { all };
    if choice.shards < 2 {
        return by_size.clamp(1, all.max(1));
    }
    let mut samples: BTreeMap<u128, u64> = BTreeMap::new();
    for (number, token) in inputs.iter().flat_map(|sstable| sstable.sampled_tokens()).enumerate() {
        *samples.entry(shard_of(token, choice.shards)).or_default() += 1;
        if number % SAMPLES_BETWEEN_YIELDS == 0 {
            inner.rt.maybe_yield().await;
        }
    }
    let (largest, total) = (samples.values().max(), samples.values().sum::<u64>());
    let share = largest.map_or(1.0, |largest| *largest as f64 / total as f64);
    // Samples are few where SSTables are small.
    let by_shard = (all as f64 * share * 1.25) as u64 + PARTITIONS_MIN;
    by_size.min(by_shard).clamp(1, all.max(1))
}

/// The smallest timestamp of data for a key that takes no part in a merge of these.
fn max_purgeable(inner: &Inner, store: &Store, inputs: &[Rc<LiveSstable>], key: &DecoratedKey) -> Timestamp {
    if inner.config.canaries.purge_too_soon {
        return Timestamp::MAX;
    }
    // Awaited files may hold older data than any deletion here; a merge that began before purges nothing from now on either.
    if store.edits.awaits_files() {
        return Timestamp::MIN;
    }
    let mut in_files = Timestamp::MAX;
    store.sstables.current().holding(&HashedKey::new(key), |live| {
        if !inputs.iter().any(|input| Rc::ptr_eq(input, live)) {
            in_files = in_files.min(live.sstable.min_timestamp());
        }
    });
    in_files.min(store.memtables.timestamp_min(key))
}

fn merge_error(error: WorkerError) -> MaintenanceError {
    match error {
        WorkerError::Stopped => MaintenanceError::Cancelled,
        WorkerError::Read(error) => MaintenanceError::Source(error),
        WorkerError::Write(error) => disk_or_source(error),
    }
}

/// Checks the result of a merge against its input.
fn check(outcome: &Outcome) {
    let read: u64 = outcome.merged.iter().sum();
    assert!(outcome.partitions <= read, "a merge writes no more partitions than it read");
    let in_order = outcome.written.is_sorted_by(|one, next| {
        one.bounds.as_ref().map(|(_, last)| last) < next.bounds.as_ref().map(|(first, _)| first)
    });
    assert!(in_order, "the outputs of a merge are disjoint and in ring order");
}
