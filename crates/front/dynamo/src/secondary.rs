//! Secondary indexes of a table: their items, the order and the projection.
//!
//! An index stores no items: a read of one finds its items in the table, by the table's own key or by an index that is attached to
//! storage (docs/design/dynamo.md). The API's definition of an index is in an extension of the table.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use items::key_condition::{KeyCondition, RangeCondition};
use items::{Item, Path, Value, stored};
use mutation::{Clustering, DecoratedKey};
use replica::{IndexQuery, Predicate};

use crate::error::{Result, invalid};
use crate::index_definition::{IndexKey, Projected, SecondaryIndex};
use crate::storage_indexes::storage_index;
use crate::table::{ApiTable, HASH_BYTES_MAX, KeyColumn, RANGE_BYTES_MAX, RowKey, key_bytes};
use crate::vector_definition::VectorIndex;

/// Whether a value may be that of a key of an index.
pub(crate) fn fits(key: &IndexKey, value: &Value, bytes_max: usize) -> bool {
    let len = match value {
        Value::S(text) => text.len(),
        Value::B(bytes) => bytes.len(),
        _ => 1,
    };
    value.type_name() == key.kind && (1..=bytes_max).contains(&len)
}

/// The question to the index of storage for the items with this value of an attribute; none where they are a partition of the table.
pub(crate) fn query(table: &ApiTable, attribute: &str, value: &Value) -> Option<IndexQuery> {
    if attribute == table.hash().name {
        return None;
    }
    let predicate = match table.range() {
        Some(range) if range.name == attribute => Predicate::Equal(key_bytes(value).into()),
        _ => Predicate::Entry {
            key: attribute.to_owned().into_bytes().into(),
            value: stored::encode(value).into(),
        },
    };
    Some(IndexQuery { index: storage_index(attribute), predicate })
}

impl SecondaryIndex {
    /// The question to the index of storage for the items with a hash key; none where they are a partition of the table.
    pub(crate) fn query(&self, table: &ApiTable, hash: &Value) -> Option<IndexQuery> {
        query(table, &self.hash.name, hash)
    }

    /// Whether it has an item: one that has its keys.
    pub(crate) fn has(&self, item: &Item) -> bool {
        let has =
            |key: &IndexKey, bytes_max| item.get(&key.name).is_some_and(|value| fits(key, value, bytes_max));
        self.hashes().all(|key| has(key, HASH_BYTES_MAX))
            && self.ranges().all(|key| has(key, RANGE_BYTES_MAX))
    }

