//! Pages of items, filtered and projected, as Query and Scan return them.

use std::collections::BTreeMap;

use exec::backend::Coordinator;
use items::{Condition, Item, Projection, Substitutions, item_size, json};
use replica::{Limits, ReadCommand};
use rt::preempt::Pace;
use serde_json::{Map, Value as Json, json as to_json};

use super::{Dynamo, add_capacity, read_units};
use crate::error::{ApiError, Result, invalid};
use crate::request::{Capacity, Request};
use crate::store::read_consistency;
use crate::table::{ApiTable, RowKey};

/// The bytes of items after which a page ends.
pub(super) const PAGE_BYTES: usize = 1 << 20;

/// The parameters of a page of a Query or Scan.
pub(super) struct PageRequest {
    /// The most items that are read.
    pub(super) limit: usize,
    pub(super) consistent: bool,
    pub(super) filter: Option<Condition>,
    projection: Option<Projection>,
    counts: bool,
    capacity: Capacity,
}

impl PageRequest {
    /// `verb` is that of messages; `legacy` the filter of before expressions with a small first letter.
    pub(super) fn read(
        request: &Request,
        substitutions: &Substitutions,
        (verb, legacy_name, legacy): (&str, &str, &str),
    ) -> Result<Self> {
        let select = request.one_of(
            "Select",
            &["SPECIFIC_ATTRIBUTES", "COUNT", "ALL_ATTRIBUTES", "ALL_PROJECTED_ATTRIBUTES"],
        )?;
        let chosen = ["ProjectionExpression", "AttributesToGet"].into_iter().find(|name| request.has(name));
        match (select, chosen) {
            (Some("ALL_PROJECTED_ATTRIBUTES"), _) if !request.has("IndexName") => {
                return invalid!(
                    "One or more parameter values were invalid: ALL_PROJECTED_ATTRIBUTES can be used only when {verb} \
                     using an IndexName"
                );
            }
            (Some("SPECIFIC_ATTRIBUTES"), None) => {
                return invalid!(
                    "Must specify the AttributesToGet or ProjectionExpression when choosing to get SPECIFIC_ATTRIBUTES"
                );
            }
            (Some(select), Some(chosen)) if select != "SPECIFIC_ATTRIBUTES" => {
                let select = if select == "COUNT" { "only the Count" } else { select };
                return invalid!("Cannot specify the {chosen} when choosing to get {select}");
            }
            _ => {}
        }
        let projection = request.projection(substitutions)?;
        let filter = match request.string("FilterExpression")? {
            Some(text) => Some(Condition::parse(text, "FilterExpression", substitutions)?),
            None => {
                let operator = request.string("ConditionalOperator")?;
                let filter = request.get(legacy_name);
                filter.map(|filter| items::legacy::filter(legacy, filter, operator)).transpose()?
            }
        };
        Ok(Self {
            limit: request
                .integer("Limit", 1, i64::from(i32::MAX))?
                .map_or(usize::MAX, |limit| limit as usize),
            consistent: request.boolean("ConsistentRead")?.unwrap_or(false),
            filter,
            projection,
            counts: select == Some("COUNT"),
            capacity: request.capacity()?,
        })
    }

    /// The page of a statement; a limit of none is the page's.
    pub(super) fn of_statement(
        (filter, projection): (Option<Condition>, Option<Projection>),
        limit: Option<usize>,
        consistent: bool,
        capacity: Capacity,
    ) -> Self {
        Self { limit: limit.unwrap_or(usize::MAX), consistent, filter, projection, counts: false, capacity }
    }

    /// Refuses filters on attributes of the key, which a Query has conditions for.
    pub(super) fn check_filter(&self, table: &ApiTable, request: &Request) -> Result<()> {
        let mut roots = Vec::new();
        if let Some(filter) = &self.filter {
            filter.roots(&mut roots);
        }
        match table.keys().find(|key| roots.contains(&key.name)) {
            Some(key) if request.has("FilterExpression") => invalid!(
                "Filter Expression can only contain non-primary key attributes: Primary key attribute: {}",
                key.name
            ),
            Some(key) => invalid!(
                "QueryFilter can only contain non-primary key attributes: Primary key attribute: {}",
                key.name
            ),
            None => Ok(()),
        }
    }
}

