//! CREATE, ALTER and DROP TYPE; users of a changed type are rebuilt with it.

use std::sync::Arc;

use crate::sink::{ChangeType, SchemaTarget};
use cluster::SchemaEdit;
use cql::ast::{AlterType, AlterTypeOperation, CreateType, DataType, DropType, NativeType};
use schema::{Keyspace, Table, UserType};
use stdx::HashSet;
use types::CqlType;

use super::{DdlContext, Outcome, check_not_system, descriptions};
use crate::error::{Result, invalid};
use crate::lookup::keyspace_of;
use crate::type_name::TypeBudget;

fn type_outcome(change: ChangeType, keyspace: &str, name: &str) -> Outcome {
    Outcome::new(change, keyspace, SchemaTarget::Type(name.to_owned()))
}

/// The most fields of a user type, which the paths of its cells number with 15 bits.
const FIELDS_MAX: usize = 32_767;

fn check_fields(fields: usize, name: &str) -> Result<()> {
    match fields <= FIELDS_MAX {
        true => Ok(()),
        false => invalid!("Type '{name}' would have {fields} fields: at most {FIELDS_MAX} are allowed"),
    }
}

/// Refuses a field by its type as it is written: a user type that is not frozen need not exist.
fn check_field_name(ty: &DataType) -> Result<()> {
    match ty {
        DataType::Native(NativeType::Counter) => invalid!("A user type cannot contain counters"),
        DataType::UserDefined(_) => invalid!("A user type cannot contain non-frozen UDTs"),
        _ => Ok(()),
    }
}

fn check_field(ty: &CqlType) -> Result<()> {
    if ty.is_or_contains_counter() {
        return invalid!("A user type cannot contain counters");
    }
    if ty.is_udt() && ty.is_multi_cell() {
        return invalid!("A user type cannot contain non-frozen UDTs");
    }
    Ok(())
}

pub(super) fn create(ast: &CreateType, context: &DdlContext<'_>) -> Result<Outcome> {
    let keyspace = keyspace_of(&ast.name, context.keyspace)?;
    let name = &ast.name.name;
    check_not_system(context, keyspace)?;
    let Some(home) = context.lookup.schema.keyspace(keyspace) else {
        return invalid!("Keyspace '{keyspace}' doesn't exist");
    };
    if home.types.contains_key(name) {
        if ast.if_not_exists {
            return Ok(Outcome::nothing());
        }
        return invalid!("A user type with name '{name}' already exists");
    }
    check_fields(ast.fields.len(), name)?;
    let mut fields: Vec<(String, CqlType)> = Vec::with_capacity(ast.fields.len());
    let mut names = HashSet::default();
    for (field, _) in &ast.fields {
        if !names.insert(field.name.as_str()) {
            return invalid!("Duplicate field name '{}' in type '{name}'", field.name);
        }
        fields.push((field.name.clone(), CqlType::Blob));
    }
    ast.fields.iter().try_for_each(|(_, ty)| check_field_name(ty))?;
    let mut budget = TypeBudget::of_type();
    for ((_, ty), (_, written)) in fields.iter_mut().zip(&ast.fields) {
        *ty = crate::type_name::resolve(written, context.lookup.schema, keyspace)?;
        check_field(ty)?;
        budget.take(ty, name)?;
    }
    let mut outcome = type_outcome(ChangeType::Created, keyspace, name);
    let ty = UserType { keyspace: keyspace.to_owned(), name: name.clone(), fields };
    outcome.edits.push(SchemaEdit::PutType(ty));
    Ok(outcome)
}

/// Refuses a new field of a type that partition keys have: rows would no longer be found by their keys, which have fewer fields.
fn check_keys(keyspace: &Keyspace, (field, ty): (&str, &DataType), name: &str) -> Result<()> {
    let uses = |table: &&Arc<Table>| {
        table.partition_key().iter().any(|column| column.ty.references_udt(&keyspace.name, name))
    };
    let users: Vec<String> = keyspace.tables.values().filter(uses).map(|table| table.full_name()).collect();
    if users.is_empty() {
        return Ok(());
    }
    invalid!(
        "Cannot add new field {field} of type {} to user type {}.{name} as the type is being used in partition key by the \
         following tables: {}",
        crate::type_name::text_within(ty, &keyspace.name),
        keyspace.name,
        users.join(", ")
    )
}

