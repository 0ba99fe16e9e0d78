//! The latencies of the latest reads of each table, for the percentiles of `speculative_retry`.
//!
//! Two windows follow each other, so that a percentile is that of the last one or two of them. A bucket is at most an eighth wider than the
//! one before it; a percentile is given as the upper end of its bucket.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use rt::Instant;
use schema::TableId;
use stdx::HashMap;

/// How long reads are counted into one window.
const WINDOW: Duration = Duration::from_secs(30);
/// How long a percentile is cached before it is computed anew.
const FRESH: Duration = Duration::from_millis(100);
/// Fewer reads than this give no percentile.
const ENOUGH: u64 = 100;
/// Buckets of each doubling.
const PARTS_BITS: u32 = 3;
const PARTS: usize = 1 << PARTS_BITS;
/// Microseconds have buckets up to about 2^26, a minute.
const BUCKETS: usize = (26 - PARTS_BITS as usize) * PARTS + PARTS;

const _: () =
    assert!(FRESH.as_millis() < WINDOW.as_millis(), "a percentile is computed anew within a window");
const _: () = assert!(BUCKETS.is_multiple_of(PARTS), "each doubling has its buckets");

/// The latest reads of all tables, as one shard coordinated them.
#[derive(Debug, Default)]
pub(crate) struct RecentReads {
    tables: RefCell<HashMap<TableId, Table>>,
}

#[derive(Debug)]
struct Table {
    /// This window and the one before it.
    windows: [[u32; BUCKETS]; 2],
    began: Instant,
    /// The last computed percentile: its time, its share, its value.
    cached: Cell<(Instant, f64, Option<Duration>)>,
}

impl RecentReads {
    /// A read of a table ended at `now`. `known` says which tables there are.
    pub(crate) fn ended(&self, id: TableId, took: Duration, now: Instant, known: impl Fn(TableId) -> bool) {
        let mut tables = self.tables.borrow_mut();
        if !tables.contains_key(&id) {
            tables.retain(|table, _| known(*table));
        }
        let table = tables.entry(id).or_insert_with(|| Table::new(now));
        table.turn(now);
        let count = &mut table.windows[0][bucket_of(took)];
        *count = count.saturating_add(1);
    }

    /// The time below which this share (0 to 1) of a table's latest reads stayed; none before there were enough to tell.
    pub(crate) fn below(&self, id: TableId, share: f64, now: Instant) -> Option<Duration> {
        let tables = self.tables.borrow();
        let table = tables.get(&id)?;
        let (at, of, found) = table.cached.get();
        if of == share && now < at + FRESH {
            return found;
        }
        let found = table.below(share);
        table.cached.set((now, share, found));
        found
    }
}

impl Table {
    fn new(now: Instant) -> Self {
        Self { windows: [[0; BUCKETS]; 2], began: now, cached: Cell::new((now, f64::NAN, None)) }
    }

    /// Begins another window when this one's time is over.
    fn turn(&mut self, now: Instant) {
        if now < self.began + WINDOW {
            return;
        }
        let is_old = now >= self.began + 2 * WINDOW;
        self.windows[1] = if is_old { [0; BUCKETS] } else { self.windows[0] };
        self.windows[0] = [0; BUCKETS];
        self.began = now;
    }

    fn below(&self, share: f64) -> Option<Duration> {
        let count = |bucket: usize| self.windows.iter().map(|window| u64::from(window[bucket])).sum::<u64>();
        let total: u64 = (0..BUCKETS).map(count).sum();
        if total < ENOUGH {
            return None;
        }
        let wanted = (total as f64 * share).ceil() as u64;
        let mut seen = 0;
        let bucket = (0..BUCKETS).find(|bucket| {
            seen += count(*bucket);
            seen >= wanted
        });
        bucket.map(upper_end)
    }
}

/// The bucket of a duration: by its microseconds' highest bit and the three bits below it.
fn bucket_of(took: Duration) -> usize {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    if micros < PARTS as u64 {
        return micros as usize;
    }
    let high = u64::BITS - 1 - micros.leading_zeros();
    let shift = high - PARTS_BITS;
    let part = (micros >> shift) as usize - PARTS;
    ((shift as usize + 1) * PARTS + part).min(BUCKETS - 1)
}

/// The first duration that is above a bucket.
fn upper_end(bucket: usize) -> Duration {
    assert!(bucket < BUCKETS, "a duration has a bucket");
    if bucket < PARTS {
        return Duration::from_micros(bucket as u64 + 1);
    }
    let (shift, part) = (bucket / PARTS - 1, bucket % PARTS);
    Duration::from_micros(((PARTS + part + 1) as u64) << shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MILLI: Duration = Duration::from_millis(1);
    const ID: TableId = TableId([1; 16]);

    fn at(seconds: u64) -> Instant {
        Instant::START + Duration::from_secs(seconds)
    }

    proptest! {
        #[test]
        fn a_bucket_ends_at_most_an_eighth_above_its_values(micros in 0_u64..60_000_000) {
            let end = upper_end(bucket_of(Duration::from_micros(micros))).as_micros() as u64;
            prop_assert!(end > micros && end <= micros + 1 + micros / 8, "{micros} ends at {end}");
        }
    }

    #[test]
    fn the_longest_has_a_bucket() {
        assert_eq!(bucket_of(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_percentile_is_that_of_the_latest_reads_of_the_table() {
        let reads = RecentReads::default();
        for count in 0..200 {
            reads.ended(ID, (if count % 100 == 0 { 50 } else { 2 }) * MILLI, at(1), |_| true);
        }
        let near = |share, seconds, expected: Duration| {
            let found = reads.below(ID, share, at(seconds)).expect("there were enough");
            assert!(found >= expected && found <= expected.mul_f64(1.13), "{found:?}");
        };
        near(0.99, 2, 2 * MILLI);
        near(0.999, 2, 50 * MILLI);
        assert_eq!(reads.below(TableId([2; 16]), 0.99, at(2)), None);
        // A window later the old ones still count, two windows later they do not.
        (0..200).for_each(|_| reads.ended(ID, 10 * MILLI, at(35), |_| true));
        near(0.25, 36, 2 * MILLI);
        near(0.99, 36, 10 * MILLI);
        (0..200).for_each(|_| reads.ended(ID, 10 * MILLI, at(70), |_| true));
        near(0.01, 71, 10 * MILLI);
        reads.ended(ID, MILLI, at(200), |_| true);
        assert_eq!(reads.below(ID, 0.5, at(201)), None, "after a pause there are not enough");
    }

    #[test]
    fn tables_that_are_gone_are_forgotten() {
        let reads = RecentReads::default();
        (0..50)
            .for_each(|number| reads.ended(TableId([number; 16]), MILLI, at(1), |id| id.0[0] + 3 > number));
        assert_eq!(reads.tables.borrow().len(), 3);
    }
}
