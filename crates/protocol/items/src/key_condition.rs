//! Which rows a Query reads: a hash key, and a range of the range key.

use std::rc::Rc;

use crate::condition::{Comparison, Condition, Operand};
use crate::expression::Substitutions;
use crate::{Path, Result, Value, invalid};

/// A condition on the range key.
#[derive(Clone, Debug, PartialEq)]
pub enum RangeCondition {
    /// A comparison; never `<>`.
    Compare(Comparison, Rc<Value>),
    /// From one value to another, both included.
    Between(Rc<Value>, Rc<Value>),
    /// Values that begin so.
    BeginsWith(Rc<Value>),
}

/// The condition of a Query on its keys.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyCondition {
    /// The value of the hash key.
    pub hash: Rc<Value>,
    /// The condition on the range key, if any.
    pub range: Option<RangeCondition>,
}

const WHAT: &str = "KeyConditionExpression";

/// The name and type of a key attribute.
pub type KeyAttribute<'a> = (&'a str, &'static str);

impl KeyCondition {
    /// Parses a `KeyConditionExpression` for a table with these keys.
    ///
    /// # Errors
    /// When it is not valid, or no condition of these keys.
    pub fn parse(
        text: &str,
        substitutions: &Substitutions,
        hash: KeyAttribute<'_>,
        range: Option<KeyAttribute<'_>>,
    ) -> Result<Self> {
        let condition = Condition::parse(text, WHAT, substitutions)?;
        let mut parts = Vec::new();
        flatten(&condition, &mut parts)?;
        Self::of_parts(parts, hash, range)
    }

    /// The condition that these conditions of attributes are.
    ///
    /// # Errors
    /// When they are no condition of these keys.
    pub fn of_parts(
        parts: Vec<(String, RangeCondition)>,
        hash: KeyAttribute<'_>,
        range: Option<KeyAttribute<'_>>,
    ) -> Result<Self> {
        let count = parts.len();
        let (mut of_hash, mut of_range) = (None, None);
        for (name, condition) in parts {
            let place = if name == hash.0 {
                &mut of_hash
            } else if range.is_some_and(|range| range.0 == name) {
                &mut of_range
            } else {
                let missed = if of_hash.is_none() { hash.0 } else { range.map_or(hash.0, |range| range.0) };
                if count > 2 {
                    return invalid!("Conditions can be of length 1 or 2 only");
                }
                match (of_hash.is_some(), range) {
                    (true, None) => return invalid!("Query key condition not supported"),
                    _ => return invalid!("Query condition missed key schema element: {missed}"),
                }
            };
            if place.is_some() {
                return invalid!(
                    "Invalid {WHAT}: KeyConditionExpressions must only contain one condition per key"
                );
            }
            *place = Some(condition);
        }
        let Some(of_hash) = of_hash else {
            return invalid!("Query condition missed key schema element: {}", hash.0);
        };
        let RangeCondition::Compare(Comparison::Eq, value) = of_hash else {
            return invalid!("Query key condition not supported");
        };
        check_type(&value, hash)?;
        if let (Some(condition), Some(range)) = (&of_range, range) {
            match condition {
                RangeCondition::Compare(_, value) => check_type(value, range)?,
                RangeCondition::Between(low, high) => {
                    check_type(low, range)?;
                    check_type(high, range)?;
                }
                RangeCondition::BeginsWith(value) => {
                    check_type(value, range)?;
                    if range.1 == "N" {
                        return invalid!(
                            "Invalid {WHAT}: Incorrect operand type for operator or function; operator or function: \
                             begins_with, operand type: N"
                        );
                    }
                }
            }
        }
        Ok(Self { hash: value, range: of_range })
    }
}

pub(crate) fn check_type(value: &Value, key: KeyAttribute<'_>) -> Result<()> {
    if value.type_name() != key.1 {
        return invalid!(
            "One or more parameter values were invalid: Condition parameter type does not match schema type"
        );
    }
    let empty = match value {
        Value::S(text) if text.is_empty() => "string",
        Value::B(bytes) if bytes.is_empty() => "binary",
        _ => return Ok(()),
    };
    invalid!(
        "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty \
         {empty} value. Key: {}",
        key.0
    )
}

fn flatten(condition: &Condition, into: &mut Vec<(String, RangeCondition)>) -> Result<()> {
    let operator = |name: &str| invalid!("Invalid {WHAT}: Invalid operator used in {WHAT}: {name}");
    let part = match condition {
        Condition::And(all) => {
            for one in all {
                flatten(one, into)?;
            }
            return Ok(());
        }
        Condition::Compare(Comparison::Ne, ..) => return operator("<>"),
        Condition::Compare(comparison, left, right) => match (left, right) {
            (Operand::Path(path), Operand::Value(value)) => {
                (top(path)?, RangeCondition::Compare(*comparison, value.clone()))
            }
            (Operand::Value(value), Operand::Path(path)) => {
                (top(path)?, RangeCondition::Compare(flipped(*comparison), value.clone()))
            }
            _ => return strange(&[left, right]),
        },
        Condition::Between(Operand::Path(path), Operand::Value(low), Operand::Value(high)) => {
            (top(path)?, RangeCondition::Between(low.clone(), high.clone()))
        }
        Condition::Between(a, b, c) => return strange(&[a, b, c]),
        Condition::BeginsWith(Operand::Path(path), Operand::Value(value)) => {
            (top(path)?, RangeCondition::BeginsWith(value.clone()))
        }
        Condition::BeginsWith(a, b) => return strange(&[a, b]),
        Condition::Or(_) => return operator("OR"),
        Condition::Not(one) => match &**one {
            Condition::Exists(_) => return operator("attribute_not_exists"),
            _ => return operator("NOT"),
        },
        Condition::In(..) => return operator("IN"),
        Condition::Exists(_) => return operator("attribute_exists"),
        Condition::Type(..) => return operator("attribute_type"),
        Condition::Contains(..) => return operator("contains"),
    };
    into.push(part);
    Ok(())
}

pub(crate) fn flipped(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Lt => Comparison::Gt,
        Comparison::Le => Comparison::Ge,
        Comparison::Gt => Comparison::Lt,
        Comparison::Ge => Comparison::Le,
        same => same,
    }
}

fn top(path: &Path) -> Result<String> {
    if !path.is_top() {
        return invalid!("Invalid {WHAT}: {WHAT}s cannot have conditions on nested attributes");
    }
    Ok(path.root.clone())
}

fn strange<T>(operands: &[&Operand]) -> Result<T> {
    if operands.iter().any(|operand| matches!(operand, Operand::Size(_))) {
        return invalid!("Invalid {WHAT}: Invalid operator used in {WHAT}: size");
    }
    let paths = operands.iter().filter(|operand| matches!(operand, Operand::Path(_))).count();
    if paths > 1 {
        return invalid!(
            "Invalid {WHAT}: Invalid condition in {WHAT}: Multiple attribute names used in one condition"
        );
    }
    invalid!("Invalid {WHAT}: Invalid condition in {WHAT}: No key attribute specified")
}
