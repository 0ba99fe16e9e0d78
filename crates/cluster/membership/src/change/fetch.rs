//! One shard's part of a node's streaming, for which the shards share the ranges out, and of its cleanup.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;

use coordinator::{PullStats, RequestError};
use engine::OwnedRanges;
use futures_util::future::{Either, select};
use futures_util::stream::{self, StreamExt};
use rt::Rt;
use schema::{Replication, Table, TableId};
use topology::TokenRange;

use super::allowed::is_expendable;
use super::fetch_reason::{FetchReason, FetchedRanges, had_from};
use super::streamer::{FetchFigures, RangeStreamer};
use crate::{MembershipError, RetainedRanges};

/// A table's range that a shard fetches.
type Piece = (Arc<Table>, TokenRange);

/// Pieces that a shard fetches at once: most hold little, and cost the round trips to their replicas.
const PIECES_AT_ONCE: usize = 8;

impl RangeStreamer {
    /// Drops the ranges that the node does not own from these tables of this shard.
    pub(super) async fn cleanup(
        &self,
        tables: &[TableId],
        what: RetainedRanges,
    ) -> Result<(), MembershipError> {
        let coordinator = &self.coordinator;
        for id in tables {
            let schema = coordinator.schema();
            let Some(table) = schema.table_by_id(*id) else { continue };
            let keyspace = schema.keyspace(&table.keyspace).expect("a table has a keyspace");
            if keyspace.replication == Replication::Local {
                continue;
            }
            let kept = || {
                let view = coordinator.view();
                let placement = view.place_table(keyspace, table);
                let ranges = match what {
                    RetainedRanges::Taken => placement.kept(view.own()),
                    RetainedRanges::Read => placement.owned(view.own()),
                };
                OwnedRanges::new(ranges.into_iter().map(|range| (range.after, range.upto)))
            };
            match self.engine.cleanup(*id, kept).await {
                Ok(0) => {}
                Ok(rewritten) => {
                    let name = table.full_name();
                    tracing::info!(
                        "cleanup rewrote {rewritten} SSTables of {name} without the ranges that this node does not own"
                    );
                }
                Err(engine::MaintenanceError::UnknownTable(_)) => {}
                Err(error) => {
                    return Err(MembershipError::Cluster(format!("{}: {error}", table.full_name())));
                }
            }
        }
        Ok(())
    }

    /// Reads the rest of this shard's part of the ranges, when the available files have been streamed.
    pub(super) async fn fetch(
        &self,
        rt: &Rt,
        reason: &FetchReason,
        had: &FetchedRanges,
    ) -> Result<(), MembershipError> {
        let pieces = self.pieces(rt, reason);
        let ranges_total = pieces.len() as u64;
        self.fetch.set(FetchFigures { active: true, ranges_total, ..self.fetch.get() });
        let fetching = pin!(self.fetch_pieces(&pieces, reason, had));
        // Received rows stay for another attempt.
        let fetched = match select(fetching, pin!(self.given_up(rt, reason))).await {
            Either::Left((fetched, _)) => fetched,
            Either::Right((error, _)) => Err(error),
        };
        self.fetch.set(FetchFigures { active: false, ..self.fetch.get() });
        let stats = fetched?;
        if stats.lost > 0 {
            tracing::error!(
                "{} ranges of tables were only on the node that is gone: they are lost",
                stats.lost
            );
        }
        if stats.below_quorum > 0 {
            tracing::error!(
                "{} ranges of tables were streamed without the dead nodes that are ignored, from fewer replicas than a quorum: writes that the \
                 replicas left do not have are missing; run repair",
                stats.below_quorum
            );
        }
        if ranges_total > 0 {
            tracing::info!(
                "streamed {ranges_total} ranges of tables to this shard: {} SSTables of {} bytes, and as rows {} partitions of {} bytes",
                self.fetch.get().sstables,
                self.fetch.get().file_bytes,
                stats.partitions,
                stats.bytes
            );
        }
        Ok(())
    }

    pub(super) fn pieces(&self, rt: &Rt, reason: &FetchReason) -> Vec<Piece> {
        let schema = self.coordinator.schema();
        let (shard, shards) = (rt.shard().index(), usize::from(rt.shard_count()));
        let mut pieces = Vec::new();
        for keyspace in schema.keyspaces() {
            for (ranges, tables) in self.ranges_to_fetch(keyspace, reason) {
                for table in tables {
                    let mine = ranges.iter().skip(shard).step_by(shards);
                    pieces.extend(mine.map(|range| (table.clone(), *range)));
                }
            }
        }
        pieces
    }

    async fn fetch_pieces(
        &self,
        pieces: &[Piece],
        reason: &FetchReason,
        had: &FetchedRanges,
    ) -> Result<PullStats, MembershipError> {
        let mut stats = PullStats::default();
        let pulls = stream::iter(pieces).map(|(table, range)| async move {
            let have = had_from(had, table.id, *range);
            match self.coordinator.pull_rest(table, *range, reason.from(), have).await {
                // Traces expire after a day: no topology change waits for them.
                Err(RequestError::Unavailable { .. }) if self.is_expendable(table) => {
                    Ok(PullStats::default())
                }
                pulled => pulled.map_err(|error| self.interrupted(table, &error)),
            }
        });
        let mut pulls = pin!(pulls.buffer_unordered(PIECES_AT_ONCE));
        while let Some(pulled) = pulls.next().await {
            stats += pulled?;
            let mut figures = self.fetch.get();
            figures.ranges_done += 1;
            (figures.partitions, figures.bytes) = (stats.partitions, stats.bytes);
            self.fetch.set(figures);
        }
        // The nodes that had these rows drop them once the change is complete. Some may have come by an earlier attempt.
        for table in pieces.iter().map(|(table, _)| table.id).collect::<BTreeSet<_>>() {
            let durable = self.coordinator.replica().make_durable(table).await;
            if let Err(error) = durable
                && self.coordinator.schema().table_by_id(table).is_some()
            {
                let why = format!("fetched rows cannot be made durable: {error}");
                return Err(MembershipError::Cluster(why));
            }
        }
        Ok(stats)
    }

    fn is_expendable(&self, table: &Table) -> bool {
        self.coordinator.schema().keyspace(&table.keyspace).is_some_and(|keyspace| is_expendable(keyspace))
    }

    /// Why a table's range was not fetched; where replicas are missing, with the nodes that are down and the operator's ways out.
    fn interrupted(&self, table: &Table, error: &RequestError) -> MembershipError {
        let mut text = format!("fetching {} was interrupted: {error}", table.full_name());
        if matches!(error, RequestError::Unavailable { .. }) {
            let view = self.coordinator.view();
            let down = view.indexes().filter(|node| !view.is_alive(*node) && !view.is_ignored(*node));
            let down = down.map(|node| view.node(node));
            let down: Vec<String> =
                down.map(|node| format!("{} (host {})", node.internode, node.host)).collect();
            text.push_str(&format!(
                ". Nodes that are down: {}. Start them; or, where they are dead for good, have this topology change go on without them: start a node that \
                 replaces another again with `ignore_dead_nodes_for_replace: HOST_IDS`, or request a removal again with `nodetool removenode HOST_ID \
                 --ignore-dead-nodes HOST_IDS`, and run repair afterwards; or give it up with `nodetool removenode HOST_ID` of the node that joins \
                 (`removenode force` ends a removal without the missing rows)",
                down.join(", ")
            ));
        }
        MembershipError::Cluster(text)
    }
}
