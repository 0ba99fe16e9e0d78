//! Functions on collections.

use super::{Aggregate, Answer, Body, Function, FunctionError};
use crate::CqlType;
use crate::elements::{CollectionBuilder, Elements};

impl Function {
    pub(super) fn collection(&self, values: &[&[u8]]) -> Answer {
        let (Some(ty), Some(value)) = (self.arguments.first(), values.first()) else {
            return Err(self.wrong_number(values.len()));
        };
        let elements = match ty {
            CqlType::Map { .. } => Elements::of_map(value),
            CqlType::Set { .. } => Elements::of_set(value),
            _ => Elements::of_list(value),
        };
        let elements = elements.map_err(|_| self.malformed(0))?;
        match self.body {
            Body::CollectionCount => {
                let per_entry = if matches!(ty, CqlType::Map { .. }) { 2 } else { 1 };
                Ok(Some(((elements.len() / per_entry) as i32).to_be_bytes().to_vec()))
            }
            Body::CollectionAggregate(kind) => {
                let element_type = element_type(ty).cloned();
                let mut aggregate = Aggregate::new(kind, element_type);
                for element in elements {
                    aggregate.add(element.map_err(|_| self.malformed(0))?)?;
                }
                aggregate.result()
            }
            _ => {
                let keys = self.body == Body::MapKeys;
                let mut builder = CollectionBuilder::new();
                let mut is_key = true;
                for element in elements {
                    let element = element.map_err(|_| self.malformed(0))?;
                    if is_key == keys {
                        builder.push(element.unwrap_or_default());
                    }
                    is_key = !is_key;
                }
                Ok(Some(builder.finish()))
            }
        }
    }
}

/// The type of the elements of a list or set.
pub(super) fn element_type(ty: &CqlType) -> Option<&CqlType> {
    match ty {
        CqlType::List { element, .. } | CqlType::Set { element, .. } => Some(element),
        _ => None,
    }
}

/// The check of an argument that must be a collection of a kind: the expected kind, in Cassandra's words.
pub(super) fn require(
    name: &str,
    wanted: &str,
    argument: &str,
    ty: &CqlType,
    fits: bool,
) -> Result<(), FunctionError> {
    if fits {
        return Ok(());
    }
    Err(FunctionError::Invalid(format!(
        "Function system.{name} requires {wanted} argument, but found argument {argument} of type {}",
        ty.cql_name()
    )))
}
