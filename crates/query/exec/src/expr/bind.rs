//! Bound values: a client's values for a statement's markers, checked against their types before anything uses them.

use bytes::Bytes;
use types::CqlType;

use super::value::{Value, canonical};
use crate::error::Result;

/// One bind marker as it was resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct MarkerSpec {
    /// Its name: given by `:name`, or of what it stands for.
    pub name: String,
    /// Type of its value.
    pub ty: CqlType,
}

impl MarkerSpec {
    /// A valid collection in the form in which it is stored.
    fn canonical(&self, value: Bytes) -> Result<Bytes> {
        // Lists bound to `IN ?` may hold nulls, which their users name.
        if matches!(self.ty, CqlType::List { .. }) && self.name.starts_with("in(") {
            return Ok(value);
        }
        canonical(&self.ty, value)
    }
}

/// Checked values in the order of a statement's markers.
#[derive(Clone, Debug, Default)]
pub struct Binds {
    values: smallvec::SmallVec<[Value; 8]>,
    /// Results of the user-defined functions that the statement calls once.
    called: Vec<Option<Bytes>>,
}

impl Binds {
    /// No values.
    pub fn none() -> Self {
        Self::default()
    }

    /// No values yet, with room for so many.
    #[inline]
    pub fn with_capacity(count: usize) -> Self {
        Self { values: smallvec::SmallVec::with_capacity(count), called: Vec::new() }
    }

    /// Appends a value that a client sent for the next marker, in the form in which it is stored.
    ///
    /// # Errors
    /// When the bytes are not a value of the marker's type.
    #[inline]
    pub fn push_checked(&mut self, spec: &MarkerSpec, mut value: Bytes) -> Result<()> {
        spec.ty.validate(&value)?;
        if matches!(spec.ty, CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. }) {
            value = spec.canonical(value)?;
        }
        self.values.push(Value::Set(value));
        Ok(())
    }

    /// Appends the value of the next marker.
    #[inline]
    pub fn push(&mut self, value: Value) {
        self.values.push(value);
    }

    /// Appends the result of the next call of the statement.
    pub fn push_called(&mut self, value: Option<Bytes>) {
        self.called.push(value);
    }

    /// The results of the calls of the statement.
    pub fn called(&self) -> &[Option<Bytes>] {
        &self.called
    }

    /// These values with the results of the calls of others.
    pub fn with_called(mut self, of: &Binds) -> Self {
        self.called.clone_from(&of.called);
        self
    }

    /// The value of a marker.
    #[inline]
    pub fn value(&self, index: u32) -> Value {
        self.values.get(index as usize).cloned().unwrap_or(Value::Unset)
    }
}

impl FromIterator<Value> for Binds {
    fn from_iter<T: IntoIterator<Item = Value>>(iter: T) -> Self {
        Self { values: iter.into_iter().collect(), called: Vec::new() }
    }
}
