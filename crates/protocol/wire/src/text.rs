//! A shared slice of bytes that is known to be UTF-8: query texts and names keep pointing into the read buffer.

use bytes::Bytes;

/// UTF-8 text that shares its memory with the message it came in.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Utf8Bytes(Bytes);

impl Utf8Bytes {
    /// Checks that the bytes are UTF-8.
    ///
    /// # Errors
    /// A [`std::str::Utf8Error`] when they are not.
    pub fn new(bytes: Bytes) -> Result<Self, std::str::Utf8Error> {
        std::str::from_utf8(&bytes)?;
        Ok(Self(bytes))
    }

    /// Text that lives as long as the program.
    pub fn from_static(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// The text.
    #[inline]
    #[expect(clippy::expect_used, reason = "the constructor checks the bytes")]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("checked in the constructor")
    }

    /// The bytes behind the text.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }
}

impl std::ops::Deref for Utf8Bytes {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl From<&str> for Utf8Bytes {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl std::fmt::Debug for Utf8Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self.as_str(), f)
    }
}

impl std::fmt::Display for Utf8Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
