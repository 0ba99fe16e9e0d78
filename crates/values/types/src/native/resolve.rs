//! Choosing the overload of a call: an exact match, else the only one that the arguments can be assigned to.

use super::argument::Argument;
use super::operator::Operator;
use super::{Function, FunctionError, signatures};
use crate::{Assignment, CqlType};

/// The native function that a call by name means; `None` when no native function has the name. `receiver` is the type
/// that the place of the call wants, if it wants one.
///
/// # Errors
/// [`FunctionError::Invalid`] when functions of the name exist and none takes the arguments, or several do.
pub fn resolve(
    name: &str,
    arguments: &[&dyn Argument],
    receiver: Option<&CqlType>,
) -> Result<Option<Function>, FunctionError> {
    if let Some(function) = signatures::derived(name, arguments, receiver)? {
        check(&function, arguments)?;
        return Ok(Some(function));
    }
    let mut candidates = signatures::fixed(name);
    match candidates.len() {
        0 => Ok(None),
        1 => {
            let only = candidates.pop();
            if let Some(only) = &only {
                check(only, arguments)?;
            }
            Ok(only)
        }
        _ => best(name, candidates, arguments, receiver).map(Some),
    }
}

/// The function of `-argument`.
///
/// # Errors
/// [`FunctionError::Invalid`] when the argument is no number, or markers leave the type open.
pub fn resolve_negation(
    argument: &dyn Argument,
    receiver: Option<&CqlType>,
) -> Result<Function, FunctionError> {
    best("_negate", signatures::fixed("_negate"), &[argument], receiver)
}

/// The function of `left operator right`.
///
/// # Errors
/// [`FunctionError::Invalid`] when no operation takes operands of these types, or several do.
pub fn resolve_operator(
    operator: Operator,
    left: &dyn Argument,
    right: &dyn Argument,
    receiver: Option<&CqlType>,
) -> Result<Function, FunctionError> {
    let candidates = signatures::fixed(operator.function_name());
    best(operator.function_name(), candidates, &[left, right], receiver)
}

/// The function of `CAST(argument AS target)`; `None` when the argument is of the type already.
///
/// # Errors
/// [`FunctionError::Invalid`] when the type of the argument cannot be cast to `target`.
pub fn resolve_cast(argument: &dyn Argument, target: &CqlType) -> Result<Option<Function>, FunctionError> {
    if argument.known_type().as_ref() == Some(target) {
        return Ok(None);
    }
    let name = format!("cast_as_{}", target.cql_name());
    let candidates = signatures::fixed(&name);
    if candidates.is_empty() {
        let text = format!("{} cannot be cast to {}", argument.text(), target.cql_name());
        return Err(FunctionError::Invalid(text));
    }
    best(&format!("system.{name}"), candidates, &[argument], None).map(Some)
}

/// Checks the arguments of the only candidate.
fn check(function: &Function, arguments: &[&dyn Argument]) -> Result<(), FunctionError> {
    if arguments.len() != function.arguments.len() {
        return Err(function.wrong_number(arguments.len()));
    }
    for (i, (argument, ty)) in arguments.iter().zip(&function.arguments).enumerate() {
        if !argument.assignment(ty).is_assignable() {
            return Err(FunctionError::Invalid(format!(
                "Type error: {} cannot be passed as argument {i} of function {} of type {}",
                argument.text(),
                function.full_name(),
                ty.cql_name()
            )));
        }
    }
    Ok(())
}

fn best(
    name: &str,
    candidates: Vec<Function>,
    arguments: &[&dyn Argument],
    receiver: Option<&CqlType>,
) -> Result<Function, FunctionError> {
    let operator = Operator::ALL.into_iter().find(|operator| operator.function_name() == name);
    let text = |i: usize| arguments.get(i).map(|argument| argument.text()).unwrap_or_default();
    let mut compatible = Vec::new();
    for candidate in &candidates {
        if receiver.is_some_and(|receiver| !candidate.returns.assignment_to(receiver).is_assignable()) {
            continue;
        }
        match match_arguments(candidate, arguments) {
            Assignment::Exact => return Ok(candidate.clone()),
            Assignment::Weak => compatible.push(candidate),
            Assignment::None => {}
        }
    }
    if compatible.len() > 1
        && operator.is_some()
        && let Some(receiver) = receiver
        && !arguments.iter().any(|argument| argument.is_marker())
        && let Some(same) =
            compatible.iter().find(|candidate| candidate.arguments.iter().all(|ty| ty == receiver))
    {
        return Ok((*same).clone());
    }
    let message = match (compatible.len(), operator) {
        (1, _) => {
            if let Some(only) = compatible.pop() {
                return Ok(only.clone());
            }
            String::new()
        }
        (0, Some(operator)) => {
            format!(
                "the '{}' operation is not supported between {} and {}",
                operator.symbol(),
                text(0),
                text(1)
            )
        }
        (0, None) => format!(
            "Invalid call to function {}{name}, none of its type signatures match (known type signatures: {})",
            if name == "_negate" { "system." } else { "" },
            candidates.iter().map(Function::signature).collect::<Vec<_>>().join(", ")
        ),
        (_, Some(operator)) => format!(
            "Ambiguous '{}' operation with args {} and {}: use type hint to disambiguate, example '(int) ?'",
            operator.symbol(),
            text(0),
            text(1)
        ),
        (_, None) if name == "_negate" => "Ambiguous negation: use type casts to disambiguate".to_owned(),
        (_, None) => {
            let matching: Vec<String> = compatible.into_iter().map(Function::signature).collect();
            format!(
                "Ambiguous call to function {name} (can be matched by following signatures: {}): use type casts to \
                 disambiguate",
                matching.join(", ")
            )
        }
    };
    Err(FunctionError::Invalid(message))
}

fn match_arguments(candidate: &Function, arguments: &[&dyn Argument]) -> Assignment {
    if candidate.arguments.len() != arguments.len() {
        return Assignment::None;
    }
    Assignment::all(arguments.iter().zip(&candidate.arguments).map(|(argument, ty)| argument.assignment(ty)))
}
