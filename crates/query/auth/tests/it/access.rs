//! Resources, and access through roles.

use std::collections::BTreeSet;
use std::sync::Arc;

use auth::{AccessCache, Permission, PermissionSet, Resource, roles};
use schema::{Keyspace, Replication, Role, Schema, ServiceLevel, TableBuilder, TableId, WorkloadType};
use types::CqlType;

fn role(name: &str, member_of: &[&str], grants: &[(&str, &[&str])]) -> Role {
    let mut role = Role::new(name);
    role.member_of = member_of.iter().map(|name| (*name).to_owned()).collect();
    for (resource, permissions) in grants {
        let permissions: BTreeSet<String> = permissions.iter().map(|name| (*name).to_owned()).collect();
        role.permissions.insert((*resource).to_owned(), permissions);
    }
    role
}

fn schema(roles: impl IntoIterator<Item = Role>) -> Arc<Schema> {
    let mut keyspace = Keyspace::new("ks", Replication::Simple { factor: 1 });
    for (n, name) in ["t", "u"].into_iter().enumerate() {
        let builder =
            TableBuilder::new("ks", name, TableId([n as u8 + 1; 16])).partition_key("k", CqlType::Int);
        keyspace.tables.insert(name.to_owned(), builder.build_known());
    }
    let schema = Schema::default().with_keyspace(keyspace);
    Arc::new(roles.into_iter().fold(schema, Schema::with_role))
}

