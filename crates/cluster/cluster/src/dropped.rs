//! Tables whose removal is under way. Written before a schema without them is, so that a crash in the middle of a DROP is
//! finished at the next start; a table that is still in the schema was not dropped.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rt::{Disk, DiskError};
use schema::{Table, TableId};
use serde::{Deserialize, Serialize};

use crate::codec::{self, StoredTable};
use crate::error::StoreError;

const FILE_NAME: &str = "dropped.json";
/// Beyond the definitions of all tables of a schema that fits its own file.
const BYTES_MAX: usize = 512 << 20;

/// A table that was dropped, and whose files may still be there.
#[derive(Clone, Debug, PartialEq)]
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
    /// Its last definition, where it allows a snapshot: the next start reads its rows in the commit log by it. None in a list that an
    /// earlier version wrote.
    pub definition: Option<Arc<Table>>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    keyspace: String,
    name: String,
    id: String,
    at_micros: i64,
    allow_snapshot: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    definition: Option<StoredTable>,
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
            definition: table.options.allow_auto_snapshot.then(|| Arc::new(Table::clone(table))),
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

    async fn save(&self) -> Result<(), DiskError> {
        self.disk.write_atomically(&self.path, &encode(&self.tables)).await
    }
}

#[expect(clippy::expect_used, reason = "names and numbers have a JSON form")]
fn encode(tables: &[DroppedTable]) -> Vec<u8> {
    let stored = |table: &DroppedTable| Stored {
        keyspace: table.keyspace.clone(),
        name: table.name.clone(),
        id: table.id.to_string(),
        at_micros: table.at_micros,
        allow_snapshot: table.allow_snapshot,
        definition: table.definition.as_deref().map(codec::store_table),
    };
    let all: Vec<Stored> = tables.iter().map(stored).collect();
    serde_json::to_vec(&all).expect("names and numbers")
}

fn decode(bytes: &[u8]) -> Result<Vec<DroppedTable>, crate::SchemaCodecError> {
    let stored: Vec<Stored> = serde_json::from_slice(bytes)?;
    let table = |stored: Stored| {
        let id = crate::stored_value::parse_id(&stored.id)
            .ok_or_else(|| crate::SchemaCodecError::Value { what: "table id", found: stored.id.clone() })?;
        let Stored { keyspace, name, at_micros, allow_snapshot, definition, .. } = stored;
        let definition = definition.map(|definition| codec::load_table(&keyspace, definition)).transpose()?;
        if definition.as_ref().is_some_and(|table| table.id != id) {
            let found = id.to_string();
            return Err(crate::SchemaCodecError::Value { what: "table id of a definition", found });
        }
        Ok(DroppedTable {
            keyspace,
            name,
            id,
            at_micros,
            allow_snapshot,
            definition: definition.map(Arc::new),
        })
    };
    stored.into_iter().map(table).collect()
}

#[cfg(test)]
mod tests {
    use schema::TableBuilder;
    use types::CqlType;

    use super::*;

    #[test]
    fn a_list_has_definitions_and_is_read_without_them() {
        let id = TableId([7; 16]);
        let table = TableBuilder::new("ks", "t", id).partition_key("k", CqlType::Int);
        let table = table.regular("v", CqlType::Text).build().unwrap();
        let mut dropped = DroppedTable {
            keyspace: "ks".to_owned(),
            name: "t".to_owned(),
            id,
            at_micros: 9,
            allow_snapshot: true,
            definition: Some(Arc::new(table)),
        };
        assert_eq!(decode(&encode(std::slice::from_ref(&dropped))).unwrap(), [dropped.clone()]);

        let other = encode(&[DroppedTable { id: TableId([8; 16]), ..dropped.clone() }]);
        assert!(decode(&other).is_err(), "the definition of another table");

        dropped.definition = None;
        let bytes = encode(std::slice::from_ref(&dropped));
        assert!(!String::from_utf8_lossy(&bytes).contains("definition"), "as an earlier version wrote it");
        assert_eq!(decode(&bytes).unwrap(), [dropped]);
    }
}
