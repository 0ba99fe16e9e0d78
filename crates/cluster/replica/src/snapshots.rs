//! Snapshots of a node's tables over all shards. Each shard links its own SSTables and cannot know whether another one has begun, nor whether the
//! files under the name are of this request: that is decided here, once for the node.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use engine::SnapshotRecord;
use rt::DiskError;
use rt::sync::Semaphore;
use schema::Table;

use crate::{Replica, ReplicaError, SnapshotContent, TableOperation};

/// A snapshot that was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// A table has one of this name.
    #[error("{table}: Snapshot {name} already exists.")]
    Exists {
        /// Keyspace and table.
        table: String,
        /// Name of the snapshot.
        name: String,
    },
    /// A shard could not make its part.
    #[error("{table}: {error}")]
    Failed {
        /// Keyspace and table.
        table: String,
        /// The reason.
        error: ReplicaError,
    },
}

/// The description of a snapshot, which lies beside its SSTables.
#[derive(Clone, Copy)]
pub struct SnapshotNotes<'a> {
    /// The statements that make a table anew.
    pub definition: &'a dyn Fn(&Table) -> String,
    /// When it is made.
    pub created_at: &'a str,
}

/// The snapshots of a node that operators have made and removed: one request at a time, on shard 0. Cheap to clone.
#[derive(Clone)]
pub struct Snapshots {
    replica: Replica,
    data: Rc<Path>,
    one: Rc<Semaphore>,
}

impl Snapshots {
    /// Over a replica, whose tables are below the directory `data`.
    pub fn new(replica: &Replica, data: PathBuf) -> Self {
        Self { replica: replica.clone(), data: data.into(), one: Rc::new(Semaphore::new(1)) }
    }

    /// Hard-links the SSTables of these tables on all shards into snapshots of a name, each with the definition of its table: of all tables, or of none. Tables that are dropped
    /// meanwhile are left out. Dropping the future may leave a part; a crash does.
    ///
    /// # Errors
    /// [`SnapshotError::Exists`] when there is a snapshot of that name of one of the tables, which stays as it is; [`SnapshotError::Failed`]. Nothing of this request
    /// is left then, unless it cannot be removed, which is logged.
    pub async fn take(
        &self,
        tables: &[Arc<Table>],
        name: &str,
        content: SnapshotContent,
        notes: SnapshotNotes<'_>,
    ) -> Result<(), SnapshotError> {
        let Ok(_one) = self.one.acquire(1).await else {
            let table = tables.first().map_or_else(String::new, |table| table.full_name());
            return Err(SnapshotError::Failed { table, error: ReplicaError::Stopped });
        };
        for table in tables {
            let exists = self.replica.rt().disk().exists(self.directory(table, name)).await;
            if exists.map_err(|error| failed(table, of_disk(&error)))? {
                return Err(SnapshotError::Exists { table: table.full_name(), name: name.to_owned() });
            }
        }
        for (at, table) in tables.iter().enumerate() {
            let operation = TableOperation::Snapshot { name: name.to_owned(), content };
            let made = match self.replica.table_operation(table.id, operation).await {
                Ok(()) => self.complete(table, name, notes).await,
                failed => failed,
            };
            match made {
                Ok(()) => {}
                // Some shards may have made their part before the others had dropped it.
                Err(ReplicaError::UnknownTable(_)) => self.undo(&tables[at..=at], name).await,
                Err(error) => {
                    // All directories of this name were made by this request.
                    self.undo(&tables[..=at], name).await;
                    return Err(failed(table, error));
                }
            }
        }
        Ok(())
    }

    /// Removes these snapshots, also of dropped tables; how many there were.
    ///
    /// # Errors
    /// [`ReplicaError::Storage`] when a directory cannot be listed or removed; others are removed all the same.
    pub async fn remove(&self, records: &[SnapshotRecord]) -> Result<u64, ReplicaError> {
        let _one = self.one.acquire(1).await.map_err(|_| ReplicaError::Stopped)?;
        let place =
            |record: &SnapshotRecord| (record.keyspace.clone(), record.table.clone(), record.name.clone());
        let wanted: std::collections::BTreeSet<_> = records.iter().map(place).collect();
        let is_wanted = |record: &SnapshotRecord| wanted.contains(&place(record));
        let removed = engine::remove_snapshots(self.replica.rt().disk(), &self.data, is_wanted).await;
        removed.map_err(|error| of_disk(&error))
    }

    async fn complete(
        &self,
        table: &Table,
        name: &str,
        notes: SnapshotNotes<'_>,
    ) -> Result<(), ReplicaError> {
        let (disk, directory) = (self.replica.rt().disk(), self.directory(table, name));
        let definition = (notes.definition)(table);
        let done = engine::complete_snapshot(disk, &directory, &definition, notes.created_at).await;
        done.map_err(|error| of_disk(&error))
    }

    fn directory(&self, table: &Table, name: &str) -> PathBuf {
        engine::snapshot_dir(&engine::table_dir(&self.data, table), name)
    }

    async fn undo(&self, tables: &[Arc<Table>], name: &str) {
        for table in tables {
            let directory = self.directory(table, name);
            if let Err(error) = engine::remove_snapshot(self.replica.rt().disk(), &directory).await {
                tracing::error!(
                    "{} is a part of a snapshot that failed, and cannot be removed: {error}",
                    directory.display()
                );
            }
        }
    }
}

fn failed(table: &Table, error: ReplicaError) -> SnapshotError {
    SnapshotError::Failed { table: table.full_name(), error }
}

fn of_disk(error: &DiskError) -> ReplicaError {
    ReplicaError::Storage(error.to_string())
}