pub(super) fn alter(ast: &AlterType, context: &DdlContext<'_>) -> Result<Outcome> {
    let keyspace = keyspace_of(&ast.name, context.keyspace)?;
    let name = &ast.name.name;
    check_not_system(context, keyspace)?;
    let home = context.lookup.schema.keyspace(keyspace);
    let Some((home, old)) = home.and_then(|home| Some((home, home.types.get(name)?))) else {
        if ast.if_exists {
            return Ok(Outcome::nothing());
        }
        return invalid!("Type {keyspace}.{name} doesn't exist");
    };
    let mut ty = UserType::clone(old);
    match &ast.operation {
        AlterTypeOperation::AlterField { .. } => {
            return invalid!("Altering field types is no longer supported");
        }
        AlterTypeOperation::Add { if_not_exists, field, data_type } => {
            check_field_name(data_type)?;
            if ty.field_index(&field.name).is_some() {
                if *if_not_exists {
                    return Ok(Outcome::nothing());
                }
                return invalid!(
                    "Cannot add field {0} to type {keyspace}.{name}: a field with name {0} already exists",
                    field.name
                );
            }
            let new = crate::type_name::resolve(data_type, context.lookup.schema, keyspace)?;
            check_field(&new)?;
            if new.references_udt(keyspace, name) {
                return invalid!(
                    "Cannot add new field {} of type {} to user type {keyspace}.{name} as it would create a circular \
                     reference",
                    field.name,
                    crate::type_name::text_within(data_type, keyspace)
                );
            }
            check_keys(home, (&field.name, data_type), name)?;
            check_fields(ty.fields.len() + 1, name)?;
            ty.fields.push((field.name.clone(), new));
        }
        AlterTypeOperation::Rename { if_exists, fields } => {
            for (from, to) in fields {
                let Some(at) = old.field_index(&from.name) else {
                    if *if_exists {
                        continue;
                    }
                    return invalid!("Unkown field {} in user type {keyspace}.{name}", from.name);
                };
                ty.fields[at].0 = to.name.clone();
            }
            for (at, (field, _)) in ty.fields.iter().enumerate() {
                if ty.fields[..at].iter().any(|(before, _)| before == field) {
                    return invalid!("Duplicate field name {field} in type {keyspace}");
                }
            }
        }
    }
    let mut outcome = type_outcome(ChangeType::Updated, keyspace, name);
    outcome.edits = rebuild(home, ty.clone())?;
    outcome.edits.extend(descriptions::renamed(home, old, &ty));
    Ok(outcome)
}

/// The edits that put a changed type in place, in itself and in all types, tables, functions and aggregates that use it.
fn rebuild(home: &Keyspace, changed: UserType) -> Result<Vec<SchemaEdit>> {
    let mut budget = TypeBudget::of_type();
    changed.fields.iter().try_for_each(|(_, field)| budget.take(field, &changed.name))?;
    let changed = Arc::new(changed);
    let mut edits = vec![SchemaEdit::PutType(UserType::clone(&changed))];
    let mut all = vec![changed.clone()];
    // Types that use the type, and those that use these: each pass rebuilds with all that are known to have changed.
    let mut grown = true;
    while grown {
        grown = false;
        for (name, ty) in &home.types {
            if all.iter().any(|changed| changed.name == *name) {
                continue;
            }
            let uses = ty.fields.iter().any(|(_, field)| {
                all.iter().any(|changed| field.references_udt(&changed.keyspace, &changed.name))
            });
            if !uses {
                continue;
            }
            let rebuilt = updated_type(ty, &all)?;
            edits.push(SchemaEdit::PutType(rebuilt.clone()));
            all.push(Arc::new(rebuilt));
            grown = true;
        }
    }
    for table in home.tables.values() {
        let uses = table.columns().iter().any(|column| {
            all.iter().any(|changed| column.ty.references_udt(&changed.keyspace, &changed.name))
        });
        if uses {
            let mut builder = table.to_builder();
            let mut budget = TypeBudget::of_table();
            for column in builder.columns_mut() {
                column.ty = updated(&column.ty, &all);
                budget.take(&column.ty, &table.name)?;
                let mask = column.mask.take();
                column.mask = mask.map(|mask| mask.with_updated_types(|ty| updated(ty, &all)).into());
            }
            let rebuilt = builder.build().map_err(|error| crate::ExecError::Invalid(error.to_string()))?;
            edits.push(SchemaEdit::PutTable(rebuilt));
        }
    }
    for function in home.functions.values() {
        let mut rebuilt = schema::UserFunction::clone(function);
        for (_, ty) in &mut rebuilt.arguments {
            *ty = updated(ty, &all);
        }
        rebuilt.returns = updated(&rebuilt.returns, &all);
        if rebuilt != **function {
            edits.push(SchemaEdit::PutFunction(rebuilt));
        }
    }
    for aggregate in home.aggregates.values() {
        let mut rebuilt = schema::UserAggregate::clone(aggregate);
        for ty in rebuilt.arguments.iter_mut().chain([&mut rebuilt.state_type, &mut rebuilt.returns]) {
            *ty = updated(ty, &all);
        }
        if rebuilt != **aggregate {
            edits.push(SchemaEdit::PutAggregate(rebuilt));
        }
    }
    Ok(edits)
}

