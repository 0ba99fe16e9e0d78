//! Tables of lightweight transactions on several rows and columns of a partition: the levels at which a table may be asked, and the history
//! of each partition. Some order of the requests in it has to explain every answer.
//!
//! A read at QUORUM takes part in that order too, though not at the time at which it is made: a write is proposed only when a quorum
//! has all that was chosen before it, so that such a read shows the partition as it was after some transaction, whole. It may not
//! be one from before a commit at QUORUM, or a serial read or refusal, that was answered before the read was sent.
//!
//! With several datacenters these are transactions at SERIAL, or at LOCAL_SERIAL with reads at LOCAL_QUORUM, each partition's in one
//! datacenter: those of several datacenters would have no order.
//!
//! A second table of this kind is truncated meanwhile, and a third is in a keyspace whose replication factor changes. A TRUNCATE
//! truncates each replica at least twice: a transaction that overlaps with it, answered or not, may be there afterwards or not, each
//! whole, regardless of its base; one that had been answered before it began may not. One that is answered with an error is over
//! soon; one without an answer may still be on its way to a node, and overlaps with everything until the quiescent phase.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use model::conditional::{
    Cell, ConditionalInput, ConditionalOutput, ConditionalRow, ConditionalState, ConditionalView,
};
use model::linear::{NEVER, Operation};
use rt_sim::Rng;
use wire::Consistency;

use crate::cluster::plan::ClusterPlan;
use crate::cluster::plan::focus::Focus;
use crate::cluster::plan::replication::Copies;
use crate::plan::{one_in, pick};

/// The tables: of nothing else, truncated, and of which there are more replicas or fewer.
pub(crate) const TABLE: &str = "k0.guarded";
const CUT_TABLE: &str = "k0.guarded_cut";
const COPIED_TABLE: &str = "k1.guarded";
/// Partitions in use at once, where any datacenter uses any.
const KEYS: u64 = 2;
/// Where there are tables that change, one step of a client in so many uses one of them; where the seed focuses on those, more do.
const CHANGING_ONE_IN: u64 = 12;
const CHANGING_ONE_IN_OF_FOCUS: u64 = 2;
/// Operations on a partition, after which another takes its place: the checker's search grows with them.
const OPERATIONS_MAX: usize = 60;
/// The same for operations without an answer.
const OPEN_MAX: usize = 6;

type Op = Operation<ConditionalInput, ConditionalOutput>;

/// The operations on a partition.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) operations: Vec<Op>,
    /// For each: its number.
    ids: Vec<u64>,
    /// And once it is answered, a quorum has all that was chosen up to it.
    settles: Vec<bool>,
    /// Those that overlapped with a truncation: they may be there or not, regardless of their answers.
    overlapping: BTreeSet<u64>,
    /// The client's expectation.
    pub(crate) known: ConditionalState,
}

/// The clients' operations on the partitions of a table.
pub(crate) struct LwtTable {
    pub(crate) table: &'static str,
    pub(crate) levels: Levels,
    /// The partition of each place; where rounds are those of one datacenter, there is one place for each.
    current: Vec<u64>,
    /// Partitions before this one are of no use any more.
    first: u64,
    pub(crate) next_value: i64,
    next_id: u64,
    pub(crate) histories: BTreeMap<u64, History>,
    /// Those that ended with a truncation.
    pub(crate) closed: Vec<(u64, History)>,
    /// A truncation is under way, or may be.
    truncating: bool,
    /// One was not answered: it may be carried out as long as the network or a node stands still.
    pub(crate) is_unanswered: bool,
    /// When the last one ended.
    truncated: u64,
}

/// Shared by the clients.
pub(crate) type SharedLwt = Rc<RefCell<LwtTable>>;

/// The tables that a plan has.
#[derive(Clone, Default)]
pub(crate) struct LwtTables {
    pub(crate) guarded: Option<SharedLwt>,
    pub(crate) cut: Option<SharedLwt>,
    pub(crate) copied: Option<SharedLwt>,
    is_focus: bool,
}

