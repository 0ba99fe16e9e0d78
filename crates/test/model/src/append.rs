//! Strict serialisability of transactions on several lists: whether there is one order of all of them which explains every answer, and in which no
//! transaction stands before one that had ended before it began.
//!
//! The method of Elle (Kingsbury and Alvaro, 2020): every write appends a value that no other has to a list, so that a list which was
//! read shows which transactions wrote it, and in which order. Three kinds of dependencies follow: a transaction wrote behind another, read from
//! another, or read a list that another then wrote. With the order of time they must make no cycle. A transaction without an answer took
//! part if one of its values was seen, at any time since it began, and then as a whole.
//!
//! Lists only grow. So a value that the longest reading of a list lacks was appended behind it, or never.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

/// One step of a transaction, on the list of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The list had these values before the transaction: they were its answer, or its condition.
    Read {
        /// The list.
        key: u64,
        /// All its values.
        values: Vec<i64>,
    },
    /// A value that no other transaction appends to this list.
    Append {
        /// The list.
        key: u64,
        /// The value.
        value: i64,
    },
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was carried out.
    Committed,
    /// It was refused: none of its values may be seen, ever.
    Aborted,
    /// It was not answered: it was carried out once, at any time since it began, or never.
    Unknown,
}

/// A transaction of a history. Times are any numbers that rise: only their order counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// When it was begun.
    pub invoked: u64,
    /// When its answer came; of no meaning without one.
    pub ended: u64,
    /// How it ended.
    pub ending: Ending,
    /// Its steps; each list is read once at most, and appended to once.
    pub steps: Vec<Step>,
}

/// Why one transaction stands behind another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dependency {
    /// It appended behind it (ww).
    Wrote(u64),
    /// It read the value that it had appended (wr).
    Read(u64),
    /// It appended a value that the other has not read (rw).
    Overwrote(u64),
    /// It began after the other had ended.
    Time,
}

/// The reason that no order of a history exists. Transactions are named by their places in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anomaly {
    /// A value stands twice in a list.
    Twice {
        /// The list.
        key: u64,
        /// The value.
        value: i64,
    },
    /// A value was read that no transaction appended.
    Unwritten {
        /// The list.
        key: u64,
        /// The value.
        value: i64,
    },
    /// A value was read of a transaction that was refused.
    Aborted {
        /// The list.
        key: u64,
        /// The value.
        value: i64,
        /// The transaction that was refused.
        writer: usize,
    },
    /// Of two readings of a list none begins with the other.
    Incompatible {
        /// The list.
        key: u64,
        /// The reader.
        reader: usize,
        /// Its reading.
        read: Vec<i64>,
        /// The longest reading.
        longest: Vec<i64>,
    },
    /// Transactions each of which stands behind the one before it in this list, and the first behind the last.
    Cycle(Vec<(usize, Dependency)>),
}

impl Anomaly {
    /// The transactions that it names.
    pub fn members(&self) -> Vec<usize> {
        match self {
            Self::Twice { .. } | Self::Unwritten { .. } => Vec::new(),
            Self::Aborted { writer, .. } => vec![*writer],
            Self::Incompatible { reader, .. } => vec![*reader],
            Self::Cycle(members) => members.iter().map(|(at, _)| *at).collect(),
        }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice { key, value } => write!(f, "{value} stands twice in list {key}"),
            Self::Unwritten { key, value } => write!(f, "list {key} shows {value}, which nobody appended"),
            Self::Aborted { key, value, writer } => {
                write!(f, "list {key} shows {value} of transaction {writer}, which was refused")
            }
            Self::Incompatible { key, reader, read, longest } => {
                write!(f, "transaction {reader} read list {key} as {read:?}, and another as {longest:?}")
            }
            Self::Cycle(members) => {
                f.write_str("a cycle of transactions:")?;
                members.iter().try_for_each(|(at, why)| write!(f, " {why:?} → {at}"))
            }
        }
    }
}

/// The longest reading of each list, and the transactions that appended.
struct Lists {
    longest: BTreeMap<u64, Vec<i64>>,
    writers: BTreeMap<(u64, i64), usize>,
}

