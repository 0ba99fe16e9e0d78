//! From byte-comparable values back to serialised ones. A decimal comes back in a normal form that compares equal.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use super::{
    NEXT_COMPONENT, NEXT_COMPONENT_EMPTY, NEXT_COMPONENT_EMPTY_REVERSED, NEXT_COMPONENT_NULL, OrderedError,
    TERMINATOR, Terminator,
};
use crate::CqlType;
use crate::compare::strip_sign_bytes;
use crate::elements::{CollectionBuilder, build_vector, write_element};
use crate::uuid::{SIGNED_BYTES, from_time_order, from_uuid_order, halves};
use num_bigint::BigInt;

type Decoded<T> = Result<T, OrderedError>;

/// Components and terminator of an encoded clustering prefix.
///
/// # Errors
/// An [`OrderedError`] with the offset at which the bytes are no component of their type, no terminator, or end.
pub fn decode_clustering(
    types: &[(CqlType, bool)],
    bytes: &[u8],
) -> Decoded<(Vec<Option<Vec<u8>>>, Terminator)> {
    let mut components = Vec::with_capacity(types.len());
    let mut at = 0;
    for (ty, reversed) in types {
        let rest = bytes.get(at..).unwrap_or_default();
        match rest {
            [] => return Ok((components, Terminator::Open)),
            [byte] if Terminator::of_byte(*byte).is_some() => break,
            _ => {}
        }
        let shift = |error: OrderedError| OrderedError { offset: error.offset + at, ..error };
        let (component, taken) = ty.decode_ordered_component(rest, *reversed).map_err(shift)?;
        components.push(component);
        at += taken;
    }
    match bytes.get(at..).unwrap_or_default() {
        [] => Ok((components, Terminator::Open)),
        [byte] => match Terminator::of_byte(*byte) {
            Some(terminator) => Ok((components, terminator)),
            None => Err(OrderedError { offset: at, expected: "a terminator" }),
        },
        _ => Err(OrderedError { offset: at, expected: "a terminator at the end" }),
    }
}

impl CqlType {
    /// Reads one component, separator included, from the start of `bytes`; gives the serialised value (`None` for a
    /// missing one) and the number of bytes taken.
    ///
    /// # Errors
    /// An [`OrderedError`] when the separator is none, or as [`CqlType::decode_ordered`].
    pub fn decode_ordered_component(
        &self,
        bytes: &[u8],
        reversed: bool,
    ) -> Decoded<(Option<Vec<u8>>, usize)> {
        let mut source = Source { bytes, at: 0, mask: 0 };
        let value = match source.next()? {
            NEXT_COMPONENT_NULL => None,
            NEXT_COMPONENT_EMPTY | NEXT_COMPONENT_EMPTY_REVERSED => Some(Vec::new()),
            NEXT_COMPONENT => {
                source.mask = if reversed { 0xff } else { 0 };
                Some(self.decode(&mut source)?)
            }
            _ => return Err(OrderedError { offset: 0, expected: "a separator" }),
        };
        Ok((value, source.at))
    }

    /// Reads a value without separators (see [`CqlType::encode_ordered`]) from the start of `bytes`; gives it and the
    /// number of bytes taken.
    ///
    /// # Errors
    /// An [`OrderedError`] with the offset at which the bytes are not the type's encoding, or end.
    pub fn decode_ordered(&self, bytes: &[u8], reversed: bool) -> Decoded<(Vec<u8>, usize)> {
        let mut source = Source { bytes, at: 0, mask: if reversed { 0xff } else { 0 } };
        let value = self.decode(&mut source)?;
        Ok((value, source.at))
    }

    fn decode(&self, source: &mut Source<'_>) -> Decoded<Vec<u8>> {
        match self {
            CqlType::Text
            | CqlType::Ascii
            | CqlType::Blob
            | CqlType::Inet
            | CqlType::Duration
            | CqlType::Custom(_) => source.unescape(),
            CqlType::Int => source.sign_flipped(4),
            CqlType::Timestamp => source.sign_flipped(8),
            CqlType::Smallint => source.sign_flipped(2),
            CqlType::Tinyint => source.sign_flipped(1),
            CqlType::Bigint | CqlType::Counter => Ok(source.signed_vint()?.to_be_bytes().to_vec()),
            CqlType::Date => source.take(4),
            CqlType::Time => source.take(8),
            CqlType::Boolean => source.take(1),
            CqlType::Float => source.float(4),
            CqlType::Double => source.float(8),
            CqlType::Uuid => source.halves(from_uuid_order),
            CqlType::Timeuuid => source.halves(|high, low| (from_time_order(high), low ^ SIGNED_BYTES)),
            CqlType::Varint => source.varint(),
            CqlType::Decimal => source.decimal(),
            CqlType::List { element, .. } | CqlType::Set { element, .. } => {
                Ok(source.elements(&[&**element])?.finish())
            }
            CqlType::Map { key, value, .. } => Ok(source.elements(&[&**key, &**value])?.finish_map()),
            CqlType::Tuple(types) => source.fields(types.iter()),
            CqlType::Udt { ty, .. } => source.fields(ty.fields.iter().map(|(_, field)| field)),
            CqlType::Vector { element, dimension } => {
                let mut elements = Vec::new();
                while let Some(item) = source.nested(element)? {
                    elements.push(item.unwrap_or_default());
                }
                if elements.len() != *dimension as usize {
                    return Err(source.error("as many elements as the vector has"));
                }
                Ok(build_vector(element, elements))
            }
        }
    }
}

