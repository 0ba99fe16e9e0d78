//! GetItem.

use exec::backend::Coordinator;
use items::{item_size, json};
use serde_json::{Map, Value as Json};

use super::size::read_units;
use super::{Dynamo, add_capacity};
use crate::error::Result;
use crate::request::Request;

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn get_item(&self, request: &Request) -> Result<Json> {
        request.table_name()?;
        let key = request.item("Key")?;
        request.check_mixed(&["AttributesToGet"], &["ProjectionExpression"])?;
        let substitutions = request.substitutions(&[], &["ProjectionExpression"])?;
        let projection = request.projection(&substitutions)?;
        substitutions.check_used()?;
        let consistent = request.boolean("ConsistentRead")?.unwrap_or(false);
        let capacity = request.capacity()?;
        let table = self.table(request)?;
        let row = table.key(&key)?;
        let item = self.store().get(&table, &row, consistent).await?;
        let bytes = item.as_ref().map_or(0, item_size);
        let mut answer = Map::new();
        if let Some(item) = item {
            let item = projection.map_or_else(|| item.clone(), |projection| projection.apply(&item));
            answer.insert("Item".to_owned(), json::item(&item));
        }
        let units = read_units(bytes, consistent);
        self.metrics.read(units);
        add_capacity(&mut answer, &table, capacity, units);
        Ok(Json::Object(answer))
    }
}
