//! The stream of fragments out of one SSTable.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use mutation::fragment::FILL_BYTES_MAX;
use mutation::{
    Bound, ColumnSelection, DecoratedKey, DeletionTime, Fragment, FragmentBuffer, FragmentSource,
    PartitionRange, Slices, SourceError,
};
use schema::Table;
use stdx::Reader;

use super::items::{ItemReader, check_open, cost};
use super::sstable::Sstable;
use super::walk::{ForwardWalk, ReverseWalk, Walk};
use crate::format::{IndexCursor, RowIndex};
use crate::index::{Entry, PartitionHead};
use crate::io::Cursor;
use crate::prefix::{Kind, ParseError};
use crate::unfiltered::decode::{Item, ItemDecoder, Selection};
use crate::{SstableError, deletion};

/// A stream out of one SSTable.
pub struct SstableSource {
    pub(super) sstable: Rc<Sstable>,
    pub(super) decoder: Rc<ItemDecoder>,
    pub(super) selection: Selection,
    pub(super) slices: Rc<Slices>,
    reversed: bool,
    range: PartitionRange,
    plan: Plan,
    pub(super) data: Cursor,
    pub(super) walk: Walk,
    pub(super) items: ItemReader,
    /// The partition last begun, to check the order of partitions.
    last_key: Option<DecoratedKey>,
    /// About how many bytes the next fill appends.
    fill_bytes: usize,
}

/// How much the first fill of a read appends: most reads want a row or a small page, and rows that one of many SSTables has
/// decoded in vain are dropped. Each fill appends twice as much as the one before, up to [`FILL_BYTES_MAX`].
const FIRST_FILL_BYTES: usize = 1024;
const _: () = assert!(FIRST_FILL_BYTES <= FILL_BYTES_MAX, "fills grow");

/// How the next partition is found.
enum Plan {
    /// One partition, through filter, summary and index.
    Single(DecoratedKey),
    /// One after the other through the index, because parts of partitions are skipped.
    Indexed(Option<IndexCursor>),
    /// One after the other in the data, all of it; the flag says whether the first one was found.
    Sequential(bool),
    Ended,
}

/// Why the walk over items stops.
enum Pause {
    /// Enough was appended.
    Full,
    /// The item at the cursor needs attention.
    Parse(ParseError),
    /// The next slice begins somewhere else.
    LookUp,
    /// The partition has nothing more to give.
    Done,
}

impl SstableSource {
    /// How far the data is read, bytes before compression.
    pub fn position(&self) -> u64 {
        self.data.position()
    }

    pub(super) fn new(
        sstable: Rc<Sstable>,
        range: &PartitionRange,
        slices: &Rc<Slices>,
        columns: &ColumnSelection,
        reversed: bool,
        scan: bool,
    ) -> Self {
        let plan = match range.as_single() {
            Some(key) => Plan::Single(key.clone()),
            None if slices.is_all() && !reversed => Plan::Sequential(false),
            None => Plan::Indexed(None),
        };
        let decoder = sstable.decoder();
        Self {
            selection: decoder.selection(columns),
            decoder,
            slices: slices.clone(),
            reversed,
            range: range.clone(),
            plan,
            data: Cursor::new(sstable.data.clone(), 0, scan),
            walk: Walk::Outside,
            items: ItemReader::default(),
            last_key: None,
            fill_bytes: if scan { FILL_BYTES_MAX } else { FIRST_FILL_BYTES },
            sstable,
        }
    }

    /// Reads all columns, with the ids of `table`, a definition of the SSTable's table that differs from the present one in columns. To be
    /// called before the first fragment.
    ///
    /// # Errors
    /// [`SstableError::WrongTable`] when the types of the file are not those of the definition.
    pub fn under(mut self, table: &Table) -> Result<Self, SstableError> {
        assert!(self.last_key.is_none(), "the rows of a stream have ids of one definition");
        let Some(decoder) = self.sstable.decoder_under(table)? else { return Ok(self) };
        self.selection = decoder.selection(&ColumnSelection::All);
        self.decoder = Rc::new(decoder);
        Ok(self)
    }

