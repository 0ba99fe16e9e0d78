//! The work: streams of SSTables through merge and purge into writers, giving way to requests, within a rate, and
//! able to stop.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mutation::merge::{Merger, Step};
use mutation::purge::{PurgeRule, Purger};
use mutation::{
    DecoratedKey, Fragment, FragmentBuffer, FragmentSource, PartitionRange, SourceError, Timestamp,
};
use rt::{Instant, Rt};
use schema::Table;
use sstable::{Sstable, SstableError, SstableSource, SstableWriter, Written};

use crate::garbage::Garbage;
use crate::{Hiding, OwnedRanges};

/// The inputs of the merge, and its rules.
pub struct Job {
    /// The table, with the columns whose cells are written.
    pub table: Arc<Table>,
    /// SSTables to merge.
    pub inputs: Vec<Rc<Sstable>>,
    /// Which partitions of them.
    pub range: PartitionRange,
    /// The tokens whose partitions are kept; all when none.
    pub kept: Option<OwnedRanges>,
    /// The other SSTables whose content hides content of the inputs, which is left out.
    pub hiding: Option<Hiding>,
    /// The deletions that may be forgotten.
    pub rule: PurgeRule,
    /// A new SSTable is begun after so many bytes, at the next partition.
    pub output_bytes_max: Option<u64>,
    /// A new SSTable is begun at each token that divides the ring into so many equal parts.
    pub shards: u32,
}

/// Whether a fragment begins a partition of another part of the ring than the partitions before it.
fn begins_shard(fragment: &Fragment, shards: u32, shard: &mut u128) -> bool {
    let Fragment::PartitionStart { key, .. } = fragment else { return false };
    let before = std::mem::replace(shard, shard_of(key.token, shards));
    *shard != before
}

/// The number of the one of `shards` equal parts of the ring that has a token.
pub fn shard_of(token: i64, shards: u32) -> u128 {
    // From 0 for the least token to 2^64 - 1 for the greatest.
    let place = (token as u64) ^ (1 << 63);
    (u128::from(place) * u128::from(shards)) >> 64
}

/// Shown while a compaction runs.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of the inputs read so far, before compression.
    pub bytes_read: Cell<u64>,
    /// Bytes of all inputs, before compression.
    pub bytes_total: Cell<u64>,
}

impl Progress {
    /// An input was read so far; how much further that is than before.
    pub fn advance(&self, before: &mut u64, upto: u64) -> u64 {
        let bytes = upto.saturating_sub(*before);
        *before += bytes;
        self.bytes_read.set(self.bytes_read.get() + bytes);
        bytes
    }
}

/// The outcome of a job.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The new SSTables; none when everything was forgotten.
    pub written: Vec<Written>,
    /// Partitions written.
    pub partitions: u64,
    /// How many partitions came from so many inputs: `merged[n]` from `n + 1`.
    pub merged: Vec<u64>,
}

/// Why a job ended early.
#[derive(Debug)]
pub enum WorkerError {
    /// It was asked to stop.
    Stopped,
    /// An input could not be read.
    Read(SourceError),
    /// An output could not be written.
    Write(SstableError),
}

impl std::fmt::Display for WorkerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stopped => f.write_str("the compaction was stopped"),
            Self::Read(error) => error.fmt(f),
            Self::Write(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for WorkerError {}

/// A limit on bytes a second of data files as they are on disk, shared by the compactions of a shard.
#[derive(Debug)]
pub struct Throttle {
    bytes_per_second: Cell<u64>,
    /// The time at which the bytes taken so far are paid for.
    paid_until: Cell<Instant>,
}

impl Throttle {
    /// A limit; 0 for none.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: Cell::new(bytes_per_second), paid_until: Cell::new(Instant::START) }
    }

    /// Changes the limit.
    pub fn set(&self, bytes_per_second: u64) {
        self.bytes_per_second.set(bytes_per_second);
    }

    /// Waits until `bytes` more may be read.
    pub async fn take(&self, rt: &Rt, bytes: u64) {
        let rate = self.bytes_per_second.get();
        if rate == 0 {
            return;
        }
        let cost = Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64);
        let from = self.paid_until.get().max(rt.now());
        self.paid_until.set(from + cost);
        // Short debts are left to add up: a timer costs more than they are worth.
        if from - rt.now() > Duration::from_millis(2) {
            rt.sleep_until(from).await;
        }
    }

    /// Waits until one more step of an SSTable's scan may be read, that has come to `position` (bytes before compression); `read` is where
    /// the step before ended. A step at a time, so that others that read wait for a step and not for a file.
    pub async fn take_step(&self, rt: &Rt, sstable: &Sstable, read: &mut u64, position: u64) {
        let bytes = position.saturating_sub(*read);
        *read += bytes;
        self.take(rt, on_disk(sstable, bytes)).await;
    }
}

