//! System tables, which Query and Scan read under ScyllaDB's names for them: `.scylla.alternator.KEYSPACE.TABLE`.
//!
//! They are read by CQL's SELECT, so that its permissions hold and computed tables are computed. Text columns are strings, blobs binary,
//! booleans booleans and decimals numbers; all other values are strings, as CQL shows them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use exec::backend::Coordinator;
use exec::expr::{Value as CqlValue, bind::Binds};
use exec::lookup::Lookup;
use exec::plan::Plan;
use exec::request::Parameters;
use exec::sink::{PagingState, RESULT_BYTES_MAX, ResultColumns, RowSink, RowsPosition, Sink};
use exec::{Caller, Principal};
use items::condition::Comparison;
use items::key_condition::{KeyAttribute, KeyCondition, RangeCondition};
use items::update::SetValue;
use items::{Item, Number, Value};
use mutation::{Clustering, DecoratedKey, RingPosition};
use replica::Resume;
use schema::{Column, Schema, Table};
use serde_json::{Map, Value as Json};
use types::{CqlType, quote_identifier};

use super::Dynamo;
use super::consumed::Consumed;
use super::page::{Page, PageRequest};
use super::query::query_request;
use super::query_ordered::next_prefix;
use super::scan::{scan_request, segment_range, wrong_segment};
use super::size::write_units;
use super::write::{condition, update_request};
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::names::system_table;
use crate::reply::Reply;
use crate::request::Request;
use crate::store::read_consistency;

/// Rows that are read at once.
const ROWS_A_PAGE: usize = 1_000;
/// The operations that reach system tables; no other finds a table by such a name.
const OPERATIONS: [&str; 5] = ["DeleteItem", "PutItem", "Query", "Scan", "UpdateItem"];
/// The table of settings in messages.
const SYSTEM_CONFIG: &str = ".scylla.alternator.system.config";
/// The address of requests for CQL: nothing that they do depends on it.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// The tables that show the node's settings, and have them changed.
const SETTINGS: [(&str, &str); 2] = [("system", "config"), ("system_views", "settings")];

/// A system table.
pub(super) struct SystemTable {
    /// Its name for the API.
    name: String,
    table: Arc<Table>,
}

/// The type that values of a column's type have for the API.
fn kind_of(ty: &CqlType) -> &'static str {
    match ty {
        CqlType::Blob => "B",
        CqlType::Boolean => "BOOL",
        CqlType::Decimal => "N",
        _ => "S",
    }
}

/// A value as the API shows it.
fn value_of(ty: &CqlType, bytes: &[u8]) -> Value {
    match ty {
        CqlType::Blob => Value::B(bytes.to_vec()),
        CqlType::Boolean => Value::Bool(bytes.first().is_some_and(|byte| *byte != 0)),
        CqlType::Decimal => {
            let text = ty.to_text(bytes);
            Number::parse(&text).map_or(Value::S(text), Value::N)
        }
        _ if ty.is_collection() || ty.is_tuple() || ty.is_udt() => Value::S(ty.format(bytes)),
        _ => Value::S(ty.to_text(bytes)),
    }
}

/// The value of a key column that a value of the API means.
fn bytes_of(column: &Column, value: &Value) -> Result<Vec<u8>> {
    let text = match value {
        Value::B(bytes) => return Ok(bytes.clone()),
        Value::Bool(value) => return Ok(vec![u8::from(*value)]),
        Value::S(text) => text.clone(),
        Value::N(number) => number.to_string(),
        _ => return invalid!("Type mismatch for key {}", column.name),
    };
    let read = column.ty.from_string(&text);
    read.map_err(|error| {
        ApiError::validation(format!(
            "Value for key {} of type {}: {error}",
            column.name,
            column.ty.cql_name()
        ))
    })
}

impl SystemTable {
    /// That of a request.
    fn of_request(schema: &Schema, operation: &str, request: &Request) -> Result<Option<Self>> {
        let name = request.get("TableName").and_then(Json::as_str);
        let (Some(name), true) = (name, OPERATIONS.contains(&operation)) else { return Ok(None) };
        let Some((keyspace, table)) = system_table(name) else { return Ok(None) };
        match schema.table(keyspace, table) {
            Some(table) => Ok(Some(Self { name: name.to_owned(), table: table.clone() })),
            None => {
                request.table_name()?;
                let text =
                    format!("Requested resource not found: Internal table: {keyspace}.{table} not found");
                Err(ApiError::new(ErrorKind::ResourceNotFound, text))
            }
        }
    }

