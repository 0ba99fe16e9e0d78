//! What a node does once before its shards open: finish what a crash interrupted.

use std::sync::Arc;

use rt::Rt;
use schema::Schema;
use sstable::table_dir;

use crate::edit::finish_edits;
use crate::{EngineConfig, OpenError};

/// To be called once a node, on one shard, before any [`crate::Engine::open`]: finishes or undoes what a crash
/// interrupted, and splits SSTables and commit logs that were written for another number of shards or copied in from
/// elsewhere.
pub async fn prepare(rt: &Rt, config: &EngineConfig, schema: &Arc<Schema>) -> Result<(), OpenError> {
    let disk = rt.disk();
    disk.create_dir_all(&config.data_directory).await?;
    for table in schema.tables() {
        let dir = table_dir(&config.data_directory, table);
        if !disk.exists(&dir).await? {
            continue;
        }
        finish_edits(disk, &dir).await?;
        sstable::remove_incomplete(disk, &dir).await?;
    }
    Ok(())
}
