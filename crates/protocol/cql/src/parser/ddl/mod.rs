//! CREATE, ALTER and DROP: which element, and the small ones (keyspaces, triggers, comments).

mod functions;
mod indexes;
mod tables;
mod user_types;
mod views;

use super::{Parser, Result};
use crate::ast::{
    AlterKeyspace, CommentOn, CommentSubject, CreateKeyspace, CreateTrigger, DropKeyspace, DropTrigger,
    Ident, QualifiedName, SecurityLabel, Statement,
};
use crate::keyword::Keyword;
use crate::lexer::Kind;

impl Parser<'_> {
    /// `CREATE …`.
    pub(in crate::parser) fn create(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Create)?;
        let words = [
            "KEYSPACE",
            "SCHEMA",
            "TABLE",
            "COLUMNFAMILY",
            "TYPE",
            "INDEX",
            "CUSTOM",
            "MATERIALIZED",
            "FUNCTION",
            "AGGREGATE",
            "OR",
            "TRIGGER",
            "ROLE",
            "USER",
            "SERVICE",
        ];
        Ok(match self.kind_of_element(&words)? {
            Keyword::Keyspace | Keyword::Schema => Statement::CreateKeyspace(self.create_keyspace()?),
            Keyword::Table | Keyword::Columnfamily => self.create_table()?,
            Keyword::Type => Statement::CreateType(self.create_type()?),
            Keyword::Index | Keyword::Custom => Statement::CreateIndex(self.create_index()?),
            Keyword::Materialized => Statement::CreateView(self.create_view()?),
            Keyword::Function | Keyword::Aggregate => self.create_function_or_aggregate(false)?,
            Keyword::Or => {
                self.advance();
                self.expect_keyword(Keyword::Replace)?;
                self.kind_of_element(&["FUNCTION", "AGGREGATE"])?;
                self.create_function_or_aggregate(true)?
            }
            Keyword::Trigger => Statement::CreateTrigger(self.create_trigger()?),
            Keyword::Role => Statement::CreateRole(self.create_role()?),
            Keyword::User => Statement::CreateUser(self.create_user()?),
            _ => Statement::CreateServiceLevel(self.create_service_level()?),
        })
    }

    /// `ALTER …`.
    pub(in crate::parser) fn alter(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Alter)?;
        let words = [
            "KEYSPACE",
            "SCHEMA",
            "TABLE",
            "COLUMNFAMILY",
            "TYPE",
            "MATERIALIZED",
            "ROLE",
            "USER",
            "SERVICE",
        ];
        Ok(match self.kind_of_element(&words)? {
            Keyword::Keyspace | Keyword::Schema => Statement::AlterKeyspace(self.alter_keyspace()?),
            Keyword::Table | Keyword::Columnfamily => Statement::AlterTable(self.alter_table()?),
            Keyword::Type => Statement::AlterType(self.alter_type()?),
            Keyword::Materialized => Statement::AlterView(self.alter_view()?),
            Keyword::Role => Statement::AlterRole(self.alter_role()?),
            Keyword::User => Statement::AlterUser(self.alter_user()?),
            _ => Statement::AlterServiceLevel(self.alter_service_level()?),
        })
    }

    /// `DROP …`.
    pub(in crate::parser) fn drop(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Drop)?;
        let words = [
            "KEYSPACE",
            "SCHEMA",
            "TABLE",
            "COLUMNFAMILY",
            "TYPE",
            "INDEX",
            "MATERIALIZED",
            "FUNCTION",
            "AGGREGATE",
            "TRIGGER",
            "ROLE",
            "USER",
            "IDENTITY",
            "SERVICE",
        ];
        Ok(match self.kind_of_element(&words)? {
            Keyword::Keyspace | Keyword::Schema => Statement::DropKeyspace(self.drop_keyspace()?),
            Keyword::Table | Keyword::Columnfamily => Statement::DropTable(self.drop_table()?),
            Keyword::Type => Statement::DropType(self.drop_type()?),
            Keyword::Index => Statement::DropIndex(self.drop_index()?),
            Keyword::Materialized => Statement::DropView(self.drop_view()?),
            Keyword::Function => Statement::DropFunction(self.drop_function()?),
            Keyword::Aggregate => Statement::DropAggregate(self.drop_aggregate()?),
            Keyword::Trigger => Statement::DropTrigger(self.drop_trigger()?),
            Keyword::Role => Statement::DropRole(self.drop_role()?),
            Keyword::User => Statement::DropUser(self.drop_user()?),
            Keyword::Identity => Statement::DropIdentity(self.drop_identity()?),
            _ => Statement::DropServiceLevel(self.drop_service_level()?),
        })
    }

    fn create_keyspace(&mut self) -> Result<CreateKeyspace> {
        self.advance();
        let if_not_exists = self.if_not_exists()?;
        let name = self.keyspace_name()?;
        let properties = if self.eat_keyword(Keyword::With) { self.properties()? } else { Vec::new() };
        Ok(CreateKeyspace { if_not_exists, name, properties })
    }

    fn alter_keyspace(&mut self) -> Result<AlterKeyspace> {
        self.advance();
        let if_exists = self.if_exists()?;
        let name = self.keyspace_name()?;
        self.expect_keyword(Keyword::With)?;
        Ok(AlterKeyspace { if_exists, name, properties: self.properties()? })
    }

    fn drop_keyspace(&mut self) -> Result<DropKeyspace> {
        self.advance();
        Ok(DropKeyspace { if_exists: self.if_exists()?, name: self.keyspace_name()? })
    }

    fn create_trigger(&mut self) -> Result<CreateTrigger> {
        self.advance();
        let if_not_exists = self.if_not_exists()?;
        let name = self.ident()?;
        self.expect_keyword(Keyword::On)?;
        let table = self.table_name()?;
        self.expect_keyword(Keyword::Using)?;
        Ok(CreateTrigger { if_not_exists, name, table, class: self.string()? })
    }

    fn drop_trigger(&mut self) -> Result<DropTrigger> {
        self.advance();
        let if_exists = self.if_exists()?;
        let name = self.ident()?;
        self.expect_keyword(Keyword::On)?;
        Ok(DropTrigger { if_exists, name, table: self.table_name()? })
    }

    /// `SECURITY LABEL … ON … IS …`.
    pub(in crate::parser) fn security_label(&mut self) -> Result<SecurityLabel> {
        self.expect_keyword(Keyword::Security)?;
        self.expect_keyword(Keyword::Label)?;
        let provider = if self.eat_keyword(Keyword::For) { Some(self.ident()?) } else { None };
        let (subject, label) = self.description()?;
        Ok(SecurityLabel { provider, subject, label })
    }

    /// `COMMENT ON … IS …`.
    pub(in crate::parser) fn comment_on(&mut self) -> Result<CommentOn> {
        self.expect_keyword(Keyword::Comment)?;
        let (subject, comment) = self.description()?;
        Ok(CommentOn { subject, comment })
    }

    /// `ON … IS …`.
    fn description(&mut self) -> Result<(CommentSubject, Option<String>)> {
        self.expect_keyword(Keyword::On)?;
        let words = ["KEYSPACE", "SCHEMA", "TABLE", "COLUMNFAMILY", "COLUMN", "TYPE", "FIELD"];
        let element = self.kind_of_element(&words)?;
        self.advance();
        let subject = match element {
            Keyword::Keyspace | Keyword::Schema => CommentSubject::Keyspace(self.keyspace_name()?),
            Keyword::Table | Keyword::Columnfamily => CommentSubject::Table(self.table_name()?),
            Keyword::Column => {
                let (table, column) = self.member_name()?;
                CommentSubject::Column(table, column)
            }
            Keyword::Type => CommentSubject::Type(self.type_name()?),
            _ => {
                let (data_type, field) = self.member_name()?;
                CommentSubject::Field(data_type, field)
            }
        };
        self.expect_keyword(Keyword::Is)?;
        let text = if self.eat_keyword(Keyword::Null) { None } else { Some(self.string()?) };
        Ok((subject, text))
    }

    /// `[keyspace.]element.member`.
    fn member_name(&mut self) -> Result<(QualifiedName, Ident)> {
        let first = self.ident()?;
        self.expect(Kind::Dot)?;
        let second = self.ident()?;
        if !self.eat(Kind::Dot) {
            return Ok((QualifiedName { keyspace: None, name: first.name, pos: first.pos }, second));
        }
        let member = self.ident()?;
        let element = QualifiedName { keyspace: Some(first.name), name: second.name, pos: first.pos };
        Ok((element, member))
    }
}
