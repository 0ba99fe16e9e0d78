//! The JSON forms of the objects of keyspaces, tables and the schema: functions, aggregates, indexes, triggers, derived tables,
//! roles and service levels, constraints and descriptions. An absent field has a default, and a field with its default is left out, so
//! that states of earlier versions are read and written as they wrote them.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schema::{
    CidrGroup, ColumnMask, Comparison, Constraint, Derivation, Description, Index, IndexTarget, IndexedPart,
    MaskArgument, Role, ServiceLevel, Signature, Trigger, TypeDescription, UserAggregate, UserFunction,
    ViewCondition, ViewOperator, WorkloadType,
};
use serde::{Deserialize, Serialize};
use types::CqlType;

use crate::error::SchemaCodecError;
use crate::stored_value::{load_type, parse_id};

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredFunction {
    name: String,
    /// Name and class of each argument.
    arguments: Vec<(String, String)>,
    returns: String,
    called_on_null_input: bool,
    language: String,
    body: String,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredAggregate {
    name: String,
    arguments: Vec<String>,
    state_function: String,
    state_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reduce_function: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    final_function: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    initial_condition: Option<String>,
    returns: String,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredSignature {
    name: String,
    arguments: Vec<String>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredIndex {
    name: String,
    /// Column and part of each target.
    targets: Vec<(String, StoredPart)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    options: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    local: bool,
}

#[derive(Serialize, Deserialize)]
enum StoredPart {
    Whole,
    Values,
    Keys,
    Entries,
    Full,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredTrigger {
    name: String,
    class: String,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredMask {
    keyspace: String,
    function: String,
    /// Class and constant of each argument after the column; no constant for null.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    arguments: Vec<(String, Option<String>)>,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum StoredConstraint {
    NotNull,
    Json,
    /// An operator and its operand.
    Value(String, String),
    Length(String, i32),
    OctetLength(String, i32),
    Regexp(String, String),
}

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredDescription {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    comment: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    security_label: Option<String>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredTypeDescription {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    whole: Option<StoredDescription>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    fields: BTreeMap<String, StoredDescription>,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum StoredDerivation {
    View {
        base: String,
        all_columns: bool,
        where_clause: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        conditions: Vec<StoredCondition>,
    },
    Index {
        base: String,
        index: String,
    },
    Cdc {
        base: String,
    },
}

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredCondition {
    column: String,
    operator: StoredOperator,
    values: Vec<Vec<u8>>,
}

#[derive(Serialize, Deserialize)]
enum StoredOperator {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredRole {
    name: String,
    can_login: bool,
    is_superuser: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    salted_hash: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    member_of: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    permissions: BTreeMap<String, BTreeSet<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    datacenters: Option<BTreeSet<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    service_level: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    identities: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    cidr_groups: BTreeSet<String>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredCidrGroup {
    name: String,
    cidrs: Vec<String>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredServiceLevel {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout: Option<StoredDuration>,
    shares: u32,
    workload: StoredWorkload,
}

#[derive(Serialize, Deserialize)]
struct StoredDuration {
    seconds: u64,
    nanos: u32,
}

#[derive(Serialize, Deserialize)]
enum StoredWorkload {
    Unspecified,
    Batch,
    Interactive,
}

pub(crate) fn store_function(function: &UserFunction) -> StoredFunction {
    let argument = |(name, ty): &(String, CqlType)| (name.clone(), ty.class_name(false));
    StoredFunction {
        name: function.name.clone(),
        arguments: function.arguments.iter().map(argument).collect(),
        returns: function.returns.class_name(false),
        called_on_null_input: function.called_on_null_input,
        language: function.language.clone(),
        body: function.body.clone(),
    }
}

pub(crate) fn load_function(
    keyspace: &str,
    stored: StoredFunction,
) -> Result<UserFunction, SchemaCodecError> {
    let what = || format!("function {keyspace}.{}", stored.name);
    let argument = |(name, class): &(String, String)| Ok((name.clone(), load_type(class, what)?));
    let arguments = stored.arguments.iter().map(argument).collect::<Result<_, SchemaCodecError>>()?;
    let returns = load_type(&stored.returns, what)?;
    Ok(UserFunction {
        keyspace: keyspace.to_owned(),
        name: stored.name,
        arguments,
        returns,
        called_on_null_input: stored.called_on_null_input,
        language: stored.language,
        body: stored.body,
    })
}

pub(crate) fn store_aggregate(aggregate: &UserAggregate) -> StoredAggregate {
    StoredAggregate {
        name: aggregate.name.clone(),
        arguments: aggregate.arguments.iter().map(|ty| ty.class_name(false)).collect(),
        state_function: aggregate.state_function.clone(),
        state_type: aggregate.state_type.class_name(false),
        reduce_function: aggregate.reduce_function.clone(),
        final_function: aggregate.final_function.clone(),
        initial_condition: aggregate.initial_condition.clone(),
        returns: aggregate.returns.class_name(false),
    }
}

pub(crate) fn load_aggregate(
    keyspace: &str,
    stored: StoredAggregate,
) -> Result<UserAggregate, SchemaCodecError> {
    let what = || format!("aggregate {keyspace}.{}", stored.name);
    let arguments = stored.arguments.iter().map(|class| load_type(class, what)).collect::<Result<_, _>>()?;
    let (state_type, returns) = (load_type(&stored.state_type, what)?, load_type(&stored.returns, what)?);
    Ok(UserAggregate {
        keyspace: keyspace.to_owned(),
        name: stored.name,
        arguments,
        state_function: stored.state_function,
        state_type,
        reduce_function: stored.reduce_function,
        final_function: stored.final_function,
        initial_condition: stored.initial_condition,
        returns,
    })
}

pub(crate) fn store_signature(signature: &Signature) -> StoredSignature {
    StoredSignature { name: signature.name.clone(), arguments: signature.arguments.clone() }
}

pub(crate) fn load_signature(stored: StoredSignature) -> Signature {
    Signature { name: stored.name, arguments: stored.arguments }
}

pub(crate) fn store_index(index: &Index) -> StoredIndex {
    let part = |part| match part {
        IndexedPart::Whole => StoredPart::Whole,
        IndexedPart::Values => StoredPart::Values,
        IndexedPart::Keys => StoredPart::Keys,
        IndexedPart::Entries => StoredPart::Entries,
        IndexedPart::Full => StoredPart::Full,
    };
    StoredIndex {
        name: index.name.clone(),
        targets: index.targets.iter().map(|target| (target.column.clone(), part(target.part))).collect(),
        class: index.class.clone(),
        options: index.options.clone(),
        local: index.local,
    }
}

pub(crate) fn load_index(stored: StoredIndex) -> Index {
    let part = |part| match part {
        StoredPart::Whole => IndexedPart::Whole,
        StoredPart::Values => IndexedPart::Values,
        StoredPart::Keys => IndexedPart::Keys,
        StoredPart::Entries => IndexedPart::Entries,
        StoredPart::Full => IndexedPart::Full,
    };
    let target = |(column, stored)| IndexTarget { column, part: part(stored) };
    Index {
        name: stored.name,
        targets: stored.targets.into_iter().map(target).collect(),
        class: stored.class,
        options: stored.options,
        local: stored.local,
    }
}

pub(crate) fn store_trigger(trigger: &Trigger) -> StoredTrigger {
    StoredTrigger { name: trigger.name.clone(), class: trigger.class.clone() }
}

pub(crate) fn load_trigger(stored: StoredTrigger) -> Trigger {
    Trigger { name: stored.name, class: stored.class }
}

pub(crate) fn store_mask(mask: &ColumnMask) -> StoredMask {
    let argument = |argument: &MaskArgument| (argument.ty.class_name(false), argument.literal.clone());
    StoredMask {
        keyspace: mask.keyspace.clone(),
        function: mask.name.clone(),
        arguments: mask.arguments.iter().map(argument).collect(),
    }
}

pub(crate) fn load_mask(stored: StoredMask) -> Result<ColumnMask, SchemaCodecError> {
    let argument = |(class, literal): (String, Option<String>)| {
        let ty = load_type(&class, || format!("an argument of the mask {}", stored.function))?;
        Ok(MaskArgument { ty, literal })
    };
    let arguments = stored.arguments.into_iter().map(argument).collect::<Result<_, SchemaCodecError>>()?;
    Ok(ColumnMask { keyspace: stored.keyspace, name: stored.function, arguments })
}

pub(crate) fn store_constraint(constraint: &Constraint) -> StoredConstraint {
    let symbol = |comparison: &Comparison| comparison.symbol().to_owned();
    match constraint {
        Constraint::NotNull => StoredConstraint::NotNull,
        Constraint::Json => StoredConstraint::Json,
        Constraint::Value(comparison, bound) => StoredConstraint::Value(symbol(comparison), bound.clone()),
        Constraint::Length(comparison, bound) => StoredConstraint::Length(symbol(comparison), *bound),
        Constraint::OctetLength(comparison, bound) => {
            StoredConstraint::OctetLength(symbol(comparison), *bound)
        }
        Constraint::Regexp(comparison, pattern) => {
            StoredConstraint::Regexp(symbol(comparison), pattern.clone())
        }
    }
}

pub(crate) fn load_constraint(stored: StoredConstraint) -> Result<Constraint, SchemaCodecError> {
    let comparison = |symbol: String| {
        Comparison::of_symbol(&symbol)
            .ok_or(SchemaCodecError::Value { what: "operator of a constraint", found: symbol })
    };
    Ok(match stored {
        StoredConstraint::NotNull => Constraint::NotNull,
        StoredConstraint::Json => Constraint::Json,
        StoredConstraint::Value(symbol, bound) => Constraint::Value(comparison(symbol)?, bound),
        StoredConstraint::Length(symbol, bound) => Constraint::Length(comparison(symbol)?, bound),
        StoredConstraint::OctetLength(symbol, bound) => Constraint::OctetLength(comparison(symbol)?, bound),
        StoredConstraint::Regexp(symbol, pattern) => Constraint::Regexp(comparison(symbol)?, pattern),
    })
}

/// Nothing for a description that says nothing.
pub(crate) fn store_description(description: &Description) -> Option<StoredDescription> {
    let Description { comment, security_label } = description.clone();
    (!description.is_empty()).then_some(StoredDescription { comment, security_label })
}

pub(crate) fn load_description(stored: Option<StoredDescription>) -> Description {
    let said = |stored: StoredDescription| Description {
        comment: stored.comment,
        security_label: stored.security_label,
    };
    stored.map(said).unwrap_or_default()
}

pub(crate) fn store_type_description(
    (name, description): (&String, &TypeDescription),
) -> StoredTypeDescription {
    let fields = description.fields.iter();
    let fields = fields.filter_map(|(name, said)| Some((name.clone(), store_description(said)?)));
    StoredTypeDescription {
        name: name.clone(),
        whole: store_description(&description.whole),
        fields: fields.collect(),
    }
}

pub(crate) fn load_type_description(stored: StoredTypeDescription) -> (String, TypeDescription) {
    let fields = stored.fields.into_iter().map(|(name, said)| (name, load_description(Some(said))));
    let description = TypeDescription { whole: load_description(stored.whole), fields: fields.collect() };
    (stored.name, description)
}

pub(crate) fn store_derivation(derivation: &Derivation) -> StoredDerivation {
    let base = derivation.base().to_string();
    match derivation {
        Derivation::View { all_columns, where_clause, conditions, .. } => StoredDerivation::View {
            base,
            all_columns: *all_columns,
            where_clause: where_clause.clone(),
            conditions: conditions.iter().map(store_condition).collect(),
        },
        Derivation::Index { index, .. } => StoredDerivation::Index { base, index: index.clone() },
        Derivation::Cdc { .. } => StoredDerivation::Cdc { base },
    }
}

pub(crate) fn load_derivation(stored: StoredDerivation) -> Result<Derivation, SchemaCodecError> {
    let id = |text: String| {
        parse_id(&text).ok_or(SchemaCodecError::Value { what: "id of a base table", found: text })
    };
    Ok(match stored {
        StoredDerivation::View { base, all_columns, where_clause, conditions } => Derivation::View {
            base: id(base)?,
            all_columns,
            where_clause,
            conditions: conditions.into_iter().map(load_condition).collect(),
        },
        StoredDerivation::Index { base, index } => Derivation::Index { base: id(base)?, index },
        StoredDerivation::Cdc { base } => Derivation::Cdc { base: id(base)? },
    })
}

fn store_condition(condition: &ViewCondition) -> StoredCondition {
    let operator = match condition.operator {
        ViewOperator::Equal => StoredOperator::Equal,
        ViewOperator::Less => StoredOperator::Less,
        ViewOperator::LessOrEqual => StoredOperator::LessOrEqual,
        ViewOperator::Greater => StoredOperator::Greater,
        ViewOperator::GreaterOrEqual => StoredOperator::GreaterOrEqual,
        ViewOperator::In => StoredOperator::In,
    };
    StoredCondition { column: condition.column.clone(), operator, values: condition.values.clone() }
}

fn load_condition(stored: StoredCondition) -> ViewCondition {
    let operator = match stored.operator {
        StoredOperator::Equal => ViewOperator::Equal,
        StoredOperator::Less => ViewOperator::Less,
        StoredOperator::LessOrEqual => ViewOperator::LessOrEqual,
        StoredOperator::Greater => ViewOperator::Greater,
        StoredOperator::GreaterOrEqual => ViewOperator::GreaterOrEqual,
        StoredOperator::In => ViewOperator::In,
    };
    ViewCondition { column: stored.column, operator, values: stored.values }
}

pub(crate) fn store_role(role: &Role) -> StoredRole {
    let role = role.clone();
    StoredRole {
        name: role.name,
        can_login: role.can_login,
        is_superuser: role.is_superuser,
        salted_hash: role.salted_hash,
        member_of: role.member_of,
        permissions: role.permissions,
        datacenters: role.datacenters,
        service_level: role.service_level,
        identities: role.identities,
        cidr_groups: role.cidr_groups,
    }
}

pub(crate) fn load_role(stored: StoredRole) -> Role {
    Role {
        name: stored.name,
        can_login: stored.can_login,
        is_superuser: stored.is_superuser,
        salted_hash: stored.salted_hash,
        member_of: stored.member_of,
        permissions: stored.permissions,
        datacenters: stored.datacenters,
        service_level: stored.service_level,
        identities: stored.identities,
        cidr_groups: stored.cidr_groups,
    }
}

pub(crate) fn store_cidr_group(group: &CidrGroup) -> StoredCidrGroup {
    let cidrs = group.cidrs.iter().map(ToString::to_string).collect();
    StoredCidrGroup { name: group.name.clone(), cidrs }
}

pub(crate) fn load_cidr_group(stored: StoredCidrGroup) -> Result<CidrGroup, SchemaCodecError> {
    let invalid =
        |text: &str| SchemaCodecError::Value { what: "a range of addresses", found: text.to_owned() };
    let cidrs = stored.cidrs.iter().map(|text| text.parse().map_err(|_| invalid(text)));
    let cidrs = cidrs.collect::<Result<_, SchemaCodecError>>()?;
    Ok(CidrGroup { name: stored.name, cidrs })
}

pub(crate) fn store_service_level(level: &ServiceLevel) -> StoredServiceLevel {
    let timeout =
        |timeout: Duration| StoredDuration { seconds: timeout.as_secs(), nanos: timeout.subsec_nanos() };
    StoredServiceLevel {
        name: level.name.clone(),
        timeout: level.timeout.map(timeout),
        shares: level.shares,
        workload: match level.workload {
            WorkloadType::Unspecified => StoredWorkload::Unspecified,
            WorkloadType::Batch => StoredWorkload::Batch,
            WorkloadType::Interactive => StoredWorkload::Interactive,
        },
    }
}

pub(crate) fn load_service_level(stored: StoredServiceLevel) -> Result<ServiceLevel, SchemaCodecError> {
    let timeout = match stored.timeout {
        // `Duration::new` panics when the nanoseconds carry over the largest second.
        Some(StoredDuration { nanos, .. }) if nanos >= 1_000_000_000 => {
            return Err(SchemaCodecError::Value {
                what: "nanoseconds of a timeout",
                found: nanos.to_string(),
            });
        }
        Some(StoredDuration { seconds, nanos }) => Some(Duration::new(seconds, nanos)),
        None => None,
    };
    Ok(ServiceLevel {
        name: stored.name,
        timeout,
        shares: stored.shares,
        workload: match stored.workload {
            StoredWorkload::Unspecified => WorkloadType::Unspecified,
            StoredWorkload::Batch => WorkloadType::Batch,
            StoredWorkload::Interactive => WorkloadType::Interactive,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aggregate_without_a_reduce_function_is_stored_as_before_there_were_any() {
        let earlier = r#"{"name":"a","arguments":["org.apache.cassandra.db.marshal.Int32Type"],"state_function":"f","state_type":"org.apache.cassandra.db.marshal.Int32Type","final_function":"g","returns":"org.apache.cassandra.db.marshal.Int32Type"}"#;
        let mut aggregate = load_aggregate("ks", serde_json::from_str(earlier).unwrap()).unwrap();
        assert_eq!(aggregate.reduce_function, None);
        assert_eq!(serde_json::to_string(&store_aggregate(&aggregate)).unwrap(), earlier);
        aggregate.reduce_function = Some("r".to_owned());
        let text = serde_json::to_string(&store_aggregate(&aggregate)).unwrap();
        assert!(text.contains(r#""reduce_function":"r""#), "{text}");
        assert_eq!(load_aggregate("ks", serde_json::from_str(&text).unwrap()).unwrap(), aggregate);
    }
}
