//! Parsing in steps: a BATCH some statements at a time, so that a caller that shares a thread may let other tasks run in between.

use super::{Parser, Result, STATEMENT_BYTES_MAX, needs_expected, parse};
use crate::ast::{Batch, Parsed, Statement};
use crate::error::SyntaxError;
use crate::keyword::Keyword;
use crate::lexer::Kind;

/// A statement that is being parsed. Its result is that of [`parse`].
pub struct Parsing<'a> {
    text: &'a str,
    parser: Parser<'a>,
    /// The batch so far, where the statement is one.
    batch: Option<Batch>,
}

impl<'a> Parsing<'a> {
    /// At the beginning of a text.
    pub fn new(text: &'a str) -> Self {
        Self { text, parser: Parser::new(text), batch: None }
    }

    /// Parses the next statements of a BATCH, so many at most, and any other statement whole; none while more is to come.
    ///
    /// # Errors
    /// Those of [`parse`].
    pub fn advance(&mut self, statements_max: usize) -> std::result::Result<Option<Parsed>, SyntaxError> {
        if self.batch.is_none() && !self.begins_batch() {
            return parse(self.text).map(Some);
        }
        match self.statements(statements_max) {
            Ok(parsed) => Ok(parsed),
            Err(error) if self.parser.wanted.recording || !needs_expected(&error) => Err(*error),
            Err(_) => {
                // Once more, in steps again, for the expected tokens.
                (self.parser, self.batch) = (Parser::recording(self.text), None);
                Ok(None)
            }
        }
    }

    fn begins_batch(&self) -> bool {
        let kinds = [Keyword::Batch, Keyword::Unlogged, Keyword::Counter].map(Kind::Keyword);
        self.text.len() <= STATEMENT_BYTES_MAX
            && self.parser.kind() == Kind::Keyword(Keyword::Begin)
            && kinds.contains(&self.parser.next_kind())
    }

    #[expect(clippy::expect_used, reason = "the batch is begun above")]
    fn statements(&mut self, statements_max: usize) -> Result<Option<Parsed>> {
        let parser = &mut self.parser;
        let batch = match &mut self.batch {
            Some(batch) => batch,
            none => none.insert(parser.batch_head()?),
        };
        for _ in 0..statements_max {
            if !parser.batch_statement(batch)? {
                parser.batch_end()?;
                while parser.eat(Kind::Semicolon) {}
                parser.expect_end()?;
                let statement = Statement::Batch(self.batch.take().expect("it was begun"));
                return Ok(Some(Parsed { statement, markers: std::mem::take(&mut parser.markers) }));
            }
        }
        Ok(None)
    }
}
