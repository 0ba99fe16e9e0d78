//! The placement of single tables that do not lie with their keyspace.

use schema::Table;

use crate::{ClusterView, DataPlacement};

/// Places single tables otherwise than their keyspaces.
pub trait TablePlacements {
    /// The replicas of a table by a view, as many as its keyspace's replication has; none for a table that lies with its keyspace.
    fn place(&self, view: &ClusterView, table: &Table) -> Option<DataPlacement>;
}
