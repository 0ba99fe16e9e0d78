//! The largest conditional write. Its proposal takes one entry of a voter's commit log; its commit has to fit with all that follows from
//! the write and from the rows before it (rows of views, changes and images in a log of CDC), or it would be chosen and could never be stored.

use cdc::{Log, Naming, StreamId};
use mutation::PartitionUpdate;
use replica::{ReadCommand, ReadPage, ReplicaError};
use schema::{CdcPreimage, Schema, Table};

/// Bytes of a proposal beside its update.
const PROPOSAL_BYTES: usize = 512;
/// Changes in the log of CDC without images: the written columns and their deleted elements.
const CHANGES: usize = 2;

/// How often an entry of the log has a write and the rows before it.
#[derive(Clone, Copy)]
struct Copies {
    views: usize,
    /// Changes in a log of CDC.
    changes: usize,
    /// Images in a log of CDC.
    images: usize,
}

impl Copies {
    fn of(schema: &Schema, table: &Table) -> Self {
        let views = schema.keyspace(&table.keyspace).map_or(0, |all| all.views_of(table.id).count());
        let cdc = &table.options.cdc;
        let images = usize::from(cdc.preimage != CdcPreimage::Off) + usize::from(cdc.postimage);
        match cdc.enabled {
            true => Self { views, changes: CHANGES, images },
            false => Self { views, changes: 0, images: 0 },
        }
    }
}

/// Whether rows of the commit follow from the rows before the write of a table.
pub(super) fn needs_rows_before(schema: &Schema, table: &Table) -> bool {
    let copies = Copies::of(schema, table);
    copies.views + copies.images > 0
}

/// A read of the rows before a write that all of it follows from; none when `command` was that already, and gave all of its rows.
pub(super) fn read_before(
    command: &ReadCommand,
    page: &ReadPage,
    update: &PartitionUpdate,
    size_max: usize,
) -> Option<ReadCommand> {
    let has_all = command.columns == mutation::ColumnSelection::All
        && command.limits == replica::Limits::NONE
        && command.resume.is_none()
        && page.more.is_none()
        && update.rows().iter().all(|row| command.slices.contains(&row.clustering));
    let slices = Log::rows_read(update);
    let all = ReadCommand::all_of(command.table.clone(), command.partitions.clone(), command.now);
    // More than an entry is refused however much more it is.
    let limits = replica::Limits { bytes: size_max.saturating_mul(4), ..replica::Limits::NONE };
    (!has_all).then_some(ReadCommand { slices, limits, ..all })
}

/// The rows of a page that an update writes, and the static row.
pub(super) fn rows_before(page: &ReadPage, update: &PartitionUpdate) -> PartitionUpdate {
    let mut before = PartitionUpdate::new(update.table.clone(), update.key.clone());
    for partition in page.partitions.iter().filter(|partition| partition.key == update.key) {
        partition.static_row.iter().for_each(|row| before.add_static(row.clone()));
        let is_written = |key| update.rows().binary_search_by(|row| row.clustering.cmp(key)).is_ok();
        let written = partition.rows.iter().filter(|row| is_written(&row.clustering));
        written.for_each(|row| before.add_row(row.clone()));
    }
    before
}

fn encoded_len(update: &PartitionUpdate) -> usize {
    let mut bytes = Vec::new();
    mutation::codec::encode_update(update, &mut bytes);
    bytes.len()
}

/// Bytes of the rows in a log of CDC.
fn changes_len(schema: &Schema, before: Option<&PartitionUpdate>, update: &PartitionUpdate) -> usize {
    let base = &update.table;
    // Changes of a table whose log does not fit it are not captured.
    let log = schema.cdc_log_of(base).filter(|_| base.options.cdc.enabled);
    let Some(log) = log.and_then(|log| Log::new(base, log.clone()).ok()) else { return 0 };
    let before = before.filter(|_| log.reads_before());
    let changes = log.changes(before, update, &mut |_| StreamId([0; 16]), Naming::Canonical);
    changes.iter().map(encoded_len).sum()
}

/// Refuses a write whose commit could not be stored, before anybody accepts it. An entry of the commit log has at most `size_max` bytes. `before` are
/// the rows that it writes as they were, where they are known.
///
/// # Errors
/// [`ReplicaError::MutationTooLarge`].
pub(super) fn check(
    schema: &Schema,
    before: Option<&PartitionUpdate>,
    update: &PartitionUpdate,
    size_max: usize,
) -> Result<(), ReplicaError> {
    assert!(size_max > PROPOSAL_BYTES, "an entry of the log has room for a vote");
    assert!(before.is_none_or(|before| before.key == update.key), "rows of one partition");
    let copies = Copies::of(schema, &update.table);
    // A row of a view, and an image, may have all columns of both.
    let of_both = copies.views + copies.images;
    let written = |bytes: usize| (bytes + PROPOSAL_BYTES).saturating_mul(1 + of_both + copies.changes);
    let rows_before = before.map_or(0, PartitionUpdate::memory_size).saturating_mul(of_both);
    // In memory both are larger.
    if written(update.memory_size()).saturating_add(rows_before) <= size_max {
        return Ok(());
    }
    let in_write = encoded_len(update) + PROPOSAL_BYTES;
    let in_view = in_write + before.map_or(0, encoded_len);
    let size = in_write + in_view.saturating_mul(copies.views) + changes_len(schema, before, update);
    if size > size_max { Err(ReplicaError::MutationTooLarge { size, size_max }) } else { Ok(()) }
}
