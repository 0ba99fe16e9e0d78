//! Consistency levels: how many replicas must answer before a client hears success.

/// A consistency level of CQL, in the order of the codes of the native protocol (section 3, `[consistency]`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Consistency {
    /// Writes only: a hint suffices.
    Any = 0,
    /// One replica.
    One = 1,
    /// Two replicas.
    Two = 2,
    /// Three replicas.
    Three = 3,
    /// A majority of all replicas.
    Quorum = 4,
    /// Every replica.
    All = 5,
    /// A majority of the local datacenter's replicas.
    LocalQuorum = 6,
    /// A majority in every datacenter.
    EachQuorum = 7,
    /// Linearisable, over all datacenters (conditions only).
    Serial = 8,
    /// Linearisable within the local datacenter (conditions only).
    LocalSerial = 9,
    /// One replica of the local datacenter.
    LocalOne = 10,
}

impl Consistency {
    /// Every level in the order of its code.
    pub const ALL_LEVELS: [Self; 11] = [
        Self::Any,
        Self::One,
        Self::Two,
        Self::Three,
        Self::Quorum,
        Self::All,
        Self::LocalQuorum,
        Self::EachQuorum,
        Self::Serial,
        Self::LocalSerial,
        Self::LocalOne,
    ];

    /// The code in the native protocol.
    pub fn code(self) -> u16 {
        self as u16
    }

    /// The level with this code.
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL_LEVELS.get(usize::from(code)).copied()
    }

    /// How many of `replicas` (all of them, or the local datacenter's for the local levels) must answer.
    pub fn required(self, replicas: usize) -> usize {
        match self {
            Self::Any | Self::One | Self::LocalOne => 1,
            Self::Two => 2,
            Self::Three => 3,
            Self::Quorum | Self::LocalQuorum | Self::EachQuorum | Self::Serial | Self::LocalSerial => {
                replicas / 2 + 1
            }
            Self::All => replicas,
        }
    }

    /// Whether it belongs to conditional statements only.
    pub fn is_serial(self) -> bool {
        matches!(self, Self::Serial | Self::LocalSerial)
    }

    /// Its name in CQL and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "ANY",
            Self::One => "ONE",
            Self::Two => "TWO",
            Self::Three => "THREE",
            Self::Quorum => "QUORUM",
            Self::All => "ALL",
            Self::LocalQuorum => "LOCAL_QUORUM",
            Self::EachQuorum => "EACH_QUORUM",
            Self::Serial => "SERIAL",
            Self::LocalSerial => "LOCAL_SERIAL",
            Self::LocalOne => "LOCAL_ONE",
        }
    }
}

impl std::fmt::Display for Consistency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
