//! The syntax tree: plain owned data of a statement's text, independent of the schema.
//!
//! Names are already folded (`Foo` is `foo`, `"Foo"` is `Foo`), constants keep their text, bind markers keep their
//! number. Whether a column exists or a literal fits its type is for the caller that has a schema; the [`Pos`]
//! kept beside names and terms lets that caller say where. Two trees are equal when they mean the same statement:
//! positions take no part in it.

mod ddl;
mod describe;
mod dml;
mod roles;
mod select;
mod service_level;
mod term;
mod transaction;
mod types;

pub use ddl::*;
pub use describe::*;
pub use dml::*;
pub use roles::*;
pub use select::*;
pub use service_level::*;
pub use term::*;
pub use transaction::*;
pub use types::*;

use std::fmt;

/// A place in the statement's text. Lines count from 1 and columns, in characters, from 0, as Cassandra's error
/// messages do. A position is never part of equality: all positions are equal.
#[derive(Clone, Copy, Default, Eq)]
pub struct Pos {
    /// The line, from 1; 0 in a tree that was not parsed from text.
    pub line: u32,
    /// The column in characters, from 0.
    pub column: u32,
}

impl PartialEq for Pos {
    fn eq(&self, _: &Pos) -> bool {
        true
    }
}

impl fmt::Debug for Pos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

impl fmt::Display for Pos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}:{}", self.line, self.column)
    }
}

/// A single name (column, field, argument, keyspace, alias), case already folded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ident {
    /// The name as the schema knows it. Empty only for a column written `""` (the value of an old super column).
    pub name: String,
    /// Where it stands.
    pub pos: Pos,
}

impl Ident {
    /// A name without a position.
    pub fn new(name: impl Into<String>) -> Ident {
        Ident { name: name.into(), pos: Pos::default() }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.name
    }
}

/// The name of a table, view, index, type, function or aggregate, with the keyspace when the text gives one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QualifiedName {
    /// The keyspace, when written.
    pub keyspace: Option<String>,
    /// The name itself.
    pub name: String,
    /// Where it starts.
    pub pos: Pos,
}

impl QualifiedName {
    /// A name without a position.
    pub fn new(keyspace: Option<&str>, name: impl Into<String>) -> QualifiedName {
        QualifiedName { keyspace: keyspace.map(str::to_owned), name: name.into(), pos: Pos::default() }
    }
}

/// One bind marker, in order of appearance: as a client sees it in the metadata of a prepared statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The number, from 0: the place of its value in an EXECUTE frame. Two markers of one name have two numbers.
    pub index: u32,
    /// The name of `:name`, none for `?`.
    pub name: Option<String>,
    /// Where it stands.
    pub pos: Pos,
}

/// The result of [`crate::parse`].
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The statement.
    pub statement: Statement,
    /// Every bind marker of the text; `markers[i].index == i`.
    pub markers: Vec<Marker>,
}

/// One CQL statement.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant is the statement that its payload's type describes")]
pub enum Statement {
    Select(Select),
    Insert(Insert),
    Update(Update),
    Delete(Delete),
    Batch(Batch),
    Transaction(Transaction),
    Truncate(Truncate),
    PruneView(PruneView),
    Use(Use),
    Describe(Describe),
    CreateKeyspace(CreateKeyspace),
    AlterKeyspace(AlterKeyspace),
    DropKeyspace(DropKeyspace),
    CreateTable(CreateTable),
    CopyTable(CopyTable),
    AlterTable(AlterTable),
    DropTable(DropTable),
    CreateType(CreateType),
    AlterType(AlterType),
    DropType(DropType),
    CreateIndex(CreateIndex),
    DropIndex(DropIndex),
    CreateView(CreateView),
    AlterView(AlterView),
    DropView(DropView),
    CreateFunction(CreateFunction),
    DropFunction(DropFunction),
    CreateAggregate(CreateAggregate),
    DropAggregate(DropAggregate),
    CreateTrigger(CreateTrigger),
    DropTrigger(DropTrigger),
    CommentOn(CommentOn),
    SecurityLabel(SecurityLabel),
    CreateRole(CreateRole),
    AlterRole(AlterRole),
    DropRole(DropRole),
    CreateUser(CreateUser),
    AlterUser(AlterUser),
    DropUser(DropUser),
    GrantRole(GrantRole),
    RevokeRole(RevokeRole),
    GrantPermissions(GrantPermissions),
    RevokePermissions(RevokePermissions),
    ListPermissions(ListPermissions),
    ListRoles(ListRoles),
    ListUsers,
    ListSuperusers,
    AddIdentity(AddIdentity),
    DropIdentity(DropIdentity),
    CreateServiceLevel(CreateServiceLevel),
    AlterServiceLevel(AlterServiceLevel),
    DropServiceLevel(DropServiceLevel),
    AttachServiceLevel(AttachServiceLevel),
    DetachServiceLevel(DetachServiceLevel),
    ListServiceLevels(ListServiceLevels),
}

