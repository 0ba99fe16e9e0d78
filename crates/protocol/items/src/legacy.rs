//! The parameters of before expressions, as the expressions that they stand for: `Expected`, `QueryFilter`, `ScanFilter`,
//! `KeyConditions`, `AttributeUpdates` and `AttributesToGet`.

use std::rc::Rc;

use serde_json::{Map, Value as Json};

use crate::check;
use crate::condition::{Comparison, Condition, Operand};
use crate::key_condition::RangeCondition;
use crate::path::meeting;
use crate::update::{Add, SetValue};
use crate::{Path, Projection, Result, Update, Value, invalid, json};

const WRONG: &str = "One or more parameter values were invalid:";
const OPERATORS: &str =
    "IN, NULL, BETWEEN, LT, NOT_CONTAINS, EQ, GT, NOT_NULL, NE, LE, BEGINS_WITH, GE, CONTAINS";

/// Conditions on an item, and values of one IN, at most: as many as an expression may have.
const CONDITIONS_MAX: usize = 300;
const IN_VALUES_MAX: usize = 100;

/// Refuses more conditions than an expression could have: each item of a page is compared with all.
fn check_count(conditions: &Map<String, Json>) -> Result<()> {
    match conditions.len() {
        count if count > CONDITIONS_MAX => {
            invalid!("{WRONG} {count} conditions were given, and {CONDITIONS_MAX} are allowed")
        }
        _ => Ok(()),
    }
}

/// A comparison with its values, checked against each other.
struct Test {
    operator: String,
    values: Vec<Rc<Value>>,
}

fn values(list: &Json) -> Result<Vec<Rc<Value>>> {
    json::read_list(list)?.iter().map(|value| json::read_value(value).map(Rc::new)).collect()
}

/// The `ComparisonOperator` of a condition.
fn operator<'a>(parameter: &str, name: &str, fields: &'a Map<String, Json>) -> Result<&'a str> {
    let Some(operator) = fields.get("ComparisonOperator").filter(|operator| !operator.is_null()) else {
        return invalid!(
            "1 validation error detected: Value null at '{parameter}.{name}.member.comparisonOperator' failed to satisfy \
             constraint: Member must not be null"
        );
    };
    let operator = json::read_string(operator)?;
    if !OPERATORS.split(", ").any(|known| known == operator) {
        return invalid!(
            "1 validation error detected: Value '{operator}' at '{parameter}.{name}.member.comparisonOperator' failed to \
             satisfy constraint: Member must satisfy enum value set: [{OPERATORS}]"
        );
    }
    Ok(operator)
}

fn test(parameter: &str, name: &str, fields: &Map<String, Json>, values: Vec<Rc<Value>>) -> Result<Test> {
    let operator = operator(parameter, name, fields)?;
    let fits = match operator {
        "NULL" | "NOT_NULL" => values.is_empty(),
        "IN" => (1..=IN_VALUES_MAX).contains(&values.len()),
        "BETWEEN" => values.len() == 2,
        _ => values.len() == 1,
    };
    if !fits {
        return invalid!("{WRONG} Invalid number of argument(s) for the {operator} ComparisonOperator");
    }
    let allowed = |value: &Value| match operator {
        "LT" | "LE" | "GT" | "GE" | "BETWEEN" | "IN" => value.is_ordered(),
        "BEGINS_WITH" => matches!(value, Value::S(_) | Value::B(_)),
        "CONTAINS" | "NOT_CONTAINS" => {
            !matches!(value, Value::Ss(_) | Value::Ns(_) | Value::Bs(_) | Value::L(_) | Value::M(_))
        }
        _ => true,
    };
    if let Some(value) = values.iter().find(|value| !allowed(value)) {
        return invalid!(
            "{WRONG} ComparisonOperator {operator} is not valid for {} AttributeValue type",
            value.type_name()
        );
    }
    if operator == "IN"
        && values.windows(2).any(|pair| matches!(pair, [a, b] if a.type_name() != b.type_name()))
    {
        return invalid!("{WRONG} AttributeValues inside AttributeValueList must be of same type");
    }
    if let ("BETWEEN", [low, high]) = (operator, values.as_slice()) {
        if low.type_name() != high.type_name() {
            return invalid!("{WRONG} AttributeValues inside AttributeValueList must be of same type");
        }
        let (low, high) = (Operand::Value(low.clone()), Operand::Value(high.clone()));
        if check::bounds(&low, &high).is_some() {
            return invalid!(
                "The BETWEEN condition was provided a range where the lower bound is greater than the upper bound"
            );
        }
    }
    Ok(Test { operator: operator.to_owned(), values })
}

