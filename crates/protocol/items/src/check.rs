//! The errors of conditions that are well formed and mean nothing: operands of the wrong type, functions that there are not. Both
//! parsers of conditions ask here, so a text is without the name of the expression.

use std::cmp::Ordering;
use std::rc::Rc;

use crate::condition::{Comparison, Condition, Operand};
use crate::{Path, Value};

/// Operands of IN.
const IN_MAX: usize = 100;
/// Names of types, in the order in which messages have them.
const TYPES: [&str; 10] = ["B", "NULL", "SS", "BOOL", "L", "BS", "N", "NS", "S", "M"];

/// The type of a size.
const SIZE_TYPE: &str = "N";

/// A part of a condition: in brackets there may be either.
pub(crate) enum Node {
    Condition(Condition),
    Operand(Operand),
}

/// A value of a type that an operator or a function does not take.
pub(crate) fn operand_type(operator: &str, type_name: &str) -> String {
    format!(
        "Incorrect operand type for operator or function; operator or function: {operator}, operand type: {type_name}"
    )
}

fn ordered(operator: &str, operand: &Operand) -> Option<String> {
    match operand {
        Operand::Value(value) if !value.is_ordered() => Some(operand_type(operator, value.type_name())),
        _ => None,
    }
}

/// The error of a first operand that is one of the others, too.
pub(crate) fn distinct(operator: &str, left: &Operand, right: &Operand) -> Option<String> {
    (left == right && matches!(left, Operand::Path(_))).then(|| {
        format!(
            "The first operand must be distinct from the remaining operands for this operator or function; \
             operator: {operator}, first operand: {}",
            left.shown()
        )
    })
}

/// The error of a comparison.
pub(crate) fn comparison(comparison: Comparison, left: &Operand, right: &Operand) -> Option<String> {
    let symbol = comparison.symbol();
    let types = match comparison {
        Comparison::Eq | Comparison::Ne => None,
        _ => ordered(symbol, left).or_else(|| ordered(symbol, right)),
    };
    types.or_else(|| distinct(symbol, left, right))
}

/// The error of the operands of BETWEEN.
pub(crate) fn between(operand: &Operand, low: &Operand, high: &Operand) -> Option<String> {
    ordered("BETWEEN", operand).or_else(|| bounds(low, high))
}

/// The error of the bounds of BETWEEN.
pub(crate) fn bounds(low: &Operand, high: &Operand) -> Option<String> {
    if let Some(wrong) = ordered("BETWEEN", low).or_else(|| ordered("BETWEEN", high)) {
        return Some(wrong);
    }
    let (Operand::Value(a), Operand::Value(b)) = (low, high) else { return None };
    let wanted = if a.type_name() != b.type_name() {
        "same data type for lower and upper bounds"
    } else if a.order(b).is_some_and(Ordering::is_gt) {
        "upper bound to be greater than or equal to lower bound"
    } else {
        return None;
    };
    Some(format!(
        "The BETWEEN operator requires {wanted}; lower bound operand: {}, upper bound operand: {}",
        low.shown(),
        high.shown()
    ))
}

/// The error of the operands of IN.
pub(crate) fn list(all: &[Operand]) -> Option<String> {
    (all.len() > IN_MAX).then(|| {
        format!("The IN operator is provided with too many operands; number of operands: {}", all.len())
    })
}

/// A function of conditions, and the error in the call.
pub(crate) fn call(name: &str, arguments: Vec<Operand>) -> (Node, Option<String>) {
    let null = || Node::Operand(Operand::Value(Rc::new(Value::Null)));
    let nothing = || Node::Condition(Condition::And(Vec::new()));
    let wanted = match name {
        "size" | "attribute_exists" | "attribute_not_exists" => 1,
        "attribute_type" | "begins_with" | "contains" => 2,
        "if_not_exists" | "list_append" => {
            let text = format!("The function is not allowed in a condition expression; function: {name}");
            return (null(), Some(text));
        }
        _ => return (null(), Some(format!("Invalid function name; function: {name}"))),
    };
    let count = arguments.len();
    let mut arguments = arguments.into_iter();
    match (arguments.next(), arguments.next()) {
        (Some(first), None) if wanted == 1 => call_one(name, first),
        (Some(first), Some(second)) if wanted == 2 && count == 2 => call_two(name, first, second),
        _ => {
            let text = format!(
                "Incorrect number of operands for operator or function; operator or function: {name}, number of \
                 operands: {count}"
            );
            (nothing(), Some(text))
        }
    }
}

fn call_one(name: &str, operand: Operand) -> (Node, Option<String>) {
    if name == "size" {
        let wrong = match &operand {
            Operand::Value(value) if matches!(**value, Value::N(_) | Value::Bool(_) | Value::Null) => {
                Some(operand_type(name, value.type_name()))
            }
            Operand::Size(_) => Some(operand_type(name, SIZE_TYPE)),
            _ => None,
        };
        return (Node::Operand(Operand::Size(Box::new(operand))), wrong);
    }
    let (path, wrong) = match operand {
        Operand::Path(path) => (path, None),
        _ => {
            let text = format!("Operator or function requires a document path; operator or function: {name}");
            (Path::top(""), Some(text))
        }
    };
    let exists = Condition::Exists(path);
    let condition = if name == "attribute_exists" { exists } else { Condition::Not(Box::new(exists)) };
    (Node::Condition(condition), wrong)
}

fn call_two(name: &str, first: Operand, second: Operand) -> (Node, Option<String>) {
    match name {
        "attribute_type" => type_test(first, second),
        "contains" => {
            let wrong = distinct(name, &first, &second);
            (Node::Condition(Condition::Contains(first, second)), wrong)
        }
        _ => {
            let text = |operand: &Operand| match operand {
                Operand::Value(value) if !matches!(**value, Value::S(_) | Value::B(_)) => {
                    Some(operand_type(name, value.type_name()))
                }
                Operand::Size(_) => Some(operand_type(name, SIZE_TYPE)),
                _ => None,
            };
            let wrong = distinct(name, &first, &second).or_else(|| text(&first)).or_else(|| text(&second));
            (Node::Condition(Condition::BeginsWith(first, second)), wrong)
        }
    }
}

fn type_test(first: Operand, second: Operand) -> (Node, Option<String>) {
    let (name, wrong) = match second {
        Operand::Value(value) => {
            let wrong = match &*value {
                Value::S(name) if TYPES.contains(&name.as_str()) => None,
                Value::S(name) => Some(format!(
                    "Invalid attribute type name found; type: {name}, valid types: {{{}}}",
                    TYPES.join(",")
                )),
                other => Some(operand_type("attribute_type", other.type_name())),
            };
            (value, wrong)
        }
        _ => {
            let text = "Incorrect operand type for operator or function; operator or function: attribute_type, \
                        operand type: {NS,SS,L,BS,N,M,B,BOOL,NULL,S}";
            (Rc::new(Value::Null), Some(text.to_owned()))
        }
    };
    (Node::Condition(Condition::Type(first, name)), wrong)
}
