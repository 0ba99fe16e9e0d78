//! The unmerged fragments of this node's partitions, from the shards that own them.

use engine::{FragmentsPage, FragmentsRead};
use futures_util::future::try_join_all;
use mutation::{DecoratedKey, PartitionRange};
use schema::TableId;

use crate::{Replica, ReplicaError, message};

impl Replica {
    /// The names of the sources of this node that may hold something of a partition: see [`engine::Engine::fragment_sources`].
    ///
    /// # Errors
    /// [`ReplicaError::UnknownTable`], [`ReplicaError::Stopped`].
    pub async fn fragment_sources(
        &self,
        table: TableId,
        key: &DecoratedKey,
    ) -> Result<Vec<String>, ReplicaError> {
        let shard = self.shard_of(table, key.token);
        self.call(shard, message::FragmentSources { table, key: key.clone() }).await
    }

    /// Reads fragments of a partition in one source.
    ///
    /// # Errors
    /// [`ReplicaError::UnknownTable`], [`ReplicaError::Stopped`]; [`ReplicaError::Storage`] when an SSTable is damaged or cannot be read.
    pub async fn read_fragments(&self, read: FragmentsRead) -> Result<FragmentsPage, ReplicaError> {
        let shard = self.shard_of(read.table, read.key.token);
        self.call(shard, message::Fragments { read }).await
    }

    /// The keys of at most so many partitions of a range that this node has anything of, in ring order.
    ///
    /// # Errors
    /// As [`Replica::read_fragments`].
    pub async fn partition_keys(
        &self,
        table: TableId,
        range: &PartitionRange,
        count_max: usize,
    ) -> Result<Vec<DecoratedKey>, ReplicaError> {
        let ask = |shard| {
            let range = range.clone();
            self.call(shard, message::PartitionKeys { table, range, count_max })
        };
        let shards = try_join_all((0..self.shard_count()).map(ask)).await?;
        // Each shard has all of its keys up to its last one, or none left: the first of all are the first of the node.
        let mut keys: Vec<DecoratedKey> = shards.into_iter().flatten().collect();
        keys.sort();
        keys.truncate(count_max);
        Ok(keys)
    }
}
