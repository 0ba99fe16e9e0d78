//! Values of attributes.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::Number;

/// An item: its attributes by name.
pub type Item = BTreeMap<String, Value>;

/// How deep lists and maps may lie in each other.
pub const NESTING_MAX: usize = 32;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// A string.
    S(String),
    /// A number.
    N(Number),
    /// Bytes.
    B(Vec<u8>),
    /// A boolean.
    Bool(bool),
    /// Null.
    Null,
    /// A set of strings.
    Ss(BTreeSet<String>),
    /// A set of numbers.
    Ns(BTreeSet<Number>),
    /// A set of byte strings.
    Bs(BTreeSet<Vec<u8>>),
    /// A list.
    L(Vec<Value>),
    /// A map.
    M(Item),
}

impl Value {
    /// The name of its type in the API.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::S(_) => "S",
            Self::N(_) => "N",
            Self::B(_) => "B",
            Self::Bool(_) => "BOOL",
            Self::Null => "NULL",
            Self::Ss(_) => "SS",
            Self::Ns(_) => "NS",
            Self::Bs(_) => "BS",
            Self::L(_) => "L",
            Self::M(_) => "M",
        }
    }

    /// The long name of its type in some messages.
    pub fn long_type_name(&self) -> &'static str {
        match self {
            Self::S(_) => "STRING",
            Self::N(_) => "NUMBER",
            Self::B(_) => "BINARY",
            Self::Bool(_) => "BOOLEAN",
            Self::Null => "NULL",
            Self::Ss(_) => "STRING_SET",
            Self::Ns(_) => "NUMBER_SET",
            Self::Bs(_) => "BINARY_SET",
            Self::L(_) => "LIST",
            Self::M(_) => "MAP",
        }
    }

    /// Whether its type has an order.
    pub fn is_ordered(&self) -> bool {
        matches!(self, Self::S(_) | Self::N(_) | Self::B(_))
    }

    /// The order of two values of one ordered type.
    pub fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::S(a), Self::S(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
            (Self::N(a), Self::N(b)) => Some(a.cmp(b)),
            (Self::B(a), Self::B(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }

    /// Its size as AWS counts it, in bytes.
    pub fn size(&self) -> usize {
        match self {
            Self::S(text) => text.len(),
            Self::N(number) => number.size(),
            Self::B(bytes) => bytes.len(),
            Self::Bool(_) | Self::Null => 1,
            Self::Ss(all) => all.iter().map(String::len).sum(),
            Self::Ns(all) => all.iter().map(Number::size).sum(),
            Self::Bs(all) => all.iter().map(Vec::len).sum(),
            Self::L(all) => 3 + all.iter().map(|value| 1 + value.size()).sum::<usize>(),
            Self::M(all) => 3 + all.iter().map(|(name, value)| 1 + name.len() + value.size()).sum::<usize>(),
        }
    }

    /// How many lists and maps lie in each other at most.
    pub fn depth(&self) -> usize {
        match self {
            Self::L(all) => 1 + all.iter().map(Self::depth).max().unwrap_or(0),
            Self::M(all) => 1 + all.values().map(Self::depth).max().unwrap_or(0),
            _ => 0,
        }
    }
}

/// The size of an item as AWS counts it, in bytes.
pub fn item_size(item: &Item) -> usize {
    item.iter().map(|(name, value)| name.len() + value.size()).sum()
}