impl Statement {
    /// The statement's name in CQL's words, such as `CREATE MATERIALIZED VIEW`: for messages, metrics and audit.
    pub fn name(&self) -> &'static str {
        match self {
            Statement::Select(_) => "SELECT",
            Statement::Insert(_) => "INSERT",
            Statement::Update(_) => "UPDATE",
            Statement::Delete(_) => "DELETE",
            Statement::Batch(_) => "BATCH",
            Statement::Transaction(_) => "TRANSACTION",
            Statement::Truncate(_) => "TRUNCATE",
            Statement::PruneView(_) => "PRUNE MATERIALIZED VIEW",
            Statement::Use(_) => "USE",
            Statement::Describe(_) => "DESCRIBE",
            Statement::CreateKeyspace(_) => "CREATE KEYSPACE",
            Statement::AlterKeyspace(_) => "ALTER KEYSPACE",
            Statement::DropKeyspace(_) => "DROP KEYSPACE",
            Statement::CreateTable(_) => "CREATE TABLE",
            Statement::CopyTable(_) => "CREATE TABLE LIKE",
            Statement::AlterTable(_) => "ALTER TABLE",
            Statement::DropTable(_) => "DROP TABLE",
            Statement::CreateType(_) => "CREATE TYPE",
            Statement::AlterType(_) => "ALTER TYPE",
            Statement::DropType(_) => "DROP TYPE",
            Statement::CreateIndex(_) => "CREATE INDEX",
            Statement::DropIndex(_) => "DROP INDEX",
            Statement::CreateView(_) => "CREATE MATERIALIZED VIEW",
            Statement::AlterView(_) => "ALTER MATERIALIZED VIEW",
            Statement::DropView(_) => "DROP MATERIALIZED VIEW",
            Statement::CreateFunction(_) => "CREATE FUNCTION",
            Statement::DropFunction(_) => "DROP FUNCTION",
            Statement::CreateAggregate(_) => "CREATE AGGREGATE",
            Statement::DropAggregate(_) => "DROP AGGREGATE",
            Statement::CreateTrigger(_) => "CREATE TRIGGER",
            Statement::DropTrigger(_) => "DROP TRIGGER",
            Statement::CommentOn(_) => "COMMENT ON",
            Statement::SecurityLabel(_) => "SECURITY LABEL",
            _ => self.access_name(),
        }
    }

    /// [`Statement::name`] of the statements about roles, permissions and service levels.
    fn access_name(&self) -> &'static str {
        match self {
            Statement::CreateRole(_) => "CREATE ROLE",
            Statement::AlterRole(_) => "ALTER ROLE",
            Statement::DropRole(_) => "DROP ROLE",
            Statement::CreateUser(_) => "CREATE USER",
            Statement::AlterUser(_) => "ALTER USER",
            Statement::DropUser(_) => "DROP USER",
            Statement::GrantRole(_) | Statement::GrantPermissions(_) => "GRANT",
            Statement::RevokeRole(_) | Statement::RevokePermissions(_) => "REVOKE",
            Statement::ListPermissions(_) => "LIST PERMISSIONS",
            Statement::ListRoles(_) => "LIST ROLES",
            Statement::ListUsers => "LIST USERS",
            Statement::ListSuperusers => "LIST SUPERUSERS",
            Statement::AddIdentity(_) => "ADD IDENTITY",
            Statement::DropIdentity(_) => "DROP IDENTITY",
            Statement::CreateServiceLevel(_) => "CREATE SERVICE LEVEL",
            Statement::AlterServiceLevel(_) => "ALTER SERVICE LEVEL",
            Statement::DropServiceLevel(_) => "DROP SERVICE LEVEL",
            Statement::AttachServiceLevel(_) => "ATTACH SERVICE LEVEL",
            Statement::DetachServiceLevel(_) => "DETACH SERVICE LEVEL",
            Statement::ListServiceLevels(_) => "LIST SERVICE LEVELS",
            _ => unreachable!("every other statement has its name in Statement::name"),
        }
    }
}
