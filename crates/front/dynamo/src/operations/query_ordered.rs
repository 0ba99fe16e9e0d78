//! Query of a secondary index by an ordered index of storage: its candidates come in the order of the index, so that a page looks at
//! about as many items as it has.
//!
//! Items whose keys were not all written at once are among the orphans of the ordered index. They may be anywhere in the order, so all of
//! them are looked at for each page; when there are too many, the caller looks at all items of the hash key. So it does when most candidates are
//! of earlier versions of their items, and for consistent reads (of local indexes: one partition), which have to
//! see transactions that are committed and not applied yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use exec::backend::Coordinator;
use items::Value;
use items::condition::Comparison;
use items::key_condition::{KeyCondition, RangeCondition};
use mutation::{Clustering, DecoratedKey};
use replica::{Order, OrderedScan, Place, WantedOrphans};

use super::Dynamo;
use super::places::{Reading, Rows};
use super::query_index::Search;
use crate::error::Result;
use crate::index_definition::SecondaryIndex;
use crate::secondary::Position;
use crate::store::read_consistency;
use crate::table::{ApiTable, key_bytes, key_value};

/// Candidates that are asked for at first, and at most.
const FIRST: usize = 16;
const MOST: usize = 1024;
/// Candidates that may come without an item for the page, beside as many as the page has.
const STALE_MAX: usize = 8192;

/// The terms of the items that meet a condition: the first, and the end.
struct Terms {
    start: Vec<u8>,
    end: Vec<u8>,
}

/// The condition on an attribute of an index, if any.
fn condition_on<'a>(
    index: &SecondaryIndex,
    condition: &'a KeyCondition,
    name: &str,
) -> Option<&'a RangeCondition> {
    let is_range = index.range.as_ref().is_some_and(|range| range.name == name);
    let further = condition.further.iter().find(|(of, _)| of == name).map(|(_, condition)| condition);
    further.or(condition.range.as_ref().filter(|_| is_range))
}

impl Terms {
    fn of(order: &Order, index: &SecondaryIndex, condition: &KeyCondition) -> Self {
        let mut values = vec![key_bytes(&condition.hash)];
        for key in index.keys().skip(1) {
            match condition_on(index, condition, &key.name) {
                Some(RangeCondition::Compare(Comparison::Eq, value)) => values.push(key_bytes(value)),
                Some(other) => return Self::of_range(order, &values, other),
                None => break,
            }
        }
        let start = order.prefix(values.iter().map(Vec::as_slice));
        Self { end: Order::behind(start.clone()), start }
    }

    fn of_range(order: &Order, values: &[Vec<u8>], condition: &RangeCondition) -> Self {
        let with = |value: &[u8]| order.prefix(values.iter().map(Vec::as_slice).chain([value]));
        let all = order.prefix(values.iter().map(Vec::as_slice));
        let (first, end) = (all.clone(), Order::behind(all));
        let at = |value: &Value| with(&key_bytes(value));
        let behind = |value: &Value| Order::behind(with(&key_bytes(value)));
        match condition {
            RangeCondition::Compare(comparison, value) => match comparison {
                Comparison::Eq | Comparison::Ne => Self { start: at(value), end: behind(value) },
                Comparison::Lt => Self { start: first, end: at(value) },
                Comparison::Le => Self { start: first, end: behind(value) },
                Comparison::Gt => Self { start: behind(value), end },
                Comparison::Ge => Self { start: at(value), end },
            },
            RangeCondition::Between(low, high) => Self { start: at(low), end: behind(high) },
            RangeCondition::BeginsWith(prefix) => {
                let next = next_prefix(key_bytes(prefix));
                Self { start: at(prefix), end: next.map_or(end, |next| with(&next)) }
            }
        }
    }
}

/// The first bytes behind all that begin so.
pub(super) fn next_prefix(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while prefix.last() == Some(&0xff) {
        prefix.pop();
    }
    *prefix.last_mut()? += 1;
    Some(prefix)
}

/// The term of an item at this position among those that meet the condition.
fn term(
    order: &Order,
    index: &SecondaryIndex,
    condition: &KeyCondition,
    position: &Position,
) -> Option<Bytes> {
    let mut values = vec![key_bytes(&condition.hash)];
    for key in &index.further_hash {
        let Some(RangeCondition::Compare(Comparison::Eq, value)) = condition_on(index, condition, &key.name)
        else {
            return None;
        };
        values.push(key_bytes(value));
    }
    values.extend(position.range.iter().map(key_bytes));
    Some(Order::term(order.prefix(values.iter().map(Vec::as_slice))).into())
}

