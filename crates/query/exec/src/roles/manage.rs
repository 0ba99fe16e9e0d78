//! CREATE, ALTER and DROP of roles and users, and GRANT and REVOKE of roles.

use std::collections::BTreeSet;

use auth::password::Hash;
use auth::{Permission, Resource, roles};
use cluster::SchemaEdit;
use cql::ast::{AlterUser, CreateRole, CreateUser, GrantRole, Password, RevokeRole, RoleName, RoleOption};
use schema::Role;

use super::changed::ChangedRoles;
use super::{Planned, RoleChange, RoleContext};
use crate::error::{Result, invalid, unauthorized};

/// The longest name of a role: it is part of the names of resources.
const NAME_LEN_MAX: usize = 512;

/// A role or user that is created.
pub(super) struct Creation<'a> {
    name: &'a RoleName,
    if_not_exists: bool,
    /// A user may log in without an option for it.
    can_login: bool,
    options: &'a [RoleOption],
}

impl<'a> Creation<'a> {
    pub(super) fn of_role(ast: &'a CreateRole) -> Self {
        Self { name: &ast.name, if_not_exists: ast.if_not_exists, can_login: false, options: &ast.options }
    }

    pub(super) fn of_user(ast: &'a CreateUser, options: &'a [RoleOption]) -> Self {
        Self { name: &ast.name, if_not_exists: ast.if_not_exists, can_login: true, options }
    }

    pub(super) fn options_of_user(ast: &CreateUser) -> Vec<RoleOption> {
        let password = ast.password.clone().map(RoleOption::Password);
        password.into_iter().chain([RoleOption::Superuser(ast.superuser)]).collect()
    }
}

/// The options of ALTER USER.
pub(super) fn altered(ast: &AlterUser) -> Vec<RoleOption> {
    let password = ast.password.clone().map(RoleOption::Password);
    password.into_iter().chain(ast.superuser.map(RoleOption::Superuser)).collect()
}

fn insufficient<T>(context: &RoleContext<'_>) -> Result<T> {
    unauthorized(format!(
        "User {} does not have sufficient privileges to perform the requested operation",
        context.performer.name
    ))
}

/// Refuses a statement about a role for which the performer has no permission.
pub(super) fn ensure(permission: Permission, resource: &Resource, context: &RoleContext<'_>) -> Result<()> {
    if context.performer.may(permission, resource) { Ok(()) } else { insufficient(context) }
}

fn superuser(options: &[RoleOption]) -> Option<bool> {
    options.iter().find_map(|option| match option {
        RoleOption::Superuser(value) => Some(*value),
        _ => None,
    })
}

/// Refuses options that have no meaning here.
fn check_options(options: &[RoleOption], context: &RoleContext<'_>) -> Result<()> {
    for option in options {
        match option {
            RoleOption::Options(_) => {
                return invalid!("org.apache.cassandra.auth.CassandraRoleManager doesn't support OPTIONS");
            }
            RoleOption::Password(Password::Hashed(text)) if Hash::parse(text).is_none() => {
                return invalid!("Invalid hashed password value. Please use jBcrypt.");
            }
            RoleOption::Password(Password::Plain(text)) if text.len() > auth::password::PASSWORD_LEN_MAX => {
                return invalid!(
                    "The password has {} bytes, more than {}",
                    text.len(),
                    auth::password::PASSWORD_LEN_MAX
                );
            }
            RoleOption::Datacenters(Some(names)) => check_datacenters(names, context)?,
            RoleOption::Cidrs(Some(names)) => check_cidr_groups(names, context)?,
            _ => {}
        }
    }
    Ok(())
}

fn check_datacenters(names: &[String], context: &RoleContext<'_>) -> Result<()> {
    if !context.limits.restricts_datacenters {
        return invalid!("ACCESS TO DATACENTERS operations not supported by AllowAllNetworkAuthorizer");
    }
    let known: BTreeSet<&str> =
        context.view.nodes().iter().map(|node| node.location.datacenter.as_str()).collect();
    if names.iter().all(|name| known.contains(name.as_str())) {
        return Ok(());
    }
    invalid!("Invalid value(s) for DATACENTERS '[{}]',All values must be valid datacenters", names.join(", "))
}