    /// The next fragments; see [`FragmentSource::fill`].
    ///
    /// # Errors
    /// [`SstableError::Corrupt`] when the data or the index is damaged, [`SstableError::Disk`] when it cannot be read.
    pub async fn fill_next(&mut self, out: &mut FragmentBuffer) -> Result<bool, SstableError> {
        self.sstable.rt.maybe_yield().await;
        let before = out.len();
        let mut budget = self.fill_bytes;
        self.fill_bytes = (2 * budget).min(FILL_BYTES_MAX);
        while budget > 0 {
            match &mut self.walk {
                Walk::Outside => {
                    if !self.next_partition(out).await? {
                        break;
                    }
                    budget = budget.saturating_sub(256);
                }
                Walk::Forward(_) => match self.forward(out, &mut budget)? {
                    Pause::Full => break,
                    Pause::Parse(error) => self.data.resolve(error).await?,
                    Pause::LookUp => self.look_up().await?,
                    Pause::Done => self.end_partition(out),
                },
                Walk::Reverse(_) => {
                    if self.reverse(out, &mut budget).await? {
                        self.end_partition(out);
                    }
                }
            }
        }
        Ok(out.len() > before)
    }

    pub(super) fn reverse_walk(&mut self) -> &mut ReverseWalk {
        match &mut self.walk {
            Walk::Reverse(walk) => walk,
            Walk::Outside | Walk::Forward(_) => unreachable!("a reverse walk is under way"),
        }
    }

    fn end_partition(&mut self, out: &mut FragmentBuffer) {
        let announced = match &self.walk {
            Walk::Outside => None,
            Walk::Forward(walk) => Some(walk.announced),
            Walk::Reverse(walk) => Some(walk.announced),
        };
        assert!(
            announced.is_some_and(|announced| announced.is_live()),
            "a partition that ends has begun, and so have ended its range deletions"
        );
        out.push_back(Fragment::PartitionEnd);
        self.walk = Walk::Outside;
    }

    /// Finds the next partition and begins it; `false` when there is none.
    #[expect(clippy::expect_used, reason = "entries read in order have their keys")]
    async fn next_partition(&mut self, out: &mut FragmentBuffer) -> Result<bool, SstableError> {
        match std::mem::replace(&mut self.plan, Plan::Ended) {
            Plan::Ended => Ok(false),
            Plan::Single(key) => {
                if !self.sstable.may_contain(&key) {
                    return Ok(false);
                }
                let Some(entry) = self.sstable.index.find(&key).await? else {
                    return Ok(false);
                };
                self.begin(key, &entry, out).await?;
                Ok(true)
            }
            Plan::Indexed(index) => {
                let scan = self.data.is_scan();
                let mut index = match index {
                    Some(index) => index,
                    None => self.sstable.index.entries_from(&self.range.start, scan).await?,
                };
                let Some(mut entry) = index.next().await? else {
                    return self.nothing_follows();
                };
                let key = entry.key.take().expect("entries read in order have their keys");
                if self.range.end.is_before(&key) {
                    return Ok(false);
                }
                if self.last_key.as_ref().is_some_and(|last| *last >= key) {
                    return Err(index.corrupt("keys in ring order", format!("{key:?}")));
                }
                self.last_key = Some(key.clone());
                self.begin(key, &entry, out).await?;
                self.plan = Plan::Indexed(Some(index));
                Ok(true)
            }
            Plan::Sequential(found) => {
                let mut expected = None;
                if !found {
                    let scan = self.data.is_scan();
                    let mut index = self.sstable.index.entries_from(&self.range.start, scan).await?;
                    let Some(mut entry) = index.next().await? else {
                        return self.nothing_follows();
                    };
                    expected = entry.key.take();
                    self.data.seek(entry.position)?;
                }
                if self.data.is_at_end() {
                    return self.nothing_follows();
                }
                let start = self.data.position();
                let (key, deletion) = self.partition_header().await?;
                if let Some(expected) = expected.filter(|expected| *expected != key) {
                    return Err(self.data.corrupt(format!("partition {expected:?}"), format!("{key:?}")));
                }
                if self.range.end.is_before(&key) {
                    return Ok(false);
                }
                if !self.range.start.is_before(&key) {
                    return Err(self.data.corrupt("a partition of the range", format!("{key:?}")));
                }
                self.note_key(&key)?;
                out.push_back(Fragment::PartitionStart { key, deletion });
                self.static_row(out).await?;
                self.walk(start, None, true);
                self.plan = Plan::Sequential(true);
                Ok(true)
            }
        }
    }

