//! Query of a secondary index.
//!
//! All items of the hash key are looked at, and the nearest behind the start are kept: a page costs the whole hash key, in the memory
//! of a page. An index of which the hash key is the table's own reads one partition; any other asks the index of storage for places
//! and reads the rows there, or, while that one is being built, reads the table.

use exec::backend::Coordinator;
use items::key_condition::KeyCondition;
use items::{Item, item_size};
use mutation::{DecoratedKey, PartitionRange};
use replica::{Keys, Partitions};

use super::Dynamo;
use super::page::{PAGE_BYTES, Page, PageRequest};
use super::places::{Reading, Sink};
use crate::error::Result;
use crate::index_definition::SecondaryIndex;
use crate::secondary::{Nearest, Position};
use crate::table::{ApiTable, RowKey};

/// The items that a query has found so far.
struct Search<'a> {
    table: &'a ApiTable,
    index: &'a SecondaryIndex,
    condition: &'a KeyCondition,
    request: &'a PageRequest,
    nearest: Nearest,
}

impl Search<'_> {
    /// Whether the order of the index is that of the table: without a range key.
    fn is_in_order(&self) -> bool {
        self.index.range.is_none()
    }
}

impl Sink for Search<'_> {
    fn offer(&mut self, key: RowKey, item: Item) -> usize {
        if !self.index.matches(self.condition, &item) {
            return 0;
        }
        let position = self.index.position(key, &item);
        if !self.nearest.wants(&position) {
            return 0;
        }
        let item = self.request.visible(self.table, item);
        let size = item_size(&item);
        self.nearest.offer(position, item, size);
        size / 4096
    }

    fn first_partition(&self) -> Option<&DecoratedKey> {
        self.nearest.first_partition().filter(|_| self.is_in_order())
    }

    fn is_full(&self) -> bool {
        self.is_in_order() && self.nearest.is_full_in_order()
    }
}

impl<C: Coordinator> Dynamo<C> {
    /// The items of a key condition behind `start`, in the order of the index.
    pub(super) async fn query_index_page(
        &self,
        (table, index): (&ApiTable, &SecondaryIndex),
        condition: &KeyCondition,
        start: Option<Position>,
        reversed: bool,
        request: &PageRequest,
    ) -> Result<Page> {
        let search = || {
            let nearest = Nearest::new(start.clone(), reversed, request.limit, PAGE_BYTES);
            Reading::new(table, request.consistent, Search { table, index, condition, request, nearest })
        };
        let mut found = search();
        match index.query(table, &condition.hash) {
            None => {
                let keys = Keys::from_iter([table.partition(&condition.hash)?]);
                self.look_through(Partitions::Keys(keys), &mut found).await?;
            }
            Some(query) => {
                if !self.look_at_places(query, &mut found).await? {
                    found = search();
                    self.look_through(Partitions::Range(PartitionRange::all()), &mut found).await?;
                }
            }
        }
        let mut page = Page::default();
        for item in found.sink.nearest.into_items() {
            found.pace.step().await;
            if page.take(table, request, item) {
                break;
            }
        }
        Ok(page)
    }
}
