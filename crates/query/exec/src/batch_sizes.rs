//! How many partitions the batches of a shard have, for `system_views.batch_metrics`.

use cql::ast::BatchKind;
use rt::Instant;
use stdx::{Recent, RecentFigures};

/// Counts batches by their partitions.
#[derive(Debug, Default)]
pub(crate) struct BatchSizes {
    logged: Recent,
    unlogged: Recent,
    counter: Recent,
}

/// The partitions of the batches of each kind, of the last one to two minutes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchFigures {
    /// Logged batches.
    pub logged: RecentFigures,
    /// Unlogged batches.
    pub unlogged: RecentFigures,
    /// Batches of counters.
    pub counter: RecentFigures,
}

impl BatchSizes {
    /// Counts a batch.
    pub(crate) fn count(&self, kind: BatchKind, partitions: usize, now: Instant) {
        let of_kind = match kind {
            BatchKind::Logged => &self.logged,
            BatchKind::Unlogged => &self.unlogged,
            BatchKind::Counter => &self.counter,
        };
        of_kind.add(partitions as u64, now.as_nanos());
    }

    pub(crate) fn figures(&self, now: Instant) -> BatchFigures {
        let nanos = now.as_nanos();
        BatchFigures {
            logged: self.logged.figures(nanos),
            unlogged: self.unlogged.figures(nanos),
            counter: self.counter.figures(nanos),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_counted_by_their_kind() {
        let sizes = BatchSizes::default();
        for (kind, partitions) in [(BatchKind::Logged, 2), (BatchKind::Logged, 9), (BatchKind::Counter, 4)] {
            sizes.count(kind, partitions, Instant::START);
        }
        let figures = sizes.figures(Instant::START);
        assert_eq!((figures.logged.total, figures.logged.max, figures.logged.percentile(0.5)), (2, 9, 2));
        assert_eq!((figures.counter.max, figures.unlogged.total), (4, 0));
    }
}
