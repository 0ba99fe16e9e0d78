//! UpdateTable: global indexes; the stream; billing, throughput, class and protection, which are kept and shown.

use exec::backend::Coordinator;
use serde_json::{Value as Json, json};

use super::create_table::{billing, refuse_unsupported, table_class};
use super::describe_table::description;
use super::{Dynamo, refuse, secondary_indexes, stream_specification};
use crate::error::{Result, invalid};
use crate::request::Request;
use crate::table;

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn update_table(&self, request: &Request) -> Result<Json> {
        let name = request.table_name()?;
        refuse_unsupported(request)?;
        refuse(request, &["OnDemandThroughput", "WarmThroughput"])?;
        let changed = [
            "BillingMode",
            "ProvisionedThroughput",
            "TableClass",
            "DeletionProtectionEnabled",
            "StreamSpecification",
        ];
        let stream = stream_specification::read(request, &name)?;
        let updates = request.get("GlobalSecondaryIndexUpdates").and_then(Json::as_array);
        if !changed.iter().any(|name| request.has(name)) && updates.is_none_or(Vec::is_empty) {
            return invalid!(
                "At least one of ProvisionedThroughput, BillingMode, UpdateStreamEnabled, GlobalSecondaryIndexUpdates or \
                 SSESpecification or ReplicaUpdates is required"
            );
        }
        let find = |schema: &schema::Schema| table::find_active(schema, &name);
        let table = self
            .change_table(find, |table, details| {
                secondary_indexes::update(request, table, details)?;
                if let Some(stream) = stream {
                    let (view, now) = (self.executor.coordinator().view(), self.executor.timestamp());
                    stream_specification::update(details, stream, &name, (&view, now))?;
                }
                if request.has("BillingMode") || request.has("ProvisionedThroughput") {
                    billing(request, details)?;
                    if details.on_demand {
                        (details.read_units, details.write_units) = (0, 0);
                    }
                }
                if let Some(class) = table_class(request)? {
                    details.class = Some(class);
                }
                if let Some(protected) = request.boolean("DeletionProtectionEnabled")? {
                    details.protected = protected;
                }
                Ok(())
            })
            .await?;
        Ok(json!({ "TableDescription": description(&table, "ACTIVE", self.estimate(&table).await) }))
    }
}
