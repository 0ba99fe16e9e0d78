//! The recursive-descent parser: its state, its primitives and its errors. One file a family of statements.
//!
//! The parser sees two tokens and copies its [`Cursor`] when it must look further; it never parses a piece twice.
//! Only when a statement is wrong, it runs again and notes the tokens that it accepts at each position: that is the list of
//! expected tokens.

mod arithmetic;
mod ddl;
mod describe;
mod dml;
mod names;
mod properties;
mod relations;
mod roles;
mod select;
mod service_level;
mod statement;
mod steps;
mod terms;
mod transaction;
mod types;

pub(crate) use names::is_reserved_type_name;
pub use steps::Parsing;

use crate::ast::{DataType, Marker, Parsed, Pos, Term};
use crate::error::{Reason, SyntaxError};
use crate::keyword::Keyword;
use crate::lexer::{Fault, Kind, Lexer, Token};

/// The longest text that [`parse`] takes, in bytes: twice that of the largest write as hexadecimal digits.
pub const STATEMENT_BYTES_MAX: usize = 64 << 20;
/// The most words, constants and signs of a statement: of selectors, elements and relations together about half as many. A
/// tree takes some hundred bytes for each, and is made in one step.
pub const TOKENS_MAX: u32 = 1 << 18;
/// The most of a BATCH with its statements, which is parsed in steps.
pub const BATCH_TOKENS_MAX: u32 = 1 << 19;
/// The most bind markers of a statement: the protocol counts values in 16 bits.
pub const MARKERS_MAX: usize = 65_535;
/// How deeply brackets, types, type hints and minus signs may nest. A level takes up to 8 KiB of stack here, and
/// a walk of the tree needs some too.
pub const NESTING_MAX: u32 = 64;
/// How many operators, fields and elements one expression may chain: each makes the tree one level deeper.
pub const OPERATORS_MAX: u32 = 256;

/// The longest piece of the text that an error repeats, in characters.
const FOUND_CHARACTERS_MAX: usize = 64;

type Result<T> = std::result::Result<T, Box<SyntaxError>>;

/// Parses one statement, with any number of `;` after it.
///
/// # Errors
/// [`SyntaxError`] at the first token that no statement can have there, when a literal or identifier is not closed, or
/// when terms nest too deeply.
pub fn parse(text: &str) -> std::result::Result<Parsed, SyntaxError> {
    run(text, |parser| {
        let statement = parser.statement()?;
        while parser.eat(Kind::Semicolon) {}
        parser.expect_end()?;
        Ok(statement)
    })
    .map(|(statement, markers)| Parsed { statement, markers })
}

/// Parses the name of a type, such as `frozen<list<text>>`, alone in its text.
///
/// # Errors
/// [`SyntaxError`] when the text is no type, or something follows it.
pub fn parse_type(text: &str) -> std::result::Result<DataType, SyntaxError> {
    run(text, |parser| {
        let data_type = parser.data_type()?;
        parser.expect_end()?;
        Ok(data_type)
    })
    .map(|(data_type, _)| data_type)
}

/// Parses a term, such as an aggregate's initial condition, alone in its text.
///
/// # Errors
/// [`SyntaxError`] when the text is no term, or something follows it.
pub fn parse_term(text: &str) -> std::result::Result<Term, SyntaxError> {
    run(text, |parser| {
        let term = parser.term()?;
        parser.expect_end()?;
        Ok(term)
    })
    .map(|(term, _)| term)
}

/// Runs `rule` over the text, and again for the list of expected tokens when that list belongs to the error.
fn run<'a, T>(
    text: &'a str,
    rule: impl Fn(&mut Parser<'a>) -> Result<T>,
) -> std::result::Result<(T, Vec<Marker>), SyntaxError> {
    if text.len() > STATEMENT_BYTES_MAX {
        let reason = Reason::Rule(format!("the statement is longer than {STATEMENT_BYTES_MAX} bytes"));
        return Err(SyntaxError { line: 1, column: 0, found: String::new(), reason });
    }
    let mut parser = Parser::new(text);
    let error = match rule(&mut parser) {
        Ok(value) => return Ok((value, parser.markers)),
        Err(error) => error,
    };
    if !needs_expected(&error) {
        return Err(*error);
    }
    match rule(&mut Parser::recording(text)) {
        Ok(_) => unreachable!("the parser found an error and then none in the same text"),
        Err(error) => Err(*error),
    }
}

/// Whether an error has a list of expected tokens, for which the text is parsed once more.
fn needs_expected(error: &SyntaxError) -> bool {
    matches!(error.reason, Reason::Unexpected { .. } | Reason::Trailing { .. })
}

