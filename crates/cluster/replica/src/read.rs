//! Reads of partitions that this shard owns.

use engine::{Engine, ReadScope, RepairedWatermark, SyncStep};
use mutation::purge::Purger;
use mutation::{Fragment, FragmentBuffer, PartitionRange, RingPosition, Row, Slices, Timestamp};
use rt::preempt::Pace;

use crate::page::{PageBuilder, Progress};
use crate::{Form, PartitionResult, Partitions, ReadCommand, ReadPage, ReplicaError, Resume, RowLookup};

/// Carries out a read on this shard's engine, or on its writes after a watermark. Fails when more than `tombstones_max` tombstones are
/// met.
pub(crate) async fn read(
    engine: &Engine,
    command: &ReadCommand,
    above: Option<RepairedWatermark>,
    tombstones_max: u64,
) -> Result<ReadPage, ReplicaError> {
    if command.form == Form::Live
        && command.index.is_none()
        && let Some(page) = only_row(engine, command, tombstones_max)?
    {
        return Ok(page);
    }
    let truncated_at =
        if command.form == Form::Reconcilable { engine.truncated_at(command.table.id) } else { 0 };
    let mut page = PageBuilder::new(command);
    let reader = Reader { engine, command, above, tombstones_max };
    match &command.partitions {
        Partitions::Keys(keys) => {
            let (mut rest, mut skip) = (keys.as_slice(), None);
            if let Some(resume) = &command.resume {
                let at = keys.iter().position(|key| *key == resume.key).unwrap_or(0);
                rest = &keys[at..];
                skip = Some(resume);
            }
            let mut pace = Pace::new();
            for key in rest {
                pace.step().await;
                let range = PartitionRange::single(key);
                match skip.take() {
                    Some(Resume { clustering: None, .. }) => continue,
                    Some(resume) => {
                        if reader.rest_of_partition(resume, &mut page).await? == Progress::Full {
                            break;
                        }
                    }
                    None => {
                        if reader.range(&range, &command.slices, &mut page).await? == Progress::Full {
                            break;
                        }
                    }
                }
            }
        }
        Partitions::Range(range) => {
            let mut range = range.clone();
            let mut full = false;
            if let Some(resume) = &command.resume {
                full = reader.rest_of_partition(resume, &mut page).await? == Progress::Full;
                range.start = RingPosition::AfterKey(resume.key.clone());
            }
            if !full {
                reader.range(&range, &command.slices, &mut page).await?;
            }
        }
    }
    Ok(ReadPage { truncated_at, ..page.finish() })
}

/// The page of a read of one partition that is one row in memory; none when that is not so, or when a limit may matter.
fn only_row(
    engine: &Engine,
    command: &ReadCommand,
    tombstones_max: u64,
) -> Result<Option<ReadPage>, ReplicaError> {
    let (Partitions::Keys(keys), None) = (&command.partitions, &command.resume) else { return Ok(None) };
    let [key] = keys.as_slice() else { return Ok(None) };
    let limits = &command.limits;
    if limits.rows < 2 || limits.rows_per_partition < 2 {
        return Ok(None);
    }
    let (table, slices, now, bypass_cache) =
        (&command.table, &command.slices, command.now, command.bypass_cache);
    // Replicas that hold the same data are to answer the same, regardless of the flushes of each.
    let lookup = RowLookup { table, key, slices, now, bypass_cache, values_only: false };
    let rows = |row: Option<&Row>| {
        let fits = row.is_none_or(|row| row.memory_size() < limits.bytes);
        fits.then(|| row.cloned())
    };
    let found = visit_row(engine, &lookup, tombstones_max, rows)?;
    Ok(found.map(|(row, tombstones)| {
        let of = |row| PartitionResult { rows: vec![row], ..PartitionResult::new(key.clone()) };
        ReadPage { partitions: row.map(of).into_iter().collect(), tombstones, ..ReadPage::default() }
    }))
}

/// Hands the live row that a lookup finds to `visit` where it lies; its result, and the tombstones in the row. None when memory does
/// not know all of it, when tombstones are too many and as of `visit`: then [`read`] is to be used.
#[inline]
pub(crate) fn visit_row<T>(
    engine: &Engine,
    lookup: &RowLookup<'_>,
    tombstones_max: u64,
    visit: impl FnOnce(Option<&Row>) -> Option<T>,
) -> Result<Option<(T, u64)>, ReplicaError> {
    // Memory may still hold cells of dropped columns.
    let has_dropped = !lookup.table.dropped_columns.is_empty();
    let seen = |row: Option<&Row>| {
        if has_dropped && row.is_some_and(|row| !row.is_known_to(lookup.table)) {
            return None;
        }
        let tombstones = row.map_or(0, |row| row.tombstones(lookup.now) as u64);
        if tombstones > tombstones_max {
            return None;
        }
        let live = row.filter(|row| row.is_live(lookup.now));
        visit(live).map(|seen| (seen, tombstones))
    };
    let RowLookup { table, key, slices, bypass_cache, values_only, .. } = *lookup;
    let lookup = engine::RowLookup { key, slices, bypass_cache, values_only };
    Ok(engine.visit_only_row(table, &lookup, seen)?)
}

