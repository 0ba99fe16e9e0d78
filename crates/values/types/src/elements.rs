//! Walking and building the bytes of values that hold other values: collections, tuples, user types and vectors
//! (native protocol spec, section 6). The bytes may come from a client or a damaged file, so every length is checked
//! before it is used and nothing is allocated from a length alone.

use crate::{CqlType, TypeError};
use stdx::{Reader, vint};

/// The elements of a serialised list, set or map (keys and values in turn), in order.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    reader: Reader<'a>,
    left: usize,
    kind: &'static str,
}

impl<'a> Elements<'a> {
    /// The elements of a list or set.
    ///
    /// # Errors
    /// [`TypeError::Refused`] when the count is cut off, negative, or larger than the bytes behind it allow. The
    /// elements themselves are checked one by one, by the iterator.
    pub fn of_list(bytes: &'a [u8]) -> Result<Elements<'a>, TypeError> {
        Elements::new(bytes, 1, "list")
    }

    /// The elements of a set.
    ///
    /// # Errors
    /// As [`Elements::of_list`].
    pub fn of_set(bytes: &'a [u8]) -> Result<Elements<'a>, TypeError> {
        Elements::new(bytes, 1, "set")
    }

    /// The keys and values of a map, a key before its value.
    ///
    /// # Errors
    /// As [`Elements::of_list`].
    pub fn of_map(bytes: &'a [u8]) -> Result<Elements<'a>, TypeError> {
        Elements::new(bytes, 2, "map")
    }

    fn new(bytes: &'a [u8], per_entry: usize, kind: &'static str) -> Result<Elements<'a>, TypeError> {
        let mut reader = Reader::new(bytes);
        let count = reader.i32().map_err(|_| not_enough(kind))?;
        let left = usize::try_from(count)
            .map_err(|_| TypeError::Refused(format!("The data cannot be deserialized as a {kind}")))?
            .saturating_mul(per_entry);
        // Each element takes at least its length.
        if left > reader.len() / 4 {
            return Err(not_enough(kind));
        }
        Ok(Elements { reader, left, kind })
    }

    /// How many elements are still to come.
    pub fn len(&self) -> usize {
        self.left
    }

    /// Whether no element is left.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// The bytes after the elements read so far.
    pub fn rest(&self) -> &'a [u8] {
        self.reader.rest()
    }

    fn read(&mut self) -> Result<Option<&'a [u8]>, TypeError> {
        let len = self.reader.i32().map_err(|_| not_enough(self.kind))?;
        match usize::try_from(len) {
            Ok(len) => self.reader.bytes(len).map(Some).map_err(|_| not_enough(self.kind)),
            Err(_) => Ok(None),
        }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Option<&'a [u8]>, TypeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let element = self.read();
        self.left = if element.is_err() { 0 } else { self.left - 1 };
        Some(element)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
    }
}

fn not_enough(kind: &str) -> TypeError {
    TypeError::refused(format!("Not enough bytes to read a {kind}"))
}

/// The fields of a serialised tuple or user type. Fields that the value leaves out at its end are not yielded; a
/// value written by an older definition has fewer.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    reader: Reader<'a>,
    index: usize,
}

impl<'a> Fields<'a> {
    /// The fields of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields { reader: Reader::new(bytes), index: 0 }
    }

    /// The bytes after the fields read so far.
    pub fn rest(&self) -> &'a [u8] {
        self.reader.rest()
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Option<&'a [u8]>, TypeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let index = self.index;
        self.index += 1;
        let Ok(len) = self.reader.i32() else {
            self.reader = Reader::new(&[]);
            return Some(Err(TypeError::refused(format!(
                "Not enough bytes to read size of {index}th component"
            ))));
        };
        let Ok(len) = usize::try_from(len) else { return Some(Ok(None)) };
        match self.reader.bytes(len) {
            Ok(field) => Some(Ok(Some(field))),
            Err(_) => {
                self.reader = Reader::new(&[]);
                Some(Err(TypeError::refused(format!("Not enough bytes to read {index}th component"))))
            }
        }
    }
}

/// The elements of a serialised vector.
#[derive(Clone, Debug)]
pub struct VectorElements<'a> {
    reader: Reader<'a>,
    left: u32,
    fixed_len: Option<usize>,
}

impl<'a> VectorElements<'a> {
    /// The elements of `bytes`, a vector of `dimension` elements of the type.
    pub fn new(element: &CqlType, dimension: u32, bytes: &'a [u8]) -> VectorElements<'a> {
        VectorElements { reader: Reader::new(bytes), left: dimension, fixed_len: element.fixed_len() }
    }

    /// The bytes after the elements read so far.
    pub fn rest(&self) -> &'a [u8] {
        self.reader.rest()
    }
}