    /// Takes note of the key of a partition that the data has next: it follows the one before.
    fn note_key(&mut self, key: &DecoratedKey) -> Result<(), SstableError> {
        if self.last_key.as_ref().is_some_and(|last| last >= key) {
            return Err(self.data.corrupt("keys in ring order", format!("{key:?}")));
        }
        self.last_key = Some(key.clone());
        Ok(())
    }

    /// The end of the file: the partition read last must be the SSTable's last, if the range reaches as far.
    fn nothing_follows(&self) -> Result<bool, SstableError> {
        let last = self.sstable.last();
        let is_complete = match &self.last_key {
            Some(read) => read == last,
            None => !self.range.start.is_before(last),
        };
        if is_complete || self.range.end.is_before(last) {
            return Ok(false);
        }
        Err(self.data.corrupt(format!("partition {last:?} at the end"), format!("{:?}", self.last_key)))
    }

    /// Begins the partition of an index entry.
    async fn begin(
        &mut self,
        key: DecoratedKey,
        entry: &Entry,
        out: &mut FragmentBuffer,
    ) -> Result<(), SstableError> {
        let row_index = self.sstable.index.row_index(entry).await?;
        self.data.seek(entry.position)?;
        let (found, deletion) = self.partition_header().await?;
        if found != key {
            return Err(self.data.corrupt(format!("partition {key:?}"), format!("{found:?}")));
        }
        out.push_back(Fragment::PartitionStart { key, deletion });
        self.static_row(out).await?;
        if let Some(PartitionHead { header_len, deletion: noted }) = row_index.as_ref().map(RowIndex::head) {
            assert!(self.data.position() >= entry.position, "a partition's head is behind its start");
            let len = self.data.position() - entry.position;
            if (header_len, noted) != (len, deletion) {
                let expected =
                    format!("a header of {header_len} bytes with {noted:?}, as the row index says");
                return Err(self.data.corrupt(expected, format!("{len} bytes with {deletion:?}")));
            }
        }
        self.walk(entry.position, row_index, false);
        Ok(())
    }

    /// Starts the way through the rows of the partition whose header was just read.
    fn walk(&mut self, start: u64, lookup: Option<RowIndex>, to_end: bool) {
        self.items.reset();
        self.walk = if self.reversed {
            let rows_at = self.data.position();
            Walk::Reverse(ReverseWalk::new(start, rows_at, lookup, self.slices.ranges().len()))
        } else {
            let from_bottom = self.slices.ranges().first().is_none_or(|first| first.start == Bound::bottom());
            Walk::Forward(ForwardWalk {
                start,
                look_up: lookup.is_some() && !from_bottom,
                lookup,
                to_end,
                slice: 0,
                entered: false,
                open: DeletionTime::LIVE,
                announced: DeletionTime::LIVE,
                expected: None,
            })
        };
    }

    async fn partition_header(&mut self) -> Result<(DecoratedKey, DeletionTime), SstableError> {
        loop {
            let bytes = self.data.bytes();
            let mut reader = Reader::new(bytes);
            let parsed = reader.bytes_u16().and_then(|key| Ok((key, deletion::read(&mut reader)?)));
            match parsed {
                Ok((key, deletion)) => {
                    let key = DecoratedKey::new(Bytes::copy_from_slice(key));
                    let len = bytes.len() - reader.len();
                    self.data.advance(len);
                    return Ok((key, deletion));
                }
                Err(short) => self.data.resolve(short.into()).await?,
            }
        }
    }

    async fn static_row(&mut self, out: &mut FragmentBuffer) -> Result<(), SstableError> {
        if !self.decoder.has_static() {
            return Ok(());
        }
        loop {
            match self.decoder.static_row(self.data.bytes(), &self.selection) {
                Ok((row, len)) => {
                    self.data.advance(len);
                    out.extend(row.map(Fragment::StaticRow));
                    return Ok(());
                }
                Err(error) => self.data.resolve(error).await?,
            }
        }
    }

    /// Goes to where the next slice begins, as the row index knows.
    async fn look_up(&mut self) -> Result<(), SstableError> {
        let Walk::Forward(walk) = &mut self.walk else {
            return Ok(());
        };
        walk.look_up = false;
        let (Some(lookup), Some(slice)) = (&mut walk.lookup, self.slices.ranges().get(walk.slice)) else {
            return Ok(());
        };
        let start = slice.start.position();
        let Some((block, info)) =
            lookup.first_where(&self.decoder, |info| info.last.as_slice() > start).await?
        else {
            // The partition ends before the slice begins; nothing is open there.
            walk.slice = self.slices.ranges().len();
            return Ok(());
        };
        let target = walk.start.saturating_add(info.offset);
        if target > self.data.position() {
            walk.open = lookup.open_before(block, &info, &self.decoder).await?;
            self.data.seek(target)?;
            walk.expected = Some(info.first);
        }
        Ok(())
    }

