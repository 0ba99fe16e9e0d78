//! A posting at its place.

/// A posting.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The place, of a memtable with the number of the version behind it.
    pub(crate) place: Box<[u8]>,
    pub(crate) posting: Box<[u8]>,
}
