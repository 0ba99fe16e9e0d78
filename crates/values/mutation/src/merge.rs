//! The one merge of fragment streams that reads, flushes and compactions share.
//!
//! It is synchronous and pure: it holds a buffer for each input and says which buffer it needs filled, so that the
//! caller decides how (a memtable's iterator, a file, another node) and when to give way to other tasks.
//! Its output is one stream in which versions of a row are reconciled and rows hidden by deletions are gone, while the
//! deletions themselves are kept; whether they may be forgotten is [`crate::purge`]'s question.

use std::cmp::Ordering;
use std::sync::Arc;

use schema::Table;

use crate::{DeletionTime, Fragment, FragmentBuffer, Row};

/// The result of [`Merger::next`].
#[derive(Debug)]
pub enum Step {
    /// The next fragment of the merged stream.
    Fragment(Fragment),
    /// This input's buffer is empty: fill it ([`Merger::buffer`]) or say that it has ended ([`Merger::end`]).
    Need(usize),
    /// All inputs have ended.
    End,
}

#[derive(Default)]
struct Input {
    buffer: FragmentBuffer,
    ended: bool,
    /// Takes part in the partition being merged.
    joined: bool,
    /// Its range deletion in force.
    open: DeletionTime,
}

enum State {
    Between,
    Static,
    Rows,
}

/// Merges streams of one table, all in the same direction.
pub struct Merger {
    table: Arc<Table>,
    reversed: bool,
    inputs: Vec<Input>,
    state: State,
    /// Deletion of the partition being merged.
    partition: DeletionTime,
    /// Range deletion last announced.
    announced: DeletionTime,
}

impl Default for DeletionTime {
    fn default() -> Self {
        Self::LIVE
    }
}

impl Merger {
    /// A merger of `inputs` streams; `reversed` when their rows come in descending order.
    pub fn new(table: Arc<Table>, inputs: usize, reversed: bool) -> Self {
        Self {
            table,
            reversed,
            inputs: std::iter::repeat_with(Input::default).take(inputs).collect(),
            state: State::Between,
            partition: DeletionTime::LIVE,
            announced: DeletionTime::LIVE,
        }
    }

    /// The buffer of an input, to append to.
    pub fn buffer(&mut self, input: usize) -> &mut FragmentBuffer {
        &mut self.inputs[input].buffer
    }

    /// Says that an input has nothing more.
    pub fn end(&mut self, input: usize) {
        assert!(!self.inputs[input].joined, "a stream does not end inside a partition");
        self.inputs[input].ended = true;
    }

