//! A search for the nearest vectors over all shards of a node.

use std::sync::Arc;

use engine::{Candidate, NearestQuery};
use futures_util::future::try_join_all;
use schema::TableId;

use crate::{Replica, ReplicaError, message};

impl Replica {
    /// The places of a table on this node whose vectors are nearest to one, nearest first.
    ///
    /// # Errors
    /// When a shard has no such index, or not yet, and as of a read.
    pub async fn nearest(
        &self,
        table: TableId,
        query: &Arc<NearestQuery>,
    ) -> Result<Vec<Candidate>, ReplicaError> {
        let of_shards = self.port().ask_each(message::Nearest { table, query: query.clone() });
        let mut found: Vec<Candidate> = try_join_all(of_shards).await?.into_iter().flatten().collect();
        Candidate::keep_nearest(&mut found, query.count);
        Ok(found)
    }
}
