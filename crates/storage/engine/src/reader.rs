//! The stream that a read gives.

use memtable::MemtableSource;
use mutation::merge::{Merger, Step};
use mutation::{Fragment, FragmentBuffer};
use rt::preempt::Pace;

use crate::ReadError;
use crate::cached::{CachedSource, PopulatingInput};
use crate::index_reader::IndexReader;
use crate::input::SstableInput;

/// The result of [`EngineReader::try_next_sync`].
#[derive(Debug)]
pub enum SyncStep {
    /// The next fragment.
    Fragment(Fragment),
    /// The stream has ended.
    End,
    /// A file must be read first, or other tasks have waited long enough: await [`EngineReader::next`].
    Wait,
}

/// The fragments that a read asked for, merged from memtables, cache and SSTables. Rows hidden by deletions are gone; the
/// deletions themselves, and expired cells, are there.
pub struct EngineReader {
    /// Fragments ready to be handed on.
    ready: FragmentBuffer,
    rest: Rest,
}

/// Where fragments come from when none is ready.
enum Rest {
    None,
    /// One source in memory in which nothing hides anything.
    Plain(Box<Input>, Pace),
    Merge(Box<Merge>),
    /// The places that an index finds.
    Index(Box<IndexReader>),
}

/// Several sources, or one whose deletions the merge has to apply.
pub(crate) struct Merge {
    merger: Merger,
    inputs: Vec<Input>,
    pace: Pace,
}

/// One source of a read.
pub(crate) enum Input {
    /// A memtable.
    Memtable(MemtableSource),
    /// A partition of the row cache.
    Cached(CachedSource),
    /// A file.
    Sstable(SstableInput),
    /// All files that hold the partition, shown to the row cache.
    Populating(Box<PopulatingInput>),
}

impl Input {
    /// Appends a batch and says whether there was one, unless a file must be read for it.
    fn fill_now(&mut self, out: &mut FragmentBuffer) -> Option<bool> {
        match self {
            Self::Memtable(source) => Some(source.fill_now(out)),
            Self::Cached(source) => Some(source.fill_now(out)),
            Self::Sstable(_) | Self::Populating(_) => None,
        }
    }
}

impl EngineReader {
    /// Of fragments that are all there.
    pub(crate) fn of(ready: FragmentBuffer) -> Self {
        Self { ready, rest: Rest::None }
    }

    /// Of fragments that are there, and more of one source in memory.
    pub(crate) fn of_plain(ready: FragmentBuffer, source: Input) -> Self {
        let mut pace = Pace::new();
        pace.count(ready.len());
        Self { ready, rest: Rest::Plain(Box::new(source), pace) }
    }

    /// Of the places that an index finds.
    pub(crate) fn of_index(reader: IndexReader) -> Self {
        Self { ready: FragmentBuffer::new(), rest: Rest::Index(Box::new(reader)) }
    }

    /// Of several sources.
    pub(crate) fn of_merge(merger: Merger, inputs: Vec<Input>) -> Self {
        assert!(!inputs.is_empty(), "a merge has sources");
        let merge = Merge { merger, inputs, pace: Pace::new() };
        Self { ready: FragmentBuffer::new(), rest: Rest::Merge(Box::new(merge)) }
    }

    /// The next fragment; none at the end.
    ///
    /// # Errors
    /// [`ReadError::Source`] when an SSTable is damaged, cannot be read, or belongs to another table.
    pub async fn next(&mut self) -> Result<Option<Fragment>, ReadError> {
        loop {
            match self.try_next_sync()? {
                SyncStep::Fragment(fragment) => return Ok(Some(fragment)),
                SyncStep::End => return Ok(None),
                SyncStep::Wait => {}
            }
            match &mut self.rest {
                Rest::Merge(merge) => merge.fill().await?,
                Rest::Index(reader) => reader.fill(&mut self.ready).await?,
                Rest::Plain(source, pace) => {
                    pace.pause().await;
                    fill_plain(source, pace, &mut self.ready);
                    if self.ready.is_empty() {
                        return Ok(None);
                    }
                }
                Rest::None => unreachable!("only what is left to read waits"),
            }
        }
    }

    /// The next fragment if it is in memory.
    ///
    /// # Errors
    /// As [`EngineReader::next`].
    #[inline]
    pub fn try_next_sync(&mut self) -> Result<SyncStep, ReadError> {
        match self.ready.pop_front() {
            Some(fragment) => Ok(SyncStep::Fragment(fragment)),
            None => self.advance(),
        }
    }

    fn advance(&mut self) -> Result<SyncStep, ReadError> {
        match &mut self.rest {
            Rest::None => Ok(SyncStep::End),
            Rest::Plain(source, pace) => {
                if pace.is_due() {
                    return Ok(SyncStep::Wait);
                }
                fill_plain(source, pace, &mut self.ready);
                Ok(self.ready.pop_front().map_or(SyncStep::End, SyncStep::Fragment))
            }
            Rest::Merge(merge) => Ok(merge.advance()),
            Rest::Index(reader) => Ok(if reader.has_ended() { SyncStep::End } else { SyncStep::Wait }),
        }
    }
}

fn fill_plain(source: &mut Input, pace: &mut Pace, ready: &mut FragmentBuffer) {
    let filled = source.fill_now(ready);
    assert!(filled.is_some(), "plain sources are in memory");
    pace.count(ready.len());
}

impl Merge {
    /// The next fragment while no file is needed, and other tasks need not run.
    fn advance(&mut self) -> SyncStep {
        loop {
            match self.merger.next() {
                Step::Fragment(fragment) => return SyncStep::Fragment(fragment),
                Step::End => return SyncStep::End,
                Step::Need(_) if self.pace.is_due() => return SyncStep::Wait,
                Step::Need(input) => match self.fill_now(input) {
                    Some(true) => {}
                    Some(false) => self.merger.end(input),
                    None => return SyncStep::Wait,
                },
            }
        }
    }

    fn fill_now(&mut self, input: usize) -> Option<bool> {
        let buffer = self.merger.buffer(input);
        let filled = self.inputs[input].fill_now(buffer);
        assert!(filled != Some(false) || buffer.is_empty(), "a source that has ended gives nothing");
        self.pace.count(buffer.len());
        filled
    }

    /// Fills the input that the merge waits for.
    async fn fill(&mut self) -> Result<(), ReadError> {
        let Step::Need(input) = self.merger.next() else { unreachable!("a merge that waits needs an input") };
        if self.pace.is_due() {
            self.pace.pause().await;
        }
        let filled = match &mut self.inputs[input] {
            Input::Memtable(_) | Input::Cached(_) => self.fill_now(input).expect("it is in memory"),
            Input::Sstable(source) => source.fill(self.merger.buffer(input)).await?,
            Input::Populating(source) => source.fill(self.merger.buffer(input)).await?,
        };
        if !filled {
            assert!(self.merger.buffer(input).is_empty(), "a file that has ended gives nothing");
            self.merger.end(input);
        }
        Ok(())
    }
}