impl LwtTables {
    /// Those of a plan, empty.
    pub(crate) fn new(plan: &ClusterPlan) -> Self {
        let table = |is_wanted: bool, name, levels| {
            is_wanted.then(|| Rc::new(RefCell::new(LwtTable::new(name, levels))))
        };
        Self {
            guarded: table(plan.operations.rows, TABLE, Levels::of_guarded(plan)),
            cut: table(plan.operations.rows_truncated, CUT_TABLE, Levels::of(plan)),
            copied: table(plan.operations.rows_copied, COPIED_TABLE, Levels::of_any_replicas(plan)),
            is_focus: plan.focus == Some(Focus::Rows),
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &SharedLwt> {
        [&self.guarded, &self.cut, &self.copied].into_iter().flatten()
    }

    /// One of those that are truncated or change their replicas, now and then.
    pub(crate) fn pick_changing(&self, rng: &mut Rng) -> Option<&SharedLwt> {
        let changing: Vec<&SharedLwt> = [&self.cut, &self.copied].into_iter().flatten().collect();
        let rarity = if self.is_focus { CHANGING_ONE_IN_OF_FOCUS } else { CHANGING_ONE_IN };
        (!changing.is_empty() && one_in(rng, rarity)).then(|| *pick(rng, &changing))
    }

    /// The statements that make those of a keyspace.
    pub(crate) fn create_texts(&self, keyspace: &str) -> Vec<String> {
        let names = self.all().map(|lwt| lwt.borrow().table);
        let names = names.filter(|name| name.split('.').next() == Some(keyspace));
        names.map(create_text).collect()
    }
}

/// The columns of the tables of this kind.
fn create_text(table: &str) -> String {
    format!("CREATE TABLE {table} (k bigint, c int, s bigint static, a bigint, b bigint, PRIMARY KEY (k, c))")
}

/// The guarantee of reads at QUORUM.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Nothing: a write that a quorum acknowledged may be lost in a power failure.
    Free,
    /// They show the result of some transaction.
    Ordered,
    /// And the next one shows the rows that one has shown: replicas do not change.
    Settling,
}

/// The consistency levels of a table's transactions.
pub(crate) struct Levels {
    /// Of commits, and whether every read at QUORUM has to see them.
    commits: Vec<(Consistency, bool)>,
    pub(crate) serials: Vec<Consistency>,
    /// Of reads that take part in no round.
    pub(crate) plain: Consistency,
    pub(crate) reads: Reads,
    /// Rounds are those of one datacenter; so many there are.
    pub(crate) homes: Option<u64>,
}

impl Levels {
    /// Every level that the replicas of a plan can reach.
    pub(crate) fn of(plan: &ClusterPlan) -> Self {
        use Consistency::{
            All, Any, EachQuorum, LocalOne, LocalQuorum, LocalSerial, One, Quorum, Serial, Three, Two,
        };
        let (one_datacenter, total) = (plan.is_one_datacenter(), plan.copies.total());
        let strong = [Quorum, Quorum, All].map(|level| (level, true));
        let mut commits: Vec<_> = strong.into_iter().chain([One, Any].map(|level| (level, false))).collect();
        let counted = [(Two, 2), (Three, 3)].into_iter().filter(|(_, least)| total >= *least);
        commits.extend(counted.map(|(level, _)| (level, false)));
        if matches!(plan.copies, Copies::ByDatacenter(_)) {
            commits.push((EachQuorum, true));
        }
        if one_datacenter {
            commits.extend([(LocalQuorum, true), (LocalOne, false)]);
        }
        // Rounds among the replicas of one datacenter and those of all exclude each other only where there is one datacenter.
        let serials = if one_datacenter { vec![Serial, LocalSerial] } else { vec![Serial] };
        let reads = match (plan.loss_window(), plan.keeps_replicas()) {
            (Some(_), _) => Reads::Free,
            (None, false) => Reads::Ordered,
            (None, true) => Reads::Settling,
        };
        Self { commits, serials, plain: Quorum, reads, homes: None }
    }

    /// Those of the table that stays as it is.
    fn of_guarded(plan: &ClusterPlan) -> Self {
        use Consistency::{
            All, Any, EachQuorum, LocalOne, LocalQuorum, LocalSerial, One, Quorum, Three, Two,
        };
        if !plan.operations.local_rounds {
            return Self::of(plan);
        }
        let strong = [LocalQuorum, LocalQuorum, EachQuorum, All].map(|level| (level, true));
        // A quorum of all replicas need not be one of the datacenter's.
        let weak = [Quorum, One, Any, LocalOne].map(|level| (level, false));
        let mut commits: Vec<_> = strong.into_iter().chain(weak).collect();
        let counted = [(Two, 2), (Three, 3)].into_iter().filter(|(_, least)| plan.copies.total() >= *least);
        commits.extend(counted.map(|(level, _)| (level, false)));
        let homes = Some(plan.homes().len() as u64);
        Self { commits, serials: vec![LocalSerial], plain: LocalQuorum, homes, ..Self::of(plan) }
    }

