//! A logged batch as a row of `system.batches`, and as a message to the other nodes that store it.
//!
//! The message is version (1), id (16), when it was taken up (8, microseconds), vint count, { vint length, update }; that
//! takes it out is version, id and time alone.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::sync::Arc;

use bytes::Bytes;
use mutation::codec::{self, UpdatesError};
use mutation::row::ColumnData;
use mutation::{
    Cell as Value, Clustering, Complex, ComplexCell, DecoratedKey, DeletionTime, LivenessInfo,
    PartitionUpdate, Row,
};
use replica::{PartitionResult, ReplicaError};
use rpc::Refusal;
use schema::{Schema, Table, TableId};
use stdx::Reader;
use stdx::vint::{read_unsigned, write_unsigned};

use crate::peer_error::malformed;

const MESSAGE_VERSION: u8 = 1;
/// The version of the mutations of [`MESSAGE_VERSION`], and of rows of versions 1 and [`ROW_VERSION`].
const MUTATIONS: codec::Version = codec::Version::V1;
const _: () = MUTATIONS.must_be_current();
const ID_LEN: usize = 16;
/// Updates of a batch that another node sends.
const UPDATES_MAX: u64 = 1 << 16;

/// A row's `version`. Rows of version 1 had updates of the shards of one node alone; they are completed as all others.
const ROW_VERSION: i32 = 2;

/// A batch that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredBatch {
    /// A time-based UUID.
    pub(crate) key: DecoratedKey,
    /// When it was taken up, microseconds.
    pub(crate) at_micros: i64,
    /// Its updates, encoded.
    pub(crate) updates: Vec<Bytes>,
}

/// The table of kept batches.
pub(crate) fn table_of(schema: &Schema) -> Option<&Arc<Table>> {
    schema.table("system", "batches")
}

/// The function that takes a batch out.
pub(crate) fn removal(
    batches: &Arc<Table>,
    key: DecoratedKey,
    at_micros: i64,
    now_micros: i64,
) -> PartitionUpdate {
    let mut update = PartitionUpdate::new(batches.clone(), key);
    let seconds = u32::try_from(now_micros / 1_000_000).unwrap_or(0);
    update.add_deletion(DeletionTime::new(at_micros, seconds));
    update
}

impl StoredBatch {
    pub(crate) fn new<'a>(
        key: DecoratedKey,
        at_micros: i64,
        updates: impl Iterator<Item = &'a PartitionUpdate>,
    ) -> Self {
        let encoded = updates.map(|update| {
            let mut bytes = Vec::new();
            codec::encode_update(update, &mut bytes);
            bytes.into()
        });
        Self { key, at_micros, updates: encoded.collect() }
    }

    /// The row that keeps it.
    pub(crate) fn row(&self, batches: &Arc<Table>) -> PartitionUpdate {
        let at_micros = self.at_micros;
        let mut row = Row::new(Clustering::empty());
        row.liveness = LivenessInfo::forever(at_micros);
        if let Some(column) = batches.column("version") {
            let version = ROW_VERSION.to_be_bytes().to_vec();
            row.set(column.id, ColumnData::Simple(Value::live(at_micros, version.into())));
        }
        if let Some(column) = batches.column("mutations") {
            let one = |(place, update): (usize, &Bytes)| ComplexCell {
                path: path(&self.key.key, place).into(),
                cell: Value::live(at_micros, update.clone()),
            };
            let cells = self.updates.iter().enumerate().map(one).collect();
            row.set(column.id, ColumnData::Complex(Complex { cells, ..Complex::empty() }));
        }
        let mut update = PartitionUpdate::new(batches.clone(), self.key.clone());
        update.add_row(row);
        update
    }

    /// The cells that a row keeps.
    pub(crate) fn read(batches: &Table, kept: &PartitionResult) -> Self {
        let mut batch = Self { key: kept.key.clone(), at_micros: i64::MIN, updates: Vec::new() };
        let mutations = batches.column("mutations").map(|column| column.id);
        for row in &kept.rows {
            batch.at_micros = batch.at_micros.max(row.liveness.timestamp);
            for (id, data) in row.columns() {
                match data {
                    ColumnData::Complex(list) if Some(*id) == mutations => {
                        batch.updates.extend(list.cells.iter().map(|element| element.cell.value.clone()));
                    }
                    _ => {}
                }
            }
        }
        batch
    }

    /// Its id in `system.batches`.
    pub(crate) fn id(&self) -> String {
        let id: Option<[u8; 16]> = self.key.key.as_ref().try_into().ok();
        id.map(|id| TableId(id).to_string()).unwrap_or_default()
    }

    /// Its updates; those of tables that are gone are left out. Of one that is applied `again`, at this time in microseconds, so are those that are
    /// so old that later deletions may be purged ([`late_seconds`](crate::late::late_seconds)): they must not come back.
    pub(crate) fn updates(
        &self,
        schema: &Schema,
        again: Option<i64>,
    ) -> Result<Vec<PartitionUpdate>, ReplicaError> {
        let age = again.map(|now_micros| now_micros.saturating_sub(self.at_micros) / 1_000_000);
        let is_fresh = |update: &PartitionUpdate| {
            age.is_none_or(|age| age < i64::from(crate::late::late_seconds(&update.table)))
        };
        let mut updates = Vec::new();
        for bytes in &self.updates {
            let find = |id| schema.table_by_id(id).cloned();
            let update = match codec::decode_received(MUTATIONS, bytes, None, find) {
                Ok(decoded) => decoded.update,
                Err(UpdatesError::UnknownTable(_)) => continue,
                Err(error) => {
                    let message = format!("a batch in system.batches cannot be read: {error}");
                    return Err(ReplicaError::Storage(message));
                }
            };
            if is_fresh(&update) {
                updates.push(update);
            }
        }
        Ok(updates)
    }

    /// The message by which another node keeps it.
    pub(crate) fn to_message(&self) -> Bytes {
        let mut body = self.header();
        write_unsigned(self.updates.len() as u64, &mut body);
        for update in &self.updates {
            write_unsigned(update.len() as u64, &mut body);
            body.extend_from_slice(update);
        }
        body.into()
    }

    /// The message by which another node takes it out.
    pub(crate) fn to_removal(&self) -> Bytes {
        self.header().into()
    }

    fn header(&self) -> Vec<u8> {
        assert_eq!(self.key.key.len(), ID_LEN, "a batch's key is a UUID");
        let mut body = vec![MESSAGE_VERSION];
        body.extend_from_slice(&self.key.key);
        body.extend_from_slice(&self.at_micros.to_be_bytes());
        body
    }

    /// Reads [`StoredBatch::to_message`].
    pub(crate) fn from_message(body: &Bytes) -> Result<Self, Refusal> {
        let short = |_| malformed("the message ends too early");
        let mut reader = Reader::new(body);
        let (key, at_micros) = read_header(&mut reader)?;
        let count = read_unsigned(&mut reader).map_err(short)?;
        if count > UPDATES_MAX {
            return Err(malformed("more updates than a batch may have"));
        }
        let mut updates = Vec::new();
        for _ in 0..count {
            updates.push(body.slice_ref(reader.bytes_vint().map_err(short)?));
        }
        if !reader.is_empty() {
            return Err(malformed("bytes after the last update"));
        }
        Ok(Self { key, at_micros, updates })
    }

    /// Reads [`StoredBatch::to_removal`]: the batch's key and time.
    pub(crate) fn from_removal(body: &Bytes) -> Result<(DecoratedKey, i64), Refusal> {
        let mut reader = Reader::new(body);
        let header = read_header(&mut reader)?;
        if reader.is_empty() { Ok(header) } else { Err(malformed("bytes after a removal")) }
    }
}

