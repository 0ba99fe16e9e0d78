//! Transactions over several partitions.

use super::{Parser, Result};
use crate::ast::{
    Ident, Predicate, ReferencePart, Relation, Returning, RowReference, Select, Target, Transaction,
};
use crate::keyword::Keyword;
use crate::lexer::Kind;

impl Parser<'_> {
    /// `BEGIN TRANSACTION … COMMIT TRANSACTION`.
    pub(super) fn transaction(&mut self) -> Result<Transaction> {
        self.expect_keyword(Keyword::Begin)?;
        self.expect_keyword(Keyword::Transaction)?;
        self.in_transaction = true;
        let mut lets = Vec::new();
        while self.eat_keyword(Keyword::Let) {
            lets.push(self.let_row()?);
            self.expect(Kind::Semicolon)?;
        }
        let returning = self.returning()?;
        let conditions = if self.eat_keyword(Keyword::If) {
            let conditions = self.and_separated(Self::transaction_condition)?;
            self.expect_keyword(Keyword::Then)?;
            conditions
        } else {
            Vec::new()
        };
        let mut updates = Vec::new();
        while let Some(update) = self.modification()? {
            updates.push(update);
            self.expect(Kind::Semicolon)?;
        }
        if !conditions.is_empty() {
            self.expect_keyword(Keyword::End)?;
            self.expect_keyword(Keyword::If)?;
        }
        self.expect_keyword(Keyword::Commit)?;
        self.expect_keyword(Keyword::Transaction)?;
        self.in_transaction = false;
        Ok(Transaction { lets, returning, conditions, updates })
    }

    /// `name = (SELECT …)`.
    fn let_row(&mut self) -> Result<(Ident, Select)> {
        let name = self.ident()?;
        self.expect(Kind::Equal)?;
        self.expect(Kind::LeftParen)?;
        let select = self.select()?;
        self.expect(Kind::RightParen)?;
        Ok((name, select))
    }

    /// `SELECT …;`, or nothing. Without a FROM it lists values of the LETs.
    fn returning(&mut self) -> Result<Option<Returning>> {
        if self.kind() != Kind::Keyword(Keyword::Select) {
            self.want("SELECT");
            return Ok(None);
        }
        let returning = if self.select_lists_references() {
            self.advance();
            Returning::References(self.comma_separated(Self::row_reference)?)
        } else {
            Returning::Select(Box::new(self.select()?))
        };
        self.expect(Kind::Semicolon)?;
        Ok(Some(returning))
    }

    /// Whether the SELECT here ends before a FROM.
    fn select_lists_references(&self) -> bool {
        let mut ahead = self.cursor;
        loop {
            ahead.advance();
            match ahead.token.kind {
                Kind::Keyword(Keyword::From) | Kind::Eof => return false,
                Kind::Semicolon => return true,
                _ => {}
            }
        }
    }

    /// `row`, `row.column`, `row.column[key]` or `row.column.field`.
    pub(super) fn row_reference(&mut self) -> Result<RowReference> {
        let row = self.ident()?;
        if !self.eat(Kind::Dot) {
            return Ok(RowReference { row, column: None, part: None });
        }
        let column = Some(self.column()?);
        let part = if self.eat(Kind::LeftBracket) {
            let key = self.term()?;
            self.expect(Kind::RightBracket)?;
            Some(Box::new(ReferencePart::Element(key)))
        } else if self.eat(Kind::Dot) {
            Some(Box::new(ReferencePart::Field(self.ident()?)))
        } else {
            None
        };
        Ok(RowReference { row, column, part })
    }

    fn transaction_condition(&mut self) -> Result<Relation> {
        let pos = self.pos();
        let target = Target::Reference(self.row_reference()?);
        if self.eat_keyword(Keyword::Is) {
            let negated = self.eat_keyword(Keyword::Not);
            self.expect_keyword(Keyword::Null)?;
            let predicate = if negated { Predicate::IsNotNull } else { Predicate::IsNull };
            return Ok(Relation { target, predicate, pos });
        }
        let Some(operator) = self.comparison_operator() else {
            return Err(self.unexpected_want("a comparison"));
        };
        Ok(Relation { target, predicate: Predicate::Compare(operator, self.term()?), pos })
    }
}