    /// Levels that any number of replicas can reach.
    fn of_any_replicas(plan: &ClusterPlan) -> Self {
        use Consistency::{All, Any, One, Quorum};
        let commits = vec![(Quorum, true), (All, true), (One, false), (Any, false)];
        Self { commits, reads: Reads::Ordered, ..Self::of(plan) }
    }

    /// The level of a commit: most are acknowledged by a quorum.
    pub(crate) fn draw(&self, rng: &mut Rng) -> (Consistency, bool) {
        let strong = !one_in(rng, 3);
        let allowed: Vec<_> = self.commits.iter().filter(|(_, settles)| *settles == strong).collect();
        **pick(rng, &allowed)
    }
}

/// An operation of a client: its partition, and its place in the history.
#[derive(Clone, Copy)]
pub(crate) struct Begun {
    key: u64,
    id: u64,
}

impl History {
    fn push(&mut self, id: u64, operation: Op, settles: bool) {
        self.operations.push(operation);
        self.ids.push(id);
        self.settles.push(settles);
    }

    fn place(&self, begun: Begun) -> Option<usize> {
        self.ids.iter().position(|id| *id == begun.id)
    }

    /// The possible contents after a truncation that begins now: transactions under way, with any result.
    fn after_truncation(&self) -> Self {
        let mut next = Self::default();
        for (one, id) in self.operations.iter().zip(&self.ids).filter(|(one, _)| one.output.is_none()) {
            next.push(*id, Operation { input: unconditional(&one.input), ..one.clone() }, false);
            next.overlapping.insert(*id);
        }
        next
    }

    fn open(&self) -> usize {
        self.operations.iter().filter(|one| one.output.is_none()).count()
    }

    /// The time from which a read at QUORUM sent at `since` has to see requests: all that had been answered by then. An
    /// answer of a commit at a lower level binds it only when something that settles began later.
    fn binding(&self, since: u64) -> u64 {
        let answered = |settles: bool| {
            let all = self.operations.iter().zip(&self.settles);
            let of = move |(one, settled): &(&Op, &bool)| {
                **settled == settles && one.output.is_some() && one.ended < since
            };
            all.filter(of).map(|(one, _)| one)
        };
        let settled = answered(true).map(|one| one.invoked).max().unwrap_or(0);
        let loose = answered(false).map(|one| one.ended).filter(|ended| *ended >= settled).min();
        loose.unwrap_or(since).min(since)
    }

    fn learn(&mut self, at: usize) {
        let one = &self.operations[at];
        match (&one.input, &one.output) {
            (_, Some(ConditionalOutput::View(view))) => self.known = believed(view),
            (ConditionalInput::Transaction { changes, .. }, Some(ConditionalOutput::Applied)) => {
                changes.iter().for_each(|change| self.known.change(change));
            }
            (ConditionalInput::Transaction { shown, .. }, Some(ConditionalOutput::Refused(values))) => {
                for (cell, value) in shown.iter().zip(values) {
                    self.known.show(*cell, *value);
                }
            }
            _ => {}
        }
    }
}

/// A transaction that may have happened on any state.
fn unconditional(input: &ConditionalInput) -> ConditionalInput {
    match input {
        ConditionalInput::Transaction { changes, .. } => ConditionalInput::Transaction {
            conditions: Vec::new(),
            changes: changes.clone(),
            shown: Vec::new(),
        },
        other => other.clone(),
    }
}

/// The expectation of a client that has read this.
fn believed(view: &ConditionalView) -> ConditionalState {
    let row = |values: &Option<_>| ConditionalRow {
        inserted: values.is_some(),
        values: values.unwrap_or_default(),
    };
    ConditionalState { static_value: view.static_value, rows: std::array::from_fn(|at| row(&view.rows[at])) }
}

impl LwtTable {
    /// An empty table.
    pub(crate) fn new(table: &'static str, levels: Levels) -> Self {
        Self {
            table,
            current: (0..levels.homes.unwrap_or(KEYS)).collect(),
            first: 0,
            levels,
            next_value: 0,
            next_id: 0,
            histories: BTreeMap::new(),
            closed: Vec::new(),
            truncating: false,
            is_unanswered: false,
            truncated: 0,
        }
    }

