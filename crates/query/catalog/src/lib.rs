//! The node's system tables: `system`, `system_auth`, `system_distributed`, `system_schema`, `system_virtual_schema` and `system_views`, all
//! computed when they are read, so that there is one source of truth and nothing can drift.
//!
//! Also the CREATE statements that DESCRIBE answers with ([`describe`]). Everything here is a pure function over values;
//! the origin of a figure is the business of the caller that fills [`Facts`].

mod auth_tables;
mod cdc_tables;
mod definitions;
pub mod describe;
mod estimates;
mod facts;
mod gossip;
mod internode;
mod large;
mod nodes;
mod repair_jobs;
mod requests;
mod ring;
mod rows;
mod running;
mod schema_tables;
mod served;
mod stored;
mod system_tables;

pub use definitions::computed_keyspaces;
pub use facts::{
    CacheFacts, ClientFacts, CompactionFacts, Facts, NodeFacts, OptionFacts, PoolFacts, PreparedFacts,
    RepairFacts, ServerFacts, SizeFacts, SnapshotFacts, TaskFacts,
};
pub use gossip::GossipFacts;
pub use internode::PeerFacts;
pub use large::{LargeFacts, LargeFactsKind};
pub use repair_jobs::{RepairJobFacts, RepairJobState};
pub use requests::RequestFacts;
pub use rows::RowBuilder;
pub use served::{BatchFacts, LogFacts, QueryFacts};
pub use stored::{COLUMNS_A_STEP, StoredSchema};

use std::sync::Arc;

use mutation::PartitionUpdate;
use schema::{Schema, Table};

/// The content of one computed table that is not of `system_schema` ([`StoredSchema`]); empty for those that this version has nothing to
/// say in.
pub async fn rows(table: &Arc<Table>, schema: &Arc<Schema>, facts: &Facts) -> Vec<PartitionUpdate> {
    if let Some(rows) = schema_rows(table, schema).await {
        return rows;
    }
    let mut rows = RowBuilder::new(table.clone());
    system_tables::fill(&mut rows, schema, facts).await;
    rows.finish()
}

/// The content of a computed table that follows from the schema alone, [`StoredSchema`] apart; none for other tables.
pub async fn schema_rows(table: &Arc<Table>, schema: &Arc<Schema>) -> Option<Vec<PartitionUpdate>> {
    let mut rows = RowBuilder::new(table.clone());
    match (table.keyspace.as_str(), table.name.as_str()) {
        ("system_auth", _)
        | ("system", "roles" | "role_attributes" | "role_members" | "role_permissions") => {
            auth_tables::fill(&mut rows, schema).await
        }
        ("system", "service_levels_v2") => auth_tables::service_levels(&mut rows, schema).await,
        ("system_distributed", "cdc_generation_timestamps" | "cdc_streams_descriptions_v2") => {
            cdc_tables::fill(&mut rows, schema).await
        }
        ("system_virtual_schema", _) => schema_tables::computed(&mut rows, schema).await,
        _ => return None,
    }
    Some(rows.finish())
}
