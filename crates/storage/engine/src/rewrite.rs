//! The SSTables of a table written anew one by one, at the request of an operator or of the node: cleanup, garbage collection, upgrade,
//! scrub; and their verification, which writes nothing.
//!
//! Each SSTable is replaced by an edit of its own, which stays when the rest fails or is stopped.

use std::rc::Rc;

use compaction::{Choice, Hiding, OwnedRanges, Reason};
use mutation::{FragmentBuffer, Granularity, PartitionRange, RingPosition};
use schema::TableId;
use sstable::{Sstable, SstableError, Version};

use crate::compact::{CompactionType, compact};
use crate::damage::damage_in;
use crate::engine::Inner;
use crate::live::LiveSstable;
use crate::salvaged::{Lost, Salvaged};
use crate::stats::{RewriteReport, TaskKind};
use crate::store::Store;
use crate::watermark::RepairedWatermark;
use crate::{Engine, MaintenanceError};

/// The reason and the form of writing SSTables anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// Content that other SSTables hide is dropped.
    GarbageCollect(Granularity),
    /// Those of an older version of the format get the current one, and the table's present compression; with `all` each of them does.
    Upgrade {
        /// Also those of the current version.
        all: bool,
    },
    /// Each is read and written anew.
    Scrub {
        /// The unreadable part of a damaged one is dropped; otherwise it is an error, and it stays.
        skip: bool,
    },
    /// Each is read, and compared with its checksums; nothing is written.
    Verify,
    /// Its indexes are made once more and compared.
    VerifyIndexes {
        /// Those that differ are replaced.
        repair: bool,
    },
}

impl Rewrite {
    fn kind(self) -> TaskKind {
        match self {
            Self::GarbageCollect(_) => TaskKind::GarbageCollection,
            Self::Upgrade { .. } => TaskKind::Upgrade,
            Self::Scrub { .. } => TaskKind::Scrub,
            Self::Verify | Self::VerifyIndexes { .. } => TaskKind::Verification,
        }
    }

    /// Its name in the history.
    fn name(self) -> &'static str {
        match self {
            Self::GarbageCollect(_) => "garbage collection",
            Self::Upgrade { .. } => "upgrade",
            Self::Scrub { .. } => "scrub",
            Self::Verify => "verification",
            Self::VerifyIndexes { .. } => "verification of indexes",
        }
    }
}

impl Engine {
    /// Writes a table's SSTables anew, or verifies them.
    ///
    /// # Errors
    /// As [`Engine::compact`]; [`MaintenanceError::Interrupted`] when an operator stops it. SSTables that were written anew stay.
    pub async fn rewrite(&self, table: TableId, how: Rewrite) -> Result<RewriteReport, MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        match how {
            Rewrite::Verify => verify(&self.0, &store).await,
            Rewrite::VerifyIndexes { repair } => crate::index_check::verify(&self.0, &store, repair).await,
            _ => rewrite(&self.0, &store, how).await,
        }
    }

    /// Has operations on SSTables end that an operator means; how many there are. Their SSTables stay as they are; automatic compactions
    /// of the table begin again after a minute.
    pub fn stop_operations(&self, wanted: &crate::StopRequest) -> u64 {
        self.0.compactions.stop(wanted)
    }
}

/// See [`Engine::cleanup`].
pub(crate) async fn cleanup(
    inner: &Rc<Inner>,
    store: &Rc<Store>,
    kept: impl Fn() -> OwnedRanges,
) -> Result<u64, MaintenanceError> {
    // Rows salvaged from a damaged SSTable are in the flushed memtables, or come later.
    let _no_salvage = store.edits.salvage().await?;
    crate::flush::flush(inner, store).await?;
    store.damages.refuse_any()?;
    let operation = inner.compactions.operation(TaskKind::Cleanup, store.table());
    let begun = store.edits.now();
    store.edits.stop_minor();
    let _alone = store.edits.alone().await?;
    // Later rows are in none of these.
    let inputs: Vec<Rc<LiveSstable>> = store.set().to_vec();
    let kept = kept();
    let mut rewritten = 0;
    for live in inputs {
        operation.refuse_stopped()?;
        if store.edits.is_stopped_since(begun) {
            return stopped(store, rewritten);
        }
        let has_others = has_others(&live.sstable, &kept).await;
        let has_others = has_others.map_err(|error| store.read_failed(&live, error));
        if store.dropped.get() || !has_others? {
            continue;
        }
        if rewritten == 0 {
            // Dropped rows may return with the tokens, and must not count as repaired then.
            crate::marks::forget(inner, store).await?;
        }
        let mut kind = CompactionType::plain("cleanup", operation.clone(), begun);
        kind.kept = Some(kept.clone());
        if !write_anew(inner, store, live, kind).await? {
            return stopped(store, rewritten);
        }
        rewritten += 1;
        // A partition that was cached would come back with its tokens, without the deletions made meanwhile.
        inner.cache.forget_table(store.id);
    }
    Ok(rewritten)
}

