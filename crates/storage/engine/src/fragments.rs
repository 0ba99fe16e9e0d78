//! The fragments of one partition as each source of this shard has them, unmerged, for the diagnosis of a table
//! (docs/design/mutation-fragments.md). The sources are its memtables, the row cache, and its SSTables.

use std::rc::Rc;

use cache::{Cache, CachedPartition};
use memtable::{MemtableSource, PartitionCursor};
use mutation::{
    Bound, Clustering, ColumnSelection, DecoratedKey, Fragment, FragmentBuffer, PartitionRange, RowRange,
    Slices,
};
use schema::TableId;
use sstable::Component;
use sstable::filter::HashedKey;

use crate::cached::CachedSource;
use crate::engine::Inner;
use crate::input::SstableInput;
use crate::read_request::{Read, ReadScope};
use crate::reader::Input;
use crate::store::Store;
use crate::{Engine, ReadError};

/// The name of the row cache as a source.
const ROW_CACHE: &str = "row-cache";

/// The place of a fragment among those of its partition in one source, in their order.
#[derive(Clone, Debug, PartialEq)]
pub enum FragmentPlace {
    /// That of the partition's start.
    Start,
    /// That of the static row.
    Static,
    /// That of a row.
    Row(Clustering),
    /// That of a change of the range deletion in force.
    Change(Bound),
    /// That of the partition's end.
    End,
}

impl FragmentPlace {
    /// The place of a fragment.
    pub fn of(fragment: &Fragment) -> Self {
        match fragment {
            Fragment::PartitionStart { .. } => Self::Start,
            Fragment::StaticRow(_) => Self::Static,
            Fragment::Row(row) => Self::Row(row.clustering.clone()),
            Fragment::RangeTombstoneChange { bound, .. } => Self::Change(bound.clone()),
            Fragment::PartitionEnd => Self::End,
        }
    }

    /// Places compare as these do.
    fn rank(&self) -> (u8, &[u8]) {
        match self {
            Self::Start => (0, &[]),
            Self::Static => (1, &[]),
            Self::Row(key) => (2, key.position()),
            Self::Change(bound) => (2, bound.position()),
            Self::End => (3, &[]),
        }
    }

    /// From where rows are read, so that everything after this place is read with the range deletion in force there known: a change at the
    /// bound itself is one that was there before.
    fn read_from(&self) -> Bound {
        match self {
            Self::Start | Self::Static => Bound::bottom(),
            Self::Row(key) => Bound::before_row(key),
            Self::Change(bound) => bound.clone(),
            Self::End => Bound::top(),
        }
    }
}

/// A read of one partition in one source.
#[derive(Clone, Debug)]
pub struct FragmentsRead {
    /// The table.
    pub table: TableId,
    /// The partition.
    pub key: DecoratedKey,
    /// The source, by the name that [`Engine::fragment_sources`] gives.
    pub source: String,
    /// Only fragments after this place.
    pub after: Option<FragmentPlace>,
    /// A page ends when its fragments take so many bytes.
    pub bytes: usize,
}

/// Some fragments of a partition in a source.
#[derive(Clone, Debug, Default)]
pub struct FragmentsPage {
    /// In their order.
    pub fragments: Vec<Fragment>,
    /// Whether none follow.
    pub is_last: bool,
}

/// One source, opened.
enum Source {
    Memory(Input),
    Sstable(Box<SstableInput>),
}

impl Source {
    async fn fill(&mut self, out: &mut FragmentBuffer) -> Result<bool, ReadError> {
        match self {
            Self::Memory(Input::Memtable(source)) => Ok(source.fill_now(out)),
            Self::Memory(Input::Cached(source)) => Ok(source.fill_now(out)),
            Self::Memory(_) => unreachable!("files are not in memory"),
            Self::Sstable(source) => source.fill(out).await,
        }
    }
}

/// The part of a partition that the row cache knows, within a range.
fn cached(
    cache: &Cache,
    store: &Store,
    key: &DecoratedKey,
    within: &RowRange,
) -> Option<(CachedPartition, Slices)> {
    let known = cache.known(store.id, key)?;
    let clip = |range: &RowRange| RowRange {
        start: range.start.clone().max(within.start.clone()),
        end: range.end.clone().min(within.end.clone()),
    };
    let ranges = known.ranges().iter().map(clip).filter(|range| !range.is_empty()).collect();
    let slices = Slices::new(ranges);
    cache.partition(store.id, key, &slices).map(|partition| (partition, slices))
}

fn sources(inner: &Inner, table: TableId, key: &DecoratedKey) -> Result<Vec<String>, ReadError> {
    let store = inner.store(table).ok_or(ReadError::UnknownTable(table))?;
    let mut names: Vec<String> = Vec::new();
    for (at, memtable) in store.memtables.all().iter().enumerate() {
        if memtable.contains(key) {
            names.push(format!("memtable:{at}"));
        }
    }
    if inner.cache.known(table, key).is_some() {
        names.push(ROW_CACHE.to_owned());
    }
    store.set().holding(&HashedKey::new(key), |live| {
        names.push(format!("sstable:{}", live.sstable.descriptor().path(Component::Data).display()));
    });
    names.sort();
    Ok(names)
}

