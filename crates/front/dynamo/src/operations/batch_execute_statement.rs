//! BatchExecuteStatement: statements of one item each, of which each is carried out or not.

use std::cell::Cell;
use std::pin::pin;

use exec::backend::Coordinator;
use futures_util::stream::{self, StreamExt};
use items::partiql::{Select, Statement};
use items::{Item, item_size, json};
use serde_json::{Map, Value as Json};

use super::consumed::Consumed;
use super::partiql::StatementWrite;
use super::size::read_units;
use super::transact_write_items::check_twice;
use super::{Dynamo, statement};
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::reply::{ANSWER_TEXT_BYTES, Reply, Texts, text_of};
use crate::request::{Capacity, Request, constraint};
use crate::table::{self, ApiTable};

/// Statements of a request.
const STATEMENTS_MAX: usize = 25;

/// Statements that are carried out at once. As many may pass the bytes of an answer together, as writes must have their items in it.
const STATEMENTS_AT_ONCE: usize = 5;

/// The result of a statement: its table, the text of the item that it shows, and the units that it consumed.
type Outcome = Result<(String, Option<String>, Consumed)>;

/// The statements of a batch that were carried out.
#[derive(Default)]
struct CarriedOut {
    /// Texts of JSON, in the order of the statements.
    responses: Texts,
    /// The units of each table.
    consumed: Vec<(String, Consumed)>,
}

/// Carries out the statements of a batch, some of them at once. Those behind as many bytes as an answer may have are not carried out.
/// `tables` are the tables that they name, none of a text that is no statement.
async fn carried_out(
    tables: &[Option<String>],
    statements: impl Iterator<Item = impl Future<Output = Outcome>>,
) -> CarriedOut {
    let bytes = &Cell::new(0);
    let statements = tables.iter().zip(statements).map(|(table, statement)| async move {
        if bytes.get() >= ANSWER_TEXT_BYTES {
            let text = format!(
                "The answer has more than {ANSWER_TEXT_BYTES} bytes: the statement was not carried out"
            );
            return (table, Err(ApiError::new(ErrorKind::RequestLimitExceeded, text)));
        }
        let outcome = statement.await;
        let item = match &outcome {
            Ok((_, item, _)) => item.as_ref(),
            Err(error) => error.item.as_ref(),
        };
        bytes.set(bytes.get() + item.map_or(0, String::len));
        (table, outcome)
    });
    let mut statements = pin!(stream::iter(statements).buffered(STATEMENTS_AT_ONCE));
    let mut out = CarriedOut::default();
    while let Some((named, outcome)) = statements.next().await {
        match outcome {
            Ok((table, item, consumed)) => {
                match out.consumed.iter_mut().find(|(name, _)| *name == table) {
                    Some((_, sum)) => sum.add(&consumed, 1.0),
                    None => out.consumed.push((table.clone(), consumed)),
                }
                let rest = Map::from_iter([("TableName".to_owned(), table.into())]);
                match item {
                    Some(item) => out.responses.push_text(Reply::of_text("Item", &item, rest).into_text()),
                    None => out.responses.push_text(Json::Object(rest).to_string()),
                }
            }
            Err(error) => {
                let table = named.iter().map(|name| ("TableName".to_owned(), name.as_str().into()));
                let failed = Reply::of_text("Error", &error.batch_text(), table.collect());
                out.responses.push_text(failed.into_text());
            }
        }
    }
    out
}

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
        // A member of another type refuses the request, where a faulty statement fails by itself.
        for part in &parts {
            part.boolean("ConsistentRead")?;
            part.get("Parameters").map(json::read_list).transpose()?;
        }
        let statements: Vec<Result<Statement>> = parts.iter().map(statement::parse).collect();
        let named = |one: &Result<Statement>| one.as_ref().ok().map(|one| one.table().to_owned());
        let tables: Vec<Option<String>> = statements.iter().map(named).collect();
        let writes = |statement: &&Statement| statement.writes();
        let (some, none) = (
            statements.iter().flatten().any(|one| writes(&one)),
            statements.iter().flatten().any(|one| !writes(&one)),
        );
        if some && none {
            return invalid!("Read and write requests together in the same batch is not supported.");
        }
        let carried_out = if some {
            let writes = self.batch_of_writes(&parts, statements)?;
            carried_out(&tables, writes.iter().map(|write| self.written_statement(write))).await
        } else {
            let reads = parts.iter().zip(statements);
            carried_out(&tables, reads.map(|(part, statement)| self.read_statement(part, statement))).await
        };
        let mut answer = Map::new();
        if asked != Capacity::None {
            let consumed = carried_out.consumed.iter().map(|(name, of)| of.json(name, asked, None));
            answer.insert("ConsumedCapacity".to_owned(), Json::Array(consumed.collect()));
        }
        Ok(Reply::of_list("Responses", &carried_out.responses, answer))
    }

    /// The writes of statements; none of them is carried out when two are of one item.
    fn batch_of_writes(
        &self,
        parts: &[Request],
        statements: Vec<Result<Statement>>,
    ) -> Result<Vec<Result<StatementWrite>>> {
        let write = |(part, statement): (&Request, Result<Statement>)| -> Result<StatementWrite> {
            self.statement_write(statement?, part.returns_old_on_failure()?)
        };
        let writes: Vec<Result<StatementWrite>> = parts.iter().zip(statements).map(write).collect();
        let keys = writes.iter().flatten().map(|one| (one.write.table.name(), &one.write.key));
        if check_twice(keys).is_err() {
            return invalid!("Provided list of item keys contains duplicates");
        }
        Ok(writes)
    }

    async fn written_statement(&self, write: &Result<StatementWrite>) -> Outcome {
        let write = write.as_ref().map_err(ApiError::clone)?;
        let (item, consumed) = self.write_statement(write).await?;
        Ok((write.write.table.name().to_owned(), item.as_ref().map(text_of), consumed))
    }

    async fn read_statement(&self, part: &Request, statement: Result<Statement>) -> Outcome {
        let consistent = part.boolean("ConsistentRead")?.unwrap_or(false);
        let Statement::Select(select) = statement? else {
            return invalid!("EXISTS is supported in ExecuteTransaction alone");
        };
        let (table, item) = self.read_one(&select, consistent).await?;
        let units = read_units(item.as_ref().map_or(0, item_size), consistent);
        self.metrics.read(Some(&table), units);
        let shown = item.map(|item| match &select.projection {
            Some(projection) => text_of(&projection.apply(&item)),
            None => text_of(&item),
        });
        Ok((table.name().to_owned(), shown, Consumed::of_table(units)))
    }

    async fn read_one(
        &self,
        select: &Select,
        consistent: bool,
    ) -> Result<(ApiTable, Option<Item>), ApiError> {
        let table = table::find(&self.schema(), &select.table)?;
        let Some((key, filter)) = self.selected_item(&table, select)? else {
            return invalid!(
                "Select statements within BatchExecuteStatement must specify the primary key in the where clause."
            );
        };
        let item = self.store().get(&table, &table.key(&key)?, consistent).await?;
        let item = item.filter(|item| filter.is_none_or(|filter| filter.holds(item)));
        Ok((table, item))
    }
}
