//! Pages of items, filtered and projected, as Query and Scan return them.

use std::collections::{BTreeMap, BTreeSet};

use exec::backend::Coordinator;
use items::{Condition, Item, Projection, Substitutions, ion, item_size, json};
use replica::{Limits, ReadCommand};
use rt::preempt::Pace;
use serde_json::{Map, Value as Json, json as to_json};

use super::Dynamo;
use super::consumed::Consumed;
use super::size::read_units;
use crate::error::{ApiError, Result, invalid};
use crate::index_definition::{Projected, SecondaryIndex};
use crate::reply::{Reply, Texts};
use crate::request::{Capacity, Request};
use crate::store::read_consistency;
use crate::table::{ApiTable, RowKey};

/// The bytes of items after which a page ends.
pub(super) const PAGE_BYTES: usize = 1 << 20;

/// The bytes of an answer's items after which a page ends, as they are sent: a short number or a list may be sent in tens of times the
/// bytes that it counts for.
pub(super) const PAGE_TEXT_BYTES: usize = 8 << 20;
/// Rows that an index does not have after which a page of its Scan ends.
const LEFT_OUT_MAX: usize = 10_000;
/// Rows that a Scan of an index reads at once, however few items are asked for: most may be left out.
const INDEX_ROWS: usize = 1_000;

/// The parameters of a page of a Query or Scan.
pub(super) struct PageRequest {
    /// The most items that are read.
    pub(super) limit: usize,
    pub(super) consistent: bool,
    pub(super) filter: Option<Condition>,
    projection: Option<Projection>,
    counts: bool,
    capacity: Capacity,
    asks_for_all: bool,
    /// The index that is read.
    index: Option<SecondaryIndex>,
    /// Whether the items of an index are shown with attributes that it does not show.
    fetches: bool,
    /// Whether the items are texts of Ion, and not of JSON.
    in_ion: bool,
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
                let is_or = request.is_or(legacy_name)?;
                let filter = request.get(legacy_name);
                filter.map(|filter| items::legacy::filter(legacy, filter, is_or)).transpose()?
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
            asks_for_all: select == Some("ALL_ATTRIBUTES"),
            index: None,
            fetches: false,
            in_ion: false,
        })
    }

    /// The page of a statement; a limit of none is the page's.
    pub(super) fn of_statement(
        (filter, projection): (Option<Condition>, Option<Projection>),
        limit: Option<usize>,
        consistent: bool,
        capacity: Capacity,
    ) -> Self {
        Self {
            limit: limit.unwrap_or(usize::MAX),
            consistent,
            filter,
            projection,
            counts: false,
            capacity,
            asks_for_all: false,
            index: None,
            fetches: false,
            in_ion: false,
        }
    }

    /// Every item of a table, as an export has them.
    pub(super) fn of_export(in_ion: bool) -> Self {
        Self { in_ion, ..Self::of_statement((None, None), None, true, Capacity::None) }
    }

    /// The same of an index of the table, where it is named, for this operation.
    ///
    /// # Errors
    /// When there is no such index, or it does not have the requested attributes.
    pub(super) fn of_index(mut self, table: &ApiTable, name: Option<&str>, operation: &str) -> Result<Self> {
        const WRONG: &str = "One or more parameter values were invalid:";
        let Some(name) = name else { return Ok(self) };
        if table.vectors().iter().any(|index| index.name == name) {
            let end = if operation == "Query" { "." } else { "" };
            return invalid!("{operation} operation not supported on this index type{end}");
        }
        let index = table.index(name)?;
        let hidden = |names: Vec<&str>| {
            let names = names.into_iter().filter(|name| !index.shows(table, name)).map(str::to_owned);
            names.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
        };
        let projected = hidden(self.projection.as_ref().map(Projection::roots).unwrap_or_default());
        let mut roots = Vec::new();
        if let Some(filter) = &self.filter {
            filter.roots(&mut roots);
        }
        let filtered = hidden(roots);
        if index.is_global {
            if self.consistent {
                return invalid!("Consistent reads are not supported on global secondary indexes");
            }
            if self.asks_for_all && index.projected != Projected::All {
                return invalid!(
                    "{WRONG} Select type ALL_ATTRIBUTES is not supported for global secondary index {name} because its \
                     projection type is not ALL"
                );
            }
            if !projected.is_empty() {
                return invalid!("{WRONG} Global secondary index {name} does not project [{projected}]");
            }
            if !filtered.is_empty() {
                return invalid!(
                    "{WRONG} Secondary index {name} does not project one or more filter attributes: [{filtered}]"
                );
            }
        }
        let asks_for_more = self.asks_for_all || !projected.is_empty() || !filtered.is_empty();
        self.fetches = asks_for_more && index.projected != Projected::All;
        self.index = Some(index);
        Ok(self)
    }

    /// Whether all items that are read are shown as they are.
    fn shows_rows(&self) -> bool {
        self.filter.is_none()
            && self.projection.is_none()
            && self.index.is_none()
            && !self.counts
            && !self.in_ion
    }

    pub(super) fn index(&self) -> Option<&SecondaryIndex> {
        self.index.as_ref()
    }

    /// The part of an item that is read.
    pub(super) fn visible(&self, table: &ApiTable, item: Item) -> Item {
        match &self.index {
            Some(index) if !self.fetches => index.project(table, item),
            _ => item,
        }
    }

    /// The keys of an item, behind which a page begins.
    fn keys(&self, table: &ApiTable, item: &Item) -> Item {
        match &self.index {
            Some(index) => index.key_attributes(table, item),
            None => table.key_attributes(item),
        }
    }

    /// Refuses filters on attributes of the key, which a Query has conditions for.
    pub(super) fn check_filter(&self, table: &ApiTable, request: &Request) -> Result<()> {
        let keys: Vec<&str> = match &self.index {
            Some(index) => index.keys().map(|key| key.name.as_str()).collect(),
            None => table.keys().map(|key| key.name).collect(),
        };
        self.check_filter_of(&keys, request)
    }

    /// The same where these are the attributes of the key.
    pub(super) fn check_filter_of(&self, keys: &[&str], request: &Request) -> Result<()> {
        let mut roots = Vec::new();
        if let Some(filter) = &self.filter {
            filter.roots(&mut roots);
        }
        let what = if request.has("FilterExpression") { "Filter Expression" } else { "QueryFilter" };
        match keys.iter().find(|key| roots.contains(key)) {
            Some(key) => {
                invalid!("{what} can only contain non-primary key attributes: Primary key attribute: {key}")
            }
            None => Ok(()),
        }
    }
}

