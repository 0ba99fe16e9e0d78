//! TransactGetItems.
//!
//! Items are read twice. When none has changed from the first to the second, and no transaction held one, all of them were so at
//! one moment in between. An item that is not there has no version by which a change would show: then the items are held by a
//! transaction that changes nothing.

use std::cell::RefCell;
use std::rc::Rc;

use exec::backend::Coordinator;
use futures_util::future::try_join_all;
use items::{Condition, Item, Projection, item_size};
use mutation::Timestamp;
use serde_json::{Map, Value as Json};

use super::Dynamo;
use super::consumed::Consumed;
use super::size::read_units;
use super::transact_write_items::{CAPACITY_FACTOR, check_twice, consumed, parts, unless_cancelled};
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::intent::Effect;
use crate::reply::{ANSWER_TEXT_BYTES, Reply, Texts};
use crate::request::{Capacity, Request};
use crate::settle::conflict;
use crate::table::{self, ApiTable, RowKey};
use crate::transaction::{Origin, Participant, Verdict};

/// How often items are read again that have changed meanwhile.
const READS_MAX: usize = 4;
/// Items that are read at once: those beyond the bytes of an answer are not.
const READS_AT_ONCE: usize = 10;
/// Bytes of the items of an answer.
const BYTES_MAX: usize = 4 << 20;

/// A requested item.
pub(super) struct Get {
    pub(super) table: ApiTable,
    /// The table as the request names it.
    pub(super) named: String,
    pub(super) key: RowKey,
    pub(super) key_item: Rc<Item>,
    /// An item that does not meet it is not shown.
    pub(super) filter: Option<Condition>,
    pub(super) projection: Option<Projection>,
}

fn too_large<T>() -> Result<T> {
    invalid!("Transaction request size exceeds the maximum allowed size of 4 MB")
}

/// A reading of all items: each with its version.
type Reading = Vec<(Option<Item>, Timestamp)>;

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn transact_get_items(&self, request: &Request) -> Result<Reply> {
        let asked = request.capacity()?;
        let list = parts(request)?;
        let gets = list.iter().map(|part| self.part_to_get(part)).collect::<Result<Vec<_>>>()?;
        self.get_at_once(&unless_cancelled(gets)?, asked).await
    }

    /// The answer with the items as they were at one moment.
    pub(super) async fn get_at_once(&self, gets: &[Get], asked: Capacity) -> Result<Reply> {
        check_twice(gets.iter().map(|get| (get.table.name(), &get.key)))?;
        let items = self.read_at_once(gets).await?;
        if items.iter().flatten().map(item_size).sum::<usize>() > BYTES_MAX {
            return too_large();
        }
        let mut shown = Texts::default();
        for (get, item) in gets.iter().zip(&items) {
            let item = item.as_ref().filter(|item| get.filter.as_ref().is_none_or(|one| one.holds(item)));
            match (item, &get.projection) {
                (None, _) => shown.push_text("{}".to_owned()),
                (Some(item), None) => shown.push_object("Item", item, Map::new()),
                (Some(item), Some(one)) => shown.push_object("Item", &one.apply(item), Map::new()),
            }
            if shown.bytes() > ANSWER_TEXT_BYTES {
                return invalid!("The answer has more than {ANSWER_TEXT_BYTES} bytes: ask for fewer items");
            }
        }
        let mut answer = Map::new();
        let units = gets
            .iter()
            .zip(&items)
            .map(|(get, item)| (get, read_units(item.as_ref().map_or(0, item_size), true)))
            .inspect(|(get, units)| self.metrics.read(Some(&get.table), CAPACITY_FACTOR * units));
        // Units are counted also where nobody wants to see them.
        let units: Vec<_> = units.collect();
        let units = units.iter().map(|(get, units)| (get.named.as_str(), Consumed::of_table(*units)));
        if let Some(consumed) = consumed(units, "ReadCapacityUnits", asked) {
            answer.insert("ConsumedCapacity".to_owned(), consumed);
        }
        Ok(Reply::of_list("Responses", &shown, answer))
    }

    fn part_to_get(&self, part: &Json) -> Result<Result<Get>> {
        let part = Request::part(part)?;
        let inner = Request::transaction_part(part.required("Get")?)?;
        let name = inner.table_name()?;
        let key_item = inner.item("Key")?;
        let substitutions = inner.substitutions(&[], &["ProjectionExpression"])?;
        let projection = inner.projection(&substitutions)?;
        substitutions.check_used()?;
        let table = table::find(&self.schema(), &name)?;
        let key = match table.key(&key_item) {
            Err(error) if error.kind == ErrorKind::EmptyKey => return Err(error),
            key => key,
        };
        let named = inner.named_table().to_owned();
        Ok(key.map(|key| Get { table, named, key, key_item, filter: None, projection }))
    }

    async fn read_at_once(&self, gets: &[Get]) -> Result<Vec<Option<Item>>> {
        let mut before: Option<Reading> = None;
        for _ in 0..READS_MAX {
            let Some(reading) = self.read_all(gets).await? else {
                before = None;
                continue;
            };
            if reading.iter().any(|(item, _)| item.is_none()) {
                return self.hold_all(gets).await;
            }
            if before.as_ref() == Some(&reading) {
                return Ok(reading.into_iter().map(|(item, _)| item).collect());
            }
            before = Some(reading);
        }
        let reasons: Vec<Option<ApiError>> = gets.iter().map(|_| Some(conflict())).collect();
        Err(ApiError::cancelled(reasons))
    }

    /// Reads all items; none when a transaction held one of them.
    async fn read_all(&self, gets: &[Get]) -> Result<Option<Reading>> {
        let store = self.store();
        let (mut states, mut bytes) = (Vec::with_capacity(gets.len()), 0);
        for chunk in gets.chunks(READS_AT_ONCE) {
            let read = try_join_all(chunk.iter().map(|get| store.state(&get.table, &get.key, true))).await?;
            bytes += read.iter().filter_map(|state| state.item.as_ref()).map(item_size).sum::<usize>();
            if bytes > BYTES_MAX {
                return too_large();
            }
            states.extend(read);
        }
        let mut is_free = true;
        for (get, state) in gets.iter().zip(&states) {
            let Some(intent) = &state.intent else { continue };
            is_free = false;
            match store.settle(&get.table, &get.key, intent).await {
                Err(error) if error.kind != ErrorKind::TransactionConflict => return Err(error),
                _ => {}
            }
        }
        Ok(is_free.then(|| states.into_iter().map(|state| (state.item, state.version)).collect()))
    }

    /// Reads all items by a transaction that changes none of them.
    async fn hold_all(&self, gets: &[Get]) -> Result<Vec<Option<Item>>> {
        let participants: Vec<Participant<'_>> = gets
            .iter()
            .map(|get| Participant { table: &get.table, key: &get.key, key_item: &get.key_item })
            .collect();
        let found = RefCell::new(vec![None; gets.len()]);
        let look = |at: usize, item: Option<&Item>| {
            if let Some(place) = found.borrow_mut().get_mut(at) {
                *place = item.cloned();
            }
            Ok(Effect::Nothing)
        };
        let origin = Origin { token: None, fingerprint: 0 };
        match self.store().transaction(origin, &participants, &look).await? {
            Verdict::Committed | Verdict::Repeated => Ok(found.into_inner()),
            Verdict::Cancelled(reasons) => Err(ApiError::cancelled(reasons)),
        }
    }
}
