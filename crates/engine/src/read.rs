//! How a read finds its sources: memtables, then what of the SSTables can hold the partition.

use std::rc::Rc;

use memtable::{MemtableSource, PartitionCursor, Progress};
use mutation::fragment::FILL_BYTES_MAX;
use mutation::merge::Merger;
use mutation::{ColumnSelection, DecoratedKey, FragmentBuffer, PartitionRange, Slices};
use schema::TableId;

use crate::ReadError;
use crate::engine::Inner;
use crate::live::LiveSstable;
use crate::reader::{EngineReader, Input, SstableInput};
use crate::store::{Store, count};

/// What a read asks for, in the form in which sources share it.
struct Wanted<'a> {
    range: &'a PartitionRange,
    slices: &'a Slices,
    columns: &'a ColumnSelection,
    reversed: bool,
}

impl Inner {
    pub(crate) fn read(
        &self,
        table: TableId,
        range: &PartitionRange,
        slices: &Slices,
        columns: &ColumnSelection,
        reversed: bool,
        _bypass_cache: bool,
    ) -> Result<EngineReader, ReadError> {
        let store = self.store(table).ok_or(ReadError::UnknownTable(table))?;
        count(&store.counters.reads, 1);
        let wanted = Wanted { range, slices, columns, reversed };
        match range.as_single() {
            Some(key) => Ok(read_partition(&store, key, &wanted)),
            None => Ok(read_range(&store, &wanted)),
        }
    }
}

fn read_partition(store: &Rc<Store>, key: &DecoratedKey, wanted: &Wanted<'_>) -> EngineReader {
    let set = store.sstables.borrow();
    let candidates: Vec<Rc<LiveSstable>> =
        set.iter().filter(|live| live.sstable.may_contain(key)).cloned().collect();
    let counters = &store.counters;
    count(&counters.bloom_negatives, (set.len() - candidates.len()) as u64);
    drop(set);
    let active = store.active.borrow();
    if candidates.is_empty() && store.flushing.borrow().is_empty() && active.is_plain(key) {
        let (mut ready, mut cursor) = (FragmentBuffer::new(), PartitionCursor::default());
        let (slices, reversed) = (wanted.slices, wanted.reversed);
        let progress = active.read_partition(key, slices, reversed, &mut cursor, &mut ready, FILL_BYTES_MAX);
        return match progress {
            Progress::Absent | Progress::Finished => EngineReader::of(ready),
            Progress::More => {
                let source = MemtableSource::resume(&active, key, cursor, slices, reversed);
                EngineReader::of_memtable(ready, source)
            }
        };
    }
    drop(active);
    count(&counters.bloom_positives, candidates.len() as u64);
    count(&counters.sstables_read, candidates.len() as u64);
    let mut inputs: Vec<Input> = Vec::with_capacity(candidates.len() + 1);
    for memtable in store.memtables().iter().filter(|memtable| memtable.contains(key)) {
        let source = MemtableSource::new(memtable, wanted.range, wanted.slices, wanted.reversed);
        inputs.push(Input::Memtable(source));
    }
    add_sstables(store, candidates, wanted, true, &mut inputs);
    merge(store, wanted, inputs)
}

fn read_range(store: &Rc<Store>, wanted: &Wanted<'_>) -> EngineReader {
    let mut inputs: Vec<Input> = Vec::new();
    for memtable in store.memtables().iter().filter(|memtable| !memtable.is_empty()) {
        let source = MemtableSource::new(memtable, wanted.range, wanted.slices, wanted.reversed);
        inputs.push(Input::Memtable(source));
    }
    let overlaps = |live: &&Rc<LiveSstable>| {
        !wanted.range.end.is_before(live.sstable.first()) && wanted.range.start.is_before(live.sstable.last())
    };
    let candidates: Vec<Rc<LiveSstable>> = store.set().iter().filter(overlaps).cloned().collect();
    add_sstables(store, candidates, wanted, false, &mut inputs);
    merge(store, wanted, inputs)
}

fn add_sstables(
    store: &Rc<Store>,
    candidates: Vec<Rc<LiveSstable>>,
    wanted: &Wanted<'_>,
    judge: bool,
    inputs: &mut Vec<Input>,
) {
    if candidates.is_empty() {
        return;
    }
    let (slices, columns) = (Rc::new(wanted.slices.clone()), Rc::new(wanted.columns.clone()));
    for live in candidates {
        let source = live.sstable.read(wanted.range, &slices, &columns, wanted.reversed);
        let judge = judge.then(|| store.clone());
        inputs.push(Input::Sstable(SstableInput::new(source, live, judge)));
    }
}

fn merge(store: &Store, wanted: &Wanted<'_>, inputs: Vec<Input>) -> EngineReader {
    if inputs.is_empty() {
        return EngineReader::of(FragmentBuffer::new());
    }
    EngineReader::of_merge(Merger::new(store.table(), inputs.len(), wanted.reversed), inputs)
}
