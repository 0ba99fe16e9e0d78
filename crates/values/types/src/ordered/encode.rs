//! From serialised values to byte-comparable ones.

use super::{
    NEXT_COMPONENT, NEXT_COMPONENT_EMPTY, NEXT_COMPONENT_EMPTY_REVERSED, NEXT_COMPONENT_NULL, TERMINATOR,
    Terminator,
};
use crate::CqlType;
use crate::compare::strip_sign_bytes;
use crate::decimal::Decimal;
use crate::elements::{Elements, Fields, VectorElements};
use crate::uuid::{SIGNED_BYTES, halves, time_order, uuid_order};

/// Integers of this many bytes and more carry their length in front instead of being a vint.
const VARINT_FULL_FORM: usize = 7;

/// The byte-comparable form of a clustering or of a prefix of one. `types` holds each column's type and whether it is
/// in descending order; there may be fewer components than types.
pub fn encode_clustering(
    types: &[(CqlType, bool)],
    components: &[Option<&[u8]>],
    terminator: Terminator,
) -> Vec<u8> {
    let bytes: usize = components.iter().map(|component| component.map_or(0, <[u8]>::len) + 3).sum();
    let mut out = Vec::with_capacity(bytes + 1);
    encode_clustering_into(types, components.iter().copied(), terminator, &mut out);
    out
}

/// Like [`encode_clustering`], appending to `out`.
#[inline]
#[expect(clippy::expect_used, reason = "a clustering has no more components than the table has columns")]
pub fn encode_clustering_into<'a>(
    types: &[(CqlType, bool)],
    components: impl IntoIterator<Item = Option<&'a [u8]>>,
    terminator: Terminator,
    out: &mut Vec<u8>,
) {
    let mut types = types.iter();
    for component in components {
        let (ty, reversed) =
            types.next().expect("a clustering has no more components than the table has columns");
        ty.encode_ordered_component(component, *reversed, out);
    }
    out.extend(terminator.byte());
}

/// Appends the byte-comparable form of a partition key with its token in front, as partition indexes hold it: the
/// token orders first, the key's own bytes break ties. `key` is the whole serialised key.
pub fn encode_partition_key(token: i64, key: &[u8], out: &mut Vec<u8>) {
    out.push(NEXT_COMPONENT);
    sign_flipped(&token.to_be_bytes(), out);
    out.push(NEXT_COMPONENT);
    escape(key, out);
    out.push(TERMINATOR);
}

impl CqlType {
    /// Appends separator and value as one component of a sequence; `None` is a missing component.
    #[inline]
    pub fn encode_ordered_component(&self, value: Option<&[u8]>, reversed: bool, out: &mut Vec<u8>) {
        let Some(value) = value else {
            out.push(NEXT_COMPONENT_NULL);
            return;
        };
        let separator = out.len();
        out.push(NEXT_COMPONENT);
        if !self.encode_ordered(value, reversed, out)
            && let Some(byte) = out.get_mut(separator)
        {
            *byte = if reversed { NEXT_COMPONENT_EMPTY_REVERSED } else { NEXT_COMPONENT_EMPTY };
        }
    }

    /// Appends the byte-comparable form of a value, all bits flipped when `reversed`. Returns whether anything was
    /// written: the empty value of types that have one beside their domain (an empty `int`) has no bytes of its own
    /// and is recognised by the separator before it (see [`CqlType::encode_ordered_component`]).
    #[inline]
    pub fn encode_ordered(&self, value: &[u8], reversed: bool, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let written = self.encode_ascending(value, out);
        if reversed && let Some(bytes) = out.get_mut(start..) {
            for byte in bytes {
                *byte = !*byte;
            }
        }
        written
    }

    #[inline]
    fn encode_ascending(&self, value: &[u8], out: &mut Vec<u8>) -> bool {
        match self {
            CqlType::Text
            | CqlType::Ascii
            | CqlType::Blob
            | CqlType::Inet
            | CqlType::Duration
            | CqlType::Custom(_) => {
                escape(value, out);
                return true;
            }
            _ if value.is_empty() => return false,
            CqlType::Int | CqlType::Timestamp | CqlType::Smallint | CqlType::Tinyint => {
                sign_flipped(value, out)
            }
            CqlType::Bigint | CqlType::Counter => match value.try_into() {
                Ok(bytes) => signed_vint(i64::from_be_bytes(bytes), out),
                Err(_) => escape(value, out),
            },
            CqlType::Uuid => match halves(value) {
                Some((high, low)) => push_halves(uuid_order(high, low), out),
                None => escape(value, out),
            },
            CqlType::Timeuuid => match halves(value) {
                Some((high, low)) => push_halves((time_order(high), low ^ SIGNED_BYTES), out),
                None => escape(value, out),
            },
            other => return other.encode_uncommon(value, out),
        }
        true
    }

