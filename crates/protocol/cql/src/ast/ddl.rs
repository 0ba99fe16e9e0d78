//! Statements that change the schema.

use super::{
    ComparisonOperator, Constant, DataType, Direction, Ident, Pos, QualifiedName, Relation, Selection, Term,
};

/// One `name = value` of a WITH clause. No name appears twice in one clause.
#[derive(Clone, Debug, PartialEq)]
pub struct Property {
    /// The name, in lower case unless it was quoted.
    pub name: String,
    /// The value.
    pub value: PropertyValue,
    /// Where the name stands.
    pub pos: Pos,
}

/// The value of a [`Property`].
#[derive(Clone, Debug, PartialEq)]
pub enum PropertyValue {
    /// A constant.
    Constant(Constant),
    /// An unreserved keyword, such as `all`, in lower case.
    Keyword(String),
    /// `{'key': 'value', …}`. No key's text appears twice.
    Map(Vec<(Constant, Constant)>),
    /// `NULL`.
    Null,
}

impl PropertyValue {
    /// The text of a value that is neither a map nor null.
    pub fn text(&self) -> Option<&str> {
        match self {
            PropertyValue::Constant(constant) => Some(constant.text()),
            PropertyValue::Keyword(word) => Some(word),
            PropertyValue::Map(_) | PropertyValue::Null => None,
        }
    }
}

/// `CREATE KEYSPACE`.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateKeyspace {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The keyspace.
    pub name: Ident,
    /// `WITH`, empty without it.
    pub properties: Vec<Property>,
}

/// `ALTER KEYSPACE`.
#[derive(Clone, Debug, PartialEq)]
pub struct AlterKeyspace {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The keyspace.
    pub name: Ident,
    /// `WITH`, not empty.
    pub properties: Vec<Property>,
}

/// `DROP KEYSPACE`.
#[derive(Clone, Debug, PartialEq)]
pub struct DropKeyspace {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The keyspace.
    pub name: Ident,
}

/// `CREATE TABLE`.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateTable {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The table.
    pub name: QualifiedName,
    /// The columns in the order of the text. A name may appear twice: the caller rejects it.
    pub columns: Vec<ColumnDefinition>,
    /// Every PRIMARY KEY of the text, `column type PRIMARY KEY` included: exactly one in a valid statement.
    pub primary_keys: Vec<PrimaryKey>,
    /// `CLUSTERING ORDER BY`, empty without it.
    pub clustering_order: Vec<(Ident, Direction)>,
    /// `COMPACT STORAGE`.
    pub compact_storage: bool,
    /// The other properties.
    pub properties: Vec<Property>,
}

/// A column of CREATE TABLE or ALTER TABLE ADD.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnDefinition {
    /// The name.
    pub name: Ident,
    /// The type.
    pub data_type: DataType,
    /// `TTL` (ScyllaDB): its values are the times at which rows expire.
    pub is_ttl: bool,
    /// `STATIC`.
    pub is_static: bool,
    /// `MASKED WITH`.
    pub mask: Option<Mask>,
    /// `CHECK …` and `NOT NULL` (Cassandra 6), joined by AND; empty without it.
    pub constraints: Vec<Constraint>,
}

/// `MASKED WITH function(args…)` or `MASKED WITH DEFAULT`.
#[derive(Clone, Debug, PartialEq)]
pub struct Mask {
    /// The masking function; none for `DEFAULT`.
    pub function: Option<QualifiedName>,
    /// Its arguments after the column.
    pub args: Vec<Term>,
}

/// A constraint of a column (Cassandra 6).
#[derive(Clone, Debug, PartialEq)]
pub enum Constraint {
    /// `[column] op constant`.
    Scalar {
        /// The column, when the text repeats it.
        column: Option<Ident>,
        /// The comparison.
        operator: ComparisonOperator,
        /// The value.
        value: Term,
    },
    /// `function(args…) [op constant]`, such as `LENGTH() < 10` or `JSON`.
    Function {
        /// The function, in lower case.
        name: Ident,
        /// Its arguments: columns or constants.
        args: Vec<ConstraintArgument>,
        /// The comparison; none for a function that is true or false itself.
        comparison: Option<(ComparisonOperator, Term)>,
    },
    /// `NOT NULL`.
    NotNull,
}

/// An argument of a constraint's function.
#[derive(Clone, Debug, PartialEq)]
pub enum ConstraintArgument {
    /// A column.
    Column(Ident),
    /// A constant.
    Value(Term),
}

/// A primary key.
#[derive(Clone, Debug, PartialEq)]
pub struct PrimaryKey {
    /// The partition key columns, not empty.
    pub partition: Vec<Ident>,
    /// The clustering columns.
    pub clustering: Vec<Ident>,
    /// Where it stands.
    pub pos: Pos,
}

/// The option `SECURITY LABELS` of [`CopyTable::options`], which is two words.
pub const SECURITY_LABELS: &str = "security_labels";

