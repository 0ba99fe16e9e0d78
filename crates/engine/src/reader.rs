//! The stream that a read gives.

use std::rc::Rc;

use memtable::MemtableSource;
use mutation::merge::{Merger, Step};
use mutation::{Fragment, FragmentBuffer, FragmentSource};
use sstable::SstableSource;

use crate::ReadError;
use crate::cached::{CachedSource, PopulatingInput};
use crate::live::LiveSstable;
use crate::store::{Store, count};

/// What [`EngineReader::try_next_sync`] has to say.
#[derive(Debug)]
pub enum SyncStep {
    /// The next fragment.
    Fragment(Fragment),
    /// The stream has ended.
    End,
    /// A file must be read first: await [`EngineReader::next`].
    Wait,
}

/// The fragments that a read asked for, merged from memtables, cache and SSTables. What deletions hide is gone; the
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
    Plain(Box<Input>),
    Merge(Box<Merge>),
}

/// Several sources, or one that needs the merge's eye for what deletions hide.
pub(crate) struct Merge {
    merger: Merger,
    inputs: Vec<Input>,
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

    async fn fill(&mut self, out: &mut FragmentBuffer) -> Result<bool, ReadError> {
        match self {
            Self::Memtable(source) => Ok(source.fill_now(out)),
            Self::Cached(source) => Ok(source.fill_now(out)),
            Self::Sstable(source) => source.fill(out).await,
            Self::Populating(source) => source.fill(out).await,
        }
    }
}

/// An SSTable that a read goes through; keeps its files alive.
pub(crate) struct SstableInput {
    source: SstableSource,
    _live: Rc<LiveSstable>,
    /// Its bloom filter let a single partition through; whether rightly is known after the first fill.
    judge: Option<Rc<Store>>,
}

impl SstableInput {
    pub(crate) fn new(source: SstableSource, live: Rc<LiveSstable>, judge: Option<Rc<Store>>) -> Self {
        Self { source, _live: live, judge }
    }

    pub(crate) async fn fill(&mut self, out: &mut FragmentBuffer) -> Result<bool, ReadError> {
        let more = self.source.fill(out).await.map_err(ReadError::Source)?;
        if let Some(store) = self.judge.take()
            && !more
        {
            count(&store.counters.bloom_false, 1);
        }
        Ok(more)
    }
}

impl EngineReader {
    /// Of fragments that are all there.
    pub(crate) fn of(ready: FragmentBuffer) -> Self {
        Self { ready, rest: Rest::None }
    }

    /// Of fragments that are there, and more of one source in memory.
    pub(crate) fn of_plain(ready: FragmentBuffer, source: Input) -> Self {
        Self { ready, rest: Rest::Plain(Box::new(source)) }
    }

    /// Of several sources.
    pub(crate) fn of_merge(merger: Merger, inputs: Vec<Input>) -> Self {
        Self { ready: FragmentBuffer::new(), rest: Rest::Merge(Box::new(Merge { merger, inputs })) }
    }

    /// The next fragment; none at the end.
    pub async fn next(&mut self) -> Result<Option<Fragment>, ReadError> {
        loop {
            match self.try_next_sync()? {
                SyncStep::Fragment(fragment) => return Ok(Some(fragment)),
                SyncStep::End => return Ok(None),
                SyncStep::Wait => {}
            }
            let Rest::Merge(merge) = &mut self.rest else { unreachable!("only merges wait") };
            merge.fill().await?;
        }
    }

    /// The next fragment if it is in memory.
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
            Rest::Plain(source) => {
                let filled = source.fill_now(&mut self.ready);
                assert!(filled.is_some(), "plain sources are in memory");
                Ok(self.ready.pop_front().map_or(SyncStep::End, SyncStep::Fragment))
            }
            Rest::Merge(merge) => Ok(merge.advance()),
        }
    }
}

impl Merge {
    /// The next fragment while no file is needed.
    fn advance(&mut self) -> SyncStep {
        loop {
            match self.merger.next() {
                Step::Fragment(fragment) => return SyncStep::Fragment(fragment),
                Step::End => return SyncStep::End,
                Step::Need(input) => match self.inputs[input].fill_now(self.merger.buffer(input)) {
                    Some(true) => {}
                    Some(false) => self.merger.end(input),
                    None => return SyncStep::Wait,
                },
            }
        }
    }

    /// Fills the input that the merge waits for.
    async fn fill(&mut self) -> Result<(), ReadError> {
        let Step::Need(input) = self.merger.next() else { unreachable!("a merge that waits needs an input") };
        if !self.inputs[input].fill(self.merger.buffer(input)).await? {
            self.merger.end(input);
        }
        Ok(())
    }
}
