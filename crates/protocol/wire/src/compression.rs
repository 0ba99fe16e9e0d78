//! Compression of bodies (v3 and v4, §5) and of frame payloads (v5): LZ4 and Snappy, with every declared length
//! checked against the capacity of the packed bytes before memory is allocated.

use bytes::Bytes;
use lz4_flex::block::CompressTable;

use crate::ProtocolError;

/// The names that STARTUP's `COMPRESSION` may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// LZ4 blocks.
    Lz4,
    /// Snappy blocks; not in v5.
    Snappy,
}

impl Compression {
    /// The algorithm with this name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("lz4") {
            Some(Self::Lz4)
        } else if name.eq_ignore_ascii_case("snappy") {
            Some(Self::Snappy)
        } else {
            None
        }
    }

    /// The name in STARTUP and SUPPORTED.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Snappy => "snappy",
        }
    }
}

/// Shorter bodies and payloads are not worth the cycles.
pub(crate) const COMPRESS_LEN_MIN: usize = 256;

/// No LZ4 block unpacks to more than this many times its length.
const LZ4_RATIO_MAX: usize = 255;
/// The same for Snappy: a copy of 64 bytes takes at least two.
const SNAPPY_RATIO_MAX: usize = 64;

const fn bad(reason: &'static str) -> ProtocolError {
    ProtocolError::BadCompression { reason }
}

/// The length that a packed body of v3 or v4 unpacks to, by its first bytes; none when they are not here yet, or [`decompress_body`]
/// refuses the body before it takes memory.
pub(crate) fn unpacked_len(
    compression: Compression,
    start: &[u8],
    packed_len: usize,
    max: usize,
) -> Option<usize> {
    let (len, ratio) = match compression {
        Compression::Lz4 => (u32::from_be_bytes(*start.first_chunk()?) as usize, LZ4_RATIO_MAX),
        Compression::Snappy => (snap::raw::decompress_len(start).ok()?, SNAPPY_RATIO_MAX),
    };
    (len <= max && len <= packed_len.saturating_mul(ratio)).then_some(len)
}

/// Unpacks a body of v3 or v4 of at most `max` bytes.
pub(crate) fn decompress_body(
    compression: Compression,
    packed: &[u8],
    max: usize,
) -> Result<Bytes, ProtocolError> {
    match compression {
        Compression::Lz4 => {
            let (len, block) =
                packed.split_first_chunk::<4>().ok_or(bad("no length in front of the block"))?;
            let len = usize::try_from(u32::from_be_bytes(*len)).unwrap_or(usize::MAX);
            if len > max {
                return Err(ProtocolError::MessageTooLong { length: len as u64, max });
            }
            decompress_lz4(block, len)
        }
        Compression::Snappy => {
            let len =
                snap::raw::decompress_len(packed).map_err(|_| bad("no length in front of the block"))?;
            if len > max {
                return Err(ProtocolError::MessageTooLong { length: len as u64, max });
            }
            if len > packed.len().saturating_mul(SNAPPY_RATIO_MAX) {
                return Err(bad("the declared length is impossible"));
            }
            let mut out = vec![0; len];
            let written = snap::raw::Decoder::new()
                .decompress(packed, &mut out)
                .map_err(|_| bad("the Snappy block is damaged"))?;
            if written != len {
                return Err(bad("the declared length is wrong"));
            }
            Ok(out.into())
        }
    }
}

/// Unpacks an LZ4 block to exactly `len` bytes.
pub(crate) fn decompress_lz4(block: &[u8], len: usize) -> Result<Bytes, ProtocolError> {
    if len > block.len().saturating_mul(LZ4_RATIO_MAX) {
        return Err(bad("the declared length is impossible"));
    }
    if len == 0 {
        return Ok(Bytes::new());
    }
    let mut out = vec![0; len];
    let written =
        lz4_flex::block::decompress_into(block, &mut out).map_err(|_| bad("the LZ4 block is damaged"))?;
    if written != len {
        return Err(bad("the declared length is wrong"));
    }
    Ok(out.into())
}

/// The memory that compressing needs; made on first use and dropped when a connection falls idle.
#[derive(Default)]
pub(crate) struct Compressor {
    lz4: Option<Box<CompressTable>>,
    snappy: Option<Box<snap::raw::Encoder>>,
    packed: Vec<u8>,
}

impl Compressor {
    /// Packs a body for v3 or v4. `None` when that saves nothing.
    pub(crate) fn compress_body(&mut self, compression: Compression, plain: &[u8]) -> Option<&[u8]> {
        match compression {
            Compression::Lz4 => {
                let len = u32::try_from(plain.len()).ok()?;
                let written = self.lz4_after(4, plain)?;
                self.packed.first_chunk_mut::<4>()?.copy_from_slice(&len.to_be_bytes());
                self.packed.get(..written).filter(|packed| packed.len() < plain.len())
            }
            Compression::Snappy => {
                self.grow(snap::raw::max_compress_len(plain.len()));
                let written = self
                    .snappy
                    .get_or_insert_with(|| Box::new(snap::raw::Encoder::new()))
                    .compress(plain, &mut self.packed)
                    .ok()?;
                self.packed.get(..written).filter(|packed| packed.len() < plain.len())
            }
        }
    }

    /// Packs a frame's payload as a bare LZ4 block. `None` when that saves nothing.
    pub(crate) fn compress_payload(&mut self, plain: &[u8]) -> Option<&[u8]> {
        let written = self.lz4_after(0, plain)?;
        self.packed.get(..written).filter(|packed| packed.len() < plain.len())
    }

    /// Writes the LZ4 block of `plain` after `offset` bytes of `packed`; the end of the written bytes.
    fn lz4_after(&mut self, offset: usize, plain: &[u8]) -> Option<usize> {
        self.grow(offset + lz4_flex::block::get_maximum_output_size(plain.len()));
        let table = self.lz4.get_or_insert_default();
        let target = self.packed.get_mut(offset..)?;
        let written = lz4_flex::block::compress_into_with_table(plain, target, table).ok()?;
        Some(offset + written)
    }

    fn grow(&mut self, len: usize) {
        if self.packed.len() < len {
            self.packed.resize(len, 0);
        }
    }
}
