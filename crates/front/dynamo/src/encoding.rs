//! Compressed bodies: gzip and deflate of requests, gzip of answers. The unpacked bytes are paid for as they are unpacked, so a small one that
//! unpacks to much is refused at the limit of any body.

use std::io::{self, Read, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use flate2::write::GzEncoder;
use rt::preempt::Pace;

use crate::{ApiError, ErrorKind};

/// Bytes that are packed or unpacked between two steps of [`Pace`].
const CHUNK: usize = 16 << 10;
/// Answers of fewer bytes are not packed.
const PACKED_MIN: usize = 1 << 10;

/// How the body of a request is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Identity,
    Gzip,
    Deflate,
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
                Err(ApiError::new(ErrorKind::Serialization, text))
            }
        }
    }

    /// The body of a request as it was before it was packed; `grow` allows the unpacked bytes so far, or says why not.
    #[expect(clippy::indexing_slicing, reason = "a reader gives at most the length of the chunk")]
    pub(crate) async fn unpack(
        self,
        body: Bytes,
        mut grow: impl FnMut(usize) -> Result<(), ApiError>,
    ) -> Result<Bytes, ApiError> {
        let mut packed: Box<dyn Read> = match self {
            Self::Identity => return Ok(body),
            Self::Gzip => Box::new(MultiGzDecoder::new(&body[..])),
            Self::Deflate => Box::new(ZlibDecoder::new(&body[..])),
        };
        let (mut out, mut chunk, mut pace) = (Vec::new(), vec![0; CHUNK], Pace::default());
        loop {
            let len = match packed.read(&mut chunk) {
                Ok(0) => return Ok(out.into()),
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => {
                    let text = "The request's body is not packed as its Content-Encoding says";
                    return Err(ApiError::new(ErrorKind::Serialization, text));
                }
            };
            grow(out.len() + len)?;
            out.extend_from_slice(&chunk[..len]);
            pace.count(len / 256);
            pace.step().await;
        }
    }
}

/// Whether an `Accept-Encoding` takes gzip.
fn takes_gzip(header: &str) -> bool {
    header.split(',').any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let quality =
            parts.find_map(|part| part.strip_prefix("q=")).map(|quality| quality.trim().parse::<f32>());
        is_gzip && quality.is_none_or(|quality| quality.is_ok_and(|quality| quality > 0.0))
    })
}

/// The body of an answer packed by gzip; none when it is small, or the client's `Accept-Encoding` does not take it.
pub(crate) async fn packed(body: &[u8], accepted: Option<&str>) -> Option<Vec<u8>> {
    if body.len() < PACKED_MIN || !accepted.is_some_and(takes_gzip) {
        return None;
    }
    let mut packing = GzEncoder::new(Vec::new(), Compression::fast());
    let mut pace = Pace::default();
    for chunk in body.chunks(CHUNK) {
        packing.write_all(chunk).ok()?;
        pace.count(chunk.len() / 64);
        pace.step().await;
    }
    packing.finish().ok()
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use flate2::write::ZlibEncoder;

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
        let gzip = ready(packed(&text, Some("deflate, gzip;q=0.5"))).expect("it is packed");
        assert!(gzip.len() < text.len() / 20);
        assert_eq!(unpack(Encoding::Gzip, gzip.clone(), text.len()).expect("it is unpacked"), text);
        assert!(unpack(Encoding::Gzip, gzip.clone(), text.len() - 1).is_err());
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::best());
        zlib.write_all(&text).expect("memory");
        let zlib = zlib.finish().expect("memory");
        assert_eq!(unpack(Encoding::Deflate, zlib, text.len()).expect("it is unpacked"), text);
        for len in [0, 1, 9, 10, gzip.len() / 2, gzip.len() - 1] {
            let cut = unpack(Encoding::Gzip, gzip[..len].to_vec(), text.len());
            assert!(cut.is_err(), "{len} bytes of it");
        }
        assert!(unpack(Encoding::Deflate, gzip, text.len()).is_err());
    }

    #[test]
    fn a_bomb_is_refused_at_the_limit() {
        let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
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
        assert!(most <= (1 << 20) + CHUNK);
    }

    #[test]
    fn answers_are_packed_for_clients_that_accept_it() {
        let long = [b'x'; 4096];
        for (accepted, is_packed) in [
            (None, false),
            (Some("identity"), false),
            (Some("gzip"), true),
            (Some("br, GZIP"), true),
            (Some("gzip;q=0"), false),
            (Some("gzip;q=x"), false),
            (Some("gzipped"), false),
        ] {
            assert_eq!(ready(packed(&long, accepted)).is_some(), is_packed, "{accepted:?}");
        }
        assert!(ready(packed(b"{}", Some("gzip"))).is_none());
        assert_eq!(Encoding::of_request(Some("GZIP")), Ok(Encoding::Gzip));
        assert!(Encoding::of_request(Some("br")).is_err());
        assert!(Encoding::of_request(Some("gzip, gzip")).is_err());
    }
}
