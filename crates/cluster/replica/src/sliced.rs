//! A deletion that hides more rows than can be read at once, where views or a log of changes follow from them: as deletions of ranges that
//! hide fewer.

use mutation::{Bound, PartitionUpdate, RangeTombstone, RowRange, Seconds, Slices};

use crate::{Form, Keys, Limits, Partitions, Read, ReadCommand, Replica, ReplicaError};

/// Bytes of rows that one of them hides: a quarter of those that may be read for one write.
const SLICE_BYTES: usize = 4 << 20;

impl Replica {
    /// Deletions of ranges, in the order in which they are to be applied, that together hide the rows of a deletion of a partition or of one
    /// range; after those of a partition comes the deletion itself, which hides no row any more. None of other updates, and where there is
    /// too little to be divided.
    ///
    /// # Errors
    /// As [`Replica::read`]: the present rows say where the ranges end.
    pub(crate) async fn sliced(
        &self,
        whole: &PartitionUpdate,
    ) -> Result<Option<Vec<PartitionUpdate>>, ReplicaError> {
        let Some(range) = only_deletion(whole) else { return Ok(None) };
        let ends = self.ends_within(whole, &range).await?;
        if ends.is_empty() {
            return Ok(None);
        }
        let mut slices = Vec::with_capacity(ends.len() + 2);
        let mut start = range.start;
        for end in ends.into_iter().chain([range.end]) {
            assert!(start < end, "the ranges follow each other");
            let mut slice = PartitionUpdate::new(whole.table.clone(), whole.key.clone());
            let start = std::mem::replace(&mut start, end.clone());
            slice.add_range_tombstone(RangeTombstone { start, end, deletion: range.deletion });
            slices.push(slice);
        }
        if !whole.deletion.is_live() {
            slices.push(whole.clone());
        }
        Ok(Some(slices))
    }

    /// The ends of ranges of about [`SLICE_BYTES`] of rows within one, the last excepted.
    async fn ends_within(
        &self,
        whole: &PartitionUpdate,
        range: &RangeTombstone,
    ) -> Result<Vec<Bound>, ReplicaError> {
        let now = Seconds::try_from(self.rt().wall_micros() / 1_000_000).unwrap_or(0);
        let key = Partitions::Keys(Keys::from_elem(whole.key.clone(), 1));
        let within = RowRange { start: range.start.clone(), end: range.end.clone() };
        let mut command = ReadCommand {
            slices: Slices::new(vec![within]),
            limits: Limits { bytes: SLICE_BYTES, ..Limits::NONE },
            bypass_cache: true,
            form: Form::Whole,
            ..ReadCommand::all_of(whole.table.clone(), key, now)
        };
        let mut ends: Vec<Bound> = Vec::new();
        loop {
            let page = self.read(Read::of(&command).over_all_tombstones()).await?;
            let Some(more) = page.more else { return Ok(ends) };
            let Some(last) = &more.clustering else { return Ok(ends) };
            let end = Bound::after_row(last);
            if end >= range.end {
                return Ok(ends);
            }
            ends.push(end);
            command.resume = Some(more);
        }
    }
}

/// The range of the only deletion that an update consists of.
fn only_deletion(update: &PartitionUpdate) -> Option<RangeTombstone> {
    if update.static_row().is_some() || !update.rows().is_empty() {
        return None;
    }
    let mut ranges = update.range_tombstones.iter();
    match (update.deletion.is_live(), ranges.next(), ranges.next()) {
        (false, None, None) => {
            Some(RangeTombstone { start: Bound::bottom(), end: Bound::top(), deletion: update.deletion })
        }
        (true, Some(range), None) => Some(range.clone()),
        _ => None,
    }
}
