//! Drops of tables that a crash interrupted are finished by the next start, as they would have ended: with the automatic snapshot of all rows,
//! those that only the commit log has among them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use rt::Rt;
use schema::{Table, TableId};

use crate::drop_table::remove_dropped_dir;
use crate::edit::finish_edits;
use crate::error::is_shortage;
use crate::links::{link_all, snapshot_name};
use crate::prepare::Node;
use crate::{EngineConfig, OpenError};

/// A table that was dropped, and whose files may still be there.
#[derive(Clone, Debug)]
pub struct UnfinishedDrop {
    /// Its keyspace.
    pub keyspace: String,
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: TableId,
    /// When it was dropped, microseconds since 1970.
    pub at_micros: i64,
    /// Whether it gets an automatic snapshot.
    pub snapshot: bool,
    /// Its last definition, by which its entries in the commit log are read; without it the snapshot has its SSTables alone.
    pub definition: Option<Arc<Table>>,
}

/// Finishes drops that a crash interrupted: to be called once a node, on one shard, before [`crate::prepare`] and any
/// [`crate::Engine::open`]. The rows of these tables go into the automatic snapshots, where there are to be any, and then away.
///
/// # Errors
/// [`OpenError::Disk`] when the disk fails, [`OpenError::CommitLog`] when durable entries are damaged or missing,
/// [`OpenError::NewerVersion`].
pub async fn finish_drops(rt: &Rt, config: &EngineConfig, drops: &[UnfinishedDrop]) -> Result<(), OpenError> {
    let disk = rt.disk();
    let dir_of = |dropped: &UnfinishedDrop| -> PathBuf {
        crate::dropped_table_dir(&config.data_directory, &dropped.keyspace, &dropped.name, dropped.id)
    };
    for dropped in drops {
        let dir = dir_of(dropped);
        if disk.exists(&dir).await? {
            finish_edits(disk, &dir).await?;
            sstable::remove_unfinished(disk, &dir).await?;
        }
    }
    write_logged_rows(rt, config, drops).await?;
    for dropped in drops {
        let dir = dir_of(dropped);
        if disk.exists(&dir).await? {
            let target = dir.join("snapshots");
            let target = target.join(snapshot_name("dropped", dropped.at_micros, &dropped.name));
            let left = sstable::list_complete(disk, &dir).await?;
            if dropped.snapshot {
                link_all(disk, &left, &target, true).await?;
            }
            for descriptor in &left {
                sstable::remove(disk, descriptor).await?;
            }
        }
        remove_dropped_dir(disk, &dir, false).await?;
    }
    Ok(())
}

/// Writes the rows that only the commit log has to SSTables, for the snapshots.
async fn write_logged_rows(
    rt: &Rt,
    config: &EngineConfig,
    drops: &[UnfinishedDrop],
) -> Result<(), OpenError> {
    let wanted = drops.iter().filter(|dropped| dropped.snapshot);
    let tables: BTreeMap<TableId, Arc<Table>> =
        wanted.filter_map(|dropped| Some((dropped.id, dropped.definition.clone()?))).collect();
    if tables.is_empty() {
        return Ok(());
    }
    assert!(tables.iter().all(|(id, table)| *id == table.id), "a definition is that of its table");
    match Node::new(rt, config).write_logged(&|id| tables.get(&id).cloned()).await {
        // A table is dropped to make room, and a start is not to need it.
        Err(OpenError::Disk(error)) if is_shortage(&error) => {
            let names: Vec<String> = tables.values().map(|table| table.full_name()).collect();
            tracing::warn!("the automatic snapshots of {} lack their memtables: {error}", names.join(", "));
            Ok(())
        }
        written => written,
    }
}
