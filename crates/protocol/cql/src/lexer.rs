//! The lexer: from text to tokens that are slices of the text, one at a time, without allocation.
//!
//! The state is a few numbers that are copied to look ahead. Nothing here fails: bytes that are no token become a
//! [`Kind::Bad`] one, which the parser refuses wherever it stands.

use crate::ast::Pos;
use crate::keyword::Keyword;

/// The longest text that tokens have places in.
pub(crate) const TEXT_BYTES_MAX: usize = u32::MAX as usize;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Eof,
    /// A bare word that is no keyword.
    Word,
    Keyword(Keyword),
    /// `"…"`, not empty.
    QuotedName,
    /// `""`.
    EmptyName,
    /// `'…'`.
    String,
    /// `$$…$$`.
    DollarString,
    Integer,
    Float,
    Duration,
    Uuid,
    Hex,
    /// `-NaN`.
    MinusNan,
    /// `-Infinity`.
    MinusInfinity,
    LeftParen,
    RightParen,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    Comma,
    Semicolon,
    Colon,
    Dot,
    Range,
    QuestionMark,
    Star,
    Plus,
    Minus,
    Slash,
    Percent,
    PlusEqual,
    MinusEqual,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Bad(Fault),
}

/// Why a piece of text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Character,
    String,
    DollarString,
    QuotedName,
    Comment,
    /// The statement has more tokens than it may: the parser reports it, not the lexer.
    TooMany,
}

impl Kind {
    /// The text of punctuation, in quotes, or the name of other tokens in messages.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Kind::Eof => "end of statement",
            Kind::Word | Kind::QuotedName | Kind::EmptyName => "an identifier",
            Kind::Keyword(keyword) => keyword.text(),
            Kind::String | Kind::DollarString => "a string",
            Kind::Integer => "an integer",
            Kind::Float | Kind::MinusNan | Kind::MinusInfinity => "a number",
            Kind::Duration => "a duration",
            Kind::Uuid => "a UUID",
            Kind::Hex => "a blob",
            Kind::LeftParen => "'('",
            Kind::RightParen => "')'",
            Kind::LeftBracket => "'['",
            Kind::RightBracket => "']'",
            Kind::LeftBrace => "'{'",
            Kind::RightBrace => "'}'",
            Kind::Comma => "','",
            Kind::Semicolon => "';'",
            Kind::Colon => "':'",
            Kind::Dot => "'.'",
            Kind::Range => "'..'",
            Kind::QuestionMark => "'?'",
            Kind::Star => "'*'",
            Kind::Plus => "'+'",
            Kind::Minus => "'-'",
            Kind::Slash => "'/'",
            Kind::Percent => "'%'",
            Kind::PlusEqual => "'+='",
            Kind::MinusEqual => "'-='",
            Kind::Equal => "'='",
            Kind::NotEqual => "'!='",
            Kind::Less => "'<'",
            Kind::LessOrEqual => "'<='",
            Kind::Greater => "'>'",
            Kind::GreaterOrEqual => "'>='",
            Kind::Bad(_) => "nothing",
        }
    }

    /// Whether a column, table or keyspace may be written so.
    pub(crate) fn is_name(self) -> bool {
        match self {
            Kind::Word | Kind::QuotedName => true,
            Kind::Keyword(keyword) => keyword.is_name(),
            _ => false,
        }
    }

    /// Whether a function may be written so.
    pub(crate) fn is_function_name(self) -> bool {
        match self {
            Kind::Word | Kind::QuotedName => true,
            Kind::Keyword(keyword) => keyword.is_function_name(),
            _ => false,
        }
    }
}

/// A token: `text[start..end]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) pos: Pos,
}

/// The place in the text from which the next token is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    /// Offset of the current line's first byte, plus the bytes on the line that are not the first of a
    /// character: so `at - column_base` is the column in characters.
    column_base: usize,
}

