//! The belongings of a table: secondary indexes, triggers, and the tables whose rows follow from its rows.
//!
//! Indexes and triggers are part of their [`Table`](crate::Table), because they live and change with it. A derived table (a
//! materialized view, the storage of an index, a CDC log) is a table of its own that names its base.

use std::collections::BTreeMap;

use types::{CqlType, quote_identifier};

use crate::TableId;

/// The part of a column's value that an index finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IndexedPart {
    /// The value.
    Whole,
    /// Elements of a list or set, values of a map.
    Values,
    /// Keys of a map.
    Keys,
    /// Keys of a map with their values.
    Entries,
    /// A frozen collection as one value.
    Full,
}

impl IndexedPart {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Whole, Self::Values, Self::Keys, Self::Entries, Self::Full];

    /// The types of an index term's components, of a column of this type: the key's and the value's of entries, else one.
    pub fn term_types(self, ty: &CqlType) -> Vec<&CqlType> {
        match (ty, self) {
            (CqlType::List { element, .. } | CqlType::Set { element, .. }, Self::Values) => vec![element],
            (CqlType::Map { value, .. }, Self::Values) => vec![value],
            (CqlType::Map { key, .. }, Self::Keys) => vec![key],
            (CqlType::Map { key, value, .. }, Self::Entries) => vec![key, value],
            (ty, _) => vec![ty],
        }
    }

    /// The word around the column in statements; none for the whole value.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::Whole => None,
            Self::Values => Some("values"),
            Self::Keys => Some("keys"),
            Self::Entries => Some("entries"),
            Self::Full => Some("full"),
        }
    }
}

/// A column that an index finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexTarget {
    /// Name of the column.
    pub column: String,
    /// The part of its value.
    pub part: IndexedPart,
}

impl std::fmt::Display for IndexTarget {
    /// As in statements: `v`, `keys("M")`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let column = quote_identifier(&self.column);
        match self.part.word() {
            None => f.write_str(&column),
            Some(word) => write!(f, "{word}({column})"),
        }
    }
}

/// The names of SAI's class in USING, in either case.
const STORAGE_ATTACHED: [&str; 3] =
    ["sai", "StorageAttachedIndex", "org.apache.cassandra.index.sai.StorageAttachedIndex"];

/// Whether a class is that of storage-attached indexes (SAI).
pub fn is_storage_attached(class: &str) -> bool {
    STORAGE_ATTACHED.iter().any(|name| name.eq_ignore_ascii_case(class))
}

/// A secondary index of a table. Its name is one of a kind in the keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Its name, case kept.
    pub name: String,
    /// The columns that it finds; none for an index that chooses them itself.
    pub targets: Vec<IndexTarget>,
    /// The implementation of a CREATE CUSTOM INDEX or of USING; none for the built-in one.
    pub class: Option<String>,
    /// `WITH OPTIONS`.
    pub options: BTreeMap<String, String>,
    /// Whether only statements that name one partition are answered by it: a local index of ScyllaDB, `((p), v)`.
    pub local: bool,
}

impl Index {
    /// The kind in `system_schema.indexes`.
    pub fn kind(&self) -> &'static str {
        if self.class.is_some() { "CUSTOM" } else { "COMPOSITES" }
    }

    /// The targets as in statements.
    pub fn target(&self) -> String {
        self.targets.iter().map(IndexTarget::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Whether it is storage-attached (SAI), as its class says.
    pub fn is_storage_attached(&self) -> bool {
        self.class.as_deref().is_some_and(is_storage_attached)
    }

    /// Whether it finds values of a column.
    pub fn depends_on(&self, column: &str) -> bool {
        self.targets.iter().any(|target| target.column == column)
    }
}

/// A trigger of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Its name, case kept; one of a kind in its table.
    pub name: String,
    /// The class that is called.
    pub class: String,
}

/// How a condition of a view compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ViewOperator {
    /// `=`
    Equal,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `IN`
    In,
}

/// A condition on a column of a view's key. (`IS NOT NULL` needs none: a row without a value in its key is in no view.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewCondition {
    /// Name of the column.
    pub column: String,
    /// How it is compared.
    pub operator: ViewOperator,
    /// The serialised operand: one value, or any number for `IN`.
    pub values: Vec<Vec<u8>>,
}

impl ViewCondition {
    /// Whether a value of the column, whose type is `ty`, fulfils it.
    pub fn holds(&self, ty: &CqlType, value: &[u8]) -> bool {
        self.values.iter().any(|with| {
            let order = ty.compare(value, with);
            match self.operator {
                ViewOperator::Equal | ViewOperator::In => order.is_eq(),
                ViewOperator::Less => order.is_lt(),
                ViewOperator::LessOrEqual => order.is_le(),
                ViewOperator::Greater => order.is_gt(),
                ViewOperator::GreaterOrEqual => order.is_ge(),
            }
        })
    }
}

/// Name of the column of a view that clients do not see, which shows whether a row is there (docs/design/views.md). No statement can
/// name it.
///
/// In a view whose key has a regular column of the base table it is a copy of that column's cell, and a row of the view is there while
/// the hidden cell is live and equal to the key's value. In another view it is a map with an element for each cell
/// of a base column that the view does not show: a view row without anything else is there as long as one of them lives.
pub const HIDDEN: &str = "";

/// The source of a derived table's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Derivation {
    /// A materialized view.
    View {
        /// The table whose rows it shows.
        base: TableId,
        /// It shows all columns, those that will be added to the base included.
        all_columns: bool,
        /// Which rows, as the text after WHERE.
        where_clause: String,
        /// The conditions of the text on columns of the view's key, beside `IS NOT NULL`.
        conditions: Vec<ViewCondition>,
    },
    /// The storage of an index.
    Index {
        /// The table of the index.
        base: TableId,
        /// Name of the index.
        index: String,
    },
    /// The log of changes.
    Cdc {
        /// The table whose changes it has.
        base: TableId,
    },
}

impl Derivation {
    /// The table that the rows follow from.
    pub fn base(&self) -> TableId {
        match self {
            Self::View { base, .. } | Self::Index { base, .. } | Self::Cdc { base } => *base,
        }
    }

    /// Whether it is a materialized view.
    pub fn is_view(&self) -> bool {
        matches!(self, Self::View { .. })
    }

    /// Whether it is a log of changes.
    pub fn is_cdc_log(&self) -> bool {
        matches!(self, Self::Cdc { .. })
    }
}
