//! Terms: the values of a statement, on the right of a relation, in VALUES, SET, USING and LIMIT.

use super::{DataType, Ident, Marker, NativeType, Pos, QualifiedName};

/// A value as written, not yet of any type.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// Its kind.
    pub kind: TermKind,
    /// Where it starts.
    pub pos: Pos,
}

impl Term {
    /// A term without a position.
    pub fn new(kind: TermKind) -> Term {
        Term { kind, pos: Pos::default() }
    }
}

/// The forms of a [`Term`].
#[derive(Clone, Debug, PartialEq)]
pub enum TermKind {
    /// A constant.
    Constant(Constant),
    /// `NULL`.
    Null,
    /// `?` or `:name`.
    Marker(Marker),
    /// `[a, b]`: a list or a vector.
    List(Vec<Term>),
    /// `{a, b}`. Empty for `{}`, which may stand for a set, a map or a user-defined value: the target type says.
    Set(Vec<Term>),
    /// `{k: v, …}`, not empty.
    Map(Vec<(Term, Term)>),
    /// `{field: v, …}`, not empty: the keys are bare names.
    UserType(Vec<(Ident, Term)>),
    /// `(a, b)`, not empty. One element is a tuple of one, or just a bracketed term: the target type says.
    Tuple(Vec<Term>),
    /// `name(args…)`.
    Function(FunctionCall<Term>),
    /// `CAST(term AS type)`.
    Cast(Box<Term>, NativeType),
    /// `(type) term`.
    TypeHint(DataType, Box<Term>),
    /// `left op right`.
    Arithmetic(Box<Term>, ArithmeticOperator, Box<Term>),
    /// `- term` where the minus is not part of a number.
    Negate(Box<Term>),
    /// `name.column` or `name[term]` in a transaction: a value that a LET read.
    RowReference(RowReference),
}

/// A constant, with its text: which type it fits is not known to the parser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constant {
    /// `'…'` or `$$…$$`: the text without quotes and escapes.
    String(String),
    /// Decimal digits with an optional minus, of any length.
    Integer(String),
    /// A number with a point or an exponent, or `NaN`, `Infinity`, `-Infinity` in exactly this spelling.
    Float(String),
    /// `true` or `false`.
    Boolean(bool),
    /// A duration as written: `1y2mo`, ISO 8601 `P1Y2M`, or `P0001-02-03T04:05:06`.
    Duration(String),
    /// A UUID as written, 36 characters.
    Uuid(String),
    /// A blob as written, `0x` and hexadecimal digits (their number may be odd: the caller rejects it).
    Hex(String),
}

impl Constant {
    /// The text without quotes: the value of a property.
    pub fn text(&self) -> &str {
        match self {
            Constant::String(s)
            | Constant::Integer(s)
            | Constant::Float(s)
            | Constant::Duration(s)
            | Constant::Uuid(s)
            | Constant::Hex(s) => s,
            Constant::Boolean(true) => "true",
            Constant::Boolean(false) => "false",
        }
    }
}

/// A call of a function or aggregate; `A` is [`Term`] or [`super::Selector`].
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionCall<A> {
    /// The function. `token` and `count` are ordinary names here; `count(*)` is not a call.
    pub name: QualifiedName,
    /// The arguments.
    pub args: Vec<A>,
}

/// The arithmetic operators; `* / %` bind tighter than `+ -`, all to the left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ArithmeticOperator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

impl ArithmeticOperator {
    /// The operator's character.
    pub fn symbol(self) -> char {
        match self {
            ArithmeticOperator::Add => '+',
            ArithmeticOperator::Subtract => '-',
            ArithmeticOperator::Multiply => '*',
            ArithmeticOperator::Divide => '/',
            ArithmeticOperator::Modulo => '%',
        }
    }
}

/// A value of a row that a transaction's LET names: `row.column`, `row.column[key]`, `row.column.field`, or `row`.
#[derive(Clone, Debug, PartialEq)]
pub struct RowReference {
    /// The LET's name.
    pub row: Ident,
    /// The column; none for the row itself (`row IS NULL`).
    pub column: Option<Ident>,
    /// An element or a field of the column.
    pub part: Option<Box<ReferencePart>>,
}

/// The part of a column that a [`RowReference`] takes.
#[derive(Clone, Debug, PartialEq)]
pub enum ReferencePart {
    /// `[key]`.
    Element(Term),
    /// `.field`.
    Field(Ident),
}
