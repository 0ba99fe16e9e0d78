//! UpdateTable: global indexes; the stream; billing, throughput of each kind, class and protection, which are kept and shown.

use exec::backend::Coordinator;
use serde_json::{Value as Json, json};

use super::create_table::{billing, refuse_unsupported, table_class};
use super::describe_table::description;
use super::throughput::check_units_change;
use super::{Dynamo, indexes, stream_specification, throughput};
use crate::error::{Result, invalid};
use crate::request::Request;
use crate::table;

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn update_table(&self, request: &Request) -> Result<Json> {
        let name = request.table_name()?;
        refuse_unsupported(request)?;
        let changed = [
            "BillingMode",
            "ProvisionedThroughput",
            "TableClass",
            "DeletionProtectionEnabled",
            "StreamSpecification",
        ];
        let stream = stream_specification::read(request, &name)?;
        let updates = ["GlobalSecondaryIndexUpdates", "VectorIndexUpdates"].map(|name| request.get(name));
        let mut updates = updates.into_iter().flatten().filter_map(Json::as_array);
        let is_changed = changed.iter().any(|name| request.has(name)) || throughput::is_given(request)?;
        if !is_changed && updates.all(Vec::is_empty) {
            return invalid!(
                "At least one of ProvisionedThroughput, BillingMode, UpdateStreamEnabled, GlobalSecondaryIndexUpdates, \
                 SSESpecification, ReplicaUpdates, MultiAccountReplicaReady, ReplicaTransitRoleArn, MultiRegionConsistency, \
                 DeletionProtectionEnabled, OnDemandThroughput, WarmThroughput or TableClass is required"
            );
        }
        if request.string("BillingMode")? == Some("PROVISIONED") && !request.has("ProvisionedThroughput") {
            return invalid!(
                "One or more parameter values were invalid: ProvisionedThroughput must be specified when BillingMode is \
                 PROVISIONED"
            );
        }
        throughput::check_alone(request)?;
        let find = |schema: &schema::Schema| table::find_active(schema, &name);
        let table = self
            .change_table(find, |table, details| {
                if request.has("BillingMode") || request.has("ProvisionedThroughput") {
                    let was = [details.read_units, details.write_units];
                    billing(request, details, self.now_seconds())?;
                    if request.has("ProvisionedThroughput") {
                        check_units_change(None, was, [details.read_units, details.write_units])?;
                    }
                    if details.on_demand {
                        (details.read_units, details.write_units) = (0, 0);
                        for index in &mut details.indexes {
                            (index.read_units, index.write_units) = (0, 0);
                        }
                    }
                }
                indexes::update(request, table, details)?;
                if request.has("BillingMode") {
                    throughput::check_provisioned(details)?;
                }
                throughput::updated(request, details)?;
                if let Some(stream) = stream {
                    let (view, now) = (self.executor.coordinator().view(), self.executor.timestamp());
                    stream_specification::update(details, stream, &name, (&view, now))?;
                }
                indexes::check_all(details)?;
                if let Some(class) = table_class(request)? {
                    details.class = Some(class);
                }
                if let Some(protected) = request.boolean("DeletionProtectionEnabled")? {
                    details.protected = protected;
                }
                Ok(())
            })
            .await?;
        let mut shown = description(&table, "ACTIVE", self.estimate(&table).await);
        self.mark_building(&table, &mut shown).await;
        Ok(json!({ "TableDescription": shown }))
    }
}
