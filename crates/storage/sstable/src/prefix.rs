//! Clustering values and bounds as data files and row indexes hold them.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use mutation::{Bound, Side};
use smallvec::SmallVec;
use stdx::{Reader, ShortRead, vint};
use types::{CqlType, Terminator};

/// Values of a clustering prefix, as slices of the bytes that they were read from.
pub(crate) type Values<'a> = SmallVec<[Option<&'a [u8]>; 4]>;

/// Why bytes could not be read as an item: there are too few of them, or they are wrong.
#[derive(Debug)]
pub(crate) enum ParseError {
    /// The item continues behind the bytes that are there; at least so many bytes are missing.
    Short(usize),
    /// The bytes cannot be right.
    Invalid { expected: &'static str, found: String },
}

impl ParseError {
    pub(crate) fn invalid(expected: &'static str, found: impl ToString) -> Self {
        Self::Invalid { expected, found: found.to_string() }
    }
}

impl From<ShortRead> for ParseError {
    fn from(short: ShortRead) -> Self {
        Self::Short(short.needed.saturating_sub(short.left).max(1))
    }
}

/// The facts that the codecs need of a value's type.
#[derive(Clone, Debug)]
pub(crate) struct ValueType {
    /// Length of every value that is not empty, when they all have the same.
    pub(crate) fixed: Option<u32>,
    /// The type, when its values must be checked before they may be compared.
    checked: Option<CqlType>,
}

impl ValueType {
    pub(crate) fn new(ty: &CqlType) -> Self {
        let free = matches!(ty, CqlType::Text | CqlType::Ascii | CqlType::Blob | CqlType::Custom(_));
        let fixed = ty.fixed_len().and_then(|len| u32::try_from(len).ok());
        let simple = matches!(
            ty,
            CqlType::Boolean
                | CqlType::Float
                | CqlType::Int
                | CqlType::Bigint
                | CqlType::Double
                | CqlType::Timestamp
                | CqlType::Timeuuid
                | CqlType::Uuid
        );
        Self { fixed, checked: (!free && !simple).then(|| ty.clone()) }
    }

    /// Whether a value that was read can be given to comparisons.
    fn accepts(&self, value: &[u8]) -> bool {
        self.checked.as_ref().is_none_or(|ty| ty.validate(value).is_ok())
    }
}

/// Appends a value, with its length in front unless the type fixes it.
#[inline]
pub(crate) fn write_value(fixed: Option<u32>, value: &[u8], out: &mut Vec<u8>) {
    match fixed {
        Some(len) => assert_eq!(value.len(), len as usize, "a value has the length that its type fixes"),
        None => vint::write_unsigned(value.len() as u64, out),
    }
    out.extend_from_slice(value);
}

/// Decodes the output of [`write_value`].
#[inline]
pub(crate) fn read_value<'a>(fixed: Option<u32>, reader: &mut Reader<'a>) -> Result<&'a [u8], ShortRead> {
    match fixed {
        Some(len) => reader.bytes(len as usize),
        None => reader.bytes_vint(),
    }
}

/// Appends the values of a prefix: for every 32 of them two bits each (empty, null), then those that are neither.
pub(crate) fn write_values<'a>(
    types: &[ValueType],
    values: impl Iterator<Item = Option<&'a [u8]>> + Clone,
    out: &mut Vec<u8>,
) {
    let mut rest = values.zip(types).peekable();
    while rest.peek().is_some() {
        let group = rest.clone().take(32);
        let flags = group.clone().enumerate().fold(0u64, |flags, (at, (value, _))| match value {
            None => flags | 2 << (at * 2),
            Some([]) => flags | 1 << (at * 2),
            Some(_) => flags,
        });
        vint::write_unsigned(flags, out);
        for (value, ty) in group {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                write_value(ty.fixed, value, out);
            }
        }
        rest.by_ref().take(32).for_each(drop);
    }
}

/// Reads `count` values, which must be at most the number of types.
pub(crate) fn read_values<'a>(
    types: &[ValueType],
    count: usize,
    reader: &mut Reader<'a>,
    out: &mut Values<'a>,
) -> Result<(), ParseError> {
    out.clear();
    let Some(types) = types.get(..count) else {
        return Err(ParseError::invalid("no more clustering values than the table has columns", count));
    };
    for group in types.chunks(32) {
        let mut flags = vint::read_unsigned(reader)?;
        for ty in group {
            out.push(match flags & 3 {
                0 => {
                    let value = read_value(ty.fixed, reader)?;
                    if !ty.accepts(value) {
                        return Err(ParseError::invalid(
                            "a clustering value of its column's type",
                            format!("{value:02x?}"),
                        ));
                    }
                    Some(value)
                }
                1 => Some(&[]),
                2 => None,
                _ => {
                    return Err(ParseError::invalid(
                        "a clustering value that is empty or null, not both",
                        flags,
                    ));
                }
            });
            flags >>= 2;
        }
        if flags != 0 {
            return Err(ParseError::invalid("flags of clustering values that exist", flags));
        }
    }
    Ok(())
}