    /// Appends the partition's items in the bytes at hand, within the budget.
    #[expect(clippy::expect_used, reason = "the decoder refuses markers of other kinds")]
    fn forward(&mut self, out: &mut FragmentBuffer, budget: &mut usize) -> Result<Pause, SstableError> {
        let Self { walk: Walk::Forward(walk), data, decoder, items, slices, selection, sstable, .. } = self
        else {
            unreachable!("a forward walk is under way");
        };
        let slices = slices.ranges();
        loop {
            if walk.slice >= slices.len() && !walk.to_end {
                return Ok(Pause::Done);
            }
            if walk.look_up {
                return Ok(Pause::LookUp);
            }
            if *budget == 0 {
                return Ok(Pause::Full);
            }
            let (taken, len) = match decoder.item(data.bytes()) {
                Err(error) => return Ok(Pause::Parse(error)),
                Ok((Item::End, len)) => match walk.check_expected(&[]) {
                    Ok(()) => (None, len),
                    Err(error) => return Ok(Pause::Parse(error)),
                },
                Ok((Item::Row { flags, values, body }, len)) => {
                    let taken = items.take(decoder, &values, Kind::Row).and_then(|()| {
                        walk.check_expected(items.position())?;
                        if !walk.covers(items.position(), slices, out) {
                            return Ok(());
                        }
                        let row = decoder.row(flags, body, items.clustering(), selection)?;
                        *budget = budget.saturating_sub(cost(&row, len));
                        out.push_back(Fragment::Row(row));
                        Ok(())
                    });
                    (Some(taken), len)
                }
                Ok((Item::Marker { kind, values, ends, starts }, len)) => {
                    let taken = items.take(decoder, &values, kind).and_then(|()| {
                        walk.check_expected(items.position())?;
                        check_open(walk.open, ends)
                    });
                    let taken = taken.map(|()| {
                        let inside = walk.covers(items.position(), slices, out);
                        walk.open = starts;
                        if inside && walk.announced != starts {
                            let side = kind.side().expect("a marker has a side");
                            let bound = Bound::new(&sstable.table.borrow(), &values, side);
                            out.push_back(Fragment::RangeTombstoneChange { bound, deletion: starts });
                            walk.announced = starts;
                            *budget = budget.saturating_sub(128);
                        }
                    });
                    (Some(taken), len)
                }
            };
            match taken {
                Some(Ok(())) => {}
                Some(Err(error)) => return Ok(Pause::Parse(error)),
                None if walk.open.is_live() => {
                    data.advance(len);
                    return Ok(Pause::Done);
                }
                None => return Err(data.corrupt("the end of a range deletion", "the end of the partition")),
            }
            // The next lookup in the row index also gives the open deletion at its position.
            data.advance(len);
        }
    }
}

impl Sstable {
    /// The partitions of `range` that are in it, with the rows of `slices` in order (descending when `reversed`).
    /// Columns that are not selected come without their values, so that they still tell whether a row exists. Range
    /// deletions are clipped to the slices.
    pub fn read(
        self: &Rc<Self>,
        range: &PartitionRange,
        slices: &Rc<Slices>,
        columns: &Rc<ColumnSelection>,
        reversed: bool,
    ) -> SstableSource {
        SstableSource::new(self.clone(), range, slices, columns, reversed, false)
    }

    /// Everything, in large reads that leave the cache alone: for compaction and streaming.
    pub fn scan(self: &Rc<Self>, range: &PartitionRange) -> SstableSource {
        SstableSource::new(self.clone(), range, &Rc::new(Slices::all()), &ColumnSelection::All, false, true)
    }
}

impl FragmentSource for SstableSource {
    fn fill<'a>(
        &'a mut self,
        out: &'a mut FragmentBuffer,
    ) -> Pin<Box<dyn Future<Output = Result<bool, SourceError>> + 'a>> {
        Box::pin(async move { self.fill_next(out).await.map_err(|error| Box::new(error) as SourceError) })
    }
}
