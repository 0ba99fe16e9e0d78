//! One shard's page of a segment: its rows, their normal form, and the hashes of that.
//!
//! The normal form leaves out everything that is past its grace, as a major compaction would: two nodes that once agreed have the
//! same normal form regardless of later compactions, so that a purged deletion is not sent to it again. The rows as
//! stored still decide: a deletion past its grace that hides a row of another node is sent back in answer, so that a
//! deleted row does not return as long as any replica remembers the deletion.

use mutation::merge::{Merger, Step};
use mutation::purge::{PurgeRule, Purger};
use mutation::{
    Cell, ColumnData, DeletionTime, Fragment, FragmentBuffer, PartitionUpdate, Row, Timestamp, row_of,
};
use replica::compare::{clip, fragments, order};
use replica::page::PageBuilder;
use replica::{Form, Limits, PartitionResult, Partitions, ReadCommand, ReadPage, Resume};

use crate::bits::Bits;
use crate::element::{Element, Print, Printer};
use crate::scope::Scope;

/// The read of a page.
pub fn command(scope: &Scope, after: Option<&Resume>, bytes_max: usize) -> ReadCommand {
    ReadCommand {
        limits: Limits { bytes: bytes_max, ..Limits::NONE },
        resume: after.cloned(),
        bypass_cache: true,
        form: Form::Whole,
        ..ReadCommand::all_of(scope.table.clone(), Partitions::Range(scope.partitions()), scope.now)
    }
}

/// One shard's page of a segment.
#[derive(Debug)]
pub struct Piece {
    after: Option<Resume>,
    end: Option<Resume>,
    parts: Vec<Part>,
    prints: Vec<Print>,
}

#[derive(Debug)]
struct Part {
    whole: PartitionResult,
    /// The normal form, where it differs from the row.
    normal: Option<PartitionResult>,
    /// The index of its first hash.
    prints_from: usize,
}

impl Piece {
    /// From the page that [`command`] gave.
    pub fn new(scope: &Scope, after: Option<Resume>, page: ReadPage) -> Self {
        let mut piece = Self {
            after,
            end: page.more,
            parts: Vec::with_capacity(page.partitions.len()),
            prints: Vec::new(),
        };
        page.partitions
            .into_iter()
            .filter(|partition| scope.slice.contains(partition.key.token))
            .for_each(|partition| piece.add(scope, partition));
        piece
    }

    fn add(&mut self, scope: &Scope, whole: PartitionResult) {
        let normal = normal(scope, &whole);
        let inner = self.is_inner(&whole);
        let prints_from = self.prints.len();
        let prints = &mut self.prints;
        let mut printer = Printer::new(&scope.table, scope.seed);
        printer.partition(normal.as_ref().unwrap_or(&whole), inner, |print| prints.push(print));
        self.parts.push(Part { whole, normal, prints_from });
    }

    /// Whether the segment begins inside of a partition.
    fn is_inner(&self, partition: &PartitionResult) -> bool {
        is_inner(self.after.as_ref(), partition)
    }

    /// Its end; none at the end of the scope.
    pub fn end(&self) -> Option<&Resume> {
        self.end.as_ref()
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.prints.len() as u64
    }

    /// The sum of all contents.
    pub fn sum(&self) -> u64 {
        self.prints.iter().fold(0, |sum: u64, print| sum.wrapping_add(print.content))
    }

    /// Bytes in memory, about.
    pub fn memory_size(&self) -> usize {
        let rows = |partition: &PartitionResult| {
            size_of::<Part>()
                + partition.key.key.len()
                + partition.range_tombstones.memory_size()
                + partition.rows.iter().chain(&partition.static_row).map(Row::memory_size).sum::<usize>()
        };
        let parts = self.parts.iter().map(|part| rows(&part.whole) + part.normal.as_ref().map_or(0, rows));
        parts.sum::<usize>() + self.prints.len() * size_of::<Print>()
    }