    /// A partition that has room for one more operation, for a client of this datacenter.
    pub(crate) fn key(&mut self, rng: &mut Rng, home: usize) -> u64 {
        let places = self.current.len();
        let place = if self.levels.homes.is_some() { home } else { rng.below(places as u64) as usize };
        let history = self.histories.entry(self.current[place]).or_default();
        if history.operations.len() >= OPERATIONS_MAX || history.open() >= OPEN_MAX {
            self.current[place] += places as u64;
        }
        self.current[place]
    }

    /// The datacenter in which the rounds of a partition are; none for any.
    pub(crate) fn home(&self, key: u64) -> Option<usize> {
        self.levels.homes.map(|homes| (key % homes) as usize)
    }

    /// An operation is about to be sent.
    pub(crate) fn begin(&mut self, key: u64, input: ConditionalInput, settles: bool, now: u64) -> Begun {
        self.next_id += 1;
        let id = self.next_id;
        if key < self.first {
            return Begun { key, id };
        }
        let history = self.histories.entry(key).or_default();
        let input = if self.truncating { unconditional(&input) } else { input };
        if self.truncating {
            history.overlapping.insert(id);
        }
        history.push(id, Operation { invoked: now, ended: NEVER, input, output: None }, settles);
        Begun { key, id }
    }

    /// It is answered.
    pub(crate) fn end(&mut self, begun: Begun, output: ConditionalOutput, cells: Vec<Cell>, now: u64) {
        let Some(history) = self.histories.get_mut(&begun.key) else { return };
        let Some(at) = history.place(begun) else { return };
        let is_refused = matches!(output, ConditionalOutput::Refused(_));
        let one = &mut history.operations[at];
        if history.overlapping.contains(&begun.id) {
            if is_refused {
                one.input = ConditionalInput::Read;
            }
            return;
        }
        if let ConditionalInput::Transaction { shown, .. } = &mut one.input {
            *shown = cells;
        }
        // Its commit's level does not matter: nothing was committed.
        history.settles[at] |= is_refused;
        (one.ended, one.output) = (now, Some(output));
        history.learn(at);
    }

    /// Whether a truncation was under way together with it.
    pub(crate) fn overlaps(&self, begun: Begun) -> bool {
        let history = self.histories.get(&begun.key);
        history
            .is_none_or(|history| history.overlapping.contains(&begun.id) || history.place(begun).is_none())
    }

    /// It was refused before anything was asked of a replica: a reading without an answer says nothing.
    pub(crate) fn undo(&mut self, begun: Begun) {
        if let Some(history) = self.histories.get_mut(&begun.key)
            && let Some(at) = history.place(begun)
        {
            history.operations[at].input = ConditionalInput::Read;
        }
    }

    /// Notes a read at QUORUM.
    pub(crate) fn note_read(&mut self, key: u64, view: ConditionalView, (since, now): (u64, u64)) {
        if self.truncating || since < self.truncated || key < self.first {
            return;
        }
        self.next_id += 1;
        let history = self.histories.entry(key).or_default();
        let (invoked, output) = (history.binding(since), Some(ConditionalOutput::View(view)));
        let settles = self.levels.reads == Reads::Settling;
        // Another reader need not see it when replicas change; nobody has to come behind it then.
        let ended = if settles { now } else { NEVER };
        let read = Operation { invoked, ended, input: ConditionalInput::Read, output };
        history.push(self.next_id, read, settles);
    }

    /// A truncation begins.
    pub(crate) fn begin_truncation(&mut self) {
        self.truncating = true;
        let all = std::mem::take(&mut self.histories);
        // Also of partitions that no client chooses any more: clients that chose them before continue there.
        self.histories = all.iter().map(|(key, history)| (*key, history.after_truncation())).collect();
        self.closed.extend(all);
    }

    /// It is acknowledged; or it failed, and may have been carried out in part: then its partitions are of no more use.
    pub(crate) fn end_truncation(&mut self, acknowledged: bool, now: u64) {
        if self.is_unanswered {
            return;
        }
        (self.truncating, self.truncated) = (false, now);
        if !acknowledged {
            self.retire();
        }
    }

    /// The network is whole and nodes run: no truncation is on its way any more.
    pub(crate) fn end_unanswered(&mut self, now: u64) {
        if std::mem::take(&mut self.is_unanswered) {
            self.end_truncation(false, now);
        }
    }

