//! ADD and DROP IDENTITY: the identities of certificates with which clients authenticate as a role.

use auth::{Permission, Resource, roles};
use cql::ast::{AddIdentity, DropIdentity};

use super::changed::ChangedRoles;
use super::{RoleChange, RoleContext};
use crate::error::{Result, invalid, unauthorized};

/// The longest identity, in bytes: that of a SPIFFE ID (SPIFFE-ID, section 2.3).
const IDENTITY_LEN_MAX: usize = 2048;

/// The permission is one on the performer's own role, as in Cassandra.
fn ensure(permission: Permission, context: &RoleContext<'_>) -> Result<()> {
    let own = Resource::Role(context.performer.name.to_owned());
    super::manage::ensure(permission, &own, context)
}

pub(super) fn add(ast: &AddIdentity, context: &RoleContext<'_>) -> Result<RoleChange> {
    let (identity, role) = (&ast.identity, &ast.role);
    ensure(Permission::Create, context)?;
    if roles::is_superuser(context.schema, role) && !context.performer.access.is_superuser {
        return unauthorized("Only superusers can add an identity to a role with superuser status");
    }
    if context.schema.role(role).is_none() {
        return invalid!("Can not add identity for non-existent role '{role}'");
    }
    if identity.is_empty() {
        return invalid!("Key may not be empty");
    }
    if identity.len() > IDENTITY_LEN_MAX {
        return invalid!("The identity has {} bytes, more than {IDENTITY_LEN_MAX}", identity.len());
    }
    if context.schema.role_of_identity(identity).is_some() {
        return if ast.if_not_exists {
            Ok(RoleChange::default())
        } else {
            invalid!("{identity} already exists")
        };
    }
    let mut changed = ChangedRoles::new(context.schema);
    changed.change(role, |role| {
        role.identities.insert(identity.clone());
    });
    Ok(RoleChange { edits: changed.edits(), warnings: Vec::new() })
}

pub(super) fn drop(ast: &DropIdentity, context: &RoleContext<'_>) -> Result<RoleChange> {
    let identity = &ast.identity;
    ensure(Permission::Drop, context)?;
    let Some(role) = context.schema.role_of_identity(identity) else {
        return if ast.if_exists {
            Ok(RoleChange::default())
        } else {
            invalid!("identity '{identity}' doesn't exist")
        };
    };
    let mut changed = ChangedRoles::new(context.schema);
    changed.change(&role.name, |role| {
        role.identities.remove(identity);
    });
    Ok(RoleChange { edits: changed.edits(), warnings: Vec::new() })
}
