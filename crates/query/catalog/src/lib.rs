//! What a node tells about itself in tables: `system`, `system_schema`, `system_virtual_schema` and `system_views`, all
//! computed when they are read, so that there is one source of truth and nothing can drift.
//!
//! Also the CREATE statements that DESCRIBE answers with ([`describe`]). Everything here is a pure function over values;
//! how a figure is obtained is the business of whoever fills [`Facts`].

mod definitions;
pub mod describe;
mod estimates;
mod nodes;
mod rows;
mod schema_tables;
mod system_tables;

pub use definitions::computed_keyspaces;
pub use rows::RowBuilder;
pub use system_tables::{
    CacheFacts, ClientFacts, CompactionFacts, Facts, NodeFacts, PoolFacts, PreparedFacts, RepairFacts,
    SizeFacts, TaskFacts,
};

use std::sync::Arc;

use mutation::PartitionUpdate;
use schema::{Schema, Table};

/// The content of one computed table; empty for those that this version has nothing to say in.
pub fn rows(table: &Arc<Table>, schema: &Schema, facts: &Facts) -> Vec<PartitionUpdate> {
    let mut rows = RowBuilder::new(table.clone());
    match table.keyspace.as_str() {
        "system_schema" => schema_tables::stored(&mut rows, schema),
        "system_virtual_schema" => schema_tables::computed(&mut rows, schema),
        _ => system_tables::fill(&mut rows, schema, facts),
    }
    rows.finish()
}
