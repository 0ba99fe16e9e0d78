//! Compressed bodies: gzip and deflate of requests and answers. The unpacked bytes are paid for as they are unpacked, so a small one that
//! unpacks to much is refused at the limit of any body.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::{GzEncoder, MultiGzDecoder, ZlibDecoder, ZlibEncoder};
use rt::preempt::Pace;
use zstd::stream::raw::{InBuffer, Operation, OutBuffer};

use crate::{ApiError, Compression, ErrorKind};

/// Bytes that are packed between two steps of [`Pace`].
const CHUNK: usize = 16 << 10;
/// Packed bytes that are unpacked in one step: they may have 800 blocks, each with tables of its own and nothing in it.
const PIECE: usize = 1 << 10;
/// Bytes that Zstandard unpacks at once, and the largest window of its frames, as a power of two: that of all levels but the ultra ones.
const ZSTD_OUT_BYTES: usize = 64 << 10;
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// How a body is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Identity,
    Gzip,
    Deflate,
    /// Of imported files alone.
    Zstd,
}

impl Encoding {
    /// The encoding that a `Content-Encoding` names.
    pub(crate) fn of_request(header: Option<&str>) -> Result<Self, ApiError> {
        match header.map(|name| name.trim().to_ascii_lowercase()).as_deref() {
            None | Some("" | "identity") => Ok(Self::Identity),
            Some("gzip" | "x-gzip") => Ok(Self::Gzip),
            Some("deflate") => Ok(Self::Deflate),
            Some(_) => {
                let text = "The request's Content-Encoding is not supported: gzip, deflate and identity are";
                Err(ApiError::new(ErrorKind::InternalServer, text))
            }
        }
    }

    /// The encoding that an `Accept-Encoding` prefers for an answer (RFC 9110, section 12.5.3); identity where it prefers none.
    fn of_answer(accepted: &str) -> Self {
        let any = quality(accepted, "*").unwrap_or(0.0);
        let [gzip, deflate] = ["gzip", "deflate"].map(|name| quality(accepted, name).unwrap_or(any));
        let identity = quality(accepted, "identity").unwrap_or(0.0);
        let (encoding, best) = if deflate > gzip { (Self::Deflate, deflate) } else { (Self::Gzip, gzip) };
        if best > 0.0 && best >= identity { encoding } else { Self::Identity }
    }

    /// Its name in `Content-Encoding`; none for a body as it is.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::Identity => None,
            Self::Gzip => Some("gzip"),
            Self::Deflate => Some("deflate"),
            Self::Zstd => Some("zstd"),
        }
    }

    /// The body of a request as it was before it was packed; `grow` allows the unpacked bytes so far, or says why not.
    pub(crate) async fn unpack(
        self,
        body: Bytes,
        mut grow: impl FnMut(usize) -> Result<(), ApiError>,
    ) -> Result<Bytes, ApiError> {
        if self == Self::Identity {
            return Ok(body);
        }
        let not_packed = |_: io::Error| {
            let text = "The request's body is not packed as its Content-Encoding says";
            ApiError::new(ErrorKind::InternalServer, text)
        };
        if body.is_empty() {
            return Err(not_packed(io::ErrorKind::UnexpectedEof.into()));
        }
        let (mut unpacker, mut out, mut pace) =
            (Unpacker::new(self).map_err(not_packed)?, Vec::new(), Pace::default());
        for piece in body.chunks(PIECE) {
            let mut rest = piece;
            while !rest.is_empty() {
                let used = unpacker.unpack(rest, |bytes| out.extend_from_slice(bytes)).map_err(not_packed)?;
                rest = rest.get(used..).unwrap_or_default();
            }
            grow(out.len())?;
            // A piece may be all work and no output.
            pace.count(piece.len());
            pace.step().await;
        }
        unpacker.finish(|bytes| out.extend_from_slice(bytes)).map_err(not_packed)?;
        grow(out.len())?;
        Ok(out.into())
    }
}

/// Packed bytes that are unpacked piece by piece.
pub(crate) enum Unpacker {
    Plain,
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
    Deflate(Box<ZlibDecoder<Vec<u8>>>),
    Zstd(Box<ZstdUnpacker>),
}

/// Zstandard, of which a few bytes may become megabytes.
pub(crate) struct ZstdUnpacker {
    decoder: zstd::stream::raw::Decoder<'static>,
    out: Box<[u8]>,
    is_in_frame: bool,
}

impl ZstdUnpacker {
    fn new() -> io::Result<Self> {
        let mut decoder = zstd::stream::raw::Decoder::new()?;
        decoder.set_parameter(zstd::stream::raw::DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX))?;
        Ok(Self { decoder, out: vec![0; ZSTD_OUT_BYTES].into(), is_in_frame: false })
    }

    /// Unpacks until the buffer is full; the bytes that were used, and whether the buffer is full.
    fn unpack(&mut self, bytes: &[u8], take: &mut impl FnMut(&[u8])) -> io::Result<(usize, bool)> {
        let (mut input, mut output) = (InBuffer::around(bytes), OutBuffer::around(&mut *self.out));
        let wanted = self.decoder.run(&mut input, &mut output)?;
        let (used, written) = (input.pos(), output.pos());
        if used > 0 || written > 0 {
            self.is_in_frame = wanted > 0;
        }
        take(self.out.get(..written).unwrap_or_default());
        Ok((used, written == ZSTD_OUT_BYTES))
    }
}

