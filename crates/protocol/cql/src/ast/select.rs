//! SELECT: selectors, relations and clauses. Relations also serve UPDATE, DELETE, views and LWT conditions.

use super::{ArithmeticOperator, Constant, DataType, FunctionCall, Ident, Marker, NativeType, Pos};
use super::{QualifiedName, Term, Using};

/// `SELECT … FROM …`.
#[derive(Clone, Debug, PartialEq)]
pub struct Select {
    /// `SELECT JSON`.
    pub json: bool,
    /// `SELECT DISTINCT`.
    pub distinct: bool,
    /// The selection.
    pub selection: Selection,
    /// The table or view.
    pub from: QualifiedName,
    /// `FROM MUTATION_FRAGMENTS(table)` (ScyllaDB): the stored fragments instead of the rows.
    pub mutation_fragments: bool,
    /// `WHERE`, joined by AND; empty without the clause.
    pub filter: Vec<Relation>,
    /// `GROUP BY`.
    pub group_by: Vec<Selector>,
    /// `ORDER BY`.
    pub order_by: Vec<Ordering>,
    /// `PER PARTITION LIMIT`: an integer or a marker.
    pub per_partition_limit: Option<Term>,
    /// `LIMIT`: an integer or a marker.
    pub limit: Option<Term>,
    /// `ALLOW FILTERING`.
    pub allow_filtering: bool,
    /// `BYPASS CACHE` (ScyllaDB).
    pub bypass_cache: bool,
    /// `USING TIMEOUT` (ScyllaDB). Only the timeout can be set.
    pub using: Using,
}

/// The select clause.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    /// `*`.
    All,
    /// One or more selectors.
    Selectors(Vec<AliasedSelector>),
}

/// `selector [AS alias]`.
#[derive(Clone, Debug, PartialEq)]
pub struct AliasedSelector {
    /// The selection.
    pub selector: Selector,
    /// `AS alias`.
    pub alias: Option<Ident>,
}

/// An expression over the columns of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Selector {
    /// Its kind.
    pub kind: SelectorKind,
    /// Where it starts.
    pub pos: Pos,
}

impl Selector {
    /// A selector without a position.
    pub fn new(kind: SelectorKind) -> Selector {
        Selector { kind, pos: Pos::default() }
    }
}

/// The forms of a [`Selector`].
#[derive(Clone, Debug, PartialEq)]
pub enum SelectorKind {
    /// A column. As a key of [`SelectorKind::Map`] it may also be the name of a field.
    Column(Ident),
    /// A constant.
    Constant(Constant),
    /// `NULL`.
    Null,
    /// `?` or `:name`.
    Marker(Marker),
    /// `count(*)`.
    CountRows,
    /// `writetime(c)`, `maxwritetime(c)` or `ttl(c)`; inside is a column with fields, elements or slices.
    Metadata(CellMetadata, Box<Selector>),
    /// `CAST(selector AS type)`.
    Cast(Box<Selector>, NativeType),
    /// `name(args…)`.
    Function(FunctionCall<Selector>),
    /// `selector.field`.
    Field(Box<Selector>, Ident),
    /// `selector[key]`.
    Element(Box<Selector>, Term),
    /// `selector[from..to]`, each end optional, not both absent.
    Slice(Box<Selector>, Option<Term>, Option<Term>),
    /// `(type) selector`.
    TypeHint(DataType, Box<Selector>),
    /// `(a, b)`, not empty. One element is just brackets, unless the wanted type is a tuple of one.
    Tuple(Vec<Selector>),
    /// `[a, b]`: a list or a vector.
    List(Vec<Selector>),
    /// `{a, b}`; `{}` may be an empty map too.
    Set(Vec<Selector>),
    /// `{a: b, …}`, not empty: a map, or a user-defined value when the keys are bare names and the type is one.
    Map(Vec<(Selector, Selector)>),
    /// `left op right`.
    Arithmetic(Box<Selector>, ArithmeticOperator, Box<Selector>),
    /// `- selector` where the minus is not part of a number.
    Negate(Box<Selector>),
}

