//! Lightweight transactions on several rows and columns of a partition: clients that send conditional statements and batches, and read
//! serially and at QUORUM; and the checker that for each partition there is an order of all that was asked which explains every
//! answer, what refusals have shown included.
//!
//! A read at QUORUM takes part in that order too, though not at the time at which it is made: a write is proposed only when a quorum
//! has what was chosen before it, so that such a read shows the partition as it was after some transaction, whole. It may not
//! be one from before what was committed at QUORUM, or read or refused serially, before the read was sent.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use model::conditional::{
    Cell, ConditionalInput, ConditionalOutput, ConditionalPartition, ConditionalRow, ConditionalState,
    ConditionalView,
};
use model::linear::{Linearity, NEVER, Operation, check};
use rt_sim::Rng;
use wire::Consistency;
use wire::client::ResultBody;

use crate::client::{Connection, Failure};
use crate::cluster::director::ClusterDirector;
use crate::cluster::lwt_draw::{self, Drawing, Drawn};
use crate::cluster::plan::{ClusterPlan, Copies};
use crate::cluster::serial;
use crate::plan::{one_in, pick};
use crate::statement::Query;
use crate::world::SharedWorld;

/// The table.
pub(crate) const TABLE: &str = "k0.guarded";
/// Partitions in use at once.
const KEYS: u64 = 2;
/// Operations on a partition, after which another takes its place: what is to be searched grows with them.
const OPERATIONS_MAX: usize = 60;
/// The same for operations without an answer.
const OPEN_MAX: usize = 6;

type Op = Operation<ConditionalInput, ConditionalOutput>;

/// What was asked of a partition.
#[derive(Default)]
struct History {
    operations: Vec<Op>,
    /// For each: once it is answered, a quorum has all that was chosen up to it.
    settles: Vec<bool>,
    /// What a client believes to be there.
    known: ConditionalState,
}

/// What clients have done with the partitions of a table.
pub(crate) struct LwtTable {
    table: &'static str,
    levels: Levels,
    current: [u64; KEYS as usize],
    next_value: i64,
    histories: BTreeMap<u64, History>,
}

/// Shared by the clients.
pub(crate) type SharedLwt = Rc<RefCell<LwtTable>>;

/// What is known of reads at QUORUM.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// Nothing: what a quorum has acknowledged may be gone with the power.
    Free,
    /// They show what some transaction has left.
    Ordered,
    /// And what one has shown the next shows: replicas do not change.
    Settling,
}

/// The consistency levels of a table's transactions.
pub(crate) struct Levels {
    /// Of commits, and whether every read at QUORUM has to see them.
    commits: Vec<(Consistency, bool)>,
    serials: Vec<Consistency>,
    reads: Reads,
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
        let is_stable = plan.ring.is_empty() && plan.founders == plan.shards.len();
        let reads = match (plan.loss_window(), is_stable) {
            (Some(_), _) => Reads::Free,
            (None, false) => Reads::Ordered,
            (None, true) => Reads::Settling,
        };
        Self { commits, serials, reads }
    }
}

impl Levels {
    /// The level of a commit: in most a quorum has it when it is acknowledged.
    fn draw(&self, rng: &mut Rng) -> (Consistency, bool) {
        let strong = !one_in(rng, 3);
        let allowed: Vec<_> = self.commits.iter().filter(|(_, settles)| *settles == strong).collect();
        **pick(rng, &allowed)
    }
}

/// An operation of a client: its partition, and its place in the history.
#[derive(Clone, Copy)]
struct Begun {
    key: u64,
    at: usize,
}

impl History {
    fn open(&self) -> usize {
        self.operations.iter().filter(|one| one.output.is_none()).count()
    }

    /// Since when a read at QUORUM that was sent at `since` has to see what was asked: what had been answered by then. An
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

/// What a client believes that has read this.
fn believed(view: &ConditionalView) -> ConditionalState {
    let row = |values: &Option<_>| ConditionalRow {
        inserted: values.is_some(),
        values: values.unwrap_or_default(),
    };
    ConditionalState { static_value: view.static_value, rows: std::array::from_fn(|at| row(&view.rows[at])) }
}

impl LwtTable {
    pub(crate) fn new(table: &'static str, levels: Levels) -> Self {
        let current = std::array::from_fn(|at| at as u64);
        Self { table, levels, current, next_value: 0, histories: BTreeMap::new() }
    }

