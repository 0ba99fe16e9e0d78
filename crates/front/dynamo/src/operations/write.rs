//! A write of one item: the common part of PutItem, UpdateItem, DeleteItem and the parts of a transaction.

use std::rc::Rc;

use items::update::SetValue;
use items::{Condition, Item, Path, Substitutions, Update};

use super::consumed::Consumed;
use super::size::check_item;
use crate::error::{ApiError, Result};
use crate::intent::Effect;
use crate::reply::text_of;
use crate::request::Request;
use crate::secondary;
use crate::table::{ApiTable, RowKey, RowWrite};
use crate::vectors;

/// The kind of a write.
pub(super) enum Action {
    Put(Rc<Item>),
    Update(Update),
    Delete,
    /// Nothing: its condition is all there is to it.
    Check,
}

/// A write of one item.
pub(super) struct ItemWrite {
    pub(super) table: ApiTable,
    /// The table as the request names it: by its name or its ARN.
    pub(super) named: String,
    pub(super) key: RowKey,
    /// The attributes of the key, and others where the request gives the item.
    pub(super) key_item: Rc<Item>,
    pub(super) action: Action,
    condition: Option<Condition>,
    shows_old: bool,
    /// Whether its condition is that there is no such item.
    inserts: bool,
}

/// The item before a write and after it.
#[derive(Default)]
pub(super) struct Decided {
    pub(super) before: Option<Rc<Item>>,
    pub(super) after: Option<Rc<Item>>,
    /// The units that the write consumed, once it is made.
    pub(super) consumed: Consumed,
}

/// The update that a request asks for; without one the item is only made to exist.
fn update(request: &Request, substitutions: &Substitutions) -> Result<Update> {
    if let Some(text) = request.string("UpdateExpression")? {
        return Ok(Update::parse(text, substitutions)?);
    }
    Ok(request.get("AttributeUpdates").map(items::legacy::updates).transpose()?.unwrap_or_default())
}

impl ItemWrite {
    /// A put; `find` gives the table once all is checked that needs none.
    pub(super) fn put(request: &Request, find: impl FnOnce() -> Result<ApiTable>) -> Result<Self> {
        let item = request.item("Item")?;
        let (condition, shows_old) = condition(request)?;
        check_item(&item, "Item size has exceeded the maximum allowed size")?;
        let table = find()?;
        let key = table.key_of_item(&item)?;
        vectors::check(&table, None, &item)?;
        let (key_item, named) = (item.clone(), request.named_table().to_owned());
        let action = Action::Put(item);
        Ok(Self { table, named, key, key_item, action, condition, shows_old, inserts: false })
    }

    /// A deletion, or a mere check of a condition.
    pub(super) fn of_key(
        request: &Request,
        action: Action,
        find: impl FnOnce() -> Result<ApiTable>,
    ) -> Result<Self> {
        let key_item = request.item("Key")?;
        let (condition, shows_old) = condition(request)?;
        let table = find()?;
        let key = table.key(&key_item)?;
        let named = request.named_table().to_owned();
        Ok(Self { table, named, key, key_item, action, condition, shows_old, inserts: false })
    }

    /// An update.
    pub(super) fn update(request: &Request, find: impl FnOnce() -> Result<ApiTable>) -> Result<Self> {
        let key_item = request.item("Key")?;
        let (update, condition) = update_request(request)?;
        let shows_old = request.returns_old_on_failure()?;
        let table = find()?;
        let key = table.key(&key_item)?;
        update.check_keys(&table.keys().map(|key| key.name).collect::<Vec<_>>())?;
        secondary::check_paths(&table, update.paths())?;
        let (action, named) = (Action::Update(update), request.named_table().to_owned());
        Ok(Self { table, named, key, key_item, action, condition, shows_old, inserts: false })
    }

    /// The write of a statement: its table, the item's key, the action and its condition.
    pub(super) fn of_statement(
        table: ApiTable,
        key_item: Item,
        (action, condition): (Action, Option<Condition>),
        shows_old: bool,
    ) -> Result<Self> {
        let (key, key_item) = (table.key(&key_item)?, Rc::new(key_item));
        if let Action::Update(update) = &action {
            update.check_keys(&table.keys().map(|key| key.name).collect::<Vec<_>>())?;
            secondary::check_paths(&table, update.paths())?;
        }
        let named = table.name().to_owned();
        Ok(Self { table, named, key, key_item, action, condition, shows_old, inserts: false })
    }

    /// The write of an item that is not there yet.
    pub(super) fn insert(table: ApiTable, item: Item, shows_old: bool) -> Result<Self> {
        check_item(&item, "Item size has exceeded the maximum allowed size")?;
        let key = table.key_of_item(&item)?;
        vectors::check(&table, None, &item)?;
        let item = Rc::new(item);
        let exists = Condition::Exists(Path::top(table.hash().name));
        let condition = Some(Condition::Not(Box::new(exists)));
        let (action, named) = (Action::Put(item.clone()), table.name().to_owned());
        Ok(Self { table, named, key, key_item: item, action, condition, shows_old, inserts: true })
    }

