//! The snapshots of this node, for the backups of the DynamoDB API.

use std::path::PathBuf;
use std::sync::Arc;

use dynamo::{SnapshotError, SnapshotFuture, SnapshotPlace, SnapshotRows, SnapshotStore};
use engine::MaintenanceError;
use replica::{Replica, SnapshotContent, TableOperation};
use rt::{DiskError, Rt};
use schema::Table;

/// The snapshots below a data directory.
pub(crate) struct Snapshots {
    rt: Rt,
    replica: Replica,
    data: PathBuf,
}

impl Snapshots {
    pub(crate) fn new(rt: &Rt, replica: &Replica, data: PathBuf) -> Self {
        Self { rt: rt.clone(), replica: replica.clone(), data }
    }

    fn directory(&self, place: &SnapshotPlace) -> PathBuf {
        let table = engine::dropped_table_dir(&self.data, &place.keyspace, &place.table, place.id);
        table.join("snapshots").join(&place.snapshot)
    }
}

fn of_disk(error: DiskError) -> SnapshotError {
    SnapshotError::Failed(error.to_string())
}

/// A file that is damaged stays so.
fn of_read(error: MaintenanceError) -> SnapshotError {
    match error {
        MaintenanceError::Source(why) => SnapshotError::Lost(why.to_string()),
        other => SnapshotError::Failed(other.to_string()),
    }
}

impl SnapshotStore for Snapshots {
    fn take<'a>(&'a self, place: &'a SnapshotPlace) -> SnapshotFuture<'a, u64> {
        Box::pin(async move {
            // An earlier process may have left a part of it.
            self.remove(place).await?;
            let operation =
                TableOperation::Snapshot { name: place.snapshot.clone(), content: SnapshotContent::Sound };
            let taken = self.replica.table_operation(place.id, operation).await;
            taken.map_err(|error| SnapshotError::Failed(error.to_string()))?;
            engine::snapshot_bytes(self.rt.disk(), &self.directory(place)).await.map_err(of_disk)
        })
    }

    fn remove<'a>(&'a self, place: &'a SnapshotPlace) -> SnapshotFuture<'a, ()> {
        let directory = self.directory(place);
        Box::pin(async move { engine::remove_snapshot(self.rt.disk(), &directory).await.map_err(of_disk) })
    }

    fn rows<'a>(
        &'a self,
        place: &'a SnapshotPlace,
        bytes: u64,
        table: Arc<Table>,
    ) -> SnapshotFuture<'a, Box<dyn SnapshotRows>> {
        let directory = self.directory(place);
        Box::pin(async move {
            let found = engine::snapshot_bytes(self.rt.disk(), &directory).await.map_err(of_disk)?;
            if found != bytes {
                let why = format!("{} has {found} bytes in the place of {bytes}", directory.display());
                return Err(SnapshotError::Lost(why));
            }
            let rows = engine::SnapshotRows::open(&self.rt, &directory, table).await.map_err(of_read)?;
            Ok(Box::new(Rows(rows)) as Box<dyn SnapshotRows>)
        })
    }
}

/// The rows of one snapshot.
struct Rows(engine::SnapshotRows);

impl SnapshotRows for Rows {
    fn next(&mut self) -> SnapshotFuture<'_, Option<dynamo::PartitionUpdate>> {
        Box::pin(async move { self.0.next().await.map_err(of_read) })
    }
}
