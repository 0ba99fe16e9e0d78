//! The nodes from which a table's ranges are fetched as files: few, each for as many ranges as it has, because an SSTable is sent unchanged
//! only to a node that wants all of it.

use std::sync::Arc;

use schema::Table;
use topology::{ClusterView, HostId, NodeIndex, TokenRange};

use crate::contact;
use crate::holders::{PullFrom, holders};
use crate::{Coordinator, RequestError};

/// A source of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSource {
    /// Its role.
    pub host: HostId,
    /// How many shards it has.
    pub shards: u16,
    /// The request to it.
    pub ranges: Vec<TokenRange>,
}

impl Coordinator {
    /// The nodes to ask for the files of a table's ranges; within each of these all tokens have the same replicas. Ranges of which no replica
    /// answers are left out. All shards choose alike as long as they believe the same nodes alive.
    ///
    /// # Errors
    /// [`RequestError::Invalid`] when the table's keyspace is gone.
    pub fn file_sources(
        &self,
        table: &Arc<Table>,
        ranges: &[TokenRange],
        from: PullFrom<'_>,
    ) -> Result<Vec<FileSource>, RequestError> {
        let erm = self.context().maps().of(table)?;
        let (view, lost) = (&erm.view, self.context().injected().lost_range);
        if self.context().injected().unmoved_replication && erm.other_replication.is_some() {
            return Ok(Vec::new());
        }
        let asked = ranges.iter().filter(|range| !(lost && range.upto % 4 == 0));
        let alive = |range: &TokenRange| {
            let (replicas, _) = holders(&erm, range.upto, from);
            let others: Vec<NodeIndex> = replicas.into_iter().filter(|node| *node != view.own()).collect();
            contact::candidates(view, &others, 0, &[]).to_vec()
        };
        let left = asked.map(|range| (*range, alive(range))).collect();
        // Tables begin with different nodes, so that all of these have something to do.
        Ok(share_out(view, left, usize::from(table.id.0[15])))
    }
}

/// Gives each range to one of its nodes, one node after the other, the one that has most of the remaining ranges first.
fn share_out(
    view: &ClusterView,
    mut left: Vec<(TokenRange, Vec<NodeIndex>)>,
    turn: usize,
) -> Vec<FileSource> {
    let count = view.nodes().len().max(1);
    let mut sources = Vec::new();
    loop {
        let has = |node: NodeIndex| left.iter().filter(|(_, nodes)| nodes.contains(&node)).count();
        let rank = |node: &NodeIndex| {
            let is_near = view.distance(*node) < 3;
            (is_near, has(*node), (usize::from(node.0) + turn) % count)
        };
        let Some(best) = view.indexes().filter(|node| has(*node) > 0).max_by_key(rank) else {
            return sources;
        };
        let (taken, rest): (Vec<_>, Vec<_>) = left.into_iter().partition(|(_, nodes)| nodes.contains(&best));
        assert!(!taken.is_empty(), "a source has the range that is requested of it");
        left = rest;
        let (node, ranges) = (view.node(best), taken.into_iter().map(|(range, _)| range).collect());
        sources.push(FileSource { host: node.host, shards: node.shards, ranges });
    }
}
