//! Query of a secondary index.
//!
//! All items of the hash key are looked at, and the nearest behind the start are kept: a page costs the whole hash key, in the memory
//! of a page. An index of which the hash key is the table's own reads one partition; any other asks the index of storage for places
//! and reads the rows there, or, while that one is being built, reads the table.

use std::collections::BTreeMap;

use coordinator::RequestError;
use exec::backend::Coordinator;
use futures_util::future::try_join_all;
use items::key_condition::KeyCondition;
use items::{Item, item_size};
use mutation::{PartitionRange, RingPosition};
use replica::{IndexQuery, Keys, Limits, Partitions, ReadCommand, ReadPage};
use rt::preempt::Pace;

use super::Dynamo;
use super::page::{PAGE_BYTES, Page, PageRequest};
use crate::error::{ApiError, Result};
use crate::index_definition::SecondaryIndex;
use crate::intent::Attempt;
use crate::record::Status;
use crate::secondary::{Nearest, Position};
use crate::store::read_consistency;
use crate::table::{ApiTable, RowKey};

/// Places that are read at once.
const PLACES: u64 = 1_000;
/// Partitions that are read at once.
const PARTITIONS_AT_ONCE: usize = 16;
/// Rows that are read at once of a partition or of the table.
const ROWS: u64 = 1_000;

/// The items that a query has found so far.
struct Search<'a> {
    table: &'a ApiTable,
    index: &'a SecondaryIndex,
    condition: &'a KeyCondition,
    request: &'a PageRequest,
    nearest: Nearest,
    decided: BTreeMap<Attempt, Status>,
    pace: Pace,
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
        let search = || Search {
            table,
            index,
            condition,
            request,
            nearest: Nearest::new(start.clone(), reversed, request.limit, PAGE_BYTES),
            decided: BTreeMap::new(),
            pace: Pace::default(),
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
        for item in found.nearest.into_items() {
            found.pace.step().await;
            if page.take(table, request, item) {
                break;
            }
        }
        Ok(page)
    }

    /// Looks at all rows of these partitions.
    async fn look_through(&self, partitions: Partitions, search: &mut Search<'_>) -> Result<()> {
        let store = self.store();
        let mut command = ReadCommand {
            limits: Limits { rows: ROWS, bytes: PAGE_BYTES, ..Limits::NONE },
            ..ReadCommand::all_of(search.table.table.clone(), partitions, store.now())
        };
        loop {
            let mut page = store.read(&command, read_consistency(search.request.consistent)).await?;
            command.resume = page.more.take();
            self.take(&command, page, search).await?;
            if command.resume.is_none() {
                return Ok(());
            }
        }
    }

    /// Looks at the rows of the places that an index of storage finds; false when it is not there yet.
    async fn look_at_places(&self, query: IndexQuery, search: &mut Search<'_>) -> Result<bool> {
        let store = self.store();
        let consistency = read_consistency(search.request.consistent);
        let table = search.table.table.clone();
        let mut places = ReadCommand {
            limits: Limits { rows: PLACES, bytes: PAGE_BYTES, ..Limits::NONE },
            index: Some(query.into()),
            ..ReadCommand::all_of(table, Partitions::Range(PartitionRange::all()), store.now())
        };
        // Without a range key the order of the index is that of the table.
        let in_order = search.index.range.is_none();
        if let (true, Some(start)) = (in_order, search.nearest.first_partition()) {
            let range = PartitionRange {
                start: RingPosition::BeforeKey(start.clone()),
                end: RingPosition::AfterToken(i64::MAX),
            };
            places.partitions = Partitions::Range(range);
        }
        loop {
            let deadline = self.store().deadline(self.executor.limits().range_timeout);
            let page = match self.executor.coordinator().read(&places, consistency, deadline).await {
                Err(RequestError::ReadFailure { .. }) => return Ok(false),
                page => page?,
            };
            for chunk in page.partitions.chunks(PARTITIONS_AT_ONCE) {
                let reads = chunk.iter().map(|partition| async {
                    let rows = partition.rows.iter().map(|row| &row.clustering);
                    let command = ReadCommand {
                        limits: Limits { rows: ROWS, bytes: PAGE_BYTES, ..Limits::NONE },
                        ..search.table.read_rows(&partition.key, rows, places.now)
                    };
                    let page = store.read(&command, consistency).await?;
                    Ok::<_, ApiError>((command, page))
                });
                for (mut command, mut page) in try_join_all(reads).await? {
                    command.resume = page.more.take();
                    self.take(&command, page, search).await?;
                    while command.resume.is_some() {
                        let mut page = store.read(&command, consistency).await?;
                        command.resume = page.more.take();
                        self.take(&command, page, search).await?;
                    }
                }
                if in_order && search.nearest.is_full_in_order() {
                    return Ok(true);
                }
            }
            match page.more {
                Some(more) => places.resume = Some(more),
                None => return Ok(true),
            }
        }
    }

    /// Offers the items of a page.
    async fn take(&self, command: &ReadCommand, page: ReadPage, search: &mut Search<'_>) -> Result<()> {
        let (store, table, index) = (self.store(), search.table, search.index);
        for partition in &page.partitions {
            for row in partition.rows.iter().filter(|row| row.is_live(command.now)) {
                search.pace.step().await;
                let key = RowKey { partition: partition.key.clone(), clustering: row.clustering.clone() };
                let state = table.state(&key, row, command.now)?;
                let item: Option<Item> = match &state.intent {
                    Some(intent) if search.request.consistent => {
                        let key = table.key_of_row(&key)?;
                        store.visible(state.item, &key, Some(intent), &mut search.decided).await?
                    }
                    _ => state.item,
                };
                let Some(item) = item.filter(|item| index.matches(search.condition, item)) else { continue };
                let position = index.position(key, &item);
                if !search.nearest.wants(&position) {
                    continue;
                }
                let item = search.request.visible(table, item);
                let size = item_size(&item);
                search.pace.count(size / 4096);
                search.nearest.offer(position, item, size);
            }
        }
        Ok(())
    }
}
