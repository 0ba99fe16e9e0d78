//! CreateTable.

use cluster::SchemaEdit;
use coordinator::ClusterView;
use exec::backend::Coordinator;
use exec::ddl::log_edits;
use schema::{Keyspace, Schema, TableBuilder, TableId, TombstoneGc};
use serde_json::{Value as Json, json as to_json};
use types::CqlType;

use super::capacity_units::capacity_units;
use super::describe_table::description;
use super::estimate::Estimate;
use super::key_schema::{Definitions, definitions, key_elements};
use super::stream_specification::{self, Specification};
use super::{Dynamo, indexes, secondary_indexes, tags, throughput, vector_indexes};
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::names::ATTRIBUTES;
use crate::names::SYSTEM_PREFIX;
use crate::recovery::Recovered;
use crate::request::{Request, TABLE_NAME_MAX, constraint};
use crate::store::replication;
use crate::table::{self, ApiTable, Details, Restore, column_type, keyspace_name};

/// The items of a table that is to be created.
pub(super) enum Origin {
    New,
    /// Those of a backup.
    Backup(Restore),
    /// Those of another table at a point in time; the check is made in the schema in which the table is created.
    Recovered(Recovered, SourceCheck),
}

/// Refuses to restore a table in this schema.
pub(super) type SourceCheck = Box<dyn Fn(&Schema) -> Result<()>>;

impl Origin {
    /// Puts it into the details of the table; the check that is left.
    fn put_into(self, details: &mut Details) -> Option<SourceCheck> {
        match self {
            Self::New => {}
            Self::Backup(restore) => details.restore = Some(restore),
            Self::Recovered(recovered, check) => {
                details.recovered = Some(recovered);
                return Some(check);
            }
        }
        None
    }
}

/// The key of a table that is to be created: name and column type.
struct KeySchema {
    hash: (String, CqlType),
    range: Option<(String, CqlType)>,
}

/// `AttributeDefinitions`, `KeySchema` and the indexes, held against each other.
fn key_schema(request: &Request) -> Result<(KeySchema, Definitions<'_>)> {
    const WRONG: &str = "One or more parameter values were invalid:";
    let definitions = definitions(request)?;
    let keys = key_elements(request.required("KeySchema")?, "keySchema", &definitions)?;
    let has_indexes = ["LocalSecondaryIndexes", "GlobalSecondaryIndexes", "VectorIndexes"]
        .iter()
        .any(|name| request.has(name));
    if !has_indexes && keys.len() != definitions.len() {
        return invalid!(
            "{WRONG} Number of attributes in KeySchema does not exactly match number of attributes defined in \
             AttributeDefinitions"
        );
    }
    let column = |name: &str| {
        let kind = definitions.iter().find(|(known, _)| *known == name).map_or("B", |(_, kind)| kind);
        (name.to_owned(), column_type(kind).unwrap_or(CqlType::Blob))
    };
    let mut keys = keys.into_iter().map(|(name, _)| column(name));
    let Some(hash) = keys.next() else {
        return constraint("[]", "keySchema", "Member must have length greater than or equal to 1");
    };
    Ok((KeySchema { hash, range: keys.next() }, definitions))
}

/// Billing of `CreateTable` and `UpdateTable`.
pub(super) fn billing(request: &Request, details: &mut Details, now: f64) -> Result<()> {
    const WRONG: &str = "One or more parameter values were invalid:";
    if let Some(mode) = request.one_of("BillingMode", &["PROVISIONED", "PAY_PER_REQUEST"])? {
        let was_on_demand = std::mem::replace(&mut details.on_demand, mode == "PAY_PER_REQUEST");
        if details.on_demand && !was_on_demand {
            details.on_demand_since = Some(now);
        }
    }
    let Some(throughput) = request.get("ProvisionedThroughput") else {
        if !details.on_demand && (details.read_units == 0 || details.write_units == 0) {
            return invalid!(
                "{WRONG} ReadCapacityUnits and WriteCapacityUnits must both be specified when BillingMode is PROVISIONED"
            );
        }
        return Ok(());
    };
    if details.on_demand {
        return invalid!(
            "{WRONG} Neither ReadCapacityUnits nor WriteCapacityUnits can be specified when BillingMode is PAY_PER_REQUEST"
        );
    }
    (details.read_units, details.write_units) = capacity_units(throughput, "provisionedThroughput")?;
    Ok(())
}

