//! GetItem.

use exec::backend::Coordinator;
use items::item_size;
use serde_json::{Map, Value as Json};

use super::Dynamo;
use super::consumed::Consumed;
use super::size::read_units;
use crate::error::Result;
use crate::reply::{Reply, text_of};
use crate::request::Request;

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn get_item(&self, request: &Request) -> Result<Reply> {
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
        let units = read_units(bytes, consistent);
        self.metrics.read(units);
        Consumed::of_table(units).show(&mut answer, request.named_table(), capacity);
        let Some(item) = item else { return Ok(Json::Object(answer).into()) };
        let text = match projection {
            Some(projection) => text_of(&projection.apply(&item)),
            None => text_of(&item),
        };
        Ok(Reply::of_text("Item", &text, answer))
    }
}
