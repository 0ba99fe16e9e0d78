//! Counters of the requests of one table on this shard.

use stdx::Recent;

/// Of one table, while it is counted.
#[derive(Debug, Default)]
pub(crate) struct LocalCounters {
    pub(crate) reads: Recent,
    pub(crate) scans: Recent,
    pub(crate) writes: Recent,
    pub(crate) rows: Recent,
    pub(crate) tombstones: Recent,
    pub(crate) sstables: Recent,
}
