//! How far a transfer has come, how fast it is, and when it will be done. Pure.

use std::time::Duration;

use rt::Instant;

use super::plan::{Plan, Position};

/// The progress of a transfer, for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Items of the plan.
    pub items_total: usize,
    /// Items that are there.
    pub items_done: usize,
    /// Bytes of the plan, as far as they are known before.
    pub bytes_total: u64,
    /// Whether that is all of them.
    pub bytes_total_is_known: bool,
    /// Bytes that are there, of earlier attempts too.
    pub bytes_done: u64,
    /// Bytes a second, lately.
    pub rate: u64,
    /// The estimated rest of its time, when there is an estimate.
    pub remaining: Option<Duration>,
    /// How often the transfer was cut and went on.
    pub resumed: u32,
}

/// The rate is that of about so much time.
const MEMORY: Duration = Duration::from_secs(5);
/// The rate is measured over times of this length.
const STEP: Duration = Duration::from_millis(500);

/// Follows a transfer.
#[derive(Clone, Debug)]
pub struct Meter {
    progress: Progress,
    step_began: Instant,
    step_bytes: u64,
    /// Bytes a second; none until one step has ended.
    rate: Option<f64>,
}

impl Meter {
    /// Nothing is there yet.
    pub fn new(plan: &Plan, now: Instant) -> Meter {
        let (bytes_total, bytes_total_is_known) = plan.known_bytes();
        let progress = Progress {
            items_total: plan.items().len(),
            bytes_total,
            bytes_total_is_known,
            ..Progress::default()
        };
        Meter { progress, step_began: now, step_bytes: 0, rate: None }
    }

    /// The transfer begins, or resumes, at a position.
    pub fn begun_at(&mut self, plan: &Plan, position: &Position, again: bool) {
        self.progress.items_done = position.item as usize;
        self.progress.bytes_done = self.progress.bytes_done.max(plan.bytes_before(position));
        self.progress.resumed += u32::from(again);
    }

    /// So many more bytes are there.
    pub fn came(&mut self, bytes: u64, position: &Position, now: Instant) {
        self.progress.items_done = position.item as usize;
        self.progress.bytes_done = self.progress.bytes_done.saturating_add(bytes);
        self.step_bytes += bytes;
        let passed = now - self.step_began;
        if passed < STEP {
            return;
        }
        let lately = self.step_bytes as f64 / passed.as_secs_f64();
        let weight = (passed.as_secs_f64() / MEMORY.as_secs_f64()).min(1.0);
        self.rate = Some(self.rate.map_or(lately, |rate| rate + (lately - rate) * weight));
        (self.step_began, self.step_bytes) = (now, 0);
    }

    /// The present progress.
    pub fn progress(&self) -> Progress {
        let rate = self.rate.unwrap_or(0.0) as u64;
        let left = self.progress.bytes_total.saturating_sub(self.progress.bytes_done);
        let can_tell = self.progress.bytes_total_is_known && rate > 0;
        let remaining = can_tell.then(|| Duration::from_secs_f64(left as f64 / rate as f64));
        Progress { rate, remaining, ..self.progress }
    }
}
