//! The stream of the places that an index finds, as rows without columns.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use index::{Definition, IndexFile, IndexFileError, IndexQuery, MemoryIndex, Place, Search, SearchError};
use mutation::{
    Cell, Clustering, ColumnData, Complex, ComplexCell, DecoratedKey, DeletionTime, Fragment, FragmentBuffer,
    LivenessInfo, Row, Slices, Timestamp,
};
use schema::Table;

use crate::engine::Inner;
use crate::live::LiveSstable;
use crate::read::Read;
use crate::store::Store;
use crate::{EngineReader, ReadError};

/// Of the rows that stand for places.
const TIMESTAMP: Timestamp = 1;

/// The places of a query under way.
pub(crate) struct IndexReader {
    search: Search,
    memtables: Vec<Rc<MemoryIndex>>,
    /// With their SSTables, whose files stay meanwhile.
    files: Vec<(Rc<LiveSstable>, Rc<IndexFile>)>,
    table: Arc<Table>,
    slices: Slices,
    inner: Rc<Inner>,
    name: String,
    /// The partition of the last place.
    open: Option<DecoratedKey>,
    has_ended: bool,
}

impl Inner {
    /// See [`crate::Read::index`].
    pub(crate) fn read_index(
        self: &Rc<Self>,
        store: &Store,
        wanted: &Read<'_>,
        query: &IndexQuery,
    ) -> Result<EngineReader, ReadError> {
        let unavailable = || ReadError::IndexUnavailable(query.index.clone());
        let refused =
            |error: SearchError| ReadError::Source(format!("index {}: {error}", query.index).into());
        if wanted.reversed {
            return Err(ReadError::Source("the places of an index come in ring order only".into()));
        }
        let definitions = store.memtables.definitions();
        let definition = definitions.iter().find(|definition| definition.name == query.index);
        let definition: &Definition = definition.ok_or_else(unavailable)?;
        let memtables = store.memtables.indexes(definition).ok_or_else(unavailable)?;
        let overlaps = |live: &&Rc<LiveSstable>| {
            !wanted.range.end.is_before(live.sstable.first())
                && wanted.range.start.is_before(live.sstable.last())
        };
        let mut files = Vec::new();
        for live in store.set().iter().filter(overlaps) {
            files.push((live.clone(), live.index(definition).ok_or_else(unavailable)?));
        }
        let search =
            Search::new(definition, &query.predicate, wanted.range, wanted.slices).map_err(refused)?;
        Ok(EngineReader::of_index(IndexReader {
            search,
            memtables,
            files,
            table: store.table(),
            slices: wanted.slices.clone(),
            inner: self.clone(),
            name: query.index.clone(),
            open: None,
            has_ended: false,
        }))
    }
}

impl IndexReader {
    /// Whether everything was handed out.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Appends the next places; without one at the end.
    pub(crate) async fn fill(&mut self, out: &mut FragmentBuffer) -> Result<(), ReadError> {
        while out.is_empty() && !self.has_ended {
            for memtable in &self.memtables {
                self.search.ask_memory(memtable).await;
            }
            for (live, file) in &self.files {
                match self.search.ask_file(file).await {
                    Ok(()) => {}
                    Err(IndexFileError::Disk(error)) => return Err(ReadError::Source(Box::new(error))),
                    Err(error @ IndexFileError::Unusable { .. }) => {
                        tracing::error!("{error}; it is made again, and queries of the index fail meanwhile");
                        live.drop_index(file);
                        self.inner.index_check.notify_one();
                        return Err(ReadError::IndexUnavailable(self.name.clone()));
                    }
                }
            }
            let taken = self.search.take(&self.table);
            let (places, is_more) =
                taken.map_err(|error| ReadError::Source(format!("index {}: {error}", self.name).into()))?;
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