    /// Its name in CQL.
    fn cql_name(&self) -> String {
        format!("{}.{}", quote_identifier(&self.table.keyspace), quote_identifier(&self.table.name))
    }

    /// The columns of its key.
    fn keys(&self) -> impl Iterator<Item = &Column> {
        self.table.partition_key().iter().chain(self.table.clustering())
    }

    /// The conditions of attributes of its key as a WHERE clause.
    fn selection(&self, parts: Vec<(String, RangeCondition)>) -> Result<Selection> {
        fn attributes(columns: &[Column]) -> Vec<KeyAttribute<'_>> {
            columns.iter().map(|column| (column.name.as_str(), kind_of(&column.ty))).collect()
        }
        let (hashes, ranges) = (attributes(self.table.partition_key()), attributes(self.table.clustering()));
        let found = KeyCondition::of_attributes(parts, &hashes, &ranges)?;
        let mut out = Selection::default();
        let first = RangeCondition::Compare(Comparison::Eq, found.hash);
        let first = hashes.first().map(|(name, _)| (*name, &first));
        let further = found.further.iter().map(|(name, condition)| (name.as_str(), condition));
        for (name, condition) in first.into_iter().chain(further) {
            if let Some(column) = self.keys().find(|column| column.name == name) {
                out.add(column, condition)?;
            }
        }
        Ok(out)
    }

    /// The rows of a segment of so many.
    fn segment(&self, (segment, total): (i64, i64)) -> Selection {
        let mut out = Selection::default();
        if total > 1 {
            let names: Vec<_> =
                self.table.partition_key().iter().map(|key| quote_identifier(&key.name)).collect();
            let range = segment_range(segment, total);
            for (comparison, place) in [(">=", range.start), ("<", range.end)] {
                if let RingPosition::BeforeToken(token) = place {
                    out.clauses.push(format!("token({}) {comparison} ?", names.join(", ")));
                    out.values.push(token.to_be_bytes().to_vec());
                }
            }
        }
        out
    }

    /// The attributes of an item that are its key.
    fn key_of(&self, item: &Item) -> Item {
        let names = self.keys().map(|column| &column.name);
        names.filter_map(|name| Some((name.clone(), item.get(name)?.clone()))).collect()
    }

    /// The place behind the row of a key; one without clustering columns is behind its partition.
    fn place_behind(&self, key: &Item) -> Result<Resume> {
        let wrong =
            "The provided starting key is invalid: The provided key element does not match the schema";
        let read = |columns: &[Column]| -> Result<Vec<Vec<u8>>> {
            let given = columns.iter().map_while(|column| Some((column, key.get(&column.name)?)));
            given.map(|(column, value)| bytes_of(column, value)).collect()
        };
        let (partition, clustering) = (read(self.table.partition_key())?, read(self.table.clustering())?);
        let count = partition.len() + clustering.len();
        let is_whole = [0, self.table.clustering().len()].contains(&clustering.len());
        let is_short = partition.iter().all(|value| value.len() <= usize::from(u16::MAX));
        if partition.len() != self.table.partition_key().len() || !is_whole || count != key.len() || !is_short
        {
            return invalid!("{wrong}");
        }
        let partition: Vec<&[u8]> = partition.iter().map(Vec::as_slice).collect();
        let clustering: Vec<Option<&[u8]>> = clustering.iter().map(|value| Some(value.as_slice())).collect();
        Ok(Resume {
            key: DecoratedKey::new(DecoratedKey::compose(&partition)),
            clustering: (!clustering.is_empty()).then(|| Clustering::new(&self.table, &clustering)),
            rows_in_partition: 0,
        })
    }
}

/// A WHERE clause and the values of its markers.
#[derive(Default)]
struct Selection {
    clauses: Vec<String>,
    values: Vec<Vec<u8>>,
}

impl Selection {
    /// Adds the condition on a column of the key.
    fn add(&mut self, column: &Column, condition: &RangeCondition) -> Result<()> {
        let mut push = |symbol: &str, value: Vec<u8>| {
            self.clauses.push(format!("{} {symbol} ?", quote_identifier(&column.name)));
            self.values.push(value);
        };
        match condition {
            RangeCondition::Compare(comparison, value) => push(comparison.symbol(), bytes_of(column, value)?),
            RangeCondition::Between(low, high) => {
                push(">=", bytes_of(column, low)?);
                push("<=", bytes_of(column, high)?);
            }
            RangeCondition::BeginsWith(prefix) => {
                if !matches!(column.ty, CqlType::Text | CqlType::Ascii | CqlType::Blob) {
                    return invalid!(
                        "begins_with is no condition of {} of type {}",
                        column.name,
                        column.ty.cql_name()
                    );
                }
                let prefix = bytes_of(column, prefix)?;
                push(">=", prefix.clone());
                if let Some(next) = next_prefix(prefix) {
                    push("<", next);
                }
            }
        }
        Ok(())
    }

