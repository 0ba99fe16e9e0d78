//! A table of the DynamoDB API: the histories of its items. Some are numbers, written and read one by one: for each there has to be an order of all
//! requests. The others are lists to which transactions over several items append values that no other appends: there has to be one order
//! of all transactions and of all requests to one list.
//!
//! Each item belongs to one datacenter, its home: writes of the same item in several are ordered by their timestamps alone, and transactions of several
//! are isolated from the writes of their own. Clients of another datacenter may read it: they see a list as it was at any time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use model::append::{Ending, Step, Transaction};
use model::item::{ItemInput, ItemOutput, NumberItem};
use model::linear::{NEVER, Operation, Sequential};
use rt_sim::Rng;

/// The table.
pub(crate) const TABLE: &str = "items";
/// Numbers in use at once in each datacenter.
const NUMBERS: u64 = 3;
/// Lists in use at once in each datacenter.
const LISTS: u64 = 4;
/// Operations on a number, after which another takes its place: the checker's search grows with them.
const OPERATIONS_MAX: usize = 60;
/// The same for operations without an answer.
const OPEN_MAX: usize = 6;
/// Values of a list, after which another takes its place: its readings grow with them.
const VALUES_MAX: usize = 30;
/// Between two values that are written: numbers grow by one now and then.
pub(crate) const VALUE_STEP: i64 = 100;

type Op = Operation<ItemInput, ItemOutput>;

/// An item of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ItemKey {
    Number(u64),
    List(u64),
}

impl ItemKey {
    /// The value of its key attribute.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Number(key) => format!("n{key}"),
            Self::List(key) => format!("l{key}"),
        }
    }
}

/// The clients' operations on the items of the table.
#[derive(Default)]
pub(crate) struct Items {
    /// Histories of the numbers.
    pub(crate) numbers: BTreeMap<u64, Vec<Op>>,
    /// All transactions and requests to lists.
    pub(crate) lists: Vec<Transaction>,
    /// How many values each list has been given.
    given: BTreeMap<u64, usize>,
    /// The longest reading of each list.
    known: BTreeMap<u64, Vec<i64>>,
    /// The number in the last answer about each.
    last_seen: BTreeMap<u64, Option<i64>>,
    /// Datacenters that have items of their own.
    homes: u64,
    /// The item of each place, home by home.
    places: Vec<u64>,
    list_places: Vec<u64>,
    next_value: i64,
}

/// Shared by the clients and the checkers.
pub(crate) type SharedItems = Rc<RefCell<Items>>;

/// An operation on a number: its place in the history.
#[derive(Clone, Copy)]
pub(crate) struct Begun {
    key: u64,
    at: usize,
}

impl Items {
    /// None is in use yet, in so many datacenters.
    pub(crate) fn new(homes: u64) -> Self {
        Self {
            homes,
            places: (0..NUMBERS * homes).collect(),
            list_places: (0..LISTS * homes).collect(),
            ..Self::default()
        }
    }

    /// Datacenters that have items of their own.
    pub(crate) fn homes(&self) -> usize {
        self.homes as usize
    }

    /// The datacenter of an item. A place keeps its remainder.
    pub(crate) fn home(&self, key: ItemKey) -> usize {
        let (key, places) = match key {
            ItemKey::Number(key) => (key, NUMBERS),
            ItemKey::List(key) => (key, LISTS),
        };
        (key % (places * self.homes) / places) as usize
    }

    /// A value that nobody has written.
    pub(crate) fn value(&mut self) -> i64 {
        self.next_value += VALUE_STEP;
        self.next_value
    }

    /// A number of this home that has room for one more operation.
    pub(crate) fn number(&mut self, rng: &mut Rng, home: usize) -> u64 {
        let place = &mut self.places[home * NUMBERS as usize + rng.below(NUMBERS) as usize];
        let history = self.numbers.entry(*place).or_default();
        let open = history.iter().filter(|one| one.output.is_none()).count();
        if history.len() >= OPERATIONS_MAX || open >= OPEN_MAX {
            *place += NUMBERS * self.homes;
        }
        *place
    }

