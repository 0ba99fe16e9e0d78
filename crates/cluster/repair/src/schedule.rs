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
}

/// Which of the candidates is due first, and when; `since` is when this node began to look after them. Ranges never repaired are
/// spread over the first quarter of its interval: a node that starts, or a schema that is
/// restored, does not repair everything at once, and never again does everything fall due at one time.
pub fn next(candidates: &[Candidate], since: Seconds) -> Option<(usize, Seconds)> {
    let count = candidates.len() as u64;
    let due = candidates.iter().zip(0u64..).map(|(candidate, at)| {
        let due = if candidate.repaired == 0 {
            // Each start of the node begins elsewhere, so that one that starts often leaves nothing out for ever.
            let place = (at + u64::from(since)) % count;
            since.saturating_add((u64::from(candidate.interval / 4) * place / count) as Seconds)
        } else {
            candidate.repaired.saturating_add(candidate.interval)
        };
        due.max(candidate.not_before)
    });
    due.enumerate().min_by_key(|(at, due)| (*due, *at))
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
        let mut ranges: Vec<Candidate> =
            (0..60).map(|n| Candidate { repaired: 0, interval: intervals[n % 4], not_before: 0 }).collect();
        let mut now = since;
        let (mut repairs, mut most_in_an_hour, mut hour) = (0, 0, (0, 0));
        while now < since + 30 * DAY {
            let (at, due) = next(&ranges, since).expect("there are ranges");
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
        assert_eq!(next(&[], since), None);
    }
}
