//! The system's clocks.

use std::time::{Instant as SystemInstant, SystemTime};

use rt::Instant;
use rt::driver::Clock;

/// Time since the node started, the same origin on all shards.
pub(crate) struct SystemClock {
    start: SystemInstant,
}

impl SystemClock {
    pub(crate) fn new(start: SystemInstant) -> SystemClock {
        SystemClock { start }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.start.elapsed().as_nanos() as u64)
    }

    fn wall_micros(&self) -> i64 {
        match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => since.as_micros() as i64,
            Err(before) => -(before.duration().as_micros() as i64),
        }
    }
}
