//! The row index of a wide partition: its blocks of rows, found by their place.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::rc::Rc;

use mutation::DeletionTime;

use super::entry::{ROW_INDEX_HEAD_MAX, RowIndexPlaces, read_block};
use crate::SstableError;
use crate::index::{Entry, PartitionHead, RowBlock};
use crate::io::{BlockFile, Cursor};
use crate::unfiltered::decode::ItemDecoder;

/// The error of bytes that are all there.
async fn fail(cursor: &mut Cursor, error: crate::prefix::ParseError) -> SstableError {
    match cursor.resolve(error).await {
        Ok(()) => cursor.corrupt("an entry as long as its content", "a shorter one"),
        Err(error) => error,
    }
}

/// Reads the descriptions of a partition's blocks.
pub(crate) struct RowIndex {
    cursor: Cursor,
    places: RowIndexPlaces,
}

impl RowIndex {
    /// That of an entry's partition, if it has one.
    pub(crate) async fn of(index: &Rc<BlockFile>, entry: &Entry) -> Result<Option<Self>, SstableError> {
        let Some((at, len)) = entry.row_index else {
            return Ok(None);
        };
        let mut cursor = Cursor::new(index.clone(), at, false);
        let head_len = len.min(ROW_INDEX_HEAD_MAX as u64) as usize;
        cursor.extend(head_len).await?;
        match RowIndexPlaces::read(cursor.bytes().get(..head_len).unwrap_or_default(), at, len) {
            Ok(places) => {
                assert!(places.infos_at <= places.offsets_at, "descriptions of blocks precede their offsets");
                assert!(places.offsets_at < at + len, "a row index has a block");
                Ok(Some(Self { cursor: Cursor::new(index.clone(), places.infos_at, false), places }))
            }
            Err(error) => Err(fail(&mut cursor, error).await),
        }
    }

    /// Its content about the partition.
    pub(crate) fn head(&self) -> PartitionHead {
        self.places.header
    }

    /// How many blocks there are; never none.
    pub(crate) fn blocks(&self) -> u32 {
        self.places.blocks
    }

    /// The description of a block, which exists.
    pub(crate) async fn get(&mut self, block: u32, decoder: &ItemDecoder) -> Result<RowBlock, SstableError> {
        assert!(block < self.places.blocks, "a block of the row index");
        self.cursor.seek(self.places.offsets_at + u64::from(block) * 4)?;
        while self.cursor.bytes().len() < 4 {
            self.cursor.extend(4 - self.cursor.bytes().len()).await?;
        }
        let offset = self.cursor.bytes().first_chunk::<4>().map_or(0, |offset| u32::from_be_bytes(*offset));
        let at = self.places.infos_at + u64::from(offset);
        if at >= self.places.offsets_at {
            return Err(self
                .cursor
                .corrupt("the offset of a block within the row index", offset.to_string()));
        }
        self.cursor.seek(at)?;
        loop {
            let rest = (self.places.offsets_at - at).min(self.cursor.bytes().len() as u64) as usize;
            let bytes = self.cursor.bytes().get(..rest).unwrap_or_default();
            match read_block(bytes, decoder.types(), decoder.order()) {
                Ok(info) => return Ok(info),
                Err(error) if at + rest as u64 == self.places.offsets_at => {
                    return Err(fail(&mut self.cursor, error).await);
                }
                Err(error) => self.cursor.resolve(error).await?,
            }
        }
    }

    /// The range deletion in force where a block begins. The block before has to fit.
    pub(crate) async fn open_before(
        &mut self,
        block: u32,
        info: &RowBlock,
        decoder: &ItemDecoder,
    ) -> Result<DeletionTime, SstableError> {
        let Some(before) = block.checked_sub(1) else {
            if info.offset != self.places.header.header_len {
                return Err(self.cursor.corrupt("a first block behind the header", info.offset.to_string()));
            }
            return Ok(DeletionTime::LIVE);
        };
        let before = self.get(before, decoder).await?;
        let follows =
            before.offset.checked_add(before.width) == Some(info.offset) && before.last <= info.first;
        if !follows {
            return Err(self
                .cursor
                .corrupt("blocks of rows that follow each other", format!("{before:?}, {info:?}")));
        }
        Ok(before.open)
    }

    /// The first block for which `test` holds, with its description; blocks for which it holds follow those for which it
    /// does not.
    pub(crate) async fn first_where(
        &mut self,
        decoder: &ItemDecoder,
        test: impl Fn(&RowBlock) -> bool,
    ) -> Result<Option<(u32, RowBlock)>, SstableError> {
        let (mut low, mut high) = (0, self.places.blocks);
        let mut found = None;
        while low < high {
            let middle = u32::midpoint(low, high);
            let info = self.get(middle, decoder).await?;
            if test(&info) {
                high = middle;
                found = Some((middle, info));
            } else {
                low = middle + 1;
            }
        }
        let at = found.as_ref().map_or(self.places.blocks, |(block, _)| *block);
        assert_eq!(at, low, "a search ends at the block that it gives");
        Ok(found)
    }
}
