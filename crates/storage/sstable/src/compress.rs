//! Compression of single chunks, with the framing that Cassandra gives each algorithm.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use flate2::{Compress, Decompress, FlushCompress, FlushDecompress};

use crate::{Algorithm, Compression};

/// Compresses chunks; keeps the algorithm's memory from chunk to chunk.
pub struct Compressor {
    kind: Kind,
}

enum Kind {
    Lz4(Box<lz4_flex::block::CompressTable>),
    Zstd(zstd::bulk::Compressor<'static>),
    Snappy(snap::raw::Encoder),
    Deflate(Compress),
    Noop,
}

impl Compressor {
    /// A compressor of chunks as `compression` says.
    #[expect(clippy::expect_used, reason = "a context takes little memory")]
    pub fn new(compression: &Compression) -> Self {
        let kind = match compression.algorithm {
            Algorithm::Lz4 => Kind::Lz4(Box::default()),
            Algorithm::Zstd => {
                let level = *zstd::compression_level_range().start().max(&compression.level.min(22));
                let mut zstd = zstd::bulk::Compressor::new(level).expect("memory for a Zstd context");
                zstd.include_checksum(true).expect("Zstd knows frames with a checksum");
                Kind::Zstd(zstd)
            }
            Algorithm::Snappy => Kind::Snappy(snap::raw::Encoder::new()),
            Algorithm::Deflate => Kind::Deflate(Compress::new(flate2::Compression::default(), true)),
            Algorithm::Noop => Kind::Noop,
        };
        Self { kind }
    }

    /// Appends the compressed form of `chunk` to `out`.
    #[expect(clippy::expect_used, reason = "the output has room for the largest result")]
    pub fn compress(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        assert!(!chunk.is_empty(), "a chunk has bytes");
        assert!(chunk.len() <= Compression::CHUNK_LEN_MAX, "a chunk that can be read again");
        let start = out.len();
        match &mut self.kind {
            Kind::Lz4(table) => {
                let len = u32::try_from(chunk.len()).expect("chunks are below 4 GiB");
                out.extend_from_slice(&len.to_le_bytes());
                let room = lz4_flex::block::get_maximum_output_size(chunk.len());
                out.resize(start + 4 + room, 0);
                let written =
                    lz4_flex::block::compress_into_with_table(chunk, out.split_at_mut(start + 4).1, table)
                        .expect("the largest output fits");
                out.truncate(start + 4 + written);
            }
            Kind::Zstd(zstd) => {
                out.resize(start + zstd::zstd_safe::compress_bound(chunk.len()), 0);
                let written = zstd
                    .compress_to_buffer(chunk, out.split_at_mut(start).1)
                    .expect("the largest output fits");
                out.truncate(start + written);
            }
            Kind::Snappy(snappy) => {
                out.resize(start + snap::raw::max_compress_len(chunk.len()), 0);
                let written =
                    snappy.compress(chunk, out.split_at_mut(start).1).expect("the largest output fits");
                out.truncate(start + written);
            }
            Kind::Deflate(deflate) => {
                deflate.reset();
                // Stored blocks add 5 bytes to 16 KiB at most; header and trailer take 6.
                out.reserve(chunk.len() + chunk.len() / 1024 + 64);
                let status =
                    deflate.compress_vec(chunk, out, FlushCompress::Finish).expect("memory to deflate");
                assert_eq!(status, flate2::Status::StreamEnd, "the largest output fits");
            }
            Kind::Noop => out.extend_from_slice(chunk),
        }
        assert!(out.len() > start, "a compressed chunk has bytes");
    }
}

/// Expands a chunk that must have `len` bytes; describes the damage otherwise.
///
/// # Errors
/// The reason: the chunk is no stream of the algorithm, or gives another number of bytes than
/// `len`.
pub fn decompress(algorithm: Algorithm, chunk: &[u8], len: usize) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    match algorithm {
        Algorithm::Lz4 => {
            let (stated, block) = chunk.split_first_chunk::<4>().ok_or("fewer than 4 bytes")?;
            let stated = u32::from_le_bytes(*stated) as usize;
            if stated != len {
                return Err(format!("a stated length of {stated}"));
            }
            out.resize(len, 0);
            let found =
                lz4_flex::block::decompress_into(block, &mut out).map_err(|error| error.to_string())?;
            out.truncate(found);
        }
        Algorithm::Zstd => {
            out.reserve_exact(len);
            let found = zstd::bulk::Decompressor::new()
                .and_then(|mut zstd| zstd.decompress_to_buffer(chunk, &mut out))
                .map_err(|error| error.to_string())?;
            out.truncate(found);
        }
        Algorithm::Snappy => {
            let stated = snap::raw::decompress_len(chunk).map_err(|error| error.to_string())?;
            if stated != len {
                return Err(format!("a stated length of {stated}"));
            }
            out.resize(len, 0);
            let found =
                snap::raw::Decoder::new().decompress(chunk, &mut out).map_err(|error| error.to_string())?;
            out.truncate(found);
        }
        Algorithm::Deflate => {
            out.reserve_exact(len);
            let mut inflate = Decompress::new(true);
            let status = inflate
                .decompress_vec(chunk, &mut out, FlushDecompress::Finish)
                .map_err(|error| error.to_string())?;
            if status != flate2::Status::StreamEnd {
                return Err("a zlib stream without its end".to_owned());
            }
        }
        Algorithm::Noop => out.extend_from_slice(chunk.get(..len).unwrap_or(chunk)),
    }
    if out.len() == len { Ok(out) } else { Err(format!("{} bytes", out.len())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Algorithm; 5] =
        [Algorithm::Lz4, Algorithm::Zstd, Algorithm::Snappy, Algorithm::Deflate, Algorithm::Noop];

    proptest! {
        #[test]
        fn round_trip(
            chunks in prop::collection::vec(prop::collection::vec(prop_oneof![Just(7u8), any::<u8>()], 1..3000), 1..4),
            flip in any::<prop::sample::Index>(),
        ) {
            for algorithm in ALL {
                let mut compressor = Compressor::new(&Compression { algorithm, ..Compression::DEFAULT });
                for chunk in &chunks {
                    let mut out = vec![1, 2, 3];
                    compressor.compress(chunk, &mut out);
                    let mut compressed = out.split_off(3);
                    prop_assert_eq!(&decompress(algorithm, &compressed, chunk.len()).unwrap(), chunk);
                    if algorithm != Algorithm::Noop {
                        prop_assert!(decompress(algorithm, &compressed, chunk.len() + 1).is_err());
                    }
                    // Damage gives an error or other bytes of the same length, never a panic.
                    let at = flip.index(compressed.len());
                    compressed[at] ^= 0x11;
                    if let Ok(bytes) = decompress(algorithm, &compressed, chunk.len()) {
                        prop_assert_eq!(bytes.len(), chunk.len());
                    }
                }
            }
        }
    }
}