    /// One step.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Step {
        match self.state {
            State::Between => self.start_partition(),
            State::Static => self.static_row(),
            State::Rows => self.row_or_change(),
        }
    }

    /// The first input among those that count whose head is not known.
    fn needed(&self) -> Option<usize> {
        let between = matches!(self.state, State::Between);
        self.inputs
            .iter()
            .position(|input| input.buffer.is_empty() && if between { !input.ended } else { input.joined })
    }

    fn start_partition(&mut self) -> Step {
        if let Some(input) = self.needed() {
            return Step::Need(input);
        }
        let heads = self.inputs.iter().filter_map(|input| match input.buffer.front() {
            Some(Fragment::PartitionStart { key, .. }) => Some(key),
            Some(other) => panic!("a stream must start a partition, got {other:?}"),
            None => None,
        });
        let Some(first) = heads.min().cloned() else {
            return Step::End;
        };
        let mut partition = DeletionTime::LIVE;
        for input in &mut self.inputs {
            input.open = DeletionTime::LIVE;
            input.joined = match input.buffer.front() {
                Some(Fragment::PartitionStart { key, deletion }) if *key == first => {
                    partition = partition.max(*deletion);
                    true
                }
                _ => false,
            };
            if input.joined {
                input.buffer.pop_front();
            }
        }
        self.partition = partition;
        self.announced = DeletionTime::LIVE;
        self.state = State::Static;
        Step::Fragment(Fragment::PartitionStart { key: first, deletion: partition })
    }

    fn static_row(&mut self) -> Step {
        if let Some(input) = self.needed() {
            return Step::Need(input);
        }
        self.state = State::Rows;
        let is_static = |fragment: &Fragment| matches!(fragment, Fragment::StaticRow(_));
        let merged = self.take_rows(is_static);
        match merged {
            Some(row) => Step::Fragment(Fragment::StaticRow(row)),
            None => self.row_or_change(),
        }
    }

    fn row_or_change(&mut self) -> Step {
        loop {
            if let Some(input) = self.needed() {
                return Step::Need(input);
            }
            // The front-most head; `None` when every joined input is at its partition's end.
            let mut first: Option<&Fragment> = None;
            for input in self.inputs.iter().filter(|input| input.joined) {
                let head = input.buffer.front().expect("heads are known");
                if let Some(position) = position(head)
                    && first.is_none_or(|best| {
                        self.order(position, self::position(best).expect("has a position")).is_lt()
                    })
                {
                    first = Some(head);
                }
            }
            match first {
                None => return self.end_partition(),
                Some(Fragment::Row(row)) => {
                    let clustering = row.clustering.clone();
                    let same = |f: &Fragment| matches!(f, Fragment::Row(row) if row.clustering == clustering);
                    if let Some(row) = self.take_rows(same) {
                        return Step::Fragment(Fragment::Row(row));
                    }
                }
                Some(Fragment::RangeTombstoneChange { bound, .. }) => {
                    let bound = bound.clone();
                    if let Some(deletion) = self.take_changes(&bound) {
                        return Step::Fragment(Fragment::RangeTombstoneChange { bound, deletion });
                    }
                }
                Some(other) => panic!("out of place in a partition: {other:?}"),
            }
        }
    }

    fn order(&self, left: &[u8], right: &[u8]) -> Ordering {
        if self.reversed { right.cmp(left) } else { left.cmp(right) }
    }

    /// Pops the heads that `same` accepts, which are versions of one row, and reconciles them.
    fn take_rows(&mut self, same: impl Fn(&Fragment) -> bool) -> Option<Row> {
        let mut merged: Option<Row> = None;
        for input in self.inputs.iter_mut().filter(|input| input.joined) {
            if !input.buffer.front().is_some_and(&same) {
                continue;
            }
            let Some(Fragment::Row(row) | Fragment::StaticRow(row)) = input.buffer.pop_front() else {
                unreachable!("the head was just seen to be a row");
            };
            match &mut merged {
                Some(first) => {
                    first.merge(row, &self.table);
                }
                None => merged = Some(row),
            }
        }
        let mut row = merged?;
        // Range deletions never reach the static row, and none is open while it is read.
        row.delete_shadowed(self.partition.max(self.announced));
        (!row.is_empty()).then_some(row)
    }

    /// Pops the changes at `bound`; the deletion to announce when that changes the deletion in force.
    fn take_changes(&mut self, bound: &crate::Bound) -> Option<DeletionTime> {
        let mut holds = DeletionTime::LIVE;
        for input in self.inputs.iter_mut().filter(|input| input.joined) {
            if let Some(Fragment::RangeTombstoneChange { bound: at, deletion }) = input.buffer.front()
                && at == bound
            {
                input.open = *deletion;
                input.buffer.pop_front();
            }
            holds = holds.max(input.open);
        }
        if !holds.supersedes(&self.partition) {
            holds = DeletionTime::LIVE;
        }
        let changed = holds != self.announced;
        self.announced = holds;
        changed.then_some(holds)
    }

    fn end_partition(&mut self) -> Step {
        for input in self.inputs.iter_mut().filter(|input| input.joined) {
            assert!(input.open.is_live(), "a range deletion is closed before its partition ends");
            let end = input.buffer.pop_front();
            assert!(matches!(end, Some(Fragment::PartitionEnd)), "heads without a position are ends");
            input.joined = false;
        }
        self.state = State::Between;
        Step::Fragment(Fragment::PartitionEnd)
    }
}

/// Where a fragment lies within its partition; none for its end.
fn position(fragment: &Fragment) -> Option<&[u8]> {
    match fragment {
        Fragment::Row(row) => Some(row.clustering.position()),
        Fragment::RangeTombstoneChange { bound, .. } => Some(bound.position()),
        Fragment::PartitionEnd => None,
        Fragment::PartitionStart { .. } | Fragment::StaticRow(_) => {
            panic!("out of place in a partition: {fragment:?}")
        }
    }
}
