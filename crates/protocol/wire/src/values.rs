//! Bound values of a request: offsets into the message's body, so that a request with a few values allocates nothing.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::notation::BodyReader;
use crate::{ProtocolError, Version};

/// One bound value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// Not set: the column is left alone (v4 and later).
    Unset,
    /// The value's serialised form.
    Set(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The bytes of a set value.
    pub fn as_slice(self) -> Option<&'a [u8]> {
        match self {
            Value::Set(bytes) => Some(bytes),
            Value::Null | Value::Unset => None,
        }
    }
}

/// One bound value by its place in the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValuePlace {
    /// `null`.
    Null,
    /// Not set.
    Unset,
    /// From the byte `start` to before the byte `end`.
    Set {
        /// Its first byte.
        start: u32,
        /// The byte behind it.
        end: u32,
    },
}

const NULL: i32 = -1;
const UNSET: i32 = -2;

/// Where a value lies: offset in the body, and length or one of the negative marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    offset: u32,
    len: i32,
}

impl Place {
    #[inline]
    fn shown(&self) -> ValuePlace {
        match self.len {
            NULL => ValuePlace::Null,
            UNSET => ValuePlace::Unset,
            len => ValuePlace::Set { start: self.offset, end: self.offset + len.cast_unsigned() },
        }
    }
}

/// The bound values of a statement, in the order in which they were sent.
#[derive(Clone, Default)]
pub struct Values {
    body: Bytes,
    places: SmallVec<[Place; 8]>,
    /// Empty when the values have no names, otherwise one for each.
    names: Vec<Place>,
}

impl Values {
    /// No values.
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads `[short] n` and `n` values, each after its name if `named`.
    #[inline]
    pub(crate) fn decode(
        reader: &mut BodyReader<'_>,
        version: Version,
        named: bool,
    ) -> Result<Self, ProtocolError> {
        let count = usize::from(reader.u16("the number of values")?);
        if count == 0 {
            return Ok(Self::none());
        }
        // A value takes at least four bytes: memory for no more of them than there can be.
        let room = count.min(reader.left() / 4);
        let mut places = SmallVec::with_capacity(room);
        let mut names = Vec::with_capacity(if named { room } else { 0 });
        for _ in 0..count {
            if named {
                let name = reader.str("the name of a value")?;
                names.push(place(reader.offset() - name.len(), name.len())?);
            }
            let len = reader.i32("the length of a value")?;
            let slice = match len {
                0.. => reader.slice(len.cast_unsigned() as usize, "a value")?,
                _ => &[],
            };
            let mut at = place(reader.offset() - slice.len(), slice.len())?;
            if len < 0 {
                at.len = match len {
                    UNSET if version >= Version::V4 => UNSET,
                    NULL => NULL,
                    _ if version < Version::V4 => NULL,
                    _ => {
                        let field = "the length of a value";
                        return Err(ProtocolError::InvalidValue { field, value: i64::from(len) });
                    }
                };
            }
            places.push(at);
        }
        Ok(Self { body: reader.body().clone(), places, names })
    }

    /// How many values there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The value at a position.
    #[inline]
    pub fn get(&self, index: usize) -> Option<Value<'_>> {
        let place = self.places.get(index)?;
        Some(match place.len {
            NULL => Value::Null,
            UNSET => Value::Unset,
            _ => Value::Set(self.slice(*place)),
        })
    }

    /// The message's body, in which the values lie.
    #[inline]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Where the value at a position lies in the body.
    #[inline]
    pub fn place(&self, index: usize) -> Option<ValuePlace> {
        self.places.get(index).map(Place::shown)
    }

    /// Where the values lie, in order.
    #[inline]
    pub fn places(&self) -> impl ExactSizeIterator<Item = ValuePlace> {
        self.places.iter().map(Place::shown)
    }

    /// The bytes of the set value at a position, sharing the message's memory.
    pub fn shared(&self, index: usize) -> Option<Bytes> {
        let place = self.places.get(index)?;
        // Negative lengths are marks.
        let len = usize::try_from(place.len).ok()?;
        let offset = place.offset as usize;
        Some(if len == 0 { Bytes::new() } else { self.body.slice(offset..offset + len) })
    }

    /// The values in order.
    #[expect(clippy::expect_used, reason = "the index is below the length")]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Value<'_>> {
        (0..self.len()).map(|index| self.get(index).expect("below the length"))
    }

    /// Whether the values have names.
    pub fn is_named(&self) -> bool {
        !self.names.is_empty()
    }

    /// The name of the value at a position.
    pub fn name(&self, index: usize) -> Option<&str> {
        let place = self.names.get(index)?;
        std::str::from_utf8(self.slice(*place)).ok()
    }

    #[expect(clippy::expect_used, reason = "decoding checks every place")]
    fn slice(&self, place: Place) -> &[u8] {
        let offset = place.offset as usize;
        let end = offset + usize::try_from(place.len).expect("the value is set");
        self.body.get(offset..end).expect("checked when it was read")
    }
}

impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.names.len() == other.names.len()
            && self.iter().eq(other.iter())
            && (0..self.names.len()).all(|index| self.name(index) == other.name(index))
    }
}

impl Eq for Values {}

impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_named() {
            return f
                .debug_map()
                .entries(self.iter().enumerate().map(|(index, value)| (self.name(index), value)))
                .finish();
        }
        f.debug_list().entries(self.iter()).finish()
    }
}

fn place(offset: usize, len: usize) -> Result<Place, ProtocolError> {
    let too_long = |_| ProtocolError::MessageTooLong { length: offset as u64, max: i32::MAX as usize };
    Ok(Place { offset: u32::try_from(offset).map_err(too_long)?, len: i32::try_from(len).map_err(too_long)? })
}
