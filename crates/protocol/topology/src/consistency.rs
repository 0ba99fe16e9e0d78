//! Consistency levels: how many replicas must answer before a client hears success.

/// A consistency level of CQL (native protocol, section 3 `[consistency]`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Consistency {
    /// Writes only: a hint suffices.
    Any,
    /// One replica.
    One,
    /// Two replicas.
    Two,
    /// Three replicas.
    Three,
    /// A majority of all replicas.
    Quorum,
    /// Every replica.
    All,
    /// A majority of the local datacenter's replicas.
    LocalQuorum,
    /// A majority in every datacenter.
    EachQuorum,
    /// Linearisable, over all datacenters (conditions only).
    Serial,
    /// Linearisable within the local datacenter (conditions only).
    LocalSerial,
    /// One replica of the local datacenter.
    LocalOne,
}

impl Consistency {
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
