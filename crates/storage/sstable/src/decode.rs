//! A cursor over the bytes of a component, whose errors name the expected content and the offset.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use stdx::{Reader, ShortRead, vint};

use crate::DecodeError;

/// Reads values off the front of a component's bytes.
pub(crate) struct Decoder<'a> {
    reader: Reader<'a>,
    len: usize,
}

macro_rules! numbers {
    ($($name:ident $ty:ty),*) => {$(
        pub(crate) fn $name(&mut self, what: &str) -> Result<$ty, DecodeError> {
            self.reader.$name().map_err(|short| self.short(what, short))
        }
    )*};
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { reader: Reader::new(bytes), len: bytes.len() }
    }

    /// How many bytes were read.
    pub(crate) fn offset(&self) -> usize {
        self.len - self.reader.len()
    }

    pub(crate) fn left(&self) -> usize {
        self.reader.len()
    }

    numbers!(u8 u8, u32 u32, u64 u64, i32 i32, i64 i64, f64 f64);

    pub(crate) fn bytes(&mut self, len: usize, what: &str) -> Result<&'a [u8], DecodeError> {
        self.reader.bytes(len).map_err(|short| self.short(what, short))
    }

    pub(crate) fn bytes_u16(&mut self, what: &str) -> Result<&'a [u8], DecodeError> {
        self.reader.bytes_u16().map_err(|short| self.short(what, short))
    }

    pub(crate) fn bytes_vint(&mut self, what: &str) -> Result<&'a [u8], DecodeError> {
        self.reader.bytes_vint().map_err(|short| self.short(what, short))
    }

    /// A byte string with a 32-bit length in front.
    pub(crate) fn bytes_u32(&mut self, what: &str) -> Result<&'a [u8], DecodeError> {
        let len = self.u32(what)?;
        self.bytes(len as usize, what)
    }

    pub(crate) fn vint(&mut self, what: &str) -> Result<u64, DecodeError> {
        vint::read_unsigned(&mut self.reader).map_err(|short| self.short(what, short))
    }

    pub(crate) fn flag(&mut self, what: &str) -> Result<bool, DecodeError> {
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.wrong(1, format!("0 or 1 for {what}"), other.to_string())),
        }
    }

    /// Text with a 16-bit length in front (Java's modified UTF-8, which for all but NUL and astral characters is UTF-8).
    pub(crate) fn utf(&mut self, what: &str) -> Result<&'a str, DecodeError> {
        let bytes = self.bytes_u16(what)?;
        std::str::from_utf8(bytes)
            .map_err(|_| self.wrong(bytes.len(), format!("UTF-8 for {what}"), format!("{bytes:02x?}")))
    }

    /// A number of elements of at least `element_len` bytes each; more than can follow is an error.
    pub(crate) fn count(&mut self, element_len: usize, what: &str) -> Result<usize, DecodeError> {
        let count = self.u32(what)? as usize;
        self.check_count(count, element_len, 4, what)
    }

    /// The same, coded as a vint.
    pub(crate) fn count_vint(&mut self, element_len: usize, what: &str) -> Result<usize, DecodeError> {
        let count = usize::try_from(self.vint(what)?).unwrap_or(usize::MAX);
        self.check_count(count, element_len, 1, what)
    }

    fn check_count(
        &self,
        count: usize,
        element_len: usize,
        back: usize,
        what: &str,
    ) -> Result<usize, DecodeError> {
        let max = self.left() / element_len.max(1);
        if count > max {
            return Err(self.wrong(back, format!("at most {max} {what}"), count.to_string()));
        }
        Ok(count)
    }

    /// An error about the `back` bytes that were just read.
    pub(crate) fn wrong(
        &self,
        back: usize,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> DecodeError {
        DecodeError::new(self.offset().saturating_sub(back), expected, found)
    }

    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        match self.left() {
            0 => Ok(()),
            left => Err(self.wrong(0, "the end", format!("{left} bytes more"))),
        }
    }

    fn short(&self, what: &str, short: ShortRead) -> DecodeError {
        DecodeError::new(
            self.offset(),
            format!("{what} ({} bytes)", short.needed),
            format!("{} bytes left", short.left),
        )
    }
}
