//! Bound values: a client's values for a statement's markers, checked against their types before anything uses them.

use bytes::Bytes;
use types::CqlType;

use super::value::{Value, canonical, canonical_choice};
use crate::error::Result;

/// One bind marker as it was resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct MarkerSpec {
    /// Its name: given by `:name`, or that of the column that it stands for.
    pub name: String,
    /// Type of its value.
    pub ty: CqlType,
    /// It stands for the values of IN, which may hold nulls: their users refuse them.
    pub is_choice: bool,
    /// The number of its statement in a BATCH; none outside of its statements.
    pub statement: Option<usize>,
}

impl MarkerSpec {
    /// A marker for one value of a statement that is not in a BATCH.
    pub fn of(name: String, ty: CqlType) -> Self {
        Self { name, ty, is_choice: false, statement: None }
    }

    /// A valid collection in the form in which it is stored.
    fn canonical(&self, value: Bytes) -> Result<Bytes> {
        match self.is_choice {
            true => canonical_choice(&self.ty, value),
            false => canonical(&self.ty, value),
        }
    }
}

/// A bound value where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound<'a> {
    /// The client did not set the marker.
    Unset,
    /// Null.
    Null,
    /// A serialised value.
    Set(&'a [u8]),
}

/// Where the value of a marker is. Small, and nothing to be dropped: a request has several.
#[derive(Clone, Copy, Debug)]
enum Place {
    Unset,
    Null,
    /// In the message's body, as it was sent.
    Body {
        start: u32,
        end: u32,
    },
    /// Among the values that are not as they were sent.
    Own(u32),
}

/// Checked values in the order of a statement's markers.
#[derive(Clone, Debug, Default)]
pub struct Binds {
    /// The message in which values lie.
    body: Bytes,
    places: smallvec::SmallVec<[Place; 8]>,
    /// Values that are not as they were sent.
    own: Vec<Bytes>,
    /// Results of the user-defined functions that the statement calls once.
    called: Vec<Option<Bytes>>,
}

impl Binds {
    /// No values.
    pub fn none() -> Self {
        Self::default()
    }

    /// No values yet, with room for so many, which may lie in the body of a message.
    #[inline]
    pub fn within(body: &Bytes, count: usize) -> Self {
        let places = smallvec::SmallVec::with_capacity(count);
        Self { body: body.clone(), places, own: Vec::new(), called: Vec::new() }
    }

    /// Appends a value that a client sent for the next marker, in the form in which it is stored.
    ///
    /// # Errors
    /// When the bytes are not a value of the marker's type.
    pub fn push_checked(&mut self, spec: &MarkerSpec, value: Bytes) -> Result<()> {
        match spec.is_choice {
            true => spec.ty.validate_choice(&value)?,
            false => spec.ty.validate(&value)?,
        }
        let value = if is_collection(&spec.ty) { spec.canonical(value)? } else { value };
        self.push(Value::Set(value));
        Ok(())
    }

    /// The same of a value that lies in the message's body.
    ///
    /// # Errors
    /// When the bytes are not a value of the marker's type.
    #[inline]
    pub fn push_place(&mut self, spec: &MarkerSpec, place: std::ops::Range<u32>) -> Result<()> {
        if is_collection(&spec.ty) {
            return self.push_checked(spec, self.slice(place.start, place.end));
        }
        spec.ty.validate(&self.body[place.start as usize..place.end as usize])?;
        self.places.push(Place::Body { start: place.start, end: place.end });
        Ok(())
    }

    /// Appends the value of the next marker.
    #[inline]
    pub fn push(&mut self, value: Value) {
        self.places.push(match value {
            Value::Unset => Place::Unset,
            Value::Null => Place::Null,
            Value::Set(value) => {
                self.own.push(value);
                Place::Own(u32::try_from(self.own.len() - 1).expect("a statement has few markers"))
            }
        });
    }

    /// Appends the result of the next call of the statement.
    pub fn push_called(&mut self, value: Option<Bytes>) {
        self.called.push(value);
    }

    /// How many markers have a place.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether the statement has no markers.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
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
        match self.places.get(index as usize) {
            Some(Place::Body { start, end }) => Value::Set(self.slice(*start, *end)),
            Some(Place::Own(at)) => Value::Set(self.own[*at as usize].clone()),
            Some(Place::Null) => Value::Null,
            Some(Place::Unset) | None => Value::Unset,
        }
    }

    /// The value of a marker where it lies.
    #[inline]
    pub fn get(&self, index: u32) -> Bound<'_> {
        match self.places.get(index as usize) {
            Some(Place::Body { start, end }) => Bound::Set(&self.body[*start as usize..*end as usize]),
            Some(Place::Own(at)) => Bound::Set(&self.own[*at as usize]),
            Some(Place::Null) => Bound::Null,
            Some(Place::Unset) | None => Bound::Unset,
        }
    }

    /// Puts the values of several markers where they go, if the client has set each: a value, or none for null.
    #[inline]
    pub fn set_values<'a>(
        &'a self,
        markers: impl ExactSizeIterator<Item = u32>,
        to: &mut [Option<&'a [u8]>],
    ) -> bool {
        assert_eq!(markers.len(), to.len(), "each value has its place");
        let (body, places, own) = (&*self.body, self.places.as_slice(), self.own.as_slice());
        for (marker, to) in markers.zip(to) {
            *to = match places.get(marker as usize) {
                Some(Place::Body { start, end }) => Some(&body[*start as usize..*end as usize]),
                Some(Place::Own(at)) => Some(&*own[*at as usize]),
                Some(Place::Null) => None,
                Some(Place::Unset) | None => return false,
            };
        }
        true
    }

    /// Bytes of the value of a marker; 0 where there is none.
    #[inline]
    pub fn value_len(&self, index: u32) -> usize {
        if let Bound::Set(value) = self.get(index) { value.len() } else { 0 }
    }

    fn slice(&self, start: u32, end: u32) -> Bytes {
        if start == end { Bytes::new() } else { self.body.slice(start as usize..end as usize) }
    }
}

/// Whether values of a type have a form in which they are stored that clients need not send.
fn is_collection(ty: &CqlType) -> bool {
    matches!(ty, CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. })
}

impl FromIterator<Value> for Binds {
    fn from_iter<T: IntoIterator<Item = Value>>(iter: T) -> Self {
        let mut binds = Self::none();
        iter.into_iter().for_each(|value| binds.push(value));
        binds
    }
}
