//! The stream of the places that an index finds, as rows without columns.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use index::{
    Candidates, Definition, IndexFile, IndexFileError, IndexQuery, MemoryIndex, NearestQuery, NearestSearch,
    OrderedPlaces, OrderedScan, OrphanSearch, OrphanSource, Place, ScanSearch, Search, SearchError,
};
use mutation::{
    Cell, Clustering, ColumnData, Complex, ComplexCell, DecoratedKey, DeletionTime, Fragment, FragmentBuffer,
    LivenessInfo, PartitionRange, Row, Slices, Timestamp,
};
use schema::{Table, TableId};

use crate::ReadError;
use crate::engine::Inner;
use crate::live::LiveSstable;
use crate::read_request::Read;
use crate::store::Store;

/// Of the rows that stand for places.
const TIMESTAMP: Timestamp = 1;

/// Everything that an index has of a table.
struct Sources {
    definition: Arc<Definition>,
    memtables: Vec<Rc<MemoryIndex>>,
    /// With their SSTables, whose files stay meanwhile.
    files: Vec<(Rc<LiveSstable>, Rc<IndexFile>)>,
}

impl Sources {
    /// Of the index by this name, with the SSTables that overlap the range.
    fn of(store: &Store, name: &str, range: &PartitionRange) -> Result<Self, ReadError> {
        let unavailable = || ReadError::IndexUnavailable(name.to_owned());
        let definitions = store.memtables.definitions();
        let definition = definitions.iter().find(|definition| definition.name == name);
        let definition = definition.cloned().ok_or_else(unavailable)?;
        let memtables = store.memtables.indexes(&definition).ok_or_else(unavailable)?;
        let mut files = Vec::new();
        for live in store.set().overlapping(range) {
            let index = live.index(&definition).ok_or_else(unavailable)?;
            files.push((live, index));
        }
        Ok(Self { definition, memtables, files })
    }
}

/// The places of a query under way.
pub(crate) struct IndexReader {
    search: Search,
    sources: Sources,
    table: Arc<Table>,
    slices: Slices,
    inner: Rc<Inner>,
    /// The partition of the last place.
    open: Option<DecoratedKey>,
    has_ended: bool,
}

fn refused(name: &str, error: SearchError) -> ReadError {
    ReadError::Source(format!("index {name}: {error}").into())
}

/// See [`crate::Read::index`].
pub(crate) fn read(
    inner: &Rc<Inner>,
    store: &Store,
    wanted: &Read<'_>,
    query: &IndexQuery,
) -> Result<IndexReader, ReadError> {
    if wanted.reversed {
        return Err(ReadError::Source("the places of an index come in ring order only".into()));
    }
    let sources = Sources::of(store, &query.index, wanted.range)?;
    let search = Search::new(&sources.definition, &query.predicate, wanted.range, wanted.slices)
        .map_err(|error| refused(&query.index, error))?;
    Ok(IndexReader {
        search,
        sources,
        table: store.table(),
        slices: wanted.slices.clone(),
        inner: inner.clone(),
        open: None,
        has_ended: false,
    })
}

/// See [`crate::Engine::nearest`].
pub(crate) async fn nearest(
    inner: &Inner,
    table: TableId,
    query: &NearestQuery,
) -> Result<Candidates, ReadError> {
    let store = inner.store(table).ok_or(ReadError::UnknownTable(table))?;
    let all = PartitionRange::all();
    store.damages.refuse(&all)?;
    let sources = Sources::of(&store, &query.index, &all)?;
    let refused = |error| refused(&query.index, error);
    let mut search = NearestSearch::new(&sources.definition, query).map_err(refused)?;
    if search.needs_figures() {
        for memtable in &sources.memtables {
            search.measure_memory(memtable).await;
        }
        for (live, file) in &sources.files {
            let measured = search.measure_file(file).await;
            measured.map_err(|error| index_broke(inner, live, file, error))?;
        }
    }
    for memtable in &sources.memtables {
        search.ask_memory(memtable).await;
    }
    for (live, file) in &sources.files {
        search.ask_file(file).await.map_err(|error| index_broke(inner, live, file, error))?;
    }
    search.finish(&store.table()).map_err(refused)
}

