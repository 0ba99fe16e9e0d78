//! The next range that is due for repair, so that every range of every table is repaired well before its deletions may be forgotten. Pure.

use mutation::Seconds;
use schema::{Table, TombstoneGc};

const HOUR: Seconds = 3_600;
const DAY: Seconds = 24 * HOUR;
/// Everything is repaired at least so often.
const INTERVAL_MAX: Seconds = 7 * DAY;
/// Nothing is repaired more often.
const INTERVAL_MIN: Seconds = HOUR / 6;

/// How long after a repair of a table the next one is due. Three quarters of the grace of its deletions, so that a repair that
/// fails can be tried again before they may be forgotten; earlier when that is more than `max`, unless that is 0.
pub fn interval(table: &Table, max: Seconds) -> Seconds {
    let wanted = match (table.options.tombstone_gc, table.options.gc_grace_seconds) {
        // Nothing is purged before a repair: deleted data takes space until then.
        (TombstoneGc::Repair { .. }, _) => DAY,
        (TombstoneGc::Timeout | TombstoneGc::Immediate, _) if table.options.only_purges_repaired() => DAY,
        // Nothing depends on a repair in time.
        (TombstoneGc::Disabled | TombstoneGc::Immediate, _) | (TombstoneGc::Timeout, 0) => INTERVAL_MAX,
        (TombstoneGc::Timeout, grace) => grace / 4 * 3,
    };
    let max = if max == 0 { INTERVAL_MAX } else { max.max(INTERVAL_MIN) };
    wanted.clamp(INTERVAL_MIN, INTERVAL_MAX).min(max)
}

/// A range of a table that this node is to keep repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// When it was repaired; 0 for never.
    pub repaired: Seconds,
    /// How long after that it is due again.
    pub interval: Seconds,
    /// Not before this: it has just failed.
    pub not_before: Seconds,
    /// A number that is uniformly distributed over the ranges, and differs from start to start.
    pub place: u64,
}

impl Candidate {
    /// When it is due; `since` is when this node began to repair by itself. Ranges never repaired are spread by their places over the
    /// first quarter of the interval: a node that starts, or a schema that is restored, does not repair everything at once, and never again
    /// does everything fall due at one time.
    pub fn due(&self, since: Seconds) -> Seconds {
        let due = if self.repaired == 0 {
            let spread = u128::from(self.interval / 4) * u128::from(self.place) >> u64::BITS;
            since.saturating_add(Seconds::try_from(spread).expect("less than a quarter of the interval"))
        } else {
            self.repaired.saturating_add(self.interval)
        };
        due.max(self.not_before)
    }
}

/// The ranges that are due first of all that were offered.
pub struct Earliest<T> {
    count_max: usize,
    found: Vec<(Seconds, T)>,
}

impl<T> Earliest<T> {
    /// So many at most.
    pub fn new(count_max: usize) -> Self {
        assert!(count_max > 0, "one is kept at least");
        Self { count_max, found: Vec::new() }
    }

    /// One more; `item` is only made when it is kept. Of those that are due at one time the first is kept.
    pub fn offer(&mut self, due: Seconds, item: impl FnOnce() -> T) {
        if self.found.len() == self.count_max && self.found.last().is_some_and(|(last, _)| *last <= due) {
            return;
        }
        let at = self.found.partition_point(|(other, _)| *other <= due);
        self.found.insert(at, (due, item()));
        self.found.truncate(self.count_max);
    }

    /// In the order in which they are due.
    pub fn into_sorted(self) -> Vec<(Seconds, T)> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use schema::{TableBuilder, TableId};
    use types::CqlType;

    use super::*;

    fn table(gc: TombstoneGc, grace: u32) -> Table {
        let mut builder = TableBuilder::new("ks", "t", TableId([1; 16])).partition_key("k", CqlType::Int);
        builder.options.tombstone_gc = gc;
        builder.options.gc_grace_seconds = grace;
        builder.build().expect("a table")
    }

    #[test]
    fn intervals() {
        let timeout = |grace| interval(&table(TombstoneGc::Timeout, grace), 0);
        assert_eq!(timeout(864_000), 7 * DAY, "Cassandra's default of ten days");
        assert_eq!(timeout(4 * DAY), 3 * DAY);
        assert_eq!(timeout(60), 600, "a grace shorter than any repair");
        assert_eq!(timeout(0), 7 * DAY);
        let repair = TombstoneGc::Repair { propagation_delay_seconds: 10 };
        assert_eq!(interval(&table(repair, 864_000), 0), DAY);
        assert_eq!(interval(&table(TombstoneGc::Disabled, 60), 0), 7 * DAY);
        let limited = |max| interval(&table(TombstoneGc::Timeout, 864_000), max);
        assert_eq!((limited(HOUR), limited(1), limited(30 * DAY)), (HOUR, 600, 7 * DAY));
    }

    /// A node that repairs the ranges that are due, one after the other, keeps every interval, also through failures.
    #[test]
    fn every_range_is_repaired_in_time() {
        let since = 1_000_000;
        let intervals = [7 * DAY, DAY, 4 * HOUR, 7 * DAY];
        let mut ranges: Vec<Candidate> = (0..60)
            .map(|n| Candidate {
                repaired: 0,
                interval: intervals[n % 4],
                not_before: 0,
                place: (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            })
            .collect();
        let next = |ranges: &[Candidate]| {
            let mut earliest = Earliest::new(3);
            ranges.iter().enumerate().for_each(|(at, range)| earliest.offer(range.due(since), || at));
            let all = earliest.into_sorted();
            assert!(all.is_sorted_by_key(|(due, _)| *due) && all.len() <= 3);
            assert!(
                ranges.iter().filter(|range| range.due(since) < all[0].0).count() == 0,
                "none is earlier"
            );
            all[0]
        };
        let mut now = since;
        let (mut repairs, mut most_in_an_hour, mut hour) = (0, 0, (0, 0));
        while now < since + 30 * DAY {
            let (due, at) = next(&ranges);
            now = now.max(due);
            let range = &mut ranges[at];
            if repairs % 7 == 3 {
                range.not_before = now + 600;
                repairs += 1;
                continue;
            }
            let from = if range.repaired == 0 { since } else { range.repaired };
            assert!(now - from <= range.interval + range.interval / 4, "range {at} after {} s", now - from);
            *range = Candidate { repaired: now, not_before: 0, ..*range };
            now += 60;
            repairs += 1;
            let this = now / HOUR;
            hour = if hour.0 == this { (this, hour.1 + 1) } else { (this, 1) };
            most_in_an_hour = most_in_an_hour.max(hour.1);
        }
        assert!(repairs > 3_000, "{repairs}");
        assert!(most_in_an_hour < 30, "they are spread: {most_in_an_hour} of 60 in one hour");
    }
}
