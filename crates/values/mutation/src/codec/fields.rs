//! The small parts that updates and messages about them are made of: lengths, clustering prefixes, bounds.
//!
//! ```text
//! bytes  := vint length, bytes
//! prefix := vint count, { vint length + 1 or 0 for null, bytes }
//! bound  := 0 before or 1 after, prefix
//! ```

use bytes::Bytes;
use schema::Table;
use stdx::vint::{read_unsigned, write_unsigned};
use stdx::{Reader, ShortRead};

use crate::{Bound, Side};

/// Bytes that are no update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Where, from the start of the update.
    pub offset: usize,
    /// The expected content there.
    pub expected: &'static str,
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "expected {} at byte {} of an update", self.expected, self.offset)
    }
}

impl std::error::Error for DecodeError {}

/// Appends bytes with their length.
pub fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write_unsigned(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends the values of a clustering key, or the first of them.
pub fn put_prefix<'a>(components: impl Iterator<Item = Option<&'a [u8]>> + Clone, out: &mut Vec<u8>) {
    write_unsigned(components.clone().count() as u64, out);
    for component in components {
        match component {
            Some(value) => {
                write_unsigned(value.len() as u64 + 1, out);
                out.extend_from_slice(value);
            }
            None => out.push(0),
        }
    }
}

/// Appends a bound.
pub fn put_bound(bound: &Bound, out: &mut Vec<u8>) {
    out.push(u8::from(bound.side() == Side::After));
    put_prefix(bound.components(), out);
}

/// Reads such parts off bytes that nobody vouches for.
#[derive(Clone)]
pub struct Fields<'a> {
    buffer: &'a Bytes,
    reader: Reader<'a>,
}

impl<'a> Fields<'a> {
    /// From the start of `buffer`.
    pub fn new(buffer: &'a Bytes) -> Self {
        Self { buffer, reader: Reader::new(buffer) }
    }

    /// From where `reader` stands, whose bytes are the end of `buffer`.
    pub fn at(buffer: &'a Bytes, reader: Reader<'a>) -> Self {
        Self { buffer, reader }
    }

    /// The rest.
    pub fn into_reader(self) -> Reader<'a> {
        self.reader
    }

    /// The bytes that are left.
    pub fn rest(&self) -> &'a [u8] {
        self.reader.rest()
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.reader.is_empty()
    }

    /// Says that something else was expected here.
    pub fn error(&self, expected: &'static str) -> DecodeError {
        DecodeError { offset: self.buffer.len() - self.reader.len(), expected }
    }

    /// Reads with `read`.
    ///
    /// # Errors
    /// A [`DecodeError`] at the present offset when the buffer ends before the value that `read` takes.
    pub fn read<T>(
        &mut self,
        expected: &'static str,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, ShortRead>,
    ) -> Result<T, DecodeError> {
        read(&mut self.reader).map_err(|_| self.error(expected))
    }

    /// Reads so many bytes.
    ///
    /// # Errors
    /// A [`DecodeError`] when fewer bytes are left.
    pub fn take(&mut self, len: usize, expected: &'static str) -> Result<&'a [u8], DecodeError> {
        self.read(expected, |reader| reader.bytes(len))
    }

    /// Reads bytes with their length, as a slice of the buffer.
    ///
    /// # Errors
    /// A [`DecodeError`] when the length is cut off or fewer bytes are left than it says.
    pub fn bytes(&mut self, expected: &'static str) -> Result<Bytes, DecodeError> {
        let slice = self.read(expected, Reader::bytes_vint)?;
        Ok(if slice.is_empty() { Bytes::new() } else { self.buffer.slice_ref(slice) })
    }

    /// Reads a count of things that take at least a byte each.
    ///
    /// # Errors
    /// A [`DecodeError`] when the count is cut off or exceeds the number of bytes left.
    pub fn count(&mut self, expected: &'static str) -> Result<usize, DecodeError> {
        let count = self.read(expected, read_unsigned)?;
        self.possible(count, expected)
    }

    /// A count of things that take at least a byte each, if there can be so many.
    ///
    /// # Errors
    /// A [`DecodeError`] when `count` exceeds the number of bytes left.
    pub fn possible(&self, count: u64, expected: &'static str) -> Result<usize, DecodeError> {
        match usize::try_from(count) {
            Ok(count) if count <= self.reader.len() => Ok(count),
            _ => Err(self.error(expected)),
        }
    }

    /// Reads clustering values, at most `count_max`.
    ///
    /// # Errors
    /// A [`DecodeError`] when there are more than `count_max` values, or one of them is cut off.
    pub fn prefix(&mut self, count_max: usize) -> Result<Vec<Option<&'a [u8]>>, DecodeError> {
        let count = self.count("a number of clustering values")?;
        if count > count_max {
            return Err(self.error("at most as many clustering values as the table has"));
        }
        let mut out = Vec::with_capacity(count);
        for _ in 0..count {
            let len = self.read("a clustering value's length", read_unsigned)?;
            out.push(match len.checked_sub(1) {
                None => None,
                Some(len) => {
                    let len = usize::try_from(len).unwrap_or(usize::MAX);
                    Some(self.take(len, "a clustering value")?)
                }
            });
        }
        Ok(out)
    }

    /// Reads a bound between rows of `table`.
    ///
    /// # Errors
    /// A [`DecodeError`] when the side is neither 0 nor 1, there are more values than clustering columns, or the bound
    /// is cut off.
    pub fn bound(&mut self, table: &Table) -> Result<Bound, DecodeError> {
        let side = match self.read("a bound's side", Reader::u8)? {
            0 => Side::Before,
            1 => Side::After,
            _ => return Err(self.error("a bound's side, 0 or 1")),
        };
        let prefix = self.prefix(table.clustering().len())?;
        Ok(Bound::new(table, &prefix, side))
    }
}