#[test]
fn names_of_resources_are_written_and_read() {
    let text = |name: &str| {
        let resource = Resource::from_name(name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(resource.name(), name);
        format!("{resource} {}", resource.in_cql())
    };
    assert_eq!(text("data"), "<all keyspaces> ALL KEYSPACES");
    assert_eq!(text("data/Ks"), "<keyspace Ks> KEYSPACE \"Ks\"");
    assert_eq!(text("data/ks/*"), "<all tables in ks> ALL TABLES IN KEYSPACE ks");
    assert_eq!(text("data/ks/t"), "<table ks.t> TABLE ks.t");
    assert_eq!(text("roles/a/b c"), "<role a/b c> ROLE \"a/b c\"");
    assert_eq!(text("functions/ks"), "<all functions in ks> ALL FUNCTIONS IN KEYSPACE ks");
    let classes = "org.apache.cassandra.db.marshal.Int32Type^org.apache.cassandra.db.marshal.UTF8Type";
    let function = text(&format!("functions/ks/f[{classes}]"));
    assert_eq!(function, "<function ks.f(int, text)> FUNCTION ks.f(int, text)");
    assert_eq!(text("functions/ks/f[]"), "<function ks.f()> FUNCTION ks.f()");
    for unknown in ["", "mbean", "mbean/x", "functions/ks/f", "functions/ks/f[a(]", "roles_", "dat"] {
        assert_eq!(Resource::from_name(unknown), None, "{unknown}");
    }
}

#[test]
fn a_grant_holds_below_its_resource_and_through_roles() {
    let schema = schema([
        role("ann", &["readers"], &[("data/ks/t", &["MODIFY"])]),
        role("readers", &["all"], &[("data/ks/*", &["SELECT"])]),
        // A circle, which no statement makes.
        role("all", &["ann"], &[("data", &["CREATE", "WHATEVER"])]),
        Role { is_superuser: true, ..Role::new("root") },
        role("deputy", &["root"], &[]),
    ]);
    let cache = AccessCache::default();
    let on =
        |role: &str, table: &str| cache.on_table(&schema, role, schema.table("ks", table).unwrap()).listed();
    assert_eq!(on("ann", "t"), "CREATE, SELECT, MODIFY");
    assert_eq!(on("ann", "u"), "CREATE, SELECT");
    assert_eq!(on("nobody", "t"), "");
    assert_eq!(on("deputy", "t"), "ALTER, DROP, SELECT, MODIFY, AUTHORIZE, UNMASK, SELECT_MASKED");
    assert_eq!(roles::effective(&schema, "ann").len(), 3);
    assert!(roles::is_superuser(&schema, "deputy") && !roles::is_superuser(&schema, "ann"));
    let ann = cache.role(&schema, "ann");
    assert!(ann.allows(Permission::Select, &Resource::Table { keyspace: "ks".into(), name: "later".into() }));
    assert!(!ann.allows(Permission::Select, &Resource::Keyspace("ks".into())), "a part is not the whole");
    assert!(cache.role(&schema, "root").allows(Permission::Create, &Resource::Roles));
}

#[test]
fn another_schema_is_seen_at_once() {
    let (before, after) =
        (schema([role("ann", &[], &[("data/ks/t", &["SELECT"])])]), schema([Role::new("ann")]));
    let cache = AccessCache::default();
    let may = |schema: &Arc<Schema>| cache.on_table(schema, "ann", schema.table("ks", "t").unwrap());
    assert!(may(&before).has(Permission::Select) && may(&before).has(Permission::Select));
    assert_eq!(cache.computed(), 1);
    assert_eq!(may(&after), PermissionSet::NONE);
    assert!(may(&before).has(Permission::Select));
    assert_eq!(cache.computed(), 3);
}

#[test]
fn service_levels_of_granted_roles_are_combined() {
    let level = |name: &str, millis: Option<u64>, shares, workload| ServiceLevel {
        timeout: millis.map(std::time::Duration::from_millis),
        shares,
        workload,
        ..ServiceLevel::new(name)
    };
    let with = |role: Role, level: &str| Role { service_level: Some(level.to_owned()), ..role };
    let schema = schema([
        with(role("ann", &["batchers", "quick"], &[]), "own"),
        with(Role::new("batchers"), "b"),
        with(Role::new("quick"), "q"),
        with(Role::new("lost"), "dropped"),
    ]);
    let schema = Schema::clone(&schema)
        .with_service_level(level("own", Some(500), 300, WorkloadType::Interactive))
        .with_service_level(level("b", None, 200, WorkloadType::Batch))
        .with_service_level(level("q", Some(50), 1000, WorkloadType::Unspecified));
    let found = roles::service_level(&schema, "ann");
    assert_eq!(found.level, level("own", Some(50), 200, WorkloadType::Batch));
    let of = (found.timeout_of.as_str(), found.shares_of.as_str(), found.workload_of.as_str());
    assert_eq!(of, ("q", "b", "b"));
    for other in ["lost", "nobody"] {
        let found = roles::service_level(&schema, other);
        assert_eq!((found.level.timeout, found.level.shares), (None, 1000), "{other}");
    }
}

/// The groups of a directory stand in the place of the schema's memberships, as they are known; others are nobody's.
#[test]
fn a_directory_decides_on_the_roles_of_a_role() {
    let schema = Schema::default()
        .with_role(role("ann", &["old"], &[("data/own", &["SELECT"])]))
        .with_role(role("old", &[], &[("data/old", &["SELECT"])]))
        .with_role(role("new", &["old"], &[("data/new", &["SELECT"])]));
    let schema = Arc::new(schema);
    let cache = AccessCache::default();
    let may = |keyspace: &str| {
        let resource = Resource::Keyspace(keyspace.to_owned());
        cache.role(&schema, "ann").allows(Permission::Select, &resource)
    };
    assert!(may("own") && may("old") && !may("new"));
    cache.follow_directory();
    assert!(may("own") && !may("old") && !may("new"), "nothing is known of her groups");
    let groups = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
    cache.set_directory_roles("ann", groups(&["new", "missing"]));
    assert!(may("own") && may("new") && !may("old"), "groups are not nested");
    let computed = cache.computed();
    cache.set_directory_roles("ann", groups(&["new", "missing"]));
    assert!(may("new"));
    assert_eq!(cache.computed(), computed, "nothing has changed");
    cache.set_directory_roles("ann", groups(&["old"]));
    assert!(may("old") && !may("new"));
    cache.set_directory_roles("ann", None);
    assert!(may("own") && !may("old"));
}
