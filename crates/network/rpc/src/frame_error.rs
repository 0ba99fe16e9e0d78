//! Why the bytes of a connection are no frame.

/// Bytes that are no frame. The connection cannot go on: where the next frame begins is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The header was damaged, or is no header.
    #[error("a frame's header has the checksum {read:08x}, computed is {computed:08x}")]
    HeaderChecksum {
        /// The checksum in the header.
        read: u32,
        /// The checksum of its bytes.
        computed: u32,
    },
    /// The body was damaged.
    #[error("a frame's body has the checksum {read:08x}, computed is {computed:08x}")]
    BodyChecksum {
        /// The checksum in the header.
        read: u32,
        /// The checksum of the body's bytes.
        computed: u32,
    },
    /// The frame is longer than the limit.
    #[error("a frame of {len} bytes; at most {max} are accepted")]
    TooLong {
        /// The length in the header, or the unpacked length.
        len: u64,
        /// The limit.
        max: usize,
    },
    /// A field has a value that this version of the protocol does not know.
    #[error("a frame's {field} is {value}, which is not known")]
    Unknown {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u8,
    },
    /// A packed body does not unpack.
    #[error("a packed body is damaged: {0}")]
    Packed(&'static str),
}
