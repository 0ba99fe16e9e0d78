//! Why a shard fetches ranges, and which of them it has.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use coordinator::PullFrom;
use schema::TableId;
use topology::{HostId, TokenRange};

use super::rebuild::Rebuild;

/// The topology change by which a node gains ranges.
#[derive(Clone, Debug)]
pub struct Gain {
    /// Its number.
    number: u64,
    /// All shards look whether another change has taken its place, or none.
    given_up: Arc<AtomicBool>,
}

impl Gain {
    /// By the change with this number.
    pub(super) fn new(number: u64) -> Self {
        Self { number, given_up: Arc::default() }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    /// All shards stop at their next look.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }
}

/// Why a node fetches.
#[derive(Clone, Debug)]
pub enum FetchReason {
    /// It gains ranges by a topology change.
    Change(Gain),
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
            Self::Change(gain) => gain.number().to_string(),
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
