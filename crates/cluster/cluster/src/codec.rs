//! The schema as JSON: the form in which a node stores it. A person can read it in an emergency, and a field that
//! a later version adds has a default here.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::collections::BTreeMap;
use std::sync::Arc;

use schema::{
    ColumnKind, DroppedColumn, Keyspace, RateLimit, Replication, Schema, SpeculativeRetry, Table,
    TableBuilder, TableOptions, TombstoneGc,
};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use types::UserType;

use crate::cdc::{StoredCdc, StoredCdcGeneration};
use crate::error::{FORMAT_VERSION, SchemaCodecError};
use crate::objects::{
    self, StoredAggregate, StoredCidrGroup, StoredConstraint, StoredDerivation, StoredDescription,
    StoredFunction, StoredIndex, StoredMask, StoredRole, StoredServiceLevel, StoredTrigger,
    StoredTypeDescription,
};
use crate::steps::{self, Steps};
use crate::stored_value::{load_type, parse_id};

/// Written by [`crate::written`], in the form that `serde_json` gives it.
#[cfg_attr(test, derive(Serialize))]
#[derive(Deserialize)]
pub(crate) struct StoredSchema {
    format: u32,
    keyspaces: Vec<StoredKeyspace>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    roles: Vec<StoredRole>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    service_levels: Vec<StoredServiceLevel>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cdc_generations: Vec<StoredCdcGeneration>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cidr_groups: Vec<StoredCidrGroup>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredKeyspace {
    name: String,
    replication: StoredReplication,
    durable_writes: bool,
    types: Vec<StoredType>,
    tables: Vec<StoredTable>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    functions: Vec<StoredFunction>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    aggregates: Vec<StoredAggregate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<StoredDescription>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    type_descriptions: Vec<StoredTypeDescription>,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum StoredReplication {
    Local,
    Everywhere,
    Simple(u32),
    NetworkTopology(BTreeMap<String, u32>),
}

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredType {
    name: String,
    fields: Vec<(String, String)>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredTable {
    name: String,
    id: String,
    compact_storage: bool,
    columns: Vec<StoredColumn>,
    dropped: Vec<StoredDropped>,
    options: StoredOptions,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    indexes: Vec<StoredIndex>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    triggers: Vec<StoredTrigger>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    derivation: Option<StoredDerivation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    security_label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttl_column: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct StoredColumn {
    name: String,
    kind: String,
    class: String,
    descending: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mask: Option<StoredMask>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    constraints: Vec<StoredConstraint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<StoredDescription>,
}

#[derive(Serialize, Deserialize)]
struct StoredDropped {
    name: String,
    class: String,
    is_static: bool,
    dropped_micros: i64,
}

#[derive(Serialize, Deserialize)]
struct StoredOptions {
    comment: String,
    bloom_filter_fp_chance: Exact,
    caching: BTreeMap<String, String>,
    cdc: StoredCdc,
    compaction: BTreeMap<String, String>,
    compression: BTreeMap<String, String>,
    crc_check_chance: Exact,
    default_time_to_live: u32,
    gc_grace_seconds: u32,
    max_index_interval: u32,
    min_index_interval: u32,
    memtable_flush_period_in_ms: u32,
    memtable: String,
    read_repair: String,
    speculative_retry: StoredRetry,
    additional_write_policy: StoredRetry,
    incremental_backups: Option<bool>,
    allow_auto_snapshot: bool,
    /// Mode and seconds; absent for the default, and in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tombstone_gc: Option<(String, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paxos_grace_seconds: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_reads_per_second: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_writes_per_second: Option<u32>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    synchronous_updates: bool,
    extensions: BTreeMap<String, Vec<u8>>,
}

#[derive(Serialize, Deserialize)]
enum StoredRetry {
    Never,
    Always,
    Percentile(Exact),
    Millis(Exact),
    Hybrid { min: bool, percentile: Exact, millis: Exact },
}

/// A number with a fraction, as text: JSON has no NaN and no infinity (they become `null`), and a reader of its numbers may round the
/// last digit, so that two nodes would differ. Numbers, as earlier versions wrote them, are read too.
struct Exact(f64);

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:?}", self.0))
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Text(String),
            Number(f64),
        }
        match Form::deserialize(deserializer)? {
            Form::Number(number) => Ok(Self(number)),
            Form::Text(text) => {
                text.parse().map(Self).map_err(|_| D::Error::custom(format!("{text:?} is no number")))
            }
        }
    }
}

