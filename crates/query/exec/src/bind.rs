//! Bound values: what a client sent for a statement's markers, checked against their types before anything uses them.

use types::CqlType;
use wire::Values;

use crate::error::{Result, invalid};
use crate::expr::{Value, canonical};

/// One bind marker as it was resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct MarkerSpec {
    /// Its name: given by `:name`, or of what it stands for.
    pub name: String,
    /// Type of its value.
    pub ty: CqlType,
}

/// Checked values in the order of a statement's markers.
#[derive(Clone, Debug, Default)]
pub struct Binds(smallvec::SmallVec<[Value; 8]>);

impl Binds {
    /// No values.
    pub fn none() -> Self {
        Self::default()
    }

    /// Checks the values of a request against a statement's markers.
    pub fn check(specs: &[MarkerSpec], values: &Values) -> Result<Self> {
        if values.is_empty() && !specs.is_empty() {
            return invalid!("Invalid amount of bind variables");
        }
        if !values.is_named() && values.len() != specs.len() {
            return invalid!(
                "there were {} markers(?) in CQL but {} bound variables",
                specs.len(),
                values.len()
            );
        }
        let mut out = smallvec::SmallVec::with_capacity(specs.len());
        for (at, spec) in specs.iter().enumerate() {
            let index = if values.is_named() { Self::named(values, &spec.name)? } else { at };
            out.push(Self::checked(spec, values, index)?);
        }
        Ok(Self(out))
    }

    fn named(values: &Values, name: &str) -> Result<usize> {
        match (0..values.len()).find(|index| values.name(*index) == Some(name)) {
            Some(index) => Ok(index),
            None => invalid!("Bind variable {name} is missing: no value of this name was sent"),
        }
    }

    fn checked(spec: &MarkerSpec, values: &Values, index: usize) -> Result<Value> {
        match values.get(index) {
            None | Some(wire::Value::Null) => Ok(Value::Null),
            Some(wire::Value::Unset) => Ok(Value::Unset),
            Some(wire::Value::Set(bytes)) => {
                spec.ty.validate(bytes)?;
                let bytes = values.shared(index).unwrap_or_default();
                match &spec.ty {
                    ty @ (CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. }) => {
                        // Lists bound to `IN ?` may hold nulls, which their users name.
                        if matches!(ty, CqlType::List { .. }) && spec.name.starts_with("in(") {
                            return Ok(Value::Set(bytes));
                        }
                        canonical(ty, bytes).map(Value::Set)
                    }
                    _ => Ok(Value::Set(bytes)),
                }
            }
        }
    }

    /// The value of a marker.
    #[inline]
    pub fn value(&self, index: u32) -> Value {
        self.0.get(index as usize).cloned().unwrap_or(Value::Unset)
    }

    /// The values of some consecutive markers, renumbered from 0: a statement of a batch.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Self {
        Self(self.0.get(range).unwrap_or_default().iter().cloned().collect())
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Value> for Binds {
    fn from_iter<T: IntoIterator<Item = Value>>(iter: T) -> Self {
        Self(iter.into_iter().collect())
    }
}
