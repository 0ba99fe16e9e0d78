//! Which statement it is, by its first words.

use super::{Parser, Result};
use crate::ast::Statement;
use crate::keyword::Keyword;
use crate::lexer::Kind;

impl Parser<'_> {
    /// One statement without the `;` after it.
    pub(super) fn statement(&mut self) -> Result<Statement> {
        let Kind::Keyword(keyword) = self.kind() else { return Err(self.no_statement()) };
        Ok(match keyword {
            Keyword::Select => Statement::Select(self.select()?),
            Keyword::Insert => Statement::Insert(self.insert()?),
            Keyword::Update => Statement::Update(self.update()?),
            Keyword::Delete => Statement::Delete(self.delete()?),
            Keyword::Begin if self.next_kind() == Kind::Keyword(Keyword::Transaction) => {
                Statement::Transaction(self.transaction()?)
            }
            Keyword::Begin => Statement::Batch(self.batch()?),
            Keyword::Use => Statement::Use(self.use_keyspace()?),
            Keyword::Truncate => Statement::Truncate(self.truncate()?),
            Keyword::Prune => Statement::PruneView(self.prune_view()?),
            Keyword::Describe | Keyword::Desc => Statement::Describe(self.describe()?),
            Keyword::Create => self.create()?,
            Keyword::Alter => self.alter()?,
            Keyword::Drop => self.drop()?,
            Keyword::Comment => Statement::CommentOn(self.comment_on()?),
            Keyword::Security => Statement::SecurityLabel(self.security_label()?),
            Keyword::Grant => self.grant()?,
            Keyword::Revoke => self.revoke()?,
            Keyword::List => self.list_statement()?,
            Keyword::Add => Statement::AddIdentity(self.add_identity()?),
            Keyword::Attach => Statement::AttachServiceLevel(self.attach_service_level()?),
            Keyword::Detach => Statement::DetachServiceLevel(self.detach_service_level()?),
            _ => return Err(self.no_statement()),
        })
    }

    #[cold]
    fn no_statement(&mut self) -> Box<crate::SyntaxError> {
        let starts = [
            "SELECT", "INSERT", "UPDATE", "DELETE", "BEGIN", "USE", "TRUNCATE", "DESCRIBE", "CREATE",
            "ALTER", "DROP", "GRANT", "REVOKE", "LIST", "ADD", "PRUNE", "COMMENT", "SECURITY", "ATTACH",
            "DETACH",
        ];
        for what in starts {
            self.want(what);
        }
        self.unexpected()
    }

    /// The token after CREATE, ALTER or DROP that decides, and the error if it is none of `words`.
    pub(super) fn kind_of_element(&mut self, words: &[&'static str]) -> Result<Keyword> {
        for what in words {
            self.want(what);
        }
        match self.kind() {
            Kind::Keyword(keyword) if words.contains(&keyword.text()) => Ok(keyword),
            Kind::Keyword(Keyword::ServiceLevel) if words.contains(&"SERVICE") => Ok(Keyword::Service),
            _ => Err(self.unexpected()),
        }
    }
}
