//! The relations of WHERE and the conditions of IF.

use super::{Parser, Result};
use crate::ast::{
    ComparisonOperator, Condition, Ident, InValues, Predicate, Relation, Target, Term, TermKind,
};
use crate::keyword::Keyword;
use crate::lexer::Kind;

impl Parser<'_> {
    /// `relation AND …`, one or more.
    pub(super) fn where_clause(&mut self) -> Result<Vec<Relation>> {
        self.and_separated(Self::relation)
    }

    fn relation(&mut self) -> Result<Relation> {
        let pos = self.pos();
        if self.kind() == Kind::LeftParen && !self.at_tuple_of_columns() {
            self.advance();
            let relation = self.nested(Self::relation)?;
            self.expect(Kind::RightParen)?;
            return Ok(relation);
        }
        let (target, predicate) = match self.kind() {
            _ if self.at_bm25() => {
                let (column, term) = self.bm25()?;
                (Target::Relevance(column, term), self.comparison_or(&[])?)
            }
            Kind::LeftParen => self.tuple_relation()?,
            Kind::Keyword(Keyword::Token) => self.token_relation()?,
            Kind::Word if self.next_kind() == Kind::LeftParen && self.text().eq_ignore_ascii_case("expr") => {
                self.index_expression()?
            }
            _ => self.column_relation()?,
        };
        Ok(Relation { target, predicate, pos })
    }

    /// Whether `BM25(` or `system.BM25(` stands here.
    pub(super) fn at_bm25(&self) -> bool {
        let mut ahead = self.cursor;
        if self.text().eq_ignore_ascii_case("system") && self.next_kind() == Kind::Dot {
            ahead.advance();
            ahead.advance();
        }
        let is_name =
            ahead.token.kind == Kind::Word && self.text_of(ahead.token).eq_ignore_ascii_case("bm25");
        ahead.advance();
        is_name && ahead.token.kind == Kind::LeftParen
    }

    /// The column and the query of `BM25(column, query)`.
    pub(super) fn bm25(&mut self) -> Result<(Ident, Term)> {
        if self.next_kind() == Kind::Dot {
            self.advance();
            self.advance();
        }
        self.advance();
        self.expect(Kind::LeftParen)?;
        let column = self.column()?;
        self.expect(Kind::Comma)?;
        let term = self.term()?;
        self.expect(Kind::RightParen)?;
        Ok((column, term))
    }

    /// Whether `(column, …)` stands here.
    fn at_tuple_of_columns(&self) -> bool {
        let mut ahead = self.cursor;
        loop {
            ahead.advance();
            if !ahead.token.kind.is_name() && ahead.token.kind != Kind::EmptyName {
                return false;
            }
            ahead.advance();
            match ahead.token.kind {
                Kind::Comma => {}
                kind => return kind == Kind::RightParen,
            }
        }
    }

    fn column_relation(&mut self) -> Result<(Target, Predicate)> {
        let column = self.column()?;
        if self.eat(Kind::LeftBracket) {
            let key = self.term()?;
            self.expect(Kind::RightBracket)?;
            let predicate = match self.kind() {
                Kind::Keyword(Keyword::Between) => self.between()?,
                Kind::Keyword(Keyword::In) => self.in_values(false)?,
                Kind::Keyword(Keyword::Not) => {
                    self.advance();
                    self.in_values(true)?
                }
                Kind::Keyword(Keyword::Like) => {
                    self.advance();
                    Predicate::Like(self.term()?)
                }
                _ => self.comparison_or(&["BETWEEN", "IN", "NOT", "LIKE"])?,
            };
            return Ok((Target::Element(column, key), predicate));
        }
        let predicate = match self.kind() {
            Kind::Keyword(Keyword::Between) => self.between()?,
            Kind::Keyword(Keyword::Like) => {
                self.advance();
                Predicate::Like(self.term()?)
            }
            Kind::Keyword(Keyword::Is) => {
                self.advance();
                self.expect_keyword(Keyword::Not)?;
                self.expect_keyword(Keyword::Null)?;
                Predicate::IsNotNull
            }
            Kind::Keyword(Keyword::Contains) => self.contains(false)?,
            Kind::Keyword(Keyword::In) => self.in_values(false)?,
            Kind::Keyword(Keyword::Not) if self.next_kind() == Kind::Keyword(Keyword::Contains) => {
                self.advance();
                self.contains(true)?
            }
            Kind::Keyword(Keyword::Not) => {
                self.advance();
                self.in_values(true)?
            }
            Kind::Colon => {
                self.advance();
                Predicate::Matches(self.term()?)
            }
            _ => self.comparison_or(&["BETWEEN", "LIKE", "IS", "CONTAINS", "IN", "NOT", "'['", "':'"])?,
        };
        Ok((Target::Column(column), predicate))
    }

    fn tuple_relation(&mut self) -> Result<(Target, Predicate)> {
        let target = Target::Tuple(self.bracketed(Self::column)?);
        let predicate = match self.kind() {
            Kind::Keyword(Keyword::In) => self.tuple_in_values(false)?,
            Kind::Keyword(Keyword::Not) => {
                self.advance();
                self.tuple_in_values(true)?
            }
            Kind::Keyword(Keyword::Between) => {
                self.advance();
                let low = self.tuple_or_marker()?;
                self.expect_keyword(Keyword::And)?;
                Predicate::Between(low, self.tuple_or_marker()?)
            }
            _ => match self.comparison_operator() {
                Some(operator) => Predicate::Compare(operator, self.tuple_or_marker()?),
                None => return Err(self.no_operator(&["IN", "NOT", "BETWEEN"])),
            },
        };
        Ok((target, predicate))
    }

    fn token_relation(&mut self) -> Result<(Target, Predicate)> {
        self.advance();
        let target = Target::Token(self.bracketed(Self::column)?);
        let predicate = match self.kind() {
            Kind::Keyword(Keyword::Between) => self.between()?,
            _ => self.comparison_or(&["BETWEEN"])?,
        };
        Ok((target, predicate))
    }

    fn index_expression(&mut self) -> Result<(Target, Predicate)> {
        self.advance();
        self.expect(Kind::LeftParen)?;
        let index = self.index_name()?;
        self.expect(Kind::Comma)?;
        let term = self.term()?;
        self.expect(Kind::RightParen)?;
        Ok((Target::Index(index), Predicate::Expression(term)))
    }

    /// `= != < <= > >=`, if one stands here.
    pub(super) fn comparison_operator(&mut self) -> Option<ComparisonOperator> {
        let operator = match self.kind() {
            Kind::Equal => ComparisonOperator::Equal,
            Kind::NotEqual => ComparisonOperator::NotEqual,
            Kind::Less => ComparisonOperator::Less,
            Kind::LessOrEqual => ComparisonOperator::LessOrEqual,
            Kind::Greater => ComparisonOperator::Greater,
            Kind::GreaterOrEqual => ComparisonOperator::GreaterOrEqual,
            _ => return None,
        };
        self.advance();
        Some(operator)
    }

    /// The term after a comparison operator. Knows the operators of other languages.
    fn compared_term(&mut self) -> Result<Term> {
        match self.kind() {
            Kind::Greater => Err(self.rule("no viable alternative at input '>': unequal is written '!='")),
            Kind::Equal => Err(self.rule("no viable alternative at input '=': equal is written '='")),
            _ => self.term(),
        }
    }

    /// `op term`; the error names the other words that could stand instead.
    fn comparison_or(&mut self, others: &[&'static str]) -> Result<Predicate> {
        match self.comparison_operator() {
            Some(operator) => Ok(Predicate::Compare(operator, self.compared_term()?)),
            None => Err(self.no_operator(others)),
        }
    }

    #[cold]
    fn no_operator(&mut self, others: &[&'static str]) -> Box<crate::SyntaxError> {
        for what in ["'='", "'!='", "'<'", "'<='", "'>'", "'>='"].iter().chain(others) {
            self.want(what);
        }
        self.unexpected()
    }

    /// `BETWEEN low AND high`.
    fn between(&mut self) -> Result<Predicate> {
        self.expect_keyword(Keyword::Between)?;
        let low = self.term()?;
        self.expect_keyword(Keyword::And)?;
        Ok(Predicate::Between(low, self.term()?))
    }

    /// `CONTAINS [KEY] term`.
    fn contains(&mut self, negated: bool) -> Result<Predicate> {
        self.expect_keyword(Keyword::Contains)?;
        // `key` may also start a term only as the keyspace of a function.
        let key = self.kind() == Kind::Keyword(Keyword::Key) && self.next_kind() != Kind::Dot;
        if key {
            self.advance();
        }
        Ok(Predicate::Contains { negated, key, value: self.term()? })
    }

    /// `IN (…)` or `IN ?`.
    fn in_values(&mut self, negated: bool) -> Result<Predicate> {
        self.expect_keyword(Keyword::In)?;
        let values = match self.kind() {
            Kind::QuestionMark | Kind::Colon => InValues::Marker(self.marker()?),
            _ => InValues::List(self.bracketed_or_empty(Self::term)?),
        };
        Ok(Predicate::In { negated, values })
    }

    /// `IN (tuple, …)` or `IN ?`.
    fn tuple_in_values(&mut self, negated: bool) -> Result<Predicate> {
        self.expect_keyword(Keyword::In)?;
        let values = match self.kind() {
            Kind::QuestionMark | Kind::Colon => InValues::Marker(self.marker()?),
            _ => InValues::List(self.bracketed_or_empty(Self::tuple_or_marker)?),
        };
        Ok(Predicate::In { negated, values })
    }

    fn tuple_or_marker(&mut self) -> Result<Term> {
        let pos = self.pos();
        let kind = match self.kind() {
            Kind::QuestionMark | Kind::Colon => TermKind::Marker(self.marker()?),
            _ => TermKind::Tuple(self.tuple_items()?),
        };
        Ok(Term { kind, pos })
    }

    /// `IF …`, or nothing.
    pub(super) fn condition(&mut self) -> Result<Condition> {
        if !self.eat_keyword(Keyword::If) {
            return Ok(Condition::None);
        }
        // `exists` may also be a column.
        if self.kind() == Kind::Keyword(Keyword::Exists) && !self.operator_follows() {
            self.advance();
            return Ok(Condition::Exists);
        }
        self.want("EXISTS");
        Ok(Condition::Relations(self.and_separated(Self::column_condition)?))
    }

    /// Whether the token after this one makes it the column of a condition.
    fn operator_follows(&self) -> bool {
        matches!(
            self.next_kind(),
            Kind::Equal
                | Kind::NotEqual
                | Kind::Less
                | Kind::LessOrEqual
                | Kind::Greater
                | Kind::GreaterOrEqual
                | Kind::LeftBracket
                | Kind::Dot
                | Kind::Keyword(
                    Keyword::In | Keyword::Contains | Keyword::Not | Keyword::Between | Keyword::Like
                )
        )
    }

    fn column_condition(&mut self) -> Result<Relation> {
        let pos = self.pos();
        let column = self.column()?;
        let target = self.condition_target(column)?;
        let predicate = match self.kind() {
            Kind::Keyword(Keyword::In) => self.in_values(false)?,
            Kind::Keyword(Keyword::Contains) if matches!(target, Target::Column(_)) => {
                self.contains(false)?
            }
            Kind::Keyword(Keyword::Not)
                if matches!(target, Target::Column(_))
                    && self.next_kind() == Kind::Keyword(Keyword::Contains) =>
            {
                self.advance();
                self.contains(true)?
            }
            Kind::Keyword(Keyword::Not) => {
                self.advance();
                self.in_values(true)?
            }
            Kind::Keyword(Keyword::Between) => self.between()?,
            Kind::Keyword(Keyword::Like) => {
                self.advance();
                Predicate::Like(self.term()?)
            }
            _ => self.comparison_or(&["IN", "NOT", "BETWEEN", "LIKE"])?,
        };
        Ok(Relation { target, predicate, pos })
    }

    fn condition_target(&mut self, column: Ident) -> Result<Target> {
        if self.eat(Kind::LeftBracket) {
            let key = self.term()?;
            self.expect(Kind::RightBracket)?;
            return Ok(Target::Element(column, key));
        }
        if self.eat(Kind::Dot) {
            return Ok(Target::Field(column, self.ident()?));
        }
        Ok(Target::Column(column))
    }
}
