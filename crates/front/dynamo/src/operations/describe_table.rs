//! DescribeTable.

use exec::backend::Coordinator;
use serde_json::{Value as Json, json};

use super::estimate::Estimate;
use super::{Dynamo, secondary_indexes, stream_specification, throughput, vector_indexes};
use crate::error::Result;
use crate::names::arn;
use crate::request::Request;
use crate::table::{self, ApiTable};
use crate::throughput::warm_at_least;

/// The keys of a table.
pub(super) fn key_schema(table: &ApiTable) -> Vec<Json> {
    table
        .keys()
        .zip(["HASH", "RANGE"])
        .map(|(key, kind)| json!({ "AttributeName": key.name, "KeyType": kind }))
        .collect()
}

/// A table as the API shows it.
pub(super) fn description(table: &ApiTable, status: &str, estimate: Estimate) -> Json {
    let details = table.details();
    let definitions: Vec<Json> = secondary_indexes::attributes(table)
        .into_iter()
        .map(|(name, kind)| json!({ "AttributeName": name, "AttributeType": kind }))
        .collect();
    let mut out = json!({
        "TableName": table.name(),
        "TableStatus": status,
        "TableArn": table.arn(),
        "TableId": table.table.id.to_string(),
        "CreationDateTime": details.created,
        "AttributeDefinitions": definitions,
        "KeySchema": key_schema(table),
        "ProvisionedThroughput": {
            "NumberOfDecreasesToday": 0,
            "ReadCapacityUnits": details.read_units,
            "WriteCapacityUnits": details.write_units,
        },
        "ItemCount": estimate.items,
        "TableSizeBytes": estimate.bytes,
        "DeletionProtectionEnabled": details.protected,
    });
    if let Some(members) = out.as_object_mut() {
        if let Some(since) = details.on_demand_since {
            let summary = json!({
                "BillingMode": if details.on_demand { "PAY_PER_REQUEST" } else { "PROVISIONED" },
                "LastUpdateToPayPerRequestDateTime": since,
            });
            members.insert("BillingModeSummary".to_owned(), summary);
        }
        let least = warm_at_least(details.on_demand, [details.read_units, details.write_units]);
        throughput::describe(details.throughput, least, members);
        secondary_indexes::describe(table, &details, estimate, members);
        vector_indexes::describe(table, estimate, members);
        stream_specification::describe(table, members);
        if let Some(restore) = details.restore {
            let summary = json!({
                "SourceBackupArn": restore.source_arn(),
                "SourceTableArn": arn(&restore.source),
                "RestoreDateTime": restore.at_millis as f64 / 1000.0,
                "RestoreInProgress": restore.in_progress,
            });
            members.insert("RestoreSummary".to_owned(), summary);
        }
        if let Some(recovered) = details.recovered {
            members.insert("RestoreSummary".to_owned(), recovered.summary());
        }
        if let Some(class) = details.class {
            members.insert("TableClassSummary".to_owned(), json!({ "TableClass": class }));
        }
    }
    out
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn describe_table(&self, request: &Request) -> Result<Json> {
        let table = table::find_named(&self.schema(), &request.table_name()?)?;
        let mut shown = description(&table, table.status(), self.estimate(&table).await);
        self.mark_building(&table, &mut shown).await;
        Ok(json!({ "Table": shown }))
    }
}
