//! Garbage collection of an SSTable that is written anew or merged with others: the data in it that SSTables beside these hide is left out.
//!
//! Partitions of the others are read beside those of the SSTable, row by row in the same order, so that memory is bounded however large a
//! partition is.

use std::rc::Rc;
use std::sync::Arc;

use mutation::merge::{Merger, Step};
use mutation::{
    ColumnSelection, DecoratedKey, DeletionTime, Fragment, FragmentBuffer, FragmentSource, Granularity,
    PartitionRange, Row, Slices, SourceError,
};
use schema::Table;
use sstable::filter::HashedKey;
use sstable::{Sstable, SstableSource};

/// The data that hides data of an SSTable.
#[derive(Clone)]
pub struct Hiding {
    /// The other SSTables.
    pub others: Vec<Rc<Sstable>>,
    /// The data of them that counts.
    pub granularity: Granularity,
}

/// The fragments of one SSTable without those that others hide.
pub(crate) struct Garbage {
    table: Arc<Table>,
    hiding: Hiding,
    partition: Option<OtherPartition>,
}

impl Garbage {
    pub(crate) fn new(table: Arc<Table>, hiding: Hiding) -> Self {
        Self { table, hiding, partition: None }
    }

    /// Drops hidden data from the next fragments of the SSTable, in their order.
    ///
    /// # Errors
    /// When another SSTable cannot be read.
    pub(crate) async fn drop_hidden(&mut self, fragments: &mut FragmentBuffer) -> Result<(), SourceError> {
        for _ in 0..fragments.len() {
            let Some(fragment) = fragments.pop_front() else { break };
            if let Some(kept) = self.kept(fragment).await? {
                fragments.push_back(kept);
            }
        }
        Ok(())
    }

    async fn kept(&mut self, fragment: Fragment) -> Result<Option<Fragment>, SourceError> {
        if let Fragment::PartitionStart { key, mut deletion } = fragment {
            self.partition = OtherPartition::open(&self.table, &self.hiding.others, &key).await?;
            if let Some(other) = &self.partition
                && !deletion.supersedes(&other.deletion)
            {
                deletion = DeletionTime::LIVE;
            }
            return Ok(Some(Fragment::PartitionStart { key, deletion }));
        }
        let Some(other) = &mut self.partition else { return Ok(Some(fragment)) };
        Ok(match fragment {
            Fragment::StaticRow(row) => {
                let version = other.static_row().await?;
                let hidden = other.deletion;
                self.reduced(row, hidden, version).map(Fragment::StaticRow)
            }
            Fragment::Row(row) => {
                let version = other.row_at(&row).await?;
                let hidden = other.deletion.max(other.open);
                self.reduced(row, hidden, version).map(Fragment::Row)
            }
            Fragment::PartitionEnd => {
                self.partition = None;
                Some(Fragment::PartitionEnd)
            }
            // A range deletion stays: it is small, and others may begin and end inside of it.
            change => Some(change),
        })
    }

    /// A row without the hidden part of it; none when nothing is left.
    fn reduced(&self, mut row: Row, hidden: DeletionTime, version: Option<Row>) -> Option<Row> {
        let own = version.as_ref().map_or(DeletionTime::LIVE, |version| version.deletion);
        row.delete_shadowed(hidden.max(own));
        if let (Granularity::Cell, Some(version)) = (self.hiding.granularity, &version) {
            row.delete_superseded(version, &self.table);
        }
        (!row.is_empty()).then_some(row)
    }
}

/// The versions that other SSTables have of a partition, merged, as far as they were read.
struct OtherPartition {
    merger: Merger,
    sources: Vec<SstableSource>,
    /// The deletion of all of it.
    deletion: DeletionTime,
    /// The range deletion that is in force where the reader is.
    open: DeletionTime,
    /// The next fragment.
    head: Option<Fragment>,
}

impl OtherPartition {
    /// The partition of a key; none when it is in no other SSTable.
    async fn open(
        table: &Arc<Table>,
        others: &[Rc<Sstable>],
        key: &DecoratedKey,
    ) -> Result<Option<Self>, SourceError> {
        let hashed = HashedKey::new(key);
        let (range, slices) = (PartitionRange::single(key), Rc::new(Slices::all()));
        let columns = Rc::new(ColumnSelection::All);
        let having = others.iter().filter(|other| other.may_contain_hashed(&hashed));
        let open = |other: &Rc<Sstable>| other.read(&range, &slices, &columns, false).under(table);
        let sources: Vec<SstableSource> = having.map(open).collect::<Result<_, _>>()?;
        if sources.is_empty() {
            return Ok(None);
        }
        let merger = Merger::new(table.clone(), sources.len(), false);
        let live = DeletionTime::LIVE;
        let mut opened = Self { merger, sources, deletion: live, open: live, head: None };
        opened.advance().await?;
        let Some(Fragment::PartitionStart { deletion, .. }) = opened.head else { return Ok(None) };
        opened.deletion = deletion;
        opened.advance().await?;
        Ok(Some(opened))
    }

    async fn advance(&mut self) -> Result<(), SourceError> {
        self.head = loop {
            match self.merger.next() {
                Step::Fragment(fragment) => break Some(fragment),
                Step::Need(input) => {
                    let source = self.sources.get_mut(input).expect("inputs of the merge");
                    if !source.fill(self.merger.buffer(input)).await? {
                        self.merger.end(input);
                    }
                }
                Step::End => break None,
            }
        };
        Ok(())
    }

    async fn static_row(&mut self) -> Result<Option<Row>, SourceError> {
        let Some(Fragment::StaticRow(row)) = &self.head else { return Ok(None) };
        let row = row.clone();
        self.advance().await?;
        Ok(Some(row))
    }

    /// The version of a row, and the range deletion in force at its place.
    async fn row_at(&mut self, row: &Row) -> Result<Option<Row>, SourceError> {
        let place = row.clustering.position();
        loop {
            match &self.head {
                Some(Fragment::Row(other)) if other.clustering.position() >= place => {
                    let is_version = other.clustering.position() == place;
                    return Ok(is_version.then(|| other.clone()));
                }
                Some(Fragment::RangeTombstoneChange { bound, deletion }) => {
                    if bound.position() > place {
                        return Ok(None);
                    }
                    self.open = *deletion;
                }
                Some(Fragment::Row(_) | Fragment::StaticRow(_)) => {}
                Some(Fragment::PartitionStart { .. } | Fragment::PartitionEnd) | None => return Ok(None),
            }
            self.advance().await?;
        }
    }
}
