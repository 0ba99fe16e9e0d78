//! DESCRIBE.

use super::{Ident, QualifiedName};

/// `DESCRIBE …` or `DESC …`.
#[derive(Clone, Debug, PartialEq)]
pub struct Describe {
    /// The target of the description.
    pub target: DescribeTarget,
    /// `WITH INTERNALS`: table ids, dropped columns and the like are shown too.
    pub with_internals: bool,
    /// `WITH INTERNALS AND PASSWORDS` (ScyllaDB): hashes of passwords are shown too; only of a schema.
    pub with_passwords: bool,
}

/// The target of a [`Describe`].
#[derive(Clone, Debug, PartialEq)]
pub enum DescribeTarget {
    /// `CLUSTER`.
    Cluster,
    /// `[FULL] SCHEMA`.
    Schema {
        /// `FULL`: system keyspaces are shown too.
        full: bool,
    },
    /// `KEYSPACES`.
    Keyspaces,
    /// `[ONLY] KEYSPACE [ks]`.
    Keyspace {
        /// The keyspace; the session's when absent.
        name: Option<Ident>,
        /// `ONLY`: without its tables and types.
        only: bool,
    },
    /// `TABLES`.
    Tables,
    /// `TABLE t`.
    Table(QualifiedName),
    /// `INDEX i`.
    Index(QualifiedName),
    /// `MATERIALIZED VIEW v`.
    View(QualifiedName),
    /// `TYPES`.
    Types,
    /// `TYPE t`.
    Type(QualifiedName),
    /// `FUNCTIONS`.
    Functions,
    /// `FUNCTION f`.
    Function(QualifiedName),
    /// `AGGREGATES`.
    Aggregates,
    /// `AGGREGATE a`.
    Aggregate(QualifiedName),
    /// A bare name: the keyspace, table, view or index of that name, tried in this order.
    Named(QualifiedName),
}
