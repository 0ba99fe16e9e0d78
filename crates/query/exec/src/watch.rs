//! The requests that are watched without a client asking for it: a share of the requests is traced, and those that take long are named in the
//! log, in Cassandra's words.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use rt::Instant;

use crate::backend::Clock;
use crate::request::ExecLimits;
use crate::trace::{SlowTracing, TraceReason};

/// Different slow statements that are stored between two reports; of more only the number is logged.
const SLOW_MAX: usize = 50;
/// Characters of a statement that are logged.
const TEXT_MAX: usize = 1_000;

/// The targets that a shard watches.
pub(crate) struct Watch {
    trace_probability: Cell<f64>,
    slow_tracing: Cell<SlowTracing>,
    slow_after: Cell<Duration>,
    slow: RefCell<Slow>,
}

/// The statements that were slow since the last report.
#[derive(Default)]
struct Slow {
    since: Option<Instant>,
    statements: BTreeMap<String, Times>,
    more: u64,
}

#[derive(Clone, Copy)]
struct Times {
    count: u32,
    min: Duration,
    max: Duration,
    total: Duration,
}

impl Watch {
    /// Names statements that take longer than `slow_after`, and traces the share `trace_probability`.
    pub(crate) fn new(limits: &ExecLimits) -> Self {
        Self {
            trace_probability: Cell::new(limits.trace_probability),
            slow_tracing: Cell::new(limits.slow_tracing),
            slow_after: Cell::new(limits.slow_after),
            slow: RefCell::default(),
        }
    }

    /// The same with changed settings.
    pub(crate) fn configure(&self, limits: &ExecLimits) {
        self.trace_probability.set(limits.trace_probability);
        self.slow_tracing.set(limits.slow_tracing);
        self.slow_after.set(limits.slow_after);
    }

    /// Whether a request that nobody wants traced is traced all the same.
    fn draws(&self, clock: &dyn Clock) -> bool {
        let probability = self.trace_probability.get();
        if probability <= 0.0 {
            return false;
        }
        let bytes: [u8; 8] = clock.random()[..8].try_into().expect("eight of sixteen");
        // Evenly from 0 to 1, without 1.
        let drawn = (u64::from_be_bytes(bytes) >> 11) as f64 / (1_u64 << 53) as f64;
        drawn < probability
    }

    /// Why a request is traced, which its client has `wanted` or not; none when it is not.
    pub(crate) fn reason(&self, wanted: bool, clock: &dyn Clock) -> Option<TraceReason> {
        if wanted {
            return Some(TraceReason::Wanted);
        }
        if self.draws(clock) {
            return Some(TraceReason::Drawn);
        }
        self.slow_tracing.get().enabled.then_some(TraceReason::IfSlow)
    }

    /// Whether requests are traced that no client wants traced.
    #[inline]
    pub(crate) fn traces_unasked(&self) -> bool {
        self.trace_probability.get() > 0.0 || self.slow_tracing.get().enabled
    }

    /// How slow requests are recorded.
    pub(crate) fn slow_tracing(&self) -> SlowTracing {
        self.slow_tracing.get()
    }

    /// Whether slow statements are named.
    #[inline]
    pub(crate) fn names_slow(&self) -> bool {
        !self.slow_after.get().is_zero()
    }

    /// When a statement begins; none when nobody wants to know.
    pub(crate) fn begin(&self, clock: &dyn Clock) -> Option<Instant> {
        self.names_slow().then(|| clock.now())
    }

    /// A statement has ended, and is kept for the report when it was slow.
    pub(crate) fn end(&self, began: Option<Instant>, clock: &dyn Clock, text: impl FnOnce() -> String) {
        let Some(began) = began else { return };
        let now = clock.now();
        let took = now.duration_since(began);
        if took <= self.slow_after.get() {
            return;
        }
        let mut slow = self.slow.borrow_mut();
        slow.since.get_or_insert(began);
        let text: String = text().chars().take(TEXT_MAX).collect();
        if slow.statements.len() >= SLOW_MAX && !slow.statements.contains_key(&text) {
            slow.more += 1;
            return;
        }
        let first = Times { count: 0, min: took, max: took, total: Duration::ZERO };
        let times = slow.statements.entry(text).or_insert(first);
        times.count += 1;
        times.min = times.min.min(took);
        times.max = times.max.max(took);
        times.total += took;
    }