/// Adds the output of [`crate::written::encode`] to `base` (the server's own keyspaces).
pub(crate) fn decode(bytes: &[u8], base: Schema) -> Result<Schema, SchemaCodecError> {
    load(serde_json::from_slice(bytes)?, base)
}

/// The user-made part of a schema, to compare with the output of [`crate::written`].
#[cfg(test)]
pub(crate) fn store(schema: &Schema) -> StoredSchema {
    let keyspaces =
        schema.keyspaces().filter(|keyspace| !keyspace.system).map(|k| store_keyspace(k)).collect();
    StoredSchema {
        format: FORMAT_VERSION,
        keyspaces,
        roles: schema.roles().map(|role| objects::store_role(role)).collect(),
        service_levels: schema.service_levels().map(|level| objects::store_service_level(level)).collect(),
        cdc_generations: schema.cdc_generations().iter().map(|it| StoredCdcGeneration::from(&**it)).collect(),
        cidr_groups: schema.cidr_groups().map(|group| objects::store_cidr_group(group)).collect(),
    }
}

impl StoredSchema {
    /// Adds tables to the keyspaces, in the order of these; false when there are more or fewer.
    pub(crate) fn add_tables(&mut self, tables: Vec<Vec<StoredTable>>) -> bool {
        let is_complete = tables.len() == self.keyspaces.len();
        self.keyspaces.iter_mut().zip(tables).for_each(|(keyspace, tables)| keyspace.tables.extend(tables));
        is_complete
    }
}

/// Adds the user-made part of a schema to `base`.
pub(crate) fn load(stored: StoredSchema, base: Schema) -> Result<Schema, SchemaCodecError> {
    steps::at_once(load_with(stored, base, &mut Steps::none()))
}

/// [`load`] a table at a time.
pub(crate) async fn load_with(
    stored: StoredSchema,
    base: Schema,
    steps: &mut Steps,
) -> Result<Schema, SchemaCodecError> {
    if stored.format > FORMAT_VERSION {
        return Err(SchemaCodecError::Newer { found: stored.format });
    }
    let mut schema = base;
    for keyspace in stored.keyspaces {
        schema = schema.with_keyspace(load_keyspace_with(keyspace, steps).await?);
    }
    for role in stored.roles {
        schema = schema.with_role(objects::load_role(role));
    }
    for level in stored.service_levels {
        schema = schema.with_service_level(objects::load_service_level(level)?);
    }
    for generation in stored.cdc_generations {
        schema = schema.with_cdc_generation(generation.load()?);
    }
    for group in stored.cidr_groups {
        schema = schema.with_cidr_group(objects::load_cidr_group(group)?);
    }
    Ok(schema)
}

pub(crate) fn store_type(ty: &UserType) -> StoredType {
    StoredType {
        name: ty.name.clone(),
        fields: ty.fields.iter().map(|(name, ty)| (name.clone(), ty.class_name(false))).collect(),
    }
}

pub(crate) fn store_replication(replication: &Replication) -> StoredReplication {
    match replication {
        Replication::Local => StoredReplication::Local,
        Replication::Everywhere => StoredReplication::Everywhere,
        Replication::Simple { factor } => StoredReplication::Simple(*factor),
        Replication::NetworkTopology { factors } => StoredReplication::NetworkTopology(factors.clone()),
    }
}

