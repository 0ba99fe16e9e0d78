//! DeleteItem.

use exec::backend::Coordinator;
use items::{Item, item_size, json};
use serde_json::{Map, Value as Json};

use super::{Dynamo, add_capacity, condition_failed, write_units};
use crate::error::Result;
use crate::request::Request;
use crate::table::RowWrite;

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn delete_item(&self, request: &Request) -> Result<Json> {
        request.table_name()?;
        let key = request.item("Key")?;
        let returns =
            request.return_values(&["NONE", "ALL_OLD"], "ReturnValues can only be ALL_OLD or NONE")?;
        request.check_mixed(&["Expected", "ConditionalOperator"], &["ConditionExpression"])?;
        let substitutions = request.substitutions(&["ConditionExpression"], &[])?;
        let condition = request.condition(&substitutions)?;
        substitutions.check_used()?;
        let shows_old = request.returns_old_on_failure()?;
        let capacity = request.capacity()?;
        let table = self.table(request)?;
        let row = table.key(&key)?;
        let mut found: Option<Item> = None;
        let blind = self.store().writes_blindly(&table);
        let mut decide = |old: Option<&Item>| {
            let empty = Item::new();
            if condition.as_ref().is_some_and(|condition| !condition.holds(old.unwrap_or(&empty))) {
                return Err(condition_failed(old, shows_old));
            }
            found = old.cloned();
            // Who has seen that there is no item has nothing to delete.
            Ok((found.is_some() || blind).then_some(RowWrite::Delete))
        };
        let reads = condition.is_some() || returns == "ALL_OLD";
        self.store().modify(&table, &row, reads, &mut decide).await?;
        let mut answer = Map::new();
        if let (Some(old), "ALL_OLD") = (&found, returns) {
            answer.insert("Attributes".to_owned(), json::item(old));
        }
        add_capacity(&mut answer, &table, capacity, write_units(found.as_ref().map_or(0, item_size)));
        Ok(Json::Object(answer))
    }
}
