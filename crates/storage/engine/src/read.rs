//! How a read finds its sources: memtables, then the SSTables that can hold the partition.

use std::rc::Rc;

use memtable::{MemtableSource, OnlyRow, PartitionCursor, Progress};
use mutation::fragment::FILL_BYTES_MAX;
use mutation::merge::Merger;
use mutation::{ColumnSelection, DecoratedKey, FragmentBuffer, Row, Slices};
use schema::TableId;
use sstable::filter::HashedKey;

use crate::cached::{CachedSource, Collector, PopulatingInput};
use crate::engine::Inner;
use crate::input::SstableInput;
use crate::live::LiveSstable;
use crate::read_request::{Read, ReadScope, RowLookup};
use crate::reader::{EngineReader, Input};
use crate::store::{Store, count};
use crate::watermark::is_covered;
use crate::{Engine, ReadError};

impl Inner {
    pub(crate) fn read(self: &Rc<Self>, wanted: &Read<'_>) -> Result<EngineReader, ReadError> {
        let range = wanted.range;
        let store = self.store(wanted.table).ok_or(ReadError::UnknownTable(wanted.table))?;
        store.damages.refuse(range)?;
        if let Some(query) = wanted.index {
            return crate::index_reader::read(self, &store, wanted, query).map(EngineReader::of_index);
        }
        if let ReadScope::Above(mark) = wanted.scope {
            return match store.marks.knows(mark) {
                true => Ok(read_range(&store, wanted, mark.number)),
                false => {
                    Err(ReadError::Source("what was repaired of the table was forgotten meanwhile".into()))
                }
            };
        }
        count(&store.counters.reads, 1);
        match range.as_single() {
            Some(key) => {
                store.sample_read(key);
                Ok(self.read_partition(&store, key, wanted))
            }
            None => Ok(read_range(&store, wanted, 0)),
        }
    }
}

