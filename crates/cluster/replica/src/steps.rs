//! Work on pages a step at a time. A page holds the range tombstones of its rows and is not cut among them: 100,000 of them are freed,
//! encoded or compared between other tasks, not in one poll.

use mutation::RangeTombstones;
use rt::preempt::Pace;

use crate::{PartitionResult, ReadPage};

/// Rows or ranges that are encoded or decoded between two looks whether to yield.
pub(crate) const AT_ONCE: usize = 64;

/// Frees a page.
pub async fn free_page(page: ReadPage) {
    free_partitions(page.partitions).await;
}

/// Frees partitions of a page.
pub async fn free_partitions(partitions: Vec<PartitionResult>) {
    let mut pace = Pace::new();
    for partition in partitions {
        free_ranges(partition.range_tombstones, &mut pace).await;
        pace.step().await;
    }
}

/// Frees range tombstones.
pub async fn free_ranges(mut ranges: RangeTombstones, pace: &mut Pace) {
    while ranges.free_some() {
        pace.steps(mutation::range::RANGES_FREED_AT_ONCE).await;
    }
}