pub(crate) fn load_replication(stored: StoredReplication) -> Replication {
    match stored {
        StoredReplication::Local => Replication::Local,
        StoredReplication::Everywhere => Replication::Everywhere,
        StoredReplication::Simple(factor) => Replication::Simple { factor },
        StoredReplication::NetworkTopology(factors) => Replication::NetworkTopology { factors },
    }
}

pub(crate) fn store_keyspace(keyspace: &Keyspace) -> StoredKeyspace {
    StoredKeyspace {
        name: keyspace.name.clone(),
        replication: store_replication(&keyspace.replication),
        durable_writes: keyspace.durable_writes,
        types: keyspace.types.values().map(|ty| store_type(ty)).collect(),
        tables: keyspace.tables.values().map(|table| store_table(table)).collect(),
        functions: keyspace.functions.values().map(|one| objects::store_function(one)).collect(),
        aggregates: keyspace.aggregates.values().map(|one| objects::store_aggregate(one)).collect(),
        description: objects::store_description(&keyspace.description),
        type_descriptions: keyspace.type_descriptions.iter().map(objects::store_type_description).collect(),
    }
}

pub(crate) fn load_keyspace(stored: StoredKeyspace) -> Result<Keyspace, SchemaCodecError> {
    steps::at_once(load_keyspace_with(stored, &mut Steps::none()))
}

async fn load_keyspace_with(stored: StoredKeyspace, steps: &mut Steps) -> Result<Keyspace, SchemaCodecError> {
    let mut keyspace = Keyspace::new(stored.name, load_replication(stored.replication));
    keyspace.durable_writes = stored.durable_writes;
    keyspace.description = objects::load_description(stored.description);
    let described = stored.type_descriptions.into_iter().map(objects::load_type_description);
    keyspace.type_descriptions = described.collect();
    for ty in stored.types {
        let ty = load_user_type(&keyspace.name, ty)?;
        keyspace.types.insert(ty.name.clone(), Arc::new(ty));
    }
    for table in stored.tables {
        let table = load_table(&keyspace.name, table)?;
        keyspace.tables.insert(table.name.clone(), Arc::new(table));
        steps.made(0).await;
    }
    for function in stored.functions {
        let function = objects::load_function(&keyspace.name, function)?;
        keyspace.functions.insert(function.signature(), Arc::new(function));
    }
    for aggregate in stored.aggregates {
        let aggregate = objects::load_aggregate(&keyspace.name, aggregate)?;
        keyspace.aggregates.insert(aggregate.signature(), Arc::new(aggregate));
    }
    Ok(keyspace)
}

pub(crate) fn load_user_type(keyspace: &str, stored: StoredType) -> Result<UserType, SchemaCodecError> {
    let fields = stored.fields.into_iter().map(|(name, class)| {
        let ty = load_type(&class, || format!("field {name} of type {}", stored.name))?;
        Ok((name, ty))
    });
    let fields = fields.collect::<Result<_, SchemaCodecError>>()?;
    Ok(UserType { keyspace: keyspace.to_owned(), name: stored.name.clone(), fields })
}

fn kind_name(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::PartitionKey => "partition_key",
        ColumnKind::Clustering => "clustering",
        ColumnKind::Static => "static",
        ColumnKind::Regular => "regular",
    }
}

pub(crate) fn store_table(table: &Table) -> StoredTable {
    let column = |column: &schema::Column| StoredColumn {
        name: column.name.clone(),
        kind: kind_name(column.kind).to_owned(),
        class: column.ty.class_name(false),
        descending: column.descending,
        mask: column.mask.as_deref().map(objects::store_mask),
        constraints: column.constraints.iter().map(objects::store_constraint).collect(),
        description: column.description.as_deref().and_then(objects::store_description),
    };
    let dropped = |dropped: &DroppedColumn| StoredDropped {
        name: dropped.name.clone(),
        class: dropped.ty.class_name(false),
        is_static: dropped.is_static,
        dropped_micros: dropped.dropped_micros,
    };
    StoredTable {
        name: table.name.clone(),
        id: table.id.to_string(),
        compact_storage: table.compact_storage,
        columns: table.columns().iter().map(column).collect(),
        dropped: table.dropped_columns.values().map(dropped).collect(),
        options: store_options(&table.options),
        indexes: table.indexes.values().map(objects::store_index).collect(),
        triggers: table.triggers.values().map(objects::store_trigger).collect(),
        derivation: table.derivation.as_ref().map(objects::store_derivation),
        security_label: table.security_label.clone(),
        ttl_column: table.ttl_column.clone(),
    }
}