/// A batch of one plain source, and where to go on.
fn plain(
    wanted: &Read<'_>,
    read: impl FnOnce(&mut PartitionCursor, &mut FragmentBuffer) -> Progress,
    rest: impl FnOnce(PartitionCursor, &Read<'_>) -> Input,
) -> EngineReader {
    let (mut ready, mut cursor) = (FragmentBuffer::new(), PartitionCursor::default());
    match read(&mut cursor, &mut ready) {
        Progress::Absent | Progress::Finished => EngineReader::of(ready),
        Progress::More => EngineReader::of_plain(ready, rest(cursor, wanted)),
    }
}

/// Hands the row that a source has, merged with that of later sources, to `visit`; none where they have more than one row.
#[inline]
fn visit_with<T>(
    found: OnlyRow<'_>,
    newer: Option<Row>,
    store: &Store,
    visit: impl FnOnce(Option<&Row>) -> Option<T>,
) -> Option<T> {
    match (found, newer) {
        (OnlyRow::More, _) => None,
        (OnlyRow::Absent, newer) => visit(newer.as_ref()),
        (OnlyRow::Row(row), None) => visit(Some(row)),
        (OnlyRow::Row(row), Some(newer)) if row.clustering != newer.clustering => None,
        (OnlyRow::Row(row), Some(mut newer)) => {
            store.of_table(|table| newer.merge(row.clone(), table));
            visit(Some(&newer))
        }
    }
}

impl Store {
    /// The only row that the memtables have for a lookup, if they have one; none where they have more than one row, deletions, or
    /// rows that are to be recast.
    fn only_row_of_memtables(&self, lookup: &RowLookup<'_>) -> Option<Option<Row>> {
        if self.has_dropped() && !self.memtables.is_one() {
            // A memtable that was closed by the drop of a column has rows of the definition before.
            return None;
        }
        let mut newer = None;
        let all_known = self.memtables.all_of(|memtable| {
            let merge = |found: OnlyRow<'_>| visit_with(found, newer.take(), self, |row| Some(row.cloned()));
            let merged = memtable.only_row(lookup.key, lookup.slices, !lookup.values_only, merge);
            merged.map(|merged| newer = merged).is_some()
        });
        let is_within = |row: &Row| lookup.slices.contains(&row.clustering);
        assert!(newer.as_ref().is_none_or(is_within), "a lookup finds rows of its slices");
        all_known.then_some(newer)
    }
}

impl Inner {
    /// Hands the only row of a partition to `visit`, where memory knows all of it; the result is none when the partition has to be read.
    #[inline]
    pub(crate) fn visit_only_row<T>(
        &self,
        table: TableId,
        lookup: &RowLookup<'_>,
        visit: impl FnOnce(Option<&Row>) -> Option<T>,
    ) -> Result<Option<T>, ReadError> {
        let stores = self.tables.current();
        let store = stores.get(&table).ok_or(ReadError::UnknownTable(table))?;
        if !store.damages.is_empty() {
            return Ok(None);
        }
        let files = store.sstables.current();
        let seen = if files.is_empty() && store.memtables.is_one() {
            let RowLookup { key, slices, values_only, .. } = *lookup;
            let visit = |found: OnlyRow<'_>| visit_with(found, None, store, visit);
            store.memtables.active().only_row(key, slices, !values_only, visit)
        } else {
            let Some(newer) = store.only_row_of_memtables(lookup) else { return Ok(None) };
            let hides_files =
                |row: &Row| store.of_table(|table| row.whole_since(table)) > Some(files.newest());
            if files.is_empty() || lookup.values_only && newer.as_ref().is_some_and(hides_files) {
                visit(newer.as_ref())
            } else {
                self.visit_cached(store, lookup, newer, visit)
            }
        };
        if seen.is_some() {
            count(&store.counters.reads, 1);
            Engine::read_opens(self, store, 0);
            store.sample_read(lookup.key);
        }
        Ok(seen)
    }

    /// The same of a row of which files may hold something, where the cache has all of that.
    fn visit_cached<T>(
        &self,
        store: &Store,
        lookup: &RowLookup<'_>,
        newer: Option<Row>,
        visit: impl FnOnce(Option<&Row>) -> Option<T>,
    ) -> Option<T> {
        if lookup.bypass_cache {
            return None;
        }
        assert!(!store.sstables.current().is_empty(), "the cache holds rows of files");
        let cached = self.cache.partition(store.id, lookup.key, lookup.slices)?;
        let visit = |found: OnlyRow<'_>| visit_with(found, newer, store, visit);
        let seen = cached.only_row(lookup.slices, !lookup.values_only, visit);
        count(&store.counters.cache_hits, u64::from(seen.is_some()));
        seen
    }

    fn read_partition(&self, store: &Rc<Store>, key: &DecoratedKey, wanted: &Read<'_>) -> EngineReader {
        let (slices, reversed) = (wanted.slices, wanted.reversed);
        // The cached content of a partition is all that SSTables hold of it: their filters need not be asked.
        let cached = match wanted.bypasses_cache() || store.sstables.current().is_empty() {
            true => None,
            false => self.cache.partition(store.id, key, slices),
        };
        let candidates = match &cached {
            Some(_) => Vec::new(),
            None => candidates_of(store, key, slices, wanted.takes_salvaged()),
        };
        Engine::read_opens(self, store, candidates.len());
        let active = store.memtables.active();
        let alone = store.memtables.is_one();
        if cached.is_none() && candidates.is_empty() && alone && active.is_plain(key) {
            return plain(
                wanted,
                |cursor, out| active.read_partition(key, slices, reversed, cursor, out, FILL_BYTES_MAX),
                |cursor, wanted| {
                    let source = MemtableSource::resume(&active, key, cursor, wanted.slices, wanted.reversed);
                    Input::Memtable(source)
                },
            );
        }
        if let Some(cached) = &cached {
            count(&store.counters.cache_hits, 1);
            if alone && !active.contains(key) && cached.is_plain() {
                return plain(
                    wanted,
                    |cursor, out| cached.read(slices, reversed, cursor, out, FILL_BYTES_MAX),
                    |cursor, wanted| {
                        let source =
                            CachedSource::new(cached.clone(), cursor, wanted.slices, wanted.reversed);
                        Input::Cached(source)
                    },
                );
            }
        }
        drop(active);
        let mut inputs: Vec<Input> = Vec::with_capacity(candidates.len() + 1);
        for memtable in store.memtables.all().iter().filter(|memtable| memtable.contains(key)) {
            let source = store
                .of_table(|table| MemtableSource::new(memtable, wanted.range, slices, reversed).under(table));
            inputs.push(Input::Memtable(source));
        }
        match cached {
            Some(cached) => {
                let source = CachedSource::new(cached, PartitionCursor::default(), slices, reversed);
                inputs.push(Input::Cached(source));
            }
            None if candidates.is_empty() => {}
            None => self.add_files(store, key, candidates, wanted, &mut inputs),
        }
        merge(store, wanted, inputs)
    }

    /// The files that may hold a partition; their rows go into the cache unless that is to be bypassed.
    fn add_files(
        &self,
        store: &Rc<Store>,
        key: &DecoratedKey,
        candidates: Vec<Rc<LiveSstable>>,
        wanted: &Read<'_>,
        inputs: &mut Vec<Input>,
    ) {
        assert!(!candidates.is_empty(), "files are read where one may hold the partition");
        count(&store.counters.bloom_positives, candidates.len() as u64);
        count(&store.counters.sstables_read, candidates.len() as u64);
        if wanted.bypasses_cache() {
            inputs.extend(sstable_inputs(store, candidates, wanted, true).map(Input::Sstable));
            return;
        }
        count(&store.counters.cache_misses, 1);
        // The cache keeps all columns, whichever this read wants.
        let all = Read { columns: &ColumnSelection::All, ..*wanted };
        let files: Vec<SstableInput> = sstable_inputs(store, candidates, &all, true).collect();
        let merger = Merger::new(store.table(), files.len(), wanted.reversed);
        let collector = Collector::new(&self.cache, store.table(), key, wanted.slices, wanted.reversed);
        inputs.push(Input::Populating(Box::new(PopulatingInput::new(merger, files, collector))));
    }
}

impl Inner {
    /// The sources from which a read of a partition would be answered now.
    pub(crate) fn sources_of(&self, table: TableId, key: &DecoratedKey, slices: &Slices) -> ReadSources {
        let Some(store) = self.store(table) else { return ReadSources::default() };
        let Candidates { sstables, bloom_skipped, clustering_skipped } = Candidates::of(&store, key, slices);
        let sstables: Vec<String> =
            sstables.iter().map(|live| live.sstable.descriptor().generation.to_string()).collect();
        ReadSources {
            memtables: store.memtables.all().iter().filter(|memtable| memtable.contains(key)).count(),
            bloom_skipped,
            clustering_skipped,
            cached: !sstables.is_empty() && self.cache.partition(store.id, key, slices).is_some(),
            sstables,
        }
    }
}

/// The sources of a read of a partition; for traces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadSources {
    /// Memtables that hold something of it.
    pub memtables: usize,
    /// SSTables that do not hold it, as their bloom filters say.
    pub bloom_skipped: usize,
    /// SSTables that may hold it, and no row of those that are read.
    pub clustering_skipped: usize,
    /// Generations of the SSTables that may hold something of the rows that are read.
    pub sstables: Vec<String>,
    /// Whether the row cache has the rows of those SSTables.
    pub cached: bool,
}

