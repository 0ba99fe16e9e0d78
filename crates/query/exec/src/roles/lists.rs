//! LIST ROLES, LIST USERS and LIST PERMISSIONS, with Cassandra's columns.

use std::collections::BTreeSet;

use auth::{Permission, PermissionSet, Resource, roles};
use cql::ast::{ListPermissions, ListRoles, Permissions, RoleName, Statement};
use schema::Role;
use types::CqlType;

use super::rows::rows;
use super::{RoleContext, permissions};
use crate::error::{ExecError, Result, invalid, unauthorized};
use crate::sink::{Outcome, RowSink, Sink};

/// The bytes of an empty map.
const EMPTY_MAP: &[u8] = &[0; 4];

/// Carries out a LIST statement.
///
/// # Errors
/// When the performer may not see it, or it names a missing object.
pub fn list<S: Sink>(statement: &Statement, context: &RoleContext<'_>, sink: &mut S) -> Result<Outcome> {
    match statement {
        Statement::ListRoles(ast) => {
            let shown = listed(ast, context)?;
            show_roles(&shown, context, sink);
            Ok(Outcome::Rows)
        }
        Statement::ListUsers => {
            let all = listed(&ListRoles { of: None, recursive: true }, context)?;
            show_users(
                all.iter().filter_map(|name| context.schema.role(name)).map(|role| &**role),
                context,
                sink,
            );
            Ok(Outcome::Rows)
        }
        Statement::ListSuperusers => {
            if !context.performer.access.is_superuser {
                return unauthorized("You are not authorized to view superuser details");
            }
            let text = CqlType::Text;
            rows(sink, "roles", &[("role", text)], |rows| {
                for role in context.schema.roles() {
                    if roles::is_superuser(context.schema, &role.name) {
                        rows.cell(Some(role.name.as_bytes()));
                        rows.end_row();
                    }
                }
            });
            Ok(Outcome::Rows)
        }
        Statement::ListPermissions(ast) => list_permissions(ast, context, sink),
        Statement::ListServiceLevels(ast) => super::levels::list(ast, context, sink),
        other => Err(ExecError::unsupported(other.name())),
    }
}

/// A role's own name, and those granted to it.
fn roles_of(name: &str, recursive: bool, context: &RoleContext<'_>) -> BTreeSet<String> {
    if recursive {
        return roles::effective(context.schema, name);
    }
    let known = context.schema.role(name);
    known.map(|role| role.member_of.iter().cloned().chain([role.name.clone()]).collect()).unwrap_or_default()
}

/// The roles that a LIST ROLES shows to its performer.
fn listed(ast: &ListRoles, context: &RoleContext<'_>) -> Result<BTreeSet<String>> {
    let performer = &context.performer;
    let of = ast.of.as_ref().map(|role| role.name.as_str());
    if let Some(of) = of
        && context.schema.role(of).is_none()
    {
        return invalid!("<role {of}> doesn't exist");
    }
    let sees_all = performer.may(Permission::Describe, &Resource::Roles);
    match of {
        None if sees_all => Ok(context.schema.roles().map(|role| role.name.clone()).collect()),
        None => Ok(roles_of(performer.name, ast.recursive, context)),
        Some(of) if sees_all || performer.access.roles.contains(of) => {
            Ok(roles_of(of, ast.recursive, context))
        }
        Some(of) => unauthorized(format!("You are not authorized to view roles granted to {of} ")),
    }
}

fn datacenters(role: &Role, context: &RoleContext<'_>) -> String {
    if context.limits.restricts_datacenters {
        return roles::datacenters(role);
    }
    "ALL".to_owned()
}

fn boolean(value: bool) -> [u8; 1] {
    [u8::from(value)]
}