    /// Whether it covers everything up to `upto`.
    pub fn reaches(&self, upto: Option<&Resume>) -> bool {
        match (&self.end, upto) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(end), Some(upto)) => order(end, upto, false).is_ge(),
        }
    }

    /// Drops the rest behind `upto`, which it reaches.
    pub fn cut(&mut self, scope: &Scope, upto: Option<&Resume>) {
        assert!(self.reaches(upto), "a piece is only made shorter");
        let Some(upto) = upto.filter(|upto| self.end.as_ref() != Some(*upto)) else { return };
        self.end = Some(upto.clone());
        let kept = self.parts.partition_point(|part| part.whole.key <= upto.key);
        self.drop_parts(kept);
        if upto.clustering.is_none() {
            return;
        }
        if self.parts.last().is_some_and(|last| last.whole.key == upto.key) {
            let last = self.parts.len() - 1;
            self.prints.truncate(self.parts[last].prints_from);
            let partition = self.parts.pop().expect("it has a last one").whole;
            let mut page = ReadPage { partitions: vec![partition], ..ReadPage::default() };
            clip(&mut page, upto, false);
            page.partitions.into_iter().for_each(|partition| self.add(scope, partition));
        }
    }

    fn drop_parts(&mut self, kept: usize) {
        if let Some(first) = self.parts.get(kept) {
            self.prints.truncate(first.prints_from);
            self.parts.truncate(kept);
        }
    }

    /// The sums of so many buckets.
    pub fn sums(&self, buckets: u32) -> Vec<u64> {
        let mut out = vec![0u64; buckets as usize];
        for print in &self.prints {
            let sum = &mut out[print.bucket(buckets) as usize];
            *sum = sum.wrapping_add(print.content);
        }
        out
    }

    /// The contents of the buckets in `which`.
    pub fn contents(&self, buckets: u32, which: impl Fn(u32) -> bool) -> Vec<u64> {
        self.prints.iter().filter(|print| which(print.bucket(buckets))).map(|print| print.content).collect()
    }

    /// The elements of these contents, in their normal form; none when one of them is missing.
    pub fn fetch(&self, scope: &Scope, contents: &[u64]) -> Option<Vec<PartitionResult>> {
        let mut wanted = contents.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let mut found_count = 0;
        let found = self.elements_of(
            scope,
            |print| wanted.binary_search(&print.content).is_ok(),
            |_| {
                found_count += 1;
                true
            },
        );
        (found_count >= wanted.len()).then(|| found.into_iter().map(|(_, part)| part).collect())
    }

    /// The rows of the buckets in `which`, by the index of their part.
    pub(crate) fn rows_of(&self, scope: &Scope, buckets: u32, which: &Bits) -> Vec<(usize, PartitionResult)> {
        let is_row = |element: &Element| matches!(element, Element::Row(_) | Element::Static(_));
        let mut found = self.elements_of(scope, |print| which.has(print.bucket(buckets)), is_row);
        found.retain(|(_, part)| part.static_row.is_some() || !part.rows.is_empty());
        found
    }

    /// The elements that are `wanted` by their hashes and that `takes` accepts, in their normal form, of each part with a
    /// wanted one and by its index.
    fn elements_of(
        &self,
        scope: &Scope,
        wanted: impl Fn(&Print) -> bool,
        mut takes: impl FnMut(&Element) -> bool,
    ) -> Vec<(usize, PartitionResult)> {
        let mut out = Vec::new();
        let mut printer = Printer::new(&scope.table, scope.seed);
        for (at, part) in self.parts.iter().enumerate() {
            let upto = self.parts.get(at + 1).map_or(self.prints.len(), |next| next.prints_from);
            let prints = &self.prints[part.prints_from..upto];
            if !prints.iter().any(&wanted) {
                continue;
            }
            let mut elements = Vec::with_capacity(prints.len());
            let normal = part.normal.as_ref().unwrap_or(&part.whole).clone();
            printer.elements(normal, self.is_inner(&part.whole), &mut elements);
            let mut found = PartitionResult::new(part.whole.key.clone());
            for (print, element) in elements {
                if wanted(&print) && takes(&element) {
                    element.add_to(&mut found, &scope.table);
                }
            }
            out.push((at, found));
        }
        out
    }

    /// Replaces rows by those of the same keys; a row without one is removed. By the index of their part.
    pub(crate) fn replace_rows(
        &mut self,
        scope: &Scope,
        found: Vec<(usize, PartitionResult)>,
        whole: Vec<PartitionResult>,
    ) {
        if found.is_empty() {
            return;
        }
        let mut parts: Vec<PartitionResult> =
            std::mem::take(&mut self.parts).into_iter().map(|part| part.whole).collect();
        self.prints.clear();
        for ((at, found), whole) in found.into_iter().zip(whole) {
            let part = &mut parts[at];
            if found.static_row.is_some() {
                part.static_row = whole.static_row;
            }
            let is_found = |row: &Row| {
                found.rows.binary_search_by(|found| found.clustering.cmp(&row.clustering)).is_ok()
            };
            part.rows.retain(|row| !is_found(row));
            part.rows.extend(whole.rows.into_iter().filter(is_found));
            part.rows.sort_by(|a, b| a.clustering.cmp(&b.clustering));
        }
        parts.into_iter().for_each(|part| self.add(scope, part));
    }

    /// The deletions and newer rows here that hide parts of `updates`, which another node sent and this one lacked: as updates
    /// for the nodes that do not know them.
    pub fn hides(&self, scope: &Scope, updates: &[PartitionUpdate]) -> Vec<PartitionUpdate> {
        let mut out = Vec::new();
        for update in updates {
            let Ok(at) = self.parts.binary_search_by(|part| part.whole.key.cmp(&update.key)) else {
                continue;
            };
            let theirs = PartitionResult::from_update(update.clone(), false);
            let (answer, _) = meet(scope, &self.parts[at].whole, &theirs);
            if !answer.is_empty() {
                out.push(answer.into_update(&scope.table, false));
            }
        }
        out
    }
}