    /// So many lists of this home that have room, all different.
    pub(crate) fn some_lists(&mut self, rng: &mut Rng, home: usize, count: usize) -> Vec<u64> {
        assert!(count <= LISTS as usize, "there are {LISTS} lists");
        let first = rng.below(LISTS) as usize;
        let mut keys = Vec::new();
        for place in (first..first + count).map(|at| at % LISTS as usize) {
            let key = &mut self.list_places[home * LISTS as usize + place];
            if self.given.get(key).is_some_and(|given| *given >= VALUES_MAX) {
                *key += LISTS * self.homes;
            }
            keys.push(*key);
        }
        keys
    }

    /// The client's expectation of a number.
    pub(crate) fn expected(&self, key: u64) -> Option<i64> {
        self.last_seen.get(&key).copied().flatten()
    }

    /// The longest list that was read of a key.
    pub(crate) fn known(&self, key: u64) -> Vec<i64> {
        self.known.get(&key).cloned().unwrap_or_default()
    }

    /// An operation on a number is about to be sent.
    pub(crate) fn begin(&mut self, key: u64, input: ItemInput, now: u64) -> Begun {
        let history = self.numbers.entry(key).or_default();
        history.push(Operation { invoked: now, ended: NEVER, input, output: None });
        Begun { key, at: history.len() - 1 }
    }

    fn operation(&mut self, begun: Begun) -> Option<&mut Op> {
        self.numbers.get_mut(&begun.key).and_then(|all| all.get_mut(begun.at))
    }

    /// It is answered.
    pub(crate) fn end(&mut self, begun: Begun, output: ItemOutput, now: u64) {
        let Some(one) = self.operation(begun) else { return };
        (one.ended, one.output) = (now, Some(output));
        let input = one.input;
        let seen = match (output, input) {
            (ItemOutput::Value(value) | ItemOutput::Refused(value), _) => value,
            (ItemOutput::Written | ItemOutput::Showed(_), ItemInput::Write { change, .. }) => {
                let before = self.last_seen.get(&begun.key).copied().flatten();
                change.apply(before)
            }
            _ => return,
        };
        self.last_seen.insert(begun.key, seen);
    }

    /// It was refused, and has changed nothing.
    pub(crate) fn undo(&mut self, begun: Begun) {
        if let Some(one) = self.operation(begun) {
            // A reading without an answer says nothing.
            one.input = ItemInput::Read;
        }
    }

    /// A request to lists is about to be sent; its place in the history.
    pub(crate) fn begin_lists(&mut self, steps: Vec<Step>, now: u64) -> usize {
        for step in &steps {
            if let Step::Append { key, .. } = step {
                *self.given.entry(*key).or_default() += 1;
            }
        }
        self.lists.push(Transaction { invoked: now, ended: NEVER, ending: Ending::Unknown, steps });
        self.lists.len() - 1
    }

    /// It was carried out, and its answer has shown these lists as they were before.
    pub(crate) fn commit_lists(&mut self, at: usize, shown: Vec<(u64, Vec<i64>)>, now: u64) {
        shown.iter().for_each(|(key, values)| self.learn(*key, values));
        let one = &mut self.lists[at];
        (one.ending, one.ended) = (Ending::Committed, now);
        one.steps.splice(0..0, shown.into_iter().map(|(key, values)| Step::Read { key, values }));
    }

    /// It was refused, and has changed nothing. The refusal has shown some of its lists, each as it was at some moment.
    pub(crate) fn abort_lists(&mut self, at: usize, shown: Vec<(u64, Vec<i64>)>, now: u64) {
        let invoked = self.lists[at].invoked;
        self.lists[at].ending = Ending::Aborted;
        for (key, values) in shown {
            self.learn(key, &values);
            let steps = vec![Step::Read { key, values }];
            self.lists.push(Transaction { invoked, ended: now, ending: Ending::Committed, steps });
        }
    }