/// The outcome of a cleanup that a truncation, which may not happen after all, or the end of its table has stopped.
fn stopped(store: &Store, rewritten: u64) -> Result<u64, MaintenanceError> {
    match store.dropped.get() {
        true => Ok(rewritten),
        false => Err(MaintenanceError::Cancelled),
    }
}

/// Whether an SSTable has partitions of tokens that are not kept.
pub(crate) async fn has_others(sstable: &Rc<Sstable>, kept: &OwnedRanges) -> Result<bool, SstableError> {
    for (first, last) in kept.gaps(sstable.first().token, sstable.last().token) {
        assert!(first <= last, "a gap between owned ranges has a token");
        let start = first
            .checked_sub(1)
            .map_or(PartitionRange::all().start, |before| RingPosition::AfterToken(before));
        let gap = PartitionRange { start, end: RingPosition::AfterToken(last) };
        if sstable.scan(&gap).fill_next(&mut FragmentBuffer::new()).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Replaces an SSTable by the content that `kind` keeps; false when a truncation or the table's end came between.
async fn write_anew(
    inner: &Rc<Inner>,
    store: &Rc<Store>,
    live: Rc<LiveSstable>,
    kind: CompactionType<'_>,
) -> Result<bool, MaintenanceError> {
    let level = live.sstable.level();
    let choice =
        Choice { inputs: Vec::new(), reason: Reason::Tier, level, output_bytes_max: None, shards: 1 };
    let (inputs, _room) = crate::compact::make_room(inner, store, &[live], None).await?;
    assert_eq!(inputs.len(), 1, "SSTables are rewritten one at a time");
    match compact(inner, store, inputs, &choice, kind).await {
        Ok(()) => Ok(true),
        Err(MaintenanceError::Cancelled) if !inner.health.is_stopped() => Ok(false),
        Err(error) => Err(error),
    }
}

async fn rewrite(
    inner: &Rc<Inner>,
    store: &Rc<Store>,
    how: Rewrite,
) -> Result<RewriteReport, MaintenanceError> {
    let salvage = store.edits.salvage().await?;
    crate::flush::flush(inner, store).await?;
    store.damages.refuse_any()?;
    let operation = inner.compactions.operation(how.kind(), store.table());
    let begun = store.edits.now();
    store.edits.stop_minor();
    let alone = store.edits.alone().await?;
    let inputs: Vec<Rc<LiveSstable>> = store.set().to_vec();
    let mut report = RewriteReport::default();
    for live in inputs {
        operation.refuse_stopped()?;
        if store.edits.is_stopped_since(begun) {
            break;
        }
        if live.suspect.get() || !is_due(&live, how) {
            continue;
        }
        let mut kind = CompactionType::plain(how.name(), operation.clone(), begun);
        if let Rewrite::GarbageCollect(granularity) = how {
            kind.hiding = Some(Hiding { others: others(store, &live), granularity });
        }
        match write_anew(inner, store, live.clone(), kind).await {
            Ok(true) => report.sstables += 1,
            Ok(false) => break,
            Err(error) => met_damage(store, error, how)?,
        }
    }
    drop(alone);
    let suspects: Vec<Rc<LiveSstable>> =
        store.set().iter().filter(|live| live.suspect.get()).cloned().collect();
    if let (Rewrite::Scrub { skip }, false) = (how, suspects.is_empty()) {
        if !skip || store.table().is_counter() {
            return Err(MaintenanceError::Source(refusal(store, &suspects).into()));
        }
        for live in suspects {
            operation.refuse_stopped()?;
            scrub_damaged(inner, store, &live, &mut report).await?;
        }
    }
    drop(salvage);
    if !matches!(how, Rewrite::Scrub { .. }) {
        store.refuse_left_out(|live| is_due(live, how))?;
    }
    Ok(report)
}

/// Whether an SSTable is to be written anew.
fn is_due(live: &LiveSstable, how: Rewrite) -> bool {
    let is_old = live.sstable.descriptor().version != Version::CURRENT;
    !matches!(how, Rewrite::Upgrade { all: false }) || is_old
}

/// The sound SSTables that share tokens with one.
fn others(store: &Store, live: &Rc<LiveSstable>) -> Vec<Rc<Sstable>> {
    let (first, last) = (live.sstable.first(), live.sstable.last());
    let overlaps = |other: &&Rc<LiveSstable>| {
        !Rc::ptr_eq(live, other)
            && !other.suspect.get()
            && other.sstable.first() <= last
            && first <= other.sstable.last()
    };
    store.set().iter().filter(overlaps).map(|other| other.sstable.clone()).collect()
}

/// Takes down which SSTable is damaged, where that is why one could not be written anew. A scrub continues then.
fn met_damage(store: &Store, error: MaintenanceError, how: Rewrite) -> Result<(), MaintenanceError> {
    let MaintenanceError::Source(source) = &error else { return Err(error) };
    let Some(damage @ SstableError::Corrupt(corruption)) = damage_in(&**source) else { return Err(error) };
    let Some((descriptor, _)) = sstable::Descriptor::parse(&corruption.file) else { return Err(error) };
    let set = store.set();
    let mut damaged = set.iter().filter(|live| *live.sstable.descriptor() == descriptor);
    damaged.by_ref().for_each(|live| store.met_damage(live, damage));
    if matches!(how, Rewrite::Scrub { .. }) { Ok(()) } else { Err(error) }
}

/// Why a scrub leaves damaged SSTables as they are.
fn refusal(store: &Store, suspects: &[Rc<LiveSstable>]) -> String {
    let names: Vec<String> = suspects.iter().map(|live| live.sstable.descriptor().to_string()).collect();
    let why = match store.table().is_counter() {
        true => {
            "counters of the node in the unreadable part are in no other SSTable: docs/operations/damage.md says what to do"
        }
        false => {
            "nodetool repair has the other replicas send what is lost; a scrub in mode SKIP drops the unreadable part"
        }
    };
    format!("damaged and left as they are: {}; {why}", names.join(", "))
}

/// Rewrites the readable part of a damaged SSTable, and takes it out of the table; its files stay as a snapshot.
async fn scrub_damaged(
    inner: &Rc<Inner>,
    store: &Rc<Store>,
    live: &Rc<LiveSstable>,
    report: &mut RewriteReport,
) -> Result<(), MaintenanceError> {
    let begun = store.edits.now();
    let held = (store.edits.without_truncation().await?, store.edits.one().await?);
    if !store.set().iter().any(|member| Rc::ptr_eq(member, live)) {
        return Ok(());
    }
    // A repair may have salvaged it, and waits for the other replicas.
    if live.salvaged.borrow().is_none() {
        let lost = crate::salvage::salvage(inner, store, &live.sstable, begun).await?;
        *live.salvaged.borrow_mut() = Some(Salvaged { lost, since: RepairedWatermark::default() });
    }
    drop(held);
    // The next repairs have to compare the tokens of the dropped part.
    crate::marks::forget(inner, store).await?;
    let name = live.sstable.descriptor().to_string();
    let lost: Vec<Lost> =
        live.salvaged.borrow().iter().flat_map(|salvaged| &salvaged.lost).copied().collect();
    report.set_aside += u64::from(crate::salvage::set_aside(inner, store, live.clone()).await?);
    if lost.is_empty() {
        report.note(format!("{name} was damaged, and all of its partitions could be read"));
    }
    for Lost { span: (after, upto), may_hide } in lost {
        let which = match upto.checked_sub(after) {
            Some(1) => format!("the partition of token {upto}"),
            _ => format!("partitions of the tokens above {after} up to {upto}"),
        };
        let older = match may_hide {
            true => "; older rows that its deletions hid may be seen again",
            false => "",
        };
        let problem = format!("{name}: {which} cannot be read and was dropped{older}");
        // The report is lost when another SSTable or shard fails.
        tracing::warn!("scrub of {}: {problem}", store.table().full_name());
        report.note(problem);
    }
    Ok(())
}

async fn verify(inner: &Rc<Inner>, store: &Rc<Store>) -> Result<RewriteReport, MaintenanceError> {
    crate::flush::flush(inner, store).await?;
    let operation = inner.compactions.operation(TaskKind::Verification, store.table());
    let mut report = RewriteReport::default();
    for problem in store.damages.reasons() {
        report.note(problem);
    }
    // Files stay while their SSTables are held.
    let held: Vec<Rc<LiveSstable>> = store.set().to_vec();
    for live in held {
        operation.refuse_stopped()?;
        if inner.health.is_stopped() {
            return Err(MaintenanceError::Stopped);
        }
        let task = inner.compactions.show(crate::commit::unique_id(inner), &operation, 1);
        let bytes = live.sstable.uncompressed_len();
        task.progress.bytes_total.set(bytes);
        let may_go_on = async |bytes| {
            inner.compactions.throttle.take(&inner.rt, bytes).await;
            !operation.is_stopped() && !inner.health.is_stopped() && !store.dropped.get()
        };
        let found = sstable::verify::verify_in_steps(&inner.rt, live.sstable.descriptor(), may_go_on).await;
        let found = found.map_err(|error| store.read_failed(&live, error))?;
        operation.refuse_stopped()?;
        if inner.health.is_stopped() {
            return Err(MaintenanceError::Stopped);
        }
        task.progress.bytes_read.set(bytes);
        report.sstables += 1;
        for problem in found.problems {
            if matches!(problem, SstableError::Corrupt(_)) {
                store.met_damage(&live, &problem);
            }
            report.note(problem.to_string());
        }
    }
    Ok(report)
}