impl<'a> Lexer<'a> {
    /// A lexer at the start. `text` is shorter than 4 GiB (see [`TEXT_BYTES_MAX`]).
    pub(crate) fn new(text: &'a str) -> Lexer<'a> {
        assert!(text.len() <= TEXT_BYTES_MAX);
        Lexer { text, at: 0, line: 1, column_base: 0 }
    }

    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    /// The byte `ahead` of the current place; 0 past the end.
    #[inline]
    fn byte(&self, ahead: usize) -> u8 {
        self.byte_at(self.at + ahead)
    }

    #[inline]
    fn byte_at(&self, offset: usize) -> u8 {
        self.text.as_bytes().get(offset).copied().unwrap_or(0)
    }

    /// The next token; [`Kind::Eof`] again and again at the end.
    pub(crate) fn next_token(&mut self) -> Token {
        let comment_ends = self.skip_blanks();
        let start = self.at;
        let pos = Pos { line: self.line, column: (start - self.column_base) as u32 };
        let kind = if comment_ends {
            self.scan()
        } else {
            self.move_over(self.text.len());
            Kind::Bad(Fault::Comment)
        };
        Token { kind, start: start as u32, end: self.at as u32, pos }
    }

    /// Moves past white space and comments; false at the start of a comment without an end.
    fn skip_blanks(&mut self) -> bool {
        loop {
            match self.byte(0) {
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'\n' => {
                    self.at += 1;
                    self.line += 1;
                    self.column_base = self.at;
                }
                b'-' if self.byte(1) == b'-' => self.skip_line(),
                b'/' if self.byte(1) == b'/' => self.skip_line(),
                b'/' if self.byte(1) == b'*' => match self.find_from(self.at + 2, b"*/") {
                    Some(end) => self.move_over(end + 2),
                    None => return false,
                },
                _ => return true,
            }
        }
    }

    /// Moves to the end of the line or of the text.
    fn skip_line(&mut self) {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|&b| b == b'\n' || b == b'\r').unwrap_or(rest.len());
        self.move_over(self.at + length);
    }

    /// The offset of the first `needle` at or after `from`.
    fn find_from(&self, from: usize, needle: &[u8; 2]) -> Option<usize> {
        let rest = self.text.as_bytes().get(from..)?;
        rest.windows(2).position(|pair| pair == needle).map(|found| from + found)
    }

    /// Moves to `end`, counting the lines and wide characters between.
    fn move_over(&mut self, end: usize) {
        let start = self.at;
        for (i, &b) in self.text.as_bytes().get(start..end).unwrap_or_default().iter().enumerate() {
            if b == b'\n' {
                self.line += 1;
                self.column_base = start + i + 1;
            } else if b & 0xc0 == 0x80 {
                self.column_base += 1;
            }
        }
        self.at = end;
    }

    /// Moves past one token and returns its kind.
    #[inline]
    fn scan(&mut self) -> Kind {
        let first = self.byte(0);
        match first {
            b'a'..=b'z' | b'A'..=b'Z' => self.scan_word(),
            b'0'..=b'9' => self.scan_number(),
            b'\'' => self.scan_quoted(b'\'', Kind::String, Fault::String),
            b'"' if self.byte(1) == b'"' && self.byte(2) != b'"' => {
                self.at += 2;
                Kind::EmptyName
            }
            b'"' => self.scan_quoted(b'"', Kind::QuotedName, Fault::QuotedName),
            b'$' if self.byte(1) == b'$' => self.scan_dollar_string(),
            b'-' => self.scan_minus(),
            0 if self.at >= self.text.len() => Kind::Eof,
            _ => self.scan_punctuation(first),
        }
    }

