//! Linearisability: whether operations that overlapped in time could have happened one after the other, each between its
//! beginning and its end, with the answers that were given.
//!
//! The search of Wing and Gong, with Lowe's memory of the places that were seen: depth first over which operation came
//! next, undone when it leads nowhere. An operation whose outcome is not known may have happened at any time since it began,
//! or up to a time that its history names, or never.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;

use stdx::HashSet;

/// The sequential specification of an object, one operation at a time.
pub trait Sequential {
    /// The state of the object.
    type State: Clone + Eq + Hash + Debug;
    /// A request.
    type Input: Clone + Debug;
    /// An answer.
    type Output: Clone + PartialEq + Debug;

    /// The initial state.
    fn initial(&self) -> Self::State;

    /// The next state, and the answer.
    fn apply(&self, state: &Self::State, input: &Self::Input) -> (Self::State, Self::Output);

    /// Whether an operation with this answer has changed nothing, in any state.
    fn only_reads(&self, input: &Self::Input, output: &Self::Output) -> bool {
        let _ = (input, output);
        false
    }
}

/// One operation of a history. Times are any numbers that rise: only their order counts.
#[derive(Clone, Debug)]
pub struct Operation<I, O> {
    /// When it was begun.
    pub invoked: u64,
    /// When its answer came. Of an operation without an answer: when it can no longer happen, if it has not;
    /// [`NEVER`] when it can for ever.
    pub ended: u64,
    /// The request.
    pub input: I,
    /// The answer; none when none came, or one that left it open whether it happened.
    pub output: Option<O>,
}

/// A time that does not come.
pub const NEVER: u64 = u64::MAX;

/// The result of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Linearity {
    /// The operations can have happened in this order; those left out never happened.
    Linear(Vec<usize>),
    /// They cannot: the longest order that was found, behind which none of the operations that had to come fits.
    Broken(Vec<usize>),
    /// Too many orders were looked at to say.
    Unknown,
}

/// Places that one search looks at before it gives up.
const PLACES_MAX: usize = 4_000_000;

/// A set of operations.
type Done = Box<[u64]>;

struct Search<'a, S: Sequential> {
    object: &'a S,
    history: &'a [Operation<S::Input, S::Output>],
    /// Operations in the order in which they were begun.
    by_begin: Vec<usize>,
    seen: HashSet<(Done, S::State)>,
    order: Vec<usize>,
    longest: Vec<usize>,
}

/// A node of the search: the operations that have happened, the state, and the operation to try next.
struct Place<T> {
    state: T,
    done: Done,
    next: usize,
    /// When the last begun of those that have happened began.
    begun: u64,
}

fn holds(done: &Done, at: usize) -> bool {
    done[at / 64] >> (at % 64) & 1 == 1
}

fn with(done: &Done, at: usize) -> Done {
    let mut more = done.clone();
    more[at / 64] |= 1 << (at % 64);
    more
}

/// Judges the history of one object.
pub fn check<S: Sequential>(object: &S, history: &[Operation<S::Input, S::Output>]) -> Linearity {
    let mut by_begin: Vec<usize> = (0..history.len()).collect();
    by_begin.sort_by_key(|at| history[*at].invoked);
    let search = Search {
        object,
        history,
        by_begin,
        seen: HashSet::default(),
        order: Vec::new(),
        longest: Vec::new(),
    };
    search.run()
}

/// Judges histories of objects that have nothing to do with each other; the first that is not linear, with its key.
///
/// # Errors
/// The key of the first history that is not linear, or too long to judge, with the finding.
pub fn check_each<K: Clone + Ord, S: Sequential>(
    object: &S,
    histories: &BTreeMap<K, Vec<Operation<S::Input, S::Output>>>,
) -> Result<(), (K, Linearity)> {
    for (key, history) in histories {
        let found = check(object, history);
        if !matches!(found, Linearity::Linear(_)) {
            return Err((key.clone(), found));
        }
    }
    Ok(())
}

