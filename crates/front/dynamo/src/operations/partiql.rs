//! PartiQL statements as the reads and writes that the other operations make.

use std::rc::Rc;

use exec::backend::Coordinator;
use items::partiql::{Returning, Select, Statement, item_key};
use items::{Condition, Item, Path};

use super::Dynamo;
use super::consumed::Consumed;
use super::write::{Action, ItemWrite};
use crate::error::{Result, invalid};
use crate::table::{self, ApiTable};

/// A write of a statement, and its result.
pub(super) struct StatementWrite {
    pub(super) write: ItemWrite,
    pub(super) returning: Option<Returning>,
}

fn all(conditions: impl IntoIterator<Item = Option<Condition>>) -> Option<Condition> {
    let all: Vec<Condition> = conditions.into_iter().flatten().collect();
    (!all.is_empty()).then_some(Condition::And(all))
}

/// The key of the one item that a write means, and the rest of its condition.
fn written_item(table: &ApiTable, condition: Option<&Condition>) -> Result<(Item, Option<Condition>)> {
    let keys: Vec<_> = table.keys().map(|key| (key.name, key.kind)).collect();
    match item_key(condition, &keys)? {
        Some(found) => Ok(found),
        None => invalid!("Where clause does not contain a mandatory equality on all key attributes"),
    }
}

impl<C: Coordinator> Dynamo<C> {
    fn table_of(&self, statement: &Statement) -> Result<ApiTable> {
        table::find(&self.schema(), statement.table())
    }

    /// The write that a statement means; `shows_old` is whether the item is shown when its condition fails.
    pub(super) fn statement_write(&self, statement: Statement, shows_old: bool) -> Result<StatementWrite> {
        let table = self.table_of(&statement)?;
        let exists = || Condition::Exists(Path::top(table.hash().name));
        let (key, action, condition, returning) = match statement {
            Statement::Insert { item, .. } => {
                let write = ItemWrite::insert(table, item, shows_old)?;
                return Ok(StatementWrite { write, returning: None });
            }
            Statement::Update { update, condition, returning, .. } => {
                let (key, rest) = written_item(&table, condition.as_ref())?;
                (key, Action::Update(update), all([Some(exists()), rest]), returning)
            }
            Statement::Delete { condition, returns, .. } => {
                let (key, rest) = written_item(&table, condition.as_ref())?;
                // A missing item counts as deleted, regardless of the condition.
                let condition =
                    rest.map(|rest| Condition::Or(vec![Condition::Not(Box::new(exists())), rest]));
                (key, Action::Delete, condition, returns.then_some(Returning::AllOld))
            }
            Statement::Exists(select) => {
                let keys: Vec<_> = table.keys().map(|key| (key.name, key.kind)).collect();
                let (Some((key, Some(rest))), None) =
                    (item_key(select.condition.as_ref(), &keys)?, select.index)
                else {
                    return invalid!("EXISTS() must contain a single item read with additional condition");
                };
                (key, Action::Check, all([Some(exists()), Some(rest)]), None)
            }
            Statement::Select(_) => return invalid!("Unsupported operation: SELECT"),
        };
        let write = ItemWrite::of_statement(table, key, (action, condition), shows_old)?;
        Ok(StatementWrite { write, returning })
    }

    /// The key of the one item that a SELECT means, and the rest of its condition; none when it means more.
    pub(super) fn selected_item(
        &self,
        table: &ApiTable,
        select: &Select,
    ) -> Result<Option<(Item, Option<Condition>)>> {
        if select.index.is_some() {
            return Ok(None);
        }
        let keys: Vec<_> = table.keys().map(|key| (key.name, key.kind)).collect();
        Ok(item_key(select.condition.as_ref(), &keys)?)
    }

    /// Carries out the write of a statement; its result, and the units that it consumed.
    pub(super) async fn write_statement(&self, of: &StatementWrite) -> Result<(Option<Item>, Consumed)> {
        let looks = of.returning.is_some();
        let decided = self.write_item(&of.write, looks).await?;
        let touched = |item: &Option<Rc<Item>>| match (&of.write.action, item) {
            (Action::Update(update), Some(item)) => {
                Some(update.touched(item)).filter(|item| !item.is_empty())
            }
            _ => None,
        };
        let whole = |item: Option<Rc<Item>>| item.map(Rc::unwrap_or_clone);
        let shown = match of.returning {
            None => None,
            Some(Returning::ModifiedOld) => touched(&decided.before),
            Some(Returning::ModifiedNew) => touched(&decided.after),
            Some(Returning::AllOld) => whole(decided.before),
            Some(Returning::AllNew) => whole(decided.after),
        };
        Ok((shown, decided.consumed))
    }
}
