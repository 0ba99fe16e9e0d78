//! Type names as they stand in a statement. They are only names: a user-defined type is not looked up, and
//! nothing checks here that, say, a counter stands alone.

use super::QualifiedName;

/// The type of a column, field, argument, cast or type hint.
#[derive(Clone, Debug, PartialEq)]
pub enum DataType {
    /// A built-in scalar.
    Native(NativeType),
    /// `list<t>`.
    List(Box<DataType>),
    /// `set<t>`.
    Set(Box<DataType>),
    /// `map<key, value>`.
    Map(Box<DataType>, Box<DataType>),
    /// `tuple<t, …>`, one or more.
    Tuple(Vec<DataType>),
    /// `vector<t, dimension>`. The dimension may be zero or negative in the text: the caller rejects it.
    Vector(Box<DataType>, i32),
    /// `frozen<t>`.
    Frozen(Box<DataType>),
    /// A user-defined type.
    UserDefined(QualifiedName),
    /// `'org.apache.cassandra.db.marshal.…'`: the class string as written, not taken apart.
    Custom(String),
}

/// The built-in scalar types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are CQL's own")]
pub enum NativeType {
    Ascii,
    Bigint,
    Blob,
    Boolean,
    Counter,
    Date,
    Decimal,
    Double,
    Duration,
    Float,
    Inet,
    Int,
    Smallint,
    Text,
    Time,
    Timestamp,
    Timeuuid,
    Tinyint,
    Uuid,
    /// The other name of [`NativeType::Text`].
    Varchar,
    Varint,
}

impl NativeType {
    /// Every native type.
    pub const ALL: [NativeType; 21] = [
        NativeType::Ascii,
        NativeType::Bigint,
        NativeType::Blob,
        NativeType::Boolean,
        NativeType::Counter,
        NativeType::Date,
        NativeType::Decimal,
        NativeType::Double,
        NativeType::Duration,
        NativeType::Float,
        NativeType::Inet,
        NativeType::Int,
        NativeType::Smallint,
        NativeType::Text,
        NativeType::Time,
        NativeType::Timestamp,
        NativeType::Timeuuid,
        NativeType::Tinyint,
        NativeType::Uuid,
        NativeType::Varchar,
        NativeType::Varint,
    ];

    /// The name in CQL, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            NativeType::Ascii => "ascii",
            NativeType::Bigint => "bigint",
            NativeType::Blob => "blob",
            NativeType::Boolean => "boolean",
            NativeType::Counter => "counter",
            NativeType::Date => "date",
            NativeType::Decimal => "decimal",
            NativeType::Double => "double",
            NativeType::Duration => "duration",
            NativeType::Float => "float",
            NativeType::Inet => "inet",
            NativeType::Int => "int",
            NativeType::Smallint => "smallint",
            NativeType::Text => "text",
            NativeType::Time => "time",
            NativeType::Timestamp => "timestamp",
            NativeType::Timeuuid => "timeuuid",
            NativeType::Tinyint => "tinyint",
            NativeType::Uuid => "uuid",
            NativeType::Varchar => "varchar",
            NativeType::Varint => "varint",
        }
    }
}
