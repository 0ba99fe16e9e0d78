//! Packing the bodies of frames: LZ4 or Zstd, with the unpacked length in front.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use bytes::{Bytes, BytesMut};
use lz4_flex::block::CompressTable;

use crate::frame_error::FrameError;

/// How a body is packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Packing {
    /// Not at all.
    #[default]
    None = 0,
    /// LZ4 blocks: little work.
    Lz4 = 1,
    /// Zstd: fewer bytes.
    Zstd = 2,
}

/// Length of the unpacked length.
const LENGTH_LEN: usize = 4;
/// Speed before size: messages between nodes wait for it.
const ZSTD_LEVEL: i32 = 1;

impl Packing {
    /// The packing of a number.
    pub fn from_number(number: u8) -> Option<Packing> {
        [Packing::None, Packing::Lz4, Packing::Zstd].into_iter().find(|packing| *packing as u8 == number)
    }

    /// Its bit in a set of packings; none needs no bit.
    pub const fn bit(self) -> u8 {
        match self {
            Packing::None => 0,
            Packing::Lz4 => 1,
            Packing::Zstd => 2,
        }
    }
}

enum Method {
    None,
    Lz4(Box<CompressTable>),
    Zstd(Box<zstd::bulk::Compressor<'static>>),
}

/// Packs bodies for one connection.
pub struct Packer {
    method: Method,
    len_min: usize,
}

impl Packer {
    /// Packs bodies of at least `len_min` bytes.
    pub fn new(packing: Packing, len_min: usize) -> Packer {
        let method = match packing {
            Packing::None => Method::None,
            Packing::Lz4 => Method::Lz4(Box::default()),
            Packing::Zstd => match zstd::bulk::Compressor::new(ZSTD_LEVEL) {
                Ok(zstd) => Method::Zstd(Box::new(zstd)),
                Err(_) => Method::None,
            },
        };
        Packer { method, len_min }
    }

    /// Whether a body of this length is worth trying.
    pub fn packs(&self, len: usize) -> bool {
        len >= self.len_min && !matches!(self.method, Method::None)
    }

    /// Appends the packed form of `body` to `out`, when that is shorter; otherwise leaves `out` as it was.
    pub fn pack(&mut self, body: &[u8], out: &mut BytesMut) -> Packing {
        if body.len() < self.len_min {
            return Packing::None;
        }
        let start = out.len();
        let Ok(length) = u32::try_from(body.len()) else { return Packing::None };
        let (packing, room) = match &self.method {
            Method::None => return Packing::None,
            Method::Lz4(_) => (Packing::Lz4, lz4_flex::block::get_maximum_output_size(body.len())),
            Method::Zstd(_) => (Packing::Zstd, zstd::zstd_safe::compress_bound(body.len())),
        };
        out.extend_from_slice(&length.to_be_bytes());
        let data = out.len();
        out.resize(data + room, 0);
        let target = out.get_mut(data..).unwrap_or_default();
        let written = match &mut self.method {
            Method::None => None,
            Method::Lz4(table) => lz4_flex::block::compress_into_with_table(body, target, table).ok(),
            Method::Zstd(zstd) => zstd.compress_to_buffer(body, target).ok(),
        };
        match written {
            Some(written) if LENGTH_LEN + written < body.len() => {
                out.truncate(data + written);
                packing
            }
            _ => {
                out.truncate(start);
                Packing::None
            }
        }
    }
}

/// Unpacks a body of at most `len_max` bytes. One that is not packed is given back as it is.
///
/// # Errors
/// [`FrameError::TooLong`] when it announces more than `len_max` bytes, [`FrameError::Packed`] when it does not unpack
/// to the announced length.
pub fn unpack(packing: Packing, body: Bytes, len_max: usize) -> Result<Bytes, FrameError> {
    if packing == Packing::None {
        return Ok(body);
    }
    let Some((length, packed)) = body.split_first_chunk::<LENGTH_LEN>() else {
        return Err(FrameError::Packed("it has no length"));
    };
    let length = u32::from_be_bytes(*length) as usize;
    if length > len_max {
        return Err(FrameError::TooLong { len: length as u64, max: len_max });
    }
    let mut out = vec![0; length];
    let written = match packing {
        Packing::None => Some(0),
        Packing::Lz4 => lz4_flex::block::decompress_into(packed, &mut out).ok(),
        Packing::Zstd => zstd::bulk::decompress_to_buffer(packed, &mut out).ok(),
    };
    match written {
        Some(written) if written == length => Ok(Bytes::from(out)),
        Some(_) => Err(FrameError::Packed("it has another length than it says")),
        None => Err(FrameError::Packed("it does not unpack")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_bodies_unpack() {
        let body = Bytes::from(b"a row and a row and a row ".repeat(100));
        for packing in [Packing::Lz4, Packing::Zstd] {
            let mut packer = Packer::new(packing, 100);
            let mut out = BytesMut::from(&b"before"[..]);
            assert_eq!(packer.pack(&body, &mut out), packing);
            let packed = out.split_off(6).freeze();
            assert_eq!(&out[..], b"before");
            assert!(packed.len() < body.len() / 4);
            assert_eq!(unpack(packing, packed.clone(), body.len()), Ok(body.clone()));
            let max = body.len() - 1;
            assert_eq!(
                unpack(packing, packed.clone(), max),
                Err(FrameError::TooLong { len: body.len() as u64, max }),
                "no memory is allocated for a length above the limit"
            );
            let cut = packed.slice(..packed.len() / 2);
            assert!(matches!(unpack(packing, cut, body.len()), Err(FrameError::Packed(_))));
            assert!(matches!(unpack(packing, Bytes::from_static(b"abc"), 10), Err(FrameError::Packed(_))));
        }
    }

    #[test]
    fn incompressible_bodies_are_sent_as_they_are() {
        let noise: Bytes =
            (0..1000u32).flat_map(|i| crc32fast::hash(&i.to_be_bytes()).to_be_bytes()).collect();
        let mut out = BytesMut::new();
        for packing in [Packing::None, Packing::Lz4, Packing::Zstd] {
            let mut packer = Packer::new(packing, 100);
            assert_eq!(packer.pack(b"short", &mut out), Packing::None);
            assert_eq!(packer.pack(&noise, &mut out), Packing::None, "{packing:?}");
            assert!(out.is_empty());
        }
        assert_eq!(unpack(Packing::None, noise.clone(), 0), Ok(noise));
    }
}