/// The kind of a prefix in a file: a row's key, or a bound (with the deletions on either side of it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    ExclusiveEnd = 0,
    InclusiveStart = 1,
    ExclusiveEndInclusiveStart = 2,
    Static = 3,
    Row = 4,
    InclusiveEndExclusiveStart = 5,
    InclusiveEnd = 6,
    ExclusiveStart = 7,
}

impl Kind {
    pub(crate) fn of(byte: u8) -> Option<Self> {
        use Kind::*;
        [
            ExclusiveEnd,
            InclusiveStart,
            ExclusiveEndInclusiveStart,
            Static,
            Row,
            InclusiveEndExclusiveStart,
            InclusiveEnd,
            ExclusiveStart,
        ]
        .get(usize::from(byte))
        .copied()
    }

    /// The kind of a marker at a bound's side that ends and starts deletions as told.
    pub(crate) fn marker(side: Side, ends: bool, starts: bool) -> Self {
        match (side, ends, starts) {
            (Side::Before, true, true) => Self::ExclusiveEndInclusiveStart,
            (Side::Before, true, false) => Self::ExclusiveEnd,
            (Side::Before, false, true) => Self::InclusiveStart,
            (Side::After, true, true) => Self::InclusiveEndExclusiveStart,
            (Side::After, true, false) => Self::InclusiveEnd,
            (Side::After, false, true) => Self::ExclusiveStart,
            (_, false, false) => unreachable!("a marker ends or starts a deletion"),
        }
    }

    /// Whether a marker of this kind ends a deletion, and whether it starts one; none for rows.
    pub(crate) fn ends_and_starts(self) -> Option<(bool, bool)> {
        match self {
            Self::ExclusiveEnd | Self::InclusiveEnd => Some((true, false)),
            Self::InclusiveStart | Self::ExclusiveStart => Some((false, true)),
            Self::ExclusiveEndInclusiveStart | Self::InclusiveEndExclusiveStart => Some((true, true)),
            Self::Static | Self::Row => None,
        }
    }

    /// On which side of its prefix a bound lies; none for rows.
    pub(crate) fn side(self) -> Option<Side> {
        match self {
            Self::ExclusiveEnd | Self::InclusiveStart | Self::ExclusiveEndInclusiveStart => {
                Some(Side::Before)
            }
            Self::InclusiveEnd | Self::ExclusiveStart | Self::InclusiveEndExclusiveStart => Some(Side::After),
            Self::Static | Self::Row => None,
        }
    }

    /// How the ordered form of a prefix of this kind ends.
    pub(crate) fn terminator(self) -> Terminator {
        match self.side() {
            Some(Side::Before) => Terminator::Before,
            Some(Side::After) => Terminator::After,
            None if self == Self::Static => Terminator::Static,
            None => Terminator::Clustering,
        }
    }
}

/// Appends a bound: its kind, the number of values, the values.
pub(crate) fn write_bound(types: &[ValueType], bound: &Bound, kind: Kind, out: &mut Vec<u8>) {
    assert_eq!(kind.side(), Some(bound.side()), "a marker lies on the side of its bound");
    out.push(kind as u8);
    let count = bound.components().count();
    assert!(count <= types.len(), "a bound has no more values than there are clustering columns");
    out.extend_from_slice(&(count as u16).to_be_bytes());
    write_values(types, bound.components(), out);
}

/// Reads the rest of a bound after its kind.
pub(crate) fn read_bound<'a>(
    types: &[ValueType],
    reader: &mut Reader<'a>,
    out: &mut Values<'a>,
) -> Result<(), ParseError> {
    let count = usize::from(reader.u16()?);
    read_values(types, count, reader, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(values in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..4)), 0..70), cut in any::<prop::sample::Index>()) {
            let types = vec![ValueType::new(&CqlType::Blob); values.len()];
            let mut out = Vec::new();
            write_values(&types, values.iter().map(Option::as_deref), &mut out);
            let mut read = Values::new();
            let mut reader = Reader::new(&out);
            read_values(&types, values.len(), &mut reader, &mut read).unwrap();
            prop_assert!(reader.is_empty());
            prop_assert_eq!(read.to_vec(), values.iter().map(Option::as_deref).collect::<Vec<_>>());
            if !out.is_empty() {
                let mut reader = Reader::new(&out[..cut.index(out.len())]);
                prop_assert!(read_values(&types, values.len(), &mut reader, &mut read).is_err());
            }
            prop_assert!(read_values(&types, values.len() + 1, &mut Reader::new(&out), &mut read).is_err());
        }
    }

    #[test]
    fn kinds() {
        for byte in 0..8 {
            let kind = Kind::of(byte).unwrap();
            assert_eq!(kind as u8, byte);
            if let (Some(side), Some((ends, starts))) = (kind.side(), kind.ends_and_starts()) {
                assert_eq!(Kind::marker(side, ends, starts), kind);
            }
        }
        assert!(Kind::of(8).is_none());
    }

    #[test]
    fn values_that_cannot_be_compared_are_refused() {
        let types = [ValueType::new(&CqlType::Decimal)];
        // A decimal of three bytes.
        let mut values = Values::new();
        assert!(read_values(&types, 1, &mut Reader::new(&[0, 3, 1, 2, 3]), &mut values).is_err());
    }
}
