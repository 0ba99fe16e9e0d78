//! The frames of v5: the layer below envelopes that adds checksums and, optionally, LZ4.
//!
//! A frame is a header (payload length, a bit that says whether the payload consists of whole envelopes, a CRC-24),
//! up to 128 KiB of payload and the payload's CRC-32. With LZ4 the header also has the unpacked length; zero there
//! means that the payload is not packed. Everything in the header is little-endian.

use crate::ProtocolError;

/// The longest payload of one frame in bytes; longer envelopes are spread over several.
pub const MAX_FRAME_PAYLOAD: usize = (1 << 17) - 1;

/// Length of the CRC-32 after a payload.
pub(crate) const TRAILER_LEN: usize = 4;

/// How envelopes lie on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Bare envelopes: v3, v4, and v5 until STARTUP is answered.
    Bare,
    /// Frames with checksums.
    Checksummed,
    /// Frames with checksums and LZ4 payloads.
    Lz4,
}

impl Framing {
    /// Length of a frame's header in bytes.
    pub(crate) fn header_len(self) -> usize {
        match self {
            Framing::Bare => 0,
            Framing::Checksummed => 6,
            Framing::Lz4 => 8,
        }
    }
}

const LENGTH_BITS: u32 = 17;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;

/// The fields of a frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// Bytes of payload that follow the header.
    pub(crate) payload_len: usize,
    /// With LZ4, length of the payload when unpacked; 0 when it is not packed.
    pub(crate) unpacked_len: usize,
    /// Whether the payload consists of whole envelopes.
    pub(crate) self_contained: bool,
}

impl FrameHeader {
    /// Writes the header into the first bytes of `out`.
    ///
    /// # Panics
    /// When a length has more than 17 bits, or `out` is shorter than the header.
    pub(crate) fn encode(&self, framing: Framing, out: &mut [u8]) {
        assert!(self.payload_len <= MAX_FRAME_PAYLOAD);
        assert!(self.unpacked_len <= MAX_FRAME_PAYLOAD);
        let mut bits = self.payload_len as u64;
        let mut used = LENGTH_BITS;
        if framing == Framing::Lz4 {
            bits |= (self.unpacked_len as u64) << used;
            used += LENGTH_BITS;
        }
        bits |= u64::from(self.self_contained) << used;
        let field_len = framing.header_len() - 3;
        let bytes = bits.to_le_bytes();
        let (field, _) = bytes.split_at(field_len);
        let checksum = crc24(field).to_le_bytes();
        let (out_field, out_checksum) = out.split_at_mut(field_len);
        out_field.copy_from_slice(field);
        out_checksum.iter_mut().zip(checksum).take(3).for_each(|(target, byte)| *target = byte);
    }

    /// Reads a header of `framing.header_len()` bytes and checks it.
    pub(crate) fn decode(framing: Framing, bytes: &[u8]) -> Result<Self, ProtocolError> {
        let (field, checksum) = bytes.split_at(framing.header_len() - 3);
        let read = little_endian(checksum) as u32;
        let computed = crc24(field);
        if read != computed {
            return Err(ProtocolError::HeaderChecksum { read, computed });
        }
        let mut bits = little_endian(field);
        let payload_len = (bits & LENGTH_MASK) as usize;
        bits >>= LENGTH_BITS;
        let mut unpacked_len = 0;
        if framing == Framing::Lz4 {
            unpacked_len = (bits & LENGTH_MASK) as usize;
            bits >>= LENGTH_BITS;
        }
        Ok(Self { payload_len, unpacked_len, self_contained: bits & 1 == 1 })
    }
}

/// At most eight bytes as a number.
fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

const CRC24_START: u32 = 0x0087_5060;
const CRC24_POLYNOMIAL: u32 = 0x0197_4F0B;

#[allow(clippy::indexing_slicing, reason = "a table of all bytes")]
const CRC24_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u32) << 16;
        let mut bit = 0;
        while bit < 8 {
            crc <<= 1;
            if crc & 0x0100_0000 != 0 {
                crc ^= CRC24_POLYNOMIAL;
            }
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The checksum of a frame's header.
#[allow(clippy::indexing_slicing, reason = "the table has all bytes")]
fn crc24(bytes: &[u8]) -> u32 {
    bytes.iter().fold(CRC24_START, |crc, byte| {
        let index = usize::from((crc >> 16) as u8 ^ byte);
        (crc << 8 & 0x00FF_FFFF) ^ CRC24_TABLE[index]
    })
}

/// The CRC-32 of the bytes `FA 2D 55 CA`, with which every payload's checksum starts.
#[allow(clippy::indexing_slicing, reason = "a constant")]
const CRC32_START: u32 = {
    let bytes = [0xFA_u8, 0x2D, 0x55, 0xCA];
    let mut crc = u32::MAX;
    let mut index = 0;
    while index < bytes.len() {
        crc ^= bytes[index] as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
            bit += 1;
        }
        index += 1;
    }
    !crc
};

/// The checksum of a frame's payload, as it lies on the wire (packed, if it is).
pub(crate) fn payload_checksum(payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(CRC32_START);
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_checksum_starts_with_the_four_bytes() {
        assert_eq!(payload_checksum(b"torc"), crc32fast::hash(b"\xFA\x2D\x55\xCAtorc"));
    }

    #[test]
    fn crc24_by_table_is_crc24_by_bits() {
        let bits = |bytes: &[u8]| {
            bytes.iter().fold(CRC24_START, |mut crc, byte| {
                crc ^= u32::from(*byte) << 16;
                for _ in 0..8 {
                    crc <<= 1;
                    if crc & 0x0100_0000 != 0 {
                        crc ^= CRC24_POLYNOMIAL;
                    }
                }
                crc
            })
        };
        for bytes in [&[][..], &[0], &[0xFF; 5], &[1, 2, 3], &[0x12, 0x34, 0x56, 0x78, 0x9A]] {
            assert_eq!(crc24(bytes), bits(bytes));
        }
    }

    #[test]
    fn headers_come_back() {
        for framing in [Framing::Checksummed, Framing::Lz4] {
            for payload_len in [0, 1, 255, 65_536, MAX_FRAME_PAYLOAD] {
                for self_contained in [false, true] {
                    let unpacked_len =
                        if framing == Framing::Lz4 { MAX_FRAME_PAYLOAD - payload_len } else { 0 };
                    let header = FrameHeader { payload_len, unpacked_len, self_contained };
                    let mut bytes = vec![0; framing.header_len()];
                    header.encode(framing, &mut bytes);
                    assert_eq!(FrameHeader::decode(framing, &bytes), Ok(header));
                    for bit in 0..bytes.len() * 8 {
                        let mut broken = bytes.clone();
                        broken[bit / 8] ^= 1 << (bit % 8);
                        assert!(FrameHeader::decode(framing, &broken).is_err(), "bit {bit} flipped unseen");
                    }
                }
            }
        }
    }
}
