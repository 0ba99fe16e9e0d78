//! Filters of ALLOW FILTERING, row by row.

use std::sync::Arc;

use bytes::Bytes;
use cql::ast::ComparisonOperator;
use schema::ColumnKind;
use text::IndexText;
use types::CqlType;
use types::elements::Elements;

use super::choice::Choice;
use super::like::Wildcards;
use super::texts::{LikePattern, LikeTexts, TermsWanted};
use crate::error::{Result, invalid};
use crate::expr::row::{ColumnRef, RowView};
use crate::expr::{Env, Expr, Value};

/// The condition of a filter on its column.
#[derive(Clone, Debug)]
pub enum Test {
    /// A comparison.
    Compare(ComparisonOperator, Expr),
    /// `=`, `CONTAINS` or `CONTAINS KEY` of texts that the column's index analyzes: a text has all terms of the one that is wanted.
    Analyzed(Arc<IndexText>, Box<Test>),
    /// `IN`
    In(Choice),
    /// `CONTAINS`
    Contains(Expr),
    /// `CONTAINS KEY`
    ContainsKey(Expr),
    /// A test of one element of a collection: of a map by its key, of a list by its place.
    Element {
        /// The key or place.
        key: Expr,
        /// Type of the element.
        ty: CqlType,
        /// The test of the element.
        test: Box<Test>,
    },
    /// `LIKE` of a column that an index answers it for.
    Like(LikeTexts, Expr),
    /// `LIKE` of any text.
    Matches(Expr),
    /// `NOT IN`, `NOT CONTAINS`: the value is not null and does not pass.
    Not(Box<Test>),
    /// Equal to another column: the hidden column of a view to that of its key.
    SameAs(ColumnRef),
}

/// The value of a condition, which neither is null nor left out.
///
/// # Errors
/// [`ExecError::Invalid`](crate::ExecError::Invalid) when it is null or unset; as [`Expr::eval`].
pub fn required(expr: &Expr, column: &str, env: &Env<'_>) -> Result<Bytes> {
    match expr.eval(env)? {
        Value::Set(bytes) => Ok(bytes),
        Value::Null => invalid!("Unsupported null value for column {column}"),
        Value::Unset => invalid!("Unsupported unset value for column {column}"),
    }
}