/// The key behind which a page begins.
pub(super) fn start_key(request: &Request) -> Result<Option<Item>> {
    let Some(key) = request.get("ExclusiveStartKey") else { return Ok(None) };
    let key = json::read_item(key).map_err(|error| match error {
        items::Error::Validation(text) => {
            ApiError::validation(format!("The provided starting key is invalid: {text}"))
        }
        other => other.into(),
    })?;
    Ok(Some(key))
}

/// The row that a starting key means, which has the keys of the index as well where one is read.
pub(super) fn start_of(key: &Item, table: &ApiTable, index: Option<&SecondaryIndex>) -> Result<RowKey> {
    let row = match index {
        None => table.key(key),
        Some(index) if !index.has(key) || index.key_attributes(table, key) != *key => {
            invalid!("The provided key element does not match the schema")
        }
        Some(_) => table.key(&table.key_attributes(key)),
    };
    row.map_err(|error| ApiError {
        message: format!("The provided starting key is invalid: {}", error.message),
        ..error
    })
}

/// [`start_of`] a Scan, whose page may have ended at an item that the index does not have: with the table's own key alone.
pub(super) fn start_of_scan(key: &Item, table: &ApiTable, index: Option<&SecondaryIndex>) -> Result<RowKey> {
    let is_of_table = table.key_attributes(key) == *key;
    start_of(key, table, index.filter(|_| !is_of_table))
}

/// The bytes that were read for a page, and the units of those that were fetched.
#[derive(Default)]
pub(super) struct ReadBytes {
    /// Of the items.
    pub(super) items: usize,
    /// Of the parts of them that the index shows, where more of them was fetched from the table.
    projected: usize,
    /// The units of the items that were fetched, each by itself.
    fetched_units: f64,
}

impl ReadBytes {
    /// Adds those of another page.
    pub(super) fn add(&mut self, other: &Self) {
        self.items += other.items;
        self.projected += other.projected;
        self.fetched_units += other.fetched_units;
    }

    /// The units of capacity that they cost: of the table, or of the index that is read and the items that are fetched for it.
    pub(super) fn consumed(&self, request: &PageRequest) -> Consumed {
        let Some(index) = &request.index else {
            return Consumed::of_table(read_units(self.items, request.consistent));
        };
        let bytes = if request.fetches { self.projected } else { self.items };
        let mut consumed = Consumed::of_table(self.fetched_units);
        consumed.add_to_index(index, read_units(bytes, request.consistent));
        consumed
    }
}

/// Items that were read, as far as a page goes.
#[derive(Default)]
pub(super) struct Page {
    /// The items that are shown.
    pub(super) items: Texts,
    /// The items that the filter let through.
    pub(super) count: usize,
    /// The items that were read.
    pub(super) scanned: usize,
    /// The bytes that were read.
    pub(super) read: ReadBytes,
    /// The key behind which the next page begins; none behind the last.
    pub(super) last: Option<Item>,
    /// Rows that were read and that the index does not have.
    left_out: usize,
}