    /// A judged history is not searched again: new partitions take over.
    pub(crate) fn retire(&mut self) {
        self.histories.clear();
        let places = self.current.len() as u64;
        let behind = self.current.iter().max().map_or(0, |last| last / places * places + places);
        self.current = (behind..behind + places).collect();
        self.first = behind;
    }
}

#[cfg(test)]
mod tests {
    use model::conditional::{Change, Condition, ConditionalPartition};
    use model::linear::{Linearity, check};

    use super::*;

    fn op(invoked: u64, ended: u64) -> Op {
        let (input, output) = (ConditionalInput::Read, Some(ConditionalOutput::Applied));
        Operation { invoked, ended, input, output }
    }

    #[test]
    fn a_read_is_bound_by_the_rows_of_a_quorum() {
        let mut history = History::default();
        assert_eq!(history.binding(100), 100);
        history.operations = vec![op(10, 20)];
        history.settles = vec![false];
        assert_eq!(history.binding(100), 20, "a commit at ONE need not be seen");
        history.operations.push(op(15, 40));
        history.settles.push(true);
        assert_eq!(history.binding(100), 20, "it may have come behind what settles");
        history.operations.push(op(30, 50));
        history.settles.push(true);
        assert_eq!(history.binding(100), 100, "it came before what settles");
        assert_eq!(history.binding(45), 20, "which had not been answered");
    }

    fn insert(table: &mut LwtTable, now: u64, value: i64) -> Begun {
        insert_at(table, 0, now, value)
    }

    fn insert_at(table: &mut LwtTable, key: u64, now: u64, value: i64) -> Begun {
        let changes = vec![Change::Insert(0), Change::Set(Cell::Regular(0, 0), Some(value))];
        let conditions = vec![Condition::NotExists(0)];
        table.begin(key, ConditionalInput::Transaction { conditions, changes, shown: Vec::new() }, true, now)
    }

    fn is_linear(table: &LwtTable, first: Option<i64>) -> bool {
        is_linear_at(table, 0, first)
    }

    fn is_linear_at(table: &LwtTable, key: u64, first: Option<i64>) -> bool {
        let view = ConditionalView {
            rows: [first.map(|value| [Some(value), None]), None, None],
            ..ConditionalView::default()
        };
        let mut history = table.histories[&key].operations.clone();
        let output = Some(ConditionalOutput::View(view));
        history.push(Operation { invoked: 1_000, ended: 1_001, input: ConditionalInput::Read, output });
        matches!(check(&ConditionalPartition, &history), Linearity::Linear(_))
    }

    #[test]
    fn a_truncation_takes_transactions_answered_before_it_and_perhaps_overlapping_ones() {
        let plan = ClusterPlan::draw(&mut Rng::new(1, 1), 3);
        let mut table = LwtTable::new(CUT_TABLE, Levels::of(&plan));
        let first = insert(&mut table, 10, 1);
        table.end(first, ConditionalOutput::Applied, Vec::new(), 20);
        let second = insert(&mut table, 25, 2);
        assert!(is_linear(&table, Some(1)) && !is_linear(&table, None));
        table.begin_truncation();
        let third = insert(&mut table, 35, 3);
        table.end(second, ConditionalOutput::Applied, Vec::new(), 40);
        table.end(third, ConditionalOutput::Applied, Vec::new(), 45);
        table.end_truncation(true, 50);
        assert!(!is_linear(&table, Some(1)), "truncated rows are back");
        assert!([None, Some(2), Some(3)].into_iter().all(|value| is_linear(&table, value)));
        let fourth = insert(&mut table, 60, 4);
        table.end(fourth, ConditionalOutput::Applied, Vec::new(), 70);
        assert!(!is_linear(&table, None) && is_linear(&table, Some(4)), "later rows stay");
    }

    #[test]
    fn a_truncation_without_an_answer_may_come_until_the_quiescent_phase() {
        let plan = ClusterPlan::draw(&mut Rng::new(1, 1), 3);
        let mut table = LwtTable::new(CUT_TABLE, Levels::of(&plan));
        table.begin_truncation();
        table.is_unanswered = true;
        table.end_truncation(false, 10);
        let first = insert(&mut table, 200, 1);
        table.end(first, ConditionalOutput::Applied, Vec::new(), 210);
        assert!([None, Some(1)].into_iter().all(|value| is_linear(&table, value)));
        table.end_unanswered(300);
        let key = table.first;
        let second = insert_at(&mut table, key, 310, 2);
        table.end(second, ConditionalOutput::Applied, Vec::new(), 320);
        assert!(!is_linear_at(&table, key, None) && is_linear_at(&table, key, Some(2)));
    }
}