    fn scan_punctuation(&mut self, first: u8) -> Kind {
        let second = self.byte(1);
        let (length, kind) = match (first, second) {
            (b'<', b'=') => (2, Kind::LessOrEqual),
            (b'>', b'=') => (2, Kind::GreaterOrEqual),
            (b'!', b'=') => (2, Kind::NotEqual),
            (b'+', b'=') => (2, Kind::PlusEqual),
            (b'.', b'.') => (2, Kind::Range),
            (b'(', _) => (1, Kind::LeftParen),
            (b')', _) => (1, Kind::RightParen),
            (b'[', _) => (1, Kind::LeftBracket),
            (b']', _) => (1, Kind::RightBracket),
            (b'{', _) => (1, Kind::LeftBrace),
            (b'}', _) => (1, Kind::RightBrace),
            (b',', _) => (1, Kind::Comma),
            (b';', _) => (1, Kind::Semicolon),
            (b':', _) => (1, Kind::Colon),
            (b'.', _) => (1, Kind::Dot),
            (b'?', _) => (1, Kind::QuestionMark),
            (b'*', _) => (1, Kind::Star),
            (b'+', _) => (1, Kind::Plus),
            (b'/', _) => (1, Kind::Slash),
            (b'%', _) => (1, Kind::Percent),
            (b'=', _) => (1, Kind::Equal),
            (b'<', _) => (1, Kind::Less),
            (b'>', _) => (1, Kind::Greater),
            _ => {
                let width = self.text.get(self.at..).and_then(|rest| rest.chars().next());
                let end = self.at + width.map_or(1, char::len_utf8);
                self.move_over(end);
                return Kind::Bad(Fault::Character);
            }
        };
        self.at += length;
        kind
    }

    /// `-` alone, or the start of a negative number, duration, NaN or infinity, or `-=`.
    fn scan_minus(&mut self) -> Kind {
        match self.byte(1) {
            b'=' => {
                self.at += 2;
                Kind::MinusEqual
            }
            b'0'..=b'9' => {
                self.at += 1;
                self.scan_digits()
            }
            b'P' => match self.iso_duration_end(self.at + 1) {
                Some(end) if end >= self.word_end(self.at + 1) => {
                    self.at = end;
                    Kind::Duration
                }
                _ => self.single(Kind::Minus),
            },
            b'n' | b'N' | b'i' | b'I' => {
                let end = self.word_end(self.at + 1);
                let word = self.text.as_bytes().get(self.at + 1..end).unwrap_or_default();
                let kind = match Keyword::find(word) {
                    Some(Keyword::Nan) => Kind::MinusNan,
                    Some(Keyword::Infinity) => Kind::MinusInfinity,
                    _ => return self.single(Kind::Minus),
                };
                self.at = end;
                kind
            }
            _ => self.single(Kind::Minus),
        }
    }

    fn single(&mut self, kind: Kind) -> Kind {
        self.at += 1;
        kind
    }

    /// The end of the run of letters, digits and underscores that starts at `from`.
    #[inline]
    fn word_end(&self, from: usize) -> usize {
        let rest = self.text.as_bytes().get(from..).unwrap_or_default();
        let length = rest.iter().position(|b| !b.is_ascii_alphanumeric() && *b != b'_');
        from + length.unwrap_or(rest.len())
    }

