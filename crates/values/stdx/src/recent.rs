//! Sizes of events by how large they were of late: durations, rows. Two windows of a minute, so that old events do not
//! hide recent ones; no timer, and nothing is allocated before the first event.

use std::cell::{Cell, RefCell};

/// Values below this have a bucket each.
const EXACT: u64 = 8;
/// Buckets between a power of two and the next.
const PARTS: u64 = 4;
/// Larger values are counted as 2^32 - 1.
const BITS_MAX: u32 = 32;
const BUCKETS: usize = EXACT as usize + (BITS_MAX as usize - 3) * PARTS as usize;
/// Nanoseconds of a window.
const WINDOW: u64 = 60_000_000_000;
/// Events of a window of which each is measured,
const MEASURED_ALL: u32 = 256;
/// and after these one in so many.
const MEASURED_EVERY: u32 = 16;

fn bucket_of(value: u64) -> usize {
    if value < EXACT {
        return value as usize;
    }
    let value = value.min((1 << BITS_MAX) - 1);
    let power = value.ilog2();
    let part = (value >> (power - 2)) & (PARTS - 1);
    (EXACT + u64::from(power - 3) * PARTS + part) as usize
}

/// The largest value of a bucket.
fn bound(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < EXACT {
        return bucket;
    }
    let (power, part) = ((bucket - EXACT) / PARTS + 3, (bucket - EXACT) % PARTS);
    ((PARTS + part + 1) << (power - 2)) - 1
}

#[derive(Clone)]
struct Window {
    count: u64,
    max: u64,
    buckets: [u32; BUCKETS],
}

impl Window {
    const EMPTY: Self = Self { count: 0, max: 0, buckets: [0; BUCKETS] };
}

#[derive(Clone)]
struct Windows {
    /// When the first event was, and the current window began.
    first: u64,
    began: u64,
    current: Window,
    previous: Window,
}

impl Windows {
    fn advance(&mut self, now: u64) {
        match now.saturating_sub(self.began) / WINDOW {
            0 => {}
            1 => {
                self.previous = std::mem::replace(&mut self.current, Window::EMPTY);
                self.began += WINDOW;
            }
            _ => {
                (self.previous, self.current) = (Window::EMPTY, Window::EMPTY);
                self.began = now;
            }
        }
    }
}

/// Counts events of one kind. About a kilobyte once there was one.
#[derive(Default)]
pub struct Recent {
    total: Cell<u64>,
    in_window: Cell<u32>,
    windows: RefCell<Option<Box<Windows>>>,
}

impl std::fmt::Debug for Recent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recent({})", self.total.get())
    }
}

impl Recent {
    /// Counts an event. For how many it stands when it is measured ([`Recent::measured`]); 0 when it need not be, because there are
    /// many.
    #[inline]
    pub fn begin(&self) -> u32 {
        self.total.set(self.total.get().wrapping_add(1));
        let number = self.in_window.get();
        self.in_window.set(number.wrapping_add(1));
        match number {
            0..MEASURED_ALL => 1,
            _ if number.is_multiple_of(MEASURED_EVERY) => MEASURED_EVERY,
            _ => 0,
        }
    }

    /// Measured an event that stands for `weight`; `now` are nanoseconds of a clock that does not go back.
    pub fn measured(&self, value: u64, weight: u32, now: u64) {
        let mut place = self.windows.borrow_mut();
        let windows = place.get_or_insert_with(|| {
            let (current, previous) = (Window::EMPTY, Window::EMPTY);
            Box::new(Windows { first: now, began: now, current, previous })
        });
        let before = windows.began;
        windows.advance(now);
        if windows.began != before {
            self.in_window.set(0);
        }
        let window = &mut windows.current;
        window.count += u64::from(weight);
        window.max = window.max.max(value);
        let bucket = &mut window.buckets[bucket_of(value)];
        *bucket = bucket.saturating_add(weight);
    }

    /// Counts and measures an event.
    pub fn add(&self, value: u64, now: u64) {
        let weight = self.begin();
        if weight > 0 {
            self.measured(value, weight, now);
        }
    }

    /// The events until now.
    pub fn figures(&self, now: u64) -> RecentFigures {
        let mut figures = RecentFigures { total: self.total.get(), ..RecentFigures::default() };
        let Some(windows) = &*self.windows.borrow() else { return figures };
        let mut windows = windows.clone();
        windows.advance(now);
        let Windows { first, began, current, previous } = &*windows;
        figures.recent = current.count + previous.count;
        figures.max = current.max.max(previous.max);
        let since = now.saturating_sub(*first).min(now.saturating_sub(*began).saturating_add(WINDOW));
        // A second at least: one event in a microsecond is no million of them a second.
        figures.per_second = figures.recent as f64 / (since as f64 / 1e9).max(1.0);
        let sums = current.buckets.iter().zip(&previous.buckets).map(|(a, b)| u64::from(*a) + u64::from(*b));
        figures.buckets = sums.collect();
        figures
    }
}

