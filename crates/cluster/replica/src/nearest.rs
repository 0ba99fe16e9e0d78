//! A search for the nearest vectors over all shards of a node.

use std::sync::Arc;

use engine::{Candidate, Candidates, NearestQuery};
use futures_util::future::try_join_all;
use schema::TableId;

use crate::{Replica, ReplicaError, message};

impl Replica {
    /// The places of a table on this node whose vectors are nearest to one, nearest first, or whose texts are the most relevant.
    ///
    /// # Errors
    /// When a shard has no such index, or not yet, and as of a read.
    pub async fn nearest(
        &self,
        table: TableId,
        query: &Arc<NearestQuery>,
    ) -> Result<Candidates, ReplicaError> {
        let of_shards = self.port().ask_each(message::Nearest { table, query: query.clone() });
        let mut found = Candidates::default();
        try_join_all(of_shards).await?.into_iter().for_each(|of_shard| found.add(of_shard));
        Candidate::keep_nearest(&mut found.places, query.count);
        Ok(found)
    }
}
