//! Items of a partition: their order, and the parts of them that are compared.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use bytes::Bytes;
use mutation::{Clustering, DeletionTime, Fragment, Row};

use crate::prefix::{Kind, ParseError, Values};
use crate::unfiltered::decode::ItemDecoder;

/// Reads items and knows their positions.
#[derive(Default)]
pub(super) struct ItemReader {
    /// Buffer of the item at the cursor, values first.
    buffer: Vec<u8>,
    values_len: usize,
    /// Buffer of the item before; empty at the start of a partition.
    last: Vec<u8>,
}

impl ItemReader {
    pub(super) fn reset(&mut self) {
        self.buffer.clear();
        self.values_len = 0;
    }

    pub(super) fn position(&self) -> &[u8] {
        self.buffer.get(self.values_len..).unwrap_or_default()
    }

    /// Encodes the position of an item and checks that it lies after the one before.
    #[inline]
    pub(super) fn take(
        &mut self,
        decoder: &ItemDecoder,
        values: &Values<'_>,
        kind: Kind,
    ) -> Result<(), ParseError> {
        std::mem::swap(&mut self.buffer, &mut self.last);
        let before = self.values_len.min(self.last.len());
        let had_before = !self.last.is_empty();
        self.values_len = decoder.encode_position(values, kind, &mut self.buffer);
        let (position, before) = (self.position(), self.last.get(before..).unwrap_or_default());
        // Markers at one place may follow each other.
        if had_before && (before > position || (before == position && kind == Kind::Row)) {
            return Err(ParseError::invalid("rows in clustering order", format!("{values:02x?}")));
        }
        Ok(())
    }

    /// The key of the row that was taken.
    #[inline]
    pub(super) fn clustering(&self) -> Clustering {
        if self.values_len == 0 {
            Clustering::empty()
        } else {
            Clustering::from_buffer(Bytes::copy_from_slice(&self.buffer), self.values_len)
        }
    }
}

/// Compares the place of an item with that in the row index, if it led there.
#[inline]
pub(super) fn check_expected(expected: &mut Option<Vec<u8>>, position: &[u8]) -> Result<(), ParseError> {
    match expected.take() {
        Some(expected) if expected != position => {
            let found = format!("one at {position:02x?} instead of {expected:02x?}");
            Err(ParseError::invalid("the item that the row index leads to", found))
        }
        _ => Ok(()),
    }
}

/// The deletion that a marker ends must be the one that is open.
pub(super) fn check_open(open: DeletionTime, ends: DeletionTime) -> Result<(), ParseError> {
    if open != ends {
        return Err(ParseError::invalid(
            "a marker that ends the open range deletion",
            format!("{ends:?}, open is {open:?}"),
        ));
    }
    Ok(())
}

/// Bytes that a row counts for in a batch.
#[inline]
pub(super) fn cost(row: &Row, len: usize) -> usize {
    size_of::<Fragment>() + row.column_count() * 64 + len
}
