//! Cassandra's variable-length integers (`VIntCoding`): the number of leading one bits of the first byte is
//! the number of bytes that follow, the rest is big-endian. Signed values are zigzag-coded first.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use crate::{Reader, ShortRead};

/// The longest coding of a 64-bit integer, in bytes.
pub const LEN_MAX: usize = 9;

/// How many bytes [`write_unsigned`] takes for `value`.
#[inline]
pub fn unsigned_len(value: u64) -> usize {
    // 7 payload bits a byte, up to 8 bytes; a ninth byte carries a full 64 bits.
    let magnitude = (value | 1).leading_zeros() as usize;
    9 - (magnitude.saturating_sub(1)) / 7
}

/// Appends `value`.
#[inline]
pub fn write_unsigned(value: u64, out: &mut Vec<u8>) {
    // Lengths and differences are nearly always below this.
    if value < 0x80 {
        out.push(value as u8);
        return;
    }
    write_longer(value, out);
}

fn write_longer(value: u64, out: &mut Vec<u8>) {
    let len = unsigned_len(value);
    if len == LEN_MAX {
        out.push(0xff);
        out.extend_from_slice(&value.to_be_bytes());
        return;
    }
    // `len - 1` leading ones in the first of `len` bytes.
    let ones = u64::from(!(0xffu8 >> (len - 1))) << (8 * (len - 1));
    let bytes = (value | ones).to_be_bytes();
    out.extend_from_slice(bytes.split_at(8 - len).1);
}

/// Appends `value` zigzag-coded.
#[inline]
pub fn write_signed(value: i64, out: &mut Vec<u8>) {
    write_unsigned(zigzag(value), out);
}

/// How many bytes [`write_signed`] takes.
#[inline]
pub fn signed_len(value: i64) -> usize {
    unsigned_len(zigzag(value))
}

/// Decodes the output of [`write_unsigned`].
///
/// # Errors
/// [`ShortRead`] when the bytes end before the last of those that the first byte announces.
#[inline]
pub fn read_unsigned(reader: &mut Reader<'_>) -> Result<u64, ShortRead> {
    let first = reader.u8()?;
    if first < 0x80 {
        return Ok(u64::from(first));
    }
    let extra = first.leading_ones() as usize;
    let rest = reader.bytes(extra)?;
    let mut value = if extra >= 8 { 0 } else { u64::from(first & (0xffu8 >> extra)) };
    for byte in rest {
        value = (value << 8) | u64::from(*byte);
    }
    Ok(value)
}

/// Decodes the output of [`write_signed`].
///
/// # Errors
/// [`ShortRead`] as [`read_unsigned`].
#[inline]
pub fn read_signed(reader: &mut Reader<'_>) -> Result<i64, ShortRead> {
    let raw = read_unsigned(reader)?;
    Ok(((raw >> 1) as i64) ^ -((raw & 1) as i64))
}

#[inline]
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

impl<'a> Reader<'a> {
    /// Takes a byte string with an unsigned vint length in front (`writeWithVIntLength`).
    ///
    /// # Errors
    /// [`ShortRead`] when the length is cut off, or fewer bytes are left than it says.
    #[inline]
    pub fn bytes_vint(&mut self) -> Result<&'a [u8], ShortRead> {
        let len = read_unsigned(self)?;
        self.bytes(usize::try_from(len).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_codings() {
        for (value, hex) in [
            (0u64, vec![0u8]),
            (127, vec![0x7f]),
            (128, vec![0x80, 0x80]),
            (16383, vec![0xbf, 0xff]),
            (16384, vec![0xc0, 0x40, 0x00]),
            (u64::MAX, vec![0xff; 9]),
            ((1 << 56) - 1, vec![0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            (1 << 56, vec![0xff, 1, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            let mut out = Vec::new();
            write_unsigned(value, &mut out);
            assert_eq!(out, hex, "{value}");
            assert_eq!(out.len(), unsigned_len(value));
        }
    }

    proptest! {
        #[test]
        fn round_trips(value in any::<u64>(), shift in 0u32..64) {
            let value = value >> shift;
            let mut out = Vec::new();
            write_unsigned(value, &mut out);
            write_signed(value as i64, &mut out);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(read_unsigned(&mut reader).unwrap(), value);
            prop_assert_eq!(read_signed(&mut reader).unwrap(), value as i64);
            prop_assert!(reader.is_empty());
            prop_assert_eq!(out.len(), unsigned_len(value) + signed_len(value as i64));
            for cut in 0..unsigned_len(value) {
                prop_assert!(read_unsigned(&mut Reader::new(&out[..cut])).is_err());
            }
        }
    }
}
