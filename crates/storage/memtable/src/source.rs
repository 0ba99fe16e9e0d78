//! A memtable as a stream of fragments.

use std::future::{Future, ready};
use std::pin::Pin;

use mutation::fragment::FILL_BYTES_MAX;
use mutation::{
    DecoratedKey, FragmentBuffer, FragmentSource, PartitionRange, Recast, RingPosition, Slices, SourceError,
};
use schema::Table;

use crate::{Memtable, PartitionCursor, Progress};

/// Reads the partitions of a range from a memtable that may be written meanwhile.
pub struct MemtableSource {
    memtable: Memtable,
    from: RingPosition,
    end: RingPosition,
    slices: Slices,
    reversed: bool,
    current: Option<(DecoratedKey, PartitionCursor)>,
    /// The memtable was closed under an earlier definition of its table.
    recast: Option<Box<Recast>>,
}

impl MemtableSource {
    /// Reads `slices` of every partition of `range`, rows in descending order when `reversed`.
    pub fn new(memtable: &Memtable, range: &PartitionRange, slices: &Slices, reversed: bool) -> Self {
        Self {
            memtable: memtable.clone(),
            from: range.start.clone(),
            end: range.end.clone(),
            slices: slices.clone(),
            reversed,
            current: None,
            recast: None,
        }
    }

    /// Hands rows on as rows of `table`, the present definition, where the memtable has an earlier one.
    pub fn under(mut self, table: &Table) -> Self {
        let own = self.memtable.table();
        self.recast = match std::ptr::eq(&*own, table) {
            true => None,
            false => Recast::new(&own, table).map(Box::new),
        };
        self
    }

    /// Resumes in a partition that was read in part.
    pub fn resume(
        memtable: &Memtable,
        key: &DecoratedKey,
        cursor: PartitionCursor,
        slices: &Slices,
        reversed: bool,
    ) -> Self {
        let place = RingPosition::AfterKey(key.clone());
        Self {
            memtable: memtable.clone(),
            from: place.clone(),
            end: place,
            slices: slices.clone(),
            reversed,
            current: Some((key.clone(), cursor)),
            recast: None,
        }
    }

    /// Appends about [`FILL_BYTES_MAX`] bytes of fragments; false when there are none left.
    pub fn fill_now(&mut self, out: &mut FragmentBuffer) -> bool {
        let before = out.len();
        let mut seen = before;
        let mut bytes = 0;
        while bytes < FILL_BYTES_MAX {
            if self.current.is_none() {
                let Some(key) = self.memtable.first_key(&self.from, &self.end) else { break };
                self.from = RingPosition::AfterKey(key.clone());
                self.current = Some((key, PartitionCursor::default()));
            }
            let (key, cursor) = self.current.as_mut().expect("just set");
            let budget = FILL_BYTES_MAX - bytes;
            let progress =
                self.memtable.read_partition(key, &self.slices, self.reversed, cursor, out, budget);
            if progress != Progress::More {
                self.current = None;
            }
            bytes += out.range(seen..).map(mutation::Fragment::memory_size).sum::<usize>();
            if let Some(recast) = &self.recast {
                let mut added = out.split_off(seen);
                added.retain_mut(|fragment| recast.fragment(fragment));
                out.append(&mut added);
            }
            seen = out.len();
        }
        out.len() > before
    }
}

impl FragmentSource for MemtableSource {
    fn fill<'a>(
        &'a mut self,
        out: &'a mut FragmentBuffer,
    ) -> Pin<Box<dyn Future<Output = Result<bool, SourceError>> + 'a>> {
        let more = self.fill_now(out);
        Box::pin(ready(Ok(more)))
    }
}
