//! Scans of an ordered index over all shards of a node.

use std::sync::Arc;

use engine::{OrderedPlaces, OrderedScan};
use futures_util::future::try_join_all;
use schema::TableId;

use crate::{Replica, ReplicaError, message};

impl Replica {
    /// The first places of a table on this node, in the order of an index.
    ///
    /// # Errors
    /// When a shard has no such index, or not yet, and as of a read.
    pub async fn scan_index(
        &self,
        table: TableId,
        scan: &Arc<OrderedScan>,
    ) -> Result<OrderedPlaces, ReplicaError> {
        let of_shards = self.port().ask_each(message::ScanIndex { table, scan: scan.clone() });
        let mut found = OrderedPlaces::default();
        try_join_all(of_shards).await?.into_iter().for_each(|of_shard| found.add(of_shard));
        found.finish(scan);
        Ok(found)
    }
}
