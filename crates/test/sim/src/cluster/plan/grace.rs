//! When deletions may be forgotten: the option of the tables, and the age from which a hint is dropped.

use std::time::Duration;

use rt_sim::Rng;

use crate::cluster::plan::fault::Fault;
use crate::plan::{options_with_grace, pick};

/// More than clocks drift apart within a round.
const DRIFT_MAX: Duration = Duration::from_secs(5);

/// When deletions may be forgotten, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grace {
    /// Not in a run.
    Never,
    /// So long after they were made; a node that missed them must be repaired before.
    Timeout(u32),
    /// When a repair began so long after they were made.
    Repair(u32),
}

impl Grace {
    /// Of a cluster with these faults.
    pub(crate) fn draw(rng: &mut Rng, faults: &[Fault]) -> Self {
        let drawn =
            *pick(rng, &[Self::Never, Self::Never, Self::Never, Self::Timeout(3_600), Self::Repair(300)]);
        // A clock that is ahead lets deletions be forgotten early.
        if faults.contains(&Fault::ClockJump) { Self::Never } else { drawn }
    }

    /// Whether a hint of this age may be dropped instead of delivered. A deletion may be purged so long after it was made, and an
    /// older write would bring deleted rows back; only a repair brings that write then.
    pub(crate) fn refuses_hints(self, age: Duration) -> bool {
        let seconds = match self {
            Self::Never => return false,
            Self::Timeout(seconds) | Self::Repair(seconds) => seconds,
        };
        age + DRIFT_MAX >= Duration::from_secs(u64::from(seconds))
    }

    /// A table's options, behind WITH.
    pub(crate) fn options(self, rng: &mut Rng) -> String {
        let grace = if let Self::Timeout(seconds) = self { seconds } else { 864_000 };
        let options = options_with_grace(rng, &[grace]);
        match self {
            Self::Repair(delay) => format!(
                "{options} AND tombstone_gc = {{'mode': 'repair', 'propagation_delay_in_seconds': '{delay}'}}"
            ),
            Self::Never | Self::Timeout(_) => options,
        }
    }
}