/// See [`crate::Engine::scan_index`].
pub(crate) async fn scan(
    inner: &Inner,
    table: TableId,
    scan: &OrderedScan,
) -> Result<OrderedPlaces, ReadError> {
    let store = inner.store(table).ok_or(ReadError::UnknownTable(table))?;
    let range = scan.range();
    store.damages.refuse(&range)?;
    let sources = Sources::of(&store, &scan.index, &range)?;
    let table = store.table();
    let refused = |error| refused(&scan.index, error);
    let mut search = ScanSearch::new(&sources.definition, scan).map_err(refused)?;
    for memtable in &sources.memtables {
        search.ask_memory(memtable).await;
    }
    for (live, file) in &sources.files {
        search.ask_file(file).await.map_err(|error| index_broke(inner, live, file, error))?;
    }
    let mut found = OrderedPlaces { places: search.finish(&table).map_err(refused)?, ..Default::default() };
    if let Some(wanted) = &scan.unordered {
        let others = Sources::of(&store, &wanted.query.index, &range)?;
        let mut search = OrphanSearch::new(&others.definition, wanted, &range).map_err(refused)?;
        while let Some(which) = search.next() {
            let of = if which == OrphanSource::Others { &others } else { &sources };
            for memtable in &of.memtables {
                search.ask_memory(which, memtable).await;
            }
            for (live, file) in &of.files {
                let asked = search.ask_file(which, file).await;
                asked.map_err(|error| index_broke(inner, live, file, error))?;
            }
            search.take(which);
        }
        (found.unordered, found.has_more_unordered) = search.finish(&table).map_err(refused)?;
    }
    Ok(found)
}

/// The error of a search that an index file has failed.
fn index_broke(inner: &Inner, live: &LiveSstable, file: &Rc<IndexFile>, error: IndexFileError) -> ReadError {
    match error {
        IndexFileError::Disk(error) => ReadError::Source(Box::new(error)),
        IndexFileError::Unusable { .. } => {
            tracing::error!("{error}; it is made again, and queries of the index fail meanwhile");
            live.drop_index(file);
            inner.index_check.notify_one();
            ReadError::IndexUnavailable(file.definition().name.clone())
        }
    }
}

impl IndexReader {
    /// Whether everything was handed out.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Appends the next places; without one at the end.
    pub(crate) async fn fill(&mut self, out: &mut FragmentBuffer) -> Result<(), ReadError> {
        assert!(!self.has_ended, "an index that has ended is not asked again");
        while out.is_empty() && !self.has_ended {
            for memtable in &self.sources.memtables {
                self.search.ask_memory(memtable).await;
            }
            for (live, file) in &self.sources.files {
                let asked = self.search.ask_file(file).await;
                asked.map_err(|error| index_broke(&self.inner, live, file, error))?;
            }
            let taken = self.search.take(&self.table);
            let (places, is_more) = taken.map_err(|error| refused(&self.sources.definition.name, error))?;
            self.emit(places.into(), out);
            if !is_more {
                self.has_ended = true;
                if self.open.take().is_some() {
                    out.push_back(Fragment::PartitionEnd);
                }
            }
        }
        Ok(())
    }

    fn emit(&mut self, places: VecDeque<Place>, out: &mut FragmentBuffer) {
        for Place { key, clustering } in places {
            let row = match clustering {
                None if self.slices.is_all() => Fragment::StaticRow(static_row(&self.table)),
                Some(clustering) if self.slices.contains(&clustering) => {
                    let mut row = Row::new(clustering);
                    row.liveness = LivenessInfo::forever(TIMESTAMP);
                    Fragment::Row(row)
                }
                _ => continue,
            };
            if self.open.as_ref() != Some(&key) {
                if self.open.is_some() {
                    out.push_back(Fragment::PartitionEnd);
                }
                out.push_back(Fragment::PartitionStart { key: key.clone(), deletion: DeletionTime::LIVE });
                self.open = Some(key);
            }
            out.push_back(row);
        }
    }
}

/// A static row that lives.
fn static_row(table: &Table) -> Row {
    let cell = Cell::live(TIMESTAMP, Bytes::new());
    let columns = table.static_columns().first().map(|column| {
        let data = match column.is_complex() {
            false => ColumnData::Simple(cell),
            true => {
                let cells = vec![ComplexCell { path: Bytes::new(), cell }];
                ColumnData::Complex(Complex { cells, ..Complex::empty() })
            }
        };
        (column.id, data)
    });
    Row::from_columns(Clustering::empty(), columns.into_iter().collect())
}
