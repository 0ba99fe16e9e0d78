//! TransactWriteItems.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use exec::backend::Coordinator;
use items::{Item, item_size, json};
use serde_json::{Map, Value as Json};

use super::Dynamo;
use super::consumed::Consumed;
use super::size::{read_units, write_units};
use super::write::{Action, ItemWrite};
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::reply::ANSWER_TEXT_BYTES;
use crate::request::{Capacity, Request, constraint, fingerprint};
use crate::table::{self, RowKey};
use crate::transaction::{Origin, Participant, Verdict};

/// Items of a transaction.
pub(super) const ITEMS_MAX: usize = 100;
/// Bytes of the items that a transaction gives.
const BYTES_MAX: usize = 4 << 20;
/// Units of capacity of a transaction, for each of the same requests alone.
pub(super) const CAPACITY_FACTOR: f64 = 2.0;
/// Characters of a token.
const TOKEN_MAX: usize = 36;

/// `ClientRequestToken`.
pub(super) fn token(request: &Request) -> Result<Option<&str>> {
    let token = request.string("ClientRequestToken")?;
    match token {
        Some(token) if !(1..=TOKEN_MAX).contains(&token.chars().count()) => {
            let bound =
                if token.is_empty() { "greater than or equal to 1" } else { "less than or equal to 36" };
            constraint(token, "clientRequestToken", &format!("Member must have length {bound}"))
        }
        token => Ok(token),
    }
}

/// The items that the reasons of a cancelled transaction show.
struct ShownItems {
    /// The bytes of the item of each part.
    bytes: RefCell<Vec<usize>>,
    /// Whether they have more bytes than an answer may have.
    are_too_many: Cell<bool>,
}

impl ShownItems {
    /// Of a transaction with so many parts.
    fn new(parts: usize) -> Self {
        Self { bytes: RefCell::new(vec![0; parts]), are_too_many: Cell::new(false) }
    }

    /// The error of a part, without its item where that is too much. A part may be decided several times.
    fn count(&self, part: usize, error: ApiError) -> ApiError {
        let mut bytes = self.bytes.borrow_mut();
        if let Some(place) = bytes.get_mut(part) {
            *place = error.item.as_ref().map_or(0, String::len);
        }
        if bytes.iter().sum::<usize>() <= ANSWER_TEXT_BYTES {
            return error;
        }
        self.are_too_many.set(true);
        ApiError { item: None, ..error }
    }
}

/// The list of a transaction's parts.
pub(super) fn parts(request: &Request) -> Result<&[Json]> {
    let list = json::read_list(request.required("TransactItems")?)?;
    let bound = match list.len() {
        0 => "greater than or equal to 1",
        count if count > ITEMS_MAX => "less than or equal to 100",
        _ => return Ok(list),
    };
    let shown = if list.is_empty() { "[]" } else { "[...]" };
    constraint(shown, "transactItems", &format!("Member must have length {bound}"))
}

/// The parts of a transaction, when all of them fit their tables.
pub(super) fn unless_cancelled<T>(parts: Vec<Result<T>>) -> Result<Vec<T>> {
    if parts.iter().all(Result::is_ok) {
        return parts.into_iter().collect();
    }
    let reasons: Vec<Option<ApiError>> = parts.into_iter().map(Result::err).collect();
    Err(ApiError::cancelled(reasons))
}

/// The request of a transaction. Without a token nothing is compared with its parameters.
pub(super) fn origin<'a>(token: Option<&'a str>, parts: &Json) -> Origin<'a> {
    Origin { token, fingerprint: token.map_or(0, |_| fingerprint(parts)) }
}

/// Refuses an item that a transaction has twice.
pub(super) fn check_twice<'a>(keys: impl Iterator<Item = (&'a str, &'a RowKey)>) -> Result<()> {
    let mut known = std::collections::BTreeSet::new();
    for (table, key) in keys {
        if !known.insert((table, &key.partition, &key.clustering)) {
            return invalid!("Transaction request cannot include multiple operations on one item");
        }
    }
    Ok(())
}

