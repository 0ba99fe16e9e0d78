//! Statements that change data: INSERT, UPDATE, DELETE, BATCH, TRUNCATE, and USE.

use super::{Ident, Marker, Pos, QualifiedName, Relation, Term};

/// `USING TIMESTAMP … AND TTL … AND TIMEOUT …`. Each value is a constant or a marker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Using {
    /// Microseconds since the epoch: an integer or a marker.
    pub timestamp: Option<Term>,
    /// Seconds: an integer or a marker.
    pub ttl: Option<Term>,
    /// ScyllaDB's timeout of this statement: a duration or a marker.
    pub timeout: Option<Term>,
    /// How much of PRUNE MATERIALIZED VIEW is done at once (ScyllaDB): an integer or a marker.
    pub concurrency: Option<Term>,
}

impl Using {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        let own = self.timestamp.is_none() && self.ttl.is_none();
        own && self.timeout.is_none() && self.concurrency.is_none()
    }
}

/// `USE keyspace`.
#[derive(Clone, Debug, PartialEq)]
pub struct Use {
    /// The keyspace.
    pub keyspace: Ident,
}

/// `TRUNCATE [TABLE] table`.
#[derive(Clone, Debug, PartialEq)]
pub struct Truncate {
    /// The table.
    pub table: QualifiedName,
    /// `USING TIMEOUT` (ScyllaDB). Only the timeout can be set.
    pub using: Using,
}

/// `INSERT INTO …`.
#[derive(Clone, Debug, PartialEq)]
pub struct Insert {
    /// The table.
    pub table: QualifiedName,
    /// The row.
    pub source: InsertSource,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// `USING …`.
    pub using: Using,
}

/// Where an INSERT's values come from.
#[derive(Clone, Debug, PartialEq)]
pub enum InsertSource {
    /// `(columns) VALUES (values)`. The two lists may differ in length: the caller rejects it.
    Values {
        /// The columns.
        columns: Vec<Ident>,
        /// The values.
        values: Vec<Term>,
    },
    /// `JSON …`.
    Json {
        /// The document.
        value: JsonValue,
        /// `DEFAULT UNSET`: columns that the document lacks keep their value; without it they become null.
        default_unset: bool,
    },
}

/// The document of `INSERT … JSON`.
#[derive(Clone, Debug, PartialEq)]
pub enum JsonValue {
    /// A string constant.
    Text(String),
    /// A bind marker.
    Marker(Marker),
}

/// `UPDATE …`.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// The table.
    pub table: QualifiedName,
    /// `USING …`.
    pub using: Using,
    /// `SET`, not empty.
    pub assignments: Vec<Assignment>,
    /// `WHERE`, not empty except in a transaction.
    pub filter: Vec<Relation>,
    /// `IF`.
    pub condition: Condition,
}

/// One entry of SET.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The column.
    pub column: Ident,
    /// The operation on it.
    pub operation: Operation,
    /// Where the entry starts.
    pub pos: Pos,
}

/// The operation of an [`Assignment`] with its column.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// `c = x`.
    Set(Term),
    /// `c = c + x`, `c += x`: appends to a list, adds to a set, map, counter, number or string.
    Add(Term),
    /// `c = x + c`: prepends to a list.
    Prepend(Term),
    /// `c = c - x`, `c -= x`. (`c = c -3`, written without a space after the minus, is `Add` of `-3`.)
    Subtract(Term),
    /// `c[key] = x`.
    SetElement(Term, Term),
    /// `c.field = x`.
    SetField(Ident, Term),
}

/// `DELETE …`.
#[derive(Clone, Debug, PartialEq)]
pub struct Delete {
    /// The columns that are deleted of each row; the whole row when empty.
    pub targets: Vec<DeleteTarget>,
    /// The table.
    pub table: QualifiedName,
    /// `USING …`; a TTL cannot be set.
    pub using: Using,
    /// `WHERE`, not empty.
    pub filter: Vec<Relation>,
    /// `IF`.
    pub condition: Condition,
}

/// One entry between DELETE and FROM.
#[derive(Clone, Debug, PartialEq)]
pub enum DeleteTarget {
    /// `c`.
    Column(Ident),
    /// `c[key]`.
    Element(Ident, Term),
    /// `c.field`.
    Field(Ident, Ident),
}

/// The IF clause of an UPDATE or DELETE.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// No clause.
    None,
    /// `IF EXISTS`.
    Exists,
    /// `IF a = 1 AND …`, not empty.
    Relations(Vec<Relation>),
}

/// `BEGIN BATCH … APPLY BATCH`.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The kind.
    pub kind: BatchKind,
    /// `USING …` of the whole batch.
    pub using: Using,
    /// The statements, may be empty.
    pub statements: Vec<Modification>,
}

/// The kinds of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchKind {
    /// All or nothing, through the batch log.
    Logged,
    /// `UNLOGGED`.
    Unlogged,
    /// `COUNTER`.
    Counter,
}

/// A statement that may stand in a batch.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant is the statement that its payload's type describes")]
pub enum Modification {
    Insert(Insert),
    Update(Update),
    Delete(Delete),
}

/// `PRUNE MATERIALIZED VIEW view WHERE …` (ScyllaDB): removes view rows that the base table does not have.
#[derive(Clone, Debug, PartialEq)]
pub struct PruneView {
    /// The view.
    pub view: QualifiedName,
    /// `WHERE`; may be empty.
    pub filter: Vec<Relation>,
    /// `USING …`.
    pub using: Using,
}
