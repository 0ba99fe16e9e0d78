//! `CompressionInfo.db`: how a data file is compressed and where each of its chunks begins.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use crate::{Algorithm, Compression, DecodeError, Version, decode::Decoder};

/// Every how many chunks a full offset is kept; the ones between are kept relative to it.
const ANCHOR: usize = 16;

/// The parameters of a compressed data file and the places of its chunks.
#[derive(Clone, Debug, PartialEq)]
pub struct CompressionInfo {
    /// The compression of the chunks.
    pub algorithm: Algorithm,
    /// Settings of the algorithm beside it (`compression_level`), not needed to read.
    pub options: Vec<(String, String)>,
    /// Bytes of a chunk before compression; the last one may be shorter.
    pub chunk_len: u32,
    /// Chunks of at least this many bytes on disk (checksum excluded) are not compressed.
    pub compressed_len_max: u32,
    /// Bytes of the data before compression.
    pub data_len: u64,
    /// Where chunks begin in the file.
    pub offsets: ChunkOffsets,
}

/// Rising offsets of chunks at about five bytes each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChunkOffsets {
    anchors: Vec<u64>,
    relative: Vec<u32>,
}

impl ChunkOffsets {
    /// How many chunks there are.
    pub fn len(&self) -> usize {
        self.relative.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.relative.is_empty()
    }

    /// Where a chunk begins.
    pub fn get(&self, chunk: usize) -> Option<u64> {
        Some(self.anchors.get(chunk / ANCHOR)? + u64::from(*self.relative.get(chunk)?))
    }

    /// Adds the next chunk; `false` when it does not lie after the last, or much too far after it.
    #[must_use]
    pub fn push(&mut self, offset: u64) -> bool {
        if !self.is_empty() && self.get(self.len() - 1).is_none_or(|last| last >= offset) {
            return false;
        }
        if self.len().is_multiple_of(ANCHOR) {
            self.anchors.push(offset);
        }
        let anchor = self.anchors.last().copied().unwrap_or_default();
        let Ok(relative) = u32::try_from(offset - anchor) else {
            return false;
        };
        self.relative.push(relative);
        assert_eq!(self.anchors.len(), self.relative.len().div_ceil(ANCHOR), "each offset has an anchor");
        true
    }

    /// Bytes held.
    pub fn memory_size(&self) -> usize {
        self.anchors.len() * 8 + self.relative.len() * 4
    }
}

impl CompressionInfo {
    /// The description of a file compressed in this way.
    #[expect(clippy::expect_used, reason = "chunk lengths are limited")]
    pub fn new(compression: &Compression) -> Self {
        let lens = 1..=Compression::CHUNK_LEN_MAX;
        assert!(lens.contains(&compression.chunk_len), "a chunk length that can be read again");
        let len = compression.chunk_len as f64;
        let compressed_len_max = if compression.min_ratio > 0.0 {
            (len / compression.min_ratio).ceil() as u32
        } else {
            i32::MAX as u32
        };
        let options = match compression.algorithm {
            Algorithm::Zstd if compression.level != Compression::DEFAULT.level => {
                vec![("compression_level".to_owned(), compression.level.to_string())]
            }
            _ => Vec::new(),
        };
        Self {
            algorithm: compression.algorithm,
            options,
            chunk_len: u32::try_from(compression.chunk_len).expect("chunks are below 4 GiB"),
            compressed_len_max,
            data_len: 0,
            offsets: ChunkOffsets::default(),
        }
    }