/// The key behind which a page begins.
pub(super) fn start_key(request: &Request, table: &ApiTable) -> Result<Option<RowKey>> {
    let Some(key) = request.get("ExclusiveStartKey") else { return Ok(None) };
    let key = json::read_item(key).map_err(|error| match error {
        items::Error::Validation(text) => {
            ApiError::validation(format!("The provided starting key is invalid: {text}"))
        }
        other => other.into(),
    })?;
    start_of(&key, table).map(Some)
}

/// The row that a starting key means.
pub(super) fn start_of(key: &Item, table: &ApiTable) -> Result<RowKey> {
    table.key(key).map_err(|error| ApiError {
        message: format!("The provided starting key is invalid: {}", error.message),
        ..error
    })
}

/// Items that were read, as far as a page goes.
#[derive(Default)]
pub(super) struct Page {
    /// The items that are shown.
    pub(super) items: Vec<Json>,
    /// The items that the filter let through.
    pub(super) count: usize,
    /// The items that were read.
    pub(super) scanned: usize,
    /// Bytes of the items that were read.
    pub(super) bytes: usize,
    /// The key behind which the next page begins; none behind the last.
    pub(super) last: Option<Item>,
}

impl Page {
    /// Adds an item; whether the page ends with it.
    fn take(&mut self, request: &PageRequest, item: &Item) -> bool {
        self.scanned += 1;
        self.bytes += item_size(item);
        if request.filter.as_ref().is_none_or(|filter| filter.holds(item)) {
            self.count += 1;
            if !request.counts {
                let shown = match &request.projection {
                    Some(projection) => json::item(&projection.apply(item)),
                    None => json::item(item),
                };
                self.items.push(shown);
            }
        }
        self.scanned >= request.limit || self.bytes >= PAGE_BYTES
    }

    /// The answer to a Query or Scan.
    pub(super) fn answer(self, table: &ApiTable, request: &PageRequest) -> Json {
        let mut answer = Map::new();
        if !request.counts {
            answer.insert("Items".to_owned(), Json::Array(self.items));
        }
        answer.insert("Count".to_owned(), to_json!(self.count));
        answer.insert("ScannedCount".to_owned(), to_json!(self.scanned));
        if let Some(last) = self.last {
            answer.insert("LastEvaluatedKey".to_owned(), json::item(&last));
        }
        add_capacity(&mut answer, table, request.capacity, read_units(self.bytes, request.consistent));
        Json::Object(answer)
    }
}

impl<C: Coordinator> Dynamo<C> {
    /// Reads a page.
    pub(super) async fn page(
        &self,
        table: &ApiTable,
        mut command: ReadCommand,
        request: &PageRequest,
    ) -> Result<Page> {
        let store = self.store();
        let mut out = Page::default();
        let mut decided = BTreeMap::new();
        let mut pace = Pace::default();
        loop {
            let left = request.limit - out.scanned;
            command.limits = Limits { rows: left as u64, bytes: PAGE_BYTES, ..Limits::NONE };
            let read = store.read(&command, read_consistency(request.consistent)).await?;
            for partition in &read.partitions {
                for row in partition.rows.iter().filter(|row| row.is_live(command.now)) {
                    pace.step().await;
                    let key = RowKey { partition: partition.key.clone(), clustering: row.clustering.clone() };
                    let state = table.state(&key, row, command.now)?;
                    let item = match &state.intent {
                        Some(intent) if request.consistent => {
                            let key = table.key_of_row(&key)?;
                            store.visible(state.item, &key, Some(intent), &mut decided).await?
                        }
                        _ => state.item,
                    };
                    let Some(item) = item else { continue };
                    pace.count(item_size(&item) / 4096);
                    if out.take(request, &item) {
                        out.last = Some(table.key_attributes(&item));
                        return Ok(out);
                    }
                }
            }
            match read.more {
                Some(more) => command.resume = Some(more),
                None => return Ok(out),
            }
            pace.step().await;
        }
    }
}

/// Refuses the name of an index: no table has one.
pub(super) fn check_index(request: &Request) -> Result<()> {
    match request.string("IndexName")? {
        Some(name) => invalid!("The table does not have the specified index: {name}"),
        None => Ok(()),
    }
}
