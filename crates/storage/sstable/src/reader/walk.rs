//! The position of a stream in a partition: in clustering order, or against it.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use mutation::{Bound, DeletionTime, Fragment, FragmentBuffer, Row};

use super::items::{check_expected, cost};
use crate::format::RowIndex;
use crate::prefix::ParseError;

/// The position of the stream in a partition.
pub(super) enum Walk {
    Outside,
    Forward(ForwardWalk),
    Reverse(ReverseWalk),
}

/// The way through the slices of a partition in clustering order.
pub(super) struct ForwardWalk {
    /// The position of the partition in the data.
    pub(super) start: u64,
    /// Its row index.
    pub(super) lookup: Option<RowIndex>,
    /// The slice that the walk is in or before.
    pub(super) slice: usize,
    /// Whether its start was passed.
    pub(super) entered: bool,
    /// Whether the next partition is expected behind this one, which is therefore read to its end.
    pub(super) to_end: bool,
    /// Whether the row index is to be asked where the slice begins.
    pub(super) look_up: bool,
    /// The range deletion in force in the file.
    pub(super) open: DeletionTime,
    /// The one that the reader of the stream knows of.
    pub(super) announced: DeletionTime,
    /// The position of the next item, as the row index says that led there.
    pub(super) expected: Option<Vec<u8>>,
}

impl ForwardWalk {
    /// Compares the place of the item at the cursor with that in the row index.
    #[inline]
    pub(super) fn check_expected(&mut self, position: &[u8]) -> Result<(), ParseError> {
        check_expected(&mut self.expected, position)
    }

    /// Moves through the slices to the item at `position`, announcing the open deletions at their edges; whether the item lies
    /// in a slice.
    #[inline]
    pub(super) fn covers(
        &mut self,
        position: &[u8],
        slices: &[mutation::RowRange],
        out: &mut FragmentBuffer,
    ) -> bool {
        while let Some(slice) = slices.get(self.slice) {
            if position < slice.end.position() {
                if position <= slice.start.position() {
                    return false;
                }
                self.enter(&slice.start, out);
                self.look_up = false;
                return true;
            }
            self.enter(&slice.start, out);
            if !self.announced.is_live() {
                self.announced = DeletionTime::LIVE;
                out.push_back(Fragment::RangeTombstoneChange {
                    bound: slice.end.clone(),
                    deletion: DeletionTime::LIVE,
                });
            }
            self.slice += 1;
            self.entered = false;
            self.look_up = self.lookup.is_some();
        }
        false
    }

    #[inline]
    fn enter(&mut self, start: &Bound, out: &mut FragmentBuffer) {
        if self.entered {
            return;
        }
        self.entered = true;
        if self.open != self.announced {
            self.announced = self.open;
            out.push_back(Fragment::RangeTombstoneChange { bound: start.clone(), deletion: self.open });
        }
    }
}

/// The position of a reversed stream in a partition.
pub(super) struct ReverseWalk {
    /// The position of the partition in the data.
    pub(super) start: u64,
    /// The position of its first item.
    pub(super) rows_at: u64,
    /// Its row index.
    pub(super) lookup: Option<RowIndex>,
    /// Slices that are still to come, the current one included.
    pub(super) slices: usize,
    /// Blocks of the current slice that are still to come: from the first to the one before this. `None` before the
    /// slice's blocks were looked up.
    pub(super) blocks: Option<(u32, u32)>,
    /// Whether the slice's upper end was passed.
    pub(super) entered: bool,
    /// The rows that the current block holds of the slice, in clustering order.
    pub(super) block: Vec<ReverseItem>,
    /// The range deletion that the reader of the stream knows of.
    pub(super) announced: DeletionTime,
    /// The position of the first item of the block, as the row index says.
    pub(super) expected: Option<Vec<u8>>,
}

/// The content of a block.
pub(super) enum ReverseItem {
    Row(Row, usize),
    /// A bound and the range deletion in force below it.
    Marker(Bound, DeletionTime),
}

impl ReverseWalk {
    pub(super) fn new(start: u64, rows_at: u64, lookup: Option<RowIndex>, slices: usize) -> Self {
        Self {
            start,
            rows_at,
            lookup,
            slices,
            blocks: None,
            entered: false,
            block: Vec::new(),
            announced: DeletionTime::LIVE,
            expected: None,
        }
    }

    /// Notifies the reader of the range deletion that is in force from a bound on.
    pub(super) fn announce(&mut self, bound: &Bound, deletion: DeletionTime, out: &mut FragmentBuffer) {
        if self.announced != deletion {
            self.announced = deletion;
            out.push_back(Fragment::RangeTombstoneChange { bound: bound.clone(), deletion });
        }
    }

    /// Emits the items read from the block.
    pub(super) fn drain(&mut self, out: &mut FragmentBuffer, budget: &mut usize) {
        while *budget > 0 {
            match self.block.pop() {
                Some(ReverseItem::Row(row, len)) => {
                    *budget = budget.saturating_sub(cost(&row, len));
                    out.push_back(Fragment::Row(row));
                }
                Some(ReverseItem::Marker(bound, below)) => self.announce(&bound, below, out),
                None => break,
            }
        }
    }
}
