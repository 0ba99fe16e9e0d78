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

/// The description of a result's columns.
pub fn result_metadata(result: &ResultColumns) -> Metadata {
    let (keyspace, table): (Arc<str>, Arc<str>) =
        (result.keyspace.as_str().into(), result.table.as_str().into());
    let spec = |(name, ty): &(String, CqlType)| ColumnSpec {
        keyspace: keyspace.clone(),
        table: table.clone(),
        name: name.as_str().into(),
        ty: type_option(ty),
    };
    Metadata::new(result.columns.iter().map(spec).collect())
}

/// The description of a statement's bind markers, each with the keyspace and name of its table.
pub fn bind_metadata<'a>(
    markers: &'a [MarkerSpec],
    table_of: impl Fn(&'a MarkerSpec) -> (&'a str, &'a str),
) -> Metadata {
    let mut last: Option<(Arc<str>, Arc<str>)> = None;
    let mut specs = Vec::with_capacity(markers.len());
    for marker in markers {
        let (keyspace, table) = table_of(marker);
        // Neighbours mostly have the same table.
        let (keyspace, table) = match &last {
            Some((k, t)) if **k == *keyspace && **t == *table => (k.clone(), t.clone()),
            _ => (keyspace.into(), table.into()),
        };
        last = Some((keyspace.clone(), table.clone()));
        specs.push(ColumnSpec {
            keyspace,
            table,
            name: marker.name.as_str().into(),
            ty: type_option(&marker.ty),
        });
    }
    Metadata::new(specs)
}
