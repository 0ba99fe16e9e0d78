//! Columns of results and bind markers as the native protocol describes them (§4.2.5.2).

use std::sync::Arc;

use types::CqlType;
use wire::{ColumnSpec, Metadata, TypeOption};

use crate::expr::bind::MarkerSpec;
use crate::sink::ResultColumns;

/// The type of a column as drivers see it.
fn type_option(ty: &CqlType) -> TypeOption {
    match ty {
        CqlType::Ascii => TypeOption::Ascii,
        CqlType::Bigint => TypeOption::Bigint,
        CqlType::Blob => TypeOption::Blob,
        CqlType::Boolean => TypeOption::Boolean,
        CqlType::Counter => TypeOption::Counter,
        CqlType::Date => TypeOption::Date,
        CqlType::Decimal => TypeOption::Decimal,
        CqlType::Double => TypeOption::Double,
        CqlType::Duration => TypeOption::Duration,
        CqlType::Float => TypeOption::Float,
        CqlType::Inet => TypeOption::Inet,
        CqlType::Int => TypeOption::Int,
        CqlType::Smallint => TypeOption::Smallint,
        CqlType::Text => TypeOption::Varchar,
        CqlType::Time => TypeOption::Time,
        CqlType::Timestamp => TypeOption::Timestamp,
        CqlType::Timeuuid => TypeOption::Timeuuid,
        CqlType::Tinyint => TypeOption::Tinyint,
        CqlType::Uuid => TypeOption::Uuid,
        CqlType::Varint => TypeOption::Varint,
        CqlType::List { element, .. } => TypeOption::list(type_option(element)),
        CqlType::Set { element, .. } => TypeOption::set(type_option(element)),
        CqlType::Map { key, value, .. } => TypeOption::map(type_option(key), type_option(value)),
        CqlType::Tuple(fields) => TypeOption::tuple(fields.iter().map(type_option)),
        CqlType::Udt { ty, .. } => TypeOption::udt(
            ty.keyspace.clone(),
            ty.name.clone(),
            ty.fields.iter().map(|(name, field)| (name.clone(), type_option(field))),
        ),
        CqlType::Vector { .. } | CqlType::Custom(_) => TypeOption::custom(&ty.class_name(false)),
    }
}

fn metadata<'a>(
    keyspace: &str,
    table: &str,
    columns: impl IntoIterator<Item = (&'a str, &'a CqlType)>,
) -> Metadata {
    let (keyspace, table): (Arc<str>, Arc<str>) = (keyspace.into(), table.into());
    let spec = |(name, ty): (&str, &CqlType)| ColumnSpec {
        keyspace: keyspace.clone(),
        table: table.clone(),
        name: name.into(),
        ty: type_option(ty),
    };
    Metadata::new(columns.into_iter().map(spec).collect())
}

/// The description of a result's columns.
pub fn result_metadata(result: &ResultColumns) -> Metadata {
    let columns = result.columns.iter().map(|(name, ty)| (name.as_str(), ty));
    metadata(&result.keyspace, &result.table, columns)
}

/// The description of a statement's bind markers.
pub fn bind_metadata(keyspace: &str, table: &str, markers: &[MarkerSpec]) -> Metadata {
    metadata(keyspace, table, markers.iter().map(|marker| (marker.name.as_str(), &marker.ty)))
}
