//! SearchVectors: the items of a vector index that are nearest to a vector.
//!
//! As of SELECT … ORDER BY v ANN OF (docs/design/vectors.md): an index of storage names candidates by quantised vectors; their items are
//! read, filtered and compared exactly. When too few of them pass, more candidates are asked for, and at last all items that can pass
//! are compared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use exec::backend::Coordinator;
use items::condition::{Comparison, Operand};
use items::{Condition, Item, Projection, Value, item_size, json, vector};
use mutation::{DecoratedKey, PartitionRange};
use replica::{Candidates, Keys, NearestQuery, NearestTo, Partitions, Place};
use serde_json::{Map, json as to_json};

use super::Dynamo;
use super::places::{Reading, Sink};
use crate::error::{Result, invalid};
use crate::reply::{ANSWER_TEXT_BYTES, Reply, Texts};
use crate::request::{Capacity, Request, constraint};
use crate::secondary;
use crate::store::read_consistency;
use crate::table::{ApiTable, RowKey};
use crate::vector_definition::VectorIndex;

/// The greatest `TopK`.
const TOP_MAX: i64 = 100;
/// The most bytes of an answer's items (AWS: Vector indexes, Requirements and limitations).
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Candidates that are asked for at least.
const CANDIDATES_MIN: usize = 32;
/// Candidates for each item that is wanted, as they are compared by quantised vectors.
const CANDIDATES_AN_ITEM: usize = 3;
/// So many times as many are asked for when the first were too few.
const MORE: usize = 4;
/// When so many candidates were too few, all items are compared.
const CANDIDATES_MAX: usize = 4_096;
/// The least that a search counts as, in bytes.
const SEARCH_BYTES_MIN: usize = 1024;

/// A search under way: the nearest items so far.
struct Search<'a> {
    index: &'a VectorIndex,
    vector: &'a [f32],
    conditions: &'a [(String, Value)],
    limit: usize,
    table: &'a ApiTable,
    projection: Option<&'a Projection>,
    /// By rank, and by the key among equals.
    nearest: BTreeMap<Position, Found>,
    /// Bytes of the texts of the nearest items.
    text_bytes: usize,
    /// Items that passed.
    passed: usize,
    /// Bytes of the vectors that were compared.
    bytes: usize,
}

/// An item among the nearest, as it is shown.
struct Found {
    score: f64,
    /// As an item counts, in bytes.
    size: usize,
    /// None where nearer ones have more bytes than an answer: no such answer is given, unless yet nearer ones are smaller.
    text: Option<String>,
}

impl Found {
    fn text_bytes(&self) -> usize {
        self.text.as_ref().map_or(0, String::len)
    }
}

/// The place of an item among the results.
#[derive(PartialEq)]
struct Position {
    rank: f64,
    key: (DecoratedKey, mutation::Clustering),
}

impl Eq for Position {}

impl Ord for Position {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank.total_cmp(&other.rank).then_with(|| self.key.cmp(&other.key))
    }
}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Sink for Search<'_> {
    fn offer(&mut self, key: RowKey, item: Item) -> usize {
        let passes = self.conditions.iter().all(|(name, value)| item.get(name) == Some(value));
        let Some(vector) = self.index.vector_of(&item).filter(|_| passes) else { return 1 };
        self.passed += 1;
        self.bytes += vector.len() * size_of::<f32>();
        let score = self.index.distance.score(self.vector, &vector);
        let position =
            Position { rank: self.index.distance.rank(score), key: (key.partition, key.clustering) };
        let is_nearer = self.nearest.last_key_value().is_none_or(|(last, _)| position < *last);
        if is_nearer || self.nearest.len() < self.limit {
            self.keep(position, score, item);
        }
        1 + vector.len() / 64
    }
}

impl Search<'_> {
    /// Adds one of the nearest items: its text, as a hundred items take much memory.
    fn keep(&mut self, position: Position, score: f64, item: Item) {
        let item = shown(self.table, self.index, self.projection, item);
        let mut text = String::new();
        json::write_item(&item, &mut text);
        let found = Found { score, size: item_size(&item), text: Some(text) };
        self.text_bytes += found.text_bytes();
        if let Some(known) = self.nearest.insert(position, found) {
            self.text_bytes -= known.text_bytes();
        }
        if self.nearest.len() > self.limit
            && let Some((_, farthest)) = self.nearest.pop_last()
        {
            self.text_bytes -= farthest.text_bytes();
        }
        let mut farthest = self.nearest.values_mut().rev();
        while self.text_bytes > ANSWER_TEXT_BYTES
            && let Some(found) = farthest.next()
        {
            self.text_bytes -= found.text_bytes();
            found.text = None;
        }
    }

    fn clear(&mut self) {
        self.nearest.clear();
        self.text_bytes = 0;
    }
}