/// Judges a history.
///
/// # Errors
/// The reason that no order of it exists.
///
/// # Panics
/// When two transactions append the same value to a list: then a reading does not name its writers.
pub fn check(history: &[Transaction]) -> Result<(), Anomaly> {
    let lists = Lists::new(history);
    lists.check_values(history)?;
    let took_part: Vec<bool> = history.iter().map(|one| lists.took_part(one)).collect();
    for (reader, one) in history.iter().enumerate().filter(|(at, _)| took_part[*at]) {
        lists.check_reads(reader, one)?;
    }
    let mut graph = Graph::new(history.len());
    lists.depend(history, &took_part, &mut graph);
    order_by_time(history, &took_part, &mut graph);
    graph.cycle().map_or(Ok(()), |cycle| Err(Anomaly::Cycle(cycle)))
}

impl Lists {
    fn new(history: &[Transaction]) -> Self {
        let (mut longest, mut writers) = (BTreeMap::<u64, Vec<i64>>::new(), BTreeMap::new());
        for (at, one) in history.iter().enumerate() {
            for step in &one.steps {
                match step {
                    Step::Append { key, value } => {
                        let before = writers.insert((*key, *value), at);
                        assert!(before.is_none(), "{value} is appended twice to list {key}");
                    }
                    Step::Read { key, values } if one.ending == Ending::Committed => {
                        let known = longest.entry(*key).or_default();
                        if values.len() > known.len() {
                            known.clone_from(values);
                        }
                    }
                    Step::Read { .. } => {}
                }
            }
        }
        Self { longest, writers }
    }

