//! Files of dropped tables are removed concurrently with later decisions of the cluster: of a keyspace of 1,000 tables, or of a table of 1,000
//! SSTables that gets a snapshot first, this takes longer than a client waits for a statement.
//!
//! A crash in the middle loses nothing: the drop is on disk before the schema without the table is ([`DroppedTable`]), and the next
//! start finishes it.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use cluster::DroppedTable;
use cluster::group::Group;
use futures_util::StreamExt;
use futures_util::stream::iter;
use replica::TableOperation;
use rt::sync::{Notify, Watch};
use schema::{Schema, TableId};

use crate::Coordinator;

/// Tables whose files are removed concurrently.
const TABLES_AT_ONCE: usize = 4;
/// How long a schema change waits for the removal: most end before, and the client of a DROP finds the snapshot there.
const WAIT_MAX: Duration = Duration::from_secs(3);
/// How long until a directory is looked at again that could not be removed: readers use its files.
const AGAIN_AFTER: Duration = Duration::from_secs(30);

/// The tables whose files shard 0 has yet to remove, round by round.
pub(crate) struct Removals {
    waiting: RefCell<Vec<TableId>>,
    /// The last round that was asked for.
    asked: Cell<u64>,
    wake: Notify,
    /// The last round that has ended.
    done: Watch<u64>,
}

impl Removals {
    /// Nothing is requested yet.
    pub(crate) fn new() -> Self {
        Self { waiting: RefCell::default(), asked: Cell::new(0), wake: Notify::new(), done: Watch::new(0) }
    }

    async fn ended(&self, round: u64) {
        let mut done = self.done.reader();
        while *self.done.get() < round && done.changed().await.is_ok() {}
    }
}

impl Coordinator {
    /// Has the files of these tables removed, which no shard uses any more, and looks again at those of earlier drops. Waits a while for it.
    pub(crate) async fn remove_tables(&self, removals: &Removals, tables: Vec<TableId>) {
        assert_eq!(self.shard(), 0, "shard 0 removes tables");
        removals.waiting.borrow_mut().extend(tables);
        let round = removals.asked.get() + 1;
        removals.asked.set(round);
        removals.wake.notify_one();
        if self.context().rt().timeout(WAIT_MAX, removals.ended(round)).await.is_err() {
            tracing::info!("the files of dropped tables are still being removed; schema changes go on");
        }
    }

    /// Carries out the requested removals, until it is cancelled.
    pub(crate) async fn run_removals(&self, removals: &Removals, group: &Group) {
        assert_eq!(self.shard(), 0, "shard 0 removes tables");
        let mut finished = true;
        loop {
            if *removals.done.get() == removals.asked.get() {
                let wake = removals.wake.notified();
                match finished {
                    true => wake.await,
                    false => drop(self.context().rt().timeout(AGAIN_AFTER, wake).await),
                }
            }
            let round = removals.asked.get();
            assert!(*removals.done.get() <= round, "a round ends after it was asked for");
            let tables = removals.waiting.take();
            let at_micros = self.context().rt().wall_micros();
            iter(tables)
                .for_each_concurrent(TABLES_AT_ONCE, |table| self.remove_table(table, at_micros))
                .await;
            finished = self.finish_drops(group, &self.context().schema()).await;
            removals.done.set(round);
        }
    }

    async fn remove_table(&self, table: TableId, at_micros: i64) {
        self.context().rt().buggify("schema: the files of a dropped table are removed").await;
        let operation = TableOperation::Drop { at_micros };
        // The table is gone for everyone: files that cannot be removed now are no failure of the statement.
        if let Err(error) = self.context().replica().table_operation(table, operation).await {
            tracing::warn!("removing the files of a dropped table is left to the next start: {error}");
        }
    }

    /// Removes the directories of tables that every shard has dropped. False when some are left to a later call or the next start: readers
    /// use them.
    async fn finish_drops(&self, group: &Group, schema: &Schema) -> bool {
        let (mut finished, mut left) = (Vec::new(), false);
        // The log may be ahead of the engines' schema: a table that they still have keeps its directory.
        let gone = |dropped: &DroppedTable| schema.table_by_id(dropped.id).is_none();
        for dropped in group.unfinished_drops().into_iter().filter(gone) {
            match self
                .context()
                .replica()
                .remove_dropped_dir(&dropped.keyspace, &dropped.name, dropped.id)
                .await
            {
                Ok(true) => finished.push(dropped.id),
                Ok(false) => left = true,
                Err(error) => tracing::warn!("the directory of a dropped table stays: {error}"),
            }
        }
        if !finished.is_empty()
            && let Err(error) = group.forget_drops(&finished).await
        {
            tracing::warn!("that tables are dropped wholly will be found again at the next start: {error}");
        }
        !left
    }
}