/// Merges. `open_output` begins a new SSTable; `max_purgeable` gives the smallest timestamp of data for a key outside
/// of the job; `stop` is checked often. Outputs of a job that fails are the caller's to remove.
///
/// # Errors
/// [`WorkerError::Stopped`] when `stop` returned true, [`WorkerError::Read`] when an input is damaged or cannot be read,
/// [`WorkerError::Write`] when an output cannot be created or written.
pub async fn run(
    rt: &Rt,
    job: Job,
    throttle: &Throttle,
    progress: &Progress,
    stop: impl Fn() -> bool,
    max_purgeable: impl Fn(&DecoratedKey) -> Timestamp,
    mut open_output: impl AsyncFnMut() -> Result<SstableWriter, SstableError>,
) -> Result<Outcome, WorkerError> {
    let mut sources = sources_of(&job)?;
    progress.bytes_total.set(job.inputs.iter().map(|input| input.uncompressed_len()).sum());
    let mut merger = Merger::new(job.table.clone(), sources.len(), false);
    let mut garbage = garbage_of(&job);
    let mut purger = Purger::new(job.rule);
    let (mut kept, mut writer) = (FragmentBuffer::new(), None::<SstableWriter>);
    let mut outcome = Outcome { merged: vec![0; sources.len()], ..Outcome::default() };
    // Partitions that inputs have begun and the merge has not: from how many inputs.
    let mut ahead: BTreeMap<DecoratedKey, usize> = BTreeMap::new();
    let (mut left_out, mut shard) = (false, 0);
    let mut read_upto = vec![0; sources.len()];
    loop {
        match merger.next() {
            Step::Fragment(mut fragment) => {
                if let Fragment::PartitionStart { key, .. } = &fragment {
                    left_out = job.kept.as_ref().is_some_and(|kept| !kept.contains(key.token));
                    if let Some(inputs) = ahead.remove(key) {
                        outcome.merged[inputs - 1] += 1;
                    }
                }
                if !left_out && fragment.keep_columns(&job.table) {
                    purger.push(fragment, &max_purgeable, &mut kept);
                }
            }
            Step::Need(input) => {
                if stop() {
                    return Err(WorkerError::Stopped);
                }
                let buffer = merger.buffer(input);
                let more = fill(&mut sources[input], buffer, &mut ahead, garbage[input].as_mut()).await?;
                if !more {
                    merger.end(input);
                }
                let sstable = &job.inputs[input];
                let upto = if more { sources[input].position() } else { sstable.uncompressed_len() };
                let bytes = progress.advance(&mut read_upto[input], upto);
                throttle.take(rt, on_disk(sstable, bytes)).await;
                rt.maybe_yield().await;
            }
            Step::End => break,
        }
        while let Some(fragment) = kept.pop_front() {
            if begins_shard(&fragment, job.shards, &mut shard) {
                finish(writer.take(), &mut outcome).await?;
            }
            let ends = matches!(fragment, Fragment::PartitionEnd);
            let open = match &mut writer {
                Some(open) => open,
                None => writer.insert(open_output().await.map_err(WorkerError::Write)?),
            };
            open.push(fragment).await.map_err(WorkerError::Write)?;
            let full = job.output_bytes_max.is_some_and(|max| open.data_len() >= max);
            if ends && full {
                finish(writer.take(), &mut outcome).await?;
            }
        }
    }
    finish(writer, &mut outcome).await?;
    Ok(outcome)
}

/// The streams of the inputs, with the ids of the job's table.
fn sources_of(job: &Job) -> Result<Vec<SstableSource>, WorkerError> {
    let open = |input: &Rc<Sstable>| input.scan(&job.range).under(&job.table);
    let sources: Result<Vec<SstableSource>, SstableError> = job.inputs.iter().map(open).collect();
    sources.map_err(|error| WorkerError::Read(Box::new(error)))
}

/// The garbage collection of each input, which is at a partition of its own.
fn garbage_of(job: &Job) -> Vec<Option<Garbage>> {
    let one = |_| job.hiding.clone().map(|hiding| Garbage::new(job.table.clone(), hiding));
    job.inputs.iter().map(one).collect()
}

/// The next fragments of an input, without those that others hide where that is wanted; whether there are any.
async fn fill(
    source: &mut SstableSource,
    buffer: &mut FragmentBuffer,
    ahead: &mut BTreeMap<DecoratedKey, usize>,
    garbage: Option<&mut Garbage>,
) -> Result<bool, WorkerError> {
    let more = source.fill(buffer).await.map_err(WorkerError::Read)?;
    note_begun(buffer, ahead);
    if let Some(garbage) = garbage {
        garbage.drop_hidden(buffer).await.map_err(WorkerError::Read)?;
    }
    Ok(more)
}

/// Counts the inputs that have begun a partition.
fn note_begun(buffer: &FragmentBuffer, ahead: &mut BTreeMap<DecoratedKey, usize>) {
    for fragment in buffer.iter() {
        if let Fragment::PartitionStart { key, .. } = fragment {
            *ahead.entry(key.clone()).or_default() += 1;
        }
    }
}

/// The size in its file of some bytes of an SSTable's data.
fn on_disk(sstable: &Sstable, bytes: u64) -> u64 {
    let (file, data) = (u128::from(sstable.data_len()), u128::from(sstable.uncompressed_len().max(1)));
    (u128::from(bytes) * file / data) as u64
}

async fn finish(writer: Option<SstableWriter>, outcome: &mut Outcome) -> Result<(), WorkerError> {
    if let Some(writer) = writer {
        let written = writer.finish().await.map_err(WorkerError::Write)?;
        outcome.partitions += written.partitions;
        outcome.written.push(written);
    }
    Ok(())
}