    /// The operation of one item that makes such a write; it counts the units.
    pub(super) fn operation(&self) -> &'static str {
        match self.action {
            Action::Put(_) => "PutItem",
            Action::Delete => "DeleteItem",
            // A check alone costs as much as an update.
            Action::Update(_) | Action::Check => "UpdateItem",
        }
    }

    /// Whether its writes depend on the item.
    pub(super) fn reads(&self) -> bool {
        self.condition.is_some() || matches!(&self.action, Action::Update(update) if update.reads())
    }

    /// The items before and after.
    ///
    /// # Errors
    /// When the condition does not hold, or the item is not one that can be updated so.
    pub(super) fn decide(&self, old: Option<Rc<Item>>) -> Result<Decided> {
        if let Some(condition) = &self.condition
            && !condition.holds(old.as_deref().unwrap_or(&Item::new()))
        {
            let shown = old.filter(|_| self.shows_old).map(|item| text_of(&item));
            return Err(match self.inserts {
                true => ApiError { item: shown, ..ApiError::duplicate() },
                false => ApiError::condition_failed(shown),
            });
        }
        let after = match &self.action {
            Action::Put(item) => Some(item.clone()),
            Action::Delete => None,
            Action::Check => old.clone(),
            Action::Update(update) => {
                let base = old.as_ref().unwrap_or(&self.key_item);
                let new = update.apply(base)?;
                vectors::check(&self.table, Some(base), &new)?;
                check_item(&new, "Item size to update has exceeded the maximum allowed size")?;
                // A REMOVE alone makes no item of none.
                let makes = old.is_some()
                    || new.len() > self.key_item.len()
                    || update.remove.is_empty() && update.delete.is_empty();
                makes.then(|| Rc::new(new))
            }
        };
        Ok(Decided { before: old, after, consumed: Consumed::default() })
    }

    /// The row of a decision that was made by a look at the item.
    pub(super) fn row_write(&self, decided: &Decided) -> Option<RowWrite> {
        match (&self.action, &decided.before, &decided.after) {
            (Action::Put(item), ..) => Some(RowWrite::Put(item.clone())),
            (Action::Update(_), before, Some(after)) => {
                let before = before.clone().unwrap_or_else(|| self.key_item.clone());
                Some(RowWrite::Update(before, after.clone()))
            }
            // When the read has found no item, there is nothing to delete.
            (Action::Delete, Some(_), _) => Some(RowWrite::Delete),
            _ => None,
        }
    }

    /// The row of a write that does not look at the item.
    pub(super) fn blind(&self) -> Option<RowWrite> {
        match &self.action {
            Action::Put(item) => Some(RowWrite::Put(item.clone())),
            Action::Delete => Some(RowWrite::Delete),
            Action::Check => None,
            Action::Update(update) => {
                let set = update.set.iter().filter_map(|(path, value)| match value {
                    SetValue::Value(value) => Some((path.root.clone(), (**value).clone())),
                    _ => None,
                });
                let removed = update.remove.iter().map(|path| path.root.clone());
                Some(RowWrite::Blind(set.collect(), removed.collect()))
            }
        }
    }

    /// The effect of this write in a transaction, and the units that it consumes.
    pub(super) fn effect(&self, old: Option<&Item>) -> Result<(Effect, Consumed)> {
        let decided = self.decide(old.cloned().map(Rc::new))?;
        let consumed = Consumed::of_write(&self.table, decided.before.as_deref(), decided.after.as_deref());
        let effect = match self.row_write(&decided) {
            Some(RowWrite::Put(item)) => Effect::Put(item),
            Some(RowWrite::Delete) => Effect::Delete,
            Some(RowWrite::Update(before, after)) => {
                let (mut set, mut removed) = (Item::new(), Vec::new());
                for (name, value) in self.table.changes(&before, &after) {
                    match value {
                        Some(value) => _ = set.insert(name.to_owned(), value.clone()),
                        None => removed.push(name.to_owned()),
                    }
                }
                Effect::Update(set, removed)
            }
            _ => Effect::Nothing,
        };
        Ok((effect, consumed))
    }
}

/// The update of a request and its condition.
pub(super) fn update_request(request: &Request) -> Result<(Update, Option<Condition>)> {
    request.check_mixed(
        &["AttributeUpdates", "Expected", "ConditionalOperator"],
        &["UpdateExpression", "ConditionExpression"],
    )?;
    let substitutions = request.substitutions(&["UpdateExpression", "ConditionExpression"], &[])?;
    let update = update(request, &substitutions)?;
    let condition = request.condition(&substitutions)?;
    substitutions.check_used()?;
    Ok((update, condition))
}

/// The members that a condition has to do with.
const CONDITION_MEMBERS: [&str; 5] = [
    "ConditionExpression",
    "Expected",
    "ConditionalOperator",
    "ExpressionAttributeNames",
    "ExpressionAttributeValues",
];

/// The condition of a put, a deletion or a check, and whether the item is shown when it fails.
pub(super) fn condition(request: &Request) -> Result<(Option<Condition>, bool)> {
    if !request.has_any(&CONDITION_MEMBERS) {
        return Ok((None, request.returns_old_on_failure()?));
    }
    request.check_mixed(&["Expected", "ConditionalOperator"], &["ConditionExpression"])?;
    let substitutions = request.substitutions(&["ConditionExpression"], &[])?;
    let condition = request.condition(&substitutions)?;
    substitutions.check_used()?;
    Ok((condition, request.returns_old_on_failure()?))
}
