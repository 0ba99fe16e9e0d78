//! UpdateTimeToLive and DescribeTimeToLive.

use exec::backend::Coordinator;
use items::json;
use schema::Schema;
use serde_json::{Value as Json, json as to_json};

use super::Dynamo;
use crate::error::{Result, invalid};
use crate::request::{Request, constraint};
use crate::table;

/// The longest name of an attribute here.
const NAME_MAX: usize = 255;

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn update_time_to_live(&self, request: &Request) -> Result<Json> {
        const PLACE: &str = "timeToLiveSpecification";
        let name = request.table_name()?;
        let specification = Request::part(request.required("TimeToLiveSpecification")?)?;
        let Some(enabled) = specification.boolean("Enabled")? else {
            return constraint("null", &format!("{PLACE}.enabled"), "Member must not be null");
        };
        let attribute = match specification.get("AttributeName") {
            None => return constraint("null", &format!("{PLACE}.attributeName"), "Member must not be null"),
            Some(attribute) => json::read_string(attribute)?,
        };
        if !(1..=NAME_MAX).contains(&attribute.len()) {
            let bound =
                if attribute.is_empty() { "greater than or equal to 1" } else { "less than or equal to 255" };
            return constraint(
                attribute,
                &format!("{PLACE}.attributeName"),
                &format!("Member must have length {bound}"),
            );
        }
        let find = |schema: &Schema| table::find_active(schema, &name);
        self.change_table(find, |_, details| {
            match (&details.expires_by, enabled) {
                (None, false) => return invalid!("TimeToLive is already disabled"),
                (Some(current), _) if current != attribute => {
                    return invalid!(
                        "TimeToLive is active on a different AttributeName: current AttributeName is {current}"
                    );
                }
                (Some(_), true) => return invalid!("TimeToLive is already enabled"),
                _ => {}
            }
            details.expires_by = enabled.then(|| attribute.to_owned());
            Ok(())
        })
        .await?;
        Ok(to_json!({ "TimeToLiveSpecification": { "Enabled": enabled, "AttributeName": attribute } }))
    }

    pub(super) fn describe_time_to_live(&self, request: &Request) -> Result<Json> {
        let table = table::find_named(&self.schema(), &request.table_name()?)?;
        let description = match table.details().expires_by {
            Some(attribute) => to_json!({ "TimeToLiveStatus": "ENABLED", "AttributeName": attribute }),
            None => to_json!({ "TimeToLiveStatus": "DISABLED" }),
        };
        Ok(to_json!({ "TimeToLiveDescription": description }))
    }
}