/// Refuses parameters with nothing behind them.
pub(super) fn refuse_unsupported(request: &Request) -> Result<()> {
    const GLOBAL: &str = "the global tables of AWS (a table is in every datacenter)";
    for (name, what) in [
        ("ReplicaUpdates", GLOBAL),
        ("ResourcePolicy", "resource policies"),
        ("GlobalTableSourceArn", GLOBAL),
        ("GlobalTableSettingsReplicationMode", GLOBAL),
        ("GlobalTableWitnessUpdates", GLOBAL),
        ("MultiRegionConsistency", GLOBAL),
        ("DisassociationProtectionEnabled", GLOBAL),
    ] {
        let asks_nothing =
            |value: &Json| value.as_array().is_some_and(Vec::is_empty) || value.as_bool() == Some(false);
        let is_empty = request.get(name).is_none_or(asks_nothing);
        if !is_empty {
            return invalid!("{name}: Torc does not support {what} yet");
        }
    }
    let enabled = |name: &str, flag: &str| {
        let value = request.get(name).and_then(|value| value.get(flag));
        value.and_then(Json::as_bool) == Some(true)
    };
    if enabled("SSESpecification", "Enabled") {
        return invalid!("SSESpecification: Torc does not encrypt tables");
    }
    Ok(())
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn create_table(&self, request: &Request, role: Option<&str>) -> Result<Json> {
        let table = self.create(request, role, Origin::New).await?;
        Ok(to_json!({ "TableDescription": description(&table, table.status(), Estimate::default()) }))
    }

    /// Makes the table that a request describes; one with items is not active before they are restored.
    pub(super) async fn create(
        &self,
        request: &Request,
        role: Option<&str>,
        origin: Origin,
    ) -> Result<ApiTable> {
        let name = request.table_name()?;
        if name.len() > TABLE_NAME_MAX {
            return invalid!("TableName: Torc allows names of at most {TABLE_NAME_MAX} characters");
        }
        if name.starts_with(SYSTEM_PREFIX) {
            return invalid!("Prefix {SYSTEM_PREFIX} is reserved for accessing internal tables");
        }
        let (keys, definitions) = key_schema(request)?;
        refuse_unsupported(request)?;
        let mut details = Details {
            created: self.now_seconds(),
            protected: request.boolean("DeletionProtectionEnabled")?.unwrap_or(false),
            class: table_class(request)?,
            ..Details::default()
        };
        let check = origin.put_into(&mut details);
        let created = details.created;
        billing(request, &mut details, created)?;
        let names = (keys.hash.0.as_str(), keys.range.as_ref().map(|(name, _)| name.as_str()));
        details.indexes = secondary_indexes::created(request, &definitions, names, details.on_demand)?;
        throughput::created(request, &mut details)?;
        details.vectors = vector_indexes::created(request, &definitions)?;
        indexes::check_created(&details, &definitions, names)?;
        if let Some(tags) = request.get("Tags") {
            details.tags = tags::read(tags)?.into_iter().collect();
            tags::check(&details)?;
        }
        let stream = stream_specification::read(request, &name)?;
        let plan = |schema: &Schema, view: &ClusterView, id: [u8; 16]| {
            let keyspace = keyspace_name(&name);
            if schema.keyspace(&keyspace).is_some() {
                let text = format!("Table already exists: {name}");
                return Err(ApiError::new(ErrorKind::ResourceInUse, text));
            }
            check.as_ref().map_or(Ok(()), |check| check(schema))?;
            let mut builder = TableBuilder::new(&keyspace, name, TableId(id))
                .partition_key(&keys.hash.0, keys.hash.1.clone());
            if let Some((name, ty)) = &keys.range {
                builder = builder.clustering(name, ty.clone(), false);
            }
            builder = builder.regular(ATTRIBUTES, CqlType::map(CqlType::Text, CqlType::Blob, false));
            if details.restore.is_some() || details.recovered.is_some() {
                // Deletions past their grace come before the rows that they hide.
                builder.options.tombstone_gc = TombstoneGc::Disabled;
            }
            let (mut details, now) = (details.clone(), self.executor.timestamp());
            if let Some(Specification::Enabled(shown)) = stream {
                stream_specification::enable(&mut details, shown, &name, (view, now))?;
            }
            details.write(&mut builder, names, view);
            let table = builder.build().map_err(|error| ApiError::validation(error.to_string()))?;
            let keyspace = Keyspace::new(keyspace, replication(view));
            let log = log_edits(&table, schema, view, id, now)?;
            let mut edits = vec![SchemaEdit::PutKeyspace(keyspace), SchemaEdit::PutTable(table)];
            edits.extend(log);
            Ok(edits)
        };
        self.executor.change_schema_by(role, plan).await?;
        table::find_named(&self.schema(), &name)
    }
}

/// `TableClass`.
pub(super) fn table_class(request: &Request) -> Result<Option<String>> {
    let class = request.one_of("TableClass", &["STANDARD", "STANDARD_INFREQUENT_ACCESS"])?;
    Ok(class.map(str::to_owned))
}
