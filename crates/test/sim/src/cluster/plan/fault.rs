//! The kinds of faults that a plan names and the nemesis injects.

use std::time::Duration;

use rt_sim::{DiskConfig, Rng};

use crate::plan::pick;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A process is killed and started again.
    Kill,
    /// A machine loses power and starts again.
    Power,
    /// All machines lose power at once and start again.
    Blackout,
    /// A process stands still.
    Pause,
    /// A node is cut off from all others, and from the clients.
    Isolate,
    /// The nodes part in two groups.
    Split,
    /// Messages of one node to another do not arrive, while the answers would.
    OneWay,
    /// Two nodes do not reach each other, while others reach both.
    Rift,
    /// A node's links are slow.
    SlowLinks,
    /// A node's links lose packets and break connections.
    LossyLinks,
    /// A node's clock jumps by some seconds.
    ClockJump,
    /// A disk is slow.
    SlowDisk,
    /// A disk is full.
    FullDisk,
    /// A disk gives errors.
    DiskErrors,
}

impl Fault {
    /// Those of any seed.
    pub(crate) const ALL: [Self; 12] = [
        Self::Kill,
        Self::Power,
        Self::Pause,
        Self::Isolate,
        Self::Split,
        Self::OneWay,
        Self::SlowLinks,
        Self::LossyLinks,
        Self::ClockJump,
        Self::SlowDisk,
        Self::FullDisk,
        Self::DiskErrors,
    ];

    /// A node with this fault may lose writes that it had not synced.
    pub(crate) fn loses_memory(self) -> bool {
        matches!(self, Self::Kill | Self::Power | Self::Blackout | Self::FullDisk | Self::DiskErrors)
    }

    /// Gives a disk this fault.
    pub(crate) fn disk(self, rng: &mut Rng, disk: &mut DiskConfig) {
        let rate = *pick(rng, &[3_000, 50_000, 400_000]);
        match self {
            Self::SlowDisk => {
                (disk.slow_per_million, disk.slow_max) = (rate, Duration::from_millis(300));
            }
            Self::FullDisk => disk.capacity = 1,
            _ => {
                disk.read_error_per_million = rate;
                disk.write_error_per_million = rate;
                disk.sync_error_per_million = rate;
            }
        }
    }
}
