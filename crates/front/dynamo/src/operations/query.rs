//! Query.

use exec::backend::Coordinator;
use items::condition::Comparison;
use items::key_condition::{KeyAttribute, KeyCondition, RangeCondition};
use items::{Item, Value};
use mutation::{Bound, RowRange, Side, Slices};
use replica::{Keys, Partitions, ReadCommand};

use super::Dynamo;
use super::page::{Page, PageRequest, start_key, start_of};
use super::query_ordered::next_prefix;
use crate::error::{Result, invalid};
use crate::index_definition::{IndexKey, SecondaryIndex};
use crate::reply::Reply;
use crate::request::Request;
use crate::table::{ApiTable, RANGE_BYTES_MAX, RowKey, key_bytes, too_long_range};

/// The keys of the table, or of the index that is read.
pub(super) fn keys<'a>(
    table: &'a ApiTable,
    index: Option<&'a SecondaryIndex>,
) -> (KeyAttribute<'a>, Option<KeyAttribute<'a>>) {
    match index {
        Some(index) => (index.hash.attribute(), index.range.as_ref().map(IndexKey::attribute)),
        None => {
            let (hash, range) = (table.hash(), table.range());
            ((hash.name, hash.kind), range.map(|range| (range.name, range.kind)))
        }
    }
}

/// The condition on the keys of the table, or of the index that is read.
fn key_condition(
    table: &ApiTable,
    index: Option<&SecondaryIndex>,
    parts: Vec<(String, RangeCondition)>,
) -> Result<KeyCondition> {
    let condition = if let Some(index) = index.filter(|index| index.is_composite()) {
        let hashes: Vec<_> = index.hashes().map(IndexKey::attribute).collect();
        let ranges: Vec<_> = index.ranges().map(IndexKey::attribute).collect();
        KeyCondition::of_attributes(parts, &hashes, &ranges)?
    } else {
        let (hash, range) = keys(table, index);
        KeyCondition::of_parts(parts, hash, range)?
    };
    let is_too_long = |value: &Value| key_bytes(value).len() > RANGE_BYTES_MAX;
    if condition.range.iter().flat_map(RangeCondition::values).any(is_too_long) {
        return too_long_range();
    }
    Ok(condition)
}

/// The rows that a condition on the range key means.
fn rows(table: &ApiTable, condition: &RangeCondition) -> RowRange {
    let bound = |value: &Value, side: Side| Bound::new(&table.table, &[Some(&key_bytes(value))], side);
    let (bottom, top) = (Bound::bottom(), Bound::top());
    let (start, end) = match condition {
        RangeCondition::Compare(comparison, value) => match comparison {
            Comparison::Eq | Comparison::Ne => (bound(value, Side::Before), bound(value, Side::After)),
            Comparison::Lt => (bottom, bound(value, Side::Before)),
            Comparison::Le => (bottom, bound(value, Side::After)),
            Comparison::Gt => (bound(value, Side::After), top),
            Comparison::Ge => (bound(value, Side::Before), top),
        },
        RangeCondition::Between(low, high) => (bound(low, Side::Before), bound(high, Side::After)),
        RangeCondition::BeginsWith(prefix) => {
            let next = next_prefix(key_bytes(prefix));
            let end = next.map_or(top, |next| Bound::new(&table.table, &[Some(&next)], Side::Before));
            (bound(prefix, Side::Before), end)
        }
    };
    RowRange { start, end }
}

/// The part of the rows that lies behind the start key in the order of the read.
fn behind(range: RowRange, start: &RowKey, reversed: bool) -> Result<RowRange> {
    let outside = "The provided starting key is outside query boundaries based on provided conditions";
    if !range.contains(&start.clustering) {
        return invalid!("{outside}");
    }
    Ok(match reversed {
        false => RowRange { start: Bound::after_row(&start.clustering), ..range },
        true => RowRange { end: Bound::before_row(&start.clustering), ..range },
    })
}

