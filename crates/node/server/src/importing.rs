//! The import of an operator's SSTables into a table of a running node (`nodetool import`, `nodetool refresh`): which tables and partitions
//! may come this way.

use std::path::PathBuf;

use engine::OwnedRanges;
use membership::Membership;
use replica::{Adoption, ImportFailed, Imported, ReplicaError};
use schema::{Replication, Schema, Table};

use crate::shard::RunningShard;

/// The folder of a table's directory from which `nodetool refresh` imports.
pub(crate) const UPLOAD: &str = "upload";

/// Imports the SSTables of a directory; without `keep` they are removed there when every row of them is in the table.
pub(crate) async fn import(
    shard: &RunningShard,
    membership: &Membership,
    table: &Table,
    directory: PathBuf,
    keep: bool,
) -> Result<Imported, String> {
    let (coordinator, name) = (shard.coordinator(), table.full_name());
    let refused = |why: String| format!("nothing was imported into {name}: {why}");
    refuse_table(&coordinator.schema(), table).map_err(refused)?;
    let version = |membership: &Membership| membership.group().applied().state.topology_version;
    let (view, begun) = (coordinator.view(), version(membership));
    if view.is_changing() {
        return Err(refused(
            "the ranges of nodes are moving; try again when the topology change has ended".to_owned(),
        ));
    }
    let schema = coordinator.schema();
    let keyspace =
        schema.keyspace(&table.keyspace).ok_or_else(|| refused("the keyspace is gone".to_owned()))?;
    let owned = match &keyspace.replication {
        Replication::Local => OwnedRanges::new([(0, 0)]),
        _ => {
            let ranges = view.place_table(keyspace, table).owned(view.own());
            OwnedRanges::new(ranges.into_iter().map(|range| (range.after, range.upto)))
        }
    };
    // A node that loses ranges meanwhile may drop the rows with them, which no other has.
    let is_as_before = || !coordinator.view().is_changing() && version(membership) == begun;
    let check = || {
        if !is_as_before() {
            return Err("a topology change began meanwhile, and this node may own less by it".to_owned());
        }
        let schema = coordinator.schema();
        let table = schema.table_by_id(table.id).ok_or_else(|| "the table was dropped".to_owned())?;
        refuse_table(&schema, table)
    };
    let allowed = || check().map_err(ReplicaError::Storage);
    let done = shard.replica().import_sstables(table.id, directory.clone(), owned, allowed, !keep).await;
    let imported = done.map_err(|failed| failure(&name, failed))?;
    if let Err(why) = check() {
        let from = directory.display();
        return Err(format!(
            "SSTables were imported into {name}, but {why}; when that is done, import {from} again"
        ));
    }
    tracing::info!(
        "imported {} SSTables with {} partitions into {name} from {}",
        imported.sstables,
        imported.partitions,
        directory.display()
    );
    Ok(imported)
}

fn failure(name: &str, ImportFailed { adopted, error }: ImportFailed) -> String {
    match adopted {
        Adoption::Nothing => {
            format!("nothing was imported into {name}: {error}; the files stay where they are")
        }
        Adoption::Part => format!(
            "the rows of some shards were imported into {name}: {error}; the files stay where they are, import them again (rows that come \
             twice are the same rows)"
        ),
        Adoption::All => {
            format!("all rows were imported into {name}, but not all files were removed: {error}")
        }
    }
}

/// Refuses tables whose rows others follow: rows that come as files are no writes.
fn refuse_table(schema: &Schema, table: &Table) -> Result<(), String> {
    let Some(keyspace) = schema.keyspace(&table.keyspace) else {
        return Err("the keyspace is gone".to_owned());
    };
    if keyspace.system {
        return Err("it is a table of the system".to_owned());
    }
    if table.is_view() {
        return Err("it is a materialized view; import into its base table".to_owned());
    }
    if let Some(view) = keyspace.views_of(table.id).next() {
        let view = view.name.as_str();
        return Err(format!(
            "the materialized view {view} would lack the rows; drop it, import, and create it again"
        ));
    }
    if table.options.cdc.enabled {
        return Err("its log of changes (cdc) would lack the rows; disable it, import, and enable it again"
            .to_owned());
    }
    Ok(())
}
