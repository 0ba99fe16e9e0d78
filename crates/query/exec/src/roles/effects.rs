//! The grants that change with other objects: the creator of one has all permissions on it, and the grants on an object end with it.

use auth::Resource;
use cluster::SchemaEdit;
use schema::{Role, Schema};

use super::changed::ChangedRoles;

/// Gives a role every permission on a resource that it has created.
pub(super) fn give(role: &mut Role, resource: &Resource) {
    let permissions = role.permissions.entry(resource.name()).or_default();
    permissions.extend(resource.applicable().iter().map(|permission| permission.name().to_owned()));
}

/// The resources that an edit makes: their creator may do everything with them.
fn created(schema: &Schema, edit: &SchemaEdit) -> Vec<Resource> {
    match edit {
        SchemaEdit::PutKeyspace(keyspace) if schema.keyspace(&keyspace.name).is_none() => {
            let name = || keyspace.name.clone();
            vec![Resource::Keyspace(name()), Resource::FunctionsIn(name())]
        }
        SchemaEdit::PutTable(table)
            if schema.table(&table.keyspace, &table.name).is_none()
                && (table.derivation.is_none() || table.is_view() || table.is_cdc_log()) =>
        {
            vec![Resource::table(table)]
        }
        SchemaEdit::PutFunction(one) if !Resource::of_function(one).exists(schema) => {
            vec![Resource::of_function(one)]
        }
        SchemaEdit::PutAggregate(one) if !Resource::of_aggregate(one).exists(schema) => {
            vec![Resource::of_aggregate(one)]
        }
        _ => Vec::new(),
    }
}

/// Whether grants on a resource of this name end with an edit.
fn ends_with(schema: &Schema, edit: &SchemaEdit, resource: &str) -> bool {
    let below = |of: &str, name: &str| {
        resource
            .strip_prefix(of)
            .and_then(|rest| rest.strip_prefix(name))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    match edit {
        SchemaEdit::DropKeyspace(name) => below("data/", name) || below("functions/", name),
        SchemaEdit::DropTable { keyspace, name } => {
            let named = Resource::Table { keyspace: keyspace.clone(), name: name.clone() };
            resource == named.name()
        }
        SchemaEdit::DropFunction { keyspace, signature } => schema
            .keyspace(keyspace)
            .and_then(|keyspace| keyspace.functions.get(signature))
            .is_some_and(|one| resource == Resource::of_function(one).name()),
        SchemaEdit::DropAggregate { keyspace, signature } => schema
            .keyspace(keyspace)
            .and_then(|keyspace| keyspace.aggregates.get(signature))
            .is_some_and(|one| resource == Resource::of_aggregate(one).name()),
        _ => false,
    }
}

/// The changes of roles that go with these edits of the schema. Grants are ended whether or not anybody asks for permissions, so
/// that an object of the same name does not inherit them.
pub(crate) fn effects(schema: &Schema, edits: &[SchemaEdit], creator: Option<&str>) -> Vec<SchemaEdit> {
    let mut changed = ChangedRoles::new(schema);
    for edit in edits {
        for role in schema.roles() {
            let ended = |resource: &String| ends_with(schema, edit, resource);
            if role.permissions.keys().any(ended) {
                changed.change(&role.name, |role| role.permissions.retain(|resource, _| !ended(resource)));
            }
        }
        for resource in created(schema, edit) {
            if let Some(creator) = creator {
                changed.change(creator, |role| give(role, &resource));
            }
        }
    }
    changed.edits()
}
