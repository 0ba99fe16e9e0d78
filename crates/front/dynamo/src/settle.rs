//! Intents that were met: the outcome of their transaction, the item that a reader sees meanwhile, and their replacement.

use std::collections::BTreeMap;

use exec::backend::Coordinator;
use items::Item;
use std::rc::Rc;

use crate::error::{ApiError, ErrorKind, Result};
use crate::intent::{Attempt, Effect, Intent};
use crate::record::{Status, decide};
use crate::store::Store;
use crate::table::{ApiTable, RowKey, RowWrite};

/// The error for an item that a transaction holds.
pub(crate) fn conflict() -> ApiError {
    ApiError::new(ErrorKind::TransactionConflict, "Transaction is ongoing for the item")
}

/// The write that replaces a committed or cancelled intent.
fn settled(intent: &Intent, committed: bool) -> RowWrite {
    match &intent.effect {
        Effect::Put(item) if committed => RowWrite::Put(Rc::new(item.clone())),
        Effect::Delete if committed => RowWrite::Delete,
        Effect::Update(set, removed) if committed => RowWrite::Commit(set.clone(), removed.clone()),
        _ => RowWrite::Release,
    }
}

impl<C: Coordinator> Store<'_, C> {
    /// Replaces an intent by its outcome; nothing when it is not there any more.
    pub(crate) async fn finish(
        &self,
        table: &ApiTable,
        key: RowKey,
        (record, attempt): (String, Attempt),
        committed: bool,
    ) -> Result<()> {
        let now = self.now();
        let command = table.read_rows(&key.partition, std::iter::once(&key.clustering), now);
        self.transact(&command, &mut |page, ballot| {
            let found = table.state_of(page, &key, now)?.intent;
            let own = found.filter(|intent| intent.record == record && intent.attempt == attempt);
            Ok(own.map(|intent| table.update(&key, &settled(&intent, committed), ballot, now)))
        })
        .await
    }

    /// Ends an intent that was met; an error when its transaction is not decided yet.
    pub(crate) async fn settle(&self, table: &ApiTable, key: &RowKey, intent: &Intent) -> Result<()> {
        let committed = match self.status(&intent.record, intent.attempt).await? {
            Status::Pending => return Err(conflict()),
            Status::Committed | Status::Applied => true,
            Status::Cancelled => false,
        };
        self.finish(table, key.clone(), (intent.record.clone(), intent.attempt), committed).await
    }

    /// The state of an attempt. One that its coordinator has abandoned is cancelled first.
    async fn status(&self, record: &str, attempt: Attempt) -> Result<Status> {
        match self.record(record).await? {
            Some(found) if found.attempt == attempt => {
                if !found.is_abandoned(self.executor.clock().wall_micros()) {
                    return Ok(found.status);
                }
                let table = self.records_table().await?;
                self.change_record(&table, record, |found| decide(found, attempt, Status::Cancelled)).await
            }
            _ => Ok(Status::Cancelled),
        }
    }

    /// The item that a reader sees where an intent is; `known` are attempts that were asked for before.
    pub(crate) async fn visible(
        &self,
        item: Option<Item>,
        key: &Item,
        intent: Option<&Intent>,
        known: &mut BTreeMap<Attempt, Status>,
    ) -> Result<Option<Item>> {
        let Some(intent) = intent else { return Ok(item) };
        let status = match known.get(&intent.attempt) {
            Some(status) => *status,
            None => {
                let status = self.status(&intent.record, intent.attempt).await?;
                known.insert(intent.attempt, status);
                status
            }
        };
        Ok(match status {
            Status::Committed | Status::Applied => intent.effect.apply(item, key),
            Status::Pending | Status::Cancelled => item,
        })
    }
}