pub(crate) fn load_table(keyspace: &str, stored: StoredTable) -> Result<Table, SchemaCodecError> {
    let id = parse_id(&stored.id)
        .ok_or_else(|| SchemaCodecError::Value { what: "table id", found: stored.id.clone() })?;
    let mut builder = TableBuilder::new(keyspace, stored.name.clone(), id);
    builder.options = load_options(stored.options);
    builder.compact_storage = stored.compact_storage;
    builder.security_label = stored.security_label;
    builder.ttl_column = stored.ttl_column;
    let mut masks = Vec::new();
    for column in stored.columns {
        let ty = load_type(&column.class, || format!("column {} of {}", column.name, stored.name))?;
        if let Some(mask) = column.mask {
            masks.push((column.name.clone(), objects::load_mask(mask)?));
        }
        let constraints = column.constraints.into_iter().map(objects::load_constraint);
        let constraints = constraints.collect::<Result<Vec<_>, SchemaCodecError>>()?;
        let description = objects::load_description(column.description);
        builder = match column.kind.as_str() {
            "partition_key" => builder.partition_key(column.name, ty),
            "clustering" => builder.clustering(column.name, ty, column.descending),
            "static" => builder.static_column(column.name, ty),
            "regular" => builder.regular(column.name, ty),
            _ => return Err(SchemaCodecError::Value { what: "column kind", found: column.kind }),
        };
        if let Some(added) = builder.columns_mut().last_mut() {
            added.constraints = constraints;
            added.description = (!description.is_empty()).then(|| description.into());
        }
    }
    for (column, mask) in masks {
        builder.set_mask(&column, Some(mask));
    }
    for dropped in stored.dropped {
        let ty = load_type(&dropped.class, || format!("dropped column {}", dropped.name))?;
        let column = DroppedColumn {
            name: dropped.name.clone(),
            ty,
            is_static: dropped.is_static,
            dropped_micros: dropped.dropped_micros,
        };
        builder.dropped_columns.insert(dropped.name, column);
    }
    let indexes = stored.indexes.into_iter().map(objects::load_index);
    builder.indexes = indexes.map(|index| (index.name.clone(), index)).collect();
    let triggers = stored.triggers.into_iter().map(objects::load_trigger);
    builder.triggers = triggers.map(|trigger| (trigger.name.clone(), trigger)).collect();
    builder.derivation = stored.derivation.map(objects::load_derivation).transpose()?;
    builder
        .build()
        .map_err(|error| SchemaCodecError::Table { table: format!("{keyspace}.{}", stored.name), error })
}

fn store_retry(retry: &SpeculativeRetry) -> StoredRetry {
    match *retry {
        SpeculativeRetry::Never => StoredRetry::Never,
        SpeculativeRetry::Always => StoredRetry::Always,
        SpeculativeRetry::Percentile(p) => StoredRetry::Percentile(Exact(p)),
        SpeculativeRetry::Millis(ms) => StoredRetry::Millis(Exact(ms)),
        SpeculativeRetry::Hybrid { min, percentile, millis } => {
            StoredRetry::Hybrid { min, percentile: Exact(percentile), millis: Exact(millis) }
        }
    }
}

