//! Whether a value of one type may stand where another type is wanted: used by overload resolution and the checks of
//! terms.

use crate::CqlType;

/// How well something fits where a type is wanted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Assignment {
    /// Not at all.
    None,
    /// It can be read as the type.
    Weak,
    /// It is of the type.
    Exact,
}

impl Assignment {
    /// Whether it fits at all.
    pub fn is_assignable(self) -> bool {
        self != Assignment::None
    }

    /// The worst of several: exact only when all are.
    pub fn all(parts: impl IntoIterator<Item = Assignment>) -> Assignment {
        parts.into_iter().min().unwrap_or(Assignment::Exact)
    }
}

impl CqlType {
    /// How well a value of this type fits where `receiver` is wanted.
    pub fn assignment_to(&self, receiver: &CqlType) -> Assignment {
        let freezable = self.is_collection() || self.is_udt();
        let receiver = if freezable && !self.is_multi_cell() {
            std::borrow::Cow::Owned(receiver.freeze())
        } else {
            std::borrow::Cow::Borrowed(receiver)
        };
        if *self == *receiver {
            return Assignment::Exact;
        }
        if receiver.accepts_values_of(self) { Assignment::Weak } else { Assignment::None }
    }

    /// Whether the bytes of every value of `other` are a value of this type; their order may differ.
    pub fn accepts_values_of(&self, other: &CqlType) -> bool {
        use CqlType::*;
        if self == other {
            return true;
        }
        match (self, other) {
            (Blob, _) => true,
            (Text, Ascii) => true,
            (Bigint, Timestamp) | (Timestamp, Bigint) | (Time, Bigint) => true,
            (Date, Int) | (Uuid, Timeuuid) => true,
            (Varint, Int | Bigint | Timestamp) => true,
            (List { element: a, frozen: true }, List { element: b, frozen: true }) => a.accepts_values_of(b),
            (Set { element: a, frozen: true }, Set { element: b, frozen: true }) => a.sorts_values_of(b),
            (Map { key, value, frozen: true }, Map { key: other_key, value: other_value, frozen: true }) => {
                key.sorts_values_of(other_key) && value.accepts_values_of(other_value)
            }
            (List { .. } | Set { .. } | Map { .. }, _) => self.sorts_values_of(other),
            (Tuple(a), Tuple(b)) => {
                a.len() >= b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.accepts_values_of(b))
            }
            (Udt { ty: a, frozen }, Udt { ty: b, frozen: other_frozen }) => {
                frozen == other_frozen
                    && (&a.keyspace, &a.name) == (&b.keyspace, &b.name)
                    && a.fields.len() >= b.fields.len()
                    && a.fields.iter().zip(&b.fields).all(|((_, a), (_, b))| a.accepts_values_of(b))
            }
            _ => false,
        }
    }

    /// Whether this type accepts the values of `other` and orders them the same way.
    pub fn sorts_values_of(&self, other: &CqlType) -> bool {
        use CqlType::*;
        if self == other {
            return true;
        }
        match (self, other) {
            (Blob, Ascii | Text) | (Text, Ascii) => true,
            (List { element: a, frozen }, List { element: b, frozen: other_frozen })
            | (Set { element: a, frozen }, Set { element: b, frozen: other_frozen }) => {
                frozen == other_frozen && a.sorts_values_of(b)
            }
            (
                Map { key, value, frozen },
                Map { key: other_key, value: other_value, frozen: other_frozen },
            ) => {
                frozen == other_frozen && key.sorts_values_of(other_key) && value.sorts_values_of(other_value)
            }
            (Tuple(a), Tuple(b)) => {
                a.len() >= b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.sorts_values_of(b))
            }
            _ => false,
        }
    }
}