impl<S: Sequential> Search<'_, S> {
    fn run(mut self) -> Linearity {
        let words = self.history.len().div_ceil(64);
        let first = Place { state: self.object.initial(), done: vec![0; words].into(), next: 0, begun: 0 };
        let mut places = vec![first];
        while let Some(place) = places.last_mut() {
            if self.is_complete(&place.done) {
                return Linearity::Linear(self.order);
            }
            let free = (place.next == 0).then(|| self.free(place)).flatten();
            let Some(at) = free.or_else(|| self.candidate(place)) else {
                places.pop();
                self.order.pop();
                continue;
            };
            place.next = if free.is_some() { self.by_begin.len() } else { at + 1 };
            let operation = self.by_begin[at];
            let (state, answer) = self.object.apply(&place.state, &self.history[operation].input);
            let fits = match &self.history[operation].output {
                Some(given) => *given == answer,
                // An operation without an answer that changed nothing need not have happened.
                None => state != place.state,
            };
            let done = with(&place.done, operation);
            if !fits || !self.seen.insert((done.clone(), state.clone())) {
                continue;
            }
            if self.seen.len() > PLACES_MAX {
                return Linearity::Unknown;
            }
            self.order.push(operation);
            if self.order.len() > self.longest.len() {
                self.longest.clone_from(&self.order);
            }
            let begun = place.begun.max(self.history[operation].invoked);
            places.push(Place { state, done, next: 0, begun });
        }
        Linearity::Broken(self.longest)
    }

    /// Whether every operation that was answered has happened.
    fn is_complete(&self, done: &Done) -> bool {
        self.history.iter().enumerate().all(|(at, one)| one.output.is_none() || holds(done, at))
    }

    /// An operation that may come now, gives the right answer and only reads: when there is an order with it further behind, there is
    /// one with it here, unless an operation that ended before its begin may still have happened. Nothing else need be tried then, so that
    /// readings do not multiply the places.
    fn free(&self, place: &Place<S::State>) -> Option<usize> {
        let lost = |at: &usize| self.history[*at].output.is_none() && !holds(&place.done, *at);
        let first_lost = (0..self.history.len()).filter(lost).map(|at| self.history[at].ended).min();
        let fits = |next: &usize| {
            let operation = &self.history[self.by_begin[*next]];
            let Some(given) = &operation.output else { return false };
            self.object.only_reads(&operation.input, given)
                && self.object.apply(&place.state, &operation.input).1 == *given
                && first_lost.is_none_or(|end| end >= operation.invoked)
        };
        self.candidates(place).find(fits)
    }

    /// The next operation in the order of beginnings that may come now.
    fn candidate(&self, place: &Place<S::State>) -> Option<usize> {
        self.candidates(place).next()
    }

    /// The operations in the order of beginnings that may come now: nothing that still has to come had ended before they began, and
    /// nothing that has happened began after they had ended.
    fn candidates(&self, place: &Place<S::State>) -> impl Iterator<Item = usize> {
        let open = |at: &usize| !holds(&place.done, *at);
        let due = self.by_begin.iter().filter(|at| open(at) && self.history[**at].output.is_some());
        let first_end = due.map(|at| self.history[*at].ended).min().unwrap_or(NEVER);
        (place.next..self.by_begin.len()).filter(move |next| {
            let at = self.by_begin[*next];
            let operation = &self.history[at];
            open(&at) && operation.invoked <= first_end && operation.ended >= place.begun
        })
    }
}

/// A register that is read, written, and written on a condition: the object that a partition with lightweight transactions
/// is to its clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct Register;

/// A request to a [`Register`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterInput {
    /// Reads the value.
    Read,
    /// Hold this.
    Write(Option<i64>),
    /// Hold `new` if it holds `expected`.
    Cas {
        /// The expected value.
        expected: Option<i64>,
        /// The new value.
        new: Option<i64>,
    },
}

/// An answer of a [`Register`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterOutput {
    /// It holds this.
    Value(Option<i64>),
    /// It was written.
    Written,
    /// Whether the condition held.
    Applied(bool),
    /// The condition did not hold, and this was found.
    Refused(Option<i64>),
}

impl Sequential for Register {
    type State = Option<i64>;
    type Input = RegisterInput;
    type Output = RegisterOutput;

    fn initial(&self) -> Option<i64> {
        None
    }

    fn apply(&self, state: &Option<i64>, input: &RegisterInput) -> (Option<i64>, RegisterOutput) {
        match input {
            RegisterInput::Read => (*state, RegisterOutput::Value(*state)),
            RegisterInput::Write(value) => (*value, RegisterOutput::Written),
            RegisterInput::Cas { expected, new } if state == expected => {
                (*new, RegisterOutput::Applied(true))
            }
            RegisterInput::Cas { .. } => (*state, RegisterOutput::Refused(*state)),
        }
    }

    fn only_reads(&self, _input: &RegisterInput, output: &RegisterOutput) -> bool {
        matches!(output, RegisterOutput::Value(_) | RegisterOutput::Refused(_))
    }
}