fn load_retry(stored: StoredRetry) -> SpeculativeRetry {
    match stored {
        StoredRetry::Never => SpeculativeRetry::Never,
        StoredRetry::Always => SpeculativeRetry::Always,
        StoredRetry::Percentile(Exact(p)) => SpeculativeRetry::Percentile(p),
        StoredRetry::Millis(Exact(ms)) => SpeculativeRetry::Millis(ms),
        StoredRetry::Hybrid { min, percentile: Exact(percentile), millis: Exact(millis) } => {
            SpeculativeRetry::Hybrid { min, percentile, millis }
        }
    }
}

fn store_tombstone_gc(gc: TombstoneGc) -> Option<(String, u32)> {
    let delay = match gc {
        TombstoneGc::Timeout => return None,
        TombstoneGc::Repair { propagation_delay_seconds } => propagation_delay_seconds,
        TombstoneGc::Disabled | TombstoneGc::Immediate => 0,
    };
    Some((gc.mode().to_owned(), delay))
}

/// A mode of a later version forgets nothing.
fn load_tombstone_gc(stored: Option<(String, u32)>) -> TombstoneGc {
    match stored {
        None => TombstoneGc::Timeout,
        Some((mode, delay)) => TombstoneGc::from_mode(&mode, delay).unwrap_or(TombstoneGc::Disabled),
    }
}

fn store_options(options: &TableOptions) -> StoredOptions {
    let options = options.clone();
    StoredOptions {
        comment: options.comment,
        bloom_filter_fp_chance: Exact(options.bloom_filter_fp_chance),
        caching: options.caching,
        cdc: StoredCdc::from(options.cdc),
        compaction: options.compaction,
        compression: options.compression,
        crc_check_chance: Exact(options.crc_check_chance),
        default_time_to_live: options.default_time_to_live,
        gc_grace_seconds: options.gc_grace_seconds,
        max_index_interval: options.max_index_interval,
        min_index_interval: options.min_index_interval,
        memtable_flush_period_in_ms: options.memtable_flush_period_in_ms,
        memtable: options.memtable,
        read_repair: options.read_repair,
        speculative_retry: store_retry(&options.speculative_retry),
        additional_write_policy: store_retry(&options.additional_write_policy),
        incremental_backups: options.incremental_backups,
        allow_auto_snapshot: options.allow_auto_snapshot,
        tombstone_gc: store_tombstone_gc(options.tombstone_gc),
        paxos_grace_seconds: options.paxos_grace_seconds,
        max_reads_per_second: options.per_partition_rate_limit.max_reads_per_second,
        max_writes_per_second: options.per_partition_rate_limit.max_writes_per_second,
        synchronous_updates: options.synchronous_updates,
        extensions: options.extensions,
    }
}

fn load_options(stored: StoredOptions) -> TableOptions {
    TableOptions {
        comment: stored.comment,
        bloom_filter_fp_chance: stored.bloom_filter_fp_chance.0,
        caching: stored.caching,
        cdc: stored.cdc.load(),
        compaction: stored.compaction,
        compression: stored.compression,
        crc_check_chance: stored.crc_check_chance.0,
        default_time_to_live: stored.default_time_to_live,
        gc_grace_seconds: stored.gc_grace_seconds,
        max_index_interval: stored.max_index_interval,
        min_index_interval: stored.min_index_interval,
        memtable_flush_period_in_ms: stored.memtable_flush_period_in_ms,
        memtable: stored.memtable,
        read_repair: stored.read_repair,
        speculative_retry: load_retry(stored.speculative_retry),
        additional_write_policy: load_retry(stored.additional_write_policy),
        incremental_backups: stored.incremental_backups,
        allow_auto_snapshot: stored.allow_auto_snapshot,
        tombstone_gc: load_tombstone_gc(stored.tombstone_gc),
        paxos_grace_seconds: stored.paxos_grace_seconds,
        per_partition_rate_limit: RateLimit {
            max_reads_per_second: stored.max_reads_per_second,
            max_writes_per_second: stored.max_writes_per_second,
        },
        synchronous_updates: stored.synchronous_updates,
        extensions: stored.extensions,
    }
}
