//! Tokens of expressions.

/// The kinds of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name or a keyword.
    Word,
    /// `#name`
    Name,
    /// `:value`
    Value,
    /// Digits.
    Number,
    /// An operator or a bracket.
    Symbol,
    /// A character that begins no token.
    Wrong,
    /// The end.
    End,
}

/// A token: a part of the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    start: usize,
}

/// The tokens of an expression, with the end as the last.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let run = |from: usize| bytes.iter().skip(from).take_while(|byte| is_word(byte)).count();
    while let Some(byte) = bytes.get(at) {
        let (kind, len) = match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {
                at += 1;
                continue;
            }
            b'#' if run(at + 1) > 0 => (Kind::Name, 1 + run(at + 1)),
            b':' if run(at + 1) > 0 => (Kind::Value, 1 + run(at + 1)),
            b'0' => (Kind::Number, 1),
            b'1'..=b'9' => {
                (Kind::Number, bytes.iter().skip(at).take_while(|byte| byte.is_ascii_digit()).count())
            }
            byte if byte.is_ascii_alphabetic() => (Kind::Word, run(at)),
            b'<' if matches!(bytes.get(at + 1), Some(b'>' | b'=')) => (Kind::Symbol, 2),
            b'>' if bytes.get(at + 1) == Some(&b'=') => (Kind::Symbol, 2),
            b'<' | b'>' | b'=' | b'(' | b')' | b'[' | b']' | b',' | b'.' | b'+' | b'-' => (Kind::Symbol, 1),
            _ => {
                let wrong = text.get(at..).and_then(|rest| rest.chars().next());
                (Kind::Wrong, wrong.map_or(1, char::len_utf8))
            }
        };
        out.push(Token { kind, text: text.get(at..at + len).unwrap_or_default(), start: at });
        at += len;
    }
    out.push(Token { kind: Kind::End, text: "<EOF>", start: text.len() });
    out
}

/// The neighbourhood of a token, as messages show it: itself, the one before and the one behind.
pub(crate) fn near<'a>(text: &'a str, tokens: &[Token<'_>], at: usize) -> &'a str {
    let start = tokens.get(at.saturating_sub(1)).map_or(0, |token| token.start);
    let last = tokens.get(at + 1).or(tokens.get(at));
    let end = last.map_or(text.len(), |token| match token.kind {
        Kind::End => text.len(),
        _ => token.start + token.text.len(),
    });
    text.get(start..end).unwrap_or_default().trim_end()
}
