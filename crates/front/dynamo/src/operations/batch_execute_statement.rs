//! BatchExecuteStatement: statements of one item each, of which each is carried out or not.

use exec::backend::Coordinator;
use futures_util::future::join_all;
use items::partiql::{Select, Statement};
use items::{Item, item_size, json};
use serde_json::{Map, Value as Json, json as to_json};

use super::partiql::StatementWrite;
use super::size::read_units;
use super::transact_write_items::check_twice;
use super::{Dynamo, capacity, statement};
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::reply::{ANSWER_TEXT_BYTES, Reply, Texts};
use crate::request::{Capacity, Request, constraint};
use crate::table;

/// Statements of a request.
const STATEMENTS_MAX: usize = 25;

/// The result of a statement: its table, the item that it shows, and the units that it consumed.
type Outcome = Result<(String, Option<Item>, f64)>;

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn batch_execute_statement(&self, request: &Request) -> Result<Reply> {
        let asked = request.capacity()?;
        let list = json::read_list(request.required("Statements")?)?;
        let bound = match list.len() {
            0 => Some(("[]", "greater than or equal to 1")),
            count if count > STATEMENTS_MAX => Some(("[...]", "less than or equal to 25")),
            _ => None,
        };
        if let Some((shown, bound)) = bound {
            return constraint(shown, "statements", &format!("Member must have length {bound}"));
        }
        let parts = list.iter().map(Request::part).collect::<Result<Vec<_>>>()?;
        let statements: Vec<Result<Statement>> = parts.iter().map(statement::parse).collect();
        let writes = |statement: &&Statement| statement.writes();
        let (some, none) = (
            statements.iter().flatten().any(|one| writes(&one)),
            statements.iter().flatten().any(|one| !writes(&one)),
        );
        if some && none {
            return invalid!("Read and write requests together in the same batch is not supported.");
        }
        let outcomes = if some {
            self.batch_of_writes(&parts, statements).await?
        } else {
            let reads =
                parts.iter().zip(statements).map(|(part, statement)| self.read_statement(part, statement));
            join_all(reads).await
        };
        let mut consumed: Vec<(String, f64)> = Vec::new();
        let mut responses = Texts::default();
        for outcome in outcomes {
            let mut response = Map::new();
            // Writes are carried out, and few have their item in the answer.
            let is_full = !some && responses.bytes() >= ANSWER_TEXT_BYTES;
            match outcome {
                Ok(_) if is_full => {
                    let text = format!("The answer has more than {ANSWER_TEXT_BYTES} bytes");
                    let error = ApiError::new(ErrorKind::RequestLimitExceeded, text);
                    let shown = to_json!({ "Code": error.batch_code(), "Message": error.message });
                    response.insert("Error".to_owned(), shown);
                }
                Ok((table, item, units)) => {
                    match consumed.iter_mut().find(|(name, _)| *name == table) {
                        Some((_, sum)) => *sum += units,
                        None => consumed.push((table.clone(), units)),
                    }
                    response.insert("TableName".to_owned(), table.into());
                    if let Some(item) = item {
                        responses.push_object("Item", &item, response);
                        continue;
                    }
                }
                Err(error) => {
                    let mut shown = to_json!({ "Code": error.batch_code(), "Message": error.message });
                    if let (Some(item), Some(members)) = (error.item, shown.as_object_mut()) {
                        members.insert("Item".to_owned(), item);
                    }
                    response.insert("Error".to_owned(), shown);
                }
            }
            responses.push_text(Json::Object(response).to_string());
        }
        let mut answer = Map::new();
        if asked != Capacity::None {
            let consumed = consumed.iter().map(|(name, units)| capacity(name, asked, *units));
            answer.insert("ConsumedCapacity".to_owned(), Json::Array(consumed.collect()));
        }
        Ok(Reply::of_list("Responses", &responses, answer))
    }

    async fn batch_of_writes(
        &self,
        parts: &[Request],
        statements: Vec<Result<Statement>>,
    ) -> Result<Vec<Outcome>> {
        let write = |(part, statement): (&Request, Result<Statement>)| -> Result<StatementWrite> {
            self.statement_write(statement?, part.returns_old_on_failure()?)
        };
        let writes: Vec<Result<StatementWrite>> = parts.iter().zip(statements).map(write).collect();
        let keys = writes.iter().flatten().map(|one| (one.write.table.name(), &one.write.key));
        if check_twice(keys).is_err() {
            return invalid!("Provided list of item keys contains duplicates");
        }
        let outcomes = writes.into_iter().map(|write| async move {
            let write = write?;
            let (item, units) = self.write_statement(&write).await?;
            Ok((write.write.table.name().to_owned(), item, units))
        });
        Ok(join_all(outcomes).await)
    }

    async fn read_statement(&self, part: &Request, statement: Result<Statement>) -> Outcome {
        let consistent = part.boolean("ConsistentRead")?.unwrap_or(false);
        let Statement::Select(select) = statement? else {
            return invalid!("EXISTS is supported in ExecuteTransaction alone");
        };
        let (table, item) = self.read_one(&select, consistent).await?;
        let units = read_units(item.as_ref().map_or(0, item_size), consistent);
        self.metrics.read(units);
        let shown = match &select.projection {
            Some(projection) => item.map(|item| projection.apply(&item)),
            None => item,
        };
        Ok((table, shown, units))
    }

    async fn read_one(&self, select: &Select, consistent: bool) -> Result<(String, Option<Item>), ApiError> {
        let table = table::find(&self.schema(), &select.table)?;
        let Some((key, filter)) = self.selected_item(&table, select)? else {
            return invalid!(
                "Select statements within BatchExecuteStatement must specify the primary key in the where clause."
            );
        };
        let item = self.store().get(&table, &table.key(&key)?, consistent).await?;
        let item = item.filter(|item| filter.is_none_or(|filter| filter.holds(item)));
        Ok((table.name().to_owned(), item))
    }
}