impl Page {
    /// Adds an item; whether the page ends with it.
    pub(super) fn take(&mut self, table: &ApiTable, request: &PageRequest, item: Item) -> bool {
        if request.index.as_ref().is_some_and(|index| !index.has(&item)) {
            // An index that has few of the table's items would keep the client waiting until its timeout, each time anew.
            self.left_out += 1;
            let is_full = self.left_out >= LEFT_OUT_MAX;
            if is_full {
                self.last = Some(table.key_attributes(&item));
            }
            return is_full;
        }
        // More was read than the index has, for the filter.
        let narrowed = |item: &Item| match &request.index {
            Some(index) if request.fetches && !request.asks_for_all => {
                Some(index.project(table, item.clone()))
            }
            _ => None,
        };
        if let Some(index) = request.index.as_ref().filter(|_| request.fetches) {
            self.read.projected += index.size(table, &item);
            self.read.fetched_units += read_units(item_size(&item), request.consistent);
        }
        let keys = |item: &Item| request.keys(table, item);
        self.take_visible(request, request.visible(table, item), (keys, narrowed))
    }

    /// Adds an item as it is read; whether the page ends with it. `keys` gives its keys, `narrowed` the part of it that is shown where
    /// nothing is projected, if that is not all.
    pub(super) fn take_visible(
        &mut self,
        request: &PageRequest,
        item: Item,
        (keys, narrowed): (impl FnOnce(&Item) -> Item, impl FnOnce(&Item) -> Option<Item>),
    ) -> bool {
        self.scanned += 1;
        self.read.items += item_size(&item);
        if request.filter.as_ref().is_none_or(|filter| filter.holds(&item)) {
            self.count += 1;
            if !request.counts {
                match &request.projection {
                    Some(projection) => self.show(request, &projection.apply(&item)),
                    None => self.show(request, narrowed(&item).as_ref().unwrap_or(&item)),
                }
            }
        }
        let is_full = self.is_full(request);
        if is_full {
            self.last = Some(keys(&item));
        }
        is_full
    }

    /// Adds the text of an item.
    fn show(&mut self, request: &PageRequest, item: &Item) {
        if request.in_ion {
            let mut text = String::new();
            ion::write_item(item, &mut text);
            self.items.push_text(text);
        } else {
            self.items.push(item);
        }
    }

    /// Adds an item that is shown as it is, by its text and size; whether the page ends with it.
    fn take_text(&mut self, request: &PageRequest, (text, size): (String, usize)) -> bool {
        assert!(request.shows_rows(), "an item that is looked at is not a text");
        self.scanned += 1;
        self.count += 1;
        self.read.items += size;
        self.items.push_text(text);
        self.is_full(request)
    }

    fn is_full(&self, request: &PageRequest) -> bool {
        self.scanned >= request.limit
            || self.read.items >= PAGE_BYTES
            || self.items.bytes() >= PAGE_TEXT_BYTES
    }

    /// The answer to a Query or Scan.
    pub(super) fn answer(self, table: &str, request: &PageRequest) -> Reply {
        let consumed = self.read.consumed(request);
        let mut answer = Map::new();
        answer.insert("Count".to_owned(), to_json!(self.count));
        answer.insert("ScannedCount".to_owned(), to_json!(self.scanned));
        if let Some(last) = self.last {
            answer.insert("LastEvaluatedKey".to_owned(), json::item(&last));
        }
        consumed.show(&mut answer, table, request.capacity);
        match request.counts {
            true => Json::Object(answer).into(),
            false => Reply::of_list("Items", &self.items, answer),
        }
    }
}

impl<C: Coordinator> Dynamo<C> {
    /// Counts the work of a Query or Scan: the units that it consumed, and the work of its filter.
    pub(super) fn count_page(&self, table: Option<&ApiTable>, page: &Page, request: &PageRequest) {
        self.metrics.read(table, page.read.consumed(request).total());
        if !request.counts {
            self.metrics.count(|figures| figures.returned_items += page.count as u64);
        }
        if request.filter.is_some() {
            self.metrics.count(|figures| {
                figures.filtered_rows_read += page.scanned as u64;
                figures.filtered_rows_matched += page.count as u64;
            });
        }
    }

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
            let least = if request.index.is_some() { INDEX_ROWS } else { 0 };
            let left = (request.limit - out.scanned).max(least);
            command.limits = Limits { rows: left as u64, bytes: PAGE_BYTES, ..Limits::NONE };
            let read = store.read(&command, read_consistency(request.consistent)).await?;
            for partition in &read.partitions {
                for row in partition.rows.iter().filter(|row| row.is_live(command.now)) {
                    pace.step().await;
                    let key = RowKey { partition: partition.key.clone(), clustering: row.clustering.clone() };
                    if request.shows_rows()
                        && let Some(text) = table.text_of_row(&key, row, command.now)
                    {
                        pace.count(text.1 / 4096);
                        if out.take_text(request, text) {
                            out.last = Some(table.key_of_row(&key)?);
                            return Ok(out);
                        }
                        continue;
                    }
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
                    if out.take(table, request, item) {
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