    /// The types that are rarely clustering columns; `value` is not empty.
    #[inline(never)]
    fn encode_uncommon(&self, value: &[u8], out: &mut Vec<u8>) -> bool {
        match self {
            CqlType::Boolean => out.push(u8::from(value.first().is_some_and(|byte| *byte != 0))),
            CqlType::Float | CqlType::Double => float(value, out),
            CqlType::Varint => varint(value, out),
            CqlType::Decimal => match Decimal::read(value) {
                Some(number) => decimal(&number, out),
                None => escape(value, out),
            },
            CqlType::List { element, .. } => sequence(Elements::of_list(value).ok(), [element, element], out),
            CqlType::Set { element, .. } => sequence(Elements::of_set(value).ok(), [element, element], out),
            CqlType::Map { key, value: ty, .. } => sequence(Elements::of_map(value).ok(), [key, ty], out),
            CqlType::Tuple(types) => fields(types.iter(), value, out),
            CqlType::Udt { ty, .. } => fields(ty.fields.iter().map(|(_, field)| field), value, out),
            CqlType::Vector { element, dimension } => {
                for item in VectorElements::new(element, *dimension, value).flatten() {
                    element.encode_nested(Some(item), out);
                }
                out.push(TERMINATOR);
            }
            // Date, time: fixed length and unsigned.
            _ => out.extend_from_slice(value),
        }
        true
    }

    /// One element of a value that holds others; an element without bytes of its own is as good as null here.
    fn encode_nested(&self, value: Option<&[u8]>, out: &mut Vec<u8>) {
        let separator = out.len();
        out.push(NEXT_COMPONENT);
        let written = value.is_some_and(|value| self.encode_ascending(value, out));
        if !written && let Some(byte) = out.get_mut(separator) {
            *byte = NEXT_COMPONENT_NULL;
        }
    }
}

fn push_halves((high, low): (u64, u64), out: &mut Vec<u8>) {
    out.extend_from_slice(&(u128::from(high) << 64 | u128::from(low)).to_be_bytes());
}

/// Fixed-length two's complement: the sign bit flipped.
#[inline]
fn sign_flipped(value: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(value);
    if let Some(byte) = out.get_mut(start) {
        *byte ^= 0x80;
    }
}

/// IEEE-754: the sign bit flipped, and all others too when the number is negative. All NaNs are one value, behind all others.
fn float(value: &[u8], out: &mut Vec<u8>) {
    let value = match *value {
        [a, b, c, d] if f32::from_be_bytes([a, b, c, d]).is_nan() => &f32::NAN.to_be_bytes()[..],
        [a, b, c, d, e, f, g, h] if f64::from_be_bytes([a, b, c, d, e, f, g, h]).is_nan() => {
            &f64::NAN.to_be_bytes()[..]
        }
        _ => value,
    };
    let negative = value.first().is_some_and(|byte| *byte >= 0x80);
    if negative { out.extend(value.iter().map(|byte| !byte)) } else { sign_flipped(value, out) }
}

/// Bytes of any length: a zero byte ends the value; zeros inside are escaped as 00 FE… FF, zeros at the end as 00 FE….
#[inline]
fn escape(value: &[u8], out: &mut Vec<u8>) {
    if !value.contains(&0) {
        out.reserve(value.len() + 1);
        out.extend_from_slice(value);
        out.push(0);
        return;
    }
    let mut in_zeros = false;
    for byte in value {
        match (*byte, in_zeros) {
            (0, true) => out.push(0xfe),
            (0, false) => {
                out.push(0);
                in_zeros = true;
            }
            (byte, true) => {
                out.extend_from_slice(&[0xff, byte]);
                in_zeros = false;
            }
            (byte, false) => out.push(byte),
        }
    }
    out.push(if in_zeros { 0xfe } else { 0 });
}

/// A signed integer in 1 to 9 bytes: sign bit (1 for positive), then as many of that bit again as bytes follow, then
/// its opposite, then the number; all of it inverted for negative numbers.
#[inline]
pub(super) fn signed_vint(value: i64, out: &mut Vec<u8>) {
    let inverted = value >> 63;
    let magnitude = (value ^ inverted) as u64;
    let bits = 64 - (magnitude | 1).leading_zeros();
    let len = bits / 7 + 1;
    if len >= 9 {
        out.push(if inverted < 0 { 0x00 } else { 0xff });
        let coded = (magnitude | 1 << 63) ^ inverted as u64;
        out.extend_from_slice(&coded.to_be_bytes());
        return;
    }
    // `len` leading ones in the first byte, the sign bit among them.
    let mask = (0xff00u64 >> len) & 0xff;
    let coded = (magnitude | mask << (8 * (len - 1))) ^ inverted as u64;
    let bytes = coded.to_be_bytes();
    out.extend_from_slice(bytes.get(8 - len as usize..).unwrap_or_default());
}

