//! Tokens of PartiQL statements.

use crate::{Error, Result};

/// The kinds of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name or a keyword.
    Word,
    /// A name in double quotes.
    Quoted,
    /// A string in single quotes.
    String,
    /// A number without its sign.
    Number,
    /// `?`
    Parameter,
    /// An operator or a bracket.
    Symbol,
    /// The end.
    End,
}

/// A token.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    /// Of names and strings, the text between the quotes.
    pub(super) text: String,
    /// Line and column, from 1, in characters.
    pub(super) place: (usize, usize),
    /// Characters.
    pub(super) len: usize,
}

impl Token {
    /// Its place as messages show it.
    pub(super) fn at(&self) -> String {
        format!("{}:{}:{}", self.place.0, self.place.1, self.len)
    }
}

/// The error of a statement that is none.
pub(super) fn malformed<T>(what: &str) -> Result<T> {
    Err(Error::Validation(format!("Statement wasn't well formed, can't be processed: {what}")))
}

const PAIRS: [&str; 7] = ["<<", ">>", "<>", "<=", ">=", "!=", "||"];

struct Scanner<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    place: (usize, usize),
}

impl Scanner<'_> {
    fn next(&mut self) -> Option<char> {
        let char = self.rest.next()?;
        self.place = if char == '\n' { (self.place.0 + 1, 1) } else { (self.place.0, self.place.1 + 1) };
        Some(char)
    }

    fn run(&mut self, into: &mut String, belongs: impl Fn(char) -> bool) {
        while let Some(char) = self.rest.peek().copied().filter(|char| belongs(*char)) {
            into.push(char);
            self.next();
        }
    }

    /// The text before the closing quote, which is doubled where it is meant.
    fn quoted(&mut self, quote: char) -> Result<String> {
        let mut text = String::new();
        loop {
            match self.next() {
                Some(char) if char == quote => {
                    if self.rest.peek() != Some(&quote) {
                        return Ok(text);
                    }
                    self.next();
                    text.push(quote);
                }
                Some(char) => text.push(char),
                None => return malformed("Unterminated quoted string"),
            }
        }
    }

    /// The rest of a comment between slashes and asterisks.
    fn comment(&mut self) -> Result<()> {
        let mut before = None;
        loop {
            match self.next() {
                Some('/') if before == Some('*') => return Ok(()),
                Some(char) => before = Some(char),
                None => return malformed("Unterminated comment"),
            }
        }
    }

    fn number(&mut self, text: &mut String) {
        self.run(text, |char| char.is_ascii_digit() || char == '.');
        if let Some(exponent) = self.rest.peek().copied().filter(|char| matches!(char, 'e' | 'E')) {
            text.push(exponent);
            self.next();
            if let Some(sign) = self.rest.peek().copied().filter(|char| matches!(char, '+' | '-')) {
                text.push(sign);
                self.next();
            }
            self.run(text, |char| char.is_ascii_digit());
        }
    }
}

/// Whether a path may go on behind a token.
fn ends_operand(token: Option<&Token>) -> bool {
    token.is_some_and(|token| match token.kind {
        Kind::Word | Kind::Quoted => true,
        Kind::Symbol => matches!(token.text.as_str(), "]" | ")"),
        _ => false,
    })
}

/// The tokens of a statement, with the end as the last.
pub(super) fn tokens(statement: &str) -> Result<Vec<Token>> {
    let mut scanner = Scanner { rest: statement.chars().peekable(), place: (1, 1) };
    let mut out = Vec::new();
    // Where the last token ends.
    let mut end = scanner.place;
    loop {
        let place = scanner.place;
        let Some(first) = scanner.next() else {
            out.push(Token { kind: Kind::End, text: String::new(), place, len: 0 });
            return Ok(out);
        };
        let mut text = String::from(first);
        let kind = match first {
            char if char.is_whitespace() => continue,
            '\'' | '"' => {
                text = scanner.quoted(first)?;
                if first == '"' { Kind::Quoted } else { Kind::String }
            }
            '?' => Kind::Parameter,
            '0'..='9' => {
                scanner.number(&mut text);
                Kind::Number
            }
            // A number without digits in front; behind a name it is the step of a path.
            '.' if !(end == place && ends_operand(out.last()))
                && scanner.rest.peek().is_some_and(char::is_ascii_digit) =>
            {
                text.insert(0, '0');
                scanner.number(&mut text);
                Kind::Number
            }
            char if char.is_alphabetic() || matches!(char, '_' | '$') => {
                scanner.run(&mut text, |char| char.is_alphanumeric() || matches!(char, '_' | '$'));
                Kind::Word
            }
            '`' => return Err(Error::Validation("Ion Literals are not supported".to_owned())),
            _ => {
                if let Some(second) = scanner.rest.peek() {
                    let pair = format!("{first}{second}");
                    if pair == "--" {
                        scanner.run(&mut String::new(), |char| char != '\n');
                        continue;
                    }
                    if pair == "/*" {
                        scanner.next();
                        scanner.comment()?;
                        continue;
                    }
                    if PAIRS.contains(&pair.as_str()) {
                        scanner.next();
                        text = pair;
                    }
                }
                if text.len() == 1 && !"()[]{},.:;=<>+-*/%".contains(first) {
                    return malformed("Unexpected character");
                }
                Kind::Symbol
            }
        };
        let len = if scanner.place.0 == place.0 { scanner.place.1 - place.1 } else { 1 };
        out.push(Token { kind, text, place, len });
        end = scanner.place;
    }
}