/// The parameters of a Query that can be checked without its table: the conditions of key attributes, the key
/// behind which it begins, and the page.
pub(super) fn query_request(
    request: &Request,
) -> Result<(Vec<(String, RangeCondition)>, Option<Item>, PageRequest)> {
    request.table_name()?;
    let expressions = ["FilterExpression", "KeyConditionExpression"];
    request.check_mixed(
        &["AttributesToGet", "QueryFilter", "ConditionalOperator"],
        &["ProjectionExpression", "FilterExpression", "KeyConditionExpression"],
    )?;
    // Filters and projections had expressions before keys had: older clients use both.
    request.check_mixed(&["KeyConditions"], &["KeyConditionExpression"])?;
    let substitutions = request.substitutions(&expressions, &["ProjectionExpression"])?;
    let page = PageRequest::read(request, &substitutions, ("Querying", "QueryFilter", "queryFilter"))?;
    let parts = match (request.string("KeyConditionExpression")?, request.get("KeyConditions")) {
        (Some(text), _) => KeyCondition::parts(text, &substitutions)?,
        (None, Some(conditions)) => items::legacy::key_conditions(conditions)?,
        (None, None) => {
            return invalid!(
                "Either the KeyConditions or KeyConditionExpression parameter must be specified in the request."
            );
        }
    };
    substitutions.check_used()?;
    Ok((parts, start_key(request)?, page))
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn query(&self, request: &Request) -> Result<Reply> {
        let index = request.index_name()?;
        let (parts, start, page) = query_request(request)?;
        let table = self.table(request)?;
        let page = page.of_index(&table, index, "Query")?;
        let condition = key_condition(&table, page.index(), parts)?;
        page.check_filter(&table, request)?;
        let reversed = !request.boolean("ScanIndexForward")?.unwrap_or(true);
        let found = self.query_page(&table, &condition, start, reversed, &page).await?;
        self.count_page(Some(&table), &found, &page);
        Ok(found.answer(request.named_table(), &page))
    }

    /// The items of a key condition behind `start`.
    pub(super) async fn query_page(
        &self,
        table: &ApiTable,
        condition: &KeyCondition,
        start: Option<Item>,
        reversed: bool,
        page: &PageRequest,
    ) -> Result<Page> {
        let row = start.as_ref().map(|key| start_of(key, table, page.index())).transpose()?;
        if let Some(index) = page.index() {
            let start = match (start, row) {
                (Some(key), Some(row)) => {
                    if key.get(&index.hash.name) != Some(&*condition.hash) {
                        return invalid!(
                            "The provided starting key is outside query boundaries based on provided conditions"
                        );
                    }
                    if !index.matches(condition, &key) {
                        return invalid!("The provided starting key does not match the range key predicate");
                    }
                    Some(index.position(row, &key))
                }
                _ => None,
            };
            return Box::pin(self.query_index_page((table, index), condition, start, reversed, page)).await;
        }
        let start = row;
        let partition = table.partition(&condition.hash)?;
        let mut rows = condition.range.as_ref().map_or_else(RowRange::all, |range| rows(table, range));
        let mut is_over = false;
        if let Some(start) = start {
            if start.partition != partition {
                return invalid!(
                    "The provided starting key is outside query boundaries based on provided conditions"
                );
            }
            match table.range() {
                Some(_) => rows = behind(rows, &start, reversed)?,
                None => is_over = true,
            }
        }
        let slices = match table.range() {
            _ if is_over => Slices::new(Vec::new()),
            Some(_) => Slices::new(vec![rows]),
            None => Slices::all(),
        };
        let keys = Partitions::Keys(Keys::from_iter([partition]));
        let command = ReadCommand {
            slices,
            reversed,
            ..ReadCommand::all_of(table.table.clone(), keys, self.store().now())
        };
        self.page(table, command, page).await
    }
}
