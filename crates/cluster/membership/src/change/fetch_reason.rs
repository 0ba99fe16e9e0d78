//! Why a shard fetches ranges, and which of them it has.

use std::collections::BTreeSet;

use coordinator::PullFrom;
use schema::TableId;
use topology::{HostId, TokenRange};

use super::rebuild::Rebuild;

/// Why a node fetches.
#[derive(Clone, Debug)]
pub enum FetchReason {
    /// It gains ranges by the topology change with this number.
    Change(u64),
    /// An operator asks for all that it owns, from a datacenter or from anywhere.
    Rebuild(Rebuild),
}

impl FetchReason {
    /// The sources.
    pub(super) fn from(&self) -> PullFrom<'_> {
        match self {
            Self::Change(_) => PullFrom::Quorum,
            Self::Rebuild(rebuild) => {
                rebuild.source.as_deref().map_or(PullFrom::Others, PullFrom::Datacenter)
            }
        }
    }

    /// Its name: under the same name, streaming continues where it was.
    pub(super) fn label(&self) -> String {
        match self {
            Self::Change(number) => number.to_string(),
            Self::Rebuild(rebuild) => format!("rebuild-{}", rebuild.number),
        }
    }
}

/// Ranges of tables of which this node has all that a host had.
pub type FetchedRanges = BTreeSet<(TableId, i64, i64, HostId)>;

/// The host of which all is here of a table's range.
pub(super) fn had_from(had: &FetchedRanges, table: TableId, range: TokenRange) -> Option<HostId> {
    let from = (table, range.after, range.upto, HostId([0; 16]));
    let upto = (table, range.after, range.upto, HostId([0xff; 16]));
    had.range(from..=upto).next().map(|(.., host)| *host)
}
