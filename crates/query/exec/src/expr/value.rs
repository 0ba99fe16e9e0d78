//! Values in serialised form, and the one form of each in which it is stored.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use bytes::Bytes;
use types::elements::{CollectionBuilder, Elements};
use types::{CqlType, elements};

use crate::error::{Result, invalid};

/// The value of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// The client did not set the marker.
    Unset,
    /// Null.
    Null,
    /// A serialised value.
    Set(Bytes),
}

impl Value {
    /// The bytes of a set value; null and unset are none.
    pub fn into_bytes(self) -> Option<Bytes> {
        match self {
            Value::Set(bytes) => Some(bytes),
            Value::Null | Value::Unset => None,
        }
    }
}

impl From<Option<Bytes>> for Value {
    fn from(value: Option<Bytes>) -> Self {
        value.map_or(Value::Null, Value::Set)
    }
}

/// A bound value in the form in which it is stored: elements of sets and keys of maps in order, none twice.
///
/// # Errors
/// [`ExecError::Invalid`](crate::ExecError::Invalid) when the bytes are no value of the type, or an element is null.
pub fn canonical(ty: &CqlType, value: Bytes) -> Result<Bytes> {
    let value = canonical_inside(ty, value)?;
    match ty {
        CqlType::Set { element, .. } => {
            let items = collect_elements(Elements::of_set(&value)?)?;
            if items.is_sorted_by(|a, b| element.compare(a, b).is_lt()) {
                return Ok(value);
            }
            Ok(elements::build_set(element, items.into_iter().map(<[u8]>::to_vec).collect()).into())
        }
        CqlType::Map { key, .. } => {
            let items = collect_elements(Elements::of_map(&value)?)?;
            let entries: Vec<(&[u8], &[u8])> =
                items.as_chunks::<2>().0.iter().map(|[k, v]| (*k, *v)).collect();
            if entries.is_sorted_by(|a, b| key.compare(a.0, b.0).is_lt()) {
                return Ok(value);
            }
            let entries = entries.into_iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
            Ok(elements::build_map(key, entries).into())
        }
        CqlType::List { .. } => {
            collect_elements(Elements::of_list(&value)?)?;
            Ok(value)
        }
        _ => Ok(value),
    }
}

/// The values of an IN, which may hold nulls, each in the form in which it is stored.
///
/// # Errors
/// As [`canonical`].
pub fn canonical_choice(ty: &CqlType, value: Bytes) -> Result<Bytes> {
    let CqlType::List { element, .. } = ty else { return Ok(value) };
    if !is_ordered_inside(element) {
        return Ok(value);
    }
    let mut builder = CollectionBuilder::new();
    for item in Elements::of_list(&value)? {
        match item? {
            Some(item) => builder.push(&canonical(element, value.slice_ref(item))?),
            None => builder.push_null(),
        }
    }
    Ok(builder.finish().into())
}

/// The elements of a collection in the form in which they are stored, left in the order in which they came.
#[expect(clippy::indexing_slicing, reason = "the index is 0 or 1")]
fn canonical_inside(ty: &CqlType, value: Bytes) -> Result<Bytes> {
    let (items, types): (Vec<&[u8]>, [&CqlType; 2]) = match ty {
        CqlType::List { element, .. } if is_ordered_inside(element) => {
            (collect_elements(Elements::of_list(&value)?)?, [element, element])
        }
        CqlType::Set { element, .. } if is_ordered_inside(element) => {
            (collect_elements(Elements::of_set(&value)?)?, [element, element])
        }
        CqlType::Map { key, value: item, .. } if is_ordered_inside(key) || is_ordered_inside(item) => {
            (collect_elements(Elements::of_map(&value)?)?, [key, item])
        }
        _ => return Ok(value),
    };
    let mut builder = CollectionBuilder::new();
    for (index, item) in items.into_iter().enumerate() {
        builder.push(&canonical(types[index % 2], value.slice_ref(item))?);
    }
    Ok(if matches!(ty, CqlType::Map { .. }) { builder.finish_map() } else { builder.finish() }.into())
}

/// Whether values of the type hold a set or a map that a client may have sent in another order.
fn is_ordered_inside(ty: &CqlType) -> bool {
    match ty {
        CqlType::Set { .. } | CqlType::Map { .. } => true,
        CqlType::List { element, .. } => is_ordered_inside(element),
        _ => false,
    }
}

/// All elements, refusing nulls.
///
/// # Errors
/// [`ExecError::Invalid`](crate::ExecError::Invalid) when an element is null or cut off.
pub fn collect_elements(source: Elements<'_>) -> Result<Vec<&[u8]>> {
    source
        .map(|element| match element? {
            Some(element) => Ok(element),
            None => invalid!("null is not supported inside collections"),
        })
        .collect()
}