/// The capacity that the parts of a transaction consumed, by table: twice that of a request alone.
pub(super) fn consumed<'a>(
    parts: impl Iterator<Item = (&'a str, Consumed)>,
    kind: &str,
    asked: Capacity,
) -> Option<Json> {
    if asked == Capacity::None {
        return None;
    }
    let mut tables: BTreeMap<&str, Consumed> = BTreeMap::new();
    for (table, one) in parts {
        tables.entry(table).or_default().add(&one, CAPACITY_FACTOR);
    }
    let shown = |(table, of): (&str, Consumed)| of.json(table, asked, Some(kind));
    Some(Json::Array(tables.into_iter().map(shown).collect()))
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn transact_write_items(&self, request: &Request) -> Result<Json> {
        let asked = request.capacity()?;
        let shows_collections = request.item_collections()?;
        let token = token(request)?;
        let list = parts(request)?;
        let writes = list.iter().map(|part| self.part_to_write(part)).collect::<Result<Vec<_>>>()?;
        let writes = unless_cancelled(writes)?;
        let origin = origin(token, request.required("TransactItems")?);
        let mut answer = Map::new();
        if let Some(consumed) = self.write_at_once(&writes, origin, asked).await? {
            answer.insert("ConsumedCapacity".to_owned(), consumed);
        }
        if shows_collections {
            let written = writes.iter().filter(|write| !matches!(write.action, Action::Check));
            self.add_item_collections(&mut answer, written.map(|write| (&write.table, &*write.key_item)))
                .await;
        }
        Ok(Json::Object(answer))
    }

    /// Carries out writes as one transaction; the units that they consumed.
    pub(super) async fn write_at_once(
        &self,
        writes: &[ItemWrite],
        origin: Origin<'_>,
        asked: Capacity,
    ) -> Result<Option<Json>> {
        check_twice(writes.iter().map(|write| (write.table.name(), &write.key)))?;
        // Each part of a transaction depends on the item: another transaction may hold it.
        let store = self.store();
        writes.iter().try_for_each(|write| store.check_may_read_before_write(&write.table))?;
        let given = |write: &ItemWrite| match &write.action {
            Action::Put(item) => item_size(item),
            _ => item_size(&write.key_item),
        };
        if writes.iter().map(given).sum::<usize>() > BYTES_MAX {
            return invalid!("Transaction request size exceeds the maximum allowed size of 4 MB");
        }
        let keys: Vec<Item> =
            writes.iter().map(|write| write.table.key_attributes(&write.key_item)).collect();
        let participants: Vec<Participant<'_>> = writes
            .iter()
            .zip(&keys)
            .map(|(write, key_item)| Participant { table: &write.table, key: &write.key, key_item })
            .collect();
        let shown = ShownItems::new(writes.len());
        // A part that another coordinator has decided counts by its request.
        let fallback = |write: &ItemWrite| Consumed::of_table(write_units(given(write)));
        let costs = RefCell::new(writes.iter().map(fallback).collect::<Vec<_>>());
        let decide = |at: usize, old: Option<&Item>| {
            let write = writes.get(at).ok_or_else(|| ApiError::validation("a participant of no write"))?;
            let (effect, cost) = write.effect(old).map_err(|error| shown.count(at, error))?;
            if let Some(place) = costs.borrow_mut().get_mut(at) {
                *place = cost;
            }
            Ok(effect)
        };
        match self.store().transaction(origin, &participants, &decide).await? {
            Verdict::Cancelled(_) if shown.are_too_many.get() => invalid!(
                "The items of the conditions that failed have more than {ANSWER_TEXT_BYTES} bytes: ask for fewer by \
                 ReturnValuesOnConditionCheckFailure"
            ),
            Verdict::Cancelled(reasons) => Err(ApiError::cancelled(reasons)),
            // It was carried out before, and is read only.
            Verdict::Repeated => {
                let units = |write: &ItemWrite| Consumed::of_table(read_units(given(write), true));
                let units = writes.iter().map(|write| (write.named.as_str(), units(write)));
                Ok(consumed(units, "ReadCapacityUnits", asked))
            }
            Verdict::Committed => {
                let units = writes.iter().zip(costs.into_inner());
                let units = units.inspect(|(write, cost)| {
                    self.count_write((&write.table, write.operation()), cost, CAPACITY_FACTOR);
                });
                let units: Vec<_> = units.map(|(write, cost)| (write.named.as_str(), cost)).collect();
                Ok(consumed(units.into_iter(), "WriteCapacityUnits", asked))
            }
        }
    }

    /// One of Put, Update, Delete and ConditionCheck. A key that does not fit its table is a reason to cancel, and not an error of the
    /// request.
    fn part_to_write(&self, part: &Json) -> Result<Result<ItemWrite>> {
        let part = json::read_map(part)?;
        let names = ["ConditionCheck", "Put", "Update", "Delete"];
        let given = |name| Some((name, part.get(name).filter(|given| !given.is_null())?));
        let given: Vec<(&str, &Json)> = names.into_iter().filter_map(given).collect();
        let (name, given) = match given[..] {
            [given] => given,
            [] => {
                return invalid!(
                    "Invalid Request: TransactWriteRequest should contain Delete or Put or Update request"
                );
            }
            _ => return invalid!("TransactItems can only contain one of Check, Put, Update or Delete"),
        };
        let inner = Request::transaction_part(given)?;
        inner.table_name()?;
        let is_found = Cell::new(false);
        let find = || {
            let table = table::find(&self.schema(), &inner.table_name()?)?;
            is_found.set(true);
            Ok(table)
        };
        let write = match name {
            "Put" => ItemWrite::put(&inner, find),
            "Delete" => ItemWrite::of_key(&inner, Action::Delete, find),
            "Update" => ItemWrite::update(&inner, find),
            _ => ItemWrite::of_key(&inner, Action::Check, find),
        };
        match write {
            // An empty key attribute refuses the request as a whole, where other keys that do not fit cancel a transaction.
            Err(error) if !is_found.get() || error.kind == ErrorKind::EmptyKey => Err(error),
            write => Ok(write),
        }
    }
}
