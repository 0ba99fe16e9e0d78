//! CREATE FUNCTION and CREATE AGGREGATE, with Cassandra's checks and texts.

use cluster::SchemaEdit;
use cql::ast::{CreateAggregate, CreateFunction, DataType};
use schema::{Keyspace, Signature, UserAggregate, UserFunction};
use types::CqlType;

use super::objects::{home, unfrozen};
use super::{DdlContext, Outcome};
use crate::error::{ExecError, Result, config, invalid};
use crate::expr::calls::check_enabled;
use crate::expr::constant::constant_of;
use crate::sink::{ChangeType, SchemaTarget};

/// The most arguments of a function: more are more than Lua has variables for.
const ARGUMENTS_MAX: usize = 127;
/// The longest name of a function.
const NAME_LEN_MAX: usize = 222;

fn check_size(keyspace: &str, name: &str, arguments: usize) -> Result<()> {
    if name.is_empty() || name.len() > NAME_LEN_MAX {
        return invalid!(
            "The name of function '{keyspace}.{name}' has {} bytes: 1 to {NAME_LEN_MAX} are allowed",
            name.len()
        );
    }
    if arguments > ARGUMENTS_MAX {
        return invalid!(
            "Function '{keyspace}.{name}' has {arguments} arguments: at most {ARGUMENTS_MAX} are allowed"
        );
    }
    Ok(())
}

fn check_clauses(or_replace: bool, if_not_exists: bool) -> Result<()> {
    match or_replace && if_not_exists {
        true => invalid!("Cannot use both 'OR REPLACE' and 'IF NOT EXISTS' directives"),
        false => Ok(()),
    }
}

fn existing_home<'k>(keyspace: &str, home: Option<&'k Keyspace>) -> Result<&'k Keyspace> {
    match home {
        Some(home) => Ok(home),
        None => invalid!("Keyspace '{keyspace}' doesn't exist"),
    }
}

/// Whether a result of one type can stand where one of the other stood.
fn is_compatible(new: &CqlType, old: &CqlType) -> bool {
    new.freeze() == old.freeze()
}

pub(super) fn create_function(ast: &CreateFunction, context: &DdlContext<'_>) -> Result<Outcome> {
    let (keyspace, home) = home(&ast.name, context)?;
    let name = &ast.name.name;
    check_clauses(ast.or_replace, ast.if_not_exists)?;
    check_enabled(context.functions)?;
    check_size(keyspace, name, ast.args.len())?;
    let names: Vec<&str> = ast.args.iter().map(|(name, _)| name.name.as_str()).collect();
    if names.iter().enumerate().any(|(at, name)| names[..at].contains(name)) {
        return invalid!(
            "Duplicate argument names for given function {} with argument names [{}]",
            if ast.name.keyspace.is_some() { format!("{keyspace}.{name}") } else { name.clone() },
            names.join(", ")
        );
    }
    let home = existing_home(keyspace, home)?;
    let argument = |(name, ty): &(cql::ast::Ident, DataType)| {
        Ok((name.name.clone(), unfrozen("Argument", ty, keyspace, context)?))
    };
    let arguments = ast.args.iter().map(argument).collect::<Result<Vec<_>>>()?;
    let function = UserFunction {
        keyspace: keyspace.to_owned(),
        name: name.clone(),
        arguments,
        returns: unfrozen("Return type", &ast.returns, keyspace, context)?,
        called_on_null_input: ast.called_on_null_input,
        language: ast.language.clone(),
        body: ast.body.clone(),
    };
    udf::language(&ast.language).map_err(|error| ExecError::Invalid(error.0))?;
    let signature = function.signature();
    if home.aggregates.contains_key(&signature) {
        return invalid!("Function '{keyspace}.{name}' cannot replace an aggregate");
    }
    let existing = home.functions.get(&signature);
    if let Some(existing) = existing {
        if ast.if_not_exists {
            return Ok(Outcome::nothing());
        }
        if !ast.or_replace {
            return invalid!("Function '{keyspace}.{name}' already exists");
        }
        if existing.called_on_null_input != function.called_on_null_input {
            let directive = match existing.called_on_null_input {
                true => "CALLED ON NULL INPUT",
                false => "RETURNS NULL ON NULL INPUT",
            };
            return invalid!("Function '{keyspace}.{name}' must have {directive} directive");
        }
        if !is_compatible(&function.returns, &existing.returns) {
            return invalid!(
                "Cannot replace function '{keyspace}.{name}', the new return type {} is not compatible with the return \
                 type {} of existing function",
                function.returns.cql_name_unfrozen(),
                existing.returns.cql_name_unfrozen()
            );
        }
    }
    udf::check(&function, context.functions).map_err(|error| ExecError::Invalid(error.0))?;
    let change = if existing.is_some() { ChangeType::Updated } else { ChangeType::Created };
    let target = SchemaTarget::Function { name: signature.name, arguments: signature.arguments };
    let mut outcome = Outcome::new(change, keyspace, target);
    outcome.edits.push(SchemaEdit::PutFunction(function));
    Ok(outcome)
}

