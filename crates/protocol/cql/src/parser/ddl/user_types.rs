//! CREATE, ALTER and DROP TYPE.

use crate::ast::{AlterType, AlterTypeOperation, CreateType, DropType};
use crate::keyword::Keyword;
use crate::lexer::Kind;
use crate::parser::{Parser, Result};

impl Parser<'_> {
    pub(super) fn create_type(&mut self) -> Result<CreateType> {
        self.advance();
        let if_not_exists = self.if_not_exists()?;
        let name = self.type_name()?;
        self.expect(Kind::LeftParen)?;
        let mut fields = vec![(self.ident()?, self.data_type()?)];
        while self.eat(Kind::Comma) {
            // A comma may stand before the bracket or before another comma.
            if !matches!(self.kind(), Kind::Comma | Kind::RightParen) {
                fields.push((self.ident()?, self.data_type()?));
            }
        }
        self.expect(Kind::RightParen)?;
        Ok(CreateType { if_not_exists, name, fields })
    }

    pub(super) fn alter_type(&mut self) -> Result<AlterType> {
        self.advance();
        let if_exists = self.if_exists()?;
        let name = self.type_name()?;
        let element = self.kind_of_element(&["ALTER", "ADD", "RENAME"])?;
        self.advance();
        let operation = match element {
            Keyword::Alter => {
                let field = self.ident()?;
                self.expect_keyword(Keyword::Type)?;
                AlterTypeOperation::AlterField { field, data_type: self.data_type()? }
            }
            Keyword::Add => AlterTypeOperation::Add {
                if_not_exists: self.if_not_exists()?,
                field: self.ident()?,
                data_type: self.data_type()?,
            },
            _ => AlterTypeOperation::Rename { if_exists: self.if_exists()?, fields: self.renames()? },
        };
        Ok(AlterType { if_exists, name, operation })
    }

    pub(super) fn drop_type(&mut self) -> Result<DropType> {
        self.advance();
        Ok(DropType { if_exists: self.if_exists()?, name: self.type_name()? })
    }
}