/// The counts of [`Recent`], of one shard or several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecentFigures {
    /// Events since the start.
    pub total: u64,
    /// Events of the last one to two minutes.
    pub recent: u64,
    /// The largest of these.
    pub max: u64,
    /// How many there were a second in that time.
    pub per_second: f64,
    buckets: Vec<u64>,
}

impl RecentFigures {
    /// Adds the counts of another shard.
    pub fn merge(&mut self, other: &Self) {
        self.total += other.total;
        self.recent += other.recent;
        self.max = self.max.max(other.max);
        self.per_second += other.per_second;
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(sum, more)| *sum += more);
    }

    /// The largest value and the recent events of each bucket, in order of the values.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        (0..BUCKETS).map(|bucket| (bound(bucket), self.buckets.get(bucket).copied().unwrap_or(0)))
    }

    /// The value that this share of the recent events does not exceed, at most a quarter too large; 0 without any.
    pub fn percentile(&self, share: f64) -> u64 {
        let measured: u64 = self.buckets.iter().sum();
        let wanted = (measured as f64 * share).ceil().max(1.0) as u64;
        let mut sum = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            sum += count;
            if sum >= wanted {
                return bound(bucket).min(self.max);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn every_value_lies_in_a_bucket_that_is_not_much_larger() {
        let mut last = 0;
        for value in (0..5000).chain((5000..1 << 33).step_by(9_999_991)) {
            let bucket = bucket_of(value);
            assert!(bucket >= last && bucket < BUCKETS, "{value}");
            last = bucket;
            let value = value.min((1 << 32) - 1);
            let bound = bound(bucket);
            assert!(value <= bound && bound as f64 <= value as f64 * 1.25, "{value} in a bucket of {bound}");
        }
    }

    #[test]
    fn events_of_minutes_ago_are_only_in_the_total() {
        let recent = Recent::default();
        assert_eq!(recent.figures(5), RecentFigures::default());
        (0..100).for_each(|n| recent.add(if n < 90 { 4 } else { 1000 }, SECOND));
        let now = recent.figures(51 * SECOND);
        assert_eq!((now.total, now.recent, now.max), (100, 100, 1000));
        assert_eq!((now.percentile(0.5), now.percentile(0.9), now.percentile(0.99)), (4, 4, 1000));
        assert_eq!(now.per_second, 2.0);
        // A window later it still counts beside the new ones, and then no more.
        recent.add(7, 70 * SECOND);
        let later = recent.figures(100 * SECOND);
        assert_eq!((later.recent, later.max, later.percentile(0.5)), (101, 1000, 4));
        recent.add(7, 125 * SECOND);
        let latest = recent.figures(130 * SECOND);
        assert_eq!((latest.total, latest.recent, latest.max, latest.percentile(0.5)), (102, 2, 7, 7));
        let idle = recent.figures(1_000 * SECOND);
        assert_eq!((idle.total, idle.recent, idle.max, idle.percentile(0.99)), (102, 0, 0, 0));
        assert_eq!(idle.per_second, 0.0);
    }

    #[test]
    fn of_many_events_a_part_is_measured_and_all_are_counted() {
        let recent = Recent::default();
        let mut measured = 0;
        for n in 0..100_000u64 {
            let weight = recent.begin();
            if weight > 0 {
                measured += 1;
                recent.measured(n % 100, weight, SECOND + n);
            }
        }
        assert!((6_000..7_000).contains(&measured), "{measured}");
        let figures = recent.figures(2 * SECOND);
        assert_eq!(figures.total, 100_000);
        assert!((99_000..=100_000).contains(&figures.recent), "{}", figures.recent);
        assert!((45..=65).contains(&figures.percentile(0.5)), "{}", figures.percentile(0.5));
    }

    #[test]
    fn shards_are_put_together() {
        let (one, two, none) = (Recent::default(), Recent::default(), Recent::default());
        (0..30).for_each(|_| one.add(5, SECOND));
        (0..70).for_each(|_| two.add(6, SECOND));
        let mut sum = none.figures(SECOND);
        [&one, &two, &none].into_iter().for_each(|shard| sum.merge(&shard.figures(2 * SECOND)));
        assert_eq!((sum.total, sum.max, sum.percentile(0.3), sum.percentile(0.31)), (100, 6, 5, 6));
        assert_eq!(sum.per_second, 100.0);
        let met: Vec<(u64, u64)> = sum.buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(met, [(5, 30), (6, 70)]);
        assert!(RecentFigures::default().buckets().map(|(bound, _)| bound).is_sorted());
        assert_eq!(RecentFigures::default().buckets().count(), BUCKETS);
    }
}
