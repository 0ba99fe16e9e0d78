//! Items whose time is over (UpdateTimeToLive), and rows of CQL with a TTL column, are deleted, now and then, by the nodes that are the first
//! replicas of their partitions. Until then they are read as any others, as AWS and ScyllaDB say.

use std::rc::Rc;
use std::sync::Arc;

use coordinator::Consistency;
use exec::backend::Coordinator;
use futures_util::stream::{self, StreamExt};
use items::{Item, Value};
use mutation::{ColumnSelection, Timestamp};
use replica::ReadPage;
use rt::preempt::Pace;
use schema::{Schema, Table};

use crate::error::{ApiError, Result};
use crate::ranges::OwnPages;
use crate::row_ttl::RowTtl;
use crate::store::Store;
use crate::table::{self, ApiTable, RowKey, RowWrite, State};

/// Items that are deleted at once.
const AT_ONCE: usize = 8;
/// An item that ended longer ago than this is left alone, seconds: AWS takes such a number for something else.
const PAST_MAX: i64 = 5 * 365 * 24 * 3600;

/// Whether an item's time is over at `now`, seconds since 1970.
fn is_over(item: &Item, attribute: &str, now: i64) -> bool {
    // Anything but a number means no end. A fraction of a second counts as none.
    let Some(Value::N(number)) = item.get(attribute) else { return false };
    let text = number.to_string();
    let ends = text.parse::<i64>().ok().or_else(|| text.parse::<f64>().ok().map(|seconds| seconds as i64));
    ends.is_some_and(|ends| ends < now && ends > now - PAST_MAX)
}

/// A table whose rows end.
enum Expiring {
    /// Items of the API, by an attribute.
    Items { table: ApiTable, attribute: String },
    /// Rows of a table of CQL, by a column.
    Rows(RowTtl),
}

impl Expiring {
    /// The tables of the API with a time to live, then those of CQL.
    fn tables(schema: &Schema) -> Vec<Self> {
        let items = table::names(schema).into_iter().filter_map(|name| {
            let table = table::find(schema, &name).ok()?;
            let attribute = table.details().expires_by?;
            Some(Self::Items { table, attribute })
        });
        let rows = schema.keyspaces().flat_map(|keyspace| keyspace.tables.values());
        items.chain(rows.filter_map(RowTtl::of).map(Self::Rows)).collect()
    }

    fn table(&self) -> &Arc<Table> {
        match self {
            Self::Items { table, .. } => &table.table,
            Self::Rows(ttl) => &ttl.table,
        }
    }

    /// As it is under another schema; none when it has gone, or its rows do not end any longer.
    fn again(&self, schema: &Schema) -> Option<Self> {
        let table = schema.table_by_id(self.table().id)?;
        match self {
            Self::Items { .. } => {
                let table = ApiTable::of(table)?;
                let attribute = table.details().expires_by?;
                Some(Self::Items { table, attribute })
            }
            Self::Rows(_) => RowTtl::of(table).map(Self::Rows),
        }
    }

    /// The columns that tell which rows are over.
    fn columns(&self) -> ColumnSelection {
        match self {
            Self::Items { .. } => ColumnSelection::All,
            Self::Rows(ttl) => ColumnSelection::Some([ttl.column.id].into_iter().collect()),
        }
    }
}