    /// The report of slow statements since the last time.
    pub(crate) fn report(&self, now: Instant) -> Option<String> {
        let slow = self.slow.take();
        let during = now.duration_since(slow.since?).as_millis();
        let count = slow.more + slow.statements.values().map(|times| u64::from(times.count)).sum::<u64>();
        let mut out = format!("{count} operations were slow in the last {during} msecs:");
        let limit = self.slow_after.get().as_millis();
        for (text, times) in &slow.statements {
            let millis = |time: Duration| time.as_millis();
            let line = match times.count {
                1 => format!("time {} msec", millis(times.total)),
                count => format!(
                    "was slow {count} times: avg/min/max {}/{}/{} msec",
                    millis(times.total / count),
                    millis(times.min),
                    millis(times.max)
                ),
            };
            out.push_str(&format!("\n<{text}>, {line} - slow timeout {limit} msec"));
        }
        if slow.more > 0 {
            out.push_str(&format!("\n... ({} were dropped)", slow.more));
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(slow_after: Duration, trace_probability: f64) -> ExecLimits {
        ExecLimits { slow_after, trace_probability, ..ExecLimits::default() }
    }

    /// A clock that only the test advances; its random numbers are all the same.
    struct Hand(Cell<Duration>, u8);

    impl Clock for Hand {
        fn wall_micros(&self) -> i64 {
            0
        }

        fn now(&self) -> Instant {
            Instant::START + self.0.get()
        }

        fn random(&self) -> [u8; 16] {
            [self.1; 16]
        }
    }

    #[test]
    fn slow_statements_are_reported_in_cassandras_words() {
        let (watch, clock) = (Watch::new(&limits(Duration::from_millis(500), 0.0)), Hand(Cell::default(), 0));
        let took = |text: &str, millis: u64| {
            let began = watch.begin(&clock);
            clock.0.set(clock.0.get() + Duration::from_millis(millis));
            watch.end(began, &clock, || text.to_owned());
        };
        took("SELECT 1", 500);
        assert_eq!(watch.report(clock.now()), None, "as long as the limit is not slow");
        took("SELECT 2", 501);
        took("SELECT 3", 600);
        took("SELECT 3", 900);
        assert_eq!(
            watch.report(clock.now()).unwrap(),
            "3 operations were slow in the last 2001 msecs:\n\
             <SELECT 2>, time 501 msec - slow timeout 500 msec\n\
             <SELECT 3>, was slow 2 times: avg/min/max 750/600/900 msec - slow timeout 500 msec"
        );
        assert_eq!(watch.report(clock.now()), None, "once");
        (0..60).for_each(|n| took(&format!("{n:02} {}", "x".repeat(TEXT_MAX)), 1_000));
        let report = watch.report(clock.now()).unwrap();
        assert!(report.starts_with("60 operations were slow"), "{report}");
        assert!(report.ends_with("\n... (10 were dropped)"), "{report}");
        assert!(report.lines().all(|line| line.len() < TEXT_MAX + 100), "long texts are cut");
        assert_eq!(Watch::new(&limits(Duration::ZERO, 0.0)).begin(&clock), None);
    }

    #[test]
    fn a_share_is_drawn() {
        let watch = Watch::new(&limits(Duration::ZERO, 0.0));
        let drawn = |random, probability| {
            watch.configure(&limits(Duration::ZERO, probability));
            watch.draws(&Hand(Cell::default(), random))
        };
        assert!(!drawn(0, 0.0), "none");
        assert!(drawn(0xff, 1.0), "all");
        assert!(drawn(0x7f, 0.5) && !drawn(0x80, 0.5));
    }
}
