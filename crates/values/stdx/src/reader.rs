//! A cursor over bytes that nobody vouches for: every read is checked, nothing is allocated.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

/// The bytes ended before the value did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortRead {
    /// Bytes that the value needs.
    pub needed: usize,
    /// Bytes that were left.
    pub left: usize,
}

impl std::fmt::Display for ShortRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "needed {} bytes, only {} left", self.needed, self.left)
    }
}

impl std::error::Error for ShortRead {}

/// Reads big-endian values off the front of a slice.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    left: &'a [u8],
}

macro_rules! be {
    ($($name:ident $ty:ty),*) => {$(
        #[doc = concat!("Reads a big-endian `", stringify!($ty), "`.")]
        ///
        /// # Errors
        /// [`ShortRead`] when fewer bytes are left than the value has; nothing is taken then.
        #[inline]
        pub fn $name(&mut self) -> Result<$ty, ShortRead> {
            const LEN: usize = size_of::<$ty>();
            match self.left.split_first_chunk::<LEN>() {
                Some((head, tail)) => {
                    self.left = tail;
                    Ok(<$ty>::from_be_bytes(*head))
                }
                None => Err(ShortRead { needed: LEN, left: self.left.len() }),
            }
        }
    )*};
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    /// The unread rest.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.left
    }

    /// How many bytes are still unread.
    #[inline]
    pub fn len(&self) -> usize {
        self.left.len()
    }

    /// Whether everything was read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    be!(u8 u8, u16 u16, u32 u32, u64 u64, i8 i8, i16 i16, i32 i32, i64 i64, f32 f32, f64 f64);

    /// Takes the next `len` bytes.
    ///
    /// # Errors
    /// [`ShortRead`] when fewer than `len` bytes are left; nothing is taken then.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], ShortRead> {
        if len > self.left.len() {
            return Err(ShortRead { needed: len, left: self.left.len() });
        }
        let (head, tail) = self.left.split_at(len);
        self.left = tail;
        Ok(head)
    }

    /// Takes the next `N` bytes.
    ///
    /// # Errors
    /// [`ShortRead`] when fewer than `N` bytes are left; nothing is taken then.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], ShortRead> {
        let Some((head, tail)) = self.left.split_first_chunk::<N>() else {
            return Err(ShortRead { needed: N, left: self.left.len() });
        };
        self.left = tail;
        Ok(*head)
    }

    /// Takes a byte string with a 16-bit length in front (`writeWithShortLength`).
    ///
    /// # Errors
    /// [`ShortRead`] when the length is cut off, or fewer bytes are left than it says.
    #[inline]
    pub fn bytes_u16(&mut self) -> Result<&'a [u8], ShortRead> {
        let len = self.u16()?;
        self.bytes(usize::from(len))
    }
}