fn check_cidr_groups(names: &[String], context: &RoleContext<'_>) -> Result<()> {
    if !context.limits.restricts_addresses {
        return invalid!("ACCESS FROM CIDRS operations not supported by AllowAllCIDRAuthorizer");
    }
    let known: BTreeSet<&str> = context.schema.cidr_groups().map(|group| group.name.as_str()).collect();
    if names.iter().all(|name| known.contains(name.as_str())) {
        return Ok(());
    }
    let known: Vec<&str> = known.into_iter().collect();
    invalid!(
        "Invalid CIDR group(s): [{}]. Available CIDR Groups are: [{}]",
        names.join(", "),
        known.join(", ")
    )
}

/// The options of a role that has these.
fn apply(options: &[RoleOption], hash: Option<&str>, role: &mut Role) -> Option<Password> {
    for option in options {
        match option {
            RoleOption::Password(Password::Hashed(text)) => role.salted_hash = Some(text.clone()),
            RoleOption::Password(password) => match hash {
                Some(hash) => role.salted_hash = Some(hash.to_owned()),
                None => return Some(password.clone()),
            },
            RoleOption::Superuser(value) => role.is_superuser = *value,
            RoleOption::Login(value) => role.can_login = *value,
            RoleOption::Datacenters(names) => {
                role.datacenters = names.as_ref().map(|names| names.iter().cloned().collect());
            }
            RoleOption::Cidrs(names) => {
                role.cidr_groups = names.iter().flatten().cloned().collect();
            }
            RoleOption::Options(_) => {}
        }
    }
    None
}

pub(super) fn create(
    creation: &Creation<'_>,
    context: &RoleContext<'_>,
    hash: Option<&str>,
) -> Result<Planned> {
    let (name, options) = (&creation.name.name, creation.options);
    ensure(Permission::Create, &Resource::Roles, context)?;
    if superuser(options) == Some(true) && !context.performer.access.is_superuser {
        return unauthorized("Only superusers can create a role with superuser status");
    }
    check_options(options, context)?;
    if name.is_empty() {
        return invalid!("Role name can't be an empty string");
    }
    if name.len() > NAME_LEN_MAX || name.contains('\0') {
        return invalid!("Role name must have at most {NAME_LEN_MAX} bytes and no NUL");
    }
    if context.schema.role(name).is_some() {
        if creation.if_not_exists {
            return Ok(Planned::Change(RoleChange::default()));
        }
        return invalid!("{name} already exists");
    }
    let mut role = Role { can_login: creation.can_login, ..Role::new(name.clone()) };
    if let Some(password) = apply(options, hash, &mut role) {
        return Ok(Planned::Hash(password));
    }
    let mut changed = ChangedRoles::new(context.schema);
    if context.limits.authorizes {
        let resource = Resource::Role(name.clone());
        changed.change(context.performer.name, |creator| super::effects::give(creator, &resource));
    }
    let mut edits = changed.edits();
    edits.push(SchemaEdit::PutRole(role));
    Ok(Planned::Change(RoleChange { edits, warnings: Vec::new() }))
}

