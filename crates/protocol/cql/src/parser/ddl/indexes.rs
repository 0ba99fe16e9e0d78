//! CREATE and DROP INDEX.

use crate::ast::{CreateIndex, DropIndex, IndexTarget};
use crate::keyword::Keyword;
use crate::lexer::Kind;
use crate::parser::{Parser, Result};

impl Parser<'_> {
    pub(super) fn create_index(&mut self) -> Result<CreateIndex> {
        let custom = self.eat_keyword(Keyword::Custom);
        self.expect_keyword(Keyword::Index)?;
        let if_not_exists = self.if_not_exists()?;
        let name = match self.kind() {
            Kind::Keyword(Keyword::On) => None,
            _ => {
                self.want("ON");
                self.refuse_marker("index")?;
                Some(self.ident()?)
            }
        };
        self.expect_keyword(Keyword::On)?;
        let table = self.table_name()?;
        let targets = self.bracketed_or_empty(Self::index_target)?;
        let using = if self.eat_keyword(Keyword::Using) { Some(self.string()?) } else { None };
        let properties = if self.eat_keyword(Keyword::With) { self.properties()? } else { Vec::new() };
        Ok(CreateIndex { custom, if_not_exists, name, table, targets, using, properties })
    }

    fn index_target(&mut self) -> Result<IndexTarget> {
        if self.kind() == Kind::LeftParen {
            return Ok(IndexTarget::PartitionKey(self.bracketed(Self::column)?));
        }
        let make: fn(crate::ast::Ident) -> IndexTarget = match self.kind() {
            Kind::Keyword(keyword) if self.next_kind() == Kind::LeftParen => match keyword {
                Keyword::Values => IndexTarget::Values,
                Keyword::Keys => IndexTarget::Keys,
                Keyword::Entries => IndexTarget::Entries,
                Keyword::Full => IndexTarget::Full,
                _ => return Err(self.unexpected_want("an identifier")),
            },
            _ => return Ok(IndexTarget::Column(self.column()?)),
        };
        self.advance();
        self.expect(Kind::LeftParen)?;
        let column = self.column()?;
        self.expect(Kind::RightParen)?;
        Ok(make(column))
    }

    pub(super) fn drop_index(&mut self) -> Result<DropIndex> {
        self.advance();
        Ok(DropIndex { if_exists: self.if_exists()?, name: self.index_name()? })
    }
}
