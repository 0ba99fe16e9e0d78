//! GRANT and REVOKE of permissions.

use auth::{PermissionSet, Resource};
use cql::ast::{self, GrantPermissions, Permissions, RevokePermissions, RoleName};

use super::changed::ChangedRoles;
use super::{RoleChange, RoleContext};
use crate::error::{ExecError, Result, invalid};
use crate::lookup::keyspace_of;

/// The resource that a statement names, with the session's keyspace where none is written.
pub(super) fn resource(named: &ast::Resource, context: &RoleContext<'_>) -> Result<Resource> {
    Ok(match named {
        ast::Resource::AllKeyspaces => Resource::Data,
        ast::Resource::Keyspace(keyspace) => Resource::Keyspace(keyspace.name.clone()),
        ast::Resource::AllTables(keyspace) => Resource::AllTables(keyspace.name.clone()),
        ast::Resource::Table(table) => Resource::Table {
            keyspace: keyspace_of(table, context.keyspace)?.to_owned(),
            name: table.name.clone(),
        },
        ast::Resource::AllRoles => Resource::Roles,
        ast::Resource::Role(role) => Resource::Role(role.name.clone()),
        ast::Resource::AllFunctions => Resource::Functions,
        ast::Resource::AllFunctionsIn(keyspace) => Resource::FunctionsIn(keyspace.name.clone()),
        ast::Resource::Function(name, types) => {
            let Some(keyspace) = name.keyspace.as_deref() else {
                // Cassandra's spelling.
                return invalid!("In this context function name must be explictly qualified by a keyspace");
            };
            let resolve = |ty| crate::type_name::resolve(ty, context.schema, keyspace);
            let arguments = types.iter().map(resolve).collect::<Result<Vec<_>>>()?;
            Resource::Function { keyspace: keyspace.to_owned(), name: name.name.clone(), arguments }
        }
        ast::Resource::AllMbeans | ast::Resource::Mbean(_) | ast::Resource::Mbeans(_) => {
            return invalid!(
                "Permissions on MBeans are not supported: this server has no JMX; its administration is a REST interface"
            );
        }
    })
}

/// The named permissions that have a meaning on a resource.
pub(super) fn applicable(named: &Permissions, resource: &Resource) -> Result<PermissionSet> {
    let set = match named {
        Permissions::All => resource.applicable(),
        Permissions::List(list) => list.iter().copied().collect::<PermissionSet>().and(resource.applicable()),
    };
    if set.is_empty() {
        return Err(ExecError::Syntax(format!(
            "Resource type {} does not support any of the requested permissions",
            resource.class()
        )));
    }
    Ok(set)
}

/// A statement that was checked: its resource, and the permissions.
fn checked(
    operation: &str,
    (named, resource_named, grantee): (&Permissions, &ast::Resource, &RoleName),
    context: &RoleContext<'_>,
) -> Result<(Resource, PermissionSet)> {
    let resource = resource(resource_named, context)?;
    let set = applicable(named, &resource)?;
    context.performer.ensure(auth::Permission::Authorize, &resource)?;
    set.iter().try_for_each(|permission| context.performer.ensure(permission, &resource))?;
    if context.schema.role(&grantee.name).is_none() {
        return invalid!("Role {} doesn't exist", grantee.name);
    }
    let of_builtins = match &resource {
        Resource::FunctionsIn(keyspace) | Resource::Function { keyspace, .. } => keyspace == "system",
        _ => false,
    };
    if of_builtins {
        return invalid!("Altering permissions on builtin functions is not supported");
    }
    if !resource.exists(context.schema) {
        return invalid!("Resource {resource} doesn't exist");
    }
    if !context.limits.authorizes {
        return invalid!("{operation} operation is not supported by AllowAllAuthorizer");
    }
    Ok((resource, set))
}

/// The permissions that a role was granted itself on a resource.
fn granted(role: &RoleName, resource: &Resource, context: &RoleContext<'_>) -> PermissionSet {
    let known = context.schema.role(&role.name).and_then(|role| role.permissions.get(&resource.name()));
    known.map(PermissionSet::from_names).unwrap_or_default()
}

/// Refuses grants on the server's keyspaces but those that change nothing there; virtual ones are left out, as they are in Cassandra.
fn check_system(resource: &Resource, set: PermissionSet) -> Result<()> {
    use auth::Permission::{Alter, Describe, Select};
    let is_stored = |keyspace: &str| !matches!(keyspace, "system_views" | "system_virtual_schema");
    let harmless = PermissionSet::of(&[Select, Describe, Alter]);
    if resource.system_keyspace().is_some_and(is_stored) && !set.without(harmless).is_empty() {
        return Err(ExecError::Unauthorized(
            "Granting permissions on system keyspaces is strictly limited, this operation is not permitted"
                .to_owned(),
        ));
    }
    Ok(())
}

pub(super) fn grant(ast: &GrantPermissions, context: &RoleContext<'_>) -> Result<RoleChange> {
    let named = (&ast.permissions, &ast.resource, &ast.grantee);
    let (resource, set) = checked("GRANT", named, context)?;
    check_system(&resource, set)?;
    let already = granted(&ast.grantee, &resource, context).and(set);
    let mut warnings = Vec::new();
    if !already.is_empty() {
        let role = &ast.grantee.name;
        warnings.push(format!("Role '{role}' was already granted {} on {resource}", already.listed()));
    }
    let mut changed = ChangedRoles::new(context.schema);
    if already != set {
        changed.change(&ast.grantee.name, |role| {
            let names = set.iter().map(|permission| permission.name().to_owned());
            role.permissions.entry(resource.name()).or_default().extend(names);
        });
    }
    Ok(RoleChange { edits: changed.edits(), warnings })
}

pub(super) fn revoke(ast: &RevokePermissions, context: &RoleContext<'_>) -> Result<RoleChange> {
    let named = (&ast.permissions, &ast.resource, &ast.grantee);
    let (resource, set) = checked("REVOKE", named, context)?;
    let held = granted(&ast.grantee, &resource, context).and(set);
    let missing = set.without(held);
    let mut warnings = Vec::new();
    if !missing.is_empty() {
        let role = &ast.grantee.name;
        warnings.push(format!("Role '{role}' was not granted {} on {resource}", missing.listed()));
    }
    let mut changed = ChangedRoles::new(context.schema);
    if !held.is_empty() {
        changed.change(&ast.grantee.name, |role| {
            let name = resource.name();
            if let Some(permissions) = role.permissions.get_mut(&name) {
                set.iter().for_each(|permission| {
                    permissions.remove(permission.name());
                });
                if permissions.is_empty() {
                    role.permissions.remove(&name);
                }
            }
        });
    }
    Ok(RoleChange { edits: changed.edits(), warnings })
}