/// The encoded bytes, un-flipped on the way when the type is in descending order.
struct Source<'a> {
    bytes: &'a [u8],
    at: usize,
    mask: u8,
}

impl Source<'_> {
    fn error(&self, expected: &'static str) -> OrderedError {
        OrderedError { offset: self.at, expected }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).map(|byte| byte ^ self.mask)
    }

    fn next(&mut self) -> Decoded<u8> {
        let byte = self.peek().ok_or(self.error("more bytes"))?;
        self.at += 1;
        Ok(byte)
    }

    fn take(&mut self, len: usize) -> Decoded<Vec<u8>> {
        let bytes =
            self.bytes.get(self.at..).and_then(|rest| rest.get(..len)).ok_or(self.error("more bytes"))?;
        self.at += len;
        Ok(bytes.iter().map(|byte| byte ^ self.mask).collect())
    }

    fn sign_flipped(&mut self, len: usize) -> Decoded<Vec<u8>> {
        let mut bytes = self.take(len)?;
        if let Some(byte) = bytes.first_mut() {
            *byte ^= 0x80;
        }
        Ok(bytes)
    }

    fn float(&mut self, len: usize) -> Decoded<Vec<u8>> {
        let positive = self.peek().is_some_and(|byte| byte >= 0x80);
        if positive {
            return self.sign_flipped(len);
        }
        Ok(self.take(len)?.iter().map(|byte| !byte).collect())
    }

    fn halves(&mut self, back: impl Fn(u64, u64) -> (u64, u64)) -> Decoded<Vec<u8>> {
        let bytes = self.take(16)?;
        let (high, low) = halves(&bytes).ok_or(self.error("16 bytes"))?;
        let (high, low) = back(high, low);
        Ok((u128::from(high) << 64 | u128::from(low)).to_be_bytes().to_vec())
    }

    fn unescape(&mut self) -> Decoded<Vec<u8>> {
        let mut out = Vec::new();
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let plain = rest.iter().position(|byte| *byte == self.mask).ok_or(self.error("more bytes"))?;
            let start = out.len();
            out.extend_from_slice(rest.get(..plain).unwrap_or_default());
            if self.mask != 0 {
                for byte in out.get_mut(start..).unwrap_or_default() {
                    *byte ^= self.mask;
                }
            }
            self.at += plain + 1;
            let mut zeros = 0;
            while self.peek() == Some(0xfe) {
                self.at += 1;
                zeros += 1;
            }
            if self.peek() == Some(0xff) {
                self.at += 1;
                out.resize(out.len() + zeros + 1, 0);
            } else {
                out.resize(out.len() + zeros, 0);
                return Ok(out);
            }
        }
    }

    /// A big-endian number of `len` bytes with leading bits already in `start`.
    fn big_endian(&mut self, start: u64, len: u32) -> Decoded<u64> {
        (0..len).try_fold(start, |number, _| Ok(number << 8 | u64::from(self.next()?)))
    }

    fn signed_vint(&mut self) -> Decoded<i64> {
        let first = self.next()?;
        // Negative numbers are the inverse of the positive form.
        let inverted = if first < 0x80 { 0xffu8 } else { 0 };
        let following = (first ^ inverted).leading_ones() - 1;
        let flip = u64::from_be_bytes([inverted; 8]);
        if following == 7 {
            let second = self.peek().ok_or(self.error("more bytes"))? ^ inverted;
            let number = if second >= 0x80 {
                self.big_endian(0, 8)? ^ flip
            } else {
                self.big_endian(0, 7)? ^ flip >> 8
            };
            return Ok((number & !(1 << 63)) as i64 ^ flip as i64);
        }
        let kept = u64::from(first ^ inverted) & (0x3f >> following);
        let number = self.big_endian(0, following)? ^ flip.checked_shr(64 - 8 * following).unwrap_or(0);
        Ok((kept << (8 * following) | number) as i64 ^ flip as i64)
    }

    fn varint(&mut self) -> Decoded<Vec<u8>> {
        let sign = match self.peek() {
            Some(0xff) => 0u8,
            Some(0x00) => 0xff,
            _ => return Ok(strip_sign_bytes(&self.signed_vint()?.to_be_bytes()).to_vec()),
        };
        self.at += 1;
        let first = self.next()? ^ sign;
        let following = first.leading_ones();
        let kept = if following >= 8 { 0 } else { u64::from(first & (0xff >> following)) };
        let flip = u64::from_be_bytes([sign; 8]).checked_shr(64 - 8 * following).unwrap_or(0);
        let coded = self.big_endian(0, following)? ^ flip;
        let len = kept.checked_shl(8 * following).unwrap_or(0) | coded;
        let len =
            usize::try_from(len).ok().and_then(|len| len.checked_add(7)).ok_or(self.error("a length"))?;
        let digits = self.take(len)?;
        let mut out = Vec::with_capacity(len + 1);
        // The sign byte is dropped when encoding; it is needed when the first digit says otherwise.
        if digits.first().is_some_and(|digit| (digit ^ sign) >= 0x80) {
            out.push(sign);
        }
        out.extend_from_slice(&digits);
        Ok(out)
    }

    fn decimal(&mut self) -> Decoded<Vec<u8>> {
        let header = self.next()?;
        if header == 0x80 {
            return Ok(vec![0; 5]);
        }
        let negative = header < 0x80;
        let signed_len = i32::from(header & 0x7f) - 0x40;
        if signed_len.unsigned_abs() > 5 {
            return Err(self.error("a decimal's exponent of at most 5 bytes"));
        }
        let start = if signed_len < 0 { u64::MAX } else { 0 };
        let modulated = self.big_endian(start, signed_len.unsigned_abs())? as i64;
        let mut exponent = if negative { -modulated } else { modulated };
        let mut digits: Vec<u8> = Vec::new();
        let mut first = 0i64;
        loop {
            let byte = self.next()?;
            if byte == 0 {
                break;
            }
            let value = i64::from(byte) - 0x80;
            if digits.is_empty() && first == 0 {
                first = value;
                digits.push(0);
            } else {
                let value = u8::try_from(value).ok().filter(|value| *value < 100);
                digits.push(value.ok_or(self.error("two decimal digits"))?);
            }
            exponent -= 1;
        }
        // The first pair is signed, those after it add to it.
        let places = digits.len().saturating_sub(1);
        let rest = BigInt::from_radix_be(num_bigint::Sign::Plus, &digits, 100).unwrap_or_default();
        let unscaled = BigInt::from(first) * BigInt::from(100).pow(places as u32) + rest;
        let scale =
            i32::try_from(-2 * exponent).map_err(|_| self.error("a decimal whose scale fits 32 bits"))?;
        Ok(crate::decimal::Decimal::new(unscaled, scale).to_bytes())
    }

    /// The next element of a value that holds others: `None` after the last, `Some(None)` for one without bytes.
    fn nested(&mut self, ty: &CqlType) -> Decoded<Option<Option<Vec<u8>>>> {
        match self.next()? {
            TERMINATOR => Ok(None),
            NEXT_COMPONENT_NULL => Ok(Some(None)),
            NEXT_COMPONENT => Ok(Some(Some(ty.decode(self)?))),
            _ => Err(self.error("a separator or a terminator")),
        }
    }

    fn elements(&mut self, types: &[&CqlType]) -> Decoded<CollectionBuilder> {
        let mut builder = CollectionBuilder::new();
        loop {
            for (i, ty) in types.iter().enumerate() {
                match self.nested(ty)? {
                    Some(element) => builder.push(&element.unwrap_or_default()),
                    None if i == 0 => return Ok(builder),
                    None => return Err(self.error("a value for the key")),
                }
            }
        }
    }

    /// Every field is written, the nulls at the end too, as Cassandra does: a value of nulls only is not empty.
    fn fields<'t>(&mut self, types: impl Iterator<Item = &'t CqlType>) -> Decoded<Vec<u8>> {
        let mut out = Vec::new();
        let mut ended = false;
        for ty in types {
            let field = if ended { None } else { self.nested(ty)? };
            ended |= field.is_none();
            write_element(field.flatten().as_deref(), &mut out);
        }
        if !ended && self.next()? != TERMINATOR {
            return Err(self.error("a terminator"));
        }
        Ok(out)
    }
}
