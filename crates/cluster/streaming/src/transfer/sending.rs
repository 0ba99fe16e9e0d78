//! The sending side of a transfer: chunks in flight, the acknowledged position, the next chunk. Pure.

use std::collections::VecDeque;

use bytes::Bytes;

use super::codec::OpenAnswer;
use super::plan::{Plan, Position};

struct UnderWay {
    end: Position,
    bytes: usize,
}

/// One attempt at a transfer, from opening to its end or the next cut.
pub struct Sending {
    next: Position,
    arrived: Position,
    under_way: VecDeque<UnderWay>,
    bytes_under_way: usize,
    window: usize,
}

impl Sending {
    /// The transfer resumes where the receiver says. An answer that the plan does not know is none.
    ///
    /// # Errors
    /// A text for the log when the receiver's position is none of the plan.
    pub fn new(plan: &Plan, answer: &OpenAnswer) -> Result<Sending, &'static str> {
        if !plan.contains(&answer.resume) {
            return Err("the receiver is at a position that the transfer does not have");
        }
        Ok(Sending {
            next: answer.resume.clone(),
            arrived: answer.resume.clone(),
            under_way: VecDeque::new(),
            bytes_under_way: 0,
            window: answer.window as usize,
        })
    }

    /// The position to read next; none when everything was sent.
    pub fn next(&self, plan: &Plan) -> Option<&Position> {
        (self.next.place() < plan.end().place()).then_some(&self.next)
    }

    /// Whether a chunk of so many bytes may be sent now. One may always be under way, however small the window.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.under_way.is_empty() || self.bytes_under_way + bytes <= self.window
    }

    /// A chunk was sent.
    pub fn sent(&mut self, plan: &Plan, bytes: usize, last: bool, cursor: Bytes) {
        self.next = plan.after(&self.next, bytes as u64, last, cursor);
        self.under_way.push_back(UnderWay { end: self.next.clone(), bytes });
        self.bytes_under_way += bytes;
    }

    /// The receiver has said how far it is; bytes that have arrived since it did so last.
    pub fn arrived(&mut self, answer: &OpenAnswer) -> u64 {
        self.window = answer.window as usize;
        let mut bytes = 0;
        while let Some(first) = self.under_way.front()
            && first.end.place() <= answer.resume.place()
        {
            bytes += first.bytes;
            self.bytes_under_way -= first.bytes;
            self.arrived = first.end.clone();
            self.under_way.pop_front();
        }
        bytes as u64
    }

    /// How far the receiver is, as far as is known.
    pub fn position(&self) -> &Position {
        &self.arrived
    }

    /// Bytes that are under way.
    pub fn bytes_under_way(&self) -> usize {
        self.bytes_under_way
    }
}
