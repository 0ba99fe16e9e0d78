//! The node's copy of the schema on disk: one file, replaced as a whole at every change, with a checksum in front.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rt::{DiskError, Rt};
use schema::{Schema, Table, TableId};

use crate::codec;
use crate::dropped::{DropLog, DroppedTable};
use crate::edit::{self, EditError, SchemaEdit};
use crate::error::StoreError;
use crate::steps::{self, Steps};
use crate::written;

pub(crate) const FILE_NAME: &str = "schema.json";
const BYTES_MAX: usize = 256 << 20;

/// Holds the schema and makes changes durable before anyone sees them. Lives on one shard of a node.
pub struct SchemaStore {
    rt: Rt,
    path: PathBuf,
    current: Arc<Schema>,
    drops: DropLog,
}

impl SchemaStore {
    /// Reads the schema in `directory` (which exists), on top of the server's own keyspaces.
    ///
    /// # Errors
    /// [`StoreError::Checksum`] and [`StoreError::Corrupt`] when the file is damaged, [`StoreError::Disk`].
    pub async fn open(rt: &Rt, directory: &Path, own: Schema) -> Result<Self, StoreError> {
        let path = directory.join(FILE_NAME);
        let disk = rt.disk().clone();
        let schema = match disk.read_durably(&path, BYTES_MAX).await {
            Ok(bytes) => decode(&path, &bytes, own)?,
            Err(error) if error.is_not_found() => own,
            Err(error) => return Err(error.into()),
        };
        let current = Arc::new(stamp(schema, &mut Steps::new()).await);
        let drops = DropLog::open(&disk, directory).await?;
        Ok(Self { rt: rt.clone(), path, current, drops })
    }

    /// The schema as it is.
    pub fn current(&self) -> &Arc<Schema> {
        &self.current
    }

    /// Tables that were dropped and whose files may still be there. Those that the schema has are left out: their drop was
    /// not carried out.
    pub fn unfinished_drops(&self) -> Vec<DroppedTable> {
        let gone = |dropped: &&DroppedTable| self.current.table_by_id(dropped.id).is_none();
        self.drops.tables().iter().filter(gone).cloned().collect()
    }

    /// Forgets drops of which nothing is left to do.
    ///
    /// # Errors
    /// A [`DiskError`] when the list of drops cannot be stored.
    pub async fn forget_drops(&mut self, finished: &[TableId]) -> Result<(), DiskError> {
        self.drops.forget(finished).await
    }

    /// Applies `edits`, planned against the schema with version `base`, durably. Tables that it drops are in
    /// [`SchemaStore::unfinished_drops`] from then on.
    ///
    /// # Errors
    /// [`StoreError::Edit`] when the schema has another version than `base` or an edit does not fit it;
    /// [`StoreError::Disk`] when it cannot be stored. The schema stays as it was then.
    pub async fn change(
        &mut self,
        base: [u8; 16],
        edits: Vec<SchemaEdit>,
    ) -> Result<Arc<Schema>, StoreError> {
        if base != self.current.version() {
            return Err(EditError::Moved.into());
        }
        let changed = edit::apply(Schema::clone(&self.current), edits)?;
        assert_eq!(changed.version(), base, "a change is planned against the stored schema");
        let mut steps = Steps::new();
        let body = written::encode(&changed, &mut steps).await;
        let mut bytes = format!("{:016x}\n", checksum(&body)).into_bytes();
        bytes.extend_from_slice(&body);
        let before = self.current.clone();
        let tables = before.tables();
        let gone: Vec<&Table> =
            tables.filter(|table| changed.table_by_id(table.id).is_none()).map(|table| &**table).collect();
        if !gone.is_empty() {
            self.drops.add(&gone, self.rt.wall_micros()).await?;
        }
        self.rt.disk().write_atomically(&self.path, &bytes).await?;
        self.current = Arc::new(stamp(changed, &mut steps).await);
        let unfinished = self.unfinished_drops();
        let is_noted = |table: &&Table| unfinished.iter().any(|dropped| dropped.id == table.id);
        assert!(gone.iter().all(is_noted), "a dropped table is noted until its files are removed");
        Ok(self.current.clone())
    }
}

fn checksum(body: &[u8]) -> u64 {
    stdx::murmur3::hash128(body, 0)[0]
}

fn decode(path: &Path, bytes: &[u8], own: Schema) -> Result<Schema, StoreError> {
    let (head, body) = bytes.split_at(bytes.len().min(17));
    let expected = std::str::from_utf8(head)
        .ok()
        .and_then(|head| u64::from_str_radix(head.trim_end(), 16).ok())
        .unwrap_or_default();
    let found = checksum(body);
    if expected != found {
        return Err(StoreError::Checksum { path: path.to_owned(), expected, found });
    }
    codec::decode(body, own).map_err(|error| StoreError::Corrupt { path: path.to_owned(), error })
}

/// Gives the schema the version that its content determines, in the form of a UUID.
pub(crate) async fn stamp(schema: Schema, steps: &mut Steps) -> Schema {
    let [high, low] = written::hash(&schema, steps).await;
    let mut version = [0; 16];
    version[..8].copy_from_slice(&high.to_be_bytes());
    version[8..].copy_from_slice(&low.to_be_bytes());
    version[6] = (version[6] & 0x0f) | 0x30;
    version[8] = (version[8] & 0x3f) | 0x80;
    schema.with_version(version)
}

/// [`stamp`] in one step.
pub(crate) fn stamp_at_once(schema: Schema) -> Schema {
    steps::at_once(stamp(schema, &mut Steps::none()))
}
