//! SSTables whose damage was met by a read or a compaction: each is reported once, left out of compactions, and repaired by a repair.
//!
//! Checksums find damage place by place, so the SSTable stays in service: reads of the damaged partitions fail on this node, and the
//! others are right. A repair of the table first has the readable rows of the SSTable rewritten (*salvage*) and records
//! the tokens of the others. From then on reads of repairs leave the SSTable out, so that other replicas send the lost partitions.
//! When repairs that began after the salvage have compared all lost tokens that this node owns, the SSTable leaves its table; its files
//! stay as a snapshot. Which ranges a repair compared, and since when, its marks tell ([`crate::marks`]).
//!
//! Not for counters, and not where a lost partition may have had a deletion that other replicas have purged while an older SSTable
//! here still holds the rows that it hid: a repair would send those rows to all replicas. Repairs fail then, with the file's name.

use std::rc::Rc;
use std::sync::Arc;

use mutation::purge::PurgeRule;
use mutation::{
    ColumnSelection, DecoratedKey, Fragment, FragmentBuffer, PartitionRange, RingPosition, Slices,
};
use rt::DiskError;
use schema::{Table, TableId};
use sstable::{IndexTokens, Sstable, SstableError, SstableSource};

use crate::chunks::Chunks;
use crate::edit::Edit;
use crate::edits::Moment;
use crate::engine::Inner;
use crate::links::link_again;
use crate::live::LiveSstable;
use crate::salvaged::{Lost, Salvaged, TokenSpan};
use crate::store::Store;
use crate::watermark::RepairedWatermark;
use crate::{Engine, MaintenanceError, Origin, Write, WriteError};

/// Salvaged rows are written in updates of about so many bytes, and of this part of the largest possible.
const UPDATE_BYTES: usize = 256 << 10;
const UPDATE_PART: u64 = 8;

/// So many lost spans of tokens are named in the log.
const LOST_SHOWN_MAX: usize = 16;

/// Salvages the damaged SSTables of a table for the repair that begins.
pub(crate) async fn salvage_all(inner: &Rc<Inner>, store: &Rc<Store>) -> Result<(), MaintenanceError> {
    if !store.set().iter().any(|live| live.suspect.get()) {
        return Ok(());
    }
    let _one = store.edits.salvage().await?;
    let due: Vec<Rc<LiveSstable>> =
        store.set().iter().filter(|live| store.is_to_salvage(live)).cloned().collect();
    if !due.is_empty() {
        // Deletions that hide older rows are looked for in SSTables.
        crate::flush::flush(inner, store).await?;
    }
    for live in due {
        // Neither a truncation nor a cleanup comes between, and a truncation removes rows that were rewritten before it.
        let begun = store.edits.now();
        let held = (store.edits.without_truncation().await?, store.edits.one().await?);
        if !store.set().iter().any(|member| Rc::ptr_eq(member, &live)) {
            continue;
        }
        assert!(live.salvaged.borrow().is_none(), "an SSTable is salvaged once");
        let lost = salvage(inner, store, &live.sstable, begun).await?;
        assert!(
            lost.is_sorted_by(|one, next| one.span.1 <= next.span.0),
            "lost spans are disjoint and in ring order"
        );
        drop(held);
        tracing::warn!(
            "salvaged the damaged SSTable {} of {}: its readable part was rewritten; {} partitions or token ranges are lost, {:?}",
            live.sstable.descriptor(),
            store.table().full_name(),
            lost.len(),
            lost.iter().take(LOST_SHOWN_MAX).map(|lost| lost.span).collect::<Vec<_>>()
        );
        // Rows of an earlier repair must be compared again.
        crate::marks::forget(inner, store).await?;
        *live.salvaged.borrow_mut() = Some(Salvaged { lost, since: RepairedWatermark::default() });
    }
    for live in store.set().iter().filter(|live| live.salvaged.borrow().is_some()) {
        if may_revive(inner, store, live) {
            live.salvaged.take();
            live.is_beyond_repair.set(true);
            tracing::error!(
                "the damaged SSTable {} of {} cannot be repaired from the replicas: it may have held deletions past their grace, which other \
                 replicas have purged, and an older SSTable here may hold the rows that they deleted; \
                 docs/operations/damage.md says what to do",
                live.sstable.descriptor(),
                store.table().full_name()
            );
        }
    }
    Ok(())
}