    /// The end of the run of decimal digits that starts at `from`.
    #[inline]
    fn digits_end(&self, from: usize) -> usize {
        let rest = self.text.as_bytes().get(from..).unwrap_or_default();
        from + rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len())
    }

    fn scan_word(&mut self) -> Kind {
        let start = self.at;
        let end = self.word_end(start);
        if end - start == 8 && self.byte_at(end) == b'-' && self.is_uuid(start) {
            self.at = start + UUID_LENGTH;
            return Kind::Uuid;
        }
        if self.byte(0) == b'P'
            && let Some(duration_end) = self.iso_duration_end(start)
            && duration_end >= end
        {
            self.at = duration_end;
            return Kind::Duration;
        }
        self.at = end;
        match Keyword::find(self.text.as_bytes().get(start..end).unwrap_or_default()) {
            Some(keyword) => Kind::Keyword(keyword),
            None => Kind::Word,
        }
    }

    fn scan_number(&mut self) -> Kind {
        if self.byte(8) == b'-' && self.is_uuid(self.at) {
            self.at += UUID_LENGTH;
            return Kind::Uuid;
        }
        if self.byte(0) == b'0' && matches!(self.byte(1), b'x' | b'X') {
            let rest = self.text.as_bytes().get(self.at + 2..).unwrap_or_default();
            let digits = rest.iter().position(|b| !b.is_ascii_hexdigit()).unwrap_or(rest.len());
            self.at += 2 + digits;
            return Kind::Hex;
        }
        self.scan_digits()
    }

    /// An integer, float or duration without its minus.
    fn scan_digits(&mut self) -> Kind {
        let start = self.at;
        self.at = self.digits_end(start);
        if self.byte(0) == b'.' {
            if self.byte(1) == b'.' {
                // `1..2` is a range of integers, `1...2` one whose start is the float `1.`.
                if self.byte(2) != b'.' {
                    return Kind::Integer;
                }
                return self.single(Kind::Float);
            }
            self.at = self.digits_end(self.at + 1);
            self.at = self.exponent_end(self.at).unwrap_or(self.at);
            return Kind::Float;
        }
        if let Some(end) = self.exponent_end(self.at) {
            self.at = end;
            return Kind::Float;
        }
        match self.unit_duration_end(self.at) {
            Some(end) => {
                self.move_over(end);
                Kind::Duration
            }
            None => Kind::Integer,
        }
    }

    /// The end of `e`, an optional sign and digits at `from`.
    fn exponent_end(&self, from: usize) -> Option<usize> {
        if !matches!(self.byte_at(from), b'e' | b'E') {
            return None;
        }
        let digits = from + 1 + usize::from(matches!(self.byte_at(from + 1), b'+' | b'-'));
        let end = self.digits_end(digits);
        (end > digits).then_some(end)
    }

    /// The end of a duration such as `1y2mo` whose first unit starts at `from`.
    fn unit_duration_end(&self, from: usize) -> Option<usize> {
        let mut end = self.unit_end(from)?;
        loop {
            let digits = self.digits_end(end);
            match self.unit_end(digits) {
                Some(next) if digits > end => end = next,
                _ => return Some(end),
            }
        }
    }

    /// The end of the longest unit of a duration at `from`.
    fn unit_end(&self, from: usize) -> Option<usize> {
        let second = self.byte_at(from + 1) | 0x20;
        let length = match self.byte_at(from) | 0x20 {
            b'm' if second == b'o' || second == b's' => 2,
            b'u' | b'n' if second == b's' => 2,
            b'y' | b'w' | b'd' | b'h' | b'm' | b's' => 1,
            _ if self.text.get(from..)?.starts_with("\u{b5}s") => 3,
            _ if self.text.get(from..)?.starts_with("\u{b5}S") => 3,
            _ => return None,
        };
        Some(from + length)
    }

    /// The end of an ISO 8601 duration whose `P` is at `from`.
    fn iso_duration_end(&self, from: usize) -> Option<usize> {
        if self.matches_shape(from, b"P0000-00-00T00:00:00") {
            return Some(from + 20);
        }
        let weeks = self.digits_end(from + 1);
        if weeks > from + 1 && self.byte_at(weeks) == b'W' {
            return Some(weeks + 1);
        }
        let date = self.designators_end(from + 1, b"YMD");
        let after_date = date.unwrap_or(from + 1);
        let time = match self.byte_at(after_date) {
            b'T' => self.designators_end(after_date + 1, b"HMS"),
            _ => None,
        };
        time.or(date)
    }

    /// The end of digits followed by one of `letters`, repeated with later letters; at least once.
    fn designators_end(&self, from: usize, letters: &[u8; 3]) -> Option<usize> {
        let mut end = from;
        let mut rest = letters.as_slice();
        loop {
            let digits = self.digits_end(end);
            let found = rest.iter().position(|&letter| letter == self.byte_at(digits));
            match found {
                Some(i) if digits > end => {
                    end = digits + 1;
                    rest = rest.get(i + 1..).unwrap_or_default();
                }
                _ => return (end > from).then_some(end),
            }
        }
    }

    fn is_uuid(&self, from: usize) -> bool {
        self.matches_shape(from, b"xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")
    }

    /// Whether the text at `from` has the shape: `0` stands for a digit, `x` for a hexadecimal one.
    fn matches_shape(&self, from: usize, shape: &[u8]) -> bool {
        let Some(bytes) = self.text.as_bytes().get(from..from + shape.len()) else { return false };
        bytes.iter().zip(shape).all(|(b, shape)| match shape {
            b'0' => b.is_ascii_digit(),
            b'x' => b.is_ascii_hexdigit(),
            other => b == other,
        })
    }

    /// A string or name up to its closing quote; doubled quotes inside stand for one.
    fn scan_quoted(&mut self, quote: u8, kind: Kind, fault: Fault) -> Kind {
        let mut end = self.at + 1;
        loop {
            let rest = self.text.as_bytes().get(end..).unwrap_or_default();
            let Some(length) = rest.iter().position(|&b| b == quote) else {
                self.move_over(self.text.len());
                return Kind::Bad(fault);
            };
            end += length + 1;
            if self.byte_at(end) != quote {
                self.move_over(end);
                return kind;
            }
            end += 1;
        }
    }

    fn scan_dollar_string(&mut self) -> Kind {
        match self.find_from(self.at + 2, b"$$") {
            Some(end) => {
                self.move_over(end + 2);
                Kind::DollarString
            }
            None => {
                self.move_over(self.text.len());
                Kind::Bad(Fault::DollarString)
            }
        }
    }
}