    /// The file's bytes, in the current version.
    #[expect(clippy::expect_used, reason = "this process made the values")]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.offsets.len() * 8);
        let utf = |out: &mut Vec<u8>, text: &str| {
            let len = u16::try_from(text.len()).expect("names of options are short");
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        };
        utf(&mut out, self.algorithm.class_name());
        out.extend_from_slice(&(self.options.len() as u32).to_be_bytes());
        for (name, value) in &self.options {
            utf(&mut out, name);
            utf(&mut out, value);
        }
        out.extend_from_slice(&self.chunk_len.to_be_bytes());
        out.extend_from_slice(&self.compressed_len_max.to_be_bytes());
        out.extend_from_slice(&self.data_len.to_be_bytes());
        let chunks = u32::try_from(self.offsets.len()).expect("fewer than 2^32 chunks");
        let expected = self.data_len.div_ceil(u64::from(self.chunk_len));
        assert_eq!(u64::from(chunks), expected, "there are as many chunks as the data needs");
        out.extend_from_slice(&chunks.to_be_bytes());
        for chunk in 0..self.offsets.len() {
            let offset = self.offsets.get(chunk).expect("the chunk exists");
            out.extend_from_slice(&offset.to_be_bytes());
        }
        out
    }

    /// Decodes the output of [`CompressionInfo::encode`]. `file_len` is the length of the data file, below which every chunk
    /// must lie.
    ///
    /// # Errors
    /// A [`DecodeError`] when the bytes are cut off, the compressor is unknown, the chunk length is out of range, there
    /// are not as many chunks as the data needs, or their offsets do not rise below `file_len`.
    pub fn decode(bytes: &[u8], version: Version, file_len: u64) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let class = decoder.utf("name of the compressor")?;
        let algorithm = Algorithm::from_class_name(class)
            .ok_or_else(|| decoder.wrong(class.len(), "a compressor that is known", class))?;
        let count = decoder.count(4, "options of the compressor")?;
        let mut options = Vec::with_capacity(count);
        for _ in 0..count {
            let name = decoder.utf("name of an option")?.to_owned();
            options.push((name, decoder.utf("value of an option")?.to_owned()));
        }
        let chunk_len = decoder.u32("chunk length")?;
        if chunk_len == 0 || chunk_len as usize > Compression::CHUNK_LEN_MAX {
            let expected = format!("a chunk length from 1 to {}", Compression::CHUNK_LEN_MAX);
            return Err(decoder.wrong(4, expected, chunk_len.to_string()));
        }
        let compressed_len_max = if version.capabilities().has_uncompressed_chunks {
            decoder.u32("maximal compressed length")?
        } else {
            i32::MAX as u32
        };
        let data_len = decoder.u64("length of the data")?;
        let chunks = decoder.count(8, "chunks")?;
        if data_len.div_ceil(u64::from(chunk_len)) != chunks as u64 {
            let expected = format!("{} chunks for {data_len} bytes", data_len.div_ceil(u64::from(chunk_len)));
            return Err(decoder.wrong(4, expected, chunks.to_string()));
        }
        let mut offsets = ChunkOffsets {
            anchors: Vec::with_capacity(chunks / ANCHOR + 1),
            relative: Vec::with_capacity(chunks),
        };
        for _ in 0..chunks {
            let offset = decoder.u64("offset of a chunk")?;
            if offset >= file_len || !offsets.push(offset) {
                return Err(decoder.wrong(8, format!("rising offsets below {file_len}"), offset.to_string()));
            }
        }
        decoder.end()?;
        Ok(Self { algorithm, options, chunk_len, compressed_len_max, data_len, offsets })
    }

    /// Bytes of a chunk before compression.
    pub fn chunk_data_len(&self, chunk: u64) -> usize {
        let start = chunk * u64::from(self.chunk_len);
        assert!(start < self.data_len, "a chunk begins in the data");
        self.data_len.saturating_sub(start).min(u64::from(self.chunk_len)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(
            gaps in prop::collection::vec(1u64..100_000, 0..50),
            short in 0u64..1024,
            options in prop::collection::vec(("[a-z_]{0,9}", "[a-z0-9.]{0,5}"), 0..3),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut offsets = ChunkOffsets::default();
            let mut at = 0;
            for gap in &gaps {
                prop_assert!(offsets.push(at));
                at += gap;
            }
            let info = CompressionInfo {
                algorithm: Algorithm::Snappy,
                options,
                chunk_len: 1024,
                compressed_len_max: 900,
                data_len: (gaps.len() as u64 * 1024).saturating_sub(short),
                offsets,
            };
            let bytes = info.encode();
            prop_assert_eq!(CompressionInfo::decode(&bytes, Version::Nb, at).unwrap(), info);
            prop_assert!(CompressionInfo::decode(&bytes[..cut.index(bytes.len())], Version::Nb, at).is_err());
            if !gaps.is_empty() {
                let last = at - gaps[gaps.len() - 1];
                prop_assert!(CompressionInfo::decode(&bytes, Version::Nb, last).is_err());
            }
        }
    }
}
