//! The permissions that statements about the schema need.

use auth::{Permission, Resource};
use cql::ast::{
    AlterView, CommentOn, CommentSubject, CreateAggregate, DataType, DropView, QualifiedName, SecurityLabel,
    Statement,
};
use types::CqlType;

use crate::error::Result;
use crate::lookup::{Lookup, keyspace_of};

/// The permission that a statement about the schema needs; none for one that everybody may run, or that names a missing object.
pub(crate) fn needed(
    statement: &Statement,
    session: Option<&str>,
    lookup: &Lookup<'_>,
) -> Result<Option<(Permission, Resource)>> {
    use Permission::{Alter, Create, Drop};
    let of = |name: &QualifiedName| keyspace_of(name, session).map(str::to_owned);
    let tables_of = |name: &QualifiedName| of(name).map(Resource::AllTables);
    let table =
        |name: &QualifiedName| of(name).map(|keyspace| Resource::Table { keyspace, name: name.name.clone() });
    let home = |name: &QualifiedName| of(name).map(|keyspace| lookup.keyspace(&keyspace));
    Ok(Some(match statement {
        Statement::CreateKeyspace(_) => (Create, Resource::Data),
        Statement::AlterKeyspace(ast) => (Alter, Resource::Keyspace(ast.name.name.clone())),
        Statement::DropKeyspace(ast) => (Drop, Resource::Keyspace(ast.name.name.clone())),
        Statement::CreateTable(ast) => (Create, tables_of(&ast.name)?),
        Statement::CopyTable(ast) => (Create, tables_of(&ast.name)?),
        Statement::CommentOn(CommentOn { subject, .. })
        | Statement::SecurityLabel(SecurityLabel { subject, .. }) => match subject {
            CommentSubject::Keyspace(name) => (Alter, Resource::Keyspace(name.name.clone())),
            CommentSubject::Table(name) | CommentSubject::Column(name, _) => (Alter, table(name)?),
            CommentSubject::Type(name) | CommentSubject::Field(name, _) => (Alter, tables_of(name)?),
        },
        Statement::AlterTable(ast) => (Alter, table(&ast.name)?),
        Statement::DropTable(ast) => (Drop, table(&ast.name)?),
        Statement::CreateType(ast) => (Create, tables_of(&ast.name)?),
        Statement::AlterType(ast) => (Alter, tables_of(&ast.name)?),
        Statement::DropType(ast) => (Drop, tables_of(&ast.name)?),
        Statement::DropIndex(ast) => match home(&ast.name)?.and_then(|home| home.index(&ast.name.name)) {
            Some((table, _)) => (Alter, Resource::table(table)),
            None => return Ok(None),
        },
        Statement::DropView(DropView { name, .. }) | Statement::AlterView(AlterView { name, .. }) => {
            let view = home(name)?.and_then(|home| home.tables.get(&name.name));
            let base = view.and_then(|view| view.derivation.as_ref()).map(|derivation| derivation.base());
            match base.and_then(|base| lookup.schema.table_by_id(base)) {
                Some(base) => (Alter, Resource::table(base)),
                None => return Ok(None),
            }
        }
        Statement::DropFunction(ast) => {
            let named = |home: &schema::Keyspace| -> Vec<Vec<CqlType>> {
                let same = home.functions.values().filter(|one| one.name == ast.name.name);
                same.map(|one| one.argument_types().cloned().collect()).collect()
            };
            let overloads = home(&ast.name)?.map(|home| named(home)).unwrap_or_default();
            return one_function(of(&ast.name)?, &ast.name.name, overloads, ast.args.as_deref(), lookup);
        }
        Statement::DropAggregate(ast) => {
            let named = |home: &schema::Keyspace| -> Vec<Vec<CqlType>> {
                let same = home.aggregates.values().filter(|one| one.name == ast.name.name);
                same.map(|one| one.arguments.clone()).collect()
            };
            let overloads = home(&ast.name)?.map(|home| named(home)).unwrap_or_default();
            return one_function(of(&ast.name)?, &ast.name.name, overloads, ast.args.as_deref(), lookup);
        }
        Statement::CreateIndex(ast) => (Alter, table(&ast.table)?),
        Statement::CreateView(ast) => (Alter, table(&ast.base)?),
        Statement::CreateFunction(ast) => {
            let types: Vec<&DataType> = ast.args.iter().map(|(_, ty)| ty).collect();
            created_or_replaced(of(&ast.name)?, &ast.name.name, &types, ast.or_replace, lookup)?
        }
        Statement::CreateAggregate(ast) => {
            let types: Vec<&DataType> = ast.args.iter().collect();
            created_or_replaced(of(&ast.name)?, &ast.name.name, &types, ast.or_replace, lookup)?
        }
        _ => return Ok(None),
    }))
}

fn function(keyspace: &str, name: &str, types: &[&DataType], lookup: &Lookup<'_>) -> Result<Resource> {
    let resolve = |ty: &&DataType| crate::type_name::resolve(ty, lookup.schema, keyspace);
    let arguments = types.iter().map(resolve).collect::<Result<Vec<_>>>()?;
    Ok(Resource::Function { keyspace: keyspace.to_owned(), name: name.to_owned(), arguments })
}

/// The permission that CREATE needs: that to alter a function or aggregate that it replaces.
fn created_or_replaced(
    keyspace: String,
    name: &str,
    types: &[&DataType],
    or_replace: bool,
    lookup: &Lookup<'_>,
) -> Result<(Permission, Resource)> {
    let replaced = match or_replace {
        true => Some(function(&keyspace, name, types, lookup)?),
        false => None,
    };
    Ok(match replaced.filter(|one| one.exists(lookup.schema)) {
        Some(replaced) => (Permission::Alter, replaced),
        None => (Permission::Create, Resource::FunctionsIn(keyspace)),
    })
}

/// The functions of an aggregate that is created, which its creator must be allowed to execute.
pub(crate) fn parts_of_aggregate(
    ast: &CreateAggregate,
    session: Option<&str>,
    lookup: &Lookup<'_>,
) -> Result<Vec<Resource>> {
    let keyspace = keyspace_of(&ast.name, session)?;
    let state: Vec<&DataType> = std::iter::once(&ast.state_type).chain(&ast.args).collect();
    let mut parts = vec![function(keyspace, &ast.state_function, &state, lookup)?];
    if let Some(name) = &ast.reduce_function {
        parts.push(function(keyspace, name, &[&ast.state_type; 2], lookup)?);
    }
    if let Some(name) = &ast.final_function {
        parts.push(function(keyspace, name, &state[..1], lookup)?);
    }
    Ok(parts)
}

/// The function that a DROP means, if the overloads leave no doubt: the planner refuses the rest.
fn one_function(
    keyspace: String,
    name: &str,
    overloads: Vec<Vec<CqlType>>,
    arguments: Option<&[DataType]>,
    lookup: &Lookup<'_>,
) -> Result<Option<(Permission, Resource)>> {
    let wanted = match arguments {
        None => None,
        Some(types) => {
            let resolve = |ty| crate::type_name::resolve(ty, lookup.schema, &keyspace);
            Some(types.iter().map(resolve).collect::<Result<Vec<_>>>()?)
        }
    };
    let mut meant =
        overloads.into_iter().filter(|types| wanted.as_ref().is_none_or(|wanted| wanted == types));
    let (Some(arguments), None) = (meant.next(), meant.next()) else { return Ok(None) };
    Ok(Some((Permission::Drop, Resource::Function { keyspace, name: name.to_owned(), arguments })))
}