fn updated_type(ty: &UserType, changed: &[Arc<UserType>]) -> Result<UserType> {
    let mut budget = TypeBudget::of_type();
    let mut fields = Vec::with_capacity(ty.fields.len());
    for (name, field) in &ty.fields {
        let field = updated(field, changed);
        budget.take(&field, &ty.name)?;
        fields.push((name.clone(), field));
    }
    Ok(UserType { keyspace: ty.keyspace.clone(), name: ty.name.clone(), fields })
}

fn updated(ty: &CqlType, changed: &[Arc<UserType>]) -> CqlType {
    changed.iter().fold(ty.clone(), |ty, changed| ty.with_updated_udt(changed).unwrap_or(ty))
}

pub(super) fn drop(ast: &DropType, context: &DdlContext<'_>) -> Result<Outcome> {
    let keyspace = keyspace_of(&ast.name, context.keyspace)?;
    let name = &ast.name.name;
    check_not_system(context, keyspace)?;
    let home = context.lookup.schema.keyspace(keyspace).filter(|home| home.types.contains_key(name));
    let Some(home) = home else {
        if ast.if_exists {
            return Ok(Outcome::nothing());
        }
        return invalid!("Type '{keyspace}.{name}' doesn't exist");
    };
    let functions = home.functions.values().filter(|one| one.references_udt(keyspace, name));
    let aggregates = home.aggregates.values().filter(|one| one.references_udt(keyspace, name));
    let functions: Vec<String> = functions
        .map(|one| &one.name)
        .chain(aggregates.map(|one| &one.name))
        .map(|one| format!("{keyspace}.{one}"))
        .collect();
    if !functions.is_empty() {
        return invalid!(
            "Cannot drop user type '{keyspace}.{name}' as it is still used by functions {}",
            functions.join(", ")
        );
    }
    let uses = |ty: &CqlType| ty.references_udt(keyspace, name);
    let types: Vec<&str> = home
        .types
        .values()
        .filter(|ty| ty.fields.iter().any(|(_, field)| uses(field)))
        .map(|ty| ty.name.as_str())
        .collect();
    if !types.is_empty() {
        return invalid!(
            "Cannot drop user type '{keyspace}.{name}' as it is still used by user types {}",
            types.join(", ")
        );
    }
    let tables: Vec<&str> = home
        .tables
        .values()
        .filter(|table| table.columns().iter().any(|column| uses(&column.ty)))
        .map(|table| table.name.as_str())
        .collect();
    if !tables.is_empty() {
        return invalid!(
            "Cannot drop user type '{keyspace}.{name}' as it is still used by tables {}",
            tables.join(", ")
        );
    }
    let mut outcome = type_outcome(ChangeType::Dropped, keyspace, name);
    outcome.edits.push(SchemaEdit::DropType { keyspace: keyspace.to_owned(), name: name.clone() });
    Ok(outcome)
}
