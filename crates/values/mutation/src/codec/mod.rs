//! The form of partition updates as bytes: in the commit log, in messages between nodes, in hints and in stored batches. Columns are
//! named, because their ids live only in memory, and the table is named by its id; so an update can be read under any later schema.
//!
//! ```text
//! update    := table id (16), key (vint length, bytes), base timestamp (8), names, parts (1 byte of flags),
//!              [deletion], [static row], [ranges], rows
//! names     := vint count, { vint length, bytes }
//! row       := clustering, flags (1), [liveness], [deletion], vint count, { vint name, column }
//! prefix    := vint count, { vint length + 1 or 0 for null, bytes }
//! deletion  := vint timestamp − base (signed), local seconds (4)
//! updates   := version (1), vint count, { vint length, update }
//! ```
//!
//! An update does not name its [`Version`]. Code that stores or sends updates has a version of its own beside them and defines to which
//! version of this form it belongs: the header of a log segment, a message, a hint, a row of stored batches or votes.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

mod cells;
mod decode;
mod encode;
mod fields;
mod list;

pub use cells::Layouts;
pub use decode::{Decoded, UpdateDecoding, decode, decode_update};
pub use encode::{UpdateEncoding, encode_update};
pub use fields::{DecodeError, Fields, put_bound, put_bytes, put_prefix};
pub use list::{
    DecodedUpdates, EncodedUpdates, UpdatesError, decode_received, decode_updates, encode_updates,
};

/// A version of the form of an update. The numbers are stored: a version is never changed, only followed by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Version {
    /// The first.
    V1 = 1,
}

impl Version {
    /// The version that is written.
    pub const CURRENT: Version = Version::V1;

    /// The version of this number; none when this build does not know it.
    pub const fn of_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::V1),
            _ => None,
        }
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// For formats with a version of their own: a build in which this version is not the one that is written does not compile, for then
    /// that format needs a new version, too.
    ///
    /// # Panics
    /// When this is not [`Version::CURRENT`].
    pub const fn must_be_current(self) {
        assert!(self as u8 == Self::CURRENT as u8, "a format that holds updates needs a new version");
    }
}

const HAS_DELETION: u8 = 1;
const HAS_STATIC: u8 = 2;
const HAS_RANGES: u8 = 4;

const ROW_LIVE: u8 = 1;
const ROW_DELETED: u8 = 2;
const ROW_TTL: u8 = 4;

pub(crate) const CELL_TOMBSTONE: u8 = 1;
pub(crate) const CELL_TTL: u8 = 2;
pub(crate) const CELL_VALUE: u8 = 4;
const COMPLEX: u8 = 8;
