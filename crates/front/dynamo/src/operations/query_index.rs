//! Query of a secondary index.
//!
//! An index with a range key asks its ordered index of storage (`query_ordered`). Where that does not suffice, all items of the hash key
//! are looked at, and the nearest behind the start are kept: a page costs the whole hash key, in the memory
//! of a page. An index of which the hash key is the table's own then reads one partition; any other asks the index of storage for places
//! and reads the rows there, or, while that one is being built, reads the table. Without a range key the places come in the order of the
//! index, and no more are read than a page has.

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
pub(super) struct Search<'a> {
    table: &'a ApiTable,
    pub(super) index: &'a SecondaryIndex,
    pub(super) condition: &'a KeyCondition,
    pub(super) request: &'a PageRequest,
    /// Whether items come in the order of the index, so that a full page is the page.
    pub(super) is_in_order: bool,
    pub(super) nearest: Nearest,
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
        self.nearest.first_partition().filter(|_| self.is_in_order)
    }

    fn is_full(&self) -> bool {
        self.is_in_order && self.nearest.is_full_in_order()
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
        // Without a range key the order is that of the table.
        let is_in_order = index.range.is_none();
        let search = |is_in_order| {
            let nearest = Nearest::new(start.clone(), reversed, request.limit, PAGE_BYTES);
            Reading::new(
                table,
                request.consistent,
                Search { table, index, condition, request, is_in_order, nearest },
            )
        };
        let mut found = search(false);
        if !self.look_in_order(start.as_ref(), reversed, &mut found).await? {
            found = search(is_in_order);
            match index.query(table, &condition.hash) {
                None => {
                    let keys = Keys::from_iter([table.partition(&condition.hash)?]);
                    self.look_through(Partitions::Keys(keys), &mut found).await?;
                }
                Some(query) => {
                    if !self.look_at_places(query, &mut found).await? {
                        found = search(is_in_order);
                        self.look_through(Partitions::Range(PartitionRange::all()), &mut found).await?;
                    }
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
