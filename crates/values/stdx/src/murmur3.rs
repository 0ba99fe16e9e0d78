//! Murmur3 x64 128 as Cassandra computes it: the tail bytes are sign-extended, a quirk of its first release
//! that the whole ecosystem (tokens, bloom filters) has kept.

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// Both halves of the hash of `data`.
pub fn hash128(data: &[u8], seed: u64) -> [u64; 2] {
    let mut state = [seed, seed];
    let (blocks, tail) = data.as_chunks::<16>();
    for block in blocks {
        state = add_block(state, block);
    }
    end(state, tail, data.len() as u64)
}

/// [`hash128`] of bytes that come in pieces.
#[derive(Clone, Debug)]
pub struct Hasher128 {
    state: [u64; 2],
    /// The begin of a block.
    rest: [u8; 16],
    rest_len: usize,
    bytes: u64,
}

impl Hasher128 {
    /// Of no bytes yet.
    pub fn new(seed: u64) -> Self {
        Self { state: [seed, seed], rest: [0; 16], rest_len: 0, bytes: 0 }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, mut data: &[u8]) {
        self.bytes += data.len() as u64;
        if self.rest_len > 0 {
            let (fills, further) = data.split_at(data.len().min(16 - self.rest_len));
            self.rest[self.rest_len..][..fills.len()].copy_from_slice(fills);
            self.rest_len += fills.len();
            if self.rest_len < 16 {
                return;
            }
            self.state = add_block(self.state, &self.rest);
            data = further;
        }
        let (blocks, tail) = data.as_chunks::<16>();
        for block in blocks {
            self.state = add_block(self.state, block);
        }
        self.rest[..tail.len()].copy_from_slice(tail);
        self.rest_len = tail.len();
    }

    /// Both halves of the hash of all bytes.
    pub fn finish(&self) -> [u64; 2] {
        end(self.state, &self.rest[..self.rest_len], self.bytes)
    }
}

#[inline]
fn add_block([mut h1, mut h2]: [u64; 2], block: &[u8; 16]) -> [u64; 2] {
    let (low, high) = block.split_at(8);
    let k1 = u64::from_le_bytes(low.try_into().expect("8 bytes"));
    let k2 = u64::from_le_bytes(high.try_into().expect("8 bytes"));
    h1 ^= mix1(k1);
    h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
    h2 ^= mix2(k2);
    h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    [h1, h2]
}

#[inline]
fn end([mut h1, mut h2]: [u64; 2], tail: &[u8], bytes: u64) -> [u64; 2] {
    let signed = |byte: u8, shift: usize| ((byte as i8) as i64 as u64) << shift;
    if tail.len() > 8 {
        let k2 = tail[8..].iter().enumerate().fold(0, |k, (i, b)| k ^ signed(*b, 8 * i));
        h2 ^= mix2(k2);
    }
    if !tail.is_empty() {
        let k1 = tail.iter().take(8).enumerate().fold(0, |k, (i, b)| k ^ signed(*b, 8 * i));
        h1 ^= mix1(k1);
    }
    h1 ^= bytes;
    h2 ^= bytes;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    h1 = finish(h1);
    h2 = finish(h2);
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    [h1, h2]
}

/// The Murmur3Partitioner's token of a partition key: the first half, with the smallest value (reserved for
/// "before everything") moved to the largest.
pub fn token(key: &[u8]) -> i64 {
    match hash128(key, 0)[0] as i64 {
        i64::MIN => i64::MAX,
        token => token,
    }
}

#[inline]
fn mix1(k: u64) -> u64 {
    k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

#[inline]
fn mix2(k: u64) -> u64 {
    k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

#[inline]
fn finish(mut k: u64) -> u64 {
    k ^= k >> 33;
    k = k.wrapping_mul(0xff51_afd7_ed55_8ccd);
    k ^= k >> 33;
    k = k.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_drivers_agree_on() {
        // Pairs that the drivers' own documentation and any cluster show.
        for (key, expected) in [
            (&b"123"[..], -7468325962851647638),
            (b"\x00\xff\x10\xfa\x99".repeat(10).as_slice(), 5837342703291459765),
            (b"\xfe".repeat(8).as_slice(), -8927430733708461935),
            (b"\x10".repeat(8).as_slice(), 1446172840243228796),
        ] {
            assert_eq!(token(key), expected, "{key:02x?}");
        }
    }

    #[test]
    fn pieces_of_any_length_have_the_hash_of_the_whole() {
        let data: Vec<u8> = (0..200u32).map(|n| (n * 37 % 251) as u8).collect();
        for len in 0..data.len() {
            for piece in [1, 3, 8, 15, 16, 17, 32, 50] {
                let mut hasher = Hasher128::new(7);
                data[..len].chunks(piece).for_each(|chunk| hasher.update(chunk));
                hasher.update(&[]);
                assert_eq!(hasher.finish(), hash128(&data[..len], 7), "{len} bytes by {piece}");
            }
        }
    }
}
