//! PartiQL: statements, which mean the same conditions, updates and projections that the other parameters of the API do.

mod keys;
mod lexer;
mod parser;

use std::rc::Rc;

use crate::{Condition, Item, Path, Projection, Result, Update, Value};

pub use keys::{Access, access, item_key};

/// The most characters of a statement.
pub const STATEMENT_MAX: usize = 8192;

/// A SELECT.
#[derive(Clone, Debug, PartialEq)]
pub struct Select {
    /// The table.
    pub table: String,
    /// The index of the table.
    pub index: Option<String>,
    /// The values that are wanted; none for the item.
    pub projection: Option<Projection>,
    /// WHERE
    pub condition: Option<Condition>,
    /// ORDER BY: attributes, and whether the greatest is the first.
    pub order: Vec<(String, bool)>,
}

/// The item that a write returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returning {
    /// `ALL OLD *`
    AllOld,
    /// `ALL NEW *`
    AllNew,
    /// `MODIFIED OLD *`
    ModifiedOld,
    /// `MODIFIED NEW *`
    ModifiedNew,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// Items are read.
    Select(Select),
    /// An item that is not there is written.
    Insert {
        /// The table.
        table: String,
        /// The item.
        item: Item,
    },
    /// An item that is there is changed.
    Update {
        /// The table.
        table: String,
        /// The change.
        update: Update,
        /// WHERE
        condition: Option<Condition>,
        /// RETURNING
        returning: Option<Returning>,
    },
    /// An item is deleted.
    Delete {
        /// The table.
        table: String,
        /// WHERE
        condition: Option<Condition>,
        /// Whether `RETURNING ALL OLD *` is there.
        returns: bool,
    },
    /// `EXISTS(SELECT …)`: a condition of a transaction.
    Exists(Select),
}

impl Statement {
    /// Parses a statement, of which each `?` stands for the next of the parameters.
    ///
    /// # Errors
    /// When it is not valid, or there are not as many parameters.
    pub fn parse(text: &str, parameters: &[Rc<Value>]) -> Result<Self> {
        parser::parse(text, parameters)
    }

    /// The table.
    pub fn table(&self) -> &str {
        match self {
            Self::Select(select) | Self::Exists(select) => &select.table,
            Self::Insert { table, .. } | Self::Update { table, .. } | Self::Delete { table, .. } => table,
        }
    }

    /// Whether it writes.
    pub fn writes(&self) -> bool {
        !matches!(self, Self::Select(_) | Self::Exists(_))
    }
}

/// The name by which a SELECT shows the value at a path: the last name, and the indexes behind it.
fn column_name(path: &Path) -> String {
    let mut name = path.root.clone();
    for element in &path.rest {
        match element {
            crate::Element::Name(next) => name.clone_from(next),
            crate::Element::Index(index) => name.push_str(&format!("[{index}]")),
        }
    }
    name
}
