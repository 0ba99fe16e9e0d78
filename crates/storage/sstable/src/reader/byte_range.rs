//! The partitions of a range as the bytes that they are in the file: for copying them into another SSTable of the same header
//! without looking into rows.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::rc::Rc;

use mutation::{ColumnSelection, DecoratedKey, PartitionRange};
use stdx::Reader;

use super::sstable::Sstable;
use crate::format::IndexCursor;
use crate::io::Cursor;
use crate::prefix::ParseError;
use crate::unfiltered::decode::{Item, ItemDecoder, Selection};
use crate::{SstableError, deletion};

/// A partition that comes next, and its row index as it is in the file; empty when it has none.
pub(crate) struct RangePartition {
    pub(crate) key: DecoratedKey,
    pub(crate) row_index: Vec<u8>,
}

/// The copied data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    Row,
    Marker,
    End,
}

/// The partitions of a range, one after the other.
pub(crate) struct ByteRange {
    sstable: Rc<Sstable>,
    range: PartitionRange,
    decoder: Rc<ItemDecoder>,
    selection: Selection,
    index: IndexCursor,
    data: Cursor,
    /// The partition before, to check the order.
    last: Option<DecoratedKey>,
}

impl ByteRange {
    pub(crate) async fn begin(sstable: &Rc<Sstable>, range: &PartitionRange) -> Result<Self, SstableError> {
        let decoder = sstable.decoder();
        Ok(Self {
            sstable: sstable.clone(),
            range: range.clone(),
            selection: decoder.selection(&ColumnSelection::All),
            decoder,
            index: sstable.index.entries_from(&range.start, true).await?,
            data: Cursor::new(sstable.data.clone(), 0, true),
            last: None,
        })
    }

    /// The next partition for which `wanted` holds; none behind the range.
    #[expect(clippy::expect_used, reason = "entries read in order have their keys")]
    pub(crate) async fn next(
        &mut self,
        wanted: impl Fn(i64) -> bool,
    ) -> Result<Option<RangePartition>, SstableError> {
        while let Some(entry) = self.index.next().await? {
            let key = entry.key.clone().expect("entries read in order have their keys");
            if self.last.as_ref().is_some_and(|last| *last >= key) {
                return Err(self.index.corrupt("keys in ring order", format!("{key:?}")));
            }
            self.last = Some(key.clone());
            if self.range.end.is_before(&key) {
                return Ok(None);
            }
            if wanted(key.token) {
                let row_index = self.sstable.index.row_index_bytes(&entry).await?;
                self.data.seek(entry.position)?;
                return Ok(Some(RangePartition { key, row_index }));
            }
        }
        Ok(None)
    }

    /// Copies the bytes before a partition's items; whether there is a static row with content.
    pub(crate) async fn head(&mut self, key: &DecoratedKey, out: &mut Vec<u8>) -> Result<bool, SstableError> {
        loop {
            match self.parse_head() {
                Ok((found, len, has_static)) => {
                    if *found != key.key[..] {
                        return Err(self.data.corrupt(format!("{key:?}"), format!("the key {found:02x?}")));
                    }
                    self.copy(len, out);
                    return Ok(has_static);
                }
                Err(error) => self.data.resolve(error).await?,
            }
        }
    }

    fn parse_head(&self) -> Result<(&[u8], usize, bool), ParseError> {
        let bytes = self.data.bytes();
        let mut reader = Reader::new(bytes);
        let key = reader.bytes_u16()?;
        deletion::read(&mut reader)?;
        let mut len = bytes.len() - reader.len();
        let mut has_static = false;
        if self.decoder.has_static() {
            let (row, row_len) = self.decoder.static_row(reader.rest(), &self.selection)?;
            has_static = row.is_some();
            len += row_len;
        }
        Ok((key, len, has_static))
    }

    /// Copies bytes that are at hand.
    fn copy(&mut self, len: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.data.bytes().get(..len).unwrap_or_default());
        self.data.advance(len);
    }

    /// Copies the next item of the partition.
    pub(crate) async fn item(&mut self, out: &mut Vec<u8>) -> Result<Copied, SstableError> {
        loop {
            let parsed = match self.decoder.item(self.data.bytes()) {
                Ok((Item::Row { .. }, len)) => Ok((Copied::Row, len)),
                Ok((Item::Marker { .. }, len)) => Ok((Copied::Marker, len)),
                Ok((Item::End, len)) => Ok((Copied::End, len)),
                Err(error) => Err(error),
            };
            match parsed {
                Ok((copied, len)) => {
                    self.copy(len, out);
                    return Ok(copied);
                }
                Err(error) => self.data.resolve(error).await?,
            }
        }
    }
}
