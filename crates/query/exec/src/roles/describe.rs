//! The statements that make service levels, roles and their grants again, for DESCRIBE SCHEMA WITH INTERNALS.

use std::collections::BTreeSet;

use auth::Resource;
use schema::{DEFAULT_SERVICE_LEVEL, Role, Schema, ServiceLevel, WorkloadType};
use types::quote_identifier;

use crate::error::{Result, unauthorized};
use crate::performer::Performer;

/// A statement: the kind of the object that it makes, its name and the text.
pub(crate) type Made = (&'static str, String, String);

/// The part of roles in a description of the whole schema; empty for a role that may not see all roles.
///
/// # Errors
/// When a role that is no superuser wants `passwords`.
pub(crate) fn statements(
    schema: &Schema,
    performer: Option<&Performer<'_>>,
    passwords: bool,
) -> Result<Vec<Made>> {
    let is_superuser = performer.is_some_and(|performer| performer.access.is_superuser);
    if passwords && !is_superuser {
        return unauthorized(
            "DESCRIBE SCHEMA WITH INTERNALS AND PASSWORDS can only be issued by a superuser",
        );
    }
    if !performer.is_some_and(|performer| is_superuser || !performer.restricted) {
        return Ok(Vec::new());
    }
    let mut out: Vec<Made> = Vec::new();
    for level in schema.service_levels().filter(|level| level.name != DEFAULT_SERVICE_LEVEL) {
        out.push(("service_level", level.name.clone(), create_level(level)));
    }
    for role in schema.roles() {
        out.push(("role", role.name.clone(), create_role(role, passwords)));
    }
    // Every role is there before one is granted.
    for role in schema.roles() {
        let name = quote_identifier(&role.name);
        for group in &role.member_of {
            let text = format!("GRANT {} TO {name};", quote_identifier(group));
            out.push(("grant_role", role.name.clone(), text));
        }
        for (resource, permissions) in &role.permissions {
            out.extend(grants(role, resource, permissions));
        }
        for identity in &role.identities {
            let text =
                format!("ADD IDENTITY IF NOT EXISTS {} TO ROLE {};", quoted(identity), quoted(&role.name));
            out.push(("identity", role.name.clone(), text));
        }
        if let Some(level) = &role.service_level {
            let text = format!("ATTACH SERVICE LEVEL {} TO {name};", quote_identifier(level));
            out.push(("service_level_attachment", role.name.clone(), text));
        }
    }
    Ok(out)
}

/// Permissions on dropped objects have no statement.
fn grants<'r>(
    role: &'r Role,
    resource: &str,
    permissions: &'r BTreeSet<String>,
) -> impl Iterator<Item = Made> + 'r {
    let resource = Resource::from_name(resource).map(|resource| resource.in_cql());
    permissions.iter().filter_map(move |permission| {
        let on = resource.as_ref()?;
        let text = format!("GRANT {permission} ON {on} TO {};", quote_identifier(&role.name));
        Some(("grant_permission", role.name.clone(), text))
    })
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn create_role(role: &Role, passwords: bool) -> String {
    let mut options = Vec::new();
    if let Some(hash) = role.salted_hash.as_ref().filter(|_| passwords) {
        options.push(format!("HASHED PASSWORD = {}", quoted(hash)));
    }
    options.push(format!("LOGIN = {}", role.can_login));
    options.push(format!("SUPERUSER = {}", role.is_superuser));
    if let Some(datacenters) = &role.datacenters {
        let names: Vec<String> = datacenters.iter().map(|name| quoted(name)).collect();
        options.push(format!("ACCESS TO DATACENTERS {{{}}}", names.join(", ")));
    }
    if !role.cidr_groups.is_empty() {
        let names: Vec<String> = role.cidr_groups.iter().map(|name| quoted(name)).collect();
        options.push(format!("ACCESS FROM CIDRS {{{}}}", names.join(", ")));
    }
    format!("CREATE ROLE IF NOT EXISTS {} WITH {};", quote_identifier(&role.name), options.join(" AND "))
}

fn create_level(level: &ServiceLevel) -> String {
    let mut options = vec![format!("SHARES = {}", level.shares)];
    if let Some(timeout) = level.timeout {
        options.push(format!("TIMEOUT = {}ms", timeout.as_millis()));
    }
    if level.workload != WorkloadType::Unspecified {
        options.push(format!("WORKLOAD_TYPE = '{}'", level.workload.name()));
    }
    let name = quote_identifier(&level.name);
    format!("CREATE SERVICE LEVEL IF NOT EXISTS {name} WITH {};", options.join(" AND "))
}
