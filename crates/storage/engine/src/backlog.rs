//! The backlog of a shard's compactions.

use compaction::{Backlog, Strategy};

use crate::compact::{candidates, table_figures};
use crate::engine::Inner;
use crate::sstables::SstableSet;
use crate::store::{KnownBacklog, Store};

/// Bytes that compactions of a shard are to merge, those that run included.
pub(crate) fn bytes(inner: &Inner) -> u64 {
    let waiting: u64 = inner.stores_in_order().iter().map(|store| waiting_bytes(inner, store)).sum();
    waiting.saturating_add(inner.compactions.bytes_left())
}

/// The compactions that a table's SSTables are waiting for, besides those that run.
pub(crate) fn of_table(inner: &Inner, store: &Store, set: &SstableSet) -> Backlog {
    let strategy = Strategy::of(&store.table().options.compaction);
    strategy.backlog(&candidates(inner, store, set), &table_figures(inner, store))
}

/// The bytes of a table's backlog.
fn waiting_bytes(inner: &Inner, store: &Store) -> u64 {
    let set = store.set();
    if set.len() < 2 || store.auto_compaction_stopped.get() {
        return 0;
    }
    // A compaction that begins or ends changes the backlog, too.
    let running = inner.compactions.running();
    let known = store.backlog.get(
        &set,
        |known| known.running == running,
        || KnownBacklog { running, bytes: of_table(inner, store, &set).bytes },
    );
    known.bytes
}
