//! `CRC.db`: a CRC32 for each chunk of an uncompressed data file.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use crate::{DecodeError, decode::Decoder};

/// Checksums of an uncompressed data file's chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkChecksums {
    /// Bytes that each checksum covers; the last chunk may be shorter.
    pub chunk_len: u32,
    /// In order.
    pub crcs: Vec<u32>,
}

impl ChunkChecksums {
    /// The chunk that Cassandra uses.
    pub const CHUNK_LEN: u32 = 64 << 10;
    /// The largest chunk that is accepted.
    pub const CHUNK_LEN_MAX: u32 = 64 << 20;
    const WRITES_WHAT_IT_READS: () = assert!(Self::CHUNK_LEN <= Self::CHUNK_LEN_MAX, "chunks are accepted");

    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let () = Self::WRITES_WHAT_IT_READS;
        assert!((1..=Self::CHUNK_LEN_MAX).contains(&self.chunk_len), "a chunk length that can be read again");
        let mut out = Vec::with_capacity(4 + self.crcs.len() * 4);
        out.extend_from_slice(&self.chunk_len.to_be_bytes());
        for crc in &self.crcs {
            out.extend_from_slice(&crc.to_be_bytes());
        }
        out
    }

    /// Decodes the output of [`ChunkChecksums::encode`].
    ///
    /// # Errors
    /// A [`DecodeError`] when the bytes are cut off or the chunk length is 0 or too large.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let chunk_len = decoder.u32("chunk length")?;
        if chunk_len == 0 || chunk_len > Self::CHUNK_LEN_MAX {
            return Err(decoder.wrong(
                4,
                format!("a chunk length from 1 to {}", Self::CHUNK_LEN_MAX),
                chunk_len.to_string(),
            ));
        }
        let mut crcs = Vec::with_capacity(decoder.left() / 4);
        while decoder.left() > 0 {
            crcs.push(decoder.u32("checksum")?);
        }
        Ok(Self { chunk_len, crcs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(chunk_len in 1..ChunkChecksums::CHUNK_LEN_MAX, crcs in prop::collection::vec(any::<u32>(), 0..20), cut in 1usize..4) {
            let checksums = ChunkChecksums { chunk_len, crcs };
            let bytes = checksums.encode();
            prop_assert_eq!(ChunkChecksums::decode(&bytes[..bytes.len() - cut]).is_err(), true);
            prop_assert_eq!(ChunkChecksums::decode(&bytes), Ok(checksums));
        }
    }
}
