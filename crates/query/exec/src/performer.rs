//! The role that a statement is run for, and its permissions.

use std::rc::Rc;

use auth::{Permission, Resource, RoleAccess};

use crate::error::{Result, unauthorized};

/// The role that a statement about roles or the schema is run for.
pub(crate) struct Performer<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Its permissions.
    pub(crate) access: Rc<RoleAccess>,
    /// Whether permissions are asked for.
    pub(crate) restricted: bool,
}

impl Performer<'_> {
    /// An anonymous client, where no permissions are asked for.
    pub(crate) fn anyone() -> Self {
        Self { name: "", access: Rc::default(), restricted: false }
    }

    /// Whether it has a permission.
    pub(crate) fn may(&self, permission: Permission, resource: &Resource) -> bool {
        !self.restricted || self.access.allows(permission, resource)
    }

    /// Refuses actions for which it has no permission.
    pub(crate) fn ensure(&self, permission: Permission, resource: &Resource) -> Result<()> {
        if self.may(permission, resource) { Ok(()) } else { refused(self.name, permission, resource) }
    }
}

/// The refusal of a role without a permission.
pub(crate) fn refused<T>(role: &str, permission: Permission, resource: &Resource) -> Result<T> {
    unauthorized(format!(
        "User {role} has no {} permission on {resource} or any of its parents",
        permission.name()
    ))
}