/// `CREATE TABLE new LIKE source` (Cassandra 6).
#[derive(Clone, Debug, PartialEq)]
pub struct CopyTable {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The new table.
    pub name: QualifiedName,
    /// The table whose definition is taken.
    pub source: QualifiedName,
    /// Bare options of WITH in lower case: `indexes`, `comments`, [`SECURITY_LABELS`], and those that later versions add.
    pub options: Vec<Ident>,
    /// The properties that replace the source's.
    pub properties: Vec<Property>,
}

/// `ALTER TABLE`.
#[derive(Clone, Debug, PartialEq)]
pub struct AlterTable {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The table.
    pub name: QualifiedName,
    /// The target of the change.
    pub operation: AlterTableOperation,
}

/// The change of an [`AlterTable`].
#[derive(Clone, Debug, PartialEq)]
pub enum AlterTableOperation {
    /// `ALTER column TYPE type`.
    AlterType {
        /// The column.
        column: Ident,
        /// The new type.
        data_type: DataType,
    },
    /// `ALTER [IF EXISTS] column MASKED WITH …` or `… DROP MASKED`.
    Mask {
        /// `IF EXISTS` of the column.
        if_exists: bool,
        /// The column.
        column: Ident,
        /// The new mask; none for `DROP MASKED`.
        mask: Option<Mask>,
    },
    /// `ALTER [IF EXISTS] column CHECK …` or `… DROP CHECK` (Cassandra 6).
    Constrain {
        /// `IF EXISTS` of the column.
        if_exists: bool,
        /// The column.
        column: Ident,
        /// The new constraints; empty for `DROP CHECK`.
        constraints: Vec<Constraint>,
    },
    /// `ADD [IF NOT EXISTS] …`.
    Add {
        /// `IF NOT EXISTS` of the columns.
        if_not_exists: bool,
        /// The columns, not empty.
        columns: Vec<ColumnDefinition>,
    },
    /// `DROP [IF EXISTS] … [USING TIMESTAMP …]`.
    Drop {
        /// `IF EXISTS` of the columns.
        if_exists: bool,
        /// The columns, not empty.
        columns: Vec<Ident>,
        /// Data up to this time, in microseconds, is dropped; now when absent.
        timestamp: Option<i64>,
    },
    /// `RENAME [IF EXISTS] a TO b AND …`.
    Rename {
        /// `IF EXISTS` of the columns.
        if_exists: bool,
        /// Old and new names, not empty.
        columns: Vec<(Ident, Ident)>,
    },
    /// `TTL column` (ScyllaDB); none for `TTL NULL`.
    Ttl(Option<Ident>),
    /// `DROP COMPACT STORAGE`.
    DropCompactStorage,
    /// `WITH …`, not empty.
    With(Vec<Property>),
}

/// `DROP TABLE`.
#[derive(Clone, Debug, PartialEq)]
pub struct DropTable {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The table.
    pub name: QualifiedName,
}

/// `CREATE TYPE`.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateType {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The type.
    pub name: QualifiedName,
    /// The fields in order, not empty.
    pub fields: Vec<(Ident, DataType)>,
}

/// `ALTER TYPE`.
#[derive(Clone, Debug, PartialEq)]
pub struct AlterType {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The type.
    pub name: QualifiedName,
    /// The target of the change.
    pub operation: AlterTypeOperation,
}

/// The change of an [`AlterType`].
#[derive(Clone, Debug, PartialEq)]
pub enum AlterTypeOperation {
    /// `ALTER field TYPE type`.
    AlterField {
        /// The field.
        field: Ident,
        /// The new type.
        data_type: DataType,
    },
    /// `ADD [IF NOT EXISTS] field type`.
    Add {
        /// `IF NOT EXISTS` of the field.
        if_not_exists: bool,
        /// The field.
        field: Ident,
        /// Its type.
        data_type: DataType,
    },
    /// `RENAME [IF EXISTS] a TO b AND …`.
    Rename {
        /// `IF EXISTS` of the fields.
        if_exists: bool,
        /// Old and new names, not empty.
        fields: Vec<(Ident, Ident)>,
    },
}

/// `DROP TYPE`.
#[derive(Clone, Debug, PartialEq)]
pub struct DropType {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The type.
    pub name: QualifiedName,
}

/// `CREATE [CUSTOM] INDEX`.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateIndex {
    /// `CUSTOM`.
    pub custom: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The index; the server makes a name when absent.
    pub name: Option<Ident>,
    /// The table.
    pub table: QualifiedName,
    /// The indexed columns; may be empty for a custom index.
    pub targets: Vec<IndexTarget>,
    /// `USING 'class'`.
    pub using: Option<String>,
    /// `WITH`, usually one `options` map.
    pub properties: Vec<Property>,
}