const UUID_LENGTH: usize = 36;

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(Kind, &str)> {
        let mut lexer = Lexer::new(text);
        let mut out = Vec::new();
        loop {
            let token = lexer.next_token();
            if token.kind == Kind::Eof {
                return out;
            }
            out.push((token.kind, &text[token.start as usize..token.end as usize]));
        }
    }

    #[test]
    fn numbers_ranges_and_durations() {
        let cases = [
            ("1", Kind::Integer),
            ("-12", Kind::Integer),
            ("1.", Kind::Float),
            ("1.5e-3", Kind::Float),
            ("-1E9", Kind::Float),
            ("0xAf", Kind::Hex),
            ("0x", Kind::Hex),
            ("1y2mo3w4d5h6m7s8ms9us10\u{b5}s11ns", Kind::Duration),
            ("-2M", Kind::Duration),
            ("P1Y2M3DT4H5M6S", Kind::Duration),
            ("PT5M", Kind::Duration),
            ("-P3W", Kind::Duration),
            ("P0001-02-03T04:05:06", Kind::Duration),
            ("P1YT", Kind::Word),
            ("p1y", Kind::Word),
            ("-nan", Kind::MinusNan),
            ("-Infinity", Kind::MinusInfinity),
            ("01234567-89ab-cdef-0123-456789ABCDEF", Kind::Uuid),
            ("deadbeef-89ab-cdef-0123-456789ABCDEF", Kind::Uuid),
            ("\"a\"\"b\"", Kind::QuotedName),
            ("\"\"\"\"", Kind::QuotedName),
            ("\"\"", Kind::EmptyName),
            ("'it''s'", Kind::String),
            ("$$ it's $ $$", Kind::DollarString),
        ];
        for (text, kind) in cases {
            assert_eq!(kinds(text), [(kind, text)]);
        }
        assert_eq!(kinds("1..2"), [(Kind::Integer, "1"), (Kind::Range, ".."), (Kind::Integer, "2")]);
        assert_eq!(kinds("1...2"), [(Kind::Float, "1."), (Kind::Range, ".."), (Kind::Integer, "2")]);
        assert_eq!(kinds("1.5..2").len(), 3);
        assert_eq!(kinds("c-1"), [(Kind::Word, "c"), (Kind::Integer, "-1")]);
        assert_eq!(kinds("deadbeef-1"), [(Kind::Word, "deadbeef"), (Kind::Integer, "-1")]);
        assert_eq!(kinds("-nano"), [(Kind::Minus, "-"), (Kind::Word, "nano")]);
    }

    #[test]
    fn positions_count_characters_and_lines() {
        let text = "a /* \u{e9}\n\u{e9}\u{e9} */ '\u{20ac}' b -- c\n d";
        let mut lexer = Lexer::new(text);
        let mut places = Vec::new();
        loop {
            let token = lexer.next_token();
            places.push((token.pos.line, token.pos.column));
            if token.kind == Kind::Eof {
                break;
            }
        }
        assert_eq!(places, [(1, 0), (2, 6), (2, 10), (3, 1), (3, 2)]);
    }

    #[test]
    fn unterminated_tokens_are_bad() {
        for text in ["'a", "'a''", "\"a", "$$a$", "/* a", "\u{e9}", "!", "$", "\0"] {
            assert!(matches!(kinds(text)[..], [(Kind::Bad(_), _)]), "{text}");
        }
    }
}
