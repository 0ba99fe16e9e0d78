//! DeleteItem.

use exec::backend::Coordinator;

use super::Dynamo;
use super::write::{Action, ItemWrite};
use crate::error::Result;
use crate::reply::Reply;
use crate::request::Request;

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn delete_item(&self, request: &Request) -> Result<Reply> {
        let returns =
            request.return_values(&["NONE", "ALL_OLD"], "ReturnValues can only be ALL_OLD or NONE")?;
        let capacity = request.capacity()?;
        let write = ItemWrite::of_key(request, Action::Delete, || self.table(request))?;
        let decided = self.write_item(&write, returns == "ALL_OLD").await?;
        let shown = (returns == "ALL_OLD").then_some(&decided.before);
        self.written(request, &write, &decided, (shown, capacity)).await
    }
}
