//! Constraints of columns: conditions that a value has to fulfil when it is written.

/// How a constraint compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Comparison {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Equal, Self::NotEqual, Self::Less, Self::LessOrEqual, Self::Greater, Self::GreaterOrEqual];

    /// The operator's text.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }

    /// The comparison of a text that [`Comparison::symbol`] gave.
    pub fn of_symbol(symbol: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.symbol() == symbol)
    }

    /// Whether a value that is ordered so against the bound fulfils it.
    pub fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

/// One condition of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// Each write of a row gives a value.
    NotNull,
    /// The text is JSON.
    Json,
    /// The number compares so with a constant, which is stored as the statement wrote it.
    Value(Comparison, String),
    /// So many UTF-16 code units of a text, or bytes of a blob.
    Length(Comparison, i32),
    /// So many bytes.
    OctetLength(Comparison, i32),
    /// The whole text matches a regular expression ([`Comparison::Equal`]) or does not ([`Comparison::NotEqual`]).
    Regexp(Comparison, String),
}

impl Constraint {
    /// The name of its kind, as messages have it; none for a comparison of the value itself.
    pub fn function(&self) -> Option<&'static str> {
        match self {
            Self::NotNull => Some("NOT_NULL"),
            Self::Json => Some("JSON"),
            Self::Value(..) => None,
            Self::Length(..) => Some("LENGTH"),
            Self::OctetLength(..) => Some("OCTET_LENGTH"),
            Self::Regexp(..) => Some("REGEXP"),
        }
    }

    /// Its operator and operand in the form of CQL; none for a function that is true or false itself.
    pub fn comparison(&self) -> Option<(Comparison, String)> {
        match self {
            Self::NotNull | Self::Json => None,
            Self::Value(comparison, bound) => Some((*comparison, bound.clone())),
            Self::Length(comparison, bound) | Self::OctetLength(comparison, bound) => {
                Some((*comparison, bound.to_string()))
            }
            Self::Regexp(comparison, pattern) => {
                Some((*comparison, format!("'{}'", pattern.replace('\'', "''"))))
            }
        }
    }

    /// CQL that makes it again, of a column whose quoted name is given.
    pub fn cql(&self, column: &str) -> String {
        match (self, self.function(), self.comparison()) {
            (Self::NotNull, ..) => "NOT NULL".to_owned(),
            (_, Some(function), Some((comparison, bound))) => {
                format!("{function}() {} {bound}", comparison.symbol())
            }
            (_, Some(function), None) => function.to_owned(),
            (_, None, Some((comparison, bound))) => format!("{column} {} {bound}", comparison.symbol()),
            (_, None, None) => panic!("a constraint is a function or a comparison"),
        }
    }
}