/// Refuses a change of a role by a role that may not make it.
fn check_alteration(name: &str, options: &[RoleOption], context: &RoleContext<'_>) -> Result<()> {
    let performer = &context.performer;
    let is_super = performer.access.is_superuser;
    if superuser(options).is_some() {
        if performer.access.roles.contains(name) {
            return unauthorized(
                "You aren't allowed to alter your own superuser status or that of a role granted to you",
            );
        }
        if !is_super {
            return unauthorized("Only superusers are allowed to alter superuser status");
        }
    }
    if is_super {
        return Ok(());
    }
    for option in options {
        match option {
            RoleOption::Datacenters(_) => {
                return unauthorized("Only superusers are allowed to alter access to datacenters.");
            }
            RoleOption::Cidrs(_) => {
                return unauthorized("Only superusers are allowed to alter access from CIDR groups.");
            }
            _ => {}
        }
    }
    if performer.name != name {
        return ensure(Permission::Alter, &Resource::Role(name.to_owned()), context);
    }
    for option in options {
        match option {
            RoleOption::Login(_) => return unauthorized("You aren't allowed to alter LOGIN"),
            RoleOption::Options(_) => return unauthorized("You aren't allowed to alter OPTIONS"),
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn alter(
    (name, if_exists): (&RoleName, bool),
    options: &[RoleOption],
    context: &RoleContext<'_>,
    hash: Option<&str>,
) -> Result<Planned> {
    let name = &name.name;
    check_alteration(name, options, context)?;
    check_options(options, context)?;
    if options.is_empty() {
        return invalid!("ALTER [ROLE|USER] can't be empty");
    }
    let Some(known) = context.schema.role(name) else {
        if if_exists {
            return Ok(Planned::Change(RoleChange::default()));
        }
        return invalid!("Role {name} doesn't exist");
    };
    let mut role = Role::clone(known);
    if let Some(password) = apply(options, hash, &mut role) {
        return Ok(Planned::Hash(password));
    }
    Ok(Planned::Change(RoleChange { edits: vec![SchemaEdit::PutRole(role)], warnings: Vec::new() }))
}

pub(super) fn drop(name: &RoleName, if_exists: bool, context: &RoleContext<'_>) -> Result<RoleChange> {
    let name = &name.name;
    let resource = Resource::Role(name.clone());
    ensure(Permission::Drop, &resource, context)?;
    if roles::is_superuser(context.schema, name) && !context.performer.access.is_superuser {
        return unauthorized("Only superusers can drop a role with superuser status");
    }
    if context.schema.role(name).is_none() {
        return if if_exists { Ok(RoleChange::default()) } else { invalid!("{name} doesn't exist") };
    }
    if context.performer.name == name {
        return invalid!("Cannot DROP primary role for current login");
    }
    let (mut changed, of_resource) = (ChangedRoles::new(context.schema), resource.name());
    for role in context.schema.roles().filter(|role| role.name != *name) {
        if role.member_of.contains(name) || role.permissions.contains_key(&of_resource) {
            changed.change(&role.name, |role| {
                role.member_of.remove(name);
                role.permissions.remove(&of_resource);
            });
        }
    }
    let mut edits = changed.edits();
    edits.push(SchemaEdit::DropRole(name.clone()));
    Ok(RoleChange { edits, warnings: Vec::new() })
}

/// Refuses to grant or revoke a role that the performer may not give away, or that is not there.
fn check_membership(role: &RoleName, grantee: &RoleName, context: &RoleContext<'_>) -> Result<()> {
    ensure(Permission::Authorize, &Resource::Role(role.name.clone()), context)?;
    if context.limits.directory_roles {
        return invalid!(
            "GRANT and REVOKE of roles are not supported by LDAPRoleManager: the directory has the groups"
        );
    }
    for one in [role, grantee] {
        if context.schema.role(&one.name).is_none() {
            return invalid!("{} doesn't exist", one.name);
        }
    }
    Ok(())
}

pub(super) fn grant(ast: &GrantRole, context: &RoleContext<'_>) -> Result<RoleChange> {
    check_membership(&ast.role, &ast.grantee, context)?;
    let (role, grantee) = (&ast.role.name, &ast.grantee.name);
    if roles::effective(context.schema, grantee).contains(role) {
        return invalid!("{grantee} is a member of {role}");
    }
    if roles::effective(context.schema, role).contains(grantee) {
        return invalid!("{role} is a member of {grantee}");
    }
    let mut changed = ChangedRoles::new(context.schema);
    changed.change(grantee, |grantee| {
        grantee.member_of.insert(role.clone());
    });
    Ok(RoleChange { edits: changed.edits(), warnings: Vec::new() })
}

pub(super) fn revoke(ast: &RevokeRole, context: &RoleContext<'_>) -> Result<RoleChange> {
    check_membership(&ast.role, &ast.grantee, context)?;
    let (role, grantee) = (&ast.role.name, &ast.grantee.name);
    if context.schema.role(grantee).is_none_or(|known| !known.member_of.contains(role)) {
        return invalid!("{grantee} is not a member of {role}");
    }
    let mut changed = ChangedRoles::new(context.schema);
    changed.change(grantee, |grantee| {
        grantee.member_of.remove(role);
    });
    Ok(RoleChange { edits: changed.edits(), warnings: Vec::new() })
}
