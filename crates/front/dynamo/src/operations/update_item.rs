//! UpdateItem.

use std::rc::Rc;

use exec::backend::Coordinator;
use items::Item;

use super::Dynamo;
use super::write::{Action, ItemWrite};
use crate::error::Result;
use crate::reply::Reply;
use crate::request::Request;

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn update_item(&self, request: &Request) -> Result<Reply> {
        let all = ["NONE", "ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW"];
        let returns = request.return_values(&all, "")?;
        let capacity = request.capacity()?;
        let write = ItemWrite::update(request, || self.table(request))?;
        let looks = ["ALL_OLD", "ALL_NEW", "UPDATED_OLD"].contains(&returns);
        let decided = self.write_item(&write, looks).await?;
        let touched = |item: &Option<Rc<Item>>| match &write.action {
            Action::Update(update) => {
                let item = item.as_ref().map(|item| update.touched(item));
                item.filter(|item| !item.is_empty()).map(Rc::new)
            }
            _ => None,
        };
        let after = || Some(decided.after.clone().unwrap_or_else(|| write.key_item.clone()));
        let shown = match returns {
            "ALL_OLD" => decided.before.clone(),
            "ALL_NEW" => after(),
            "UPDATED_OLD" => touched(&decided.before),
            "UPDATED_NEW" => touched(&after()),
            _ => None,
        };
        self.written(request, &write, &decided, (Some(&shown), capacity)).await
    }
}
