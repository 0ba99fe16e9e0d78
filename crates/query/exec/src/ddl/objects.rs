//! DROP of functions, aggregates, indexes, materialized views and triggers: the objects and their dependents are looked up
//! in the schema. Statements that create them are refused until the objects work.

use cluster::SchemaEdit;
use cql::ast::{
    CreateTrigger, DataType, DropAggregate, DropFunction, DropIndex, DropTrigger, DropView, Ident,
    QualifiedName,
};
use schema::{Keyspace, Signature, Table};
use types::CqlType;

use super::{DdlContext, Outcome};
use crate::error::{Result, invalid, shown};
use crate::lookup::keyspace_of;
use crate::sink::{ChangeType, SchemaTarget};

/// The keyspace of an object, which users may change; none when there is no such keyspace.
pub(super) fn home<'a>(
    name: &'a QualifiedName,
    context: &'a DdlContext<'_>,
) -> Result<(&'a str, Option<&'a Keyspace>)> {
    let keyspace = keyspace_of(name, context.keyspace)?;
    let home = context.lookup.keyspace(keyspace).map(|home| &**home);
    if home.is_some_and(|home| home.system) {
        return invalid!("System keyspace '{keyspace}' is not user-modifiable");
    }
    Ok((keyspace, home))
}

/// The type of an argument, result or state, which is not written as frozen.
pub(super) fn unfrozen(
    what: &str,
    ty: &DataType,
    keyspace: &str,
    context: &DdlContext<'_>,
) -> Result<CqlType> {
    if let DataType::Frozen(inner) = ty
        && !matches!(**inner, DataType::Tuple(_))
    {
        let text = match &**inner {
            DataType::UserDefined(user) if user.keyspace.is_none() => {
                format!("frozen<{keyspace}.{}>", user.name)
            }
            _ => crate::type_name::text(ty),
        };
        return invalid!("{what} '{text}' cannot be frozen; remove frozen<> modifier from '{text}'");
    }
    crate::type_name::resolve(ty, context.lookup.schema, keyspace)
}

/// A function or aggregate as a DROP names it.
struct Named<'a> {
    /// FUNCTION or AGGREGATE.
    what: &'static str,
    keyspace: &'a str,
    name: &'a str,
    arguments: Option<Vec<CqlType>>,
}

impl<'a> Named<'a> {
    fn new(
        what: &'static str,
        (keyspace, name): (&'a str, &'a str),
        arguments: Option<&[DataType]>,
        context: &DdlContext<'_>,
    ) -> Result<Self> {
        let resolve = |ty: &DataType| unfrozen("Argument", ty, keyspace, context);
        let arguments =
            arguments.map(|types| types.iter().map(resolve).collect::<Result<Vec<_>>>()).transpose()?;
        Ok(Self { what, keyspace, name, arguments })
    }

    /// `ks.f`, or `ks.f(int, text)` where the types were written.
    fn shown(&self) -> String {
        let Self { keyspace, name, .. } = self;
        match &self.arguments {
            None => format!("{keyspace}.{name}"),
            Some(types) => {
                let types: Vec<String> = types.iter().map(CqlType::cql_name_unfrozen).collect();
                format!("{keyspace}.{name}({})", types.join(", "))
            }
        }
    }

    /// The one that is meant; none when there is no such object.
    fn find<'s>(&self, known: impl Iterator<Item = &'s Signature>) -> Result<Option<&'s Signature>> {
        let mut known = known.filter(|one| one.name == self.name);
        if let Some(types) = &self.arguments {
            let wanted = Signature::new(self.name, types);
            return Ok(known.find(|one| **one == wanted));
        }
        let first = known.next();
        if known.next().is_some() {
            let Self { what, name, .. } = self;
            return invalid!(
                "'DROP {what} {name}' matches multiple function definitions; specify the argument types by issuing a \
                 statement like 'DROP {what} {name} (type, type, ...)'. You can use cqlsh 'DESCRIBE {what} {name}' \
                 command to find all overloads"
            );
        }
        Ok(first)
    }
}

pub(super) fn drop_function(ast: &DropFunction, context: &DdlContext<'_>) -> Result<Outcome> {
    let (keyspace, home) = home(&ast.name, context)?;
    let named = Named::new("FUNCTION", (keyspace, &ast.name.name), ast.args.as_deref(), context)?;
    let found = home.map(|home| named.find(home.functions.keys())).transpose()?.flatten();
    let (Some(home), Some(signature)) = (home, found) else {
        return missing(ast.if_exists, format!("Function '{}' doesn't exist", named.shown()));
    };
    let callers: Vec<String> = home
        .aggregates
        .values()
        .filter(|aggregate| aggregate.calls(signature))
        .map(|aggregate| format!("{keyspace}.{}", aggregate.name))
        .collect();
    if !callers.is_empty() {
        return invalid!(
            "Function '{}' is still referenced by aggregates {}",
            named.shown(),
            callers.join(", ")
        );
    }
    let function = &home.functions[signature];
    let masks = |table: &&std::sync::Arc<Table>| {
        table
            .masked_columns()
            .any(|column| column.mask.as_deref().is_some_and(|mask| mask.calls(function, &column.ty)))
    };
    let masked: Vec<&str> = home.tables.values().filter(masks).map(|table| table.name.as_str()).collect();
    if !masked.is_empty() {
        return invalid!(
            "Function '{}' is still referenced by column masks in tables {}",
            named.shown(),
            masked.join(", ")
        );
    }
    let target =
        SchemaTarget::Function { name: signature.name.clone(), arguments: signature.arguments.clone() };
    let mut outcome = Outcome::new(ChangeType::Dropped, keyspace, target);
    let (keyspace, signature) = (keyspace.to_owned(), signature.clone());
    outcome.edits.push(SchemaEdit::DropFunction { keyspace, signature });
    Ok(outcome)
}

