//! The calls of one connection that wait for an answer.
//!
//! A stream number is used once: its upper half counts the calls, its lower half is the index of the call. A late
//! answer therefore never meets another call.

use std::task::{Poll, Waker};

use bytes::Bytes;
use rt::Instant;

use crate::{RpcError, Verb};

type Outcome = Result<Bytes, RpcError>;

enum State {
    Free,
    Waiting(Option<Waker>),
    Done(Outcome),
}

struct Slot {
    stream: u64,
    verb: Verb,
    deadline: Instant,
    state: State,
}

/// Calls by stream number.
#[derive(Default)]
pub(crate) struct Calls {
    slots: Vec<Slot>,
    free: Vec<u32>,
    serial: u32,
    waiting: usize,
    /// No waiting call has a deadline before this.
    earliest: Option<Instant>,
}

impl Calls {
    /// Calls without an outcome.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Before this no call is past its deadline.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.earliest
    }

    /// A new call and its stream number.
    pub(crate) fn begin(&mut self, verb: Verb, deadline: Instant) -> u64 {
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.slots.push(Slot { stream: 0, verb, deadline, state: State::Free });
                u32::try_from(self.slots.len() - 1).expect("the number of calls is bounded")
            }
        };
        self.serial = self.serial.wrapping_add(1);
        let stream = u64::from(self.serial) << 32 | u64::from(place);
        if let Some(slot) = self.slots.get_mut(place as usize) {
            *slot = Slot { stream, verb, deadline, state: State::Waiting(None) };
        }
        self.waiting += 1;
        self.earliest = Some(self.earliest.map_or(deadline, |earliest| earliest.min(deadline)));
        stream
    }

    fn slot(&mut self, stream: u64) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(stream as u32 as usize)?;
        (slot.stream == stream && !matches!(slot.state, State::Free)).then_some(slot)
    }

    fn release(&mut self, stream: u64) {
        self.free.push(stream as u32);
    }

    /// The outcome of a call, once; until then the waker is stored.
    pub(crate) fn poll(&mut self, stream: u64, waker: &Waker) -> Poll<Outcome> {
        let Some(slot) = self.slot(stream) else { return Poll::Ready(Err(RpcError::Lost)) };
        match &mut slot.state {
            State::Waiting(Some(known)) => {
                known.clone_from(waker);
                return Poll::Pending;
            }
            State::Waiting(none) => {
                *none = Some(waker.clone());
                return Poll::Pending;
            }
            State::Done(_) | State::Free => {}
        }
        let state = std::mem::replace(&mut slot.state, State::Free);
        self.release(stream);
        match state {
            State::Done(outcome) => Poll::Ready(outcome),
            State::Free | State::Waiting(_) => Poll::Ready(Err(RpcError::Lost)),
        }
    }

    /// Ends a call; its verb when it was waited for.
    pub(crate) fn finish(&mut self, stream: u64, outcome: Outcome) -> Option<Verb> {
        let slot = self.slot(stream)?;
        if !matches!(slot.state, State::Waiting(_)) {
            return None;
        }
        let verb = slot.verb;
        let State::Waiting(waker) = std::mem::replace(&mut slot.state, State::Done(outcome)) else {
            return None;
        };
        self.waiting -= 1;
        if self.waiting == 0 {
            self.earliest = None;
        }
        if let Some(waker) = waker {
            waker.wake();
        }
        Some(verb)
    }

    /// Forgets a call that nobody waits for any more.
    pub(crate) fn abandon(&mut self, stream: u64) {
        let Some(slot) = self.slot(stream) else { return };
        if matches!(std::mem::replace(&mut slot.state, State::Free), State::Waiting(_)) {
            self.waiting -= 1;
            if self.waiting == 0 {
                self.earliest = None;
            }
        }
        self.release(stream);
    }

    fn streams(&self, which: impl Fn(&Slot) -> bool) -> Vec<u64> {
        let waiting = |slot: &&Slot| matches!(slot.state, State::Waiting(_)) && which(slot);
        self.slots.iter().filter(waiting).map(|slot| slot.stream).collect()
    }

    /// Ends the calls whose deadline is past; `expired` gets the verb of each.
    pub(crate) fn expire(&mut self, now: Instant, mut expired: impl FnMut(Verb)) {
        if self.earliest.is_none_or(|earliest| now < earliest) {
            return;
        }
        for stream in self.streams(|slot| slot.deadline <= now) {
            if let Some(verb) = self.finish(stream, Err(RpcError::TimedOut)) {
                expired(verb);
            }
        }
        let waiting = self.slots.iter().filter(|slot| matches!(slot.state, State::Waiting(_)));
        self.earliest = waiting.map(|slot| slot.deadline).min();
    }

    /// Ends all calls.
    pub(crate) fn fail_all(&mut self, error: &RpcError) {
        for stream in self.streams(|_| true) {
            self.finish(stream, Err(error.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_late_answer_meets_no_other_call() {
        let mut calls = Calls::default();
        let first = calls.begin(Verb::Read, at(10));
        calls.abandon(first);
        let second = calls.begin(Verb::Apply, at(20));
        assert_eq!(first as u32, second as u32, "the place is used again");
        assert_eq!(calls.finish(first, Ok(Bytes::new())), None);
        assert!(calls.poll(second, Waker::noop()).is_pending());
        assert_eq!(calls.finish(second, Ok(Bytes::from_static(b"x"))), Some(Verb::Apply));
        assert_eq!(calls.finish(second, Err(RpcError::Lost)), None, "a call ends once");
        assert_eq!(calls.poll(second, Waker::noop()), Poll::Ready(Ok(Bytes::from_static(b"x"))));
        assert_eq!(calls.waiting(), 0);
        for stream in [u64::MAX, 0, 1 << 32] {
            assert_eq!(calls.finish(stream, Ok(Bytes::new())), None, "no peer can name a missing call");
        }
    }

    #[test]
    fn the_past_expire_and_the_rest_wait() {
        let mut calls = Calls::default();
        let streams: Vec<u64> = [30, 10, 20].map(|deadline| calls.begin(Verb::Read, at(deadline))).into();
        assert_eq!(calls.earliest(), Some(at(10)));
        let mut expired = 0;
        calls.expire(at(9), |_| expired += 1);
        assert_eq!(expired, 0);
        calls.expire(at(20), |_| expired += 1);
        assert_eq!((expired, calls.earliest(), calls.waiting()), (2, Some(at(30)), 1));
        assert_eq!(calls.poll(streams[1], Waker::noop()), Poll::Ready(Err(RpcError::TimedOut)));
        calls.fail_all(&RpcError::Stopped);
        assert_eq!(calls.poll(streams[0], Waker::noop()), Poll::Ready(Err(RpcError::Stopped)));
        assert_eq!((calls.waiting(), calls.earliest()), (0, None));
    }
}
