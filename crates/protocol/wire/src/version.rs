//! Protocol versions, and the options of a connection beyond its version.

/// A version of the native protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Version {
    /// Cassandra 2.1 and later.
    V3 = 3,
    /// Cassandra 2.2 and later; ScyllaDB.
    V4 = 4,
    /// Cassandra 4.0 and later: checksummed frames.
    V5 = 5,
}

impl Version {
    /// Every supported version, oldest first.
    pub const ALL: [Version; 3] = [Version::V3, Version::V4, Version::V5];
    /// The newest supported version; errors about versions are written in it.
    pub const MAX: Version = Version::V5;
    /// The supported versions as error messages name them.
    pub const SUPPORTED: &str = "3/v3, 4/v4, 5/v5";

    /// The version with this number, if it is supported.
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            3 => Some(Self::V3),
            4 => Some(Self::V4),
            5 => Some(Self::V5),
            _ => None,
        }
    }

    /// The number as it stands in an envelope's first byte.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The form used in SUPPORTED's `PROTOCOL_VERSIONS`: `4/v4`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V3 => "3/v3",
            Self::V4 => "4/v4",
            Self::V5 => "5/v5",
        }
    }

    /// Position in [`Version::ALL`].
    pub(crate) fn index(self) -> usize {
        usize::from(self.number() - 3)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// `LWT_OPTIMIZATION_META_BIT_MASK` of the extension `SCYLLA_LWT_ADD_METADATA_MARK`: the flag of a prepared
/// statement's metadata that says that the statement is conditional.
pub const LWT_MARK_MASK: u32 = 0x8000_0000;

/// `ERROR_CODE` of the extension `SCYLLA_RATE_LIMIT_ERROR`.
pub const RATE_LIMIT_ERROR_CODE: i32 = 0x4321;

/// The version and the extensions that a connection agreed on: all that the layout of a message depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// The protocol version.
    pub version: Version,
    /// `SCYLLA_USE_METADATA_ID`: result metadata ids, which v5 always has, also in older versions.
    pub metadata_id: bool,
    /// `SCYLLA_LWT_ADD_METADATA_MARK`: conditional statements are marked ([`LWT_MARK_MASK`]).
    pub lwt_mark: bool,
    /// `SCYLLA_RATE_LIMIT_ERROR`: the client knows [`RATE_LIMIT_ERROR_CODE`].
    pub rate_limit_error: bool,
    /// `TABLETS_ROUTING_V1`: the client reads the custom payload `tablets-routing-v1`.
    pub tablets_routing: bool,
}

impl Dialect {
    /// A version without extensions.
    pub fn new(version: Version) -> Self {
        Self { version, metadata_id: false, lwt_mark: false, rate_limit_error: false, tablets_routing: false }
    }

    /// Whether PREPARE, EXECUTE and rows carry result metadata ids.
    pub fn has_metadata_id(self) -> bool {
        self.metadata_id || self.version >= Version::V5
    }
}
