//! RestoreTableFromBackup.

use std::collections::BTreeSet;

use auth::Permission;
use exec::backend::Coordinator;
use items::json;
use serde_json::{Map, Value as Json, json as to_json};

use super::Dynamo;
use super::backups::{VECTOR_INDEX, billing_mode, in_use, picked};
use super::create_table::Origin;
use super::describe_table::description;
use super::estimate::Estimate;
use crate::backup::parts::{Outcome, Part, Parts};
use crate::backup::record::{Backup, Status};
use crate::backup::standing;
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::request::{Request, target_name};
use crate::table::{Restore, keyspace_name};

/// The kinds of throughput of an index.
const THROUGHPUTS: [&str; 3] = ["ProvisionedThroughput", "OnDemandThroughput", "WarmThroughput"];
const WRONG: &str = "One or more parameter values were invalid:";

/// The indexes of a backup that a restoration has: those of its override, which the backup must have.
fn indexes(request: &Request, backup: &Json, parameter: &str, is_provisioned: bool) -> Result<Vec<Json>> {
    let without_throughput = |index: &Json| {
        let mut index = index.clone();
        if let Some(members) = index.as_object_mut() {
            members.remove("WarmThroughput");
            // CreateTable refuses an override that gives it to a table on demand.
            if !is_provisioned {
                members.remove("ProvisionedThroughput");
            }
            // An override that gives it to a provisioned table is refused.
            if is_provisioned {
                members.remove("OnDemandThroughput");
            }
        }
        index
    };
    let stored = backup.get(parameter).and_then(Json::as_array).into_iter().flatten();
    let stored: Vec<Json> = stored.map(without_throughput).collect();
    let name_of = |index: &Json| index.get("IndexName").and_then(Json::as_str).map(str::to_owned);
    // GlobalSecondaryIndexOverride, LocalSecondaryIndexOverride, VectorIndexOverride.
    let member = parameter.replace("Indexes", "IndexOverride");
    let Some(wanted) = request.get(&member).map(json::read_list).transpose()? else {
        return Ok(stored);
    };
    let mut out = Vec::new();
    for index in wanted {
        let known = stored.iter().find(|known| name_of(known) == name_of(index));
        let is_same = |known: &&Json| {
            let same = |name: &str| known.get(name) == index.get(name);
            let vectors = ["VectorAttribute", "SearchSchema", "Dimensions", "DistanceFunction"];
            same("KeySchema") && vectors.into_iter().all(same) && is_same_projection(known, index)
        };
        let Some(known) = known.filter(is_same) else {
            return invalid!(
                "{WRONG} {member}: the backup has no index {} with this definition",
                name_of(index).unwrap_or_default()
            );
        };
        let mut known = known.clone();
        if let Some(members) = known.as_object_mut() {
            members.extend(picked(index, &THROUGHPUTS));
        }
        out.push(known);
    }
    Ok(out)
}

/// Whether two indexes show the same attributes; none need be named in an override of a vector index.
fn is_same_projection(known: &Json, wanted: &Json) -> bool {
    let of = |index: &Json| {
        let projection = index.get("Projection")?;
        let names = projection.get("NonKeyAttributes").and_then(Json::as_array).into_iter().flatten();
        let names: BTreeSet<String> = names.filter_map(Json::as_str).map(str::to_owned).collect();
        Some((projection.get("ProjectionType").cloned(), names))
    };
    of(wanted).is_none_or(|wanted| Some(wanted) == of(known))
}

/// The names of the keys of a table or index.
fn keys(of: &Json) -> impl Iterator<Item = &str> {
    let keys = of.get("KeySchema").and_then(Json::as_array).into_iter().flatten();
    keys.filter_map(|key| key.get("AttributeName").and_then(Json::as_str))
}

