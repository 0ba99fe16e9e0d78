//! The state that everything in a simulation shares: virtual time, the queue of events, the streams of randomness, the trace.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::Config;
use crate::random::Rng;
use crate::trace::{Trace, hash_bytes};

/// Streams of randomness, by their purpose.
#[derive(Clone, Copy)]
pub(crate) enum Stream {
    Schedule,
    Preempt,
    Net,
    Disk,
    Clock,
    Buggify,
}

const STREAMS: usize = 6;
/// Of the points where the product may be delayed on purpose a seed has about one in so many.
const POINTS_ONE_IN: u64 = 3;
/// Delays there, milliseconds at most: mostly short, now and then longer than many a pause between two attempts.
const DELAYS_MILLIS: [u64; 6] = [1, 5, 5, 30, 30, 400];

/// The first stream of the shards' own randomness.
pub(crate) const SHARD_STREAMS: u64 = 1000;

type Action = Box<dyn FnOnce()>;

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) config: Config,
    now: Cell<u64>,
    sequence: Cell<u64>,
    events: RefCell<BTreeMap<(u64, u64), Action>>,
    /// The time of the first of them; `u64::MAX` without any.
    first: Cell<u64>,
    streams: [RefCell<Rng>; STREAMS],
    trace: RefCell<Trace>,
    /// How often a point where the product may be delayed on purpose is, per million.
    buggify: Cell<u32>,
}

impl World {
    pub(crate) fn new(seed: u64, config: Config) -> World {
        World {
            seed,
            trace: RefCell::new(Trace::new(config.trace_lines_max, config.trace_lines_from)),
            config,
            buggify: Cell::new(0),
            now: Cell::new(0),
            sequence: Cell::new(0),
            events: RefCell::new(BTreeMap::new()),
            first: Cell::new(u64::MAX),
            streams: std::array::from_fn(|stream| RefCell::new(Rng::new(seed, stream as u64))),
        }
    }

    /// Virtual nanoseconds since the simulation began.
    pub(crate) fn now(&self) -> u64 {
        self.now.get()
    }

    pub(crate) fn advance_to(&self, time: u64) {
        assert!(time >= self.now.get(), "virtual time does not go back");
        self.now.set(time);
    }

    /// Draws from a stream. The generator must not be held while anything else runs.
    pub(crate) fn draw<T>(&self, stream: Stream, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.streams[stream as usize].borrow_mut())
    }

    pub(crate) fn set_buggify(&self, per_million: u32) {
        self.buggify.set(per_million);
    }

    /// For how long the product is delayed at a point of its own, if it is. Whether a point ever is depends on the seed.
    pub(crate) fn disturbance(&self, point: &'static str) -> Option<Duration> {
        let per_million = self.buggify.get();
        let is_chosen = || Rng::new(self.seed, hash_bytes(point.as_bytes())).below(POINTS_ONE_IN) == 0;
        if per_million == 0 || !is_chosen() {
            return None;
        }
        let delay = self.draw(Stream::Buggify, |rng| {
            let most = DELAYS_MILLIS[rng.below(DELAYS_MILLIS.len() as u64) as usize];
            rng.chance(per_million).then(|| Duration::from_micros(rng.below(most * 1_000)))
        });
        if let Some(delay) = delay {
            self.note("buggify", &[hash_bytes(point.as_bytes()), delay.as_micros() as u64]);
        }
        delay
    }

    pub(crate) fn note(&self, what: &'static str, words: &[u64]) {
        self.trace.borrow_mut().note(self.now.get(), what, words);
    }

    pub(crate) fn trace(&self) -> &RefCell<Trace> {
        &self.trace
    }

    /// Runs `action` when virtual time reaches `time`; equal times in the order of these calls.
    pub(crate) fn at(&self, time: u64, action: impl FnOnce() + 'static) {
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        let time = time.max(self.now.get());
        self.events.borrow_mut().insert((time, sequence), Box::new(action));
        self.first.set(self.first.get().min(time));
    }

    pub(crate) fn after(&self, delay: u64, action: impl FnOnce() + 'static) {
        self.at(self.now.get().saturating_add(delay), action);
    }

    pub(crate) fn next_event(&self) -> Option<u64> {
        (self.first.get() < u64::MAX).then(|| self.first.get())
    }

    /// Runs the events whose time has come.
    pub(crate) fn run_due(&self) {
        while self.first.get() <= self.now.get() {
            let due = {
                let mut events = self.events.borrow_mut();
                let due = events.pop_first();
                self.first.set(events.first_key_value().map_or(u64::MAX, |((time, _), _)| *time));
                due
            };
            let Some((_, action)) = due else { return };
            action();
        }
    }

    pub(crate) fn clear_events(&self) {
        let events = std::mem::take(&mut *self.events.borrow_mut());
        self.first.set(u64::MAX);
        drop(events);
    }
}