impl Unpacker {
    /// Of bytes in this form.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(crate) fn new(encoding: Encoding) -> io::Result<Self> {
        Ok(match encoding {
            Encoding::Identity => Self::Plain,
            Encoding::Gzip => Self::Gzip(Box::new(MultiGzDecoder::new(Vec::new()))),
            Encoding::Deflate => Self::Deflate(Box::new(ZlibDecoder::new(Vec::new()))),
            Encoding::Zstd => Self::Zstd(Box::new(ZstdUnpacker::new()?)),
        })
    }

    /// Hands on the content of bytes; how many of them were used. It is called again with the others.
    ///
    /// # Errors
    /// When the bytes are not of this form.
    pub(crate) fn unpack(&mut self, bytes: &[u8], mut take: impl FnMut(&[u8])) -> io::Result<usize> {
        match self {
            Self::Plain => take(bytes),
            Self::Zstd(unpacker) => return Ok(unpacker.unpack(bytes, &mut take)?.0),
            Self::Gzip(decoder) => {
                decoder.write_all(bytes)?;
                take(&std::mem::take(decoder.get_mut()));
            }
            Self::Deflate(decoder) => {
                decoder.write_all(bytes)?;
                take(&std::mem::take(decoder.get_mut()));
            }
        }
        Ok(bytes.len())
    }

    /// Hands on the content of the last bytes.
    ///
    /// # Errors
    /// When they end in the middle.
    pub(crate) fn finish(&mut self, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        let (ended, last) = match self {
            Self::Plain => return Ok(()),
            Self::Zstd(unpacker) => {
                while unpacker.unpack(&[], &mut take)?.1 {}
                return match unpacker.is_in_frame {
                    true => Err(io::ErrorKind::UnexpectedEof.into()),
                    false => Ok(()),
                };
            }
            Self::Gzip(decoder) => (decoder.try_finish(), std::mem::take(decoder.get_mut())),
            Self::Deflate(decoder) => (decoder.try_finish(), std::mem::take(decoder.get_mut())),
        };
        take(&last);
        ended
    }
}

/// The weight that an `Accept-Encoding` gives to an encoding; none where it does not name it.
fn quality(accepted: &str, encoding: &str) -> Option<f32> {
    accepted.split(',').find_map(|one| {
        let mut parts = one.split(';').map(str::trim);
        if !parts.next()?.eq_ignore_ascii_case(encoding) {
            return None;
        }
        let mut parameters = parts.filter_map(|part| part.split_once('='));
        let weight = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
        // A weight that is no number takes nothing.
        Some(weight.map_or(1.0, |(_, weight)| weight.trim().parse().unwrap_or(0.0)))
    })
}

/// The body of an answer in the encoding that the client's `Accept-Encoding` prefers; none when it is sent as it is.
pub(crate) async fn packed(
    body: &[u8],
    accepted: Option<&str>,
    compression: Compression,
) -> Option<(Vec<u8>, Encoding)> {
    if compression.level == 0 || body.len() < compression.bytes_min {
        return None;
    }
    let level = flate2::Compression::new(compression.level);
    let encoding = Encoding::of_answer(accepted?);
    let packed = match encoding {
        Encoding::Identity | Encoding::Zstd => return None,
        Encoding::Gzip => written(GzEncoder::new(Vec::new(), level), body).await?.finish(),
        Encoding::Deflate => written(ZlibEncoder::new(Vec::new(), level), body).await?.finish(),
    };
    Some((packed.ok()?, encoding))
}