/// Refuses a null or missing part of a map's entry, in Cassandra's words.
fn check_entry(part: &str, expr: &Expr, column: &str, env: &Env<'_>) -> Result<()> {
    match expr.eval(env)? {
        Value::Set(_) => Ok(()),
        Value::Null => invalid!("Unsupported null map {part} for column {column}"),
        Value::Unset => invalid!("Unsupported unset map {part} for column {column}"),
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

impl Filter {
    /// Whether rows of one partition can differ in it.
    pub fn is_of_row(&self) -> bool {
        matches!(self.column.kind, ColumnKind::Clustering | ColumnKind::Regular)
    }
}

/// A filter with its values, ready for many rows.
#[derive(Debug)]
pub struct BoundFilter<'a> {
    column: &'a ColumnRef,
    test: BoundTest<'a>,
}

#[derive(Debug)]
enum BoundTest<'a> {
    Compare(ComparisonOperator, Bytes),
    /// The text has all these terms, or a value or key of the collection has.
    Analyzed(TermsWanted<'a>, TextOf),
    /// One of these, which are in the order of the type.
    In(Vec<Bytes>),
    Contains(Bytes),
    ContainsKey(Bytes),
    Element(Bytes, &'a CqlType, Box<BoundTest<'a>>),
    Like(LikePattern<'a>),
    /// Nothing is like null.
    Matches(Option<Wildcards>),
    Not(Box<BoundTest<'a>>),
    SameAs(&'a ColumnRef),
}

/// The text of a column that is analyzed.
#[derive(Clone, Copy, Debug)]
enum TextOf {
    /// The value.
    Whole,
    /// Each element of a list or set, or value of a map.
    Values,
    /// Each key of a map.
    Keys,
}

impl Filter {
    /// Evaluates the values that the filter compares with.
    ///
    /// # Errors
    /// As [`required`] of each value.
    pub fn bind(&self, env: &Env<'_>) -> Result<BoundFilter<'_>> {
        if let (Test::Element { key, test, .. }, CqlType::Map { .. }) = (&self.test, &self.column.ty) {
            check_entry("key", key, &self.name, env)?;
            if let Test::Compare(_, value) = &**test {
                check_entry("value", value, &self.name, env)?;
            }
        }
        let test = self.test.bind(&self.name, env)?.sorted(&self.column.ty);
        Ok(BoundFilter { column: &self.column, test })
    }
}

impl Test {
    /// The same as an index analyzes it.
    pub fn analyzed_by(self, text: Option<Arc<IndexText>>) -> Self {
        match text {
            None => self,
            Some(text) => Self::Analyzed(text, Box::new(self)),
        }
    }

    fn bind(&self, name: &str, env: &Env<'_>) -> Result<BoundTest<'_>> {
        let value = |expr: &Expr| required(expr, name, env);
        Ok(match self {
            Self::Compare(operator, expr) => BoundTest::Compare(*operator, value(expr)?),
            Self::Analyzed(text, inner) => match &**inner {
                Self::Compare(ComparisonOperator::Equal, expr) => {
                    BoundTest::Analyzed(TermsWanted::new(text, &value(expr)?), TextOf::Whole)
                }
                Self::Contains(expr) => {
                    BoundTest::Analyzed(TermsWanted::new(text, &value(expr)?), TextOf::Values)
                }
                Self::ContainsKey(expr) => {
                    BoundTest::Analyzed(TermsWanted::new(text, &value(expr)?), TextOf::Keys)
                }
                other => other.bind(name, env)?,
            },
            Self::In(choice) => BoundTest::In(in_values(choice, name, env, true)?),
            Self::Contains(expr) => BoundTest::Contains(value(expr)?),
            Self::ContainsKey(expr) => BoundTest::ContainsKey(value(expr)?),
            Self::Element { key, ty, test } => {
                BoundTest::Element(value(key)?, ty, Box::new(test.bind(name, env)?))
            }
            Self::Like(texts, pattern) => BoundTest::Like(texts.parse(&value(pattern)?, name)?),
            Self::Matches(pattern) => BoundTest::Matches(match pattern.eval(env)? {
                Value::Null => None,
                _ => Some(Wildcards::parse(&value(pattern)?, name)?),
            }),
            Self::SameAs(column) => BoundTest::SameAs(column),
            // With a null among them nobody knows whether a value is in.
            Self::Not(inner) => BoundTest::Not(Box::new(match &**inner {
                Self::In(choice) => BoundTest::In(in_values(choice, name, env, false)?),
                other => other.bind(name, env)?,
            })),
        })
    }
}

/// The values of `=` or `IN`. Nulls are refused, or left out where they match nothing anyway.
///
/// # Errors
/// [`ExecError::Invalid`](crate::ExecError::Invalid) when a value is unset, or null and not to be skipped, or a bound
/// list is malformed.
pub fn in_values(choice: &Choice, name: &str, env: &Env<'_>, skip_null: bool) -> Result<Vec<Bytes>> {
    let mut out = Vec::new();
    let mut push = |value: Value| match value {
        Value::Set(bytes) => {
            out.push(bytes);
            Ok(())
        }
        Value::Null | Value::Unset if skip_null => Ok(()),
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
                    push(
                        element?
                            .filter(|value| !is_null(value, &expr.ty))
                            .map(|value| list.slice_ref(value))
                            .into(),
                    )?;
                }
            }
            Value::Null => return invalid!("Invalid null value for column {name}"),
            Value::Unset => return invalid!("Invalid unset value for column {name}"),
        },
    }
    Ok(out)
}

/// Whether an element of a list of this type stands for null, because the empty value of its type means nothing.
fn is_null(value: &[u8], list: &CqlType) -> bool {
    let CqlType::List { element, .. } = list else { return false };
    value.is_empty() && !element.empty_is_a_value() && !element.is_tuple()
}

impl BoundFilter<'_> {
    /// Whether a row passes. Null passes nothing.
    pub fn matches(&self, row: &RowView<'_>) -> bool {
        let Some(value) = row.value(self.column) else { return false };
        self.test.passes(&value, &self.column.ty, row)
    }
}

impl BoundTest<'_> {
    /// The same with the values of IN in the order of the type: each row is compared with a few of them.
    fn sorted(self, ty: &CqlType) -> Self {
        match self {
            Self::In(mut others) => {
                others.sort_by(|a, b| ty.compare(a, b));
                Self::In(others)
            }
            Self::Not(inner) => Self::Not(Box::new(inner.sorted(ty))),
            Self::Element(key, element, test) => Self::Element(key, element, Box::new(test.sorted(element))),
            other => other,
        }
    }

    fn passes(&self, value: &[u8], ty: &CqlType, row: &RowView<'_>) -> bool {
        match self {
            BoundTest::Compare(operator, other) => {
                let order = ty.compare(value, other);
                match operator {
                    ComparisonOperator::Equal => order.is_eq(),
                    ComparisonOperator::NotEqual => order.is_ne(),
                    ComparisonOperator::Less => order.is_lt(),
                    ComparisonOperator::LessOrEqual => order.is_le(),
                    ComparisonOperator::Greater => order.is_gt(),
                    ComparisonOperator::GreaterOrEqual => order.is_ge(),
                }
            }
            BoundTest::Analyzed(wanted, TextOf::Whole) => wanted.matches(value),
            BoundTest::Analyzed(wanted, TextOf::Values) => {
                of_values(value, ty, |_, found| wanted.matches(found))
            }
            BoundTest::Analyzed(wanted, TextOf::Keys) => of_keys(value, ty, |_, found| wanted.matches(found)),
            BoundTest::SameAs(other) => row.borrowed(other).is_some_and(|other| *other == *value),
            BoundTest::Like(pattern) => pattern.matches(value),
            BoundTest::Matches(pattern) => pattern.as_ref().is_some_and(|pattern| pattern.matches(value)),
            BoundTest::Not(inner) => !inner.passes(value, ty, row),
            BoundTest::In(others) => others.binary_search_by(|other| ty.compare(other, value)).is_ok(),
            BoundTest::Contains(wanted) => {
                of_values(value, ty, |ty, found| ty.compare(found, wanted).is_eq())
            }
            BoundTest::ContainsKey(wanted) => {
                of_keys(value, ty, |ty, found| ty.compare(found, wanted).is_eq())
            }
            BoundTest::Element(key, element, test) => {
                element_at(value, ty, key).is_some_and(|found| test.passes(found, element, row))
            }
        }
    }
}

/// The element of a map with a key, or of a list at a place.
fn element_at<'a>(value: &'a [u8], ty: &CqlType, key: &[u8]) -> Option<&'a [u8]> {
    match ty {
        CqlType::Map { key: key_type, .. } => {
            let mut entries = Elements::of_map(value).ok()?;
            while let Some(found) = entries.next() {
                let item = entries.next()?.ok()?;
                if key_type.compare(found.ok()??, key).is_eq() {
                    return item;
                }
            }
            None
        }
        CqlType::List { .. } => {
            let place = i32::from_be_bytes(key.try_into().ok()?);
            Elements::of_list(value).ok()?.nth(usize::try_from(place).ok()?)?.ok()?
        }
        _ => None,
    }
}