/// `f(int, text)` as a statement about an aggregate names its functions.
fn shown(keyspace: &str, name: &str, types: &[&DataType]) -> String {
    let types: Vec<String> = types.iter().map(|ty| crate::type_name::text(ty)).collect();
    format!("{keyspace}.{name}({})", types.join(", "))
}

/// A function of an aggregate.
fn part<'k>(
    what: &str,
    home: &'k Keyspace,
    (name, types): (&str, &[&CqlType]),
    shown: &str,
) -> Result<&'k UserFunction> {
    let signature = Signature::new(name, types.iter().copied());
    if home.aggregates.contains_key(&signature) {
        return invalid!("{what} function {shown} isn't a scalar function");
    }
    match home.functions.get(&signature) {
        Some(function) => Ok(function),
        None => invalid!("{what} function {shown} doesn't exist"),
    }
}

pub(super) fn create_aggregate(ast: &CreateAggregate, context: &DdlContext<'_>) -> Result<Outcome> {
    let (keyspace, home) = home(&ast.name, context)?;
    let name = &ast.name.name;
    check_clauses(ast.or_replace, ast.if_not_exists)?;
    check_enabled(context.functions)?;
    check_size(keyspace, name, ast.args.len())?;
    // Cassandra has other words for it than for functions.
    let Some(home) = home else { return config(format!("Keyspace {keyspace} doesn't exist")) };
    let argument = |ty: &DataType| unfrozen("Argument", ty, keyspace, context);
    let arguments = ast.args.iter().map(argument).collect::<Result<Vec<_>>>()?;
    let state_type = unfrozen("State type", &ast.state_type, keyspace, context)?;
    let state_text = shown(
        keyspace,
        &ast.state_function,
        &std::iter::once(&ast.state_type).chain(&ast.args).collect::<Vec<_>>(),
    );
    let state_types: Vec<&CqlType> = std::iter::once(&state_type).chain(&arguments).collect();
    let adds = part("State", home, (&ast.state_function, &state_types), &state_text)?;
    if !is_compatible(&adds.returns, &state_type) {
        return invalid!(
            "State function {state_text} return type must be the same as the first argument type - check STYPE, argument \
             and return types"
        );
    }
    if let Some(merges) = &ast.reduce_function {
        let text = shown(keyspace, merges, &[&ast.state_type; 2]);
        let merges = part("Reduce", home, (merges, &[&state_type; 2]), &text)?;
        if !is_compatible(&merges.returns, &state_type) {
            return invalid!(
                "Reduce function {text} return type must be the same as its argument types - check STYPE and return type"
            );
        }
    }
    let mut returns = adds.returns.clone();
    if let Some(end) = &ast.final_function {
        let text = shown(keyspace, end, &[&ast.state_type]);
        returns = part("Final", home, (end, &[&state_type]), &text)?.returns.clone();
    }
    let mut initial_condition = None;
    if let Some(term) = &ast.initial_condition {
        let value = constant_of(term, &state_type, "INITCOND", context.lookup.schema, keyspace)?;
        initial_condition = value.map(|value| state_type.format(&value));
    }
    if !adds.called_on_null_input && initial_condition.is_none() {
        return invalid!(
            "Cannot create aggregate '{keyspace}.{name}' without INITCOND because state function {keyspace}.{} does not \
             accept 'null' arguments",
            ast.state_function
        );
    }
    let aggregate = UserAggregate {
        keyspace: keyspace.to_owned(),
        name: name.clone(),
        arguments,
        state_function: ast.state_function.clone(),
        state_type,
        reduce_function: ast.reduce_function.clone(),
        final_function: ast.final_function.clone(),
        initial_condition,
        returns,
    };
    put_aggregate(ast, home, aggregate)
}

fn put_aggregate(ast: &CreateAggregate, home: &Keyspace, aggregate: UserAggregate) -> Result<Outcome> {
    let UserAggregate { keyspace, name, .. } = &aggregate;
    let signature = aggregate.signature();
    if home.functions.contains_key(&signature) {
        return invalid!("Aggregate '{keyspace}.{name}' cannot replace a function");
    }
    let existing = home.aggregates.get(&signature);
    if let Some(existing) = existing {
        if ast.if_not_exists {
            return Ok(Outcome::nothing());
        }
        if !ast.or_replace {
            return invalid!("Aggregate '{keyspace}.{name}' already exists");
        }
        if !is_compatible(&aggregate.returns, &existing.returns) {
            return invalid!(
                "Cannot replace aggregate '{keyspace}.{name}', the new return type {} isn't compatible with the return \
                 type {} of existing function",
                aggregate.returns.cql_name_unfrozen(),
                existing.returns.cql_name_unfrozen()
            );
        }
    }
    let change = if existing.is_some() { ChangeType::Updated } else { ChangeType::Created };
    let target = SchemaTarget::Aggregate { name: signature.name, arguments: signature.arguments };
    let mut outcome = Outcome::new(change, keyspace, target);
    outcome.edits.push(SchemaEdit::PutAggregate(aggregate));
    Ok(outcome)
}
