//! The import of an operator's SSTables into a table of this node: all shards await their part, one reads the files, and each adopts its own.

use std::path::PathBuf;

use engine::{Incoming, OwnedRanges, Staged};
use futures_util::future::join_all;
use schema::TableId;

use crate::{Replica, ReplicaError, message};

/// The SSTables that an import has read. All of their rows are in the table, durably.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// How many.
    pub sstables: u64,
    /// Partitions in them, those in several counted for each.
    pub partitions: u64,
    /// Whether they were removed.
    pub removed_sources: bool,
}

/// The part of an import whose rows are in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// None of them.
    Nothing,
    /// Those of some shards.
    Part,
    /// All of them; their files were not removed.
    All,
}

/// An import that failed.
#[derive(Clone, Debug)]
pub struct ImportFailed {
    /// The rows that are in the table nevertheless.
    pub adopted: Adoption,
    /// The reason.
    pub error: ReplicaError,
}

impl Replica {
    /// Imports the SSTables of a directory into a table, and then removes them there if `removes` is set. See [`Imported`]. `check` refuses
    /// the import; it is called before rows are adopted, and again before files are removed.
    ///
    /// # Errors
    /// When a file is damaged or not of this table, holds partitions that are not `owned`, or cannot be adopted; when the table is unknown,
    /// was truncated meanwhile, or `check` refuses; when files cannot be removed. The error has the part of the rows that were adopted.
    pub async fn import_sstables(
        &self,
        table: TableId,
        directory: PathBuf,
        owned: OwnedRanges,
        check: impl Fn() -> Result<(), ReplicaError>,
        removes: bool,
    ) -> Result<Imported, ImportFailed> {
        let nothing = |error: ReplicaError| ImportFailed { adopted: Adoption::Nothing, error };
        let engine = self.engine();
        let lock = engine.lock_import(table).await.map_err(|error| nothing(error.into()))?;
        let all = |begins| join_all(self.port().ask_each(message::AwaitImport { table, begins }));
        let begun: Result<(), ReplicaError> = all(true).await.into_iter().collect();
        let imported = match begun {
            Ok(()) => {
                let staged = engine.stage_import(lock, &directory, &owned).await;
                match staged {
                    Ok(staged) => self.adopt_staged(table, staged, owned, check, removes).await,
                    Err(error) => Err(nothing(error.into())),
                }
            }
            Err(error) => Err(nothing(error)),
        };
        // A table that is unknown awaits nothing.
        let _ = all(false).await;
        imported
    }

    async fn adopt_staged(
        &self,
        table: TableId,
        staged: Staged,
        owned: OwnedRanges,
        check: impl Fn() -> Result<(), ReplicaError>,
        removes: bool,
    ) -> Result<Imported, ImportFailed> {
        let failed = |adopted| move |error| ImportFailed { adopted, error };
        let mut done = check().map_err(failed(Adoption::Nothing));
        if done.is_ok() {
            let parts = (0..self.shard_count()).zip(&staged.shards).filter(|(_, files)| !files.is_empty());
            let adopt = |(shard, files): (u16, &Vec<Incoming>)| {
                let (files, owned) = (files.clone(), owned.clone());
                self.call(shard, message::AdoptImport { table, files, owned })
            };
            let adopted = join_all(parts.map(adopt)).await;
            let extent = if adopted.iter().any(Result::is_ok) { Adoption::Part } else { Adoption::Nothing };
            done = adopted.into_iter().collect::<Result<(), ReplicaError>>().map_err(failed(extent));
        }
        let removed_sources = done.is_ok() && removes && check().is_ok();
        if removed_sources {
            let removed = staged.remove_sources().await.map_err(ReplicaError::from);
            done = removed.map_err(failed(Adoption::All));
        }
        let (sstables, partitions) = (staged.sstables(), staged.partitions);
        // The next import or start removes the files that stay.
        let _ = staged.remove().await;
        done.map(|()| Imported { sstables, partitions, removed_sources })
    }
}
