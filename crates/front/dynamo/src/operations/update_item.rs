//! UpdateItem.

use exec::backend::Coordinator;
use items::update::SetValue;
use items::{Item, Substitutions, Update, item_size, json};
use serde_json::{Map, Value as Json};

use super::{Dynamo, add_capacity, check_size, condition_failed, write_units};
use crate::error::Result;
use crate::request::Request;
use crate::table::RowWrite;

/// The update that a request asks for; without one the item is only made to exist.
fn parse(request: &Request, substitutions: &Substitutions) -> Result<Update> {
    if let Some(text) = request.string("UpdateExpression")? {
        return Ok(Update::parse(text, substitutions)?);
    }
    Ok(request.get("AttributeUpdates").map(items::legacy::updates).transpose()?.unwrap_or_default())
}

/// The write of an update that does not depend on the item.
fn blind(update: &Update) -> RowWrite {
    let set = update.set.iter().filter_map(|(path, value)| match value {
        SetValue::Value(value) => Some((path.root.clone(), (**value).clone())),
        _ => None,
    });
    RowWrite::Blind(set.collect(), update.remove.iter().map(|path| path.root.clone()).collect())
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn update_item(&self, request: &Request) -> Result<Json> {
        request.table_name()?;
        let key = request.item("Key")?;
        let all = ["NONE", "ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW"];
        let returns = request.return_values(&all, "")?;
        request.check_mixed(
            &["AttributeUpdates", "Expected", "ConditionalOperator"],
            &["UpdateExpression", "ConditionExpression"],
        )?;
        let substitutions = request.substitutions(&["UpdateExpression", "ConditionExpression"], &[])?;
        let update = parse(request, &substitutions)?;
        let condition = request.condition(&substitutions)?;
        substitutions.check_used()?;
        let shows_old = request.returns_old_on_failure()?;
        let capacity = request.capacity()?;
        let table = self.table(request)?;
        let row = table.key(&key)?;
        update.check_keys(&table.keys().map(|key| key.name).collect::<Vec<_>>())?;
        let reads = condition.is_some()
            || returns == "ALL_OLD"
            || returns == "ALL_NEW"
            || returns == "UPDATED_OLD"
            || update.reads();
        let looks = reads || !self.store().writes_blindly(&table);
        let (mut before, mut after): (Option<Item>, Item) = (None, key.clone());
        let mut decide = |old: Option<&Item>| {
            let empty = Item::new();
            if condition.as_ref().is_some_and(|condition| !condition.holds(old.unwrap_or(&empty))) {
                return Err(condition_failed(old, shows_old));
            }
            let base = old.cloned().unwrap_or_else(|| key.clone());
            let new = update.apply(&base)?;
            check_size(&new, "Item size to update has exceeded the maximum allowed size")?;
            // A REMOVE alone makes no item of none.
            let makes = old.is_some()
                || new.len() > key.len()
                || update.remove.is_empty() && update.delete.is_empty();
            before = old.cloned();
            after = new.clone();
            Ok(match (looks, makes) {
                (false, _) => Some(blind(&update)),
                (true, false) => None,
                (true, true) => Some(RowWrite::Update(base, new)),
            })
        };
        self.store().modify(&table, &row, reads, &mut decide).await?;
        let shown = match returns {
            "ALL_OLD" => before.clone(),
            "ALL_NEW" => Some(after.clone()),
            "UPDATED_OLD" => before.as_ref().map(|before| update.touched(before)),
            "UPDATED_NEW" => Some(update.touched(&after)),
            _ => None,
        };
        let mut answer = Map::new();
        let whole = returns.starts_with("ALL");
        if let Some(shown) = shown.filter(|shown| whole || !shown.is_empty()) {
            answer.insert("Attributes".to_owned(), json::item(&shown));
        }
        let bytes = item_size(&after).max(before.as_ref().map_or(0, item_size));
        add_capacity(&mut answer, &table, capacity, write_units(bytes));
        Ok(Json::Object(answer))
    }
}