    /// Whether each value that was read was appended, once, by a transaction that was not refused.
    fn check_values(&self, history: &[Transaction]) -> Result<(), Anomaly> {
        for (key, values) in &self.longest {
            let mut seen = BTreeSet::new();
            for value in values {
                let (key, value) = (*key, *value);
                if !seen.insert(value) {
                    return Err(Anomaly::Twice { key, value });
                }
                match self.writers.get(&(key, value)) {
                    None => return Err(Anomaly::Unwritten { key, value }),
                    Some(writer) if history[*writer].ending == Ending::Aborted => {
                        return Err(Anomaly::Aborted { key, value, writer: *writer });
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }

    fn longest(&self, key: u64) -> &[i64] {
        self.longest.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Whether a transaction is known to have been carried out.
    fn took_part(&self, one: &Transaction) -> bool {
        let is_seen = |step: &Step| match step {
            Step::Append { key, value } => self.longest(*key).contains(value),
            Step::Read { .. } => false,
        };
        match one.ending {
            Ending::Committed => true,
            Ending::Aborted => false,
            Ending::Unknown => one.steps.iter().any(is_seen),
        }
    }

    fn check_reads(&self, reader: usize, one: &Transaction) -> Result<(), Anomaly> {
        for step in &one.steps {
            let Step::Read { key, values } = step else { continue };
            let longest = self.longest(*key);
            if !longest.starts_with(values) {
                let (read, longest) = (values.clone(), longest.to_vec());
                return Err(Anomaly::Incompatible { key: *key, reader, read, longest });
            }
        }
        Ok(())
    }

    /// Adds the dependencies that follow from the lists.
    fn depend(&self, history: &[Transaction], took_part: &[bool], graph: &mut Graph) {
        let unseen = self.unseen(took_part);
        let nobody = Vec::new();
        for (key, values) in &self.longest {
            for pair in values.windows(2) {
                graph.add(
                    self.writers[&(*key, pair[0])],
                    self.writers[&(*key, pair[1])],
                    Dependency::Wrote(*key),
                );
            }
            let behind = unseen.get(key).unwrap_or(&nobody);
            if let Some(last) = values.last() {
                behind
                    .iter()
                    .for_each(|at| graph.add(self.writers[&(*key, *last)], *at, Dependency::Wrote(*key)));
            }
        }
        for (reader, one) in history.iter().enumerate().filter(|(at, _)| took_part[*at]) {
            for step in &one.steps {
                let Step::Read { key, values } = step else { continue };
                if let Some(last) = values.last() {
                    graph.add(self.writers[&(*key, *last)], reader, Dependency::Read(*key));
                }
                match self.longest(*key).get(values.len()) {
                    Some(next) => {
                        graph.add(reader, self.writers[&(*key, *next)], Dependency::Overwrote(*key))
                    }
                    None => {
                        let behind = unseen.get(key).unwrap_or(&nobody);
                        behind.iter().for_each(|at| graph.add(reader, *at, Dependency::Overwrote(*key)));
                    }
                }
            }
        }
    }

    /// Of each list the transactions that appended to it behind its longest reading.
    fn unseen(&self, took_part: &[bool]) -> BTreeMap<u64, Vec<usize>> {
        let mut unseen: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for ((key, value), at) in &self.writers {
            if took_part[*at] && !self.longest(*key).contains(value) {
                unseen.entry(*key).or_default().push(*at);
            }
        }
        unseen
    }
}

/// Adds the order of time: a node for each end of a transaction, in their order, so that there are few edges.
fn order_by_time(history: &[Transaction], took_part: &[bool], graph: &mut Graph) {
    let mut ends: Vec<(u64, usize)> = history
        .iter()
        .enumerate()
        .filter(|(_, one)| one.ending == Ending::Committed)
        .map(|(at, one)| (one.ended, at))
        .collect();
    ends.sort_unstable();
    let first = history.len();
    graph.nodes.resize(first + ends.len(), BTreeMap::new());
    for (nth, (_, at)) in ends.iter().enumerate() {
        graph.add(*at, first + nth, Dependency::Time);
        if nth > 0 {
            graph.add(first + nth - 1, first + nth, Dependency::Time);
        }
    }
    for (at, one) in history.iter().enumerate().filter(|(at, _)| took_part[*at]) {
        let ended = ends.partition_point(|(end, _)| *end < one.invoked);
        if ended > 0 {
            graph.add(first + ended - 1, at, Dependency::Time);
        }
    }
}

/// Transactions and, behind them, points of time; which stands behind which, and why.
struct Graph {
    transactions: usize,
    nodes: Vec<BTreeMap<usize, Dependency>>,
}

impl Graph {
    fn new(transactions: usize) -> Self {
        Self { transactions, nodes: vec![BTreeMap::new(); transactions] }
    }

    fn add(&mut self, before: usize, behind: usize, why: Dependency) {
        if before != behind {
            self.nodes[before].entry(behind).or_insert(why);
        }
    }

    /// A cycle, as short as there is through one of its members.
    fn cycle(&self) -> Option<Vec<(usize, Dependency)>> {
        let on_cycles = self.not_ordered();
        let shortest = on_cycles.iter().filter(|at| **at < self.transactions);
        let cycles = shortest.filter_map(|at| self.way_back(*at, &on_cycles));
        cycles.min_by_key(Vec::len)
    }

    /// The rest when all that nothing stands before, and then all that nothing stands behind, is taken away again and again: the cycles,
    /// and the ways between them.
    fn not_ordered(&self) -> BTreeSet<usize> {
        let mut left: BTreeSet<usize> = (0..self.nodes.len()).collect();
        let mut reversed = vec![Vec::new(); self.nodes.len()];
        for (before, behind) in self.nodes.iter().enumerate() {
            behind.keys().for_each(|at| reversed[*at].push(before));
        }
        let forward: Vec<Vec<usize>> =
            self.nodes.iter().map(|behind| behind.keys().copied().collect()).collect();
        for (edges, opposite) in [(&forward, &reversed), (&reversed, &forward)] {
            let mut open: Vec<usize> =
                opposite.iter().map(|others| others.iter().filter(|at| left.contains(at)).count()).collect();
            let mut free: Vec<usize> = left.iter().copied().filter(|at| open[*at] == 0).collect();
            while let Some(at) = free.pop() {
                left.remove(&at);
                for next in edges[at].iter().filter(|next| left.contains(next)) {
                    open[*next] -= 1;
                    if open[*next] == 0 {
                        free.push(*next);
                    }
                }
            }
        }
        left
    }

    /// The shortest way from a transaction back to it, through these nodes; points of time are left out.
    fn way_back(&self, start: usize, through: &BTreeSet<usize>) -> Option<Vec<(usize, Dependency)>> {
        let mut came_from: BTreeMap<usize, usize> = BTreeMap::new();
        let mut next = VecDeque::from([start]);
        while let Some(at) = next.pop_front() {
            for behind in self.nodes[at].keys().filter(|behind| through.contains(behind)) {
                if came_from.contains_key(behind) {
                    continue;
                }
                came_from.insert(*behind, at);
                if *behind == start {
                    return Some(self.way(start, &came_from));
                }
                next.push_back(*behind);
            }
        }
        None
    }

    fn way(&self, start: usize, came_from: &BTreeMap<usize, usize>) -> Vec<(usize, Dependency)> {
        let mut way = Vec::new();
        let mut at = start;
        loop {
            let before = came_from[&at];
            if at < self.transactions {
                way.push((at, self.nodes[before][&at]));
            }
            at = before;
            if at == start {
                way.reverse();
                return way;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(key: u64, values: &[i64]) -> Step {
        Step::Read { key, values: values.to_vec() }
    }

    fn append(key: u64, value: i64) -> Step {
        Step::Append { key, value }
    }

    fn one((invoked, ended): (u64, u64), ending: Ending, steps: &[Step]) -> Transaction {
        Transaction { invoked, ended, ending, steps: steps.to_vec() }
    }

    /// Committed at the same time as all others.
    fn at_once(steps: &[Step]) -> Transaction {
        one((0, 100), Ending::Committed, steps)
    }

    fn cycle(history: &[Transaction]) -> Vec<(usize, Dependency)> {
        match check(history) {
            Err(Anomaly::Cycle(mut members)) => {
                members.sort_unstable();
                members
            }
            other => panic!("no cycle: {other:?}"),
        }
    }

    #[test]
    fn an_order_is_found_whatever_the_order_of_the_answers() {
        let history = [
            at_once(&[read(1, &[7]), append(2, 9)]),
            at_once(&[append(1, 7)]),
            at_once(&[read(1, &[]), read(2, &[])]),
            at_once(&[read(1, &[7]), read(2, &[9])]),
        ];
        assert_eq!(check(&history), Ok(()));
        assert_eq!(check(&[]), Ok(()));
    }

    #[test]
    fn a_lost_update_is_a_cycle() {
        // Both append to the list that they have read as empty.
        let history = [
            at_once(&[read(1, &[]), append(1, 7)]),
            at_once(&[read(1, &[]), append(1, 8)]),
            at_once(&[read(1, &[7, 8])]),
        ];
        assert_eq!(cycle(&history), [(0, Dependency::Overwrote(1)), (1, Dependency::Wrote(1))]);
        // One is gone altogether: a later reading lacks it.
        let history = [
            one((0, 1), Ending::Committed, &[append(1, 7)]),
            one((2, 3), Ending::Committed, &[append(1, 8)]),
            one((4, 5), Ending::Committed, &[read(1, &[8])]),
        ];
        // Its value is not in the list, so it stands behind the other.
        assert_eq!(cycle(&history), [(0, Dependency::Wrote(1)), (1, Dependency::Time)]);
    }

    #[test]
    fn write_skew_is_a_cycle() {
        let history = [
            at_once(&[read(1, &[]), append(2, 7)]),
            at_once(&[read(2, &[]), append(1, 8)]),
            at_once(&[read(1, &[8]), read(2, &[7])]),
        ];
        assert_eq!(cycle(&history), [(0, Dependency::Overwrote(2)), (1, Dependency::Overwrote(1))]);
        // Also where nobody has read the values.
        assert_eq!(cycle(&history[..2]), [(0, Dependency::Overwrote(2)), (1, Dependency::Overwrote(1))]);
    }

    #[test]
    fn a_fractured_read_is_a_cycle() {
        let history = [
            at_once(&[append(1, 7), append(2, 8)]),
            at_once(&[read(1, &[7]), read(2, &[])]),
            at_once(&[read(2, &[8])]),
        ];
        assert_eq!(cycle(&history), [(0, Dependency::Overwrote(2)), (1, Dependency::Read(1))]);
        // Two readers that see two transactions in different orders.
        let history = [
            at_once(&[append(1, 7)]),
            at_once(&[append(2, 8)]),
            at_once(&[read(1, &[7]), read(2, &[])]),
            at_once(&[read(1, &[]), read(2, &[8])]),
        ];
        assert_eq!(cycle(&history).len(), 4);
    }

    #[test]
    fn values_of_refused_transactions_are_found() {
        let refused = one((0, 1), Ending::Aborted, &[append(1, 7)]);
        let seen = at_once(&[read(1, &[7])]);
        let found = check(&[refused.clone(), seen]);
        assert_eq!(found, Err(Anomaly::Aborted { key: 1, value: 7, writer: 0 }));
        assert_eq!(check(&[refused, at_once(&[read(1, &[])])]), Ok(()));
    }

    #[test]
    fn lists_that_contradict_each_other_are_found() {
        let writers = [at_once(&[append(1, 7)]), at_once(&[append(1, 8)])];
        let judged = |readings: &[&[i64]]| {
            let readers = readings.iter().map(|values| at_once(&[read(1, values)]));
            check(&writers.iter().cloned().chain(readers).collect::<Vec<_>>())
        };
        assert_eq!(judged(&[&[7], &[7, 8], &[]]), Ok(()));
        assert!(matches!(judged(&[&[7, 8], &[8]]), Err(Anomaly::Incompatible { reader: 3, .. })));
        assert!(matches!(judged(&[&[7, 8], &[8, 7]]), Err(Anomaly::Incompatible { reader: 3, .. })));
        assert_eq!(judged(&[&[7, 7]]), Err(Anomaly::Twice { key: 1, value: 7 }));
        assert_eq!(judged(&[&[9]]), Err(Anomaly::Unwritten { key: 1, value: 9 }));
    }

    #[test]
    fn a_transaction_without_an_answer_is_there_as_a_whole_or_not_at_all() {
        let open = one((5, 0), Ending::Unknown, &[append(1, 7), append(2, 8)]);
        let readers = |first: &[i64], second: &[i64]| {
            [
                open.clone(),
                one((10, 11), Ending::Committed, &[read(1, first)]),
                one((12, 13), Ending::Committed, &[read(2, second)]),
            ]
        };
        assert_eq!(check(&readers(&[], &[])), Ok(()));
        assert_eq!(check(&readers(&[7], &[8])), Ok(()));
        assert_eq!(check(&readers(&[], &[8])), Ok(()), "it happened between them");
        let torn = readers(&[7], &[]);
        assert_eq!(cycle(&torn).len(), 3, "a later reading lacks a part of it");
        // Its condition had to hold.
        let open = one((5, 0), Ending::Unknown, &[read(1, &[]), append(2, 8)]);
        let history = [
            open,
            one((0, 1), Ending::Committed, &[append(1, 7)]),
            one((10, 11), Ending::Committed, &[read(1, &[7]), read(2, &[8])]),
        ];
        assert_eq!(cycle(&history), [(0, Dependency::Time), (1, Dependency::Overwrote(1))]);
    }

    #[test]
    fn the_order_of_time_counts() {
        let stale = [
            one((0, 1), Ending::Committed, &[append(1, 7)]),
            one((1, 5), Ending::Committed, &[read(1, &[])]),
        ];
        assert_eq!(check(&stale), Ok(()), "they overlapped");
        let stale = [stale[0].clone(), one((2, 5), Ending::Committed, &[read(1, &[])])];
        assert_eq!(cycle(&stale), [(0, Dependency::Overwrote(1)), (1, Dependency::Time)]);
        let early = [
            one((3, 4), Ending::Committed, &[append(1, 7)]),
            one((0, 1), Ending::Committed, &[read(1, &[7])]),
        ];
        assert_eq!(cycle(&early), [(0, Dependency::Time), (1, Dependency::Read(1))]);
    }

    /// Histories of one transaction after the other, whose times overlap, have an order; and no longer when an appended value is left out of a
    /// reading that began after its end.
    #[test]
    fn random_histories() {
        let mut state = 7_u64;
        let mut below = move |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        let mut refuted = 0;
        for round in 0..200 {
            let (mut lists, mut history) = (vec![Vec::new(); 3], Vec::new());
            for nth in 0..40 {
                let (key, other) = (below(3), below(3));
                let mut steps = vec![read(key, &lists[key as usize])];
                if below(2) == 0 {
                    lists[other as usize].push(nth);
                    steps.push(append(other, nth));
                }
                let at = nth as u64 * 10;
                history.push(one(
                    (at.saturating_sub(below(40)), at + 1 + below(40)),
                    Ending::Committed,
                    &steps,
                ));
            }
            assert_eq!(check(&history), Ok(()), "round {round}");
            let last = history.len() - 1;
            let Some(Step::Read { key, values }) = history[last].steps.first().cloned() else { continue };
            let Some((value, rest)) = values.split_last() else { continue };
            let writer = history.iter().position(|one| one.steps.contains(&append(key, *value)));
            history[last].steps[0] = read(key, rest);
            if writer.is_some_and(|writer| history[writer].ended < history[last].invoked) {
                assert!(check(&history).is_err(), "round {round}");
                refuted += 1;
            }
        }
        assert!(refuted > 100, "{refuted}");
    }
}