/// Whether the lost part of an SSTable may have held a deletion that other replicas have purged, and that hides older rows here.
fn may_revive(inner: &Inner, store: &Store, live: &LiveSstable) -> bool {
    // That of the table: the rule of this node itself, which purges nothing while files are awaited, says nothing about the others.
    let rule = PurgeRule::for_table(&store.table(), inner.now_seconds(), &store.repaired.borrow());
    let salvaged = live.salvaged.borrow();
    let purged = |(after, upto)| live.sstable.min_local_deletion() < rule.gc_before_of(after, upto);
    let lost = salvaged.iter().flat_map(|salvaged| &salvaged.lost);
    lost.into_iter().any(|lost| lost.may_hide && purged(lost.span))
}

/// Writes the readable rows of an SSTable to memtables; returns the lost tokens.
pub(crate) async fn salvage(
    inner: &Rc<Inner>,
    store: &Store,
    sstable: &Rc<Sstable>,
    begun: Moment,
) -> Result<Vec<Lost>, MaintenanceError> {
    let mut tokens = sstable.tokens();
    let is_older = |other: &&Rc<LiveSstable>| {
        !Rc::ptr_eq(&other.sstable, sstable) && other.sstable.min_timestamp() <= sstable.max_timestamp()
    };
    let (slices, columns) = (Rc::new(Slices::all()), Rc::new(ColumnSelection::All));
    let older: Vec<Rc<LiveSstable>> = store.set().iter().filter(is_older).cloned().collect();
    let (mut lost, mut done) = (Vec::new(), sstable.first().token.saturating_sub(1));
    loop {
        let range = PartitionRange { start: RingPosition::AfterToken(done), ..PartitionRange::all() };
        match copy(inner, store, sstable.scan(&range), begun).await? {
            Copied::All => return Ok(lost),
            Copied::Upto(token) => done = token.map_or(done, |token| token.max(done)),
        }
        // One partition after the other up to the one that cannot be read: a scan reads far ahead.
        loop {
            let Some(key) = key_after(&mut tokens, done).await? else {
                // The index ends here, or is damaged, too.
                let last = sstable.last().token;
                let overlaps = |other: &Sstable| other.first().token <= last && done < other.last().token;
                let may_hide = older.iter().any(|live| overlaps(&live.sstable));
                lost.extend((done < last).then_some(Lost { span: (done, last), may_hide }));
                return Ok(lost);
            };
            let token = key.token;
            assert!(token > done, "a salvage does not go back");
            let source = sstable.read(&PartitionRange::single(&key), &slices, &columns, false);
            let is_read = matches!(copy(inner, store, source, begun).await?, Copied::All);
            done = token;
            if !is_read {
                let may_hide = older.iter().any(|live| live.sstable.may_contain(&key));
                lost.push(Lost { span: (token.saturating_sub(1), token), may_hide });
                break;
            }
        }
    }
}

/// Writes the rows of a source to memtables.
async fn copy(
    inner: &Rc<Inner>,
    store: &Store,
    mut source: SstableSource,
    begun: Moment,
) -> Result<Copied, MaintenanceError> {
    let mut writer = Salvage::new(inner, store.table());
    let mut fragments = FragmentBuffer::new();
    loop {
        // Rows read before the damage count, too.
        let more = match source.fill_next(&mut fragments).await {
            Err(SstableError::Disk(error)) => return Err(error.into()),
            read => read,
        };
        while let Some(fragment) = fragments.pop_front() {
            match writer.take(fragment).await {
                Err(WriteError::MutationTooLarge { .. }) => return Ok(Copied::Upto(writer.done)),
                Err(WriteError::Stopped) => return Err(MaintenanceError::Stopped),
                taken => taken.map_err(|error| MaintenanceError::Source(Box::new(error)))?,
            }
        }
        match more {
            Ok(true) => {}
            Ok(false) => return Ok(Copied::All),
            Err(_) => return Ok(Copied::Upto(writer.done)),
        }
        inner.rt.maybe_yield().await;
        if store.edits.is_stopped_since(begun) || store.dropped.get() {
            return Err(MaintenanceError::Cancelled);
        }
    }
}

