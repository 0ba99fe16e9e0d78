//! Reading all rows of a table, each on one node of the cluster: the one that is the first replica of its range.

use std::sync::Arc;

use coordinator::Consistency;
use exec::backend::Coordinator;
use mutation::{ColumnSelection, PartitionRange, RingPosition};
use replica::{Limits, Partitions, ReadCommand, ReadPage};
use schema::Table;

use crate::error::{ApiError, Result};
use crate::store::Store;

/// Rows that are read at once.
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

/// The pages of the rows of which this node is the first replica.
pub(crate) struct OwnPages {
    table: Arc<Table>,
    columns: ColumnSelection,
    /// Ranges that are not read, and the page that is next in the last of them.
    left: Vec<PartitionRange>,
    resume: Option<replica::Resume>,
}

impl OwnPages {
    /// From the beginning, by the current topology version.
    pub(crate) fn new<C: Coordinator>(store: &Store<'_, C>, table: Arc<Table>) -> Self {
        Self::by_first(store, table, false)
    }

    /// The pages of the rows of which this node is the first replica of its datacenter: each datacenter reads all rows.
    pub(crate) fn of_datacenter<C: Coordinator>(store: &Store<'_, C>, table: Arc<Table>) -> Self {
        Self::by_first(store, table, true)
    }

    /// Of the ranges where this node is the first of all replicas, or of those in its datacenter.
    fn by_first<C: Coordinator>(store: &Store<'_, C>, table: Arc<Table>, in_datacenter: bool) -> Self {
        let coordinator = store.executor.coordinator();
        let (schema, view) = (coordinator.schema(), coordinator.view());
        let mut left = Vec::new();
        if let Some(keyspace) = schema.keyspace(&table.keyspace) {
            let placement = view.place_table(keyspace, &table);
            let (own, here) = (view.own(), view.datacenter(view.own()));
            for (range, replicas) in placement.now().ranges() {
                let first = replicas.iter().find(|node| !in_datacenter || view.datacenter(**node) == here);
                if first == Some(&own) {
                    left.extend(ranges(range.after, range.upto));
                }
            }
        }
        Self { table, columns: ColumnSelection::All, left, resume: None }
    }

    /// The same with these columns only.
    pub(crate) fn of_columns(self, columns: ColumnSelection) -> Self {
        Self { columns, ..self }
    }

    /// The next page that can be read; none behind the last. The rest of a range whose page cannot be read is left out, and `failure` is
    /// its error: the next look begins with the same range, which is to keep no others from it.
    pub(crate) async fn next_readable<C: Coordinator>(
        &mut self,
        store: &Store<'_, C>,
        failure: &mut Option<ApiError>,
    ) -> Option<ReadPage> {
        loop {
            match self.next(store).await {
                Ok(page) => return page,
                Err(error) => {
                    *failure = Some(error);
                    self.resume = None;
                    self.left.pop();
                }
            }
        }
    }

    /// The next page, read at LOCAL_QUORUM; none behind the last.
    ///
    /// # Errors
    /// When it cannot be read. Asked again, the same page is tried again.
    pub(crate) async fn next<C: Coordinator>(&mut self, store: &Store<'_, C>) -> Result<Option<ReadPage>> {
        let Some(range) = self.left.last() else { return Ok(None) };
        let command = ReadCommand {
            limits: Limits { rows: PAGE_ROWS, bytes: PAGE_BYTES, ..Limits::NONE },
            resume: self.resume.clone(),
            columns: self.columns.clone(),
            ..ReadCommand::all_of(self.table.clone(), Partitions::Range(range.clone()), store.now())
        };
        let mut page = store.read(&command, Consistency::LocalQuorum).await?;
        self.resume = page.more.take();
        if self.resume.is_none() {
            self.left.pop();
        }
        Ok(Some(page))
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
