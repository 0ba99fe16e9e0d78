//! Tables whose removal is under way. Written before a schema without them is, so that a crash in the middle of a DROP is
//! finished at the next start; a table that is still in the schema was not dropped.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::path::{Path, PathBuf};

use rt::{Disk, DiskError};
use schema::{Table, TableId};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;

const FILE_NAME: &str = "dropped.json";
const BYTES_MAX: usize = 64 << 20;

/// A table that was dropped, and whose files may still be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedTable {
    /// Its keyspace.
    pub keyspace: String,
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: TableId,
    /// When, microseconds since the epoch.
    pub at_micros: i64,
    /// Whether the table allows a snapshot before it goes.
    pub allow_snapshot: bool,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    keyspace: String,
    name: String,
    id: String,
    at_micros: i64,
    allow_snapshot: bool,
}

/// The tables whose removal is under way, in memory and on disk.
pub(crate) struct DropLog {
    disk: Disk,
    path: PathBuf,
    tables: Vec<DroppedTable>,
}

impl DropLog {
    /// Reads the log in `directory`.
    pub(crate) async fn open(disk: &Disk, directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(FILE_NAME);
        let tables = match disk.read_durably(&path, BYTES_MAX).await {
            Ok(bytes) => decode(&bytes).map_err(|error| StoreError::Corrupt { path: path.clone(), error })?,
            Err(error) if error.is_not_found() => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        Ok(Self { disk: disk.clone(), path, tables })
    }

    pub(crate) fn tables(&self) -> &[DroppedTable] {
        &self.tables
    }

    /// Adds tables, durably.
    pub(crate) async fn add(&mut self, tables: &[&Table], at_micros: i64) -> Result<(), DiskError> {
        let dropped = |table: &&Table| DroppedTable {
            keyspace: table.keyspace.clone(),
            name: table.name.clone(),
            id: table.id,
            at_micros,
            allow_snapshot: table.options.allow_auto_snapshot,
        };
        let before = self.tables.len();
        self.tables.extend(tables.iter().map(dropped));
        // An entry counts only once it is durable.
        self.save().await.inspect_err(|_| self.tables.truncate(before))
    }

    /// Forgets tables whose files are gone, or that were not dropped after all.
    pub(crate) async fn forget(&mut self, ids: &[TableId]) -> Result<(), DiskError> {
        if ids.is_empty() {
            return Ok(());
        }
        self.tables.retain(|table| !ids.contains(&table.id));
        self.save().await
    }

    #[expect(clippy::expect_used, reason = "names and numbers have a JSON form")]
    async fn save(&self) -> Result<(), DiskError> {
        let stored = |table: &DroppedTable| Stored {
            keyspace: table.keyspace.clone(),
            name: table.name.clone(),
            id: table.id.to_string(),
            at_micros: table.at_micros,
            allow_snapshot: table.allow_snapshot,
        };
        let all: Vec<Stored> = self.tables.iter().map(stored).collect();
        let bytes = serde_json::to_vec_pretty(&all).expect("names and numbers");
        self.disk.write_atomically(&self.path, &bytes).await
    }
}

fn decode(bytes: &[u8]) -> Result<Vec<DroppedTable>, crate::SchemaCodecError> {
    let stored: Vec<Stored> = serde_json::from_slice(bytes)?;
    let table = |stored: Stored| {
        let id = crate::stored_value::parse_id(&stored.id)
            .ok_or_else(|| crate::SchemaCodecError::Value { what: "table id", found: stored.id.clone() })?;
        let Stored { keyspace, name, at_micros, allow_snapshot, .. } = stored;
        Ok(DroppedTable { keyspace, name, id, at_micros, allow_snapshot })
    };
    stored.into_iter().map(table).collect()
}
