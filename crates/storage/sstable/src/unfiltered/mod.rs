//! Rows and range tombstone markers as data files hold them (`UnfilteredSerializer`).
//!
//! An item is a byte of flags, its clustering, its size (so that it can be skipped), the size of the item before it, and a
//! body: times as differences to the header's, the subset of the header's columns that it has, their cells.

pub(crate) mod decode;
pub(crate) mod encode;

/// Nothing follows: the partition is complete.
pub(crate) const END_OF_PARTITION: u8 = 0x01;
const IS_MARKER: u8 = 0x02;
const HAS_TIMESTAMP: u8 = 0x04;
const HAS_TTL: u8 = 0x08;
const HAS_DELETION: u8 = 0x10;
const HAS_ALL_COLUMNS: u8 = 0x20;
const HAS_COMPLEX_DELETION: u8 = 0x40;
const HAS_EXTENSION: u8 = 0x80;

const EXTENSION_STATIC: u8 = 0x01;
const EXTENSION_SHADOWABLE: u8 = 0x02;

const CELL_DELETED: u8 = 0x01;
const CELL_EXPIRING: u8 = 0x02;
const CELL_EMPTY: u8 = 0x04;
const CELL_ROW_TIMESTAMP: u8 = 0x08;
const CELL_ROW_TTL: u8 = 0x10;

/// From this number of columns in the header on, subsets are lists instead of bits.
const LARGE_SUBSET: usize = 64;
