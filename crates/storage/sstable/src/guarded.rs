//! Partitions beyond the bounds that an operator set for them, noticed when an SSTable is written: Cassandra's guardrails `partition_size` and
//! `partition_tombstones`.

/// The most partitions of one SSTable that are named.
pub const NAMED_MAX: usize = 10;

/// Two bounds of a figure, each of which may be missing; equal figures are within.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// `…_warn_threshold`
    pub warn: Option<u64>,
    /// `…_fail_threshold`
    pub fail: Option<u64>,
}

/// The bounds of every partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionBounds {
    /// Bytes before compression (`partition_size`).
    pub bytes: Bounds,
    /// Deletions and dead or expired cells (`partition_tombstones`).
    pub tombstones: Bounds,
}

impl PartitionBounds {
    /// No bounds.
    pub const NONE: Self = {
        let none = Bounds { warn: None, fail: None };
        Self { bytes: none, tombstones: none }
    };
}

/// A figure of a partition that has bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardedFigure {
    /// Bytes before compression.
    Bytes,
    /// Tombstones.
    Tombstones,
}

/// A partition beyond a bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardedPartition {
    /// The values of the partition key with `:` between them.
    pub key: String,
    /// The figure.
    pub figure: GuardedFigure,
    /// Its value.
    pub value: u64,
    /// The bound.
    pub bound: u64,
    /// Whether it is the bound of failures, not of warnings.
    pub is_failure: bool,
}

/// The partitions of an SSTable beyond bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuardedPartitions {
    /// The first [`NAMED_MAX`].
    pub named: Vec<GuardedPartition>,
    /// How many there are.
    pub count: u64,
}

impl GuardedPartitions {
    /// Looks at a figure of a partition.
    pub(crate) fn look(
        &mut self,
        figure: GuardedFigure,
        value: u64,
        bounds: Bounds,
        key: impl FnOnce() -> String,
    ) {
        let beyond = |bound: Option<u64>| bound.filter(|bound| value > *bound);
        let (bound, is_failure) = match (beyond(bounds.fail), beyond(bounds.warn)) {
            (Some(bound), _) => (bound, true),
            (None, Some(bound)) => (bound, false),
            (None, None) => return,
        };
        self.count += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(GuardedPartition { key: key(), figure, value, bound, is_failure });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greater_bound_counts_and_names_are_few() {
        let bounds = Bounds { warn: Some(3), fail: Some(5) };
        let mut found = GuardedPartitions::default();
        for value in 0..30 {
            found.look(GuardedFigure::Bytes, value, bounds, || value.to_string());
        }
        found.look(GuardedFigure::Tombstones, u64::MAX, Bounds::default(), || unreachable!("without bounds"));
        assert_eq!((found.count, found.named.len()), (26, NAMED_MAX));
        let shown: Vec<(u64, u64, bool)> =
            found.named.iter().take(3).map(|one| (one.value, one.bound, one.is_failure)).collect();
        assert_eq!(shown, [(4, 3, false), (5, 3, false), (6, 5, true)]);
    }
}
