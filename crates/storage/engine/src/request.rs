//! The one write request of a shard's storage (docs/design/write-path.md).

use std::time::Duration;

use mutation::PartitionUpdate;
use mutation::codec::EncodedUpdates;

/// The updates of a write, most often one. On the heap, as their maker has them: a request is moved through several layers, and
/// moving the update itself costs more than its place.
pub type Updates = Vec<PartitionUpdate>;

/// The origin of the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// A client's statement.
    Client,
    /// The state of a counter that its leading replica counted.
    Counter,
    /// The commit of a lightweight transaction.
    PaxosCommit,
    /// A hint that is delivered, to the replica that missed the write or to the present owner of its token.
    Hint,
    /// A logged batch that is replayed.
    Batchlog,
    /// A read that found this replica to lack something.
    ReadRepair,
    /// Anti-entropy, and rows salvaged from damaged SSTables for it.
    Repair,
    /// Rows that a node reads from others when it gains token ranges.
    Streaming,
    /// The node's own bookkeeping: stored batches, votes.
    System,
}

/// The effect of a truncation that began when the write did, or later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Truncation {
    /// Nothing: the write is applied.
    #[default]
    Ignored,
    /// The write is refused with [`WriteError::Truncated`] when a table of it was truncated at this time or later (microseconds since
    /// the epoch, after all truncations that were known where the write began, see [`Engine::truncated_latest`]).
    Refuses(i64),
    /// The write comes late: updates of tables that were truncated at this time or later, microseconds since the epoch, are left out.
    LeavesOut(i64),
    /// The updates are rows that replicas had, as a read found them. Updates of tables that were truncated since are left out, and of
    /// those that one of these replicas may be about to truncate.
    LeavesOutRead {
        /// When the read began, microseconds since the epoch.
        begun_micros: i64,
        /// When the replicas had truncated the table last, before they were read: the earliest of these times.
        truncated_at: i64,
    },
}

/// Within this time after a truncation a replica that knows of none may be about to do the same one. Later it is one that has missed
/// it: it was restored, or the TRUNCATE has failed.
const TRUNCATION_SPREAD: Duration = Duration::from_secs(60);

impl Truncation {
    /// Whether an update is left out of a table that was truncated last at `truncated_at`; `now_micros` is now.
    pub(crate) fn leaves_out(self, truncated_at: i64, now_micros: i64) -> bool {
        match self {
            Self::Ignored | Self::Refuses(_) => false,
            Self::LeavesOut(begun_micros) => truncated_at >= begun_micros,
            Self::LeavesOutRead { begun_micros, truncated_at: read_at } => {
                let spread = TRUNCATION_SPREAD.as_micros() as i64;
                let is_recent = now_micros < truncated_at.saturating_add(spread);
                truncated_at >= begun_micros || truncated_at > read_at && is_recent
            }
        }
    }
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the commit log's mode allows it.
    #[default]
    AsConfigured,
    /// When a power failure cannot undo it, regardless of the mode.
    Synced,
}

/// A write request. After a crash all of its updates are there or none.
#[derive(Clone, Debug)]
pub struct Write {
    /// The updates.
    pub updates: Updates,
    /// The origin of the write.
    pub origin: Origin,
    /// The effect of truncations.
    pub truncation: Truncation,
    /// When it is acknowledged.
    pub durability: Durability,
    /// The bytes of all updates as they were received, which the log takes over. Code that adds or leaves out updates drops them. In a
    /// box, as most writes are the node's own and have none.
    pub encoded: Option<Box<EncodedUpdates>>,
}

impl Write {
    /// A write of one update that no truncation touches, acknowledged as the commit log is configured.
    pub fn one(origin: Origin, update: PartitionUpdate) -> Self {
        Self::all(origin, vec![update])
    }

    /// [`Write::one`] of several updates.
    pub fn all(origin: Origin, updates: Updates) -> Self {
        let (truncation, durability) = (Truncation::Ignored, Durability::AsConfigured);
        Self { updates, origin, truncation, durability, encoded: None }
    }

    /// The same write with another rule about truncations.
    pub fn with_truncation(mut self, truncation: Truncation) -> Self {
        self.truncation = truncation;
        self
    }

    /// The same write, acknowledged when a power failure cannot undo it.
    pub fn synced(mut self) -> Self {
        self.durability = Durability::Synced;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A read between two replicas' truncations brings nothing back; of a replica that has missed a truncation long ago it may.
    #[test]
    fn rows_that_a_truncation_removes() {
        const AT: i64 = 1_767_225_600_000_000;
        let spread = TRUNCATION_SPREAD.as_micros() as i64;
        let read = |begun_micros, truncated_at| Truncation::LeavesOutRead { begun_micros, truncated_at };
        assert!(Truncation::LeavesOut(AT).leaves_out(AT, AT));
        assert!(!Truncation::LeavesOut(AT + 1).leaves_out(AT, AT));
        assert!(read(AT, AT).leaves_out(AT, AT), "the read began before it");
        assert!(!read(AT + 1, AT).leaves_out(AT, AT), "all that were read have done it");
        for other in [i64::MIN, AT - 1] {
            assert!(read(AT + 1, other).leaves_out(AT, AT + spread - 1), "one may be about to do it");
            assert!(!read(AT + 1, other).leaves_out(AT, AT + spread), "one has missed it");
        }
        assert!(!read(AT + 1, i64::MIN).leaves_out(i64::MIN, AT), "there was none");
        assert!(read(AT, AT - 1).leaves_out(i64::MAX, AT), "a clock far ahead");
        assert!(!Truncation::Ignored.leaves_out(AT, AT) && !Truncation::Refuses(AT).leaves_out(AT, AT));
    }
}