impl<'a> Iterator for VectorElements<'a> {
    type Item = Result<&'a [u8], TypeError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let element = match self.fixed_len {
            Some(len) => self.reader.bytes(len),
            None => vint::read_unsigned(&mut self.reader)
                .and_then(|len| self.reader.bytes(usize::try_from(len).unwrap_or(usize::MAX))),
        };
        if element.is_err() {
            self.left = 0;
        }
        Some(element.map_err(|_| not_enough("vector")))
    }
}

/// Appends an element of a collection, tuple or user type: its 4-byte length, -1 for null, and its bytes.
#[expect(clippy::expect_used, reason = "values are shorter than messages and cells")]
pub fn write_element(element: Option<&[u8]>, out: &mut Vec<u8>) {
    match element {
        Some(bytes) => {
            // Frames and cells are far below 2 GiB; a longer value is a bug of the caller.
            let len = i32::try_from(bytes.len()).expect("a value of 2 GiB or more has no serialised form");
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(bytes);
        }
        None => out.extend_from_slice(&(-1i32).to_be_bytes()),
    }
}

/// Builds a list, set or map from its elements in order: the caller sorts sets and maps (see [`build_set`]).
#[derive(Clone, Debug)]
pub struct CollectionBuilder {
    bytes: Vec<u8>,
    elements: usize,
}

impl CollectionBuilder {
    /// An empty collection.
    pub fn new() -> CollectionBuilder {
        CollectionBuilder { bytes: vec![0; 4], elements: 0 }
    }

    /// Adds an element, or a key or value of a map.
    pub fn push(&mut self, element: &[u8]) {
        self.elements += 1;
        write_element(Some(element), &mut self.bytes);
    }

    /// Adds a null; only bound values of `IN` lists and the like may hold one.
    pub fn push_null(&mut self) {
        self.elements += 1;
        write_element(None, &mut self.bytes);
    }

    /// The bytes of a list or set.
    pub fn finish(self) -> Vec<u8> {
        let count = self.elements;
        self.finish_counted(count)
    }

    /// The bytes of a map: half as many entries as elements were pushed.
    pub fn finish_map(self) -> Vec<u8> {
        assert!(self.elements.is_multiple_of(2), "a map has a value for every key");
        let count = self.elements / 2;
        self.finish_counted(count)
    }

    #[expect(clippy::expect_used, reason = "elements are fewer than bytes of a value")]
    fn finish_counted(mut self, count: usize) -> Vec<u8> {
        let count = i32::try_from(count).expect("a collection has fewer than 2^31 elements");
        if let Some(head) = self.bytes.first_chunk_mut::<4>() {
            *head = count.to_be_bytes();
        }
        self.bytes
    }
}

impl Default for CollectionBuilder {
    fn default() -> Self {
        CollectionBuilder::new()
    }
}

/// A collection of no elements.
pub const EMPTY: [u8; 4] = [0; 4];

/// A list of the elements, in the order given.
pub fn build_list<B: AsRef<[u8]>>(elements: impl IntoIterator<Item = B>) -> Vec<u8> {
    let mut builder = CollectionBuilder::new();
    for element in elements {
        builder.push(element.as_ref());
    }
    builder.finish()
}

/// A set of the elements: sorted by their type, equal ones once.
pub fn build_set(element_type: &CqlType, mut elements: Vec<Vec<u8>>) -> Vec<u8> {
    elements.sort_by(|a, b| element_type.compare(a, b));
    elements.dedup_by(|a, b| element_type.compare(a, b).is_eq());
    build_list(elements)
}

/// A map of the entries: sorted by key, of equal keys the last one.
pub fn build_map(key_type: &CqlType, mut entries: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<u8> {
    entries.sort_by(|(a, _), (b, _)| key_type.compare(a, b));
    let mut builder = CollectionBuilder::new();
    for (i, (key, value)) in entries.iter().enumerate() {
        if entries.get(i + 1).is_some_and(|(next, _)| key_type.compare(key, next).is_eq()) {
            continue;
        }
        builder.push(key);
        builder.push(value);
    }
    builder.finish_map()
}

/// A tuple or user type value of the fields.
pub fn build_tuple<B: AsRef<[u8]>>(fields: impl IntoIterator<Item = Option<B>>) -> Vec<u8> {
    let mut out = Vec::new();
    for field in fields {
        write_element(field.as_ref().map(AsRef::as_ref), &mut out);
    }
    out
}

/// A vector of the elements; their number is the dimension.
pub fn build_vector<B: AsRef<[u8]>>(
    element_type: &CqlType,
    elements: impl IntoIterator<Item = B>,
) -> Vec<u8> {
    let fixed = element_type.fixed_len().is_some();
    let mut out = Vec::new();
    for element in elements {
        let element = element.as_ref();
        if !fixed {
            vint::write_unsigned(element.len() as u64, &mut out);
        }
        out.extend_from_slice(element);
    }
    out
}
