//! Conditions: their syntax tree, and their evaluation on an item.

use std::cmp::Ordering;
use std::rc::Rc;

use crate::{Item, Number, Path, Value};

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Eq,
    /// `<>`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

impl Comparison {
    /// Its symbol.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Eq => "=",
            Self::Ne => "<>",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
        }
    }

    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Eq => order.is_eq(),
            Self::Ne => order.is_ne(),
            Self::Lt => order.is_lt(),
            Self::Le => order.is_le(),
            Self::Gt => order.is_gt(),
            Self::Ge => order.is_ge(),
        }
    }
}

/// A value, or where one is found.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A value of the request.
    Value(Rc<Value>),
    /// A part of the item.
    Path(Path),
    /// `size(…)`
    Size(Box<Operand>),
}

impl Operand {
    fn find<'a>(&'a self, item: &'a Item) -> Option<std::borrow::Cow<'a, Value>> {
        use std::borrow::Cow;
        match self {
            Self::Value(value) => Some(Cow::Borrowed(value)),
            Self::Path(path) => path.find(item).map(Cow::Borrowed),
            Self::Size(of) => {
                let size = size(&*of.find(item)?)?;
                Some(Cow::Owned(Value::N(Number::from_usize(size))))
            }
        }
    }

    /// How messages show it.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Value(value) => format!("AttributeValue: {}", value.shown()),
            Self::Path(path) => path.shown(),
            Self::Size(of) => format!("size({})", of.shown()),
        }
    }
}

/// The result of `size`; none for types that have no size.
fn size(value: &Value) -> Option<usize> {
    match value {
        // AWS counts as Java does.
        Value::S(text) => Some(text.encode_utf16().count()),
        Value::B(bytes) => Some(bytes.len()),
        Value::Ss(all) => Some(all.len()),
        Value::Ns(all) => Some(all.len()),
        Value::Bs(all) => Some(all.len()),
        Value::L(all) => Some(all.len()),
        Value::M(all) => Some(all.len()),
        Value::N(_) | Value::Bool(_) | Value::Null => None,
    }
}

/// A condition on an item.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// All of them.
    And(Vec<Condition>),
    /// One of them.
    Or(Vec<Condition>),
    /// Not this.
    Not(Box<Condition>),
    /// A comparison.
    Compare(Comparison, Operand, Operand),
    /// `a BETWEEN b AND c`
    Between(Operand, Operand, Operand),
    /// `a IN (b, c)`
    In(Operand, Vec<Operand>),
    /// `attribute_exists(path)`
    Exists(Path),
    /// `attribute_type(path, :type)`
    Type(Operand, Rc<Value>),
    /// `begins_with(a, b)`
    BeginsWith(Operand, Operand),
    /// `contains(a, b)`
    Contains(Operand, Operand),
}

impl Condition {
    /// Whether an item, empty for one that does not exist, meets it.
    pub fn holds(&self, item: &Item) -> bool {
        match self {
            Self::And(all) => all.iter().all(|one| one.holds(item)),
            Self::Or(all) => all.iter().any(|one| one.holds(item)),
            Self::Not(one) => !one.holds(item),
            Self::Compare(comparison, left, right) => {
                compare(*comparison, left.find(item).as_deref(), right.find(item).as_deref())
            }
            Self::Between(value, low, high) => {
                let (value, low, high) = (value.find(item), low.find(item), high.find(item));
                let at_least = compare(Comparison::Ge, value.as_deref(), low.as_deref());
                at_least && compare(Comparison::Le, value.as_deref(), high.as_deref())
            }
            Self::In(value, all) => {
                let value = value.find(item);
                all.iter().any(|one| compare(Comparison::Eq, value.as_deref(), one.find(item).as_deref()))
            }
            Self::Exists(path) => path.find(item).is_some(),
            Self::Type(of, name) => {
                let found = of.find(item);
                found.is_some_and(|value| matches!(&**name, Value::S(name) if name == value.type_name()))
            }
            Self::BeginsWith(value, prefix) => {
                match (value.find(item).as_deref(), prefix.find(item).as_deref()) {
                    (Some(Value::S(value)), Some(Value::S(prefix))) => value.starts_with(prefix.as_str()),
                    (Some(Value::B(value)), Some(Value::B(prefix))) => value.starts_with(prefix),
                    _ => false,
                }
            }
            Self::Contains(value, part) => match (value.find(item).as_deref(), part.find(item).as_deref()) {
                (Some(value), Some(part)) => contains(value, part),
                _ => false,
            },
        }
    }

    /// The attributes that it looks at.
    pub fn roots<'a>(&'a self, into: &mut Vec<&'a str>) {
        match self {
            Self::And(all) | Self::Or(all) => all.iter().for_each(|one| one.roots(into)),
            Self::Not(one) => one.roots(into),
            Self::Compare(_, a, b) | Self::BeginsWith(a, b) | Self::Contains(a, b) => {
                operand_roots(a, into);
                operand_roots(b, into);
            }
            Self::Between(a, b, c) => [a, b, c].into_iter().for_each(|one| operand_roots(one, into)),
            Self::In(a, all) => {
                operand_roots(a, into);
                all.iter().for_each(|one| operand_roots(one, into));
            }
            Self::Exists(path) => into.push(&path.root),
            Self::Type(of, _) => operand_roots(of, into),
        }
    }
}

fn operand_roots<'a>(operand: &'a Operand, into: &mut Vec<&'a str>) {
    match operand {
        Operand::Path(path) => into.push(&path.root),
        Operand::Size(of) => operand_roots(of, into),
        Operand::Value(_) => {}
    }
}

fn compare(comparison: Comparison, left: Option<&Value>, right: Option<&Value>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => match comparison {
            Comparison::Eq => left == right,
            Comparison::Ne => left != right,
            other => left.order(right).is_some_and(|order| other.holds(order)),
        },
        // A missing value differs from everything.
        _ => comparison == Comparison::Ne,
    }
}

pub(crate) fn contains(value: &Value, part: &Value) -> bool {
    match (value, part) {
        (Value::S(value), Value::S(part)) => value.contains(part.as_str()),
        (Value::B(value), Value::B(part)) => {
            // Linear in both, for any bytes: a filter may have many of them, each of an item's 400 KB.
            memchr::memmem::find(value, part).is_some()
        }
        (Value::Ss(all), Value::S(part)) => all.contains(part),
        (Value::Ns(all), Value::N(part)) => all.contains(part),
        (Value::Bs(all), Value::B(part)) => all.contains(part),
        (Value::L(all), part) => all.contains(part),
        _ => false,
    }
}