fn comparison(operator: &str) -> Option<Comparison> {
    Some(match operator {
        "EQ" => Comparison::Eq,
        "NE" => Comparison::Ne,
        "LT" => Comparison::Lt,
        "LE" => Comparison::Le,
        "GT" => Comparison::Gt,
        "GE" => Comparison::Ge,
        _ => return None,
    })
}

impl Test {
    fn condition(self, name: &str) -> Condition {
        let path = Path::top(name);
        let place = Operand::Path(path.clone());
        let mut values = self.values.into_iter();
        let not = |condition| Condition::Not(Box::new(condition));
        let mut next = || Operand::Value(values.next().unwrap_or_else(|| Rc::new(Value::Null)));
        match self.operator.as_str() {
            "NULL" => not(Condition::Exists(path)),
            "NOT_NULL" => Condition::Exists(path),
            "IN" => Condition::In(place, values.map(Operand::Value).collect()),
            "BETWEEN" => Condition::Between(place, next(), next()),
            "BEGINS_WITH" => Condition::BeginsWith(place, next()),
            "CONTAINS" => Condition::Contains(place, next()),
            "NOT_CONTAINS" => {
                Condition::And(vec![Condition::Exists(path), not(Condition::Contains(place, next()))])
            }
            other => Condition::Compare(comparison(other).unwrap_or(Comparison::Eq), place, next()),
        }
    }
}

fn fields_of(conditions: &Json) -> Result<Vec<(&String, &Map<String, Json>, Vec<Rc<Value>>)>> {
    let mut out = Vec::new();
    let conditions = json::read_map(conditions)?;
    check_count(conditions)?;
    for (name, fields) in conditions {
        json::check_name(name)?;
        let fields = json::read_map(fields)?;
        let list = fields.get("AttributeValueList").filter(|list| !list.is_null());
        out.push((name, fields, list.map_or_else(|| Ok(Vec::new()), values)?));
    }
    Ok(out)
}

fn joined(conditions: Vec<Condition>, is_or: bool) -> Condition {
    if is_or { Condition::Or(conditions) } else { Condition::And(conditions) }
}

/// `QueryFilter` and `ScanFilter`; `parameter` is the name with a small first letter, `is_or` whether the `ConditionalOperator` is `OR`.
///
/// # Errors
/// When they are not valid.
pub fn filter(parameter: &str, conditions: &Json, is_or: bool) -> Result<Condition> {
    let mut all = Vec::new();
    for (name, fields, values) in fields_of(conditions)? {
        all.push(test(parameter, name, fields, values)?.condition(name));
    }
    Ok(joined(all, is_or))
}

/// `KeyConditions`.
///
/// # Errors
/// When they are not valid.
pub fn key_conditions(conditions: &Json) -> Result<Vec<(String, RangeCondition)>> {
    let mut all = Vec::new();
    for (name, fields, values) in fields_of(conditions)? {
        let test = test("keyConditions", name, fields, values)?;
        let condition = match (test.operator.as_str(), test.values.as_slice()) {
            ("BETWEEN", [low, high]) => RangeCondition::Between(low.clone(), high.clone()),
            ("BEGINS_WITH", [value]) => RangeCondition::BeginsWith(value.clone()),
            ("EQ" | "LT" | "LE" | "GT" | "GE", [value]) => {
                RangeCondition::Compare(comparison(&test.operator).unwrap_or(Comparison::Eq), value.clone())
            }
            _ => return invalid!("Attempted conditional constraint is not an indexable operation"),
        };
        all.push((name.clone(), condition));
    }
    Ok(all)
}

