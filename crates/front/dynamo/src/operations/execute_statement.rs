//! ExecuteStatement.

use exec::backend::Coordinator;
use items::key_condition::{KeyAttribute, KeyCondition};
use items::partiql::{Access, Select, Statement, access};
use items::{Item, json};
use serde_json::{Map, Value as Json, json as to_json};
use stdx::base64;

use super::page::{PAGE_BYTES, PAGE_TEXT_BYTES, Page, PageRequest, ReadBytes, start_of, start_of_scan};
use super::query::keys;
use super::{Dynamo, statement};
use crate::error::{Result, invalid};
use crate::reply::{Reply, Texts};
use crate::request::{Capacity, Request};
use crate::table::{self, ApiTable};

/// The most characters of a token.
const TOKEN_MAX: usize = 32_768;

/// Where the next page of a statement begins.
struct NextPage {
    /// In which of its queries.
    query: usize,
    /// Behind which item; none for the beginning.
    key: Option<Item>,
    /// Of the statement.
    fingerprint: u64,
}

impl NextPage {
    fn encode(&self) -> String {
        let json = to_json!({
            "query": self.query,
            "key": self.key.as_ref().map(json::item),
            "of": self.fingerprint,
        });
        base64::encode(json.to_string().as_bytes())
    }

    fn decode(text: &str) -> Option<Self> {
        let json: Json = serde_json::from_slice(&base64::decode(text)?).ok()?;
        let key = match json.get("key")? {
            Json::Null => None,
            key => Some(json::read_item(key).ok()?),
        };
        Some(Self {
            query: usize::try_from(json.get("query")?.as_u64()?).ok()?,
            key,
            fingerprint: json.get("of")?.as_u64()?,
        })
    }
}

/// The position at which a request resumes.
fn begin(request: &Request, fingerprint: u64) -> Result<NextPage> {
    let Some(text) = request.string("NextToken")? else {
        return Ok(NextPage { query: 0, key: None, fingerprint });
    };
    match NextPage::decode(text).filter(|_| text.len() <= TOKEN_MAX) {
        None => invalid!("Invalid NextToken"),
        Some(next) if next.fingerprint != fingerprint => invalid!("NextToken does not match request"),
        Some(next) => Ok(next),
    }
}

/// Of the statement and its parameters.
fn fingerprint(request: &Request) -> u64 {
    let parts = to_json!([request.get("Statement"), request.get("Parameters")]);
    xxhash_rust::xxh3::xxh3_64(parts.to_string().as_bytes())
}

/// Puts queries in the order of ORDER BY; whether rows are to come from the greatest to the least.
fn order(
    (hash, range): (KeyAttribute<'_>, Option<KeyAttribute<'_>>),
    select: &Select,
    access: &mut Access,
) -> Result<bool> {
    if select.order.is_empty() {
        return Ok(false);
    }
    if select.condition.is_none() {
        return invalid!("Must have WHERE clause in the statement when using ORDER BY clause.");
    }
    let (hash, range) = (hash.0, range.map(|range| range.0));
    let is_key = |name: &str| name == hash || Some(name) == range;
    if let Some((name, _)) = select.order.iter().find(|(name, _)| !is_key(name)) {
        return invalid!("Variable reference {name} in ORDER BY clause must be part of the primary key");
    }
    let Access::Queries(queries) = access else {
        return invalid!(
            "Must have at least one non-optional hash key condition in WHERE clause when using ORDER BY clause."
        );
    };
    let direction = |key: Option<&str>| select.order.iter().find(|(name, _)| Some(name.as_str()) == key);
    if let Some((_, is_descending)) = direction(Some(hash)) {
        queries.sort_by(|a, b| a.hash.order(&b.hash).unwrap_or(std::cmp::Ordering::Equal));
        if *is_descending {
            queries.reverse();
        }
    }
    Ok(direction(range).is_some_and(|(_, is_descending)| *is_descending))
}

