//! Common parts of the operations on backups: ARNs, errors and descriptions.

use auth::{Permission, Resource};
use exec::backend::Coordinator;
use items::json;
use serde_json::{Map, Value as Json, json as to_json};

use super::Dynamo;
use crate::backup::record::{Backup, Status};
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::names::arn;
use crate::request::{Request, constraint};
use crate::table::keyspace_name;
use crate::transfer::seconds;

/// The shortest and the longest ARN of a backup, as AWS has them.
const ARN_LEN: (usize, usize) = (37, 1024);

/// The members of a vector index that define it.
pub(super) const VECTOR_INDEX: [&str; 6] =
    ["IndexName", "VectorAttribute", "SearchSchema", "Projection", "Dimensions", "DistanceFunction"];

/// The error for an ARN of no backup.
pub(super) fn missing(arn: &str) -> ApiError {
    ApiError::new(ErrorKind::BackupNotFound, format!("Backup not found: {arn}"))
}

/// The error for a backup that cannot be used now.
pub(super) fn in_use(arn: &str) -> ApiError {
    let text = format!("Backup is being created, deleted or restored: {arn}");
    ApiError::new(ErrorKind::BackupInUse, text)
}

/// A member with the ARN of a backup, when it may be one.
pub(super) fn backup_arn<'a>(value: &'a Json, place: &str) -> Result<&'a str> {
    let arn = json::read_string(value)?;
    let (least, most) = ARN_LEN;
    let bound = match arn.len() {
        len if len < least => format!("greater than or equal to {least}"),
        len if len > most => format!("less than or equal to {most}"),
        _ => return Ok(arn),
    };
    constraint(arn, place, &format!("Member must have length {bound}"))
}

/// `BackupDetails`.
pub(super) fn details(backup: &Backup) -> Json {
    let mut details = to_json!({
        "BackupArn": backup.arn(),
        "BackupName": backup.name,
        "BackupSizeBytes": backup.parts.bytes(),
        "BackupStatus": backup.status.name(),
        "BackupType": if backup.is_system { "SYSTEM" } else { "USER" },
        "BackupCreationDateTime": seconds(backup.created),
    });
    if let (Some(expires), Some(members)) = (backup.expires(), details.as_object_mut()) {
        members.insert("BackupExpiryDateTime".to_owned(), to_json!(seconds(expires)));
    }
    details
}

/// A backup in a list.
pub(super) fn summary(backup: &Backup) -> Json {
    let mut summary = details(backup);
    if let Some(members) = summary.as_object_mut() {
        members.insert("TableName".to_owned(), to_json!(backup.table));
        members.insert("TableArn".to_owned(), to_json!(arn(&backup.table)));
        members.insert("TableId".to_owned(), to_json!(backup.table_id.to_string()));
    }
    summary
}

/// Some members of an object.
pub(super) fn picked(from: &Json, names: &[&str]) -> Map<String, Json> {
    let members = names.iter().filter_map(|name| Some(((*name).to_owned(), from.get(*name)?.clone())));
    members.collect()
}

/// `BackupDescription`, of a backup and the description of its table as it was.
pub(super) fn description(backup: &Backup, table: &Json) -> Json {
    let mut source =
        picked(table, &["TableName", "TableId", "TableArn", "TableSizeBytes", "KeySchema", "ItemCount"]);
    let throughput = table.get("ProvisionedThroughput").cloned().unwrap_or_default();
    let created = table.get("CreationDateTime").cloned().unwrap_or_default();
    let throughput = picked(&throughput, &["ReadCapacityUnits", "WriteCapacityUnits"]);
    source.insert("ProvisionedThroughput".to_owned(), Json::Object(throughput));
    source.extend(picked(table, &["OnDemandThroughput"]));
    source.insert("TableCreationDateTime".to_owned(), created);
    source.insert("BillingMode".to_owned(), billing_mode(table).into());
    let mut features = Map::new();
    for (name, shown) in [
        ("LocalSecondaryIndexes", &["IndexName", "KeySchema", "Projection"][..]),
        (
            "GlobalSecondaryIndexes",
            &["IndexName", "KeySchema", "Projection", "ProvisionedThroughput", "OnDemandThroughput"][..],
        ),
        ("VectorIndexes", &VECTOR_INDEX[..]),
    ] {
        let indexes = table.get(name).and_then(Json::as_array);
        let indexes: Vec<Json> =
            indexes.into_iter().flatten().map(|index| Json::Object(picked(index, shown))).collect();
        if !indexes.is_empty() {
            features.insert(name.to_owned(), Json::Array(indexes));
        }
    }
    if let Some(stream) = table.get("StreamSpecification") {
        features.insert("StreamDescription".to_owned(), stream.clone());
    }
    if let Some(time_to_live) = table.get("TimeToLiveDescription") {
        features.insert("TimeToLiveDescription".to_owned(), time_to_live.clone());
    }
    to_json!({
        "BackupDetails": details(backup),
        "SourceTableDetails": source,
        "SourceTableFeatureDetails": features,
    })
}

/// The billing mode of a described table.
pub(super) fn billing_mode(table: &Json) -> &str {
    let mode = table.get("BillingModeSummary").and_then(|summary| summary.get("BillingMode"));
    mode.and_then(Json::as_str).unwrap_or("PROVISIONED")
}

impl<C: Coordinator> Dynamo<C> {
    /// Refuses an operation on backups where this node makes no snapshots.
    pub(super) fn check_snapshots(&self) -> Result<()> {
        if self.snapshots.is_some() { Ok(()) } else { invalid!("This node makes no backups") }
    }

    /// The backup that a request names, which is not deleted, and the description of its table.
    pub(super) async fn named_backup(&self, request: &Request) -> Result<(Backup, Json)> {
        let arn = backup_arn(request.required("BackupArn")?, "backupArn")?;
        let id = arn.rsplit_once("/backup/").map_or("", |(_, id)| id);
        let found = if id.is_empty() { None } else { self.store().backup(id).await? };
        // The ARN names a table, too.
        let found = found.filter(|(backup, _)| backup.arn() == arn && backup.status != Status::Deleting);
        found.ok_or_else(|| missing(arn))
    }

    /// [`Dynamo::named_backup`] for a role that was permitted this on the table of its name. Where that is another table than the one that was
    /// backed up, the role needs the permission on all.
    pub(super) async fn permitted_backup(
        &self,
        request: &Request,
        role: Option<&str>,
        permission: Permission,
    ) -> Result<(Backup, Json)> {
        let (backup, description) = self.named_backup(request).await?;
        let present = self.schema().table(&keyspace_name(&backup.table), &backup.table).map(|table| table.id);
        if self.settings().enforces_authorization && present != Some(backup.table_id) {
            self.executor.authorize(role, permission, &Resource::Data)?;
        }
        Ok((backup, description))
    }
}