    /// Whether it shows an attribute.
    pub(crate) fn shows(&self, table: &ApiTable, attribute: &str) -> bool {
        self.projected.has(attribute)
            || self.keys().any(|key| key.name == attribute)
            || table.keys().any(|key: KeyColumn<'_>| key.name == attribute)
    }

    /// The part of an item that it shows.
    pub(crate) fn project(&self, table: &ApiTable, item: Item) -> Item {
        match self.projected {
            Projected::All => item,
            _ => item.into_iter().filter(|(name, _)| self.shows(table, name)).collect(),
        }
    }

    /// The size of the part of an item that it shows.
    pub(crate) fn size(&self, table: &ApiTable, item: &Item) -> usize {
        let shown = item.iter().filter(|(name, _)| self.shows(table, name));
        shown.map(|(name, value)| name.len() + value.size()).sum()
    }

    /// The keys of an item: its own and those of the table.
    pub(crate) fn key_attributes(&self, table: &ApiTable, item: &Item) -> Item {
        let mut keys = table.key_attributes(item);
        keys.extend(self.keys().filter_map(|key| Some((key.name.clone(), item.get(&key.name)?.clone()))));
        keys
    }

    /// Whether it has an item under the keys of a condition.
    pub(crate) fn matches(&self, condition: &KeyCondition, item: &Item) -> bool {
        self.has(item)
            && item.get(&self.hash.name) == Some(&*condition.hash)
            && condition.range.as_ref().is_none_or(|range| {
                self.range
                    .as_ref()
                    .and_then(|key| item.get(&key.name))
                    .is_some_and(|value| holds(range, value))
            })
            && condition.further.iter().all(|(name, of)| item.get(name).is_some_and(|value| holds(of, value)))
    }

    /// The place of an item among those with its hash key.
    pub(crate) fn position(&self, key: RowKey, item: &Item) -> Position {
        let range = self.ranges().filter_map(|range| item.get(&range.name)).cloned().collect();
        Position { range, partition: key.partition, clustering: key.clustering }
    }
}

/// Refuses a value that a key of an index with this name cannot have; `is_hash`: one of its hash key.
pub(crate) fn check_key(
    (index, is_hash): (&str, bool),
    key: &IndexKey,
    value: &Value,
    is_update: bool,
) -> Result<()> {
    if value.type_name() != key.kind && is_update {
        return invalid!(
            "The update expression attempted to update the secondary index key to unsupported type"
        );
    }
    if value.type_name() != key.kind {
        return invalid!(
            "One or more parameter values were invalid: Type mismatch for Index Key {} Expected: {} Actual: {} \
                 IndexName: {}",
            key.name,
            key.kind,
            value.type_name(),
            index
        );
    }
    let what = match value {
        Value::S(text) if text.is_empty() => "string",
        Value::B(bytes) if bytes.is_empty() => "binary",
        value if !fits(key, value, if is_hash { HASH_BYTES_MAX } else { RANGE_BYTES_MAX }) => {
            if is_update {
                return invalid!(
                    "The update expression attempted to update the secondary index key beyond allowed size limits"
                );
            }
            let (what, max) = match is_hash {
                true => ("Size of hashkey has exceeded the maximum size limit of", HASH_BYTES_MAX),
                false => {
                    ("Aggregated size of all range keys has exceeded the size limit of ", RANGE_BYTES_MAX)
                }
            };
            return invalid!("One or more parameter values were invalid: {what}{max} bytes");
        }
        _ => return Ok(()),
    };
    if is_update {
        return invalid!(
            "One or more parameter values are not valid. The update expression attempted to update a secondary index \
                 key to a value that is not supported. The AttributeValue for a key attribute cannot contain an empty \
                 {what} value."
        );
    }
    invalid!(
        "One or more parameter values are not valid. A value specified for a secondary index key is not supported. The \
             AttributeValue for a key attribute cannot contain an empty {what} value. IndexName: {}, IndexKey: {}",
        index,
        key.name
    )
}

/// Refuses values that keys of indexes cannot have: those of `new` that are not in `old`, where it is an update.
pub(crate) fn check(table: &ApiTable, old: Option<&Item>, new: &Item) -> Result<()> {
    for index in table.indexes() {
        for key in index.keys() {
            let Some(value) = new.get(&key.name) else { continue };
            // The items of before the index may have any.
            if old.is_some_and(|old| old.get(&key.name) == Some(value)) {
                continue;
            }
            let is_hash = index.hashes().any(|hash| hash.name == key.name);
            check_key((&index.name, is_hash), key, value, old.is_some())?;
        }
    }
    Ok(())
}

/// Refuses an update of a part of a key.
pub(crate) fn check_paths<'a>(table: &ApiTable, mut paths: impl Iterator<Item = &'a Path>) -> Result<()> {
    let of_vectors = || table.vectors().iter().flat_map(VectorIndex::keys);
    let keys = || table.indexes().iter().flat_map(SecondaryIndex::keys).chain(of_vectors());
    let is_key = |name: &str| keys().any(|key| key.name == name);
    match paths.find(|path| !path.is_top() && is_key(&path.root)) {
        Some(path) => invalid!(
            "Key attributes must be scalars; list random access '[]' and map lookup '.' are not allowed: IndexKey: {}",
            path.root
        ),
        None => Ok(()),
    }
}

/// Whether a value of a range key meets a condition.
pub(crate) fn holds(condition: &RangeCondition, value: &Value) -> bool {
    use items::condition::Comparison;
    match condition {
        RangeCondition::Compare(comparison, with) => {
            value.order(with).is_some_and(|order| match comparison {
                Comparison::Eq | Comparison::Ne => order.is_eq(),
                Comparison::Lt => order.is_lt(),
                Comparison::Le => order.is_le(),
                Comparison::Gt => order.is_gt(),
                Comparison::Ge => order.is_ge(),
            })
        }
        RangeCondition::Between(low, high) => {
            value.order(low).is_some_and(Ordering::is_ge) && value.order(high).is_some_and(Ordering::is_le)
        }
        RangeCondition::BeginsWith(prefix) => match (value, &**prefix) {
            (Value::S(value), Value::S(prefix)) => value.starts_with(prefix.as_str()),
            (Value::B(value), Value::B(prefix)) => value.starts_with(prefix),
            _ => false,
        },
    }
}

/// The place of an item in an index: by the range key, and by the table's own key among equal ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) range: Vec<Value>,
    pub(crate) partition: DecoratedKey,
    pub(crate) clustering: Clustering,
}

impl Ord for Position {
    fn cmp(&self, other: &Self) -> Ordering {
        let pairs = self.range.iter().zip(&other.range);
        let mut orders = pairs.map(|(a, b)| a.order(b).unwrap_or(Ordering::Equal));
        orders
            .find(|order| order.is_ne())
            .unwrap_or_else(|| self.range.len().cmp(&other.range.len()))
            .then_with(|| self.partition.cmp(&other.partition))
            .then_with(|| self.clustering.cmp(&other.clustering))
    }
}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The first items behind a position, as many as a page holds: however many are offered, no more are kept.
pub(crate) struct Nearest {
    start: Option<Position>,
    is_reversed: bool,
    count_max: usize,
    bytes_max: usize,
    bytes: usize,
    kept: BTreeMap<Position, (Item, usize)>,
}

impl Nearest {
    /// Of at most `count_max` items; the one that reaches `bytes_max` is the last.
    pub(crate) fn new(
        start: Option<Position>,
        is_reversed: bool,
        count_max: usize,
        bytes_max: usize,
    ) -> Self {
        Self { start, is_reversed, count_max, bytes_max, bytes: 0, kept: BTreeMap::new() }
    }