/// Opens a source; none when it is not there any more.
fn open_source(inner: &Inner, store: &Rc<Store>, read: &FragmentsRead) -> Option<Source> {
    let range = PartitionRange::single(&read.key);
    let start = read.after.as_ref().map_or(Bound::bottom(), FragmentPlace::read_from);
    let within = RowRange { start, end: Bound::top() };
    let slices = Slices::new(vec![within.clone()]);
    let (kind, id) = read.source.split_once(':').unwrap_or((&read.source, ""));
    match kind {
        "memtable" => {
            let memtables = store.memtables.all();
            let memtable = memtables.get(id.parse::<usize>().ok()?)?;
            let source =
                store.of_table(|table| MemtableSource::new(memtable, &range, &slices, false).under(table));
            Some(Source::Memory(Input::Memtable(source)))
        }
        ROW_CACHE => {
            let (partition, slices) = cached(&inner.cache, store, &read.key, &within)?;
            let source = CachedSource::new(partition, PartitionCursor::default(), &slices, false);
            Some(Source::Memory(Input::Cached(source)))
        }
        "sstable" => {
            let set = store.set();
            let is_it = |path: std::path::PathBuf| path.as_os_str() == id;
            let live = set.iter().find(|live| is_it(live.sstable.descriptor().path(Component::Data)))?;
            let source = live.sstable.read(&range, &Rc::new(slices), &Rc::new(ColumnSelection::All), false);
            Some(Source::Sstable(Box::new(SstableInput::new(source, live.clone(), store.clone(), false))))
        }
        _ => None,
    }
}

async fn read_page(inner: &Inner, read: &FragmentsRead) -> Result<FragmentsPage, ReadError> {
    let store = inner.store(read.table).ok_or(ReadError::UnknownTable(read.table))?;
    let mut page = FragmentsPage { fragments: Vec::new(), is_last: true };
    let Some(mut source) = open_source(inner, &store, read) else { return Ok(page) };
    let (mut filled, mut bytes) = (FragmentBuffer::new(), 0);
    let after = read.after.as_ref().map(FragmentPlace::rank);
    let table = store.table();
    while source.fill(&mut filled).await? {
        for mut fragment in filled.drain(..) {
            let place = FragmentPlace::of(&fragment);
            if after.is_some_and(|after| place.rank() <= after) || !fragment.keep_columns(&table) {
                continue;
            }
            bytes += fragment.memory_size();
            page.fragments.push(fragment);
        }
        if bytes >= read.bytes {
            let ended = matches!(page.fragments.last(), Some(Fragment::PartitionEnd));
            return Ok(FragmentsPage { is_last: ended, ..page });
        }
        inner.rt.maybe_yield().await;
    }
    Ok(page)
}

impl Engine {
    /// The names of the sources that may hold something of a partition, in their order as text: `memtable:` with a number from 0, the active
    /// one's, `row-cache`, and `sstable:` with the path of the data file. An SSTable may turn out to hold nothing of it.
    ///
    /// # Errors
    /// [`ReadError::UnknownTable`], [`ReadError::Stopped`].
    pub fn fragment_sources(&self, table: TableId, key: &DecoratedKey) -> Result<Vec<String>, ReadError> {
        self.0.admit_read()?;
        sources(&self.0, table, key)
    }

    /// Reads fragments of a partition in one source. A source that is not there any more has none.
    ///
    /// # Errors
    /// [`ReadError::UnknownTable`], [`ReadError::Stopped`]; [`ReadError::Source`] when the SSTable is damaged or cannot be read.
    pub async fn read_fragments(&self, read: &FragmentsRead) -> Result<FragmentsPage, ReadError> {
        self.0.admit_read()?;
        read_page(&self.0, read).await
    }

    /// The keys of at most so many partitions of a range that this shard has anything of, deletions included, in ring order.
    ///
    /// # Errors
    /// As [`Engine::read`].
    pub async fn partition_keys(
        &self,
        table: TableId,
        range: &PartitionRange,
        count_max: usize,
    ) -> Result<Vec<DecoratedKey>, ReadError> {
        let slices = Slices::none();
        let columns = ColumnSelection::Some(Vec::new().into());
        let scope = ReadScope::BypassCache;
        let read = Read { columns: &columns, scope, ..Read::new(table, range, &slices) };
        let mut reader = self.read(&read)?;
        let mut keys = Vec::new();
        while keys.len() < count_max
            && let Some(fragment) = reader.next().await?
        {
            if let Fragment::PartitionStart { key, .. } = fragment {
                keys.push(key);
            }
        }
        Ok(keys)
    }
}