    /// A list of another datacenter was read: it shows that list as it was at some time, of which nothing is known.
    pub(crate) fn note_elsewhere(&mut self, key: u64, values: Vec<i64>) {
        let steps = vec![Step::Read { key, values }];
        self.lists.push(Transaction { invoked: 0, ended: NEVER, ending: Ending::Committed, steps });
    }

    fn learn(&mut self, key: u64, values: &[i64]) {
        let known = self.known.entry(key).or_default();
        if values.len() > known.len() {
            *known = values.to_vec();
        }
    }

    /// The items that histories have.
    pub(crate) fn keys(&self) -> Vec<ItemKey> {
        let numbers = self.numbers.keys().map(|key| ItemKey::Number(*key));
        numbers.chain(self.given.keys().map(|key| ItemKey::List(*key))).collect()
    }

    /// Judged histories are not searched again: other items take over.
    pub(crate) fn retire(&mut self) {
        self.numbers.clear();
        self.lists.clear();
        self.given.clear();
        self.places.iter_mut().for_each(|key| *key += NUMBERS * self.homes);
        self.list_places.iter_mut().for_each(|key| *key += LISTS * self.homes);
    }
}

/// Whether a condition on a number holds in this state: a refusal that shows a state in which it does is a violation.
pub(crate) fn is_refused_rightly(input: &ItemInput, found: Option<i64>) -> bool {
    matches!(NumberItem.apply(&found, input).1, ItemOutput::Refused(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::append::{Anomaly, check};
    use model::item::{ItemChange, ItemShown};

    #[test]
    fn a_refused_transaction_shows_a_list_and_appends_nothing() {
        let mut items = Items::new(1);
        let first = items.begin_lists(vec![Step::Append { key: 0, value: 1 }], 10);
        items.commit_lists(first, Vec::new(), 20);
        let second = items.begin_lists(vec![Step::Append { key: 0, value: 2 }], 30);
        items.abort_lists(second, vec![(0, vec![1])], 40);
        assert_eq!((items.lists.len(), items.known(0)), (3, vec![1]));
        assert_eq!(check(&items.lists), Ok(()));
        let third = items.begin_lists(Vec::new(), 50);
        items.commit_lists(third, vec![(0, vec![1, 2])], 60);
        assert_eq!(check(&items.lists), Err(Anomaly::Aborted { key: 0, value: 2, writer: 1 }));
    }

    #[test]
    fn items_stay_at_home() {
        let (mut items, mut rng) = (Items::new(2), Rng::new(1, 1));
        for _ in 0..3 {
            for home in 0..items.homes() {
                let lists = items.some_lists(&mut rng, home, 3);
                assert!(lists.iter().all(|key| items.home(ItemKey::List(*key)) == home), "{lists:?}");
                let number = items.number(&mut rng, home);
                assert_eq!(items.home(ItemKey::Number(number)), home);
            }
            items.retire();
        }
    }

    #[test]
    fn a_reader_elsewhere_sees_old_lists_and_none_that_never_was() {
        let mut items = Items::new(2);
        for value in [1, 2] {
            let at = items.begin_lists(vec![Step::Append { key: 0, value }], 10 * value as u64);
            items.commit_lists(at, Vec::new(), 10 * value as u64 + 5);
        }
        let last = items.begin_lists(Vec::new(), 50);
        items.commit_lists(last, vec![(0, vec![1, 2])], 60);
        items.note_elsewhere(0, vec![1]);
        items.note_elsewhere(0, Vec::new());
        assert_eq!(check(&items.lists), Ok(()));
        items.note_elsewhere(0, vec![2]);
        assert!(matches!(check(&items.lists), Err(Anomaly::Incompatible { .. })));
    }

    #[test]
    fn refusals_have_to_show_why() {
        let input = ItemInput::Write {
            expected: Some(Some(7)),
            change: ItemChange::Delete,
            shown: ItemShown::Nothing,
        };
        assert!(is_refused_rightly(&input, Some(8)) && is_refused_rightly(&input, None));
        assert!(!is_refused_rightly(&input, Some(7)));
    }
}