/// Refuses an index that there is not, or that is not read consistently, in the words of statements.
fn check_index(table: &ApiTable, name: Option<&str>, consistent: bool) -> Result<()> {
    let Some(name) = name else { return Ok(()) };
    let is_vector = table.vectors().iter().any(|index| index.name == name);
    match table.indexes().iter().find(|index| index.name == name) {
        None if !is_vector => invalid!("The table does not have the specified index"),
        Some(index) if index.is_global && consistent => {
            invalid!("Strongly consistent read is not supported on Global Secondary Indexes")
        }
        _ => Ok(()),
    }
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn execute_statement(&self, request: &Request) -> Result<Reply> {
        let asked = request.capacity()?;
        let shows_old = request.returns_old_on_failure()?;
        let limit = request.integer("Limit", 1, i64::from(i32::MAX))?.map(|limit| limit as usize);
        let consistent = request.boolean("ConsistentRead")?.unwrap_or(false);
        match statement::parse(request)? {
            Statement::Select(select) => {
                let next = begin(request, fingerprint(request))?;
                self.select(select, next, (limit, consistent, asked)).await
            }
            Statement::Exists(_) => invalid!("EXISTS is supported in ExecuteTransaction alone"),
            statement => {
                let of = self.statement_write(statement, shows_old)?;
                let (shown, consumed) = self.write_statement(&of).await?;
                let (mut items, mut answer) = (Texts::default(), Map::new());
                shown.iter().for_each(|item| items.push(item));
                consumed.show(&mut answer, of.write.table.name(), asked);
                Ok(Reply::of_list("Items", &items, answer))
            }
        }
    }

    async fn select(
        &self,
        select: Select,
        mut next: NextPage,
        (limit, consistent, asked): (Option<usize>, bool, Capacity),
    ) -> Result<Reply> {
        let table = table::find(&self.schema(), &select.table)?;
        check_index(&table, select.index.as_deref(), consistent)?;
        let (condition, projection) = (select.condition.clone(), select.projection.clone());
        let mut request = PageRequest::of_statement((condition, projection), limit, consistent, asked)
            .of_index(&table, select.index.as_deref(), "Scan")?;
        let (hash, range) = keys(&table, request.index());
        let mut access = access(select.condition.as_ref(), hash, range)?;
        let reversed = order((hash, range), &select, &mut access)?;
        let queries = match access {
            Access::Queries(queries) => queries.into_iter().map(Some).collect(),
            Access::Scan => vec![None],
        };
        let (mut items, mut read, mut last) = (Texts::default(), ReadBytes::default(), None);
        while let Some(query) = queries.get(next.query) {
            let page = self.part(&table, query.as_ref(), next.key.take(), reversed, &request).await?;
            items.append(page.items);
            read.add(&page.read);
            request.limit -= page.scanned;
            if let Some(key) = page.last {
                last = Some(key.clone());
                next.key = Some(key);
                break;
            }
            next.query += 1;
            if request.limit == 0 || read.items >= PAGE_BYTES || items.bytes() >= PAGE_TEXT_BYTES {
                break;
            }
        }
        let mut answer = Map::new();
        if next.query < queries.len() {
            answer.insert("NextToken".to_owned(), next.encode().into());
        }
        if let Some(last) = last {
            answer.insert("LastEvaluatedKey".to_owned(), json::item(&last));
        }
        let consumed = read.consumed(&request);
        self.metrics.read(Some(&table), consumed.total());
        consumed.show(&mut answer, table.name(), asked);
        Ok(Reply::of_list("Items", &items, answer))
    }

    /// A page of one of the queries of a statement, or of its scan.
    async fn part(
        &self,
        table: &ApiTable,
        query: Option<&KeyCondition>,
        start: Option<Item>,
        reversed: bool,
        request: &PageRequest,
    ) -> Result<Page> {
        let place = |key: &Item| match query {
            Some(_) => start_of(key, table, request.index()),
            None => start_of_scan(key, table, request.index()),
        };
        if start.as_ref().is_some_and(|key| place(key).is_err()) {
            return invalid!("Invalid NextToken");
        }
        match query {
            Some(query) => Box::pin(self.query_page(table, query, start, reversed, request)).await,
            None => Box::pin(self.scan_page(table, (0, 1), start, request)).await,
        }
    }
}
