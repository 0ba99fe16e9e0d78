//! Terms: constants, markers, literals of collections, calls and arithmetic.

use super::arithmetic::Operand;
use super::{MARKERS_MAX, Parser, Result};
use crate::ast::{ArithmeticOperator, Constant, FunctionCall, Ident, Marker, Term, TermKind};
use crate::keyword::Keyword;
use crate::lexer::{Kind, Token};

impl Operand for Term {
    fn signed(parser: &mut Parser<'_>) -> Result<Self> {
        let pos = parser.pos();
        if parser.kind() == Kind::Minus {
            parser.advance();
            let inner = parser.nested(Parser::simple_term)?;
            return Ok(Term { kind: TermKind::Negate(Box::new(inner)), pos });
        }
        parser.simple_term()
    }

    fn join(left: Self, operator: ArithmeticOperator, right: Self) -> Self {
        let pos = left.pos;
        Self { kind: TermKind::Arithmetic(Box::new(left), operator, Box::new(right)), pos }
    }
}

impl Parser<'_> {
    /// Any term.
    pub(super) fn term(&mut self) -> Result<Term> {
        self.nested(|parser| parser.sum(false))
    }

    /// A term, but one that stops before `+ column`: the left part of `c = term + c`.
    pub(super) fn term_before_column(&mut self) -> Result<Term> {
        self.nested(|parser| parser.sum(true))
    }

    fn simple_term(&mut self) -> Result<Term> {
        let pos = self.pos();
        if let Some(constant) = self.constant() {
            return Ok(Term { kind: TermKind::Constant(constant), pos });
        }
        let kind = match self.kind() {
            Kind::QuestionMark | Kind::Colon => TermKind::Marker(self.marker()?),
            Kind::Keyword(Keyword::Null) => {
                self.advance();
                TermKind::Null
            }
            Kind::LeftBracket => self.list()?,
            Kind::LeftBrace => self.set_or_map()?,
            Kind::LeftParen if self.at_type_hint(false) => self.type_hint()?,
            Kind::LeftParen => TermKind::Tuple(self.tuple_items()?),
            Kind::Keyword(Keyword::Cast) if self.next_kind() == Kind::LeftParen => self.cast()?,
            kind if kind.is_name() || kind.is_function_name() => self.function_or_reference()?,
            _ => return Err(self.unexpected_want("a term")),
        };
        Ok(Term { kind, pos })
    }

    /// A constant, if one stands here.
    pub(super) fn constant(&mut self) -> Option<Constant> {
        let text = self.text();
        let constant = match self.kind() {
            Kind::String | Kind::DollarString => Constant::String(self.string_text(self.cursor.token)?),
            Kind::Integer => Constant::Integer(text.to_owned()),
            Kind::Float => Constant::Float(text.to_owned()),
            Kind::Duration => Constant::Duration(text.to_owned()),
            Kind::Uuid => Constant::Uuid(text.to_owned()),
            Kind::Hex => Constant::Hex(text.to_owned()),
            Kind::Keyword(Keyword::True) => Constant::Boolean(true),
            Kind::Keyword(Keyword::False) => Constant::Boolean(false),
            Kind::Keyword(Keyword::Nan) | Kind::MinusNan => Constant::Float("NaN".to_owned()),
            Kind::Keyword(Keyword::Infinity) => Constant::Float("Infinity".to_owned()),
            Kind::MinusInfinity => Constant::Float("-Infinity".to_owned()),
            _ => return None,
        };
        self.advance();
        Some(constant)
    }

    /// `?` or `:name`.
    pub(super) fn marker(&mut self) -> Result<Marker> {
        let pos = self.pos();
        let name = if self.eat(Kind::Colon) {
            Some(self.ident()?.name)
        } else {
            self.expect(Kind::QuestionMark)?;
            None
        };
        if self.markers.len() >= MARKERS_MAX {
            return Err(self.rule(format!("a statement has at most {MARKERS_MAX} bind markers")));
        }
        let marker = Marker { index: self.markers.len() as u32, name, pos };
        self.markers.push(marker.clone());
        Ok(marker)
    }

    /// An integer or a marker: of LIMIT, TTL, TIMESTAMP.
    pub(super) fn integer_or_marker(&mut self) -> Result<Term> {
        let pos = self.pos();
        let kind = match self.kind() {
            Kind::Integer => {
                let text = self.text().to_owned();
                self.advance();
                TermKind::Constant(Constant::Integer(text))
            }
            Kind::QuestionMark | Kind::Colon => TermKind::Marker(self.marker()?),
            _ => return Err(self.unexpected_want("an integer or a bind marker")),
        };
        Ok(Term { kind, pos })
    }

    fn list(&mut self) -> Result<TermKind> {
        self.expect(Kind::LeftBracket)?;
        if self.eat(Kind::RightBracket) {
            return Ok(TermKind::List(Vec::new()));
        }
        let items = self.comma_separated(Self::term)?;
        self.expect(Kind::RightBracket)?;
        Ok(TermKind::List(items))
    }

    fn set_or_map(&mut self) -> Result<TermKind> {
        self.expect(Kind::LeftBrace)?;
        if self.eat(Kind::RightBrace) {
            return Ok(TermKind::Set(Vec::new()));
        }
        let kind = if self.kind().is_name() && self.next_kind() == Kind::Colon {
            TermKind::UserType(self.comma_separated(Self::field_value)?)
        } else {
            let first = self.term()?;
            if self.eat(Kind::Colon) {
                let mut entries = vec![(first, self.term()?)];
                while self.eat(Kind::Comma) {
                    let key = self.term()?;
                    self.expect(Kind::Colon)?;
                    entries.push((key, self.term()?));
                }
                TermKind::Map(entries)
            } else {
                let mut items = vec![first];
                while self.eat(Kind::Comma) {
                    items.push(self.term()?);
                }
                TermKind::Set(items)
            }
        };
        self.expect(Kind::RightBrace)?;
        Ok(kind)
    }

    /// `field: term`.
    fn field_value(&mut self) -> Result<(Ident, Term)> {
        let field = self.ident()?;
        self.expect(Kind::Colon)?;
        Ok((field, self.term()?))
    }

    /// `(term, …)`, one or more.
    pub(super) fn tuple_items(&mut self) -> Result<Vec<Term>> {
        self.bracketed(Self::term)
    }

    fn type_hint(&mut self) -> Result<TermKind> {
        self.expect(Kind::LeftParen)?;
        let data_type = self.data_type()?;
        self.expect(Kind::RightParen)?;
        let inner = self.nested(Self::simple_term)?;
        Ok(TermKind::TypeHint(data_type, Box::new(inner)))
    }

    fn cast(&mut self) -> Result<TermKind> {
        self.advance();
        self.expect(Kind::LeftParen)?;
        let inner = self.term()?;
        self.expect_keyword(Keyword::As)?;
        let native = self.native_type()?;
        self.expect(Kind::RightParen)?;
        Ok(TermKind::Cast(Box::new(inner), native))
    }

    fn function_or_reference(&mut self) -> Result<TermKind> {
        if !self.at_function_call() {
            if self.in_transaction {
                return Ok(TermKind::RowReference(self.row_reference()?));
            }
            return Err(self.unexpected_want("a term (a string stands in single quotes)"));
        }
        let name = self.function_name()?;
        let args = self.bracketed_or_empty(Self::term)?;
        Ok(TermKind::Function(FunctionCall { name, args }))
    }

    /// Whether `name(` or `keyspace.name(` stands here, `name` being one that a function can have.
    pub(super) fn at_function_call(&self) -> bool {
        if self.next_kind() == Kind::LeftParen {
            return self.kind().is_function_name();
        }
        if self.next_kind() != Kind::Dot || !self.kind().is_name() {
            return false;
        }
        let mut ahead = self.cursor;
        ahead.advance();
        ahead.advance();
        ahead.token.kind.is_function_name() && ahead.next.kind == Kind::LeftParen
    }

    /// The constant that a term is; else an error at its token that names the property it is given for.
    pub(super) fn constant_of(&self, term: Term, at: Token, key: Option<&Constant>) -> Result<Constant> {
        let is_text = |term: &Term| matches!(term.kind, TermKind::Constant(Constant::String(_)));
        let suffix = match term.kind {
            TermKind::Constant(constant) => return Ok(constant),
            TermKind::Marker(_) => " (bind variables are not supported in DDL queries)",
            // ScyllaDB's replication by racks.
            TermKind::List(ref racks) if !racks.is_empty() && racks.iter().all(is_text) => {
                " (racks cannot be listed: write the number of replicas, which are spread over the racks)"
            }
            _ => "",
        };
        let text = match key {
            None => format!("Invalid property name: {term}{suffix}"),
            Some(key) => format!("Invalid property value: {term} for property: {key}{suffix}"),
        };
        Err(self.rule_at(at, text))
    }
}