/// Which piece of a cell's metadata is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellMetadata {
    /// `writetime`: microseconds.
    WriteTime,
    /// `maxwritetime`: the largest of a collection's elements, microseconds.
    MaxWriteTime,
    /// `ttl`: seconds left.
    Ttl,
}

/// One entry of `ORDER BY`.
#[derive(Clone, Debug, PartialEq)]
pub struct Ordering {
    /// The column.
    pub column: Ident,
    /// `ANN OF term`: nearest first.
    pub ann_of: Option<Term>,
    /// `BM25(column, term)`, ScyllaDB's: most relevant first.
    pub bm25: Option<Term>,
    /// The direction: ascending unless `DESC` is written.
    pub direction: Direction,
}

impl Ordering {
    /// Whether it compares values with a vector or a query, and does not sort by the column.
    pub fn is_by_value(&self) -> bool {
        self.ann_of.is_some() || self.bm25.is_some()
    }
}

/// `ASC` or `DESC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// `ASC`.
    Ascending,
    /// `DESC`.
    Descending,
}

/// One condition of a WHERE or an IF clause.
#[derive(Clone, Debug, PartialEq)]
pub struct Relation {
    /// The left side.
    pub target: Target,
    /// The operator and the right side.
    pub predicate: Predicate,
    /// Where it starts.
    pub pos: Pos,
}

/// The left side of a [`Relation`].
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// `column`.
    Column(Ident),
    /// `column[key]`.
    Element(Ident, Term),
    /// `column.field`: only in IF.
    Field(Ident, Ident),
    /// `(a, b)`, one or more: only in WHERE.
    Tuple(Vec<Ident>),
    /// `token(a, b)`, one or more: only in WHERE.
    Token(Vec<Ident>),
    /// `expr(index, term)`: only in WHERE, and only with [`Predicate::Expression`].
    Index(QualifiedName),
    /// `row.column` of a LET: only in the IF of a transaction.
    Reference(super::RowReference),
    /// `BM25(column, term)`, ScyllaDB's.
    Relevance(Ident, Term),
}

impl Target {
    /// Whether it names a column.
    pub fn names(&self, column: &str) -> bool {
        match self {
            Target::Column(name)
            | Target::Element(name, _)
            | Target::Field(name, _)
            | Target::Relevance(name, _) => name.name == column,
            Target::Tuple(names) | Target::Token(names) => names.iter().any(|name| name.name == column),
            Target::Index(_) | Target::Reference(_) => false,
        }
    }
}

/// The condition of a [`Relation`] on its target.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate {
    /// `op term`.
    Compare(ComparisonOperator, Term),
    /// `[NOT] IN values`.
    In {
        /// `NOT IN`.
        negated: bool,
        /// The list or the marker.
        values: InValues,
    },
    /// `BETWEEN low AND high`.
    Between(Term, Term),
    /// `[NOT] CONTAINS [KEY] term`.
    Contains {
        /// `NOT CONTAINS`.
        negated: bool,
        /// `CONTAINS KEY`.
        key: bool,
        /// The element or key.
        value: Term,
    },
    /// `LIKE term`.
    Like(Term),
    /// `: term`, DataStax's match of an analyzed text.
    Matches(Term),
    /// `IS NOT NULL`.
    IsNotNull,
    /// `IS NULL`: only in the IF of a transaction.
    IsNull,
    /// The term of `expr(index, term)`.
    Expression(Term),
}

/// The right side of `IN`.
#[derive(Clone, Debug, PartialEq)]
pub enum InValues {
    /// `(a, b, …)`, may be empty. For a [`Target::Tuple`] each one is a tuple or a marker.
    List(Vec<Term>),
    /// `IN ?`: one marker for the whole list.
    Marker(Marker),
}

/// `= != < <= > >=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ComparisonOperator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl ComparisonOperator {
    /// The operator's text.
    pub fn symbol(self) -> &'static str {
        match self {
            ComparisonOperator::Equal => "=",
            ComparisonOperator::NotEqual => "!=",
            ComparisonOperator::Less => "<",
            ComparisonOperator::LessOrEqual => "<=",
            ComparisonOperator::Greater => ">",
            ComparisonOperator::GreaterOrEqual => ">=",
        }
    }
}
