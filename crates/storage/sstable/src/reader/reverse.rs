//! The way through a partition in descending order: blocks of rows from the last to the first, each read forward and
//! handed on from its end.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use mutation::{Bound, DeletionTime, FragmentBuffer, RowRange};

use super::items::{ItemReader, check_expected, check_open};
use super::source::SstableSource;
use super::walk::{ReverseItem, Walk};
use crate::SstableError;
use crate::index::RowBlock;
use crate::prefix::{Kind, ParseError};
use crate::unfiltered::decode::Item;

impl SstableSource {
    /// Appends the next fragments of the partition; whether it is complete.
    pub(super) async fn reverse(
        &mut self,
        out: &mut FragmentBuffer,
        budget: &mut usize,
    ) -> Result<bool, SstableError> {
        let slices = self.slices.clone();
        let walk = self.reverse_walk();
        walk.drain(out, budget);
        if !walk.block.is_empty() {
            return Ok(false);
        }
        let Some(slice) = walk.slices.checked_sub(1).and_then(|at| slices.ranges().get(at)) else {
            return Ok(true);
        };
        match walk.blocks {
            None => self.find_blocks(slice, out).await?,
            Some((first, end)) if first < end => {
                walk.blocks = Some((first, end - 1));
                self.read_block(end - 1, slice, out).await?;
            }
            Some(_) => {
                walk.announce(&slice.start, DeletionTime::LIVE, out);
                walk.slices -= 1;
                walk.blocks = None;
                walk.entered = false;
            }
        }
        Ok(false)
    }

    /// Finds the blocks that a slice touches.
    async fn find_blocks(&mut self, slice: &RowRange, out: &mut FragmentBuffer) -> Result<(), SstableError> {
        let decoder = self.decoder.clone();
        let walk = self.reverse_walk();
        let Some(lookup) = &mut walk.lookup else {
            walk.blocks = Some((0, 1));
            return Ok(());
        };
        let (start, end) = (slice.start.position(), slice.end.position());
        let first = lookup.first_where(&decoder, |info| info.last.as_slice() > start).await?;
        let Some((first, _)) = first else {
            // The partition ends before the slice begins.
            walk.blocks = Some((0, 0));
            return Ok(());
        };
        let beyond = lookup.first_where(&decoder, |info| info.first.as_slice() >= end).await?;
        let beyond = beyond.map_or(lookup.blocks(), |(block, _)| block);
        walk.blocks = Some((first, beyond));
        if first >= beyond && beyond > 0 {
            // The slice lies between two blocks; a range deletion may cover it.
            let open = lookup.get(beyond - 1, &decoder).await?.open;
            walk.announce(&slice.end, open, out);
            walk.blocks = Some((0, 0));
        }
        Ok(())
    }

    /// Reads a block's rows of a slice.
    async fn read_block(
        &mut self,
        block: u32,
        slice: &RowRange,
        out: &mut FragmentBuffer,
    ) -> Result<(), SstableError> {
        let decoder = self.decoder.clone();
        let walk = self.reverse_walk();
        assert!(walk.block.is_empty(), "a block is handed on before the next is read");
        let (mut open, mut at, mut info) = (DeletionTime::LIVE, walk.rows_at, None);
        if let Some(lookup) = &mut walk.lookup {
            let found: RowBlock = lookup.get(block, &decoder).await?;
            at = walk.start.saturating_add(found.offset);
            open = lookup.open_before(block, &found, &decoder).await?;
            info = Some(found);
        }
        self.reverse_walk().expected = info.as_ref().map(|info| info.first.clone());
        let end = info.as_ref().map_or(u64::MAX, |info| at.saturating_add(info.width));
        self.data.seek(at)?;
        self.items.reset();
        let mut reached_end = true;
        while self.data.position() < end {
            match self.reverse_item(slice, &mut open) {
                Ok(Some(len)) => self.data.advance(len),
                Ok(None) => {
                    reached_end = false;
                    break;
                }
                Err(error) => self.data.resolve(error).await?,
            }
        }
        if let Some(info) = info.filter(|info| reached_end && info.open != open) {
            return Err(self
                .data
                .corrupt(format!("{:?} open at the end of the block", info.open), format!("{open:?}")));
        }
        let walk = self.reverse_walk();
        if !walk.entered {
            walk.entered = true;
            walk.announce(&slice.end, open, out);
        } else if walk.announced != open {
            let announced = walk.announced;
            return Err(self
                .data
                .corrupt(format!("{announced:?} open at the end of the block"), format!("{open:?}")));
        }
        Ok(())
    }

    /// Reads the item at the cursor; gives its length, or none when it lies behind the slice or ends the partition.
    #[expect(clippy::expect_used, reason = "the decoder refuses markers of other kinds")]
    fn reverse_item(
        &mut self,
        slice: &RowRange,
        open: &mut DeletionTime,
    ) -> Result<Option<usize>, ParseError> {
        let (decoder, sstable, selection) = (&self.decoder, &self.sstable, &self.selection);
        let items: &mut ItemReader = &mut self.items;
        let Walk::Reverse(walk) = &mut self.walk else { unreachable!("a reverse walk is under way") };
        let (taken, len) = match decoder.item(self.data.bytes())? {
            (Item::End, _) => {
                check_expected(&mut walk.expected, &[])?;
                check_open(*open, DeletionTime::LIVE)?;
                return Ok(None);
            }
            (Item::Row { flags, values, body }, len) => {
                items.take(decoder, &values, Kind::Row)?;
                check_expected(&mut walk.expected, items.position())?;
                if items.position() >= slice.end.position() {
                    return Ok(None);
                }
                if items.position() <= slice.start.position() {
                    return Ok(Some(len));
                }
                (ReverseItem::Row(decoder.row(flags, body, items.clustering(), selection)?, len), len)
            }
            (Item::Marker { kind, values, ends, starts }, len) => {
                items.take(decoder, &values, kind)?;
                check_expected(&mut walk.expected, items.position())?;
                check_open(*open, ends)?;
                if items.position() >= slice.end.position() {
                    return Ok(None);
                }
                *open = starts;
                if items.position() <= slice.start.position() {
                    return Ok(Some(len));
                }
                let side = kind.side().expect("a marker has a side");
                (ReverseItem::Marker(Bound::new(&sstable.table.borrow(), &values, side), ends), len)
            }
        };
        walk.block.push(taken);
        Ok(Some(len))
    }
}