/// The position that a term at a place stands for.
fn position(order: &Order, index: &SecondaryIndex, (term, place): &(Bytes, Place)) -> Option<Position> {
    let values = order.values(term)?;
    let of_ranges = values.get(index.hashes().count()..)?;
    let range: Option<Vec<Value>> =
        index.ranges().zip(of_ranges).map(|(key, bytes)| key_value(key.kind, bytes)).collect();
    let clustering = place.clustering.clone()?;
    Some(Position { range: range?, partition: place.key.clone(), clustering })
}

/// The places of a request so far: an item has a candidate for each of its versions, and is read once.
#[derive(Default)]
struct Seen {
    places: BTreeSet<(DecoratedKey, Clustering)>,
    /// Candidates in the order of the index.
    candidates: usize,
}

impl Seen {
    /// The rows of places that were not seen yet, by partition and in their order.
    fn rows(&mut self, places: impl Iterator<Item = Place>) -> Rows {
        let mut rows: BTreeMap<DecoratedKey, Vec<Clustering>> = BTreeMap::new();
        for Place { key, clustering } in places {
            let Some(clustering) = clustering else { continue };
            if self.places.insert((key.clone(), clustering.clone())) {
                rows.entry(key).or_default().push(clustering);
            }
        }
        for of_partition in rows.values_mut() {
            of_partition.sort_by(|a, b| a.position().cmp(b.position()));
        }
        rows.into_iter().collect()
    }
}

/// The orphans that may be items of a hash key; none of an index without any.
fn wanted_orphans(
    order: &Order,
    table: &ApiTable,
    index: &SecondaryIndex,
    condition: &KeyCondition,
) -> Option<WantedOrphans> {
    let query = index.query(table, &condition.hash).filter(|_| order.has_orphans())?;
    Some(WantedOrphans { term: order.orphans(&key_bytes(&condition.hash)).into(), query })
}

impl<C: Coordinator> Dynamo<C> {
    /// Looks at the items of a condition in the order of the index, as far as the page wants them; false when the index of storage is
    /// not there, or does not suffice.
    pub(super) async fn look_in_order(
        &self,
        start: Option<&Position>,
        is_reversed: bool,
        reading: &mut Reading<'_, Search<'_>>,
    ) -> Result<bool> {
        if reading.consistent {
            return Ok(false);
        }
        let table = reading.table;
        let Search { index, condition, request, .. } = reading.sink;
        let Some((name, order)) = table.order(index) else { return Ok(false) };
        let after = start.and_then(|start| {
            let place = Place { key: start.partition.clone(), clustering: Some(start.clustering.clone()) };
            Some((term(&order, index, condition, start)?, place))
        });
        let Terms { start, end } = Terms::of(&order, index, condition);
        let mut scan = OrderedScan {
            index: name,
            start: start.into(),
            end: end.into(),
            after,
            is_reversed,
            count: request.limit.clamp(1, FIRST),
            partition: partition(table, index, condition)?,
            unordered: wanted_orphans(&order, table, index, condition),
        };
        let mut seen = Seen::default();
        loop {
            let deadline = self.store().deadline(self.executor.limits().range_timeout);
            let (of, consistency) = (&table.table, read_consistency(false));
            let asked = Arc::new(scan.clone());
            let found = match self.executor.coordinator().scan_index(of, &asked, consistency, deadline).await
            {
                Err(error) if error.is_index_unavailable() => return Ok(false),
                found => found?,
            };
            if found.has_more_unordered {
                return Ok(false);
            }
            self.look_at_rows(seen.rows(found.unordered.into_iter()), reading).await?;
            let upto = found.places.last().and_then(|last| position(&order, index, last));
            let is_last = found.places.len() < scan.count;
            scan.after = found.places.last().cloned();
            seen.candidates += found.places.len();
            self.look_at_rows(seen.rows(found.places.into_iter().map(|(_, place)| place)), reading).await?;
            let nearest = &reading.sink.nearest;
            if is_last || upto.is_some_and(|upto| nearest.is_full_upto(&upto)) {
                return Ok(true);
            }
            if seen.candidates > STALE_MAX + 4 * nearest.len() {
                return Ok(false);
            }
            scan.count = nearest.room().clamp(FIRST, MOST);
        }
    }
}

/// The partition of all items of a hash key, where that is the table's.
fn partition(
    table: &ApiTable,
    index: &SecondaryIndex,
    condition: &KeyCondition,
) -> Result<Option<DecoratedKey>> {
    let is_own = index.hash.name == table.hash().name;
    is_own.then(|| table.partition(&condition.hash)).transpose()
}
