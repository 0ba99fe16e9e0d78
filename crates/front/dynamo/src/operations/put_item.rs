//! PutItem.

use exec::backend::Coordinator;

use super::Dynamo;
use super::write::ItemWrite;
use crate::error::Result;
use crate::reply::Reply;
use crate::request::Request;

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn put_item(&self, request: &Request) -> Result<Reply> {
        let returns =
            request.return_values(&["NONE", "ALL_OLD"], "ReturnValues can only be ALL_OLD or NONE")?;
        let capacity = request.capacity()?;
        let write = ItemWrite::put(request, || self.table(request))?;
        let decided = self.write_item(&write, returns == "ALL_OLD").await?;
        let shown = (returns == "ALL_OLD").then_some(&decided.before);
        self.written(request, &write, &decided, (shown, capacity)).await
    }
}
