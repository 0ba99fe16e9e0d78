//! The history of one partition, and whether it explains the readings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use crate::row::Seconds;
use crate::{ColumnId, Effect, Place, RowState, Scalar, SeenRow, Shape, Value, Write};

/// Choices of unknown writes that are tried for one observation.
const TRIES_MAX: u32 = 20_000;
/// A request without an answer is carried out so much later at most: a paused process may read it when it resumes, and
/// simulated faults last 200 s, one after the other.
const UNDER_WAY_SECONDS: i64 = 460;

/// The knowledge about a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has happened: it was acknowledged, or its effect was seen after a restart.
    Certain,
    /// The request is under way.
    UnderWay,
    /// The answer was an error that leaves it open, or none came.
    Unknown(Unknown),
}

/// Why a write is not certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// It was never acknowledged.
    Unanswered,
    /// It was acknowledged, and a power failure may have taken it, with all that was begun after its acknowledgement.
    Forgotten,
}

/// A write in the history of a partition.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The write.
    pub write: Rc<Write>,
    /// When its request was sent, in nanoseconds.
    pub begun: u64,
    /// When it was acknowledged.
    pub ended: Option<u64>,
    /// The knowledge about it.
    pub state: State,
}

impl Entry {
    /// A write that was under way ends when the servers' clocks show this; a clock may have gone back meanwhile.
    fn widen(&mut self, end: Seconds, more: i64) {
        let clock = &mut Rc::make_mut(&mut self.write).clock;
        *clock = (clock.0.min(end.0), (clock.1 - UNDER_WAY_SECONDS).max(end.1) + more);
    }
}

/// When something was seen.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// When the read was sent: it has to see writes acknowledged before.
    pub since: u64,
    /// The server's clock between the request and the answer.
    pub now: Seconds,
    /// The latest time that the server's clock has ever shown.
    pub latest: i64,
}

/// Which unknown writes an observation proves, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explained {
    /// The place of the reading.
    pub place: Place,
    /// They have happened.
    pub happened: BTreeSet<u64>,
    /// They have not.
    pub not_happened: BTreeSet<u64>,
}

/// Whether an observation is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is, and this follows.
    Right(Explained),
    /// Nothing explains it.
    Wrong,
    /// There were too many unknown writes to tell.
    TooManyUnknown,
}

/// An observation that nothing explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The row, none for the static row.
    pub place: Place,
    /// The violation, in words, with the history of the row.
    pub text: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The history of one partition.
#[derive(Clone, Debug, Default)]
pub struct Partition {
    entries: Vec<Entry>,
    /// Open writes that readers have seen at a place, and when the first of them had its answer: later readers must see them there.
    seen: BTreeMap<Place, BTreeMap<u64, u64>>,
}

/// The search for a choice of the unknown writes.
struct Search<'a> {
    entries: Vec<(&'a Entry, bool)>,
    place: &'a Place,
    fits: &'a dyn Fn(&RowState) -> bool,
    tries: u32,
    chosen: Vec<bool>,
    solutions: u32,
    /// Per entry: in how many solutions it was chosen.
    chosen_in: Vec<u32>,
}

impl Search<'_> {
    /// Continues with entry `at`; false when there were too many tries.
    fn run(&mut self, mut at: usize, mut state: RowState) -> bool {
        while at < self.entries.len() && self.entries[at].1 {
            state.apply(&self.entries[at].0.write, self.place);
            self.chosen[at] = true;
            at += 1;
        }
        if at == self.entries.len() {
            self.tries += 1;
            if (self.fits)(&state) {
                self.solutions += 1;
                for (count, chosen) in self.chosen_in.iter_mut().zip(&self.chosen) {
                    *count += u32::from(*chosen);
                }
            }
            return self.tries < TRIES_MAX;
        }
        self.chosen[at] = false;
        if !self.run(at + 1, state.clone()) {
            return false;
        }
        if self.may_choose(at) {
            self.chosen[at] = true;
            state.apply(&self.entries[at].0.write, self.place);
            return self.run(at + 1, state);
        }
        true
    }

    /// A write cannot have survived when one was forgotten that had been acknowledged before it was begun.
    fn may_choose(&self, at: usize) -> bool {
        let begun = self.entries[at].0.begun;
        let earlier = self.entries[..at].iter().zip(&self.chosen);
        !earlier.into_iter().any(|((entry, _), chosen)| {
            let forgotten = entry.state == State::Unknown(Unknown::Forgotten);
            forgotten && !chosen && entry.ended.is_some_and(|ended| ended < begun)
        })
    }
}

