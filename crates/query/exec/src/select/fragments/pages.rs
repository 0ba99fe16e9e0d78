//! Pages of fragments: the partitions that a command names, source after source.

use mutation::{Bound, DecoratedKey, DeletionTime, Fragment, PartitionRange, RingPosition, Side};
use replica::page::{PageBuilder, Progress};
use replica::{FragmentPlace, FragmentsRead, Partitions, ReadCommand, ReadPage};
use rt::Instant;
use rt::preempt::Pace;
use schema::Table;

use super::row::Tables;
use crate::backend::Coordinator;
use crate::error::{ExecError, Result};

/// Bytes of fragments that are read from a source at once.
const READ_BYTES: usize = 128 << 10;
/// Keys of partitions that a scan asks for at once.
const KEYS_AT_ONCE: usize = 64;

/// The last fragment of the page before: its source and place.
type After = Option<(String, FragmentPlace)>;

/// Reads one page of the fragments of `base`, as rows of the command's table.
///
/// # Errors
/// As [`Coordinator::read_fragments`]; [`ExecError::Protocol`] when the place at which the page begins is none of a fragment.
pub(crate) async fn read<C: Coordinator>(
    coordinator: &C,
    base: &Table,
    command: &ReadCommand,
    deadline: Instant,
) -> Result<ReadPage> {
    let tables = Tables { base, fragments: &command.table };
    let reader = Reader { coordinator, tables, command, deadline };
    let mut page = PageBuilder::new(command);
    let mut resumed = None;
    if let Some(resume) = &command.resume {
        let last = resume.clustering.as_ref();
        let after = last.map(|key| tables.place(key).ok_or_else(unknown_place)).transpose()?;
        page.resume(resume.key.clone(), resume.rows_in_partition);
        resumed = Some((resume.key.clone(), after));
    }
    match &command.partitions {
        Partitions::Keys(keys) => reader.keys(keys, resumed, &mut page).await?,
        Partitions::Range(range) => reader.range(range.clone(), resumed, &mut page).await?,
    }
    Ok(page.finish())
}

fn unknown_place() -> ExecError {
    ExecError::Protocol("The paging state names no fragment".to_owned())
}

struct Reader<'a, C> {
    coordinator: &'a C,
    tables: Tables<'a>,
    command: &'a ReadCommand,
    deadline: Instant,
}

impl<C: Coordinator> Reader<'_, C> {
    /// These partitions, from the one on in which the page before ended.
    async fn keys(
        &self,
        keys: &[DecoratedKey],
        resumed: Option<(DecoratedKey, After)>,
        page: &mut PageBuilder,
    ) -> Result<()> {
        let mut rest = keys;
        if let Some((key, after)) = resumed {
            let at = keys.iter().position(|listed| *listed == key).unwrap_or(0);
            rest = &keys[at + 1..];
            if after.is_some() && self.partition(&key, after, page).await? == Progress::Full {
                return Ok(());
            }
        }
        for key in rest {
            if self.partition(key, None, page).await? == Progress::Full {
                break;
            }
        }
        Ok(())
    }

    /// The partitions of a range.
    async fn range(
        &self,
        mut range: PartitionRange,
        resumed: Option<(DecoratedKey, After)>,
        page: &mut PageBuilder,
    ) -> Result<()> {
        if let Some((key, after)) = resumed {
            if after.is_some() && self.partition(&key, after, page).await? == Progress::Full {
                return Ok(());
            }
            range.start = RingPosition::AfterKey(key);
        }
        loop {
            let base = self.tables.base;
            let keys = self.coordinator.partition_keys(base, &range, KEYS_AT_ONCE, self.deadline).await?;
            for key in &keys {
                if self.partition(key, None, page).await? == Progress::Full {
                    return Ok(());
                }
            }
            match keys.last() {
                Some(last) if keys.len() == KEYS_AT_ONCE => {
                    range.start = RingPosition::AfterKey(last.clone());
                }
                _ => return Ok(()),
            }
        }
    }

    /// One partition, after a place in a source.
    async fn partition(
        &self,
        key: &DecoratedKey,
        mut after: After,
        page: &mut PageBuilder,
    ) -> Result<Progress> {
        let base = self.tables.base;
        let sources = self.coordinator.fragment_sources(base, key, self.deadline).await?;
        page.push(Fragment::PartitionStart { key: key.clone(), deletion: DeletionTime::LIVE });
        for source in sources {
            let place = match after.take() {
                Some((last, place)) if last == source => Some(place),
                Some((last, place)) if last > source => {
                    after = Some((last, place));
                    continue;
                }
                _ => None,
            };
            if !self.is_wanted(&source) {
                continue;
            }
            match self.source(key, source, place, page).await? {
                Progress::More => {}
                Progress::SkipPartition => break,
                Progress::Full => return Ok(Progress::Full),
            }
        }
        Ok(page.push(Fragment::PartitionEnd))
    }

    /// Whether the command asks for fragments of a source.
    fn is_wanted(&self, source: &str) -> bool {
        let bound = |side| Bound::new(&self.command.table, &[Some(source.as_bytes())], side);
        let (first, last) = (bound(Side::Before), bound(Side::After));
        self.command.slices.ranges().iter().any(|range| range.start < last && first < range.end)
    }

    /// The fragments of one source, after a place.
    async fn source(
        &self,
        key: &DecoratedKey,
        source: String,
        after: Option<FragmentPlace>,
        page: &mut PageBuilder,
    ) -> Result<Progress> {
        let base = self.tables.base;
        let mut pace = Pace::new();
        let mut read = FragmentsRead { table: base.id, key: key.clone(), source, after, bytes: READ_BYTES };
        loop {
            let part = self.coordinator.read_fragments(base, read.clone(), self.deadline).await?;
            for fragment in &part.fragments {
                pace.step().await;
                let row = self.tables.row(&read.source, fragment);
                if !self.command.slices.contains(&row.clustering) {
                    continue;
                }
                match page.push(Fragment::Row(row)) {
                    Progress::More => {}
                    progress => return Ok(progress),
                }
            }
            match part.fragments.last() {
                Some(last) if !part.is_last => read.after = Some(FragmentPlace::of(last)),
                _ => return Ok(Progress::More),
            }
        }
    }
}
