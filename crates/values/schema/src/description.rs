//! Descriptions of elements of the schema: comments and security labels, which nothing but people and their tools reads.

use std::collections::BTreeMap;

/// A comment and a security label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// `COMMENT ON … IS`
    pub comment: Option<String>,
    /// `SECURITY LABEL ON … IS`
    pub security_label: Option<String>,
}

impl Description {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The descriptions of a user type and of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeDescription {
    /// Of the type itself.
    pub whole: Description,
    /// Of its fields by name; without those of which nothing is said.
    pub fields: BTreeMap<String, Description>,
}

impl TypeDescription {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.fields.is_empty()
    }
}
