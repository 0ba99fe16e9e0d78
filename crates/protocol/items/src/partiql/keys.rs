//! Which items a WHERE clause means, as far as its conditions on keys say.

use std::rc::Rc;

use crate::condition::{Comparison, Operand};
use crate::key_condition::{self, KeyAttribute, KeyCondition, RangeCondition, flipped};
use crate::{Condition, Item, Result, Value, invalid};

/// How the items of a SELECT are found. They are filtered by the whole condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Access {
    /// By one Query after the other.
    Queries(Vec<KeyCondition>),
    /// By a Scan.
    Scan,
}

/// A condition as the ones that all must hold.
fn conjuncts<'a>(condition: &'a Condition, into: &mut Vec<&'a Condition>) {
    match condition {
        Condition::And(all) => all.iter().for_each(|one| conjuncts(one, into)),
        other => into.push(other),
    }
}

/// The comparison of an attribute with a value.
fn comparison<'a>(condition: &'a Condition, name: &str) -> Option<(Comparison, &'a Rc<Value>)> {
    match condition {
        Condition::Compare(comparison, Operand::Path(path), Operand::Value(value))
            if path.is_top() && path.root == name =>
        {
            Some((*comparison, value))
        }
        Condition::Compare(comparison, Operand::Value(value), Operand::Path(path))
            if path.is_top() && path.root == name =>
        {
            Some((flipped(*comparison), value))
        }
        _ => None,
    }
}

fn equality<'a>(condition: &'a Condition, name: &str) -> Option<&'a Rc<Value>> {
    comparison(condition, name)
        .filter(|(comparison, _)| *comparison == Comparison::Eq)
        .map(|(_, value)| value)
}

fn check_type(value: &Value, key: KeyAttribute<'_>) -> Result<()> {
    if value.type_name() != key.1 {
        return invalid!(
            "Key attribute's data type should match its data type in table's schema: Key {}",
            key.0
        );
    }
    // Now it can only be that it is empty.
    key_condition::check_type(value, key)
}

/// The key of the one item that a condition means, and the rest of the condition; none when it does not name one.
///
/// # Errors
/// When a value does not have its key's type, or a key has two values.
pub fn item_key(
    condition: Option<&Condition>,
    keys: &[KeyAttribute<'_>],
) -> Result<Option<(Item, Option<Condition>)>> {
    let mut all = Vec::new();
    if let Some(condition) = condition {
        conjuncts(condition, &mut all);
    }
    let (mut item, mut rest) = (Item::new(), Vec::new());
    for condition in all {
        let found = keys.iter().find_map(|key| Some((key, equality(condition, key.0)?)));
        let Some((key, value)) = found else {
            rest.push(condition.clone());
            continue;
        };
        check_type(value, *key)?;
        if item.insert(key.0.to_owned(), (**value).clone()).is_some_and(|other| other != **value) {
            return invalid!(
                "Multiple conditions on same key {}. Only single item Update/Insert/Delete are supported",
                key.0
            );
        }
    }
    let rest = (!rest.is_empty()).then_some(Condition::And(rest));
    Ok((item.len() == keys.len()).then_some((item, rest)))
}

/// The access by which the items of a condition are found; `keys` are those of the table or index.
///
/// # Errors
/// When a value does not have its key's type.
pub fn access(
    condition: Option<&Condition>,
    hash: KeyAttribute<'_>,
    range: Option<KeyAttribute<'_>>,
) -> Result<Access> {
    let mut all = Vec::new();
    if let Some(condition) = condition {
        conjuncts(condition, &mut all);
    }
    let mut values: Vec<Rc<Value>> = Vec::new();
    for condition in &all {
        let found = match condition {
            Condition::In(Operand::Path(path), list) if path.is_top() && path.root == hash.0 => {
                let values = list.iter().map(|one| match one {
                    Operand::Value(value) => Some(value.clone()),
                    _ => None,
                });
                values.collect::<Option<Vec<_>>>().unwrap_or_default()
            }
            other => equality(other, hash.0).cloned().into_iter().collect(),
        };
        if !found.is_empty() {
            values = found;
            break;
        }
    }
    if values.is_empty() {
        return Ok(Access::Scan);
    }
    let mut range_condition = None;
    if let Some(range) = range {
        for condition in &all {
            let found = of_range(condition, range.0);
            if let Some(found) = &found {
                match found {
                    RangeCondition::Compare(_, value) | RangeCondition::BeginsWith(value) => {
                        check_type(value, range)?;
                    }
                    RangeCondition::Between(low, high) => {
                        check_type(low, range)?;
                        check_type(high, range)?;
                    }
                }
            }
            range_condition = range_condition.or(found);
        }
    }
    let mut queries: Vec<KeyCondition> = Vec::with_capacity(values.len());
    for value in values {
        check_type(&value, hash)?;
        if !queries.iter().any(|known| known.hash == value) {
            queries.push(KeyCondition { range: range_condition.clone(), ..KeyCondition::of_hash(value) });
        }
    }
    Ok(Access::Queries(queries))
}

fn of_range(condition: &Condition, name: &str) -> Option<RangeCondition> {
    let is_key =
        |operand: &Operand| matches!(operand, Operand::Path(path) if path.is_top() && path.root == name);
    match condition {
        Condition::Between(key, Operand::Value(low), Operand::Value(high)) if is_key(key) => {
            Some(RangeCondition::Between(low.clone(), high.clone()))
        }
        Condition::BeginsWith(key, Operand::Value(prefix)) if is_key(key) => {
            Some(RangeCondition::BeginsWith(prefix.clone()))
        }
        other => {
            let (comparison, value) = comparison(other, name)?;
            (comparison != Comparison::Ne).then(|| RangeCondition::Compare(comparison, value.clone()))
        }
    }
}