/// Takes an SSTable out of its table, of which nothing is needed any more; its files stay as a snapshot. False when it was gone already.
pub(crate) async fn set_aside(
    inner: &Rc<Inner>,
    store: &Rc<Store>,
    live: Rc<LiveSstable>,
) -> Result<bool, MaintenanceError> {
    // Its salvaged rows must survive a power failure.
    crate::flush::flush(inner, store).await?;
    // A compaction may have taken it before the damage was met.
    store.edits.stop_minor();
    let _alone = store.edits.alone().await?;
    if store.dropped.get() || !store.set().iter().any(|member| Rc::ptr_eq(member, &live)) {
        return Ok(false);
    }
    assert!(live.suspect.get() && live.salvaged.borrow().is_some(), "what is set aside was salvaged");
    let descriptor = live.sstable.descriptor().clone();
    let snapshot = store.dir.join("snapshots").join(format!("damaged-{}", descriptor.generation));
    link_again(inner, &live, &snapshot).await?;
    let edit =
        Edit::begin(inner.rt.disk(), &store.dir, "compaction", crate::commit::unique_id(inner)).await?;
    let committed = crate::commit::commit(inner, store, edit, std::slice::from_ref(&descriptor)).await?;
    let doomed = [live];
    store.sstables.change(Vec::new(), &doomed);
    crate::marks::note(inner, store).await;
    crate::commit::retire(inner, &doomed, committed, true).await;
    inner.cache.forget_table(store.id);
    tracing::warn!(
        "the damaged SSTable {descriptor} of {} is not needed any more; its files are in {}",
        store.table().full_name(),
        snapshot.display()
    );
    Ok(true)
}

impl Engine {
    /// Whether damage was met in a table that the next repair to begin does without.
    pub fn awaits_salvage(&self, table: TableId) -> bool {
        let store = self.0.store(table);
        store.is_some_and(|store| store.set().iter().any(|live| store.is_to_salvage(live)))
    }

    /// Takes down that a repair which had begun with `mark` compared the tokens of `repaired` with all replicas. A damaged SSTable of
    /// which nothing is lost any more that lies in `owned` leaves the table.
    pub async fn damage_repaired(
        &self,
        table: TableId,
        repaired: TokenSpan,
        mark: RepairedWatermark,
        owned: &[TokenSpan],
    ) {
        let inner = &self.0;
        let Some(store) = inner.store(table) else { return };
        let mut repaired_files = Vec::new();
        for live in store.set().iter() {
            if let Some(salvaged) = &mut *live.salvaged.borrow_mut()
                && mark.epoch == salvaged.since.epoch
                && mark.number >= salvaged.since.number
                && mark.epoch != 0
            {
                salvaged.repaired(repaired);
                if salvaged.is_complete(owned) {
                    repaired_files.push(live.clone());
                }
            }
        }
        for live in repaired_files {
            let descriptor = live.sstable.descriptor().clone();
            if let Err(error) = set_aside(inner, &store, live).await {
                // The next repair tries again.
                tracing::warn!("the damaged SSTable {descriptor} was repaired and stays: {error}");
            }
        }
    }
}

/// How far a copy came.
enum Copied {
    All,
    /// The position after the partition of this token cannot be read; none when that is the first.
    Upto(Option<i64>),
}

/// The next key of an index with a token greater than `done`; none where the index ends or cannot be read.
async fn key_after(tokens: &mut IndexTokens, done: i64) -> Result<Option<DecoratedKey>, DiskError> {
    loop {
        match tokens.next_key().await {
            Ok(Some(key)) if key.token <= done => {}
            Ok(key) => return Ok(key),
            Err(SstableError::Disk(error)) => return Err(error),
            Err(_) => return Ok(None),
        }
    }
}

/// Copies partitions of an SSTable into memtables.
struct Salvage {
    engine: Engine,
    /// The token of the last partition that was copied wholly.
    done: Option<i64>,
    /// The token of the partition that is being read.
    token: Option<i64>,
    chunks: Chunks,
}

impl Salvage {
    fn new(inner: &Rc<Inner>, table: Arc<Table>) -> Self {
        let largest = inner.config.commitlog.segment_bytes / UPDATE_PART;
        let chunks = Chunks::new(table, UPDATE_BYTES.min(largest as usize));
        Self { engine: Engine(inner.clone()), done: None, token: None, chunks }
    }

    async fn take(&mut self, fragment: Fragment) -> Result<(), WriteError> {
        if let Fragment::PartitionStart { key, .. } = &fragment {
            self.token = Some(key.token);
        }
        if let Some(update) = self.chunks.push(fragment) {
            self.engine.apply(Write::one(Origin::Repair, update)).await?;
        }
        if self.chunks.is_between_partitions() {
            self.done = self.token;
        }
        Ok(())
    }
}
