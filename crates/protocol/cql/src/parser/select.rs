//! SELECT and its selectors.

use super::arithmetic::Operand;
use super::{Parser, Result};
use crate::ast::{
    AliasedSelector, ArithmeticOperator, CellMetadata, Direction, FunctionCall, Ordering, Select, Selection,
    Selector, SelectorKind,
};
use crate::keyword::Keyword;
use crate::lexer::Kind;

impl Operand for Selector {
    fn signed(parser: &mut Parser<'_>) -> Result<Self> {
        let pos = parser.pos();
        if parser.kind() == Kind::Minus {
            parser.advance();
            let inner = parser.nested(Self::signed)?;
            return Ok(Selector { kind: SelectorKind::Negate(Box::new(inner)), pos });
        }
        let inner = parser.simple_selector()?;
        parser.selector_parts(inner)
    }

    fn join(left: Self, operator: ArithmeticOperator, right: Self) -> Self {
        let pos = left.pos;
        Self { kind: SelectorKind::Arithmetic(Box::new(left), operator, Box::new(right)), pos }
    }
}

impl Parser<'_> {
    /// `SELECT …`.
    pub(super) fn select(&mut self) -> Result<Select> {
        self.expect_keyword(Keyword::Select)?;
        let json = self.eat_modifier(Keyword::Json);
        let distinct = self.eat_modifier(Keyword::Distinct);
        let selection = self.selection()?;
        self.expect_keyword(Keyword::From)?;
        let mutation_fragments = self.at_mutation_fragments();
        let from = if mutation_fragments {
            self.advance();
            self.expect(Kind::LeftParen)?;
            let from = self.table_name()?;
            self.expect(Kind::RightParen)?;
            from
        } else {
            self.table_name()?
        };
        let filter = if self.eat_keyword(Keyword::Where) { self.where_clause()? } else { Vec::new() };
        let group_by = if self.eat_two(Keyword::Group, Keyword::By) {
            self.comma_separated(Self::selector)?
        } else {
            Vec::new()
        };
        let order_by = if self.eat_keyword(Keyword::Order) {
            self.expect_keyword(Keyword::By)?;
            self.comma_separated(Self::ordering)?
        } else {
            Vec::new()
        };
        let per_partition_limit = if self.eat_keyword(Keyword::Per) {
            self.expect_keyword(Keyword::Partition)?;
            self.expect_keyword(Keyword::Limit)?;
            Some(self.integer_or_marker()?)
        } else {
            None
        };
        let limit = match self.eat_keyword(Keyword::Limit) {
            true => Some(self.integer_or_marker()?),
            false => None,
        };
        let allow_filtering = self.eat_keyword(Keyword::Allow);
        if allow_filtering {
            self.expect_keyword(Keyword::Filtering)?;
        }
        let bypass_cache = self.eat_keyword(Keyword::Bypass);
        if bypass_cache {
            self.expect_keyword(Keyword::Cache)?;
        }
        let using = self.using_timeout()?;
        Ok(Select {
            json,
            distinct,
            selection,
            from,
            mutation_fragments,
            filter,
            group_by,
            order_by,
            per_partition_limit,
            limit,
            allow_filtering,
            bypass_cache,
            using,
        })
    }

    /// `JSON` or `DISTINCT` when it is not the name of a column.
    fn eat_modifier(&mut self, modifier: Keyword) -> bool {
        if self.kind() != Kind::Keyword(modifier) {
            self.want(modifier.text());
            return false;
        }
        let is_modifier = match self.next_kind() {
            Kind::Star => self.third_kind() == Kind::Keyword(Keyword::From),
            // A column with this name and an alias, but also the column `as`.
            Kind::Keyword(Keyword::As) => !self.third_kind().is_name(),
            Kind::Keyword(Keyword::Token) => true,
            next => {
                let starts = [
                    Kind::LeftParen,
                    Kind::LeftBracket,
                    Kind::LeftBrace,
                    Kind::Minus,
                    Kind::String,
                    Kind::DollarString,
                    Kind::Integer,
                    Kind::Float,
                    Kind::Duration,
                    Kind::Uuid,
                    Kind::Hex,
                    Kind::MinusNan,
                    Kind::MinusInfinity,
                    Kind::QuestionMark,
                    Kind::Colon,
                    Kind::Keyword(Keyword::Null),
                    Kind::Keyword(Keyword::True),
                    Kind::Keyword(Keyword::False),
                    Kind::Keyword(Keyword::Nan),
                    Kind::Keyword(Keyword::Infinity),
                ];
                next.is_name() || starts.contains(&next)
            }
        };
        if is_modifier {
            self.advance();
        }
        is_modifier
    }

    /// Whether `MUTATION_FRAGMENTS(` stands here.
    fn at_mutation_fragments(&self) -> bool {
        self.kind() == Kind::Word
            && self.next_kind() == Kind::LeftParen
            && self.text().eq_ignore_ascii_case("mutation_fragments")
    }

    /// `*` or a list of selectors.
    pub(super) fn selection(&mut self) -> Result<Selection> {
        if self.eat(Kind::Star) {
            return Ok(Selection::All);
        }
        Ok(Selection::Selectors(self.comma_separated(Self::aliased_selector)?))
    }

    fn aliased_selector(&mut self) -> Result<AliasedSelector> {
        let selector = self.selector()?;
        let alias = match self.eat_keyword(Keyword::As) {
            true => Some(self.ident()?),
            false => None,
        };
        Ok(AliasedSelector { selector, alias })
    }

    fn ordering(&mut self) -> Result<Ordering> {
        if self.at_bm25() {
            let (column, term) = self.bm25()?;
            let direction = self.direction().unwrap_or(Direction::Ascending);
            return Ok(Ordering { column, ann_of: None, bm25: Some(term), direction });
        }
        let column = self.column()?;
        let ann_of = if self.eat_keyword(Keyword::Ann) {
            self.expect_keyword(Keyword::Of)?;
            Some(self.term()?)
        } else {
            None
        };
        let direction = self.direction().unwrap_or(Direction::Ascending);
        Ok(Ordering { column, ann_of, bm25: None, direction })
    }

    /// `ASC` or `DESC`, if one stands here.
    pub(super) fn direction(&mut self) -> Option<Direction> {
        if self.eat_keyword(Keyword::Asc) {
            return Some(Direction::Ascending);
        }
        self.eat_keyword(Keyword::Desc).then_some(Direction::Descending)
    }

    /// A selector without an alias.
    pub(super) fn selector(&mut self) -> Result<Selector> {
        self.nested(|parser| parser.sum(false))
    }

    /// `.field`, `[key]` and `[from..to]` after a selector.
    fn selector_parts(&mut self, mut selector: Selector) -> Result<Selector> {
        loop {
            let pos = selector.pos;
            if self.eat(Kind::Dot) {
                self.count_operator()?;
                let kind = SelectorKind::Field(Box::new(selector), self.ident()?);
                selector = Selector { kind, pos };
            } else if self.eat(Kind::LeftBracket) {
                self.count_operator()?;
                selector = Selector { kind: self.element_or_slice(selector)?, pos };
                self.expect(Kind::RightBracket)?;
            } else {
                return Ok(selector);
            }
        }
    }

    fn element_or_slice(&mut self, of: Selector) -> Result<SelectorKind> {
        if self.eat(Kind::Range) {
            return Ok(SelectorKind::Slice(Box::new(of), None, Some(self.term()?)));
        }
        let from = self.term()?;
        if !self.eat(Kind::Range) {
            return Ok(SelectorKind::Element(Box::new(of), from));
        }
        let to = if self.kind() == Kind::RightBracket { None } else { Some(self.term()?) };
        Ok(SelectorKind::Slice(Box::new(of), Some(from), to))
    }

    fn simple_selector(&mut self) -> Result<Selector> {
        let pos = self.pos();
        if let Some(constant) = self.constant() {
            return Ok(Selector { kind: SelectorKind::Constant(constant), pos });
        }
        let kind = match self.kind() {
            Kind::QuestionMark | Kind::Colon => SelectorKind::Marker(self.marker()?),
            Kind::Keyword(Keyword::Null) => {
                self.advance();
                SelectorKind::Null
            }
            Kind::LeftBracket => self.selector_list()?,
            Kind::LeftBrace => self.selector_set_or_map()?,
            Kind::LeftParen if self.at_type_hint(true) => self.selector_type_hint()?,
            Kind::LeftParen => SelectorKind::Tuple(self.bracketed(Self::selector)?),
            Kind::Keyword(keyword) if self.next_kind() == Kind::LeftParen => {
                return self.call_of_keyword(keyword);
            }
            _ => return self.function_or_column(),
        };
        Ok(Selector { kind, pos })
    }

    /// The expression that a keyword and `(` start: a form with its own syntax or a plain function.
    fn call_of_keyword(&mut self, keyword: Keyword) -> Result<Selector> {
        let pos = self.pos();
        let metadata = match keyword {
            Keyword::Count if self.third_kind() == Kind::Star => {
                self.advance();
                self.advance();
                self.advance();
                self.expect(Kind::RightParen)?;
                return Ok(Selector { kind: SelectorKind::CountRows, pos });
            }
            Keyword::Cast => return self.selector_cast(),
            Keyword::Writetime => CellMetadata::WriteTime,
            Keyword::Maxwritetime => CellMetadata::MaxWriteTime,
            Keyword::Ttl => CellMetadata::Ttl,
            _ => return self.function_or_column(),
        };
        self.advance();
        self.expect(Kind::LeftParen)?;
        let column_pos = self.pos();
        let column = Selector { kind: SelectorKind::Column(self.ident()?), pos: column_pos };
        let inner = self.nested(|parser| parser.selector_parts(column))?;
        self.expect(Kind::RightParen)?;
        Ok(Selector { kind: SelectorKind::Metadata(metadata, Box::new(inner)), pos })
    }

    fn selector_cast(&mut self) -> Result<Selector> {
        let pos = self.pos();
        self.advance();
        self.expect(Kind::LeftParen)?;
        let inner = self.selector()?;
        self.expect_keyword(Keyword::As)?;
        let native = self.native_type()?;
        self.expect(Kind::RightParen)?;
        Ok(Selector { kind: SelectorKind::Cast(Box::new(inner), native), pos })
    }

    fn function_or_column(&mut self) -> Result<Selector> {
        let pos = self.pos();
        if self.at_function_call() {
            let name = self.function_name()?;
            let args = self.bracketed_or_empty(Self::selector)?;
            return Ok(Selector { kind: SelectorKind::Function(FunctionCall { name, args }), pos });
        }
        if !self.kind().is_name() {
            return Err(self.unexpected_want("a selector"));
        }
        Ok(Selector { kind: SelectorKind::Column(self.ident()?), pos })
    }

    fn selector_type_hint(&mut self) -> Result<SelectorKind> {
        self.expect(Kind::LeftParen)?;
        let data_type = self.data_type()?;
        self.expect(Kind::RightParen)?;
        let inner = self.nested(Self::simple_selector)?;
        Ok(SelectorKind::TypeHint(data_type, Box::new(inner)))
    }

    fn selector_list(&mut self) -> Result<SelectorKind> {
        self.expect(Kind::LeftBracket)?;
        if self.eat(Kind::RightBracket) {
            return Ok(SelectorKind::List(Vec::new()));
        }
        let items = self.comma_separated(Self::selector)?;
        self.expect(Kind::RightBracket)?;
        Ok(SelectorKind::List(items))
    }

    fn selector_set_or_map(&mut self) -> Result<SelectorKind> {
        self.expect(Kind::LeftBrace)?;
        if self.eat(Kind::RightBrace) {
            return Ok(SelectorKind::Set(Vec::new()));
        }
        let first = self.selector()?;
        let kind = if self.eat(Kind::Colon) {
            let mut entries = vec![(first, self.selector()?)];
            while self.eat(Kind::Comma) {
                let key = self.selector()?;
                self.expect(Kind::Colon)?;
                entries.push((key, self.selector()?));
            }
            SelectorKind::Map(entries)
        } else {
            let mut items = vec![first];
            while self.eat(Kind::Comma) {
                items.push(self.selector()?);
            }
            SelectorKind::Set(items)
        };
        self.expect(Kind::RightBrace)?;
        Ok(kind)
    }
}
