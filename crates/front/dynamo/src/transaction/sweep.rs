//! The sweep: transactions whose coordinator has died are finished although nobody meets their intents. Each node looks at the records
//! of which it is the first replica.

use std::time::Duration;

use coordinator::Consistency;
use exec::backend::Coordinator;
use items::Item;
use mutation::{PartitionRange, RingPosition};
use replica::{Limits, Partitions, ReadCommand};

use super::Participant;
use super::record::{self, Record, Status};
use crate::error::Result;
use crate::store::Store;
use crate::table::{self, ApiTable, RowKey};

/// How often a node looks.
pub(crate) const INTERVAL: Duration = Duration::from_secs(60);
/// Records that are read at once.
const PAGE_ROWS: u64 = 100;
const PAGE_BYTES: usize = 1 << 20;

/// The ranges from a token (not included) to another; a range around the ring's end is two.
fn ranges(after: i64, upto: i64) -> Vec<PartitionRange> {
    let range = |start, end| PartitionRange { start, end };
    let (from, to) = (RingPosition::AfterToken(after), RingPosition::AfterToken(upto));
    match after < upto {
        true => vec![range(from, to)],
        false => vec![
            range(from, RingPosition::AfterToken(i64::MAX)),
            range(RingPosition::BeforeToken(i64::MIN), to),
        ],
    }
}

impl<C: Coordinator> Store<'_, C> {
    /// Finishes what others have abandoned; how many transactions that were.
    pub(crate) async fn sweep(&self) -> Result<usize> {
        let coordinator = self.executor.coordinator();
        let (schema, view) = (coordinator.schema(), coordinator.view());
        let Some(table) = record::table(&schema) else { return Ok(0) };
        let Some(keyspace) = schema.keyspace(&table.keyspace) else { return Ok(0) };
        let copies = view.place_keyspace(keyspace);
        let own = copies.now().primary_ranges_of(view.own());
        let mut count = 0;
        for range in own.flat_map(|range| ranges(range.after, range.upto)) {
            let now = self.now();
            let mut command = ReadCommand {
                limits: Limits { rows: PAGE_ROWS, bytes: PAGE_BYTES, ..Limits::NONE },
                ..ReadCommand::all_of(table.clone(), Partitions::Range(range), now)
            };
            loop {
                let page = self.read(&command, Consistency::LocalQuorum).await?;
                for (key, record) in record::records(&table, &page, now)? {
                    count += usize::from(self.finish_abandoned(&key, record).await);
                }
                match page.more {
                    Some(more) => command.resume = Some(more),
                    None => break,
                }
            }
        }
        Ok(count)
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
        let items: Vec<_> = record.items.into_iter().filter_map(find).collect();
        let participants: Vec<Participant<'_>> =
            items.iter().map(|(table, key, key_item)| Participant { table, key, key_item }).collect();
        match status {
            Status::Committed => self.apply(key, attempt, &participants).await,
            _ => self.cancel(key, attempt, &participants).await,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mutation::DecoratedKey;

    #[test]
    fn ranges_have_each_token_once() {
        let key = |token| DecoratedKey { token, key: bytes::Bytes::from_static(b"k") };
        for (after, upto) in [(5, 9), (9, 5), (i64::MIN, i64::MAX), (i64::MAX, i64::MIN), (7, 7)] {
            let inside = |token: i64| match after < upto {
                true => token > after && token <= upto,
                false => token > after || token <= upto,
            };
            for token in [i64::MIN, -1, 5, 6, 7, 8, 9, 10, i64::MAX] {
                let found = ranges(after, upto).iter().filter(|range| range.contains(&key(token))).count();
                assert_eq!(found, usize::from(inside(token)), "{token} in {after}..{upto}");
            }
        }
    }
}
