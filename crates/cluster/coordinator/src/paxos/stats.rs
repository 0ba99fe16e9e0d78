//! Figures of lightweight transactions.

/// The counters of a shard, since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaxosStats {
    /// Conditional requests whose write was chosen.
    pub applied: u64,
    /// Conditional requests whose conditions did not hold.
    pub refused: u64,
    /// Rounds that were given up because others got in the way.
    pub contended: u64,
    /// Requests that ended because others got in the way for too long.
    pub contended_out: u64,
    /// Requests of which it is not known whether they were applied.
    pub uncertain: u64,
    /// Commits that others had left undone, for all voters or for some, and that were sent from here.
    pub finished: u64,
}