/// The CreateTable that makes the table of a backup, by its description.
fn creation(request: &Request, backup: &Json, target: &str) -> Result<Request> {
    let given = request.one_of("BillingModeOverride", &["PROVISIONED", "PAY_PER_REQUEST"])?;
    let mode = given.unwrap_or_else(|| billing_mode(backup));
    let is_provisioned = mode == "PROVISIONED";
    let units = ["ReadCapacityUnits", "WriteCapacityUnits"];
    let stored = backup.get("ProvisionedThroughput").cloned().unwrap_or_default();
    let throughput = match request.get("ProvisionedThroughputOverride") {
        Some(throughput) => throughput.clone(),
        None if billing_mode(backup) == "PROVISIONED" => Json::Object(picked(&stored, &units)),
        // A table on demand has none: it has to be given.
        None => Json::Null,
    };
    let mut out = picked(backup, &["KeySchema"]);
    out.insert("TableName".to_owned(), target.into());
    out.insert("BillingMode".to_owned(), mode.into());
    if is_provisioned {
        out.insert("ProvisionedThroughput".to_owned(), throughput.clone());
    } else if request.has("ProvisionedThroughputOverride") {
        return invalid!(
            "{WRONG} ProvisionedThroughputOverride cannot be given when the billing mode is PAY_PER_REQUEST"
        );
    }
    match request.get("OnDemandThroughputOverride") {
        // CreateTable refuses it where the table is provisioned.
        Some(most) => {
            out.insert("OnDemandThroughput".to_owned(), most.clone());
        }
        None if is_provisioned => {}
        None => out.extend(picked(backup, &["OnDemandThroughput"])),
    }
    let class = backup.get("TableClassSummary").and_then(|summary| summary.get("TableClass"));
    if let Some(class) = class {
        out.insert("TableClass".to_owned(), class.clone());
    }
    let mut used: BTreeSet<String> = keys(backup).map(str::to_owned).collect();
    for parameter in ["LocalSecondaryIndexes", "GlobalSecondaryIndexes"] {
        let mut made = Vec::new();
        for index in indexes(request, backup, parameter, is_provisioned)? {
            used.extend(keys(&index).map(str::to_owned));
            let mut members = picked(&index, &["IndexName", "KeySchema", "Projection"]);
            if parameter == "GlobalSecondaryIndexes" {
                members.extend(picked(&index, &THROUGHPUTS));
                if is_provisioned {
                    members.insert("ProvisionedThroughput".to_owned(), index_throughput(&index, &throughput));
                }
            }
            made.push(Json::Object(members));
        }
        if !made.is_empty() {
            out.insert(parameter.to_owned(), Json::Array(made));
        }
    }
    let vectors = indexes(request, backup, "VectorIndexes", is_provisioned)?;
    for element in vectors.iter().filter_map(|index| index.get("SearchSchema")?.as_array()).flatten() {
        used.extend(element.get("AttributeName").and_then(Json::as_str).map(str::to_owned));
    }
    if !vectors.is_empty() {
        let made = vectors.iter().map(|index| Json::Object(picked(index, &VECTOR_INDEX)));
        out.insert("VectorIndexes".to_owned(), made.collect());
    }
    // Of attributes that only indexes have which are left out.
    let definitions = backup.get("AttributeDefinitions").and_then(Json::as_array).into_iter().flatten();
    let is_used = |definition: &&Json| {
        definition.get("AttributeName").and_then(Json::as_str).is_some_and(|name| used.contains(name))
    };
    let definitions: Vec<&Json> = definitions.filter(is_used).collect();
    out.insert("AttributeDefinitions".to_owned(), to_json!(definitions));
    Request::part(&Json::Object(out))
}

/// The throughput of an index; that of the table where the index of an on-demand table has none.
fn index_throughput(index: &Json, of_table: &Json) -> Json {
    let units = ["ReadCapacityUnits", "WriteCapacityUnits"];
    let own: Map<String, Json> =
        index.get("ProvisionedThroughput").map(|throughput| picked(throughput, &units)).unwrap_or_default();
    let is_set = own.values().all(|units| units.as_i64().is_some_and(|units| units > 0)) && !own.is_empty();
    if is_set { Json::Object(own) } else { of_table.clone() }
}

/// The error for the name of a restored table that is taken.
fn exists(target: &str) -> ApiError {
    ApiError::new(ErrorKind::TableAlreadyExists, format!("Table already exists: {target}"))
}

/// Refuses a restored table that is to be encrypted.
pub(super) fn refuse_encryption(request: &Request) -> Result<()> {
    let encryption = request.get("SSESpecificationOverride").and_then(|value| value.get("Enabled"));
    match encryption.and_then(Json::as_bool) {
        Some(true) => invalid!("SSESpecificationOverride: Torc does not encrypt tables"),
        _ => Ok(()),
    }
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn restore_table_from_backup(
        &self,
        request: &Request,
        role: Option<&str>,
    ) -> Result<Json> {
        let target = target_name(request)?;
        refuse_encryption(request)?;
        self.check_snapshots()?;
        let (backup, table) = self.permitted_backup(request, role, Permission::Select).await?;
        if backup.status != Status::Available {
            return Err(in_use(&backup.arn()));
        }
        self.check_target(&target)?;
        let restore = Restore {
            backup: backup.id.clone(),
            source: backup.table.clone(),
            at_millis: self.executor.clock().wall_micros().div_euclid(1000),
            in_progress: true,
            progress_millis: 0,
            ended_millis: 0,
            parts: self.parts_to_restore(&backup)?,
        };
        self.create_restored(request, (&table, &target), role, Origin::Backup(restore)).await
    }

    /// Refuses the name of a restored table that is taken.
    pub(super) fn check_target(&self, target: &str) -> Result<()> {
        match self.schema().keyspace(&keyspace_name(target)) {
            Some(_) => Err(exists(target)),
            None => Ok(()),
        }
    }

    /// Creates the table that a restoration fills, by the description of the one that is restored; the answer to the request.
    pub(super) async fn create_restored(
        &self,
        request: &Request,
        (source, target): (&Json, &str),
        role: Option<&str>,
        origin: Origin,
    ) -> Result<Json> {
        let creation = creation(request, source, target)?;
        let created = self.create(&creation, role, origin).await.map_err(|error| match error.kind {
            ErrorKind::ResourceInUse => exists(target),
            _ => error,
        })?;
        Ok(to_json!({ "TableDescription": description(&created, created.status(), Estimate::default()) }))
    }

    /// The parts of a restoration: the nodes with a snapshot, which must be enough.
    fn parts_to_restore(&self, backup: &Backup) -> Result<Parts> {
        let view = self.executor.coordinator().view();
        let mut parts = backup.parts.clone();
        for node in parts.nodes.values_mut() {
            node.part = if matches!(node.part, Part::Done(_)) { Part::Pending } else { Part::Gone };
        }
        if parts.outcome_of_restoration((0, 0), |host| standing(&view, host)) == Outcome::Failed {
            return invalid!(
                "The backup cannot be restored: too many nodes that had snapshots of it have left the cluster"
            );
        }
        Ok(parts)
    }
}