/// One column of an index.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexTarget {
    /// `c`.
    Column(Ident),
    /// `values(c)`.
    Values(Ident),
    /// `keys(c)`.
    Keys(Ident),
    /// `entries(c)`.
    Entries(Ident),
    /// `full(c)`.
    Full(Ident),
    /// `(a, b)`: the partition key of a local index (ScyllaDB).
    PartitionKey(Vec<Ident>),
}

/// `DROP INDEX`.
#[derive(Clone, Debug, PartialEq)]
pub struct DropIndex {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The index.
    pub name: QualifiedName,
}

/// `CREATE MATERIALIZED VIEW`.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateView {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The view.
    pub name: QualifiedName,
    /// The columns taken over.
    pub selection: Selection,
    /// The base table.
    pub base: QualifiedName,
    /// `WHERE`, empty without it.
    pub filter: Vec<Relation>,
    /// The view's primary key.
    pub primary_key: PrimaryKey,
    /// `CLUSTERING ORDER BY`, empty without it.
    pub clustering_order: Vec<(Ident, Direction)>,
    /// The other properties.
    pub properties: Vec<Property>,
}

/// `ALTER MATERIALIZED VIEW … WITH …`.
#[derive(Clone, Debug, PartialEq)]
pub struct AlterView {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The view.
    pub name: QualifiedName,
    /// `WITH`, not empty.
    pub properties: Vec<Property>,
}

/// `DROP MATERIALIZED VIEW`.
#[derive(Clone, Debug, PartialEq)]
pub struct DropView {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The view.
    pub name: QualifiedName,
}

/// `CREATE FUNCTION`.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateFunction {
    /// `OR REPLACE`.
    pub or_replace: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The function.
    pub name: QualifiedName,
    /// Names and types of the arguments.
    pub args: Vec<(Ident, DataType)>,
    /// `CALLED ON NULL INPUT`; false for `RETURNS NULL ON NULL INPUT`.
    pub called_on_null_input: bool,
    /// The type of the result.
    pub returns: DataType,
    /// The language in lower case.
    pub language: String,
    /// The source text.
    pub body: String,
}

/// `DROP FUNCTION`.
#[derive(Clone, Debug, PartialEq)]
pub struct DropFunction {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The function.
    pub name: QualifiedName,
    /// The signature, when written.
    pub args: Option<Vec<DataType>>,
}

/// `CREATE AGGREGATE`.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateAggregate {
    /// `OR REPLACE`.
    pub or_replace: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The aggregate.
    pub name: QualifiedName,
    /// The argument types.
    pub args: Vec<DataType>,
    /// `SFUNC`: the state function, in the aggregate's keyspace.
    pub state_function: String,
    /// `STYPE`.
    pub state_type: DataType,
    /// `REDUCEFUNC` (ScyllaDB): merges two states.
    pub reduce_function: Option<String>,
    /// `FINALFUNC`.
    pub final_function: Option<String>,
    /// `INITCOND`.
    pub initial_condition: Option<Term>,
}

/// `DROP AGGREGATE`.
#[derive(Clone, Debug, PartialEq)]
pub struct DropAggregate {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The aggregate.
    pub name: QualifiedName,
    /// The signature, when written.
    pub args: Option<Vec<DataType>>,
}

/// `CREATE TRIGGER`.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateTrigger {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The trigger.
    pub name: Ident,
    /// The table.
    pub table: QualifiedName,
    /// `USING 'class'`.
    pub class: String,
}

/// `DROP TRIGGER`.
#[derive(Clone, Debug, PartialEq)]
pub struct DropTrigger {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The trigger.
    pub name: Ident,
    /// The table.
    pub table: QualifiedName,
}

/// `COMMENT ON … IS '…'` (Cassandra 6).
#[derive(Clone, Debug, PartialEq)]
pub struct CommentOn {
    /// The target of the description.
    pub subject: CommentSubject,
    /// The text; none for `IS NULL`, which removes it.
    pub comment: Option<String>,
}

/// `SECURITY LABEL [FOR provider] ON … IS '…'` (Cassandra 6).
#[derive(Clone, Debug, PartialEq)]
pub struct SecurityLabel {
    /// `FOR provider`.
    pub provider: Option<Ident>,
    /// The target of the label.
    pub subject: CommentSubject,
    /// The label; none for `IS NULL`, which removes it.
    pub label: Option<String>,
}

/// The target of a [`CommentOn`] or of a [`SecurityLabel`].
#[derive(Clone, Debug, PartialEq)]
pub enum CommentSubject {
    /// `KEYSPACE ks`.
    Keyspace(Ident),
    /// `TABLE t`.
    Table(QualifiedName),
    /// `COLUMN t.c`.
    Column(QualifiedName, Ident),
    /// `TYPE t`.
    Type(QualifiedName),
    /// `FIELD t.f`.
    Field(QualifiedName, Ident),
}
