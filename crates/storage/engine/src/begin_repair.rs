//! The begin of a repair of a table's part on this shard: damaged SSTables are salvaged, and a mark covers everything that SSTables hold
//! ([`crate::marks`]).

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::MaintenanceError;
use crate::engine::Inner;
use crate::store::Store;
use crate::watermark::{Marked, RepairedWatermark, is_covered};

/// See [`crate::Engine::take_mark`].
pub(crate) async fn take_mark(
    inner: &Rc<Inner>,
    store: &Rc<Store>,
    flush: bool,
) -> Result<Marked, MaintenanceError> {
    crate::salvage::salvage_all(inner, store).await?;
    if flush {
        crate::flush::flush(inner, store).await?;
    }
    store.damages.refuse_any()?;
    let _no_truncation = store.edits.one().await?;
    if store.dropped.get() {
        return Err(MaintenanceError::UnknownTable(store.id));
    }
    crate::flush::make_dir(inner, store).await?;
    let marks = &store.marks;
    if marks.epoch() == 0 {
        marks.begin(inner.rt.random_u64().max(1));
    }
    let set = store.set();
    if marks.last() == 0 || set.iter().any(|live| live.covered_by.get() == 0) {
        let number = marks.next();
        let uncovered = set.iter().filter(|live| live.covered_by.get() == 0);
        uncovered.for_each(|live| live.cover(number));
    }
    let mark = RepairedWatermark { epoch: marks.epoch(), number: marks.last() };
    assert!(
        set.iter().all(|live| is_covered(live.covered_by.get(), mark.number)),
        "a mark covers every SSTable of its moment"
    );
    let mut bytes = BTreeMap::new();
    for live in set.iter() {
        *bytes.entry(live.covered_by.get()).or_insert(0) += live.sstable.data_len();
    }
    // On disk before anybody builds on it.
    crate::marks::write(inner, store).await?;
    if !marks.knows(mark) {
        return Err(MaintenanceError::Cancelled);
    }
    note_salvaged(store, mark);
    Ok(Marked { mark, bytes })
}

/// The mark with which a repair begins that excludes the salvaged SSTables; the epoch of an earlier one may have ended.
fn note_salvaged(store: &Store, mark: RepairedWatermark) {
    for live in store.set().iter() {
        if let Some(salvaged) = &mut *live.salvaged.borrow_mut()
            && salvaged.since.epoch != mark.epoch
        {
            salvaged.since = mark;
        }
    }
}