/// `SearchVector`
fn search_vector(request: &Request) -> Result<Vec<f32>> {
    let components = json::read_list(request.required("SearchVector")?)?;
    if components.is_empty() {
        return constraint("[]", "searchVector", "Member must have length greater than or equal to 1");
    }
    if components.len() > vector::DIMENSIONS_MAX {
        let bound = format!("Member must have length less than or equal to {}", vector::DIMENSIONS_MAX);
        return constraint("[...]", "searchVector", &bound);
    }
    let mut out = Vec::with_capacity(components.len());
    for component in components {
        match vector::component(&json::read_value(component)?) {
            Some(component) => out.push(component),
            None => {
                return invalid!(
                    "Search vector contains invalid values. All values in the search vector must be a 32-bit \
                     floating-point number attribute"
                );
            }
        }
    }
    Ok(out)
}

/// `TopK`
fn top(request: &Request) -> Result<usize> {
    let top = json::read_integer(request.required("TopK")?)?;
    match usize::try_from(top).ok().filter(|_| (1..=TOP_MAX).contains(&top)) {
        Some(top) => Ok(top),
        None => invalid!(
            "Provided TopK value '{top}' is out of valid range. The value must be between 1 and {TOP_MAX} inclusive"
        ),
    }
}

/// The attributes of `SearchConditionExpression` and the values that they are to have.
fn equalities(condition: Condition, out: &mut Vec<(String, Value)>) -> Result<()> {
    const INVALID: &str = "Invalid SearchConditionExpression:";
    match condition {
        Condition::And(all) => all.into_iter().try_for_each(|one| equalities(one, out)),
        Condition::Compare(Comparison::Eq, Operand::Path(path), Operand::Value(value)) if path.is_top() => {
            if out.iter().any(|(known, _)| *known == path.root) {
                return invalid!(
                    "{INVALID} SearchConditionExpression must only contain one condition per attribute"
                );
            }
            out.push((path.root, (*value).clone()));
            Ok(())
        }
        Condition::Compare(Comparison::Eq, Operand::Path(path), _) if !path.is_top() => invalid!(
            "{INVALID} SearchConditionExpression must only contain top-level attributes: {}",
            path.shown()
        ),
        Condition::Compare(..) => {
            invalid!("{INVALID} Invalid comparator used in SearchConditionExpression")
        }
        _ => invalid!("{INVALID} Invalid operator used in SearchConditionExpression"),
    }
}

/// Holds the conditions against the search schema of the index.
fn check_conditions(index: &VectorIndex, conditions: &[(String, Value)]) -> Result<()> {
    for (name, value) in conditions {
        let Some(key) = index.keys().find(|key| key.name == *name) else {
            return invalid!(
                "SearchConditionExpression must not contain any attributes that is not in SearchSchema. Invalid attribute: \
                 {name}"
            );
        };
        if value.type_name() != key.kind {
            return invalid!(
                "One or more parameter values were invalid: Condition parameter type does not match schema type"
            );
        }
    }
    let is_given = |name: &str| conditions.iter().any(|(known, _)| known == name);
    if index.hash.as_ref().is_some_and(|key| !is_given(&key.name)) {
        return invalid!("SearchConditionExpression must be provided when SearchSchema has a HASH key");
    }
    Ok(())
}

