//! Types.

use super::{Cursor, NESTING_MAX, Parser, Result};
use crate::ast::{DataType, NativeType};
use crate::keyword::{Class, Keyword};
use crate::lexer::Kind;

impl Parser<'_> {
    /// Any type.
    pub(super) fn data_type(&mut self) -> Result<DataType> {
        self.nested(Self::data_type_inner)
    }

    fn data_type_inner(&mut self) -> Result<DataType> {
        if matches!(self.kind(), Kind::String | Kind::DollarString) {
            return Ok(DataType::Custom(self.string()?));
        }
        if let Kind::Keyword(keyword) = self.kind()
            && self.next_kind() != Kind::Dot
        {
            if let Class::Native(native) = keyword.class() {
                self.advance();
                return Ok(DataType::Native(native));
            }
            if (keyword == Keyword::Set || self.next_kind() == Kind::Less)
                && let Some(data_type) = self.generic_type(keyword)?
            {
                return Ok(data_type);
            }
        }
        Ok(DataType::UserDefined(self.type_name()?))
    }

    /// The type that `keyword` and `<…>` make; none when the keyword is the name of a type.
    fn generic_type(&mut self, keyword: Keyword) -> Result<Option<DataType>> {
        let known =
            [Keyword::List, Keyword::Set, Keyword::Map, Keyword::Tuple, Keyword::Vector, Keyword::Frozen];
        if !known.contains(&keyword) {
            return Ok(None);
        }
        self.advance();
        self.expect(Kind::Less)?;
        let first_token = self.cursor.token;
        let first = self.data_type()?;
        let data_type = match keyword {
            Keyword::List => DataType::List(Box::new(first)),
            Keyword::Set => DataType::Set(Box::new(first)),
            Keyword::Map => {
                self.expect(Kind::Comma)?;
                DataType::Map(Box::new(first), Box::new(self.data_type()?))
            }
            Keyword::Tuple => {
                let mut types = vec![first];
                while self.eat(Kind::Comma) {
                    types.push(self.data_type()?);
                }
                DataType::Tuple(types)
            }
            Keyword::Vector => {
                self.expect(Kind::Comma)?;
                DataType::Vector(Box::new(first), self.vector_dimension()?)
            }
            _ => {
                if let DataType::Native(native) = first {
                    return Err(self.rule_at(
                        first_token,
                        format!(
                            "frozen<> is only allowed on collections, tuples, and user-defined types (got {})",
                            native.name()
                        ),
                    ));
                }
                DataType::Frozen(Box::new(first))
            }
        };
        self.expect(Kind::Greater)?;
        Ok(Some(data_type))
    }

    fn vector_dimension(&mut self) -> Result<i32> {
        if self.kind() != Kind::Integer {
            return Err(self.unexpected_want("an integer"));
        }
        let Ok(dimension) = self.text().parse() else {
            return Err(self.rule(format!("{} is not a vector's dimension", self.text())));
        };
        self.advance();
        Ok(dimension)
    }

    /// A scalar type, of a cast.
    pub(super) fn native_type(&mut self) -> Result<NativeType> {
        if let Kind::Keyword(keyword) = self.kind()
            && let Class::Native(native) = keyword.class()
        {
            self.advance();
            return Ok(native);
        }
        Err(self.unexpected_want("a native type"))
    }

    /// Whether `(type)` starts here and something that it can be the type of follows. Only looks ahead: text that
    /// consists of the tokens of a type without a comma outside `<…>` is taken for one.
    pub(super) fn at_type_hint(&self, column_may_follow: bool) -> bool {
        let mut ahead = self.cursor;
        match ahead.next.kind {
            Kind::String | Kind::DollarString => {}
            kind if kind.is_name() || kind == Kind::Keyword(Keyword::Set) => {}
            _ => return false,
        }
        ahead.advance();
        let mut angles = 0_u32;
        loop {
            match ahead.token.kind {
                Kind::Less => angles += 1,
                Kind::Greater if angles > 0 => angles -= 1,
                Kind::Comma | Kind::Integer if angles > 0 => {}
                Kind::Dot | Kind::String | Kind::DollarString | Kind::Keyword(Keyword::Set) => {}
                Kind::RightParen if angles == 0 => break,
                kind if kind.is_name() => {}
                _ => return false,
            }
            ahead.advance();
        }
        let after = ahead.next;
        ahead.advance();
        match after.kind {
            Kind::String | Kind::DollarString | Kind::Integer | Kind::Float | Kind::Duration => true,
            Kind::Uuid | Kind::Hex | Kind::MinusNan | Kind::MinusInfinity => true,
            // `(a)[1..2]` is a slice of a column: no list holds a range.
            Kind::LeftBracket => !range_in_brackets(ahead),
            Kind::LeftParen | Kind::LeftBrace => true,
            Kind::QuestionMark | Kind::Colon => true,
            Kind::Keyword(Keyword::True | Keyword::False | Keyword::Null) => true,
            Kind::Keyword(Keyword::Nan | Keyword::Infinity) => true,
            Kind::Keyword(Keyword::Token) => ahead.next.kind == Kind::LeftParen,
            // The words that may follow a selector: an alias, or the clause after GROUP BY.
            Kind::Keyword(Keyword::As | Keyword::Per) if ahead.next.kind.is_name() => false,
            Kind::Keyword(Keyword::Bypass) if ahead.next.kind == Kind::Keyword(Keyword::Cache) => false,
            kind if kind.is_name() => {
                column_may_follow || matches!(ahead.next.kind, Kind::LeftParen | Kind::Dot)
            }
            _ => false,
        }
    }
}

/// Whether `..` stands directly in the brackets that open at the cursor's token.
fn range_in_brackets(mut ahead: Cursor<'_>) -> bool {
    let mut open = 0_u32;
    loop {
        match ahead.token.kind {
            Kind::LeftBracket | Kind::LeftParen | Kind::LeftBrace => open += 1,
            Kind::RightBracket | Kind::RightParen | Kind::RightBrace if open == 1 => return false,
            Kind::RightBracket | Kind::RightParen | Kind::RightBrace => open -= 1,
            Kind::Range if open == 1 => return true,
            Kind::Eof => return false,
            _ => {}
        }
        // A hint may stand at each level: more than the parser would nest is not looked through.
        if open > NESTING_MAX {
            return false;
        }
        ahead.advance();
    }
}
