//! Masking functions: values that reveal nothing of the masked one.

use super::{Answer, Function, FunctionError};
use crate::elements::{build_list, build_tuple, build_vector};
use crate::{CqlType, uuid};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mask {
    Null,
    Default,
    Replace,
    Inner,
    Outer,
    Hash,
}

impl Function {
    pub(super) fn mask(&self, mask: Mask, arguments: &[Option<&[u8]>]) -> Answer {
        let value = arguments.first().copied().flatten();
        match mask {
            Mask::Null => Ok(None),
            Mask::Default => Ok(Some(default_value(&self.returns))),
            Mask::Replace => Ok(arguments.get(1).copied().flatten().map(<[u8]>::to_vec)),
            Mask::Inner | Mask::Outer => {
                value.map_or(Ok(None), |value| self.mask_part(mask, value, arguments))
            }
            Mask::Hash => {
                if let Some(name) = arguments.get(1).copied().flatten()
                    && !matches!(name, b"SHA-256" | b"sha-256")
                {
                    let name = String::from_utf8_lossy(name);
                    return Err(FunctionError::Invalid(format!("Hash algorithm not found: {name}")));
                }
                Ok(value.map(|value| sha256(value).to_vec()))
            }
        }
    }

    /// Replaces the characters inside or outside of two margins.
    fn mask_part(&self, mask: Mask, value: &[u8], arguments: &[Option<&[u8]>]) -> Answer {
        let margin = |i: usize| {
            let bytes = arguments.get(i).copied().flatten().and_then(|bytes| bytes.try_into().ok());
            i64::from(bytes.map_or(0, i32::from_be_bytes))
        };
        let text = std::str::from_utf8(value).map_err(|_| self.malformed(0))?;
        let padding = match arguments.get(3).copied().flatten() {
            Some(bytes) => {
                let padding = std::str::from_utf8(bytes).map_err(|_| self.malformed(3))?;
                let mut chars = padding.chars();
                match (chars.next(), chars.next()) {
                    (Some(only), None) => only,
                    _ => {
                        return Err(FunctionError::Invalid(format!(
                            "The padding argument for function {} should be single-character, but '{padding}' has {} \
                             characters.",
                            self.full_name(),
                            padding.encode_utf16().count()
                        )));
                    }
                }
            }
            None => '*',
        };
        let (begin, end) = (margin(1), text.chars().count() as i64 - 1 - margin(2));
        let masked = text.chars().zip(0i64..).map(|(c, i)| {
            let inside = i >= begin && i <= end;
            if inside == (mask == Mask::Inner) { padding } else { c }
        });
        Ok(Some(masked.collect::<String>().into_bytes()))
    }
}

/// The value that stands for any other of the type.
fn default_value(ty: &CqlType) -> Vec<u8> {
    match ty {
        CqlType::Text | CqlType::Ascii => b"****".to_vec(),
        CqlType::Blob | CqlType::Custom(_) => Vec::new(),
        CqlType::Boolean | CqlType::Tinyint | CqlType::Varint => vec![0],
        CqlType::Smallint => vec![0; 2],
        CqlType::Int | CqlType::Float | CqlType::Inet => vec![0; 4],
        CqlType::Bigint | CqlType::Counter | CqlType::Double | CqlType::Time | CqlType::Timestamp => {
            vec![0; 8]
        }
        CqlType::Date => 0x8000_0000u32.to_be_bytes().to_vec(),
        CqlType::Decimal => vec![0; 5],
        CqlType::Duration => vec![0; 3],
        CqlType::Uuid => vec![0; 16],
        CqlType::Timeuuid => uuid::min_time_uuid(0).to_vec(),
        CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. } => build_list::<&[u8]>([]),
        CqlType::Tuple(types) => build_tuple(types.iter().map(|ty| Some(default_value(ty)))),
        CqlType::Udt { ty, .. } => build_tuple(ty.fields.iter().map(|(_, ty)| Some(default_value(ty)))),
        CqlType::Vector { element, dimension } => {
            build_vector(element, (0..*dimension).map(|_| default_value(element)))
        }
    }
}

/// SHA-256 (FIPS 180-4), for `mask_hash` only: nothing depends on its speed.
#[expect(clippy::indexing_slicing, reason = "the block has 64 words")]
fn sha256(data: &[u8]) -> [u8; 32] {
    let mut state: [u32; 8] =
        [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];
    let mut padded = data.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64) - 8, 0);
    padded.extend_from_slice(&(data.len() as u64 * 8).to_be_bytes());
    let constants = round_constants();
    for block in padded.chunks_exact(64) {
        let mut words = [0u32; 64];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = bytes.try_into().map_or(0, u32::from_be_bytes);
        }
        for i in 16..64 {
            let (a, b) = (words[i - 15], words[i - 2]);
            let s0 = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
            let s1 = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
            words[i] = words[i - 16].wrapping_add(s0).wrapping_add(words[i - 7]).wrapping_add(s1);
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
        for (constant, word) in constants.iter().zip(words) {
            let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let choice = (e & f) ^ (!e & g);
            let first = h.wrapping_add(s1).wrapping_add(choice).wrapping_add(*constant).wrapping_add(word);
            let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let majority = (a & b) ^ (a & c) ^ (b & c);
            (h, g, f, e) = (g, f, e, d.wrapping_add(first));
            (d, c, b, a) = (c, b, a, first.wrapping_add(s0.wrapping_add(majority)));
        }
        for (sum, word) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *sum = sum.wrapping_add(word);
        }
    }
    let mut out = [0; 32];
    for (bytes, word) in out.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    out
}

/// The first 32 bits of the fractions of the cube roots of the first 64 primes.
fn round_constants() -> [u32; 64] {
    let mut constants = [0; 64];
    let primes = (2u64..).filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d)));
    for (constant, prime) in constants.iter_mut().zip(primes) {
        // floor(cbrt(prime) · 2^32) by binary search, exact in 128 bits.
        let (mut low, mut high) = (0u128, 8u128 << 32);
        while high - low > 1 {
            let middle = (low + high) / 2;
            if middle * middle * middle <= u128::from(prime) << 96 { low = middle } else { high = middle }
        }
        *constant = low as u32;
    }
    constants
}

#[cfg(test)]
mod tests {
    #[test]
    fn sha256_of_known_texts() {
        let hex = |data: &[u8]| crate::validate::hex(&super::sha256(data));
        assert_eq!(hex(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let long = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(long.as_bytes()), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    }
}
