//! Which heartbeats of a leader its learners need. A voter counts the time since the last one; a learner does not, so that one that has
//! everything is left alone for a while: in a large cluster nearly all nodes are learners.
//!
//! A heartbeat that is left out is no different from one that was lost, which the algorithm allows at any time.

use std::collections::BTreeMap;

/// A learner that was silent for this many ticks is not expected to answer every heartbeat.
const SILENT_TICKS: u64 = 100;

/// A leader's record of its learners' heartbeats. Times in ticks.
#[derive(Default)]
pub(crate) struct Learners {
    /// Whether learners are left alone at all.
    pub(crate) at_rest: bool,
    now: u64,
    /// The term in which this was noted.
    term: u64,
    each: BTreeMap<u64, Learner>,
}

struct Learner {
    sent: u64,
    heard: u64,
    /// It does not know the leader.
    asked: bool,
}

impl Learners {
    pub(crate) fn tick(&mut self) {
        self.now += 1;
    }

    /// In another term nothing counts that was noted before.
    pub(crate) fn set_term(&mut self, term: u64) {
        if self.term != term {
            self.term = term;
            self.each.clear();
        }
    }

    fn entry(&mut self, learner: u64) -> &mut Learner {
        let now = self.now;
        self.each.entry(learner).or_insert(Learner { sent: now, heard: now, asked: false })
    }

    /// A learner answered.
    pub(crate) fn heard(&mut self, learner: u64) {
        let now = self.now;
        let entry = self.entry(learner);
        (entry.heard, entry.asked) = (now, false);
    }

    /// A learner asks to hear the leader.
    pub(crate) fn asks(&mut self, learner: u64) {
        let now = self.now;
        let entry = self.entry(learner);
        (entry.heard, entry.asked) = (now, true);
    }

    /// Whether a heartbeat goes to a learner: always to one that lacks something and answers, every `rest` ticks to others.
    pub(crate) fn wants(&mut self, learner: u64, lacks: bool, rest: u64) -> bool {
        if !self.at_rest {
            return true;
        }
        let now = self.now;
        let entry = self.entry(learner);
        let wants = (lacks || entry.asked) && now - entry.heard <= SILENT_TICKS || now - entry.sent >= rest;
        if wants {
            entry.sent = now;
        }
        wants
    }

    /// Forgets nodes that are no learners.
    pub(crate) fn retain(&mut self, is_learner: impl Fn(u64) -> bool) {
        self.each.retain(|learner, _| is_learner(*learner));
    }
}