/// The encoder with the whole body, which is given to it in steps.
async fn written<E: Write>(mut encoder: E, body: &[u8]) -> Option<E> {
    let mut pace = Pace::default();
    for chunk in body.chunks(CHUNK) {
        encoder.write_all(chunk).ok()?;
        pace.count(chunk.len() / 16);
        pace.step().await;
    }
    Some(encoder)
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn ready<T>(future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return value;
            }
        }
    }

    fn unpack(encoding: Encoding, body: Vec<u8>, max: usize) -> Result<Bytes, ApiError> {
        let grow = |len| if len > max { Err(ApiError::validation("too large")) } else { Ok(()) };
        ready(encoding.unpack(body.into(), grow))
    }

    #[test]
    fn bodies_are_unpacked_within_their_limit() {
        let text = b"{\"TableName\":\"abc\"}".repeat(5000);
        let packed = packed(&text, Some("deflate;q=0.4, gzip;q=0.5"), Compression::default());
        let (gzip, _) = ready(packed).expect("it is packed");
        assert!(gzip.len() < text.len() / 20);
        assert_eq!(unpack(Encoding::Gzip, gzip.clone(), text.len()).expect("it is unpacked"), text);
        assert!(unpack(Encoding::Gzip, gzip.clone(), text.len() - 1).is_err());
        let mut zlib = ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        zlib.write_all(&text).expect("memory");
        let zlib = zlib.finish().expect("memory");
        assert_eq!(unpack(Encoding::Deflate, zlib, text.len()).expect("it is unpacked"), text);
        for len in [0, 1, 9, 10, gzip.len() / 2, gzip.len() - 1] {
            let cut = unpack(Encoding::Gzip, gzip[..len].to_vec(), text.len());
            assert_eq!(cut.expect_err("it is cut").kind, ErrorKind::InternalServer, "{len} bytes of it");
        }
        let junk = [&gzip[..], b"junk"].concat();
        assert!(unpack(Encoding::Gzip, junk, text.len()).is_err());
        assert!(unpack(Encoding::Deflate, gzip, text.len()).is_err());
    }

    #[test]
    fn a_bomb_is_refused_at_the_limit() {
        let mut bomb = GzEncoder::new(Vec::new(), flate2::Compression::best());
        for _ in 0..1000 {
            bomb.write_all(&[0; 1 << 16]).expect("memory");
        }
        let bomb = bomb.finish().expect("memory");
        let mut most = 0;
        let grow = |len| {
            most = len;
            if len > 1 << 20 { Err(ApiError::validation("too large")) } else { Ok(()) }
        };
        assert!(ready(Encoding::Gzip.unpack(bomb.into(), grow)).is_err());
        // A piece unpacks to a thousand times its bytes at most.
        assert!(most <= 3 << 20);
    }

    /// Work without output is divided into steps, too.
    #[test]
    fn empty_blocks_and_members_are_unpacked_in_steps() {
        // Ten bits each: not the last block, static tables, its end.
        let (mut blocks, mut bits, mut count) = (vec![0x78, 0x9c], 0_u32, 0);
        for _ in 0..200_000 {
            bits |= 0b10 << count;
            count += 10;
            while count >= 8 {
                blocks.push(bits as u8);
                (bits, count) = (bits >> 8, count - 8);
            }
        }
        let members =
            GzEncoder::new(Vec::new(), flate2::Compression::fast()).finish().expect("memory").repeat(20_000);
        for (encoding, body) in [(Encoding::Deflate, blocks), (Encoding::Gzip, members)] {
            let (mut steps, len) = (0, body.len());
            let step = |_| {
                steps += 1;
                Ok(())
            };
            let _ = ready(encoding.unpack(body.into(), step));
            assert!(steps >= len / PIECE, "{encoding:?}: {steps} steps of {len} bytes");
        }
    }

    #[test]
    fn answers_are_packed_for_clients_that_accept_it() {
        let long = b"torc".repeat(1024);
        for (accepted, expected) in [
            (None, None),
            (Some("identity"), None),
            (Some(""), None),
            (Some("gzip"), Some("gzip")),
            (Some("br, GZIP"), Some("gzip")),
            (Some("gzip;q=0"), None),
            (Some("gzip;q=x"), None),
            (Some("gzip;q=nan"), None),
            (Some("gzipped"), None),
            (Some("deflate"), Some("deflate")),
            (Some("deflate, gzip"), Some("gzip")),
            (Some("gzip;q=0.5, deflate ; Q = 0.8"), Some("deflate")),
            (Some("*"), Some("gzip")),
            (Some("*;q=0.5, gzip;q=0.1"), Some("deflate")),
            (Some("gzip;q=0, *"), Some("deflate")),
            (Some("identity, *;q=0.5"), None),
            (Some("identity;q=0.5, *;q=0.5"), Some("gzip")),
            (Some("*;q=0"), None),
        ] {
            let packed = ready(packed(&long, accepted, Compression::default()));
            assert_eq!(packed.as_ref().and_then(|(_, encoding)| encoding.name()), expected, "{accepted:?}");
            if let Some((packed, encoding)) = packed {
                assert!(packed.len() < 100);
                assert_eq!(unpack(encoding, packed, long.len()).expect("it is unpacked"), long);
            }
        }
        assert_eq!(Encoding::of_request(Some("GZIP")), Ok(Encoding::Gzip));
        for unknown in ["br", "zstd", "gzip, gzip"] {
            let refused = Encoding::of_request(Some(unknown)).expect_err(unknown);
            assert_eq!(refused.kind, ErrorKind::InternalServer, "as at AWS");
        }
    }

    #[test]
    fn an_operator_chooses_how_answers_are_packed() {
        let body = vec![b'x'; 5000];
        let len = |bytes_min, level| {
            let packed = ready(packed(&body, Some("gzip"), Compression { bytes_min, level }));
            packed.map(|(packed, _)| packed.len())
        };
        assert_eq!((len(0, 0), len(5001, 9)), (None, None));
        assert!(len(5000, 9) < len(5000, 1));
    }
}