pub(super) fn drop_aggregate(ast: &DropAggregate, context: &DdlContext<'_>) -> Result<Outcome> {
    let (keyspace, home) = home(&ast.name, context)?;
    let named = Named::new("AGGREGATE", (keyspace, &ast.name.name), ast.args.as_deref(), context)?;
    let found = home.map(|home| named.find(home.aggregates.keys())).transpose()?.flatten();
    let Some(signature) = found else {
        return missing(ast.if_exists, format!("Aggregate '{}' doesn't exist", named.shown()));
    };
    let target =
        SchemaTarget::Aggregate { name: signature.name.clone(), arguments: signature.arguments.clone() };
    let mut outcome = Outcome::new(ChangeType::Dropped, keyspace, target);
    let (keyspace, signature) = (keyspace.to_owned(), signature.clone());
    outcome.edits.push(SchemaEdit::DropAggregate { keyspace, signature });
    Ok(outcome)
}

pub(super) fn drop_index(ast: &DropIndex, context: &DdlContext<'_>) -> Result<Outcome> {
    let (keyspace, home) = home(&ast.name, context)?;
    let name = &ast.name.name;
    let Some((table, _)) = home.and_then(|home| home.index(name)) else {
        // With the quotation mark that Cassandra's text ends in.
        return missing(ast.if_exists, format!("Index '{keyspace}.{name}' doesn't exist'"));
    };
    let mut outcome = Outcome::new(ChangeType::Updated, keyspace, SchemaTarget::Table(table.name.clone()));
    let mut builder = table.to_builder();
    builder.indexes.remove(name);
    let changed = builder.build().expect("columns are as they were");
    outcome.edits.push(SchemaEdit::PutTable(changed));
    let stores = |derivation: &schema::Derivation| matches!(derivation, schema::Derivation::Index { base, index } if *base == table.id && index == name);
    let storage = home
        .into_iter()
        .flat_map(|home| home.tables.values())
        .filter(|table| table.derivation.as_ref().is_some_and(stores));
    outcome.edits.extend(storage.map(|table| super::table::drop_edit(table)));
    Ok(outcome)
}

pub(super) fn drop_view(ast: &DropView, context: &DdlContext<'_>) -> Result<Outcome> {
    let (keyspace, home) = home(&ast.name, context)?;
    let name = &ast.name.name;
    let view = home.and_then(|home| home.tables.get(name)).filter(|table| table.is_view());
    let Some(view) = view else {
        return missing(ast.if_exists, format!("Materialized view '{keyspace}.{name}' doesn't exist"));
    };
    let mut outcome = Outcome::new(ChangeType::Dropped, keyspace, SchemaTarget::Table(name.clone()));
    outcome.edits.push(super::table::drop_edit(view));
    Ok(outcome)
}

/// Triggers are classes of Java, of which there are none here: the class cannot be loaded, as Cassandra says of one that is missing.
pub(super) fn create_trigger(ast: &CreateTrigger, context: &DdlContext<'_>) -> Result<Outcome> {
    let (keyspace, home) = home(&ast.table, context)?;
    let table_name = &ast.table.name;
    match home.and_then(|home| home.tables.get(table_name)) {
        None => invalid!("Table '{keyspace}.{table_name}' doesn't exist"),
        Some(table) if table.is_view() => {
            invalid!("Cannot CREATE TRIGGER for a materialized view")
        }
        Some(_) => invalid!("Trigger class '{}' couldn't be loaded", shown(&ast.class)),
    }
}

pub(super) fn drop_trigger(ast: &DropTrigger, context: &DdlContext<'_>) -> Result<Outcome> {
    let (keyspace, home) = home(&ast.table, context)?;
    let (Ident { name, .. }, table_name) = (&ast.name, &ast.table.name);
    let table = home.and_then(|home| home.tables.get(table_name));
    let Some(table) = table.filter(|table| table.triggers.contains_key(name)) else {
        return missing(
            ast.if_exists,
            format!("Trigger '{name}' on '{keyspace}.{table_name}' doesn't exist"),
        );
    };
    let mut outcome = Outcome::new(ChangeType::Updated, keyspace, SchemaTarget::Table(table_name.clone()));
    let mut builder = table.to_builder();
    builder.triggers.remove(name);
    outcome.edits.push(SchemaEdit::PutTable(builder.build().expect("columns are as they were")));
    Ok(outcome)
}

fn missing(if_exists: bool, text: String) -> Result<Outcome> {
    if if_exists { Ok(Outcome::nothing()) } else { invalid!("{text}") }
}
