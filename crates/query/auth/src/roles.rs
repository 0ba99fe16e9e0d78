//! Which roles a role has, over the schema.

use std::collections::BTreeSet;

use schema::{Role, Schema};

/// The role and all roles that were granted to it, directly or not; empty when there is no such role.
pub fn effective(schema: &Schema, role: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = vec![role];
    while let Some(name) = open.pop() {
        let Some(role) = schema.role(name) else { continue };
        if found.insert(role.name.clone()) {
            open.extend(role.member_of.iter().map(String::as_str));
        }
    }
    found
}

/// Whether the role, or one that was granted to it, may do everything.
pub fn is_superuser(schema: &Schema, role: &str) -> bool {
    effective(schema, role).iter().filter_map(|name| schema.role(name)).any(|role| role.is_superuser)
}

/// The datacenters in which a role may log in, as LIST ROLES shows them.
pub fn datacenters(role: &Role) -> String {
    match &role.datacenters {
        _ if !role.can_login => "n/a".to_owned(),
        None => "ALL".to_owned(),
        Some(names) => names.iter().cloned().collect::<Vec<_>>().join(", "),
    }
}
