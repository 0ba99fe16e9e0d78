//! GetItem.

use exec::backend::Coordinator;
use items::Projection;
use serde_json::{Map, Value as Json};

use super::Dynamo;
use super::consumed::Consumed;
use super::size::read_units;
use crate::error::Result;
use crate::reply::Reply;
use crate::request::Request;

/// The members that a projection has to do with.
const PROJECTION_MEMBERS: [&str; 3] = ["AttributesToGet", "ProjectionExpression", "ExpressionAttributeNames"];

fn projection(request: &Request) -> Result<Option<Projection>> {
    request.check_mixed(&["AttributesToGet"], &["ProjectionExpression"])?;
    let substitutions = request.substitutions(&[], &["ProjectionExpression"])?;
    let projection = request.projection(&substitutions)?;
    substitutions.check_used()?;
    Ok(projection)
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn get_item(&self, request: &Request) -> Result<Reply> {
        let key = request.item("Key")?;
        let projection = match request.has_any(&PROJECTION_MEMBERS) {
            true => projection(request)?,
            false => None,
        };
        let consistent = request.boolean("ConsistentRead")?.unwrap_or(false);
        let capacity = request.capacity()?;
        let table = self.table(request)?;
        let row = table.key(&key)?;
        let shown = self.store().shown(&table, &row, consistent, projection.as_ref()).await?;
        let bytes = shown.as_ref().map_or(0, |(_, size)| *size);
        let mut answer = Map::new();
        let units = read_units(bytes, consistent);
        self.metrics.read(Some(&table), units);
        Consumed::of_table(units).show(&mut answer, request.named_table(), capacity);
        let Some((text, _)) = shown else { return Ok(Json::Object(answer).into()) };
        Ok(Reply::of_text("Item", &text, answer))
    }
}
