//! Filters: what ALLOW FILTERING lets through, row by row.

use bytes::Bytes;
use cql::ast::ComparisonOperator;
use types::CqlType;
use types::elements::Elements;

use super::choice::Choice;
use crate::error::{Result, invalid};
use crate::expr::row::{ColumnRef, RowView};
use crate::expr::{Env, Expr, Value};

/// What a filter asks of its column.
#[derive(Clone, Debug)]
pub enum Test {
    /// A comparison.
    Compare(ComparisonOperator, Expr),
    /// `IN`
    In(Choice),
    /// `CONTAINS`
    Contains(Expr),
    /// `CONTAINS KEY`
    ContainsKey(Expr),
    /// `column[key] = value`
    Entry(Expr, Expr),
    /// `LIKE`
    Like(Expr),
}

/// The patterns of LIKE that an index answers.
#[derive(Debug, PartialEq, Eq)]
pub enum LikePattern {
    /// `abc`: the text itself.
    Whole(Bytes),
    /// `abc%`: texts that begin so.
    Prefix(Bytes),
}

impl LikePattern {
    /// A pattern on a column.
    pub fn parse(pattern: &Bytes, column: &str) -> Result<Self> {
        let refused = |form: &str, term: &[u8]| {
            let term = String::from_utf8_lossy(term);
            let shown = crate::ddl::options::shown(&term);
            invalid!("{column} LIKE '{form}' {shown} is only supported on properly indexed columns")
        };
        match &**pattern {
            [] | [b'%'] | [b'%', b'%'] => invalid!("LIKE value can't be empty."),
            [b'%', term @ .., b'%'] => refused("%<term>%", term),
            [b'%', term @ ..] => refused("%<term>", term),
            [prefix @ .., b'%'] => Ok(Self::Prefix(pattern.slice_ref(prefix))),
            _ => Ok(Self::Whole(pattern.clone())),
        }
    }
}

/// The value of a condition, which neither is null nor left out.
pub fn required(expr: &Expr, column: &str, env: &Env<'_>) -> Result<Bytes> {
    match expr.eval(env)? {
        Value::Set(bytes) => Ok(bytes),
        Value::Null => invalid!("Unsupported null value for column {column}"),
        Value::Unset => invalid!("Unsupported unset value for column {column}"),
    }
}

/// A condition on one column.
#[derive(Clone, Debug)]
pub struct Filter {
    /// The column.
    pub column: ColumnRef,
    /// Its name.
    pub name: String,
    /// The condition.
    pub test: Test,
}

/// A filter with its values, ready for many rows.
#[derive(Debug)]
pub struct BoundFilter<'a> {
    column: &'a ColumnRef,
    test: BoundTest,
}

#[derive(Debug)]
enum BoundTest {
    Compare(ComparisonOperator, Bytes),
    In(Vec<Bytes>),
    Contains(Bytes),
    ContainsKey(Bytes),
    Entry(Bytes, Bytes),
    Like(LikePattern),
}

impl Filter {
    /// Evaluates the values that the filter compares with.
    pub fn bind(&self, env: &Env<'_>) -> Result<BoundFilter<'_>> {
        let value = |expr: &Expr| required(expr, &self.name, env);
        let test = match &self.test {
            Test::Compare(operator, expr) => BoundTest::Compare(*operator, value(expr)?),
            Test::In(choice) => BoundTest::In(in_values(choice, &self.name, env, true)?),
            Test::Contains(expr) => BoundTest::Contains(value(expr)?),
            Test::ContainsKey(expr) => BoundTest::ContainsKey(value(expr)?),
            Test::Entry(key, expr) => BoundTest::Entry(value(key)?, value(expr)?),
            Test::Like(pattern) => BoundTest::Like(LikePattern::parse(&value(pattern)?, &self.name)?),
        };
        Ok(BoundFilter { column: &self.column, test })
    }
}

/// The values of `=` or `IN`. Nulls are refused, or left out where they match nothing anyway.
pub fn in_values(choice: &Choice, name: &str, env: &Env<'_>, skip_null: bool) -> Result<Vec<Bytes>> {
    let mut out = Vec::new();
    let mut push = |value: Value| match value {
        Value::Set(bytes) => {
            out.push(bytes);
            Ok(())
        }
        Value::Null if skip_null => Ok(()),
        Value::Null => invalid!("Invalid null value in condition for column {name}"),
        Value::Unset => invalid!("Invalid unset value for column {name}"),
    };
    match choice {
        Choice::One(expr) => push(expr.eval(env)?)?,
        Choice::List(exprs) => {
            for expr in exprs {
                push(expr.eval(env)?)?;
            }
        }
        Choice::Marker(expr) => match expr.eval(env)? {
            Value::Set(list) => {
                for element in Elements::of_list(&list)? {
                    push(element?.map(|element| list.slice_ref(element)).into())?;
                }
            }
            Value::Null => return invalid!("Invalid null value for column {name}"),
            Value::Unset => return invalid!("Invalid unset value for column {name}"),
        },
    }
    Ok(out)
}

impl BoundFilter<'_> {
    /// Whether a row passes. Null passes nothing.
    pub fn matches(&self, row: &RowView<'_>) -> bool {
        let Some(value) = row.value(self.column) else { return false };
        let ty = &self.column.ty;
        match &self.test {
            BoundTest::Compare(operator, other) => {
                let order = ty.compare(&value, other);
                match operator {
                    ComparisonOperator::Equal => order.is_eq(),
                    ComparisonOperator::NotEqual => order.is_ne(),
                    ComparisonOperator::Less => order.is_lt(),
                    ComparisonOperator::LessOrEqual => order.is_le(),
                    ComparisonOperator::Greater => order.is_gt(),
                    ComparisonOperator::GreaterOrEqual => order.is_ge(),
                }
            }
            BoundTest::Like(LikePattern::Whole(wanted)) => value == *wanted,
            BoundTest::Like(LikePattern::Prefix(prefix)) => value.starts_with(prefix),
            BoundTest::In(others) => others.iter().any(|other| ty.compare(&value, other).is_eq()),
            BoundTest::Contains(wanted) => match ty {
                CqlType::List { element, .. } => {
                    any_element(Elements::of_list(&value), element, wanted, 0, 1)
                }
                CqlType::Set { element, .. } => any_element(Elements::of_set(&value), element, wanted, 0, 1),
                CqlType::Map { value: ty, .. } => any_element(Elements::of_map(&value), ty, wanted, 1, 2),
                _ => false,
            },
            BoundTest::ContainsKey(wanted) => match ty {
                CqlType::Map { key, .. } => any_element(Elements::of_map(&value), key, wanted, 0, 2),
                _ => false,
            },
            BoundTest::Entry(key, wanted) => {
                let CqlType::Map { key: key_type, value: value_type, .. } = ty else { return false };
                let Ok(entries) = Elements::of_map(&value) else { return false };
                let items: Vec<&[u8]> = entries.filter_map(|e| e.ok().flatten()).collect();
                items.chunks_exact(2).any(|entry| {
                    key_type.compare(entry[0], key).is_eq() && value_type.compare(entry[1], wanted).is_eq()
                })
            }
        }
    }
}

fn any_element(
    elements: Result<Elements<'_>, types::TypeError>,
    ty: &CqlType,
    wanted: &[u8],
    skip: usize,
    step: usize,
) -> bool {
    let Ok(elements) = elements else { return false };
    elements.skip(skip).step_by(step).any(|element| match element {
        Ok(Some(element)) => ty.compare(element, wanted).is_eq(),
        _ => false,
    })
}
