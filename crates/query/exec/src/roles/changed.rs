//! The roles that a statement changes, and the edits that put them.

use std::collections::BTreeMap;

use cluster::SchemaEdit;
use schema::{Role, Schema};

/// Roles that a statement changes, each put once.
pub(super) struct ChangedRoles<'s> {
    schema: &'s Schema,
    changed: BTreeMap<String, Role>,
}

impl<'s> ChangedRoles<'s> {
    pub(super) fn new(schema: &'s Schema) -> Self {
        Self { schema, changed: BTreeMap::new() }
    }

    /// A role as the statement has changed it so far, if it is there.
    pub(super) fn change(&mut self, name: &str, change: impl FnOnce(&mut Role)) {
        let Some(known) = self.schema.role(name) else { return };
        change(self.changed.entry(name.to_owned()).or_insert_with(|| Role::clone(known)));
    }

    /// The edits.
    pub(super) fn edits(self) -> Vec<SchemaEdit> {
        self.changed.into_values().map(SchemaEdit::PutRole).collect()
    }
}
