//! Clustering keys and the bounds between them, each with its byte-comparable position.
//!
//! Layout of the shared buffer: the values (per component a 32-bit big-endian length, −1 for null, and the
//! bytes), then the position: the ordered encoding of [`types::ordered`] with its terminator. A full key ends in
//! the plain terminator; a bound ends in the one that sorts before or after everything with its prefix.

use bytes::Bytes;
use schema::Table;
use types::{Terminator, encode_clustering_into};

/// On which side of everything with its prefix a bound lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Before it: an inclusive start, an exclusive end.
    Before,
    /// After it: an exclusive start, an inclusive end.
    After,
}

/// A row's clustering key. Equality and order are those of its position.
#[derive(Clone)]
pub struct Clustering {
    buf: Bytes,
    values_len: u32,
}

impl Clustering {
    /// The key of a table's only row a partition, and of static rows.
    pub fn empty() -> Self {
        Self { buf: Bytes::from_static(&[0x38]), values_len: 0 }
    }

    /// The key with these component values, one a clustering column.
    pub fn new(table: &Table, components: &[Option<&[u8]>]) -> Self {
        assert_eq!(components.len(), table.clustering().len(), "a full clustering key of {}", table.name);
        if components.is_empty() {
            return Self::empty();
        }
        Self::encode(table, components, Terminator::Clustering)
    }

    fn encode(table: &Table, components: &[Option<&[u8]>], terminator: Terminator) -> Self {
        let values: usize = components.iter().map(|c| 4 + c.map_or(0, <[u8]>::len)).sum();
        let mut buf = Vec::with_capacity(values * 2 + components.len() * 4 + 1);
        for component in components {
            match component {
                Some(value) => {
                    let len = i32::try_from(value.len()).expect("clustering values are below 64 KiB");
                    buf.extend_from_slice(&len.to_be_bytes());
                    buf.extend_from_slice(value);
                }
                None => buf.extend_from_slice(&(-1i32).to_be_bytes()),
            }
        }
        let types = &table.clustering_types()[..components.len()];
        encode_clustering_into(types, components.iter().copied(), terminator, &mut buf);
        Self { buf: buf.into(), values_len: values as u32 }
    }

    /// The key whose buffer (values with their lengths, then the position; see the head of this file) was built by a
    /// reader of files, which has both at hand.
    pub fn from_buffer(buf: Bytes, values_len: usize) -> Self {
        assert!(values_len < buf.len(), "a position follows the values");
        Self { buf, values_len: values_len as u32 }
    }

    /// The same values, and a position with another end.
    fn ending_in(&self, terminator: Terminator) -> Self {
        let mut buf = self.buf.to_vec();
        let (last, end) = (buf.last_mut(), terminator.byte());
        let (Some(last), Some(end)) = (last, end) else { unreachable!("a position has an end") };
        debug_assert_eq!(
            Some(*last),
            Terminator::Clustering.byte(),
            "a full key ends in the plain terminator"
        );
        *last = end;
        Self { buf: buf.into(), values_len: self.values_len }
    }

    /// The component values in order; null components are none.
    pub fn components(&self) -> impl Iterator<Item = Option<&[u8]>> + Clone {
        Components { left: &self.buf[..self.values_len as usize] }
    }

    /// Its place in the partition: comparing positions as bytes compares keys and bounds.
    #[inline]
    pub fn position(&self) -> &[u8] {
        &self.buf[self.values_len as usize..]
    }

    /// Bytes held on the heap.
    pub fn memory_size(&self) -> usize {
        self.buf.len()
    }
}

impl PartialEq for Clustering {
    fn eq(&self, other: &Self) -> bool {
        self.position() == other.position()
    }
}
impl Eq for Clustering {}
impl PartialOrd for Clustering {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Clustering {
    #[inline]
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.position().cmp(other.position())
    }
}

/// Lets ordered maps of rows be searched by position.
impl std::borrow::Borrow<[u8]> for Clustering {
    fn borrow(&self) -> &[u8] {
        self.position()
    }
}

impl std::fmt::Debug for Clustering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(")?;
        for (i, component) in self.components().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            match component {
                Some(value) => value.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?,
                None => f.write_str("null")?,
            }
        }
        f.write_str(")")
    }
}

#[derive(Clone)]
struct Components<'a> {
    left: &'a [u8],
}

impl<'a> Iterator for Components<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let (len, rest) = self.left.split_first_chunk::<4>()?;
        let Ok(len) = usize::try_from(i32::from_be_bytes(*len)) else {
            self.left = rest;
            return Some(None);
        };
        let (value, rest) = rest.split_at(len);
        self.left = rest;
        Some(Some(value))
    }
}

/// A point between rows: just before or just after everything that starts with a prefix of clustering values.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bound {
    prefix: Clustering,
    side: Side,
}

impl Bound {
    /// Before every row of a partition.
    pub const fn bottom() -> Self {
        let buf = Bytes::from_static(&[0x20]);
        Self { prefix: Clustering { buf, values_len: 0 }, side: Side::Before }
    }

    /// After every row of a partition.
    pub const fn top() -> Self {
        let buf = Bytes::from_static(&[0x60]);
        Self { prefix: Clustering { buf, values_len: 0 }, side: Side::After }
    }

    /// The point at `side` of everything that starts with `prefix` (at most one value a clustering column).
    pub fn new(table: &Table, prefix: &[Option<&[u8]>], side: Side) -> Self {
        assert!(prefix.len() <= table.clustering().len(), "a clustering prefix of {}", table.name);
        match (prefix.is_empty(), side) {
            (true, Side::Before) => Self::bottom(),
            (true, Side::After) => Self::top(),
            (false, Side::Before) => {
                Self { prefix: Clustering::encode(table, prefix, Terminator::Before), side }
            }
            (false, Side::After) => {
                Self { prefix: Clustering::encode(table, prefix, Terminator::After), side }
            }
        }
    }

    /// Just before the row with this key.
    pub fn before_row(key: &Clustering) -> Self {
        Self { prefix: key.ending_in(Terminator::Before), side: Side::Before }
    }

    /// Just after the row with this key.
    pub fn after_row(key: &Clustering) -> Self {
        Self { prefix: key.ending_in(Terminator::After), side: Side::After }
    }

    /// Before or after.
    pub fn side(&self) -> Side {
        self.side
    }

    /// The prefix's values; fewer than the table's clustering columns for a shorter prefix.
    pub fn components(&self) -> impl Iterator<Item = Option<&[u8]>> + Clone {
        self.prefix.components()
    }

    /// Its place in the partition, comparable with [`Clustering::position`].
    #[inline]
    pub fn position(&self) -> &[u8] {
        self.prefix.position()
    }

    /// Bytes held on the heap.
    pub fn memory_size(&self) -> usize {
        self.prefix.memory_size()
    }
}

/// Lets ordered maps of bounds be searched by position: a position says on which side of its prefix a bound lies.
impl std::borrow::Borrow<[u8]> for Bound {
    fn borrow(&self) -> &[u8] {
        self.position()
    }
}

impl std::fmt::Debug for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}{:?}", self.side, self.prefix)
    }
}
