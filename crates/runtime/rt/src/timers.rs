//! The armed timers of one shard: an ordered map from deadline to waker.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::task::Waker;

use crate::instant::Instant;

/// The armed timers. The sequence number preserves the order in which equal deadlines were armed.
#[derive(Default)]
pub(crate) struct Timers {
    armed: RefCell<BTreeMap<(Instant, u64), Waker>>,
    sequence: Cell<u64>,
    /// The deadline of the first of them: a simulator reads it of every shard at every step.
    first: Cell<Option<Instant>>,
}

impl Timers {
    pub(crate) fn arm(&self, deadline: Instant, waker: &Waker) -> u64 {
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        self.armed.borrow_mut().insert((deadline, sequence), waker.clone());
        self.note_armed(deadline);
        sequence
    }

    pub(crate) fn rearm(&self, deadline: Instant, sequence: u64, waker: &Waker) {
        let mut armed = self.armed.borrow_mut();
        let known = armed.entry((deadline, sequence)).or_insert_with(|| waker.clone());
        known.clone_from(waker);
        drop(armed);
        self.note_armed(deadline);
    }

    pub(crate) fn disarm(&self, deadline: Instant, sequence: u64) {
        let mut armed = self.armed.borrow_mut();
        let waker = armed.remove(&(deadline, sequence));
        if self.first.get() == Some(deadline) {
            self.first.set(first_of(&armed));
        }
        drop(armed);
        drop(waker);
    }

    fn note_armed(&self, deadline: Instant) {
        if self.first.get().is_none_or(|first| deadline < first) {
            self.first.set(Some(deadline));
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.first.get()
    }

    pub(crate) fn fire(&self, now: Instant) {
        while self.first.get().is_some_and(|first| first <= now) {
            let waker = {
                let mut armed = self.armed.borrow_mut();
                let fired = armed.pop_first();
                self.first.set(first_of(&armed));
                fired
            };
            if let Some((_, waker)) = waker {
                waker.wake();
            }
        }
    }

    pub(crate) fn clear(&self) {
        let armed = std::mem::take(&mut *self.armed.borrow_mut());
        self.first.set(None);
        drop(armed);
    }
}

fn first_of(armed: &BTreeMap<(Instant, u64), Waker>) -> Option<Instant> {
    armed.first_key_value().map(|((deadline, _), _)| *deadline)
}
