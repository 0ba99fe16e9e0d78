//! The belongings of a table: secondary indexes, triggers, and the tables whose rows follow from its rows.
//!
//! Indexes and triggers are part of their [`Table`](crate::Table), because they live and change with it. A derived table (a
//! materialized view, the storage of an index, a CDC log) is a table of its own that names its base.

use std::collections::BTreeMap;

use types::quote_identifier;

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

/// From what the rows of a derived table follow.
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
}
