//! Formats and their versions, and the capabilities of a version.

use mutation::Seconds;

/// A family of versions that find partitions in the same way. Each has its folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// An index of keys and a sample of it.
    Big,
}

impl Format {
    /// How file names say it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Big => "big",
        }
    }
}

/// The largest values that a version can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Local deletion and expiration times, seconds since 1970.
    pub local_deletion_max: Seconds,
    /// Times to live, seconds.
    pub ttl_max: Seconds,
}

impl Limits {
    /// Signed 32 bits, of which times keep the largest value for "never".
    pub const SIGNED: Self = Self { local_deletion_max: i32::MAX as u32 - 1, ttl_max: i32::MAX as u32 };
}

/// The capabilities of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The format.
    pub format: Format,
    /// `Statistics.db` has checksums.
    pub has_metadata_checksums: bool,
    /// Chunks that do not shrink are stored uncompressed; `CompressionInfo.db` says from which length on.
    pub has_uncompressed_chunks: bool,
    /// `Filter.db` is the filter's bytes, not its words.
    pub has_plain_filter: bool,
    /// A repair can be pending.
    pub has_pending_repair: bool,
    /// The statistics name the host that wrote the file.
    pub has_host_id: bool,
    /// Its limits.
    pub limits: Limits,
}

/// A version of a format, in the order of their appearance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Cassandra 3.0.8.
    Mc,
    /// Cassandra 3.0.18: minimum and maximum clustering can be trusted.
    Md,
    /// Cassandra 3.0.25: the originating host's id.
    Me,
    /// Cassandra 4.0: checksums of metadata, uncompressed chunks, pending repair.
    Na,
    /// Cassandra 4.0.1: the originating host's id.
    Nb,
}

/// Of Cassandra 3.
const THREE: Capabilities = Capabilities {
    format: Format::Big,
    has_metadata_checksums: false,
    has_uncompressed_chunks: false,
    has_plain_filter: false,
    has_pending_repair: false,
    has_host_id: false,
    limits: Limits::SIGNED,
};

/// Of Cassandra 4.
const FOUR: Capabilities = Capabilities {
    has_metadata_checksums: true,
    has_uncompressed_chunks: true,
    has_plain_filter: true,
    has_pending_repair: true,
    ..THREE
};

impl Version {
    /// The version that this crate writes.
    pub const CURRENT: Self = Self::Nb;
    const ALL: [(Self, &'static str); 5] =
        [(Self::Mc, "mc"), (Self::Md, "md"), (Self::Me, "me"), (Self::Na, "na"), (Self::Nb, "nb")];

    /// The two letters in file names.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(version, _)| *version == self).expect("every version has a name").1
    }

    /// The version of two letters.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(version, _)| *version)
    }

    /// Its capabilities.
    pub const fn capabilities(self) -> Capabilities {
        match self {
            Self::Mc | Self::Md => THREE,
            Self::Me => Capabilities { has_host_id: true, ..THREE },
            Self::Na => FOUR,
            Self::Nb => Capabilities { has_host_id: true, ..FOUR },
        }
    }

    /// The format that it is a version of.
    pub const fn format(self) -> Format {
        self.capabilities().format
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_cassandras_capabilities() {
        let table = Version::ALL.map(|(version, name)| {
            assert_eq!(Version::from_name(name), Some(version));
            let has = version.capabilities();
            let four = [
                has.has_metadata_checksums,
                has.has_uncompressed_chunks,
                has.has_plain_filter,
                has.has_pending_repair,
            ];
            assert!(four.iter().all(|has| *has == four[0]), "they came with 4.0");
            (name, version.format().name(), four[0], has.has_host_id)
        });
        let expected = [
            ("mc", "big", false, false),
            ("md", "big", false, false),
            ("me", "big", false, true),
            ("na", "big", true, false),
            ("nb", "big", true, true),
        ];
        assert_eq!(table, expected);
    }
}
