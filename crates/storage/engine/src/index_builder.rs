//! The task that makes the indexes of SSTables that are missing, and removes those that were dropped.

use std::rc::Rc;
use std::sync::Arc;

use index::{Definition, IndexFile};
use sstable::SstableError;
use stdx::murmur3::hash128;

use crate::compactions::RunningTask;
use crate::engine::Inner;
use crate::indexes::{Speed, build_index, index_failed, path};
use crate::live::LiveSstable;
use crate::stats::TaskKind;
use crate::store::Store;

/// Of so many data bytes on, building an index is worth a line of the log.
const BYTES_WORTH_A_LINE: u64 = 64 << 20;

/// Makes indexes that are missing; told when the schema changed, and looks from time to time.
pub(crate) async fn builder(inner: Rc<Inner>) {
    loop {
        inner.index_check.notified().await;
        for store in inner.stores_in_order() {
            if inner.health.is_stopped() {
                break;
            }
            build_missing(&inner, &store).await;
        }
    }
}

async fn build_missing(inner: &Rc<Inner>, store: &Rc<Store>) {
    let definitions = store.memtables.definitions();
    for live in store.set().iter() {
        forget_indexes(inner, store, live, &definitions).await;
    }
    if definitions.is_empty() {
        return;
    }
    if store.memtables.lacks_index() {
        // Its rows are indexed in the SSTable that they come to be in.
        crate::flush::start(inner, store, None);
    }
    let is_stopped = || inner.health.is_stopped();
    let mut has_failed = false;
    for definition in definitions.iter() {
        let lacking = lacking(store, definition);
        let bytes: u64 = lacking.iter().map(|live| live.sstable.data_len()).sum();
        let (name, table) = (&definition.name, store.table().full_name());
        let is_long = bytes >= BYTES_WORTH_A_LINE;
        let begun = inner.rt.now();
        let mut done = 0;
        let task = show(inner, store, definition, &lacking);
        let progress = task.as_ref().map(|task| &task.progress);
        for (at, live) in lacking.iter().enumerate() {
            if store.dropped.get() || inner.health.is_stopped() {
                return;
            }
            if !store.is_indexed(definition) {
                break;
            }
            if is_long {
                let eta = match done {
                    0 => String::new(),
                    done => {
                        let took = (inner.rt.now() - begun).as_secs_f64();
                        format!(", {:.0} s left", took / done as f64 * (bytes - done) as f64)
                    }
                };
                tracing::info!(
                    "building index {name} of {table}: SSTable {} of {}, {} of {} MiB{eta}",
                    at + 1,
                    lacking.len(),
                    done >> 20,
                    bytes >> 20
                );
            }
            let speed = Speed::Limited(&is_stopped, progress);
            if let Err(error) = build_index(inner, store, live, definition, speed).await {
                if matches!(error, SstableError::Corrupt(_)) {
                    // It is left out from now on, and repaired like one that a read found damaged.
                    store.met_damage(live, &error);
                }
                index_failed(store, definition, &error);
                has_failed = true;
            }
            done += live.sstable.data_len();
            assert!(done <= bytes, "no more is indexed than lacked the index");
        }
        if is_long {
            tracing::info!("index {name} of {table} is built on this shard");
        }
    }
    if !has_failed {
        store.indexes_failing.set(false);
    }
}

/// The readable SSTables without an index of a definition.
fn lacking(store: &Store, definition: &Definition) -> Vec<Rc<LiveSstable>> {
    let lacks = |live: &&Rc<LiveSstable>| !live.suspect.get() && live.index(definition).is_none();
    store.set().iter().filter(lacks).cloned().collect()
}

/// Has others see the build of an index of some SSTables, if there are any.
fn show(
    inner: &Inner,
    store: &Store,
    definition: &Definition,
    lacking: &[Rc<LiveSstable>],
) -> Option<Rc<RunningTask>> {
    if lacking.is_empty() {
        return None;
    }
    // By table and index, for nobody stops it by its id.
    let [high, low] = hash128(&[&store.id.0[..], definition.name.as_bytes()].concat(), 0);
    let id = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
    let operation = inner.compactions.operation(TaskKind::IndexBuild, store.table());
    let task = inner.compactions.show(id, &operation, lacking.len());
    task.progress.bytes_total.set(lacking.iter().map(|live| live.sstable.uncompressed_len()).sum());
    Some(task)
}

/// Removes the files of indexes that were dropped.
async fn forget_indexes(inner: &Inner, store: &Store, live: &LiveSstable, definitions: &[Arc<Definition>]) {
    let gone: Vec<Rc<IndexFile>> = live
        .indexes
        .borrow()
        .iter()
        .filter(|file| !definitions.contains(file.definition()))
        .cloned()
        .collect();
    for file in gone {
        live.drop_index(&file);
        if let Some(path) = path(&store.dir, live.sstable.descriptor(), file.definition()) {
            // Files that cannot be removed now are removed by the next start.
            let _ = inner.rt.disk().remove(&path).await;
        }
    }
}
