//! The sweep: transactions whose coordinator has died are finished although nobody meets their intents. Each node looks at the records
//! of coordinators of its datacenter of which it is the first replica there: elsewhere intents may be missing that are on their way, and
//! the transaction would seem to be carried out.

use std::time::Duration;

use exec::backend::Coordinator;
use items::Item;
use schema::Replication;

use crate::error::Result;
use crate::ranges::OwnPages;
use crate::record::{self, Record, Status};
use crate::store::{Store, TRANSACTIONS_KEYSPACE};
use crate::table::{self, ApiTable, RowKey};
use crate::transaction::{Own, Participant};

/// How often a node looks.
pub(crate) const INTERVAL: Duration = Duration::from_secs(60);
impl<C: Coordinator> Store<'_, C> {
    /// Finishes abandoned transactions of others; returns their number.
    pub(crate) async fn sweep(&self) -> Result<u64> {
        let Some(table) = record::table(&self.executor.coordinator().schema()) else { return Ok(0) };
        let mut pages = OwnPages::of_datacenter(self, table.clone());
        let (mut count, mut failure) = (0, None);
        while let Some(page) = pages.next_readable(self, &mut failure).await {
            for found in record::records(&table, &page, self.now()) {
                match found {
                    Ok((key, record)) if self.is_of_datacenter(&record) => {
                        count += u64::from(self.finish_abandoned(&key, record).await);
                    }
                    Ok(_) => {}
                    Err(error) => failure = Some(error),
                }
            }
        }
        failure.map_or(Ok(count), Err)
    }

    /// Whether a record is swept in this datacenter: that of its coordinator, where its intents are; any where that is gone. A pending one
    /// is swept in any where that has no replicas of records: its cancellation needs no intent.
    fn is_of_datacenter(&self, record: &Record) -> bool {
        let Some(name) = &record.datacenter else { return true };
        let coordinator = self.executor.coordinator();
        let schema = coordinator.schema();
        let lacks_records = match schema.keyspace(TRANSACTIONS_KEYSPACE).map(|keyspace| &keyspace.replication)
        {
            Some(Replication::NetworkTopology { factors }) => {
                !factors.get(name).is_some_and(|copies| *copies > 0)
            }
            _ => false,
        };
        *name == self.datacenter()
            || !coordinator.view().datacenter_sizes().contains_key(name.as_str())
            || record.status == Status::Pending && lacks_records
    }

    /// Whether there was something to finish.
    async fn finish_abandoned(&self, key: &str, record: Record) -> bool {
        let schema = self.executor.coordinator().schema();
        let find = |(name, key): (String, Item)| -> Option<(ApiTable, RowKey, Item)> {
            // A table that was dropped meanwhile has no intents.
            let table = table::find(&schema, &name).ok()?;
            let row = table.key(&key).ok()?;
            Some((table, row, key))
        };
        let now = self.executor.clock().wall_micros();
        if !record.is_left_behind(now) {
            return false;
        }
        let (attempt, status) = (record.attempt, record.status);
        let Some(items) = record.items() else { return false };
        let items: Vec<_> = items.into_iter().filter_map(find).collect();
        let participants: Vec<Participant<'_>> =
            items.iter().map(|(table, key, key_item)| Participant { table, key, key_item }).collect();
        let own = Own { key, attempt, participants: &participants, prepared: Vec::new() };
        match status {
            Status::Committed => self.apply(&own, None).await,
            _ => self.cancel(&own).await,
        }
        true
    }
}