    fn text(&self) -> String {
        match self.clauses.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", self.clauses.join(" AND ")),
        }
    }
}

/// The values of a statement's markers.
fn binds(values: Vec<Vec<u8>>) -> Binds {
    values.into_iter().map(|value| CqlValue::Set(Bytes::from(value))).collect()
}

/// Rows as items. A null is no attribute.
#[derive(Default)]
struct Rows {
    columns: Vec<(String, CqlType)>,
    /// The row that is being read, and its next column.
    item: Item,
    at: usize,
    items: Vec<Item>,
    bytes: usize,
    more: Option<PagingState>,
}

impl Sink for Rows {
    type Rows<'r> = &'r mut Rows;

    fn rows(&mut self, columns: &ResultColumns) -> Self::Rows<'_> {
        self.columns.clone_from(&columns.columns);
        self
    }

    /// The API has no place for warnings.
    fn warn(&mut self, _: String) {}
}

impl RowSink for &mut Rows {
    fn cell(&mut self, value: Option<&[u8]>) {
        if let (Some((name, ty)), Some(value)) = (self.columns.get(self.at), value) {
            self.bytes += value.len();
            self.item.insert(name.clone(), value_of(ty, value));
        }
        self.at += 1;
    }

    fn end_row(&mut self) {
        self.at = 0;
        let item = std::mem::take(&mut self.item);
        self.items.push(item);
    }

    fn row_count(&self) -> u64 {
        self.items.len() as u64
    }

    fn byte_count(&self) -> usize {
        self.bytes
    }

    fn is_too_large(&self) -> bool {
        self.bytes > RESULT_BYTES_MAX
    }

    fn set_paging_state(&mut self, state: &PagingState) {
        self.more = Some(state.clone());
    }
}

impl<C: Coordinator> Dynamo<C> {
    /// The system table that a request reads or writes; none where it is about another one.
    pub(super) fn system_table(&self, operation: &str, request: &Request) -> Result<Option<SystemTable>> {
        SystemTable::of_request(&self.schema(), operation, request)
    }

    /// Carries out one of [`OPERATIONS`] on a system table.
    pub(super) async fn carry_out_on_system(
        &self,
        table: &SystemTable,
        (operation, request): (&str, &Request),
        role: Option<&str>,
    ) -> Result<Reply> {
        let page = match operation {
            "Query" => self.query_system(table, request, role).await?,
            "Scan" => self.scan_system(table, request, role).await?,
            _ => return self.write_setting(table, (operation, request), role).await,
        };
        let (found, asked) = page;
        self.count_page(None, &found, &asked);
        Ok(found.answer(&table.name, &asked))
    }

    async fn query_system(
        &self,
        table: &SystemTable,
        request: &Request,
        role: Option<&str>,
    ) -> Result<(Page, PageRequest)> {
        let (parts, start, page) = query_request(request)?;
        refuse_index(request)?;
        let keys: Vec<&str> = table.keys().map(|column| column.name.as_str()).collect();
        page.check_filter_of(&keys, request)?;
        let selection = table.selection(parts)?;
        let reversed = !request.boolean("ScanIndexForward")?.unwrap_or(true);
        let start = start.map(|key| table.place_behind(&key)).transpose()?;
        let found = self.system_page(table, selection, (reversed, start), &page, role).await?;
        Ok((found, page))
    }

    async fn scan_system(
        &self,
        table: &SystemTable,
        request: &Request,
        role: Option<&str>,
    ) -> Result<(Page, PageRequest)> {
        let (segments, start, page) = scan_request(request)?;
        refuse_index(request)?;
        let start = start.map(|key| table.place_behind(&key)).transpose()?;
        if let Some(start) = &start
            && !segment_range(segments.0, segments.1).contains(&start.key)
        {
            return wrong_segment(segments);
        }
        let found = self.system_page(table, table.segment(segments), (false, start), &page, role).await?;
        Ok((found, page))
    }

