//! The items of vector indexes: which items an index has, which attributes it shows, and the values that its attributes may not have.

use items::{Item, Value, vector};

use crate::error::{Result, invalid};
use crate::secondary::{self, fits};
use crate::table::{ApiTable, HASH_BYTES_MAX};
use crate::vector_definition::VectorIndex;

impl VectorIndex {
    /// The vector of an item; none where the index does not have the item.
    pub(crate) fn vector_of(&self, item: &Item) -> Option<Vec<f32>> {
        let hash = self.hash.as_ref();
        let has_hash =
            hash.is_none_or(|key| item.get(&key.name).is_some_and(|value| fits(key, value, HASH_BYTES_MAX)));
        vector::of_value(item.get(&self.attribute).filter(|_| has_hash)?, self.dimensions)
    }

    /// Whether it has an attribute to show. The vector is, where a projection names it.
    pub(crate) fn shows(&self, table: &ApiTable, attribute: &str) -> bool {
        attribute == self.attribute
            || self.keys().any(|key| key.name == attribute)
            || self.projected.has(attribute)
            || table.keys().any(|key| key.name == attribute)
    }

    /// Refuses a value of an item that is to be written: a vector of another form, and values of other types than the definitions'.
    fn check(&self, item: &Item, old: Option<&Item>) -> Result<()> {
        let is_new = |name: &str| old.is_none_or(|old| old.get(name) != item.get(name));
        if let Some(value) = item.get(&self.attribute).filter(|_| is_new(&self.attribute)) {
            self.check_vector(value)?;
        }
        for key in self.keys() {
            let Some(value) = item.get(&key.name).filter(|_| is_new(&key.name)) else { continue };
            let is_hash = self.hash.as_ref() == Some(key);
            if is_hash || value.type_name() != key.kind {
                secondary::check_key((&self.name, is_hash), key, value, old.is_some())?;
            }
        }
        Ok(())
    }

    fn check_vector(&self, value: &Value) -> Result<()> {
        const WRONG: &str = "One or more parameter values were invalid.";
        let (attribute, name) = (&self.attribute, &self.name);
        let Value::L(components) = value else {
            return invalid!(
                "{WRONG} Invalid type for parameter {attribute}, Expected: 32-bit floating point number list IndexName: \
                 {name}"
            );
        };
        if components.len() != self.dimensions {
            return invalid!(
                "{WRONG} Invalid size for parameter {attribute}, Expected: {}, Actual: {} IndexName: {name}",
                self.dimensions,
                components.len()
            );
        }
        for (at, component) in components.iter().enumerate() {
            if !matches!(component, Value::N(_)) {
                return invalid!(
                    "{WRONG} Invalid type for parameter {attribute}[{at}], Expected: 32-bit floating point number, Actual: \
                     {}. IndexName: {name}",
                    component.type_name()
                );
            }
            if vector::component(component).is_none() {
                return invalid!(
                    "{WRONG} Invalid value for parameter {attribute}[{at}], Expected: 32-bit floating point number. \
                     IndexName: {name}"
                );
            }
        }
        Ok(())
    }
}

/// Refuses values that keys of secondary indexes and attributes of vector indexes cannot have: those of `new` that are not in `old`, where
/// it is an update.
pub(crate) fn check(table: &ApiTable, old: Option<&Item>, new: &Item) -> Result<()> {
    secondary::check(table, old, new)?;
    table.vectors().iter().try_for_each(|index| index.check(new, old))
}