impl Partition {
    /// Adds a write that is about to be sent, with the servers' clocks of now.
    pub fn begin(&mut self, mut write: Rc<Write>, begun: u64) {
        Rc::make_mut(&mut write).clock.1 += UNDER_WAY_SECONDS;
        self.entries.push(Entry { write, begun, ended: None, state: State::UnderWay });
    }

    /// All writes, in the order in which they were begun.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn entry(&mut self, id: u64) -> Option<&mut Entry> {
        self.entries.iter_mut().rev().find(|entry| entry.write.id == id)
    }

    /// The write was acknowledged when the servers' clocks showed `clock`.
    pub fn acknowledge(&mut self, id: u64, ended: u64, clock: Seconds) {
        if let Some(entry) = self.entry(id) {
            entry.widen(clock, 0);
            entry.ended = Some(ended);
            entry.state = State::Certain;
        }
    }

    /// The write was refused: it has no effect.
    pub fn refuse(&mut self, id: u64) {
        self.entries.retain(|entry| entry.write.id != id);
    }

    /// The write's outcome is not known; the servers' clocks show `clock`. It may still be on its way.
    pub fn unknown(&mut self, id: u64, clock: Seconds) {
        if let Some(entry) = self.entry(id) {
            entry.widen(clock, UNDER_WAY_SECONDS);
            entry.state = State::Unknown(Unknown::Unanswered);
        }
    }

    /// Power was lost: writes acknowledged at or after `since` may be gone.
    pub fn forget_since(&mut self, since: u64) {
        for entry in &mut self.entries {
            if entry.state == State::Certain && entry.ended.is_some_and(|ended| ended >= since) {
                entry.state = State::Unknown(Unknown::Forgotten);
            }
        }
    }

    /// One of several nodes lost power: writes acknowledged at or after `since` may be gone from it, and so be seen by some readers
    /// and not by others. Unlike on a single node, writes acknowledged later may be there all the same.
    pub fn doubt_since(&mut self, since: u64) {
        for entry in &mut self.entries {
            if entry.state == State::Certain && entry.ended.is_some_and(|ended| ended >= since) {
                entry.ended = None;
                entry.state = State::Unknown(Unknown::Unanswered);
            }
        }
    }

    /// When a write was sent.
    pub fn begun(&self, id: u64) -> Option<u64> {
        self.entries.iter().rev().find(|entry| entry.write.id == id).map(|entry| entry.begun)
    }

    /// The table was truncated for certain: earlier certain writes are gone.
    pub fn truncate(&mut self) {
        self.entries.retain(|entry| entry.state != State::Certain);
    }

    /// A reader whose answer came at `ended` has proved that these writes happened at a place, in all of its columns: a later
    /// asks later must see them there too.
    pub fn note_seen(&mut self, place: &Place, happened: &BTreeSet<u64>, ended: u64) {
        if happened.is_empty() {
            return;
        }
        let seen = self.seen.entry(place.clone()).or_default();
        for id in happened {
            seen.entry(*id).or_insert(ended);
        }
    }

    /// Readings bind later reads no longer.
    pub fn forget_seen(&mut self) {
        self.seen.clear();
    }

    /// Writes that are not known to have happened or not.
    pub fn unknown_count(&self) -> usize {
        self.entries.iter().filter(|entry| entry.state != State::Certain).count()
    }

    /// Every row that some write names.
    pub fn keys(&self) -> BTreeSet<&Vec<Scalar>> {
        let effects = self.entries.iter().flat_map(|entry| &entry.write.effects);
        effects
            .filter_map(|effect| match effect {
                Effect::Mark(key, _) => Some(key),
                Effect::Cell { place, .. } | Effect::Element { place, .. } | Effect::Add { place, .. } => {
                    place.as_ref()
                }
                _ => None,
            })
            .collect()
    }

    /// Whether each value that was read was written at some time: the only requirement for a reader that may
    /// be shown anything that once was.
    pub fn was_written(&self, place: &Place, seen: &SeenRow) -> bool {
        let (SeenRow::Present(values) | SeenRow::Static(values)) = seen else { return true };
        let effects = || self.entries.iter().flat_map(|entry| &entry.write.effects);
        let cell = |id: &ColumnId, shown: &Scalar| {
            effects().any(|effect| match effect {
                Effect::Cell { place: at, column, value, .. } => {
                    at == place && column == id && value.as_ref() == Some(shown)
                }
                // Any part of the increments may be there.
                Effect::Add { place: at, column, .. } => at == place && column == id,
                _ => false,
            })
        };
        let element = |id: &ColumnId, key: &Scalar, shown: &Scalar| {
            effects().any(|effect| match effect {
                Effect::Element { place: at, column, path, value, .. } => {
                    at == place && column == id && path == key && value.as_ref() == Some(shown)
                }
                _ => false,
            })
        };
        values.iter().all(|(id, value)| match value {
            Value::Scalar(shown) => cell(id, shown),
            other => crate::write::elements(other).iter().all(|(key, shown)| element(id, key, shown)),
        })
    }

    /// Whether some choice of the unknown writes explains the reading of a place.
    pub fn judge(
        &self,
        shape: &Shape,
        place: &Place,
        seen: &SeenRow,
        columns: &[ColumnId],
        clock: Clock,
    ) -> Verdict {
        let fits = |state: &RowState| state.may_show(shape, seen, columns, clock.now, clock.latest);
        let seen_before = self.seen.get(place);
        let is_certain = |entry: &Entry| {
            let was_seen = || seen_before.and_then(|seen| seen.get(&entry.write.id));
            entry.state == State::Certain && entry.ended.is_some_and(|ended| ended <= clock.since)
                || was_seen().is_some_and(|ended| *ended <= clock.since)
        };
        let entries: Vec<(&Entry, bool)> = self
            .entries
            .iter()
            .filter(|entry| entry.write.touches(place))
            .map(|entry| (entry, is_certain(entry)))
            .collect();
        let count = entries.len();
        let mut search = Search {
            entries,
            place,
            fits: &fits,
            tries: 0,
            chosen: vec![false; count],
            solutions: 0,
            chosen_in: vec![0; count],
        };
        let complete = search.run(0, RowState::default());
        if !complete {
            return if search.solutions > 0 {
                Verdict::Right(Explained { place: place.clone(), ..Explained::default() })
            } else {
                Verdict::TooManyUnknown
            };
        }
        if search.solutions == 0 {
            return Verdict::Wrong;
        }
        let mut explained = Explained { place: place.clone(), ..Explained::default() };
        for ((entry, certain), chosen_in) in search.entries.iter().zip(&search.chosen_in) {
            if *certain {
                continue;
            }
            if *chosen_in == search.solutions {
                explained.happened.insert(entry.write.id);
            } else if *chosen_in == 0 {
                explained.not_happened.insert(entry.write.id);
            }
        }
        Verdict::Right(explained)
    }

    /// Adds the proofs of a reading of the whole partition, while nothing was under way. A write that is proved
    /// and refuted at once was there in part.
    ///
    /// # Errors
    /// A [`Mismatch`] when the proofs show and exclude the same write.
    pub fn settle(&mut self, proofs: &[Explained], now: u64) -> Result<(), Mismatch> {
        let happened: BTreeSet<u64> =
            proofs.iter().flat_map(|proof| proof.happened.iter().copied()).collect();
        let not: BTreeSet<u64> = proofs.iter().flat_map(|proof| proof.not_happened.iter().copied()).collect();
        if let Some(id) = happened.intersection(&not).next() {
            let write = self.entries.iter().find(|entry| entry.write.id == *id).map(|entry| &entry.write);
            let text = write.map_or_else(String::new, |write| write.to_string());
            return Err(Mismatch { place: None, text: format!("a write is there only in part: {text}") });
        }
        self.entries.retain(|entry| !not.contains(&entry.write.id) || entry.state == State::Certain);
        for entry in &mut self.entries {
            if happened.contains(&entry.write.id) && entry.state != State::Certain {
                entry.state = State::Certain;
                entry.ended = Some(now);
            } else if entry.state == State::Unknown(Unknown::Forgotten) {
                // An unknown write says nothing of writes of the node's next process.
                entry.state = State::Unknown(Unknown::Unanswered);
            }
        }
        Ok(())
    }

    /// The writes that concern a place, one a line, for reports.
    pub fn history(&self, place: &Place) -> String {
        let mut text = String::new();
        for entry in self.entries.iter().filter(|entry| entry.write.touches(place)) {
            let state = match entry.state {
                State::Certain => "acknowledged",
                State::UnderWay => "under way",
                State::Unknown(Unknown::Unanswered) => "outcome unknown",
                State::Unknown(Unknown::Forgotten) => "acknowledged, but not yet durable when power was lost",
            };
            let ended = entry.ended.map_or_else(String::new, |ended| format!("–{}", time(ended)));
            text.push_str(&format!("    {}{ended} {state}: {}\n", time(entry.begun), entry.write));
        }
        text
    }
}

/// Virtual time as the trace writes it.
fn time(nanos: u64) -> String {
    format!("{}.{:06}", nanos / 1_000_000_000, nanos % 1_000_000_000 / 1_000)
}
