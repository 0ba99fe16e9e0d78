//! MD5 (RFC 1321), by which the manifests of an export name the content of its files. It protects nothing.

const BLOCK: usize = 64;
/// Left rotations: a line a round, repeated four times.
const ROTATIONS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The digest of bytes that come in parts.
pub(crate) struct Md5 {
    state: [u32; 4],
    /// Bytes that do not fill a block yet.
    rest: Vec<u8>,
    len: u64,
    constants: [u32; BLOCK],
}

impl Md5 {
    /// That of no bytes.
    pub(crate) fn new() -> Self {
        let mut constants = [0; BLOCK];
        for (at, constant) in constants.iter_mut().enumerate() {
            *constant = (((at + 1) as f64).sin().abs() * 4_294_967_296.0) as u32;
        }
        let state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
        Self { state, rest: Vec::with_capacity(BLOCK), len: 0, constants }
    }

    /// Adds bytes.
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        self.len = self.len.wrapping_add(bytes.len() as u64);
        if !self.rest.is_empty() {
            let (head, tail) = bytes.split_at(bytes.len().min(BLOCK - self.rest.len()));
            self.rest.extend_from_slice(head);
            bytes = tail;
            if self.rest.len() < BLOCK {
                return;
            }
            let rest = std::mem::take(&mut self.rest);
            self.blocks(&rest);
        }
        let (blocks, rest) = bytes.split_at(bytes.len() - bytes.len() % BLOCK);
        self.blocks(blocks);
        self.rest.extend_from_slice(rest);
    }

    /// The digest of all of them.
    pub(crate) fn finish(mut self) -> [u8; 16] {
        let bits = self.len.wrapping_mul(8);
        let mut end = std::mem::take(&mut self.rest);
        end.push(0x80);
        while end.len() % BLOCK != BLOCK - 8 {
            end.push(0);
        }
        end.extend_from_slice(&bits.to_le_bytes());
        self.blocks(&end);
        let mut digest = [0; 16];
        for (out, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(self.state) {
            *out = word.to_le_bytes();
        }
        digest
    }

    fn blocks(&mut self, bytes: &[u8]) {
        for block in bytes.as_chunks::<BLOCK>().0 {
            self.block(block);
        }
    }

    #[expect(clippy::indexing_slicing, reason = "each index is a remainder of the array's length")]
    fn block(&mut self, block: &[u8; BLOCK]) {
        let mut words = [0; 16];
        for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        let [mut a, mut b, mut c, mut d] = self.state;
        for at in 0..BLOCK {
            let round = at / 16;
            let (mixed, word) = match round {
                0 => ((b & c) | (!b & d), at),
                1 => ((d & b) | (!d & c), 5 * at + 1),
                2 => (b ^ c ^ d, 3 * at + 5),
                _ => (c ^ (b | !d), 7 * at),
            };
            let sum = a.wrapping_add(mixed).wrapping_add(self.constants[at]).wrapping_add(words[word % 16]);
            let turned = sum.rotate_left(ROTATIONS[round % 4][at % 4]);
            (a, d, c, b) = (d, c, b, b.wrapping_add(turned));
        }
        for (state, added) in self.state.iter_mut().zip([a, b, c, d]) {
            *state = state.wrapping_add(added);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(digest: [u8; 16]) -> String {
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_digests_of_the_specification() {
        for (text, digest) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
            (&"1234567890".repeat(8), "57edf4a22be3c955ac49da2e2107b67a"),
        ] {
            let mut md5 = Md5::new();
            md5.update(text.as_bytes());
            assert_eq!(hex(md5.finish()), digest, "{text}");
        }
    }

    #[test]
    fn parts_give_the_digest_of_the_whole() {
        let bytes: Vec<u8> = (0..300u32).map(|at| (at * 7) as u8).collect();
        let mut whole = Md5::new();
        whole.update(&bytes);
        let whole = whole.finish();
        for part in [1, 3, 55, 63, 64, 65, 128] {
            let mut md5 = Md5::new();
            bytes.chunks(part).for_each(|part| md5.update(part));
            assert_eq!(md5.finish(), whole, "parts of {part}");
        }
    }
}