    /// A partition that has room for one more operation.
    fn key(&mut self, rng: &mut Rng) -> u64 {
        let slot = rng.below(KEYS) as usize;
        let history = self.histories.entry(self.current[slot]).or_default();
        if history.operations.len() >= OPERATIONS_MAX || history.open() >= OPEN_MAX {
            self.current[slot] += KEYS;
        }
        self.current[slot]
    }

    fn begin(&mut self, key: u64, input: ConditionalInput, settles: bool, now: u64) -> Begun {
        let history = self.histories.entry(key).or_default();
        history.operations.push(Operation { invoked: now, ended: NEVER, input, output: None });
        history.settles.push(settles);
        Begun { key, at: history.operations.len() - 1 }
    }

    fn end(&mut self, begun: Begun, output: ConditionalOutput, cells: Vec<Cell>, now: u64) {
        let Some(history) = self.histories.get_mut(&begun.key) else { return };
        let one = &mut history.operations[begun.at];
        if let ConditionalInput::Transaction { shown, .. } = &mut one.input {
            *shown = cells;
        }
        // Whatever level its commit has: nothing was committed.
        history.settles[begun.at] |= matches!(output, ConditionalOutput::Refused(_));
        (one.ended, one.output) = (now, Some(output));
        history.learn(begun.at);
    }

    /// It was refused before anything was asked of a replica: a reading without an answer says nothing.
    fn undo(&mut self, begun: Begun) {
        if let Some(history) = self.histories.get_mut(&begun.key) {
            history.operations[begun.at].input = ConditionalInput::Read;
        }
    }

    /// Notes a read at QUORUM.
    fn note_read(&mut self, key: u64, view: ConditionalView, (since, now): (u64, u64)) {
        let history = self.histories.entry(key).or_default();
        let (invoked, output) = (history.binding(since), Some(ConditionalOutput::View(view)));
        let settles = self.levels.reads == Reads::Settling;
        // Another reader need not see it when replicas change; nobody has to come behind it then.
        let ended = if settles { now } else { NEVER };
        history.operations.push(Operation { invoked, ended, input: ConditionalInput::Read, output });
        history.settles.push(settles);
    }