fn show_roles<S: Sink>(shown: &BTreeSet<String>, context: &RoleContext<'_>, sink: &mut S) {
    let columns = [
        ("role", CqlType::Text),
        ("super", CqlType::Boolean),
        ("login", CqlType::Boolean),
        ("options", CqlType::map(CqlType::Text, CqlType::Text, false)),
        ("datacenters", CqlType::Text),
    ];
    rows(sink, "roles", &columns, |rows| {
        for role in shown.iter().filter_map(|name| context.schema.role(name)) {
            rows.cell(Some(role.name.as_bytes()));
            rows.cell(Some(&boolean(role.is_superuser)));
            rows.cell(Some(&boolean(role.can_login)));
            rows.cell(Some(EMPTY_MAP));
            rows.cell(Some(datacenters(role, context).as_bytes()));
            rows.end_row();
        }
    });
}

fn show_users<'r, S: Sink>(all: impl Iterator<Item = &'r Role>, context: &RoleContext<'_>, sink: &mut S) {
    let columns = [("name", CqlType::Text), ("super", CqlType::Boolean), ("datacenters", CqlType::Text)];
    rows(sink, "users", &columns, |rows| {
        for role in all.filter(|role| role.can_login) {
            rows.cell(Some(role.name.as_bytes()));
            rows.cell(Some(&boolean(roles::is_superuser(context.schema, &role.name))));
            rows.cell(Some(datacenters(role, context).as_bytes()));
            rows.end_row();
        }
    });
}

/// The resources about which permissions are listed; none for all.
fn resources(ast: &ListPermissions, context: &RoleContext<'_>) -> Result<Option<Vec<Resource>>> {
    let Some(named) = &ast.resource else { return Ok(None) };
    let resource = permissions::resource(named, context)?;
    if !resource.exists(context.schema) {
        return invalid!("{resource} doesn't exist");
    }
    Ok(Some(if ast.recursive { resource.chain().collect() } else { vec![resource] }))
}

fn list_permissions<S: Sink>(
    ast: &ListPermissions,
    context: &RoleContext<'_>,
    sink: &mut S,
) -> Result<Outcome> {
    let resources = resources(ast, context)?;
    let of = ast.of.as_ref().map(|RoleName { name, .. }| name.as_str());
    if let Some(of) = of
        && context.schema.role(of).is_none()
    {
        return invalid!("<role {of}> doesn't exist");
    }
    if !context.limits.authorizes {
        return invalid!("LIST PERMISSIONS operation is not supported by AllowAllAuthorizer");
    }
    let performer = &context.performer;
    if !performer.access.is_superuser && of.is_none_or(|of| !performer.access.roles.contains(of)) {
        return unauthorized(format!(
            "You are not authorized to view {}'s permissions",
            of.unwrap_or("everyone")
        ));
    }
    let wanted = match &ast.permissions {
        Permissions::All => Permission::ALL.into_iter().collect(),
        Permissions::List(list) => list.iter().copied().collect::<PermissionSet>(),
    };
    let names = resources.map(|all| all.iter().map(Resource::name).collect::<BTreeSet<_>>());
    let owners = of.map(|of| roles::effective(context.schema, of));
    let mut found = Vec::new();
    for role in context.schema.roles() {
        if owners.as_ref().is_some_and(|owners| !owners.contains(&role.name)) {
            continue;
        }
        for (name, granted) in &role.permissions {
            if names.as_ref().is_some_and(|names| !names.contains(name)) {
                continue;
            }
            let text = Resource::from_name(name).map_or_else(|| format!("<{name}>"), |one| one.to_string());
            let set = PermissionSet::from_names(granted).and(wanted);
            found.extend(set.iter().map(|permission| (role.name.as_str(), text.clone(), permission.name())));
        }
    }
    if found.is_empty() {
        return Ok(Outcome::Void);
    }
    let columns = ["role", "username", "resource", "permission"].map(|name| (name, CqlType::Text));
    rows(sink, "permissions", &columns, |rows| {
        for (role, resource, permission) in found {
            for cell in [role, role, resource.as_str(), permission] {
                rows.cell(Some(cell.as_bytes()));
            }
            rows.end_row();
        }
    });
    Ok(Outcome::Rows)
}
