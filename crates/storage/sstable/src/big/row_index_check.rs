//! Compares the row index of a partition with its items while they are read: of a partition of any number of rows one block is held.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use mutation::DeletionTime;

use super::row_index::RowIndex;
use crate::SstableError;
use crate::index::{ReadHead, ReadItem, RowBlock};
use crate::unfiltered::decode::ItemDecoder;

/// A difference: the content of the data, and that of the row index.
pub(super) struct Difference {
    pub(super) expected: String,
    pub(super) found: String,
}

/// The comparison, as long as it has found no difference.
pub(super) type Compared = Result<RowIndexCheck, Difference>;

fn differs(expected: String, found: String) -> Difference {
    Difference { expected, found }
}

/// A partition's row index, as far as its items have been read.
pub(super) struct RowIndexCheck {
    row_index: RowIndex,
    /// Where the partition begins in the data.
    start: u64,
    /// Up to where blocks were compared.
    at: u64,
    /// The number of the next block.
    next: u32,
    /// The block whose items are being read.
    block: Option<RowBlock>,
    /// The position of the latest item of that block.
    last: Vec<u8>,
    /// The range deletion in force behind it.
    open: DeletionTime,
}

impl RowIndexCheck {
    /// Compares the head of a partition.
    pub(super) fn begin(row_index: RowIndex, head: &ReadHead) -> Compared {
        let (header_len, there) = (head.rows_at - head.start, row_index.head());
        if there.header_len != header_len {
            return Err(differs(format!("a header of {header_len} bytes"), there.header_len.to_string()));
        }
        if there.deletion != head.deletion {
            let expected = format!("a partition with {:?}", head.deletion);
            return Err(differs(expected, format!("{:?}", there.deletion)));
        }
        Ok(Self {
            row_index,
            start: head.start,
            at: head.rows_at,
            next: 0,
            block: None,
            last: Vec::new(),
            open: DeletionTime::LIVE,
        })
    }

    /// Compares the next item.
    pub(super) async fn item(
        mut self,
        item: ReadItem<'_>,
        decoder: &ItemDecoder,
    ) -> Result<Compared, SstableError> {
        assert!(item.start >= self.at, "items are taken in the order of the file");
        if self.block.as_ref().is_some_and(|block| item.start >= self.end_of(block))
            && let Err(difference) = self.end_block()
        {
            return Ok(Err(difference));
        }
        if self.block.is_none()
            && let Err(difference) = self.begin_block(Some(item.position), decoder).await?
        {
            return Ok(Err(difference));
        }
        if self.block.as_ref().is_some_and(|block| item.start >= self.end_of(block)) {
            let number = self.next - 1;
            return Ok(Err(differs(format!("an item in block {number}"), "none".to_owned())));
        }
        self.last.clear();
        self.last.extend_from_slice(item.position);
        self.open = item.open;
        Ok(Ok(self))
    }

    /// Compares the end of the partition, which is at `end`.
    pub(super) async fn end(mut self, end: u64, decoder: &ItemDecoder) -> Result<Compared, SstableError> {
        if self.block.is_some()
            && let Err(difference) = self.end_block()
        {
            return Ok(Err(difference));
        }
        if self.next < self.row_index.blocks()
            && let Err(difference) = self.begin_block(None, decoder).await?
        {
            return Ok(Err(difference));
        }
        // Writers differ in whether the last block counts the end of the partition in.
        if self.at != end && self.at + 1 != end {
            return Ok(Err(differs(format!("blocks up to {end}"), self.at.to_string())));
        }
        Ok(Ok(self))
    }

    /// Bytes of positions that are held.
    pub(super) fn held_bytes(&self) -> usize {
        let block = self.block.as_ref().map_or(0, |block| block.first.capacity() + block.last.capacity());
        self.last.capacity() + block
    }

    fn end_of(&self, block: &RowBlock) -> u64 {
        self.start.saturating_add(block.offset).saturating_add(block.width)
    }

    /// Takes the next block, whose first item has this position.
    async fn begin_block(
        &mut self,
        first: Option<&[u8]>,
        decoder: &ItemDecoder,
    ) -> Result<Result<(), Difference>, SstableError> {
        let number = self.next;
        if number == self.row_index.blocks() {
            let expected = format!("a block of rows at {}", self.at);
            return Ok(Err(differs(expected, format!("{number} blocks"))));
        }
        let block = self.row_index.get(number, decoder).await?;
        let begins = self.start.saturating_add(block.offset);
        if begins != self.at {
            return Ok(Err(differs(format!("block {number} at {}", self.at), begins.to_string())));
        }
        if first != Some(&block.first[..]) {
            let expected = format!("{first:02x?} first in block {number}");
            return Ok(Err(differs(expected, format!("{:02x?}", block.first))));
        }
        self.next += 1;
        self.block = Some(block);
        Ok(Ok(()))
    }

    /// Compares the present block, whose items have been read.
    fn end_block(&mut self) -> Result<(), Difference> {
        let Some(block) = self.block.take() else { return Ok(()) };
        assert!(self.next > 0, "a block that ends has begun");
        let number = self.next - 1;
        if self.last != block.last {
            let expected = format!("{:02x?} last in block {number}", self.last);
            return Err(differs(expected, format!("{:02x?}", block.last)));
        }
        if self.open != block.open {
            return Err(differs(
                format!("{:?} behind block {number}", self.open),
                format!("{:?}", block.open),
            ));
        }
        self.at = self.end_of(&block);
        Ok(())
    }
}
