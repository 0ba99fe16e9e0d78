//! Items whose time is over (UpdateTimeToLive) are deleted, now and then, by the nodes that are the first replicas of their partitions. Until
//! then they are read as any others, as AWS says.

use exec::backend::Coordinator;
use futures_util::stream::{self, StreamExt};
use items::{Item, Value};
use replica::ReadPage;
use rt::preempt::Pace;

use crate::error::Result;
use crate::ranges::OwnPages;
use crate::store::Store;
use crate::table::{self, ApiTable, RowKey, RowWrite};

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

impl<C: Coordinator> Store<'_, C> {
    /// Deletes the items whose time is over, in the ranges of which this node is the first replica; how many there were.
    pub(crate) async fn expire(&self) -> Result<u64> {
        let names = table::names(&self.executor.coordinator().schema());
        let (mut count, mut pace) = (0, Pace::default());
        for name in names {
            // It may have been dropped or changed meanwhile.
            let Ok(table) = table::find(&self.executor.coordinator().schema(), &name) else { continue };
            let Some(attribute) = table.details().expires_by else { continue };
            let mut pages = OwnPages::new(self, table.table.clone());
            while let Some(page) = pages.next(self).await? {
                let over = self.over(&table, &attribute, &page, &mut pace).await?;
                let ends = over.iter().map(|key| self.delete_over(&table, key, &attribute));
                let mut ends = stream::iter(ends).buffer_unordered(AT_ONCE);
                while let Some(result) = ends.next().await {
                    count += u64::from(result?);
                }
            }
        }
        Ok(count)
    }

    /// The items of a page whose time is over.
    async fn over(
        &self,
        table: &ApiTable,
        attribute: &str,
        page: &ReadPage,
        pace: &mut Pace,
    ) -> Result<Vec<RowKey>> {
        let (now, mut over) = (self.now(), Vec::new());
        for partition in &page.partitions {
            for row in partition.rows.iter().filter(|row| row.is_live(now)) {
                pace.step().await;
                let key = RowKey { partition: partition.key.clone(), clustering: row.clustering.clone() };
                let item = table.state(&key, row, now)?.item;
                if item.is_some_and(|item| is_over(&item, attribute, self.seconds())) {
                    over.push(key);
                }
            }
        }
        Ok(over)
    }

    /// Deletes an item unless it was given more time meanwhile; whether it was deleted.
    async fn delete_over(&self, table: &ApiTable, key: &RowKey, attribute: &str) -> Result<bool> {
        let now = self.seconds();
        let mut deleted = false;
        let mut decide = |item: Option<&Item>| {
            deleted = item.is_some_and(|item| is_over(item, attribute, now));
            Ok(deleted.then_some(RowWrite::Expire))
        };
        match self.agree(table, key, &mut decide).await {
            Ok(()) => Ok(deleted),
            // It is left for the next time.
            Err(error) if error.is_reason() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn seconds(&self) -> i64 {
        self.executor.clock().wall_micros() / 1_000_000
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
