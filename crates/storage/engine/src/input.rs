//! One SSTable as a source of a read.

use std::rc::Rc;

use mutation::{FragmentBuffer, FragmentSource};
use sstable::SstableSource;

use crate::ReadError;
use crate::damage::damage_in;
use crate::live::LiveSstable;
use crate::store::{Store, count};

/// An SSTable that a read goes through; keeps its files alive.
pub(crate) struct SstableInput {
    source: SstableSource,
    live: Rc<LiveSstable>,
    store: Rc<Store>,
    /// Its bloom filter let a single partition through; whether rightly is known after the first fill.
    judge: bool,
}

impl SstableInput {
    pub(crate) fn new(source: SstableSource, live: Rc<LiveSstable>, store: Rc<Store>, judge: bool) -> Self {
        Self { source, live, store, judge }
    }

    pub(crate) async fn fill(&mut self, out: &mut FragmentBuffer) -> Result<bool, ReadError> {
        let more = self.source.fill(out).await.map_err(|error| {
            if let Some(damage) = damage_in(&*error) {
                self.store.met_damage(&self.live, damage);
            }
            ReadError::Source(error)
        })?;
        if std::mem::take(&mut self.judge) && !more {
            count(&self.store.counters.bloom_false, 1);
        }
        Ok(more)
    }
}
