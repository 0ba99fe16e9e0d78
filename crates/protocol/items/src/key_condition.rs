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

impl RangeCondition {
    /// The values that keys are compared with.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        let (first, second) = match self {
            Self::Compare(_, value) | Self::BeginsWith(value) => (value, None),
            Self::Between(low, high) => (low, Some(high)),
        };
        std::iter::once(&**first).chain(second.map(|value| &**value))
    }
}

/// The condition of a Query on its keys.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyCondition {
    /// The value of the hash key.
    pub hash: Rc<Value>,
    /// The condition on the range key, if any.
    pub range: Option<RangeCondition>,
    /// The conditions on the further attributes of the keys of an index that has several.
    pub further: Vec<(String, RangeCondition)>,
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
        Self::of_parts(Self::parts(text, substitutions)?, hash, range)
    }

    /// The conditions of attributes that a `KeyConditionExpression` has.
    ///
    /// # Errors
    /// When it is not valid, or has conditions that no key can have.
    pub fn parts(text: &str, substitutions: &Substitutions) -> Result<Vec<(String, RangeCondition)>> {
        let condition = Condition::parse(text, WHAT, substitutions)?;
        let mut parts = Vec::new();
        flatten(&condition, &mut parts)?;
        Ok(parts)
    }

    /// All rows of a hash key.
    pub fn of_hash(hash: Rc<Value>) -> Self {
        Self { hash, range: None, further: Vec::new() }
    }

    /// The condition that these conditions of attributes are, of an index with several attributes in its keys: each of the hash key has one value, and
    /// those of the range key have conditions from the first on, of which only the last may be another than equality.
    ///
    /// # Errors
    /// When they are no condition of these keys.
    pub fn of_attributes(
        mut parts: Vec<(String, RangeCondition)>,
        hashes: &[KeyAttribute<'_>],
        ranges: &[KeyAttribute<'_>],
    ) -> Result<Self> {
        let mut found = Vec::new();
        for key in hashes.iter().chain(ranges) {
            let at = parts.iter().position(|(name, _)| name == key.0);
            found.push(at.map(|at| parts.remove(at).1));
        }
        if let Some((name, _)) = parts.first() {
            if hashes.iter().chain(ranges).any(|key| key.0 == name) {
                return invalid!(
                    "Invalid {WHAT}: KeyConditionExpressions must only contain one condition per key"
                );
            }
            return invalid!("Query key condition not supported");
        }
        let of_ranges = found.split_off(hashes.len());
        let given = of_ranges.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        let mut all = Vec::new();
        let needed = hashes.iter().zip(found).chain(ranges.iter().zip(of_ranges).take(given));
        for (at, (key, condition)) in needed.enumerate() {
            let Some(condition) = condition else {
                return invalid!("Query condition missed key schema element: {}", key.0);
            };
            let is_equality = matches!(condition, RangeCondition::Compare(Comparison::Eq, _));
            if !is_equality && at + 1 != hashes.len() + given || !is_equality && at < hashes.len() {
                return invalid!("Query key condition not supported");
            }
            check_condition(&condition, *key)?;
            all.push((key.0.to_owned(), condition));
        }
        let hash = match (all.is_empty(), hashes.first()) {
            (false, Some(_)) => all.remove(0).1,
            _ => return invalid!("Query key condition not supported"),
        };
        let RangeCondition::Compare(Comparison::Eq, hash) = hash else {
            return invalid!("Query key condition not supported");
        };
        Ok(Self { further: all, ..Self::of_hash(hash) })
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
            check_condition(condition, range)?;
        }
        Ok(Self { range: of_range, ..Self::of_hash(value) })
    }
}

/// Refuses a condition whose values a key cannot have.
fn check_condition(condition: &RangeCondition, key: KeyAttribute<'_>) -> Result<()> {
    match condition {
        RangeCondition::Compare(_, value) => check_type(value, key),
        RangeCondition::Between(low, high) => {
            check_type(low, key)?;
            check_type(high, key)
        }
        RangeCondition::BeginsWith(value) => {
            check_type(value, key)?;
            if key.1 == "N" {
                return invalid!(
                    "Invalid {WHAT}: Incorrect operand type for operator or function; operator or function: \
                     begins_with, operand type: N"
                );
            }
            Ok(())
        }
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
