//! ExecuteTransaction: statements that are carried out all or not at all.

use std::rc::Rc;

use exec::backend::Coordinator;
use items::json;
use items::partiql::Statement;
use serde_json::{Map, Value as Json};

use super::transact_get_items::Get;
use super::transact_write_items::{ITEMS_MAX, origin, token, unless_cancelled};
use super::{Dynamo, statement};
use crate::error::{ApiError, Result, invalid};
use crate::reply::Reply;
use crate::request::{Request, constraint};
use crate::table;

/// An error of the request that says which statement it is of.
fn of_statement(at: usize, error: ApiError) -> ApiError {
    if !error.kind.is_validation() {
        return error;
    }
    let message = format!("Validation failed in TransactStatements[{at}]: {}", error.message);
    ApiError { message, ..error }
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn execute_transaction(&self, request: &Request) -> Result<Reply> {
        let asked = request.capacity()?;
        let token = token(request)?;
        let list = json::read_list(request.required("TransactStatements")?)?;
        let bound = match list.len() {
            0 => Some(("[]", "greater than or equal to 1")),
            count if count > ITEMS_MAX => Some(("[...]", "less than or equal to 100")),
            _ => None,
        };
        if let Some((shown, bound)) = bound {
            return constraint(shown, "transactStatements", &format!("Member must have length {bound}"));
        }
        let parts = list.iter().map(Request::part).collect::<Result<Vec<_>>>()?;
        let statements = parts.iter().map(statement::parse).collect::<Result<Vec<_>>>()?;
        let is_read = |statement: &Statement| matches!(statement, Statement::Select(_));
        if statements.iter().all(is_read) {
            let gets = statements.into_iter().enumerate().map(|(at, statement)| self.get_of(at, statement));
            return self.get_at_once(&gets.collect::<Result<Vec<_>>>()?, asked).await;
        }
        if statements.iter().any(is_read) {
            return invalid!(
                "ExecuteTransaction API does not support both read and write operations in the same request."
            );
        }
        let mut writes = Vec::with_capacity(statements.len());
        for (at, (part, statement)) in parts.iter().zip(statements).enumerate() {
            let is_exists = matches!(statement, Statement::Exists(_));
            let write = match self.statement_write(statement, part.returns_old_on_failure()?) {
                Ok(write) if write.returning.is_some() => {
                    let text = "RETURNING clause is not supported in ExecuteTransaction.";
                    return Err(of_statement(at, ApiError::validation(text)));
                }
                Err(error) if is_exists => return Err(of_statement(at, error)),
                Err(error) if !error.kind.is_validation() => return Err(error),
                other => other.map(|of| of.write),
            };
            writes.push(write);
        }
        let writes = unless_cancelled(writes)?;
        let origin = origin(token, request.required("TransactStatements")?);
        let mut answer = Map::new();
        let consumed = self.write_at_once(&writes, origin, asked).await?;
        answer.insert("Responses".to_owned(), Json::Array(Vec::new()));
        if let Some(consumed) = consumed {
            answer.insert("ConsumedCapacity".to_owned(), consumed);
        }
        Ok(Json::Object(answer).into())
    }

    fn get_of(&self, at: usize, statement: Statement) -> Result<Get> {
        let Statement::Select(select) = statement else { return invalid!("Unsupported operation") };
        let table = table::find(&self.schema(), &select.table)?;
        let found = self.selected_item(&table, &select).map_err(|error| of_statement(at, error))?;
        let Some((key_item, filter)) = found else {
            let text = "Select statements within ExecuteTransaction must specify the primary key in the where clause.";
            return Err(of_statement(at, ApiError::validation(text)));
        };
        let key = table.key(&key_item)?;
        let named = table.name().to_owned();
        Ok(Get { table, named, key, key_item: Rc::new(key_item), filter, projection: select.projection })
    }
}