/// `Expected`.
///
/// # Errors
/// When it is not valid.
pub fn expected(conditions: &Json, is_or: bool) -> Result<Condition> {
    let mut all = Vec::new();
    let conditions = json::read_map(conditions)?;
    check_count(conditions)?;
    for (name, fields) in conditions {
        json::check_name(name)?;
        let fields = json::read_map(fields)?;
        let field = |name: &str| fields.get(name).filter(|value| !value.is_null());
        let value = field("Value").map(json::read_value).transpose()?.map(Rc::new);
        let exists = field("Exists").map(json::read_bool).transpose()?;
        let list = field("AttributeValueList").map(values).transpose()?;
        let condition = if field("ComparisonOperator").is_some() {
            if exists.is_some() {
                return invalid!(
                    "{WRONG} Exists and ComparisonOperator cannot be used together for Attribute: {name}"
                );
            }
            if value.is_some() && list.is_some() {
                return invalid!(
                    "{WRONG} Value and AttributeValueList cannot be used together for Attribute: {name}"
                );
            }
            let operator = operator("expected", name, fields)?;
            if value.is_none() && list.is_none() && !matches!(operator, "NULL" | "NOT_NULL") {
                return invalid!(
                    "{WRONG} Value or AttributeValueList must be used with ComparisonOperator: {operator} for Attribute: \
                     {name}"
                );
            }
            let values = list.unwrap_or_else(|| value.into_iter().collect());
            test("expected", name, fields, values)?.condition(name)
        } else if list.is_some() {
            return invalid!(
                "{WRONG} AttributeValueList can only be used with a ComparisonOperator for Attribute: {name}"
            );
        } else {
            match (exists, value) {
                (None | Some(true), Some(value)) => {
                    Condition::Compare(Comparison::Eq, Operand::Path(Path::top(name)), Operand::Value(value))
                }
                (exists @ (None | Some(true)), None) => {
                    let exists = exists.map_or("null", |_| "true");
                    return invalid!(
                        "{WRONG} Value must be provided when Exists is {exists} for Attribute: {name}"
                    );
                }
                (Some(false), Some(_)) => {
                    return invalid!(
                        "{WRONG} Value cannot be used when Exists is false for Attribute: {name}"
                    );
                }
                (Some(false), None) => Condition::Not(Box::new(Condition::Exists(Path::top(name)))),
            }
        };
        all.push(condition);
    }
    Ok(joined(all, is_or))
}

/// `AttributeUpdates`.
///
/// # Errors
/// When they are not valid.
pub fn updates(updates: &Json) -> Result<Update> {
    let mut out = Update { is_legacy: true, ..Update::default() };
    for (name, fields) in json::read_map(updates)? {
        json::check_name(name)?;
        let fields = json::read_map(fields)?;
        let field = |name: &str| fields.get(name).filter(|value| !value.is_null());
        let value = field("Value").map(json::read_value).transpose()?.map(Rc::new);
        let action = field("Action").map(json::read_string).transpose()?.unwrap_or("PUT");
        let path = Path::top(name);
        match (action, value) {
            ("PUT", Some(value)) => out.set.push((path, SetValue::Value(value))),
            ("DELETE", None) => out.remove.push(path),
            ("PUT" | "ADD", None) => {
                return invalid!(
                    "{WRONG} Only DELETE action is allowed when no attribute value is specified"
                );
            }
            ("ADD", Some(value)) => match &*value {
                Value::N(_) | Value::Ss(_) | Value::Ns(_) | Value::Bs(_) => out.add.push(Add { path, value }),
                Value::L(_) => {
                    let empty = SetValue::Value(Rc::new(Value::L(Vec::new())));
                    let old = SetValue::IfNotExists(path.clone(), Box::new(empty));
                    let more = SetValue::Value(value);
                    out.set.push((path, SetValue::ListAppend(Box::new(old), Box::new(more))));
                }
                other => {
                    return invalid!(
                        "{WRONG} ADD action is not supported for the type {}",
                        other.type_name()
                    );
                }
            },
            ("DELETE", Some(value)) => match &*value {
                Value::Ss(_) | Value::Ns(_) | Value::Bs(_) => out.delete.push(Add { path, value }),
                other => {
                    return invalid!(
                        "{WRONG} DELETE action with value is not supported for the type {}",
                        other.type_name()
                    );
                }
            },
            (other, _) => {
                return invalid!(
                    "1 validation error detected: Value '{other}' at 'attributeUpdates.{name}.member.action' failed to \
                     satisfy constraint: Member must satisfy enum value set: [ADD, PUT, DELETE]"
                );
            }
        }
    }
    Ok(out)
}

/// `AttributesToGet`.
///
/// # Errors
/// When it is not valid.
pub fn attributes_to_get(names: &Json) -> Result<Projection> {
    let mut paths = Vec::new();
    for name in json::read_list(names)? {
        let name = json::read_string(name)?;
        json::check_name(name)?;
        paths.push(Path::top(name));
    }
    if paths.is_empty() {
        return invalid!(
            "1 validation error detected: Value '[]' at 'attributesToGet' failed to satisfy constraint: Member must have \
             length greater than or equal to 1"
        );
    }
    if meeting(&paths.iter().collect::<Vec<_>>()).is_some() {
        return invalid!("{WRONG} Duplicate value in attribute name: {}", duplicate(&paths));
    }
    Ok(Projection::new(&paths))
}

fn duplicate(paths: &[Path]) -> &str {
    let mut seen = std::collections::BTreeSet::new();
    paths.iter().find(|path| !seen.insert(*path)).map_or("", |path| path.root.as_str())
}
