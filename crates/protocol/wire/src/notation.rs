//! The basic encodings of §3: `[string]`, `[bytes]`, `[string list]`, `[inet]` and so on, read and written.

use std::net::{IpAddr, SocketAddr};

use bytes::{BufMut, Bytes, BytesMut};
use stdx::{Reader, ShortRead};

use crate::{Consistency, ProtocolError, Utf8Bytes};

/// Reads the fields of a body. Byte strings that come out share the body's memory.
pub(crate) struct BodyReader<'a> {
    body: &'a Bytes,
    reader: Reader<'a>,
}

macro_rules! number {
    ($($(#[$doc:meta])* $name:ident: $ty:ty),*) => {$(
        $(#[$doc])*
        #[inline]
        pub(crate) fn $name(&mut self, field: &'static str) -> Result<$ty, ProtocolError> {
            self.reader.$name().map_err(|short| truncated(field, short))
        }
    )*};
}

fn truncated(field: &'static str, short: ShortRead) -> ProtocolError {
    ProtocolError::Truncated { field, needed: short.needed, left: short.left }
}

impl<'a> BodyReader<'a> {
    pub(crate) fn new(body: &'a Bytes) -> Self {
        Self { body, reader: Reader::new(body) }
    }

    number! {
        /// `[byte]`
        u8: u8,
        /// `[short]`
        u16: u16,
        /// `[int]` whose bits are flags
        u32: u32,
        /// `[int]`
        i32: i32,
        /// `[long]`
        i64: i64
    }

    /// Bytes not yet read.
    pub(crate) fn left(&self) -> usize {
        self.reader.len()
    }

    /// Offset in the body of the next byte.
    pub(crate) fn offset(&self) -> usize {
        self.body.len() - self.reader.len()
    }

    /// The whole body.
    pub(crate) fn body(&self) -> &'a Bytes {
        self.body
    }

    /// The rest of the body, shared.
    pub(crate) fn rest(&mut self) -> Bytes {
        self.body.slice_ref(self.reader.rest())
    }

    /// The next `len` bytes.
    #[inline]
    pub(crate) fn slice(&mut self, len: usize, field: &'static str) -> Result<&'a [u8], ProtocolError> {
        self.reader.bytes(len).map_err(|short| truncated(field, short))
    }

    #[inline]
    fn shared(&mut self, len: usize, field: &'static str) -> Result<Bytes, ProtocolError> {
        let slice = self.slice(len, field)?;
        Ok(if slice.is_empty() { Bytes::new() } else { self.body.slice_ref(slice) })
    }

    /// `[string]`, borrowed.
    pub(crate) fn str(&mut self, field: &'static str) -> Result<&'a str, ProtocolError> {
        let len = usize::from(self.u16(field)?);
        let slice = self.slice(len, field)?;
        std::str::from_utf8(slice).map_err(|_| ProtocolError::NotUtf8 { field })
    }

    /// `[string]`, shared.
    pub(crate) fn string(&mut self, field: &'static str) -> Result<Utf8Bytes, ProtocolError> {
        let len = usize::from(self.u16(field)?);
        let bytes = self.shared(len, field)?;
        Utf8Bytes::new(bytes).map_err(|_| ProtocolError::NotUtf8 { field })
    }

    /// `[long string]`, shared.
    pub(crate) fn long_string(&mut self, field: &'static str) -> Result<Utf8Bytes, ProtocolError> {
        let len = self.i32(field)?;
        let len =
            usize::try_from(len).map_err(|_| ProtocolError::InvalidValue { field, value: i64::from(len) })?;
        let bytes = self.shared(len, field)?;
        Utf8Bytes::new(bytes).map_err(|_| ProtocolError::NotUtf8 { field })
    }

    /// `[bytes]`: `None` is null.
    #[inline]
    pub(crate) fn bytes(&mut self, field: &'static str) -> Result<Option<Bytes>, ProtocolError> {
        match usize::try_from(self.i32(field)?) {
            Ok(len) => self.shared(len, field).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// `[bytes]`, borrowed: `None` is null.
    pub(crate) fn bytes_slice(&mut self, field: &'static str) -> Result<Option<&'a [u8]>, ProtocolError> {
        match usize::try_from(self.i32(field)?) {
            Ok(len) => self.slice(len, field).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// `[short bytes]`.
    #[inline]
    pub(crate) fn short_bytes(&mut self, field: &'static str) -> Result<Bytes, ProtocolError> {
        let len = usize::from(self.u16(field)?);
        self.shared(len, field)
    }

    /// `[consistency]`.
    #[inline]
    pub(crate) fn consistency(&mut self) -> Result<Consistency, ProtocolError> {
        let code = self.u16("consistency")?;
        Consistency::from_code(code).ok_or(ProtocolError::UnknownConsistency(code))
    }

    /// `[uuid]`.
    pub(crate) fn uuid(&mut self, field: &'static str) -> Result<[u8; 16], ProtocolError> {
        let mut id = [0; 16];
        id.copy_from_slice(self.slice(16, field)?);
        Ok(id)
    }

    /// `[string list]`. Memory is taken for no more items than the body can hold.
    pub(crate) fn string_list(&mut self, field: &'static str) -> Result<Vec<Utf8Bytes>, ProtocolError> {
        let count = usize::from(self.u16(field)?);
        let mut list = Vec::with_capacity(count.min(self.left() / 2));
        for _ in 0..count {
            list.push(self.string(field)?);
        }
        Ok(list)
    }

    /// `[string map]`, in the order in which it was sent.
    pub(crate) fn string_map(
        &mut self,
        field: &'static str,
    ) -> Result<Vec<(Utf8Bytes, Utf8Bytes)>, ProtocolError> {
        let count = usize::from(self.u16(field)?);
        let mut map = Vec::with_capacity(count.min(self.left() / 4));
        for _ in 0..count {
            map.push((self.string(field)?, self.string(field)?));
        }
        Ok(map)
    }

    /// `[bytes map]`, in the order in which it was sent.
    pub(crate) fn bytes_map(
        &mut self,
        field: &'static str,
    ) -> Result<Vec<(Utf8Bytes, Option<Bytes>)>, ProtocolError> {
        let count = usize::from(self.u16(field)?);
        let mut map = Vec::with_capacity(count.min(self.left() / 6));
        for _ in 0..count {
            map.push((self.string(field)?, self.bytes(field)?));
        }
        Ok(map)
    }

    /// `[inetaddr]`: an address without a port.
    pub(crate) fn inet_address(&mut self, field: &'static str) -> Result<IpAddr, ProtocolError> {
        let len = self.u8(field)?;
        let slice = self.slice(usize::from(len), field)?;
        if let Ok(octets) = <[u8; 4]>::try_from(slice) {
            Ok(IpAddr::from(octets))
        } else if let Ok(octets) = <[u8; 16]>::try_from(slice) {
            Ok(IpAddr::from(octets))
        } else {
            Err(ProtocolError::InvalidValue { field, value: i64::from(len) })
        }
    }

    /// `[inet]`: an address and a port.
    pub(crate) fn inet(&mut self, field: &'static str) -> Result<SocketAddr, ProtocolError> {
        let address = self.inet_address(field)?;
        let port = self.i32(field)?;
        let port =
            u16::try_from(port).map_err(|_| ProtocolError::InvalidValue { field, value: i64::from(port) })?;
        Ok(SocketAddr::new(address, port))
    }
}

/// The longest prefix of `text` that a `[string]` can hold.
fn clip(text: &str) -> &str {
    text.get(..text.floor_char_boundary(usize::from(u16::MAX))).unwrap_or(text)
}

/// Writes a `[string]`; a longer text than 65,535 bytes is cut at a character.
#[expect(clippy::expect_used, reason = "the text is clipped before")]
pub(crate) fn put_string(out: &mut BytesMut, text: &str) {
    let text = clip(text);
    out.put_u16(u16::try_from(text.len()).expect("clipped"));
    out.put_slice(text.as_bytes());
}

/// Writes a `[long string]`.
pub(crate) fn put_long_string(out: &mut BytesMut, text: &str) {
    out.put_i32(length(text.len()));
    out.put_slice(text.as_bytes());
}

/// Writes a `[bytes]`.
#[inline]
pub(crate) fn put_bytes(out: &mut BytesMut, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            out.reserve(4 + bytes.len());
            out.put_i32(length(bytes.len()));
            out.put_slice(bytes);
        }
        None => out.put_i32(-1),
    }
}

/// Writes a `[short bytes]`.
#[expect(clippy::expect_used, reason = "ids are this node's own")]
pub(crate) fn put_short_bytes(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u16(u16::try_from(bytes.len()).expect("ids are short"));
    out.put_slice(bytes);
}

/// Writes a `[string list]`; items after the 65,535th are dropped.
pub(crate) fn put_string_list<S: AsRef<str>>(out: &mut BytesMut, list: &[S]) {
    let count = u16::try_from(list.len()).unwrap_or(u16::MAX);
    out.put_u16(count);
    for item in list.iter().take(usize::from(count)) {
        put_string(out, item.as_ref());
    }
}

/// Writes an `[inetaddr]`.
pub(crate) fn put_inet_address(out: &mut BytesMut, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            out.put_u8(4);
            out.put_slice(&v4.octets());
        }
        IpAddr::V6(v6) => {
            out.put_u8(16);
            out.put_slice(&v6.octets());
        }
    }
}

/// Writes an `[inet]`.
pub(crate) fn put_inet(out: &mut BytesMut, address: SocketAddr) {
    put_inet_address(out, address.ip());
    out.put_i32(i32::from(address.port()));
}

/// A length as the protocol's `[int]`.
#[inline]
#[expect(clippy::expect_used, reason = "bodies are limited to less than 2 GiB")]
pub(crate) fn length(len: usize) -> i32 {
    i32::try_from(len).expect("no part of a message reaches 2 GiB")
}