/// Whether an element of a list or set, or a value of a map, is the one.
fn of_values(value: &[u8], ty: &CqlType, is_one: impl Fn(&CqlType, &[u8]) -> bool) -> bool {
    match ty {
        CqlType::List { element, .. } => any_element(Elements::of_list(value), element, is_one, 0, 1),
        CqlType::Set { element, .. } => any_element(Elements::of_set(value), element, is_one, 0, 1),
        CqlType::Map { value: ty, .. } => any_element(Elements::of_map(value), ty, is_one, 1, 2),
        _ => false,
    }
}

/// Whether a key of a map is the one.
fn of_keys(value: &[u8], ty: &CqlType, is_one: impl Fn(&CqlType, &[u8]) -> bool) -> bool {
    match ty {
        CqlType::Map { key, .. } => any_element(Elements::of_map(value), key, is_one, 0, 2),
        _ => false,
    }
}

fn any_element(
    elements: Result<Elements<'_>, types::TypeError>,
    ty: &CqlType,
    is_one: impl Fn(&CqlType, &[u8]) -> bool,
    skip: usize,
    step: usize,
) -> bool {
    let Ok(elements) = elements else { return false };
    elements.skip(skip).step_by(step).any(|element| match element {
        Ok(Some(element)) => is_one(ty, element),
        _ => false,
    })
}