/// An integer of any size: a vint while it is short; else a sign byte, its length and its bytes, where the length is
/// inverted for negative numbers.
fn varint(value: &[u8], out: &mut Vec<u8>) {
    let sign = if value.first().is_some_and(|byte| *byte >= 0x80) { 0xffu8 } else { 0 };
    // The sign is coded apart, so every leading sign byte can go.
    let needless = value.iter().take_while(|byte| **byte == sign).count().min(value.len() - 1);
    let digits = value.get(needless..).unwrap_or_default();
    if digits.len() < VARINT_FULL_FORM {
        let number = strip_sign_bytes(value);
        let mut bytes = [sign; 8];
        let start = bytes.len().saturating_sub(number.len());
        if let Some(tail) = bytes.get_mut(start..) {
            tail.copy_from_slice(number);
        }
        signed_vint(i64::from_be_bytes(bytes), out);
        return;
    }
    out.push(!sign);
    let start = out.len();
    unsigned_vint((digits.len() - VARINT_FULL_FORM) as u64, out);
    if let Some(length) = out.get_mut(start..) {
        for byte in length {
            *byte ^= sign;
        }
    }
    out.extend_from_slice(digits);
}

/// An unsigned integer: as many leading ones as bytes follow, a zero, then the number.
fn unsigned_vint(value: u64, out: &mut Vec<u8>) {
    stdx::vint::write_unsigned(value, out);
}

/// A decimal: sign and length of the exponent in one byte, the exponent in base 100, the digits in base 100 rounded
/// towards minus infinity so that each further byte adds to the value, and a zero.
fn decimal(number: &Decimal, out: &mut Vec<u8>) {
    let Some(parts) = number.digits() else {
        out.push(0x80);
        return;
    };
    let negative = number.unscaled.sign() == num_bigint::Sign::Minus;
    // The number is 0.DIGITS × 10^exponent; an odd exponent borrows a leading zero digit.
    let exponent = parts.exponent.div_euclid(2) + parts.exponent.rem_euclid(2);
    let borrowed = parts.exponent.rem_euclid(2) == 1;
    let modulated = if negative { -exponent } else { exponent };
    let len = 8 - modulated.unsigned_abs().leading_zeros() / 8;
    let signed_len = if modulated < 0 { -(len as i32) } else { len as i32 };
    out.push((0x40 + signed_len + if negative { 0 } else { 0x80 }) as u8);
    let bytes = modulated.to_be_bytes();
    out.extend_from_slice(bytes.get(8 - len as usize..).unwrap_or_default());

    let mut digits = parts.digits;
    if borrowed {
        digits.insert(0, b'0');
    }
    if !digits.len().is_multiple_of(2) {
        digits.push(b'0');
    }
    let pairs: Vec<i32> =
        digits.chunks(2).map(|pair| pair.iter().fold(0, |n, d| n * 10 + i32::from(d - b'0'))).collect();
    let last = pairs.len() - 1;
    for (i, pair) in pairs.iter().enumerate() {
        let rounded = match (negative, i == 0, i == last) {
            (false, _, _) => *pair,
            (true, true, true) => -pair,
            (true, true, false) => -pair - 1,
            (true, false, true) => 100 - pair,
            (true, false, false) => 99 - pair,
        };
        out.push((rounded + 0x80) as u8);
    }
    out.push(0);
}

fn sequence(elements: Option<Elements<'_>>, types: [&CqlType; 2], out: &mut Vec<u8>) {
    for (i, element) in elements.into_iter().flatten().enumerate() {
        let [even, odd] = types;
        let ty = if i.is_multiple_of(2) { even } else { odd };
        ty.encode_nested(element.unwrap_or_default(), out);
    }
    out.push(TERMINATOR);
}

/// Fields by position without the nulls at the end, so that a value of an older definition encodes the same.
fn fields<'t>(types: impl Iterator<Item = &'t CqlType>, value: &[u8], out: &mut Vec<u8>) {
    let mut end = out.len();
    for (ty, field) in types.zip(Fields::new(value)) {
        let field = field.unwrap_or_default();
        ty.encode_nested(field, out);
        if field.is_some() {
            end = out.len();
        }
    }
    out.truncate(end);
    out.push(TERMINATOR);
}

#[cfg(test)]
mod tests {
    use crate::validate::{hex, unhex};

    /// Keys with their Murmur3 tokens, as Cassandra 5.0.6 encodes them.
    #[test]
    fn partition_keys() {
        for (key, token, expected) in [
            ("", i64::MIN, "400000000000000000400038"),
            ("00", 5_048_724_184_180_415_669, "40c610abe56eff5cb54000fe38"),
            ("61", -8_839_064_797_231_613_815, "4005555565f659788940610038"),
            ("00000001", -4_069_959_284_402_364_209, "40478499982ae4e0cf4000fefeff010038"),
            ("ff00ff", -3_541_864_209_652_944_155, "404ed8c54454f772e540ff00ffff0038"),
        ] {
            let mut out = Vec::new();
            super::encode_partition_key(token, &unhex(key).unwrap_or_default(), &mut out);
            assert_eq!(hex(&out), expected);
        }
    }
}
