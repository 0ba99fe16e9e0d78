//! Intents that were met: the outcome of their transaction, the item that a reader sees meanwhile, and their replacement.

use std::collections::BTreeMap;

use exec::backend::Coordinator;
use items::Item;

use crate::error::{ApiError, ErrorKind, Result};
use crate::intent::{Attempt, Effect, Intent, Prepared};
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
        Effect::Put(item) if committed => RowWrite::Put(item.clone()),
        Effect::Delete if committed => RowWrite::Delete,
        Effect::Update(set, removed) if committed => RowWrite::Commit(set.clone(), removed.clone()),
        _ => RowWrite::Release,
    }
}

/// Whether the outcome of an intent is written without agreement, at a time of its own. Several nodes may write the same outcome, which a log of
/// changes would show; and a read has to repair an outcome that only some replicas have, before the next agreed write builds on it.
fn is_settled_by_time(table: &ApiTable) -> bool {
    let options = &table.table.options;
    !options.cdc.enabled && options.read_repair.eq_ignore_ascii_case("BLOCKING")
}

impl<C: Coordinator> Store<'_, C> {
    /// Replaces an intent by its outcome; nothing when it is not there any more.
    pub(crate) async fn finish(
        &self,
        table: &ApiTable,
        key: &RowKey,
        prepared: &Prepared,
        committed: bool,
    ) -> Result<()> {
        let intent = &*prepared.intent;
        if !is_settled_by_time(table) {
            return self.finish_by_agreement(table, key, (&intent.record, intent.attempt), committed).await;
        }
        let outcome = settled(intent, committed);
        self.write(vec![table.update(key, &outcome, prepared.outcome_at(), self.now())]).await
    }

    /// Replaces the intent of an attempt that an item may have by its outcome.
    pub(crate) async fn finish_by_agreement(
        &self,
        table: &ApiTable,
        key: &RowKey,
        (record, attempt): (&str, Attempt),
        committed: bool,
    ) -> Result<()> {
        let now = self.now();
        let command = table.read_rows(&key.partition, std::iter::once(&key.clustering), now);
        self.transact(&command, &mut |page, ballot| {
            let found = table.state_of(page, key, now)?.intent.map(|found| found.intent);
            let own = found.filter(|intent| intent.record == record && intent.attempt == attempt);
            Ok(own.map(|intent| table.update(key, &settled(&intent, committed), ballot, now)))
        })
        .await
    }

    /// Ends an intent that was met; an error when its transaction is not decided yet.
    pub(crate) async fn settle(&self, table: &ApiTable, key: &RowKey, prepared: &Prepared) -> Result<()> {
        let intent = &prepared.intent;
        let committed = match self.status(&intent.record, intent.attempt).await? {
            Status::Pending => return Err(conflict()),
            Status::Committed | Status::Applied => true,
            Status::Cancelled => false,
        };
        self.finish(table, key, prepared, committed).await
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
        prepared: Option<&Prepared>,
        known: &mut BTreeMap<Attempt, Status>,
    ) -> Result<Option<Item>> {
        let Some(Prepared { intent, .. }) = prepared else { return Ok(item) };
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
