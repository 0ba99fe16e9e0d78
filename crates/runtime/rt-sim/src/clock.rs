//! The clocks of a simulated node: they drift, and the wall clock jumps.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rt::Instant;
use rt::driver::Clock;

use crate::config::ClockConfig;
use crate::world::{Stream, World};

const MILLION: i128 = 1_000_000;

/// A node's clocks. The monotonic one counts from the node's last start.
pub(crate) struct NodeClock {
    world: Rc<World>,
    /// Virtual time and the node's time at the last change of the drift.
    base_world: Cell<u64>,
    base_local: Cell<u64>,
    drift_ppm: Cell<i32>,
    started_local: Cell<u64>,
    wall_offset_micros: Cell<i64>,
    /// Virtual time of the last reading, and how often the clock was read then.
    readings: Cell<(u64, u64)>,
}

impl NodeClock {
    pub(crate) fn new(world: Rc<World>, config: ClockConfig) -> NodeClock {
        NodeClock {
            base_world: Cell::new(world.now()),
            base_local: Cell::new(world.now()),
            world,
            drift_ppm: Cell::new(config.drift_ppm),
            started_local: Cell::new(0),
            wall_offset_micros: Cell::new(config.wall_offset_micros),
            readings: Cell::new((0, 0)),
        }
    }

    fn rate(&self) -> i128 {
        MILLION + i128::from(self.drift_ppm.get())
    }

    /// The node's time, counted since the simulation began.
    fn local(&self) -> u64 {
        if self.drift_ppm.get() == 0 {
            return self.base_local.get() + (self.world.now() - self.base_world.get());
        }
        let passed = self.world.now() - self.base_world.get();
        let drift = i64::from(self.drift_ppm.get());
        let ahead = match i64::try_from(passed).ok().and_then(|passed| passed.checked_mul(drift)) {
            Some(parts) => parts.div_euclid(MILLION as i64),
            None => (i128::from(passed) * i128::from(drift)).div_euclid(MILLION) as i64,
        };
        self.base_local.get() + passed.saturating_add_signed(ahead)
    }

    /// The time since the poll began.
    fn within_poll(&self) -> u64 {
        let config = &self.world.config;
        if config.clock_read_cost.is_zero() {
            return 0;
        }
        let (at, count) = self.readings.get();
        let count = if at == self.world.now() { count + 1 } else { 0 };
        self.readings.set((self.world.now(), count));
        // The next poll begins a whole cost later: time does not go back, however slow the clock is.
        (count * config.clock_read_cost.as_nanos() as u64).min(config.poll_cost.as_nanos() as u64 / 2)
    }

    /// The virtual time at which the node's monotonic clock shows at least `instant`.
    pub(crate) fn world_time_of(&self, instant: Instant) -> u64 {
        let local = instant.as_nanos().saturating_add(self.started_local.get());
        if self.drift_ppm.get() == 0 {
            let passed = local.saturating_sub(self.base_local.get());
            return self.base_world.get().saturating_add(passed.saturating_add(1));
        }
        let ahead = i128::from(local.saturating_sub(self.base_local.get()));
        let passed = (ahead * MILLION).div_euclid(self.rate()) + 1;
        self.base_world.get().saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    pub(crate) fn node_started(&self) {
        self.started_local.set(self.local());
    }

    pub(crate) fn set_drift(&self, drift_ppm: i32) {
        assert!(drift_ppm > -1_000_000, "a clock does not stand still or go back");
        self.base_local.set(self.local());
        self.base_world.set(self.world.now());
        self.drift_ppm.set(drift_ppm);
    }

    pub(crate) fn jump_wall(&self, micros: i64) {
        self.wall_offset_micros.set(self.wall_offset_micros.get() + micros);
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.local() - self.started_local.get() + self.within_poll())
    }

    fn wall_micros(&self) -> i64 {
        let since_start = (self.local() / 1000) as i64;
        self.world.config.wall_start_micros + since_start + self.wall_offset_micros.get()
    }

    fn quota_spent(&self, _turn_start: Instant, _quota: Duration) -> bool {
        let per_million = self.world.config.preempt_per_million;
        self.world.draw(Stream::Preempt, |rng| rng.chance(per_million))
    }
}