    /// Reads a page of the selected rows behind a place.
    async fn system_page(
        &self,
        of: &SystemTable,
        selection: Selection,
        (reversed, start): (bool, Option<Resume>),
        page: &PageRequest,
        role: Option<&str>,
    ) -> Result<Page> {
        let table = &of.table;
        let first = table.clustering().first().filter(|_| reversed);
        let order = first.map(|column| {
            let direction = if column.descending { "ASC" } else { "DESC" };
            format!(" ORDER BY {} {direction}", quote_identifier(&column.name))
        });
        let text =
            format!("SELECT * FROM {}{}{}", of.cql_name(), selection.text(), order.unwrap_or_default());
        let mut more = start
            .map(|resume| PagingState::Rows(RowsPosition { table: table.id, resume, left: i64::MAX as u64 }));
        let mut out = Page::default();
        let values = binds(selection.values);
        loop {
            let rows = (page.limit - out.scanned).min(ROWS_A_PAGE);
            let parameters = Parameters {
                page_size: Some(rows as u32),
                paging_state: more,
                ..Parameters::new(read_consistency(page.consistent))
            };
            let mut read = Rows::default();
            self.run_cql(&text, &values, parameters, (role, &mut read)).await?;
            for item in read.items {
                if out.take_visible(page, item, (|item: &Item| of.key_of(item), |_: &Item| None)) {
                    return Ok(out);
                }
            }
            match read.more {
                Some(state) => more = Some(state),
                None => return Ok(out),
            }
        }
    }

    /// Runs a statement of CQL for a role.
    async fn run_cql(
        &self,
        text: &str,
        values: &Binds,
        mut parameters: Parameters,
        (role, rows): (Option<&str>, &mut Rows),
    ) -> Result<()> {
        let (plan, _) = Plan::parse(text, None, &Lookup { schema: &self.schema() })?;
        let level = self.executor.service_level(role);
        let caller = Caller { principal: Principal { role, address: NOWHERE }, service_level: &level };
        parameters.deadline = Some(self.store().deadline(self.executor.limits().range_timeout));
        let mut request = self.executor.request(&caller, &parameters, None, None);
        Box::pin(self.executor.run(&plan, values, &mut request, rows)).await?;
        Ok(())
    }

    /// PutItem and UpdateItem of a setting, where the operator allows it.
    async fn write_setting(
        &self,
        table: &SystemTable,
        (operation, request): (&str, &Request),
        role: Option<&str>,
    ) -> Result<Reply> {
        let (of, name) = (&table.table, &table.name);
        if !self.settings().writes_system_tables {
            let text = format!(
                "Table {name} is an internal table, and writing to it is forbidden by the \
                 alternator_allow_system_table_write configuration"
            );
            return Err(ApiError::new(ErrorKind::ResourceNotFound, text));
        }
        if !SETTINGS.contains(&(&of.keyspace, &of.name)) || operation == "DeleteItem" {
            return invalid!(
                "PutItem and UpdateItem of the settings in {SYSTEM_CONFIG} are the only writes to system tables"
            );
        }
        let capacity = request.capacity()?;
        request.return_values(&["NONE"], "ReturnValues of a system table can only be NONE")?;
        let (setting, value) = setting(operation, request)?;
        let values = binds(vec![value.into_bytes(), setting.into_bytes()]);
        let text = format!("UPDATE {} SET value = ? WHERE name = ?", table.cql_name());
        let parameters = Parameters::new(read_consistency(false));
        self.run_cql(&text, &values, parameters, (role, &mut Rows::default())).await?;
        let mut answer = Map::new();
        Consumed::of_table(write_units(0)).show(&mut answer, name, capacity);
        Ok(Json::Object(answer).into())
    }
}

/// The setting that a PutItem or UpdateItem gives a value, and the value. It does not depend on the present one.
fn setting(operation: &str, request: &Request) -> Result<(String, String)> {
    let (mut item, condition) = match operation {
        "PutItem" => (Rc::unwrap_or_clone(request.item("Item")?), condition(request)?.0),
        _ => {
            let mut item = Rc::unwrap_or_clone(request.item("Key")?);
            let (update, condition) = update_request(request)?;
            let only_sets = update.remove.is_empty() && !update.reads();
            for (path, value) in update.set.iter().filter(|_| only_sets) {
                if let SetValue::Value(value) = value {
                    item.insert(path.root.clone(), (**value).clone());
                }
            }
            (item, condition)
        }
    };
    if condition.is_some() {
        return invalid!("Settings cannot be written on conditions");
    }
    match (item.remove("name"), item.remove("value"), item.is_empty()) {
        (Some(Value::S(name)), Some(Value::S(value)), true) => Ok((name, value)),
        _ => invalid!("A setting is written by its name and its value alone, two strings"),
    }
}

/// Refuses an index of a system table, which has none.
fn refuse_index(request: &Request) -> Result<()> {
    match request.string("IndexName")? {
        Some(name) => invalid!("The table does not have the specified index: {name}"),
        None => Ok(()),
    }
}