    fn retire(&mut self) {
        self.histories.clear();
        self.current.iter_mut().for_each(|key| *key += KEYS);
    }
}

/// One step of a client; false when the connection is of no more use.
pub(crate) async fn step(
    world: &SharedWorld,
    lwt: &SharedLwt,
    rng: &mut Rng,
    connection: &mut Connection,
) -> bool {
    let (key, serial) = {
        let mut lwt = lwt.borrow_mut();
        (lwt.key(rng), *pick(rng, &lwt.levels.serials))
    };
    match rng.below(10) {
        0 => read(world, lwt, connection, key, serial).await,
        1..=2 => read(world, lwt, connection, key, Consistency::Quorum).await,
        _ => {
            let (commit, settles) = lwt.borrow().levels.draw(rng);
            let drawn = {
                let lwt = &mut *lwt.borrow_mut();
                let known = lwt.histories.get(&key).map(|history| history.known).unwrap_or_default();
                let (table, next_value) = (lwt.table, &mut lwt.next_value);
                Drawing { table, key, known, next_value }.request(rng)
            };
            (connection.consistency, connection.serial_consistency) = (commit, Some(serial));
            let whole = write(world, lwt, connection, (key, settles), drawn).await;
            connection.serial_consistency = None;
            // What was just acknowledged is there for whoever asks at once.
            whole && (!one_in(rng, 4) || read(world, lwt, connection, key, Consistency::Quorum).await)
        }
    }
}

async fn write(
    world: &SharedWorld,
    lwt: &SharedLwt,
    connection: &mut Connection,
    (key, settles): (u64, bool),
    drawn: Drawn,
) -> bool {
    let (conditions, changes) = (drawn.conditions.clone(), drawn.changes.clone());
    let input = ConditionalInput::Transaction { conditions, changes, shown: Vec::new() };
    let begun = lwt.borrow_mut().begin(key, input, settles, world.borrow().now());
    let answer = connection.query(&Query::text(&drawn.text), None).await;
    let now = world.borrow().now();
    match answer {
        Ok(ResultBody::Rows(rows)) => match drawn.answer(&rows) {
            Ok((output, cells)) => lwt.borrow_mut().end(begun, output, cells, now),
            Err(problem) => world.borrow_mut().fail(format!("checker lwt: {}: {problem}", drawn.text)),
        },
        Ok(other) => world.borrow_mut().fail(format!("{} was answered with {other:?}", drawn.text)),
        Err(failure) => {
            serial::classify(world, &failure, &drawn.text);
            // Unavailable: nobody was asked.
            if matches!(&failure, Failure::Error(error) if error.code() == 0x1000) {
                lwt.borrow_mut().undo(begun);
            }
            return matches!(failure, Failure::Error(_));
        }
    }
    world.borrow_mut().stats.conditional += 1;
    true
}

/// Reads a partition at a serial level or at QUORUM.
async fn read(
    world: &SharedWorld,
    lwt: &SharedLwt,
    connection: &mut Connection,
    key: u64,
    level: Consistency,
) -> bool {
    let text = format!("SELECT c, s, a, b FROM {} WHERE k = {key}", lwt.borrow().table);
    connection.consistency = level;
    let since = world.borrow().now();
    let is_serial = level != Consistency::Quorum;
    let begun = is_serial.then(|| lwt.borrow_mut().begin(key, ConditionalInput::Read, true, since));
    let rows = match connection.rows(&Query::text(&text), 10).await {
        Ok(rows) => rows,
        Err(failure) => {
            serial::classify(world, &failure, &text);
            return matches!(failure, Failure::Error(_));
        }
    };
    let now = world.borrow().now();
    let view = match lwt_draw::view(&rows) {
        Ok(view) => view,
        Err(problem) => {
            world.borrow_mut().fail(format!("checker lwt: {text} at {level:?}: {problem}"));
            return true;
        }
    };
    let mut lwt = lwt.borrow_mut();
    match begun {
        Some(begun) => lwt.end(begun, ConditionalOutput::View(view), Vec::new(), now),
        None if lwt.levels.reads != Reads::Free => lwt.note_read(key, view, (since, now)),
        None => {}
    }
    true
}

/// Reads every partition once more, serially and then at QUORUM by another node, and looks for an order of each history.
pub(crate) async fn judge(director: &mut ClusterDirector, lwt: &SharedLwt) -> Result<(), String> {
    let keys: Vec<u64> = lwt.borrow().histories.keys().copied().collect();
    for level in [Consistency::Serial, Consistency::Quorum] {
        let nth = director.any_node();
        let mut connection = director.connect(nth).await?;
        for key in &keys {
            let world = director.world.clone();
            if !read(&world, lwt, &mut connection, *key, level).await || director.failed() {
                return Err(format!("partition {key} is not read at {level:?} by node {nth}"));
            }
        }
    }
    for (key, history) in &lwt.borrow().histories {
        match check(&ConditionalPartition, &history.operations) {
            Linearity::Linear(_) => {}
            Linearity::Unknown => director.world.borrow_mut().stats.unjudged += 1,
            Linearity::Broken(longest) => {
                let table = lwt.borrow().table;
                return Err(serial::complaint(
                    &format!("{table}, partition {key}"),
                    &history.operations,
                    &longest,
                ));
            }
        }
    }
    // What is judged is not searched again: new partitions take over.
    lwt.borrow_mut().retire();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(invoked: u64, ended: u64) -> Op {
        let (input, output) = (ConditionalInput::Read, Some(ConditionalOutput::Applied));
        Operation { invoked, ended, input, output }
    }

    #[test]
    fn a_read_is_bound_by_what_a_quorum_has() {
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
}
