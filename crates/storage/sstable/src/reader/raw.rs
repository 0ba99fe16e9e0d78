//! A walk over everything in a data file with the places where it lies: for verification and dumps.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use mutation::{Bound, ColumnSelection, DecoratedKey, DeletionTime, Row};
use schema::Table;
use stdx::Reader;

use super::items::{ItemReader, check_open};
use crate::io::{BlockFile, Cursor};
use crate::prefix::{Kind, ParseError};
use crate::unfiltered::decode::{Item, ItemDecoder, Selection};
use crate::{SstableError, deletion};

/// One thing in a data file.
pub(crate) enum RawItem {
    /// A partition with its static row. `rows_at` is where its first item begins.
    Partition { key: DecoratedKey, deletion: DeletionTime, static_row: Option<Row>, start: u64, rows_at: u64 },
    /// A row.
    Row { row: Row, start: u64 },
    /// The place where one range deletion ends and another starts; either may be live.
    Marker { bound: Bound, kind: Kind, ends: DeletionTime, starts: DeletionTime, start: u64 },
    /// The end of the partition.
    End,
}

/// Reads a data file from its beginning.
pub(crate) struct RawScan {
    data: Cursor,
    decoder: Rc<ItemDecoder>,
    selection: Selection,
    table: Arc<Table>,
    items: ItemReader,
    inside: bool,
    open: DeletionTime,
    last_key: Option<DecoratedKey>,
}

impl RawScan {
    pub(crate) fn new(data: Rc<BlockFile>, decoder: Rc<ItemDecoder>, table: Arc<Table>) -> Self {
        Self {
            data: Cursor::new(data, 0, true),
            selection: decoder.selection(&ColumnSelection::All),
            decoder,
            table,
            items: ItemReader::default(),
            inside: false,
            open: DeletionTime::LIVE,
            last_key: None,
        }
    }

    /// Where the next item begins.
    pub(crate) fn position(&self) -> u64 {
        self.data.position()
    }

    /// The size in its file of some bytes of the data.
    pub(crate) fn on_disk(&self, bytes: u64) -> u64 {
        self.data.on_disk(bytes)
    }

    /// An error about the item that was just read.
    pub(crate) fn corrupt(&self, expected: impl Into<String>, found: impl Into<String>) -> SstableError {
        self.data.corrupt(expected, found)
    }

    /// The next item; none at the end of the file.
    pub(crate) async fn next(&mut self) -> Result<Option<RawItem>, SstableError> {
        if !self.inside && self.data.is_at_end() {
            return Ok(None);
        }
        loop {
            let parsed = if self.inside { self.item() } else { self.partition() };
            match parsed {
                Ok((item, len)) => {
                    self.data.advance(len);
                    return self.check(item).map(Some);
                }
                Err(error) => self.data.resolve(error).await?,
            }
        }
    }

    fn check(&mut self, item: RawItem) -> Result<RawItem, SstableError> {
        match &item {
            RawItem::Partition { key, .. } => {
                if let Some(last) = self.last_key.as_ref().filter(|last| *last >= key) {
                    return Err(self.corrupt(format!("a key after {last:?}"), format!("{key:?}")));
                }
                self.last_key = Some(key.clone());
                self.items.reset();
                self.inside = true;
            }
            RawItem::End => self.inside = false,
            RawItem::Marker { starts, .. } => self.open = *starts,
            RawItem::Row { .. } => {}
        }
        Ok(item)
    }

    fn partition(&self) -> Result<(RawItem, usize), ParseError> {
        let (bytes, start) = (self.data.bytes(), self.data.position());
        let mut reader = Reader::new(bytes);
        let key = reader.bytes_u16()?;
        let deletion = deletion::read(&mut reader)?;
        let mut len = bytes.len() - reader.len();
        let mut static_row = None;
        if self.decoder.has_static() {
            let (row, row_len) = self.decoder.static_row(reader.rest(), &self.selection)?;
            static_row = row;
            len += row_len;
        }
        let key = DecoratedKey::new(Bytes::copy_from_slice(key));
        Ok((RawItem::Partition { key, deletion, static_row, start, rows_at: start + len as u64 }, len))
    }

    #[expect(clippy::expect_used, reason = "the decoder refuses markers of other kinds")]
    fn item(&mut self) -> Result<(RawItem, usize), ParseError> {
        let start = self.data.position();
        Ok(match self.decoder.item(self.data.bytes())? {
            (Item::End, len) => {
                check_open(self.open, DeletionTime::LIVE)?;
                (RawItem::End, len)
            }
            (Item::Row { flags, values, body }, len) => {
                self.items.take(&self.decoder, &values, Kind::Row)?;
                let row = self.decoder.row(flags, body, self.items.clustering(), &self.selection)?;
                (RawItem::Row { row, start }, len)
            }
            (Item::Marker { kind, values, ends, starts }, len) => {
                self.items.take(&self.decoder, &values, kind)?;
                check_open(self.open, ends)?;
                let bound = Bound::new(&self.table, &values, kind.side().expect("a marker has a side"));
                (RawItem::Marker { bound, kind, ends, starts, start }, len)
            }
        })
    }
}
