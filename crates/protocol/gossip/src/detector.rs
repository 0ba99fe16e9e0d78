//! The phi-accrual failure detector (Hayashibara, Défago, Yared, Katayama: "The φ accrual failure detector", 2004), for one
//! endpoint: how unlikely is the present silence, given the intervals of its heartbeats?
//!
//! Heartbeats travel over several hops, so that their intervals are about exponential; then the chance of a silence of
//! length t is e^(-t/mean), and phi, minus its decimal logarithm, is t / (mean · ln 10). At phi 8 the silence would be
//! chance once in 10^8 times.

use std::collections::VecDeque;
use std::time::Duration;

/// How the detector judges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DetectorConfig {
    /// Phi above which an endpoint counts as down (`phi_convict_threshold`).
    pub threshold: f64,
    /// Intervals remembered for each endpoint.
    pub window: usize,
    /// The interval assumed before there was one: that of heartbeats, so that a node that dies soon after its start is not waited for twice as long.
    pub initial_interval: Duration,
    /// Longer intervals were outages and say nothing about the endpoint's rhythm.
    pub interval_max: Duration,
    /// The mean is never below this: heartbeats come once a second, so faster ones were delayed before.
    pub mean_min: Duration,
    /// When this machine did nothing for so long, it was stopped itself: the time does not count against anybody.
    pub pause_max: Duration,
}

impl Default for DetectorConfig {
    fn default() -> Self {
        Self {
            threshold: 8.0,
            window: 1_000,
            initial_interval: Duration::from_secs(1),
            interval_max: Duration::from_secs(2),
            mean_min: Duration::from_secs(1),
            pause_max: Duration::from_secs(5),
        }
    }
}

/// How suspicious a silence is after intervals with this mean.
pub fn phi(silence: Duration, mean: Duration) -> f64 {
    silence.as_secs_f64() / mean.as_secs_f64() * std::f64::consts::LOG10_E
}

/// Arrival times of one endpoint.
#[derive(Clone, Debug, Default)]
pub struct ArrivalWindow {
    /// Microseconds, oldest first.
    intervals: VecDeque<u32>,
    sum_micros: u64,
    last: Option<Duration>,
}

impl ArrivalWindow {
    /// A heartbeat of the endpoint arrived.
    #[expect(clippy::expect_used, reason = "the full window is not empty")]
    pub fn heard(&mut self, now: Duration, config: &DetectorConfig) {
        let interval = match self.last {
            Some(last) => now.saturating_sub(last),
            None => config.initial_interval,
        };
        self.last = Some(now);
        if interval > config.interval_max {
            return;
        }
        let micros = u32::try_from(interval.as_micros()).unwrap_or(u32::MAX);
        self.intervals.push_back(micros);
        self.sum_micros += u64::from(micros);
        while self.intervals.len() > config.window.max(1) {
            let oldest = self.intervals.pop_front().expect("the window is not empty");
            self.sum_micros -= u64::from(oldest);
        }
    }

    /// The machine did nothing for `pause`, which ended now.
    pub fn excuse(&mut self, pause: Duration, now: Duration) {
        self.last = self.last.map(|last| (last + pause).min(now));
    }

    /// The mean of the intervals, within the configuration's bounds.
    pub fn mean(&self, config: &DetectorConfig) -> Duration {
        match self.intervals.len() as u64 {
            0 => config.initial_interval,
            count => Duration::from_micros(self.sum_micros / count).max(config.mean_min),
        }
    }

    /// Phi of the silence until now; 0 for an endpoint without arrivals.
    pub fn phi(&self, now: Duration, config: &DetectorConfig) -> f64 {
        self.last.map_or(0.0, |last| phi(now.saturating_sub(last), self.mean(config)))
    }

    /// How many intervals are remembered.
    pub fn len(&self) -> usize {
        self.intervals.len()
    }

    /// Whether no heartbeat has arrived.
    pub fn is_empty(&self) -> bool {
        self.last.is_none()
    }
}
