//! Consistency levels as the protocol numbers them (§3, `[consistency]`).

use crate::ProtocolError;

/// How many replicas have to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Consistency {
    /// Any node, a hint counts.
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
    /// A majority in the coordinator's data centre.
    LocalQuorum = 6,
    /// A majority in each data centre.
    EachQuorum = 7,
    /// Linearisable, all data centres.
    Serial = 8,
    /// Linearisable in the coordinator's data centre.
    LocalSerial = 9,
    /// One replica in the coordinator's data centre.
    LocalOne = 10,
}

impl Consistency {
    /// Every level in the order of its code.
    pub const ALL_LEVELS: [Consistency; 11] = [
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

    /// The code on the wire.
    pub fn code(self) -> u16 {
        self as u16
    }

    /// The level with this code.
    pub fn from_code(code: u16) -> Result<Self, ProtocolError> {
        Self::ALL_LEVELS
            .get(usize::from(code))
            .copied()
            .ok_or(ProtocolError::InvalidValue { field: "consistency level", value: i64::from(code) })
    }

    /// Whether the level is SERIAL or LOCAL_SERIAL.
    pub fn is_serial(self) -> bool {
        matches!(self, Self::Serial | Self::LocalSerial)
    }

    /// The name as CQL and error messages write it: `LOCAL_QUORUM`.
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