/// The SSTables that may hold something of some rows of a partition.
struct Candidates {
    sstables: Vec<Rc<LiveSstable>>,
    /// SSTables that do not hold the partition.
    bloom_skipped: usize,
    /// SSTables that may hold it, and none of the rows.
    clustering_skipped: usize,
}

impl Candidates {
    fn of(store: &Store, key: &DecoratedKey, slices: &Slices) -> Self {
        let set = store.sstables.current();
        let hashed = HashedKey::new(key);
        let mut sstables: Vec<Rc<LiveSstable>> = Vec::new();
        set.holding(&hashed, |live| sstables.push(live.clone()));
        let may_hold = sstables.len();
        sstables.retain(|live| live.sstable.may_contain_rows(slices));
        let clustering_skipped = may_hold - sstables.len();
        Self { sstables, bloom_skipped: set.len() - may_hold, clustering_skipped }
    }
}

/// The SSTables that a read of these rows of a partition opens.
fn candidates_of(store: &Store, key: &DecoratedKey, slices: &Slices, repairs: bool) -> Vec<Rc<LiveSstable>> {
    let Candidates { mut sstables, bloom_skipped, .. } = Candidates::of(store, key, slices);
    count(&store.counters.bloom_negatives, bloom_skipped as u64);
    if repairs {
        sstables.retain(|live| live.salvaged.borrow().is_none());
    }
    sstables
}

/// Reads memtables, and of the SSTables those that a number does not cover.
fn read_range(store: &Rc<Store>, wanted: &Read<'_>, above: u64) -> EngineReader {
    let mut inputs: Vec<Input> = Vec::new();
    for memtable in store.memtables.all().iter().filter(|memtable| !memtable.is_empty()) {
        let source = store.of_table(|table| {
            MemtableSource::new(memtable, wanted.range, wanted.slices, wanted.reversed).under(table)
        });
        inputs.push(Input::Memtable(source));
    }
    let mut candidates = store.set().overlapping(wanted.range);
    candidates.retain(|live| {
        !is_covered(live.covered_by.get(), above)
            && !(wanted.takes_salvaged() && live.salvaged.borrow().is_some())
    });
    inputs.extend(sstable_inputs(store, candidates, wanted, false).map(Input::Sstable));
    merge(store, wanted, inputs)
}

fn sstable_inputs<'a>(
    store: &'a Rc<Store>,
    candidates: Vec<Rc<LiveSstable>>,
    wanted: &'a Read<'_>,
    judge: bool,
) -> impl Iterator<Item = SstableInput> + 'a {
    let (slices, columns) = (Rc::new(wanted.slices.clone()), Rc::new(wanted.columns.clone()));
    candidates.into_iter().map(move |live| {
        let source = live.sstable.read(wanted.range, &slices, &columns, wanted.reversed);
        SstableInput::new(source, live, store.clone(), judge)
    })
}

fn merge(store: &Store, wanted: &Read<'_>, inputs: Vec<Input>) -> EngineReader {
    if inputs.is_empty() {
        return EngineReader::of(FragmentBuffer::new());
    }
    EngineReader::of_merge(Merger::new(store.table(), inputs.len(), wanted.reversed), inputs)
}
