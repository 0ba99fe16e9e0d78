//! The largest conditional write. Its proposal takes one entry of a voter's commit log; its commit has to fit with all that follows from
//! the write (rows of views, changes in a log of CDC), or it would be chosen and could never be stored.

use mutation::PartitionUpdate;
use replica::ReplicaError;
use schema::{Schema, Table};

/// Bytes of a proposal beside its update.
const PROPOSAL_BYTES: usize = 512;
/// Changes in the log of CDC: the row before, the written columns, the row after, and their deleted elements.
const CHANGES: usize = 4;

/// How many times a write may be in the entry of its commit.
fn copies(schema: &Schema, table: &Table) -> usize {
    let views = schema.keyspace(&table.keyspace).map_or(0, |keyspace| keyspace.views_of(table.id).count());
    1 + views + if table.options.cdc.enabled { CHANGES } else { 0 }
}

/// Refuses a write whose commit could not be stored, before anybody accepts it. An entry of the commit log has at most `size_max` bytes.
///
/// # Errors
/// [`ReplicaError::MutationTooLarge`].
pub(super) fn check(schema: &Schema, update: &PartitionUpdate, size_max: usize) -> Result<(), ReplicaError> {
    assert!(size_max > PROPOSAL_BYTES, "an entry of the log has room for a vote");
    let copies = copies(schema, &update.table);
    // In memory it is larger.
    if (update.memory_size() + PROPOSAL_BYTES).saturating_mul(copies) <= size_max {
        return Ok(());
    }
    let mut bytes = Vec::new();
    mutation::codec::encode_update(update, &mut bytes);
    let size = (bytes.len() + PROPOSAL_BYTES).saturating_mul(copies);
    if size > size_max { Err(ReplicaError::MutationTooLarge { size, size_max }) } else { Ok(()) }
}