    fn is_before(&self, a: &Position, b: &Position) -> bool {
        if self.is_reversed { a > b } else { a < b }
    }

    /// Whether an item at this position would be kept.
    pub(crate) fn wants(&self, position: &Position) -> bool {
        self.start.as_ref().is_none_or(|start| self.is_before(start, position))
            && !(self.is_full() && self.farthest().is_some_and(|last| self.is_before(last, position)))
    }

    fn farthest(&self) -> Option<&Position> {
        let mut positions = self.kept.keys();
        if self.is_reversed { positions.next() } else { positions.next_back() }
    }

    /// How many items are kept.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether only items before the last one of the page are still kept.
    pub(crate) fn is_full(&self) -> bool {
        self.kept.len() >= self.count_max || self.bytes >= self.bytes_max
    }

    /// Whether no item behind the offered ones would be kept, when items come in the order of the index.
    pub(crate) fn is_full_in_order(&self) -> bool {
        !self.is_reversed && self.is_full()
    }

    /// How many more items would be kept, if they are about as large as those that are.
    pub(crate) fn room(&self) -> usize {
        let of_bytes = match self.kept.len() {
            0 => self.count_max,
            count => self.bytes_max.saturating_sub(self.bytes) / (self.bytes / count).max(1) + 1,
        };
        self.count_max.saturating_sub(self.kept.len()).min(of_bytes)
    }

    /// Whether nothing behind a position would be kept.
    pub(crate) fn is_full_upto(&self, position: &Position) -> bool {
        self.is_full() && self.farthest().is_some_and(|last| !self.is_before(position, last))
    }

    /// The partition before which no item would be kept, when partitions are in the order of the index.
    pub(crate) fn first_partition(&self) -> Option<&DecoratedKey> {
        self.start.as_ref().filter(|_| !self.is_reversed).map(|start| &start.partition)
    }

    /// Offers an item of so many bytes.
    pub(crate) fn offer(&mut self, position: Position, item: Item, size: usize) {
        if !self.wants(&position) {
            return;
        }
        let Entry::Vacant(place) = self.kept.entry(position) else { return };
        place.insert((item, size));
        self.bytes += size;
        while self.kept.len() > self.count_max || self.bytes >= self.bytes_max {
            let Some((_, size)) = self.farthest().and_then(|last| self.kept.get(last)) else { return };
            let size = *size;
            if self.kept.len() <= self.count_max && self.bytes - size < self.bytes_max {
                return;
            }
            self.bytes -= size;
            if self.is_reversed {
                self.kept.pop_first();
            } else {
                self.kept.pop_last();
            }
        }
    }

    /// The items, the first one first.
    pub(crate) fn into_items(self) -> Vec<Item> {
        let mut items: Vec<Item> = self.kept.into_values().map(|(item, _)| item).collect();
        if self.is_reversed {
            items.reverse();
        }
        items
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use items::Number;

    use super::*;

    fn position(range: u32, partition: &'static str) -> Position {
        Position {
            range: vec![Value::N(Number::from_usize(range as usize))],
            partition: DecoratedKey::new(Bytes::from(partition)),
            clustering: Clustering::empty(),
        }
    }

    fn found(nearest: Nearest) -> Vec<String> {
        nearest.into_items().iter().filter_map(|item| Some(item.get("n")?.shown())).collect()
    }

    fn item(range: u32) -> Item {
        Item::from([("n".to_owned(), Value::N(Number::from_usize(range as usize)))])
    }

    #[test]
    fn the_nearest_items_are_kept_whatever_their_order() {
        for is_reversed in [false, true] {
            let start = Some(position(if is_reversed { 7 } else { 2 }, "a"));
            let mut nearest = Nearest::new(start.clone(), is_reversed, 3, 1000);
            for range in [9, 1, 5, 3, 8, 2, 4, 7, 6, 0] {
                nearest.offer(position(range, "a"), item(range), 10);
            }
            let wanted = if is_reversed { ["{N:6}", "{N:5}", "{N:4}"] } else { ["{N:3}", "{N:4}", "{N:5}"] };
            assert_eq!(found(nearest), wanted);
            // The item that reaches the bytes is the last.
            let mut nearest = Nearest::new(start, is_reversed, 100, 15);
            for range in [9, 1, 5, 3, 8, 2, 4, 7, 6, 0] {
                nearest.offer(position(range, "a"), item(range), 10);
            }
            assert_eq!(found(nearest), wanted[..2]);
        }
    }

    #[test]
    fn equal_range_keys_are_in_the_order_of_the_table() {
        let mut keys = ["a", "b", "c", "d"].map(|key| position(1, key));
        keys.sort();
        let mut nearest = Nearest::new(Some(keys[1].clone()), false, 10, 1000);
        for (at, key) in keys.iter().enumerate() {
            nearest.offer(key.clone(), item(at as u32), 1);
        }
        assert_eq!(found(nearest), ["{N:2}", "{N:3}"]);
    }
}