/// Two tokens of lookahead and the place after them.
#[derive(Clone, Copy)]
struct Cursor<'a> {
    lexer: Lexer<'a>,
    token: Token,
    next: Token,
}

impl Cursor<'_> {
    #[inline]
    fn advance(&mut self) {
        self.token = self.next;
        self.next = self.lexer.next_token();
    }
}

/// The tokens that the parser looked for at one token.
struct Wanted {
    recording: bool,
    /// Where the token starts.
    at: u32,
    what: Vec<&'static str>,
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    markers: Vec<Marker>,
    tokens: u32,
    /// The number of tokens at which the statement is too long.
    tokens_end: u32,
    depth: u32,
    operators: u32,
    in_transaction: bool,
    wanted: Wanted,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Parser<'a> {
        let mut lexer = Lexer::new(text);
        let token = lexer.next_token();
        let next = lexer.next_token();
        Parser {
            cursor: Cursor { lexer, token, next },
            markers: Vec::new(),
            tokens: 0,
            tokens_end: TOKENS_MAX,
            depth: 0,
            operators: 0,
            in_transaction: false,
            wanted: Wanted { recording: false, at: 0, what: Vec::new() },
        }
    }

    /// A parser that notes the tokens accepted at each position.
    fn recording(text: &'a str) -> Parser<'a> {
        let mut parser = Parser::new(text);
        parser.wanted.recording = true;
        parser
    }

    /// The current token's kind.
    #[inline]
    fn kind(&self) -> Kind {
        self.cursor.token.kind
    }

    /// The kind of the token after the current one.
    #[inline]
    fn next_kind(&self) -> Kind {
        self.cursor.next.kind
    }

    /// The kind of the token two after the current one.
    fn third_kind(&self) -> Kind {
        let mut ahead = self.cursor;
        ahead.advance();
        ahead.next.kind
    }

    #[inline]
    fn pos(&self) -> Pos {
        self.cursor.token.pos
    }

    /// The text of a token.
    #[inline]
    fn text_of(&self, token: Token) -> &'a str {
        self.cursor.lexer.text().get(token.start as usize..token.end as usize).unwrap_or_default()
    }

    /// The text of the current token.
    #[inline]
    fn text(&self) -> &'a str {
        self.text_of(self.cursor.token)
    }

    #[inline]
    fn advance(&mut self) {
        self.cursor.advance();
        self.tokens += 1;
        if self.tokens >= self.tokens_end {
            self.refuse_more();
        }
    }

    /// Begins the next statement of a BATCH, which may be as long as any other.
    fn begin_part(&mut self) {
        self.tokens_end = self.tokens.saturating_add(TOKENS_MAX).min(BATCH_TOKENS_MAX);
    }

    /// Replaces the current token by one that no rule accepts.
    #[cold]
    fn refuse_more(&mut self) {
        self.tokens = self.tokens_end;
        if self.kind() != Kind::Eof {
            self.cursor.token.kind = Kind::Bad(Fault::TooMany);
        }
    }

    /// Notes that `what` is accepted at the current token.
    #[inline]
    fn want(&mut self, what: &'static str) {
        if self.wanted.recording {
            let at = self.cursor.token.start;
            if self.wanted.at != at {
                self.wanted.at = at;
                self.wanted.what.clear();
            }
            self.wanted.what.push(what);
        }
    }

    /// Moves past the current token if it is of this kind.
    #[inline]
    fn eat(&mut self, kind: Kind) -> bool {
        if self.kind() == kind {
            self.advance();
            return true;
        }
        self.want(kind.description());
        false
    }

    /// Moves past the current token if it is this keyword.
    #[inline]
    fn eat_keyword(&mut self, keyword: Keyword) -> bool {
        self.eat(Kind::Keyword(keyword))
    }

    /// Moves past this keyword if it is there and `next` follows it; else the word may be a name.
    fn eat_two(&mut self, first: Keyword, second: Keyword) -> bool {
        if self.kind() == Kind::Keyword(first) && self.next_kind() == Kind::Keyword(second) {
            self.advance();
            self.advance();
            return true;
        }
        self.want(first.text());
        false
    }

    fn expect(&mut self, kind: Kind) -> Result<()> {
        if self.eat(kind) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn expect_keyword(&mut self, keyword: Keyword) -> Result<()> {
        self.expect(Kind::Keyword(keyword))
    }

    /// The end of the text, or an error that says that the statement was complete.
    fn expect_end(&mut self) -> Result<()> {
        if self.eat(Kind::Eof) {
            return Ok(());
        }
        let mut error = self.unexpected();
        if let Reason::Unexpected { expected, nearest } = error.reason {
            error.reason = Reason::Trailing { expected, nearest };
        }
        Err(error)
    }

    /// `IF EXISTS`, or nothing.
    fn if_exists(&mut self) -> Result<bool> {
        let present = self.eat_keyword(Keyword::If);
        if present {
            self.expect_keyword(Keyword::Exists)?;
        }
        Ok(present)
    }

    /// `IF NOT EXISTS`, or nothing.
    fn if_not_exists(&mut self) -> Result<bool> {
        let present = self.eat_keyword(Keyword::If);
        if present {
            self.expect_keyword(Keyword::Not)?;
            self.expect_keyword(Keyword::Exists)?;
        }
        Ok(present)
    }

    /// `item, item, …`, one or more.
    fn comma_separated<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.eat(Kind::Comma) {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// `item AND item …`, one or more.
    fn and_separated<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.eat_keyword(Keyword::And) {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// `(item, item, …)`, one or more.
    fn bracketed<T>(&mut self, item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.expect(Kind::LeftParen)?;
        let items = self.comma_separated(item)?;
        self.expect(Kind::RightParen)?;
        Ok(items)
    }

    /// `(item, item, …)`, zero or more.
    fn bracketed_or_empty<T>(&mut self, item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.expect(Kind::LeftParen)?;
        if self.eat(Kind::RightParen) {
            return Ok(Vec::new());
        }
        let items = self.comma_separated(item)?;
        self.expect(Kind::RightParen)?;
        Ok(items)
    }

    /// Runs `rule` one level deeper, or refuses to.
    fn nested<T>(&mut self, rule: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= NESTING_MAX {
            return Err(self.error(Reason::TooDeep { depth_max: NESTING_MAX }));
        }
        if self.depth == 0 {
            self.operators = 0;
        }
        self.depth += 1;
        let result = rule(self);
        self.depth -= 1;
        result
    }

    /// Counts one operator of the current expression, or refuses it.
    fn count_operator(&mut self) -> Result<()> {
        if self.operators >= OPERATORS_MAX {
            return Err(self.error(Reason::TooDeep { depth_max: OPERATORS_MAX }));
        }
        self.operators += 1;
        Ok(())
    }

    /// The error that the current token cannot stand here.
    #[cold]
    fn unexpected(&mut self) -> Box<SyntaxError> {
        let mut names: Vec<&'static str> = Vec::new();
        if self.wanted.at == self.cursor.token.start {
            for what in &self.wanted.what {
                if !names.contains(what) {
                    names.push(what);
                }
            }
        }
        let found = match self.kind() {
            Kind::Word | Kind::Keyword(_) => self.text(),
            _ => "",
        };
        let nearest = crate::nearest::nearest(found, &names).map(str::to_owned);
        let expected = names.into_iter().map(str::to_owned).collect();
        self.error(Reason::Unexpected { expected, nearest })
    }

    /// Like [`Parser::unexpected`] when nothing but `what` is accepted at the current token.
    #[cold]
    fn unexpected_want(&mut self, what: &'static str) -> Box<SyntaxError> {
        self.want(what);
        self.unexpected()
    }

    /// An error at the current token. A token that is broken in itself is always the error.
    #[cold]
    fn error(&self, reason: Reason) -> Box<SyntaxError> {
        self.error_at(self.cursor.token, reason)
    }

    /// The error that a rule beside the grammar is broken at the current token.
    #[cold]
    fn rule(&self, text: impl Into<String>) -> Box<SyntaxError> {
        self.error(Reason::Rule(text.into()))
    }

    /// Like [`Parser::rule`] for a token that was already read.
    #[cold]
    fn rule_at(&self, token: Token, text: impl Into<String>) -> Box<SyntaxError> {
        self.error_at(token, Reason::Rule(text.into()))
    }

    fn error_at(&self, token: Token, reason: Reason) -> Box<SyntaxError> {
        let reason = match token.kind {
            Kind::Bad(Fault::Character) => Reason::BadCharacter,
            Kind::Bad(Fault::String) => Reason::Unterminated { what: "the string" },
            Kind::Bad(Fault::DollarString) => Reason::Unterminated { what: "the string in $$" },
            Kind::Bad(Fault::QuotedName) => Reason::Unterminated { what: "the quoted name" },
            Kind::Bad(Fault::Comment) => Reason::Unterminated { what: "the comment" },
            Kind::Bad(Fault::TooMany) => Reason::Rule(format!(
                "a statement has at most {TOKENS_MAX} words, constants and signs, a BATCH {BATCH_TOKENS_MAX}"
            )),
            _ => reason,
        };
        let text = self.text_of(token);
        let found = match text.char_indices().nth(FOUND_CHARACTERS_MAX) {
            _ if token.kind == Kind::Eof => "<EOF>".to_owned(),
            Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
            None => text.to_owned(),
        };
        Box::new(SyntaxError { line: token.pos.line, column: token.pos.column, found, reason })
    }
}