/// The answer's item: attributes that the index does not show are left out, and the vector unless the projection names it.
fn shown(table: &ApiTable, index: &VectorIndex, projection: Option<&Projection>, item: Item) -> Item {
    let shows = |name: &str| index.shows(table, name) && (projection.is_some() || name != index.attribute);
    let item: Item = item.into_iter().filter(|(name, _)| shows(name)).collect();
    projection.map_or_else(|| item.clone(), |projection| projection.apply(&item))
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn search_vectors(&self, request: &Request) -> Result<Reply> {
        request.table_name()?;
        let Some(name) = request.index_name()? else {
            return constraint("null", "indexName", "Member must not be null");
        };
        let (vector, limit) = (search_vector(request)?, top(request)?);
        let substitutions =
            request.substitutions(&["SearchConditionExpression"], &["ProjectionExpression"])?;
        let text = request.string("SearchConditionExpression")?;
        let mut conditions = Vec::new();
        if let Some(text) = text {
            equalities(
                Condition::parse(text, "SearchConditionExpression", &substitutions)?,
                &mut conditions,
            )?;
        }
        let projection = match request.string("ProjectionExpression")? {
            Some(text) => Some(Projection::parse(text, &substitutions)?),
            None => None,
        };
        substitutions.check_used()?;
        let asked = request.capacity()?;
        let table = self.table(request)?;
        let index = table.vector_index(name)?;
        if vector.len() != index.dimensions {
            return invalid!(
                "Input search vector dimension {} does not match vector index dimension {}",
                vector.len(),
                index.dimensions
            );
        }
        check_conditions(index, &conditions)?;
        let (vector, conditions) = (&vector[..], &conditions[..]);
        let search = Search {
            index,
            vector,
            conditions,
            limit,
            table: &table,
            projection: projection.as_ref(),
            nearest: BTreeMap::new(),
            text_bytes: 0,
            passed: 0,
            bytes: 0,
        };
        let mut reading = Reading::new(&table, false, search);
        if !self.by_candidates(&mut reading).await? {
            reading.sink.clear();
            self.among_all(&mut reading).await?;
        }
        self.found(reading, asked).await
    }

    /// Compares candidates of the index of storage, more each time, until enough have passed; false when too many would be needed.
    async fn by_candidates(&self, reading: &mut Reading<'_, Search<'_>>) -> Result<bool> {
        let limit = reading.sink.limit;
        let mut count = (limit * CANDIDATES_AN_ITEM).clamp(CANDIDATES_MIN, CANDIDATES_MAX);
        let mut known: BTreeSet<(DecoratedKey, mutation::Clustering)> = BTreeSet::new();
        loop {
            let candidates = self.candidates(reading, count).await?.places;
            let is_all = candidates.len() < count;
            let mut rows: BTreeMap<DecoratedKey, Vec<mutation::Clustering>> = BTreeMap::new();
            for Place { key, clustering } in candidates.into_iter().map(|candidate| candidate.place) {
                let Some(clustering) = clustering else { continue };
                if known.insert((key.clone(), clustering.clone())) {
                    rows.entry(key).or_default().push(clustering);
                }
            }
            self.look_at_rows(rows.into_iter().collect(), reading).await?;
            if is_all || reading.sink.passed >= limit {
                return Ok(true);
            }
            if count >= CANDIDATES_MAX {
                return Ok(false);
            }
            count = (count * MORE).min(CANDIDATES_MAX);
        }
    }

    async fn candidates(&self, reading: &Reading<'_, Search<'_>>, count: usize) -> Result<Candidates> {
        let index = reading.sink.index;
        let to = NearestTo::Vector(reading.sink.vector.to_vec());
        let query = Arc::new(NearestQuery { index: index.storage_index(), to, count });
        let deadline = self.store().deadline(self.executor.limits().range_timeout);
        let (coordinator, consistency) = (self.executor.coordinator(), read_consistency(reading.consistent));
        match coordinator.nearest(&reading.table.table, &query, consistency, deadline).await {
            Err(error) if error.is_index_unavailable() => {
                invalid!("Cannot search backfilling vector index: {}", index.name)
            }
            found => Ok(found?),
        }
    }

    /// Compares all items that can pass: those with the value of the hash key, or all of the table.
    async fn among_all(&self, reading: &mut Reading<'_, Search<'_>>) -> Result<()> {
        let table = reading.table;
        let hash = reading.sink.index.hash.as_ref();
        let value = hash.and_then(|key| reading.sink.conditions.iter().find(|(name, _)| *name == key.name));
        if let Some((name, value)) = value {
            match secondary::query(table, name, value) {
                None => {
                    let keys = Keys::from_iter([table.partition(value)?]);
                    return self.look_through(Partitions::Keys(keys), reading).await;
                }
                Some(query) => {
                    if self.look_at_places(query, reading).await? {
                        return Ok(());
                    }
                    reading.sink.clear();
                }
            }
        }
        self.look_through(Partitions::Range(PartitionRange::all()), reading).await
    }

    /// The answer.
    async fn found(&self, mut reading: Reading<'_, Search<'_>>, asked: Capacity) -> Result<Reply> {
        let (mut results, mut bytes) = (Texts::default(), 0);
        for Found { score, size, text } in std::mem::take(&mut reading.sink.nearest).into_values() {
            reading.pace.step().await;
            reading.pace.count(size / 4096);
            bytes += size;
            let Some(text) = text.filter(|_| bytes <= ANSWER_BYTES_MAX) else {
                return invalid!(
                    "The results have more than {ANSWER_BYTES_MAX} bytes, or {ANSWER_TEXT_BYTES} as they are sent: ask for \
                     fewer by TopK, or for less of them by ProjectionExpression"
                );
            };
            // The index compares in single precision.
            let score = Map::from_iter([("Score".to_owned(), to_json!(score as f32))]);
            results.push_text(Reply::of_text("Item", &text, score).into_text());
        }
        let consumed = (reading.sink.bytes + bytes).max(SEARCH_BYTES_MIN);
        self.metrics.read(Some(reading.table), super::size::read_units(consumed, false));
        let mut answer = Map::new();
        if asked != Capacity::None {
            let capacity = to_json!({ "VectorSearchRequestBytes": consumed as f64 });
            answer.insert("ConsumedCapacity".to_owned(), capacity);
        }
        Ok(Reply::of_list("SearchResults", &results, answer))
    }
}