fn read_header(reader: &mut Reader<'_>) -> Result<(DecoratedKey, i64), Refusal> {
    let short = |_| malformed("the message ends too early");
    if reader.u8().map_err(short)? != MESSAGE_VERSION {
        return Err(malformed("a version of batches that this node does not know"));
    }
    let id = reader.bytes(ID_LEN).map_err(short)?;
    let key = DecoratedKey::new(id.to_vec().into());
    Ok((key, reader.i64().map_err(short)?))
}

/// The key of a list's element: time-based UUIDs that rise with the place, whichever way their bytes are compared.
fn path(id: &[u8], place: usize) -> Vec<u8> {
    assert_eq!(id.len(), ID_LEN, "a batch's key is a UUID");
    assert!(place < 1 << 28, "the places of a batch's updates have 28 bits");
    let mut path = id.to_vec();
    if let Some(end) = path.last_chunk_mut::<4>() {
        *end = [21, 14, 7, 0].map(|shift| (place >> shift) as u8 & 0x7f);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn elements_are_in_the_order_of_their_places() {
        let paths: Vec<Vec<u8>> = [0, 1, 127, 128, 129, 20_000].map(|place| path(&[0x91; 16], place)).into();
        assert!(paths.is_sorted());
        assert!(paths.iter().all(|path| path[12..].iter().all(|byte| *byte < 0x80)));
    }

    proptest! {
        #[test]
        fn a_batch_travels(id: [u8; 16], at_micros: i64, updates in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..9)) {
            let key = DecoratedKey::new(id.to_vec().into());
            let updates = updates.into_iter().map(Bytes::from).collect();
            let batch = StoredBatch { key: key.clone(), at_micros, updates };
            prop_assert_eq!(StoredBatch::from_message(&batch.to_message()), Ok(batch.clone()));
            prop_assert_eq!(StoredBatch::from_removal(&batch.to_removal()), Ok((key, at_micros)));
        }

        #[test]
        fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..60), known: bool) {
            if let (true, Some(first)) = (known, bytes.first_mut()) {
                *first = MESSAGE_VERSION;
            }
            let bytes = Bytes::from(bytes);
            if let Ok(batch) = StoredBatch::from_message(&bytes) {
                prop_assert!(batch.updates.iter().map(|update| update.len() + 1).sum::<usize>() <= bytes.len());
            }
            let whole = bytes.len() == 25 && bytes[0] == MESSAGE_VERSION;
            prop_assert_eq!(StoredBatch::from_removal(&bytes).is_ok(), whole);
        }
    }
}
