//! Room for answers, reserved before they are made: answers to a client that does not read stay bounded.
//!
//! The length of an answer is not known before. Each reserves a size that is typical of long ones until it is made, and more when it grows
//! beyond that; its real size is reserved until the client has read it. So as many answers are made concurrently as have room if they are long.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use rt::sync::{Notified, Notify};

use crate::admission::{Admission, Charge, Kind, Room, Usage};

/// The reservation for an answer before it is made, in bytes.
pub const ANSWER_BYTES: usize = 256 << 10;

/// The reservations of a client's answers.
pub(crate) struct Answers {
    admission: Rc<Admission>,
    usage: Rc<Usage>,
    turn: Rc<Turn>,
}

/// The queue of a connection's requests without room: one of them waits with those of other
/// connections, so that connections get room in turns, however many requests each has sent.
#[derive(Default)]
struct Turn {
    taken: Cell<bool>,
    freed: Notify,
}

impl Turn {
    fn free(&self) {
        self.taken.set(false);
        if self.freed.waiting() > 0 {
            self.freed.notify_one();
        }
    }
}

impl Answers {
    pub(crate) fn new(admission: &Rc<Admission>, usage: &Rc<Usage>) -> Self {
        Self { admission: Rc::clone(admission), usage: Rc::clone(usage), turn: Rc::default() }
    }

    /// Whether there is room for one more answer, and no other waits for room.
    pub(crate) fn have_room(&self) -> bool {
        !self.admission.is_waited_for()
            && !self.admission.is_overloaded(&self.usage, ANSWER_BYTES, Kind::Short)
    }
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answers")
    }
}

/// The room of one statement's answer; given back when dropped, once the answer is made.
#[derive(Default)]
pub struct AnswerBooking {
    /// Waits for its connection's turn.
    queued: Option<Notified>,
    /// Has the turn, and waits for room.
    waiting: Option<(Room, Rc<Turn>)>,
    booked: Option<Charge>,
}

impl AnswerBooking {
    /// Books so many bytes in all, whether or not there is room for them, unless more is booked: the answer that takes them is not stopped in
    /// the middle, and later ones wait. Nothing if no room was asked for.
    pub fn grow(&mut self, bytes: usize) {
        if let Some(booked) = &mut self.booked {
            booked.grow(bytes);
        }
    }

    /// Ready when room is booked for an answer of the client whose reservations these are: at once, or when those before it have
    /// their room.
    pub(crate) fn poll(&mut self, answers: &Answers, cx: &mut Context<'_>) -> Poll<()> {
        let Answers { admission, usage, turn } = answers;
        while self.booked.is_none() {
            if let Some((room, _)) = &mut self.waiting {
                self.booked = Some(ready!(Pin::new(room).poll(cx)));
                self.waiting = None;
                turn.free();
                continue;
            }
            if let Some(queued) = &mut self.queued {
                ready!(Pin::new(queued).poll(cx));
                self.queued = None;
            } else if answers.have_room() {
                self.booked = Some(admission.charge(usage, ANSWER_BYTES, Kind::Short));
                continue;
            }
            if turn.taken.replace(true) {
                self.queued = Some(turn.freed.notified());
            } else {
                let room = admission.wait(usage, ANSWER_BYTES, Kind::Short);
                self.waiting = Some((room, Rc::clone(turn)));
            }
        }
        Poll::Ready(())
    }
}

impl Drop for AnswerBooking {
    fn drop(&mut self) {
        if let Some((room, turn)) = self.waiting.take() {
            drop(room);
            turn.free();
        }
    }
}
