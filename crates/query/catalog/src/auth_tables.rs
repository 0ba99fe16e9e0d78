//! Roles, their permissions and service levels: `system_auth` and `system.service_levels_v2`, as Cassandra and ScyllaDB have them.

use schema::{CidrGroup, Role, Schema, ServiceLevel};

use crate::rows::{Datum, RowBuilder};

/// The attribute of a role that names its service level, under ScyllaDB's name.
const SERVICE_LEVEL: &str = "service_level";

/// Rows of one table of `system_auth`, or of the table of ScyllaDB's `system` with its name.
pub(crate) async fn fill(rows: &mut RowBuilder, schema: &Schema) {
    match rows.table().name.clone().as_str() {
        "roles" => rows.each(schema.roles(), |rows, one| role(rows, one)).await,
        "role_members" => rows.each(schema.roles(), |rows, one| members(rows, one)).await,
        "role_permissions" => rows.each(schema.roles(), |rows, one| permissions(rows, one)).await,
        "identity_to_role" => rows.each(schema.roles(), |rows, one| identities(rows, one)).await,
        "cidr_groups" => rows.each(schema.cidr_groups(), |rows, one| cidr_group(rows, one)).await,
        "cidr_permissions" => rows.each(schema.roles(), |rows, one| cidr_permissions(rows, one)).await,
        "network_permissions" => rows.each(schema.roles(), |rows, one| datacenters(rows, one)).await,
        // Cassandra's spelling.
        "resource_role_permissons_index" => rows.each(schema.roles(), |rows, one| resources(rows, one)).await,
        "role_attributes" => rows.each(schema.roles(), |rows, one| attributes(rows, one)).await,
        _ => {}
    }
}

/// Texts in order; null without any, as an empty set that is not frozen.
fn set<'t>(texts: impl IntoIterator<Item = &'t String>) -> Datum {
    match Datum::texts(texts) {
        Datum::List(texts) if texts.is_empty() => Datum::Null,
        texts => texts,
    }
}

/// A role; its password's hash is in `system_auth` alone, for grants on `system` are older than this table there.
fn role(rows: &mut RowBuilder, role: &Role) {
    let salted_hash = role.salted_hash.clone().filter(|_| rows.table().keyspace == "system_auth");
    rows.row([
        ("role", role.name.as_str().into()),
        ("can_login", role.can_login.into()),
        ("is_superuser", role.is_superuser.into()),
        ("member_of", set(&role.member_of)),
        ("salted_hash", salted_hash.into()),
    ]);
}

fn members(rows: &mut RowBuilder, member: &Role) {
    for role in &member.member_of {
        rows.row([("role", role.as_str().into()), ("member", member.name.as_str().into())]);
    }
}

fn permissions(rows: &mut RowBuilder, role: &Role) {
    for (resource, permissions) in role.permissions.iter().filter(|(_, granted)| !granted.is_empty()) {
        rows.row([
            ("role", role.name.as_str().into()),
            ("resource", resource.as_str().into()),
            ("permissions", set(permissions)),
        ]);
    }
}

fn identities(rows: &mut RowBuilder, role: &Role) {
    for identity in &role.identities {
        rows.row([("identity", identity.as_str().into()), ("role", role.name.as_str().into())]);
    }
}

/// Its ranges in the order of their values: pairs of the first address and the number of bits.
fn cidr_group(rows: &mut RowBuilder, group: &CidrGroup) {
    let pair = |cidr: &schema::Cidr| {
        let address = match cidr.address() {
            std::net::IpAddr::V4(address) => address.octets().to_vec(),
            std::net::IpAddr::V6(address) => address.octets().to_vec(),
        };
        let mut bytes = (address.len() as u32).to_be_bytes().to_vec();
        bytes.extend(address);
        bytes.extend(2u32.to_be_bytes());
        bytes.extend(i16::from(cidr.bits()).to_be_bytes());
        bytes
    };
    let mut pairs: Vec<&schema::Cidr> = group.cidrs.iter().collect();
    // As the type `inet` orders addresses: by their bytes, shorter ones first where one begins the other.
    let key = |cidr: &&schema::Cidr| match cidr.address() {
        std::net::IpAddr::V4(address) => (address.octets().to_vec(), cidr.bits()),
        std::net::IpAddr::V6(address) => (address.octets().to_vec(), cidr.bits()),
    };
    pairs.sort_by_key(key);
    let pairs: Vec<Datum> = pairs.into_iter().map(|cidr| Datum::Blob(pair(cidr))).collect();
    rows.row([("cidr_group", group.name.as_str().into()), ("cidrs", Datum::List(pairs))]);
}

fn cidr_permissions(rows: &mut RowBuilder, role: &Role) {
    if !role.cidr_groups.is_empty() {
        rows.row([("role", role.name.as_str().into()), ("cidr_groups", set(&role.cidr_groups))]);
    }
}

fn datacenters(rows: &mut RowBuilder, role: &Role) {
    if let Some(datacenters) = role.datacenters.as_ref().filter(|datacenters| !datacenters.is_empty()) {
        rows.row([("role", role.name.as_str().into()), ("dcs", set(datacenters))]);
    }
}

fn resources(rows: &mut RowBuilder, role: &Role) {
    for (resource, _) in role.permissions.iter().filter(|(_, granted)| !granted.is_empty()) {
        rows.row([("resource", resource.as_str().into()), ("role", role.name.as_str().into())]);
    }
}

fn attributes(rows: &mut RowBuilder, role: &Role) {
    if let Some(level) = &role.service_level {
        rows.row([
            ("role", role.name.as_str().into()),
            ("name", SERVICE_LEVEL.into()),
            ("value", level.as_str().into()),
        ]);
    }
}

/// Rows of `system.service_levels_v2`.
pub(crate) async fn service_levels(rows: &mut RowBuilder, schema: &Schema) {
    let row = |rows: &mut RowBuilder, level: &ServiceLevel| {
        rows.row([
            ("service_level", level.name.as_str().into()),
            ("shares", i32::try_from(level.shares).unwrap_or(i32::MAX).into()),
            ("timeout", timeout(level).into()),
            ("workload_type", level.workload.name().into()),
        ]);
    };
    rows.each(schema.service_levels(), |rows, level| row(rows, level)).await;
}

/// The timeout as a value of type `duration`.
fn timeout(level: &ServiceLevel) -> Option<Datum> {
    let nanos = i64::try_from(level.timeout?.as_nanos()).unwrap_or(i64::MAX);
    Some(Datum::Blob(types::duration::Duration { months: 0, days: 0, nanos }.to_bytes()))
}
