//! Registers that clients write on conditions and read serially: the history of each, and the values that a read at QUORUM may show.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use model::linear::{NEVER, Operation, RegisterInput, RegisterOutput};
use rt_sim::Rng;

/// The registers' table.
pub(crate) const TABLE: &str = "k0.registers";
/// Registers in use at once.
const KEYS: u64 = 3;
/// Operations on a register, after which another takes its place: the checker's search grows with them.
const OPERATIONS_MAX: usize = 60;
/// The same for operations without an answer.
const OPEN_MAX: usize = 8;

type History = Vec<Operation<RegisterInput, RegisterOutput>>;

/// The clients' operations on registers.
#[derive(Default)]
pub(crate) struct Registers {
    /// Which register each of those in use is now.
    current: [u64; KEYS as usize],
    pub(crate) next_value: i64,
    pub(crate) histories: BTreeMap<u64, History>,
    /// Operations under way, whose places in the histories are taken.
    pub(crate) last_seen: BTreeMap<u64, Option<i64>>,
    /// Operations whose commit every read at QUORUM has to see.
    strong: BTreeSet<(u64, usize)>,
    /// Values that were replaced by such a write, and when that was acknowledged.
    replaced: BTreeMap<(u64, i64), u64>,
    /// A node lost power then, and the commits that it had acknowledged a moment before.
    doubted_upto: Option<u64>,
}

/// Shared by the clients.
pub(crate) type SharedRegisters = Rc<RefCell<Registers>>;

/// The operation of a client: its register, and its place in the history.
pub(crate) struct Begun {
    key: u64,
    at: usize,
    input: RegisterInput,
    /// Its commit level has a replica in common with every read at QUORUM.
    is_strong: bool,
}

impl Registers {
    /// None is in use yet.
    pub(crate) fn new() -> Self {
        Self { current: std::array::from_fn(|at| at as u64), ..Self::default() }
    }

    /// A register that has room for one more operation.
    pub(crate) fn key(&mut self, rng: &mut Rng) -> u64 {
        let slot = rng.below(KEYS) as usize;
        let history = self.histories.entry(self.current[slot]).or_default();
        let open = history.iter().filter(|one| one.output.is_none()).count();
        if history.len() >= OPERATIONS_MAX || open >= OPEN_MAX {
            self.current[slot] += KEYS;
        }
        self.current[slot]
    }

    /// An operation is about to be sent.
    pub(crate) fn begin(&mut self, key: u64, input: RegisterInput, is_strong: bool, now: u64) -> Begun {
        let history = self.histories.entry(key).or_default();
        history.push(Operation { invoked: now, ended: NEVER, input: input.clone(), output: None });
        let at = history.len() - 1;
        if is_strong {
            self.strong.insert((key, at));
        }
        Begun { key, at, input, is_strong }
    }

    /// It is answered.
    pub(crate) fn end(&mut self, begun: &Begun, output: RegisterOutput, now: u64) {
        if let (RegisterInput::Cas { expected: Some(old), .. }, RegisterOutput::Applied(true)) =
            (&begun.input, &output)
            && begun.is_strong
            && !self.is_doubted(begun)
        {
            self.replaced.entry((begun.key, *old)).or_insert(now);
        }
        if self.is_doubted(begun) {
            self.strong.remove(&(begun.key, begun.at));
        }
        match (&output, &begun.input) {
            (RegisterOutput::Value(value) | RegisterOutput::Refused(value), _) => {
                self.last_seen.insert(begun.key, *value);
            }
            (RegisterOutput::Applied(true), RegisterInput::Cas { new, .. }) => {
                self.last_seen.insert(begun.key, *new);
            }
            _ => {}
        }
        if let Some(one) = self.histories.get_mut(&begun.key).and_then(|all| all.get_mut(begun.at)) {
            (one.ended, one.output) = (now, Some(output));
        }
    }

    /// It was under way when a node lost power that may have forgotten its commit.
    fn is_doubted(&self, begun: &Begun) -> bool {
        let one = self.histories.get(&begun.key).and_then(|all| all.get(begun.at));
        one.is_some_and(|one| Some(one.invoked) <= self.doubted_upto)
    }

    /// A node lost power: readings at QUORUM may miss commits that were acknowledged at or after a time. Votes survive, so that the
    /// order of the transactions and of serial readings holds.
    pub(crate) fn doubt_since(&mut self, since: u64, now: u64) {
        self.doubted_upto = Some(now);
        let histories = &self.histories;
        let ended =
            |key: &u64, at: &usize| histories.get(key).and_then(|all| all.get(*at)).map(|one| one.ended);
        self.strong.retain(|(key, at)| ended(key, at).is_some_and(|ended| ended < since || ended == NEVER));
        self.replaced.retain(|_, at| *at < since);
    }

    /// Why a QUORUM read sent at `since` may not show this value; none when some order of the history allows it.
    pub(crate) fn refute(&self, key: u64, value: Option<i64>, since: u64) -> Option<String> {
        let history = self.histories.get(&key).map_or(&[][..], Vec::as_slice);
        let writes = |new: Option<i64>| {
            history.iter().filter(move |one| {
                let is_refused =
                    matches!(one.output, Some(RegisterOutput::Refused(_) | RegisterOutput::Applied(false)));
                matches!(&one.input, RegisterInput::Cas { new: written, .. } if *written == new)
                    && !is_refused
            })
        };
        let Some(value) = value else {
            let (_, written) = history.iter().enumerate().find(|(at, one)| {
                let applied = matches!(one.output, Some(RegisterOutput::Applied(true)));
                let inserts = matches!(one.input, RegisterInput::Cas { new: Some(_), .. });
                let is_seen = self.strong.contains(&(key, *at)) && one.ended < since;
                applied && inserts && is_seen && writes(None).all(|gone| gone.ended < one.invoked)
            })?;
            return Some(format!(
                "shows nothing, after {:?} was acknowledged at {} ns and with no deletion since",
                written.input, written.ended
            ));
        };
        if let Some(at) = self.replaced.get(&(key, value)).filter(|at| **at < since) {
            return Some(format!("shows {value}, which was replaced by a write acknowledged at {at} ns"));
        }
        writes(Some(value)).next().is_none().then(|| format!("shows {value}, which nobody wrote"))
    }

    /// It was refused before anything was asked of a replica.
    pub(crate) fn undo(&mut self, begun: &Begun) {
        if let Some(one) = self.histories.get_mut(&begun.key).and_then(|all| all.get_mut(begun.at)) {
            // A reading without an answer says nothing.
            one.input = RegisterInput::Read;
        }
    }

    /// A judged history is not searched again: new registers take over.
    pub(crate) fn retire(&mut self) {
        self.histories.clear();
        self.strong.clear();
        self.current.iter_mut().for_each(|key| *key += KEYS);
    }
}

/// Creates the table.
pub(crate) fn create_text() -> String {
    format!("CREATE TABLE {TABLE} (k bigint PRIMARY KEY, v bigint)")
}
