//! Bugs that tests inject, to see that their checks find them. No configuration leads here.

use mutation::PartitionUpdate;
use replica::{ReadCommand, ReadPage};

/// Which bugs are injected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Canaries {
    /// Reads of several replicas are content with one answer less than their level asks for.
    pub short_quorum: bool,
    /// Reads of several replicas wait for one answer more than their level asks for.
    pub long_quorum: bool,
    /// Writes wait for one replica more than their level asks for.
    pub long_write: bool,
    /// Hints are said to be kept, and are not.
    pub dropped_hints: bool,
    /// A voter promises without remembering it.
    pub forgotten_promises: bool,
    /// A lightweight transaction is acknowledged before any replica has stored it.
    pub early_commit: bool,
    /// Of a lightweight transaction on several rows, replicas write all but the last.
    pub torn_commit: bool,
    /// Voters go on with rounds from before a TRUNCATE of the table.
    pub rounds_outlive_truncate: bool,
    /// Nodes that become replicas because a keyspace's replication changes fetch neither data nor votes.
    pub unmoved_replication: bool,
    /// Digests leave the values of cells and their deletions out.
    pub blind_digest: bool,
    /// The data that a read finds replicas to lack is not written to them.
    pub skipped_repair: bool,
    /// The same of reads that all replicas have answered.
    pub skipped_repair_of_all: bool,
    /// Pages that end at different places are merged as if all ended at the same.
    pub unclipped_pages: bool,
    /// A logged batch is taken out of the batchlog before it is applied.
    pub early_removal: bool,
    /// Updates of views are not stored with the write that they follow from.
    pub lost_view_updates: bool,
    /// Deletions of rows of views are not written.
    pub kept_view_rows: bool,
    /// Writes do not wait for synchronous updates of views.
    pub unsynchronised_views: bool,
    /// Deletions of rows are not logged as changes.
    pub unlogged_deletions: bool,
    /// Changes go to the streams of the generation before that of their time.
    pub former_streams: bool,
    /// The changes of a logged batch are logged although it failed before any of it was written.
    pub logged_failed_batches: bool,
    /// Nodes that are about to be replicas are not told of writes.
    pub no_pending_writes: bool,
    /// One in four of the fetched ranges is left out.
    pub lost_range: bool,
    /// A change of the schema is said to be done before other nodes have it.
    pub early_schema: bool,
    /// An increment is sent again to a replica that leads it, as if it had not answered.
    pub repeated_increment: bool,
    /// The data that one node had of a range is taken for the data of a quorum.
    pub one_source: bool,
    /// The leaving replica of a range is not read from when others make a quorum.
    pub leaving_left_out: bool,
    /// The data that a read repairs is not sent to nodes that are about to be replicas.
    pub no_pending_repairs: bool,
    /// Writes of tokens that a node does not own any more are taken.
    pub owns_everything: bool,
    /// A node that becomes a replica of a range again does not first drop its old rows of it.
    pub kept_leftovers: bool,
    /// Requests of every topology version are admitted.
    pub no_fence: bool,
    /// Replicas that a topology change moves are used without a confirmation of the cluster's log.
    pub no_lease: bool,
}

/// An update without its deletions of rows.
pub(crate) fn without_row_deletions(update: &PartitionUpdate) -> PartitionUpdate {
    let mut rows = update.rows().to_vec();
    rows.iter_mut().for_each(|row| row.deletion = mutation::DeletionTime::LIVE);
    let mut changed = PartitionUpdate::with_rows(update.table.clone(), update.key.clone(), rows);
    changed.set_static_row(update.static_row().cloned());
    changed.deletion = update.deletion;
    changed.range_tombstones = update.range_tombstones.clone();
    changed
}

/// A page's digest.
pub(crate) async fn digest(injected: Canaries, command: &ReadCommand, page: &ReadPage) -> u128 {
    if !injected.blind_digest {
        return replica::digest(command, page).await;
    }
    let mut page = page.clone();
    for row in page.partitions.iter_mut().flat_map(|partition| &mut partition.rows) {
        row.retain(|_, _| false);
    }
    replica::digest(command, &page).await
}

/// The update that a replica writes of a commit.
pub(crate) fn committed(injected: Canaries, update: PartitionUpdate) -> PartitionUpdate {
    match update.rows().split_last() {
        Some((_, rest)) if injected.torn_commit && !rest.is_empty() => {
            PartitionUpdate::with_rows(update.table.clone(), update.key.clone(), rest.to_vec())
        }
        _ => update,
    }
}