struct Reader<'a> {
    engine: &'a Engine,
    command: &'a ReadCommand,
    above: Option<RepairedWatermark>,
    tombstones_max: u64,
}

impl Reader<'_> {
    /// Reads on in the partition in which the page before ended.
    async fn rest_of_partition(
        &self,
        resume: &Resume,
        page: &mut PageBuilder,
    ) -> Result<Progress, ReplicaError> {
        let command = self.command;
        let Some(last) = &resume.clustering else {
            return Ok(Progress::More);
        };
        if resume.rows_in_partition >= command.limits.rows_per_partition {
            return Ok(Progress::More);
        }
        page.resume(resume.key.clone(), resume.rows_in_partition);
        let slices = command.slices.after(last, command.reversed);
        self.range(&PartitionRange::single(&resume.key), &slices, page).await
    }

    async fn range(
        &self,
        range: &PartitionRange,
        slices: &Slices,
        page: &mut PageBuilder,
    ) -> Result<Progress, ReplicaError> {
        let command = self.command;
        let table = &command.table;
        let read =
            engine::Read { index: command.index.as_deref(), ..engine::Read::new(table.id, range, slices) };
        let (columns, reversed) = (&command.columns, command.reversed);
        let mut reader = self.engine.read(&match self.above {
            // All columns, in order, as repairs read.
            Some(mark) => engine::Read { scope: ReadScope::Above(mark), ..read },
            None if command.form == Form::Whole && !reversed => {
                engine::Read { scope: ReadScope::Repair, ..read }
            }
            None if command.bypass_cache => {
                engine::Read { columns, reversed, scope: ReadScope::BypassCache, ..read }
            }
            None => engine::Read { columns, reversed, ..read },
        })?;
        let single = range.as_single().is_some();
        let has_dropped = !table.dropped_columns.is_empty();
        let purges = matches!(command.form, Form::Full | Form::Reconcilable);
        let mut purging = purges.then(|| Purging::new(self.engine, command));
        loop {
            let mut fragment = match reader.try_next_sync()? {
                SyncStep::Fragment(fragment) => fragment,
                SyncStep::End => return Ok(Progress::More),
                SyncStep::Wait => match reader.next().await? {
                    Some(fragment) => fragment,
                    None => return Ok(Progress::More),
                },
            };
            if has_dropped && !fragment.keep_columns(table) {
                continue;
            }
            let ends_partition = matches!(fragment, Fragment::PartitionEnd);
            let progress = match &mut purging {
                None => page.push(fragment),
                Some(purging) => purging.push(fragment, page),
            };
            match progress {
                Progress::Full => return Ok(Progress::Full),
                Progress::SkipPartition if single && !ends_partition => {
                    // Nothing further is wanted of the only partition: close it without reading on.
                    return Ok(page.push(Fragment::PartitionEnd));
                }
                Progress::SkipPartition | Progress::More => {}
            }
            if page.tombstones() > self.tombstones_max {
                return Err(ReplicaError::TooManyTombstones {
                    seen: page.tombstones(),
                    max: self.tombstones_max,
                    table: table.full_name(),
                });
            }
        }
    }
}

/// Leaves out tombstones past their grace, as a compaction of everything would: replicas that hold the same data then answer the same,
/// regardless of the compactions of each so far.
struct Purging {
    purger: Purger,
    kept: FragmentBuffer,
}

impl Purging {
    fn new(engine: &Engine, command: &ReadCommand) -> Self {
        let rule = engine.purge_rule(&command.table, command.now);
        Self { purger: Purger::new(rule), kept: FragmentBuffer::default() }
    }

    fn push(&mut self, fragment: Fragment, page: &mut PageBuilder) -> Progress {
        self.purger.push(fragment, |_| Timestamp::MAX, &mut self.kept);
        let mut progress = Progress::More;
        while let Some(fragment) = self.kept.pop_front() {
            progress = page.push(fragment);
            if progress == Progress::Full {
                break;
            }
        }
        progress
    }
}