/// The part of `theirs`, which was received, that `mine` hides, and both merged.
pub(crate) fn meet(
    scope: &Scope,
    mine: &PartitionResult,
    theirs: &PartitionResult,
) -> (PartitionResult, PartitionResult) {
    let both = [std::slice::from_ref(mine), std::slice::from_ref(theirs)];
    let merged = merge(scope, &both).pop().unwrap_or_else(|| PartitionResult::new(theirs.key.clone()));
    let kept = normal(scope, &merged);
    let answer = hidden(theirs, kept.as_ref().unwrap_or(&merged), &merged);
    (answer, merged)
}

/// Whether a segment that begins behind `after` begins inside of this partition.
pub fn is_inner(after: Option<&Resume>, partition: &PartitionResult) -> bool {
    after.is_some_and(|after| after.clustering.is_some() && after.key == partition.key)
}

/// The part of `merged` that hides received updates (`theirs`) that are missing from the result (`kept`).
fn hidden(theirs: &PartitionResult, kept: &PartitionResult, merged: &PartitionResult) -> PartitionResult {
    let mut out = PartitionResult::new(theirs.key.clone());
    let mut is_hidden = !theirs.deletion.is_live() && theirs.deletion != kept.deletion;
    if theirs.static_row != kept.static_row && theirs.static_row.is_some() {
        out.static_row = merged.static_row.clone();
        is_hidden = true;
    }
    for told in &theirs.rows {
        if row_of(&kept.rows, &told.clustering) == Some(told) {
            continue;
        }
        is_hidden = true;
        out.rows.extend(row_of(&merged.rows, &told.clustering).cloned());
        if let Some(range) = merged.range_tombstones.around(&told.clustering) {
            out.range_tombstones.insert(range.clone());
        }
    }
    for told in theirs.range_tombstones.iter() {
        if kept.range_tombstones.has(told) {
            continue;
        }
        is_hidden = true;
        let rows = mutation::RowRange { start: told.start.clone(), end: told.end.clone() };
        merged
            .range_tombstones
            .overlapping(&rows)
            .for_each(|range| out.range_tombstones.insert(range.clone()));
    }
    if is_hidden && merged.deletion != theirs.deletion {
        out.deletion = merged.deletion;
    }
    out
}

/// Merges the partitions of several nodes, in ring order.
pub fn merge(scope: &Scope, inputs: &[impl AsRef<[PartitionResult]>]) -> Vec<PartitionResult> {
    let mut merger = Merger::new(scope.table.clone(), inputs.len(), false);
    for (input, partitions) in inputs.iter().enumerate() {
        let buffer = merger.buffer(input);
        partitions.as_ref().iter().for_each(|partition| fragments(partition, false, buffer));
        merger.end(input);
    }
    let mut page = PageBuilder::new(&command(scope, None, usize::MAX));
    loop {
        match merger.next() {
            Step::Fragment(fragment) => {
                page.push(fragment);
            }
            Step::End => return page.finish().partitions,
            Step::Need(_) => unreachable!("inputs are whole"),
        }
    }
}

/// A partition without everything that is past its grace; none when that changes nothing.
pub(crate) fn normal(scope: &Scope, partition: &PartitionResult) -> Option<PartitionResult> {
    let past = |deletion: &DeletionTime| !deletion.is_live() && deletion.local < scope.gc_before;
    let unchanged = !past(&partition.deletion)
        && !partition.range_tombstones.iter().any(|range| past(&range.deletion))
        && partition.rows.iter().chain(&partition.static_row).all(|row| keeps(scope, row));
    if unchanged {
        return None;
    }
    let rule = PurgeRule::new(scope.now, scope.gc_before);
    let mut purger = Purger::new(rule);
    let (mut whole, mut kept) = (FragmentBuffer::new(), FragmentBuffer::new());
    fragments(partition, false, &mut whole);
    let mut page = PageBuilder::new(&command(scope, None, usize::MAX));
    for fragment in whole {
        purger.push(fragment, |_| Timestamp::MAX, &mut kept);
        kept.drain(..).for_each(|fragment: Fragment| {
            page.push(fragment);
        });
    }
    let kept = page.finish().partitions.pop();
    Some(kept.unwrap_or_else(|| PartitionResult::new(partition.key.clone())))
}

/// Whether a row is its own normal form.
fn keeps(scope: &Scope, row: &Row) -> bool {
    let past = |deletion: &DeletionTime| !deletion.is_live() && deletion.local < scope.gc_before;
    let cell = |cell: &Cell| {
        let expired = cell.is_expiring() && cell.local_deletion <= scope.now;
        !expired && !(cell.is_tombstone() && cell.local_deletion < scope.gc_before)
    };
    let mark = row.liveness;
    !past(&row.deletion)
        && !(mark.ttl > 0 && mark.expires <= scope.now && mark.expires < scope.gc_before)
        && row.columns().iter().all(|(_, data)| match data {
            ColumnData::Simple(simple) => cell(simple),
            ColumnData::Complex(complex) => {
                !past(&complex.deletion) && complex.cells.iter().all(|element| cell(&element.cell))
            }
        })
}
