//! Which roles a role has, over the schema.

use std::collections::BTreeSet;

use schema::{DEFAULT_SERVICE_LEVEL, Role, Schema, ServiceLevel, WorkloadType};

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

/// The combined service levels of a role and of those granted to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveServiceLevel {
    /// The attributes. Its name is that of the role's own level.
    pub level: ServiceLevel,
    /// The level that gives the timeout.
    pub timeout_of: String,
    /// The level that gives the shares.
    pub shares_of: String,
    /// The level that gives the workload type.
    pub workload_of: String,
}

/// Combines the service levels of a role and of those granted to it: the shortest timeout, the fewest shares, and `batch` before
/// `interactive` before nothing said, as ScyllaDB does.
pub fn service_level(schema: &Schema, role: &str) -> EffectiveServiceLevel {
    service_level_of(schema, role, &effective(schema, role))
}

/// The same of a role that has these roles.
pub(crate) fn service_level_of(
    schema: &Schema,
    role: &str,
    names: &BTreeSet<String>,
) -> EffectiveServiceLevel {
    let default = || DEFAULT_SERVICE_LEVEL.to_owned();
    let mut found = EffectiveServiceLevel {
        level: ServiceLevel::default(),
        timeout_of: default(),
        shares_of: default(),
        workload_of: default(),
    };
    let levels = names.iter().filter_map(|name| schema.role(name)?.service_level.as_deref());
    let mut first = true;
    for level in levels.filter_map(|name| schema.service_level(name)) {
        if level.timeout.is_some_and(|timeout| found.level.timeout.is_none_or(|known| timeout < known)) {
            found.level.timeout = level.timeout;
            found.timeout_of = level.name.clone();
        }
        if first || level.shares < found.level.shares {
            found.level.shares = level.shares;
            found.shares_of = level.name.clone();
        }
        let weight = |workload: WorkloadType| match workload {
            WorkloadType::Unspecified => 0,
            WorkloadType::Interactive => 1,
            WorkloadType::Batch => 2,
        };
        if first || weight(level.workload) > weight(found.level.workload) {
            found.level.workload = level.workload;
            found.workload_of = level.name.clone();
        }
        first = false;
    }
    if let Some(own) = schema.role(role).and_then(|role| role.service_level.as_ref()) {
        found.level.name = own.clone();
    }
    found
}