impl<C: Coordinator> Store<'_, C> {
    /// Deletes the items and rows whose time is over, in the ranges of which this node is the first replica; how many there were. A table that
    /// fails does not keep the others from it.
    pub(crate) async fn expire(&self) -> Result<u64> {
        let (mut count, mut failure) = (0, None);
        for expiring in Expiring::tables(&self.executor.coordinator().schema()) {
            // It may have been dropped or changed meanwhile.
            let Some(expiring) = expiring.again(&self.executor.coordinator().schema()) else { continue };
            if let Err(error) = self.expire_table(&expiring, &mut count).await {
                tracing::debug!("{}: {}", expiring.table().full_name(), error.message);
                failure = Some(error);
            }
        }
        failure.map_or(Ok(count), Err)
    }

    /// A range that cannot be read, or a row that cannot be deleted, keeps no others from it: the next look would stop at the same place.
    async fn expire_table(&self, expiring: &Expiring, count: &mut u64) -> Result<()> {
        let mut pages = OwnPages::new(self, expiring.table().clone()).of_columns(expiring.columns());
        let (mut pace, mut failure) = (Pace::default(), None);
        while let Some(page) = pages.next_readable(self, &mut failure).await {
            let over = self.over(expiring, &page, &mut pace, &mut failure).await;
            let mut ends = stream::iter(over.iter().map(|key| self.delete_over(expiring, key)))
                .buffer_unordered(AT_ONCE);
            while let Some(result) = ends.next().await {
                match result {
                    Ok(deleted) => *count += u64::from(deleted),
                    Err(error) => failure = Some(error),
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// The rows of a page whose time is over; `failure` is that of a row that is no item.
    async fn over(
        &self,
        expiring: &Expiring,
        page: &ReadPage,
        pace: &mut Pace,
        failure: &mut Option<ApiError>,
    ) -> Vec<RowKey> {
        let (now, mut over) = (self.now(), Vec::new());
        for partition in &page.partitions {
            for row in partition.rows.iter().filter(|row| row.is_live(now)) {
                pace.step().await;
                let key = RowKey { partition: partition.key.clone(), clustering: row.clustering.clone() };
                let is_over = match expiring {
                    Expiring::Items { table, attribute } => match table.state(&key, row, now) {
                        Ok(State { item: Some(item), .. }) => is_over(&item, attribute, self.seconds()),
                        Ok(_) => false,
                        Err(error) => {
                            *failure = Some(error);
                            false
                        }
                    },
                    Expiring::Rows(ttl) => ttl.is_over(row, self.millis()),
                };
                if is_over {
                    over.push(key);
                }
            }
        }
        over
    }

    /// Deletes a row unless it was given more time meanwhile; whether it was deleted.
    async fn delete_over(&self, expiring: &Expiring, key: &RowKey) -> Result<bool> {
        let deleted = match expiring {
            Expiring::Items { table, attribute } => self.delete_item(table, key, attribute).await,
            Expiring::Rows(ttl) => self.delete_row(ttl, key).await,
        };
        match deleted {
            // It is left for the next time.
            Err(error) if error.is_reason() => Ok(false),
            deleted => deleted,
        }
    }

    async fn delete_item(&self, table: &ApiTable, key: &RowKey, attribute: &str) -> Result<bool> {
        if self.spans_datacenters(&table.table) {
            return self.delete_item_everywhere(table, key, attribute).await;
        }
        let now = self.seconds();
        let mut deleted = false;
        let mut decide = |item: Option<Rc<Item>>| {
            deleted = item.is_some_and(|item| is_over(&item, attribute, now));
            Ok(deleted.then_some(RowWrite::Expire))
        };
        self.agree(table, key, &mut decide).await?;
        Ok(deleted)
    }

    /// Writes of items are agreed on within the datacenter of their client, so an agreement here is ordered with none of those elsewhere. A
    /// quorum of each datacenter has all acknowledged writes, and the deletion is as old as the question: it hides no write that
    /// the answer may lack. While a datacenter does not answer, the item stays.
    async fn delete_item_everywhere(&self, table: &ApiTable, key: &RowKey, attribute: &str) -> Result<bool> {
        let asked = self.executor.timestamp();
        let (now, seconds) = (self.now(), self.seconds());
        let command = table.read_rows(&key.partition, std::iter::once(&key.clustering), now);
        let seen = table.state_of(&self.read(&command, Consistency::EachQuorum).await?, key, now)?;
        if let Some(intent) = &seen.intent {
            // Its outcome may be another time of the end; it is looked at the next time.
            self.settle(table, key, intent).await?;
            return Ok(false);
        }
        let ends = seen.item.as_ref().is_some_and(|item| is_over(item, attribute, seconds));
        if !ends || seen.version >= asked {
            return Ok(false);
        }
        let mut deleted = false;
        let mut decide = |page: &ReadPage, _: Timestamp| {
            deleted = table.state_of(page, key, now)? == seen;
            Ok(deleted.then(|| table.update(key, &RowWrite::Expire, asked, now)))
        };
        self.transact_at(&command, Consistency::Serial, &mut decide).await?;
        Ok(deleted)
    }

    /// Agreed on by all datacenters, as conditional statements of CQL are unless they ask for less.
    async fn delete_row(&self, ttl: &RowTtl, key: &RowKey) -> Result<bool> {
        let (now, millis) = (self.now(), self.millis());
        let mut deleted = false;
        let mut decide = |page: &ReadPage, ballot| {
            let partition = page.partitions.iter().find(|one| one.key == key.partition);
            let row = partition.and_then(|one| one.rows.iter().find(|row| row.clustering == key.clustering));
            deleted = row.is_some_and(|row| row.is_live(now) && ttl.is_over(row, millis));
            Ok(deleted.then(|| ttl.deletion(key, ballot, now)))
        };
        self.transact_at(&ttl.read(key, now), Consistency::Serial, &mut decide).await?;
        Ok(deleted)
    }

    fn seconds(&self) -> i64 {
        self.executor.clock().wall_micros() / 1_000_000
    }

    fn millis(&self) -> i64 {
        self.executor.clock().wall_micros() / 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use items::json;

    #[test]
    fn only_a_number_in_the_past_ends_an_item() {
        let now = 1_700_000_000;
        let over = |value: &str| {
            let json = serde_json::from_str(&format!("{{\"t\":{value}}}")).expect("JSON");
            is_over(&json::read_item(&json).expect("an item"), "t", now)
        };
        for ended in ["1699999999", "1699999999.9", "1600000000"] {
            assert!(over(&format!("{{\"N\":\"{ended}\"}}")), "{ended}");
        }
        for lasting in
            ["1700000000", "1700000001", "0", "-1", "1e125", "-1e125", "1500000000", "1700000000000"]
        {
            assert!(!over(&format!("{{\"N\":\"{lasting}\"}}")), "{lasting}");
        }
        assert!(!over("{\"S\":\"1699999999\"}"));
        assert!(!is_over(&Item::new(), "t", now));
    }
}
