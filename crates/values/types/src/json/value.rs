//! JSON itself: a reader that keeps every digit and bounds its depth, and the writing of strings.

use crate::TypeError;

/// How deeply arrays and objects may be nested: beyond it a text is refused, so that it cannot exhaust the stack.
const DEPTH_MAX: usize = 500;

/// A JSON value; numbers keep their text so that no digit is lost, objects keep their order and duplicates.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, as written.
    Number(String),
    /// A string, unescaped.
    String(String),
    /// An array.
    Array(Vec<Value>),
    /// An object, its members in order.
    Object(Vec<(String, Value)>),
}

/// Reads a JSON text; nothing but blanks may follow the value.
///
/// # Errors
/// [`TypeError::Refused`] when the text is no JSON, nests too deeply, or something follows the value.
pub fn parse(text: &str) -> Result<Value, TypeError> {
    let mut parser = Parser { text, at: 0 };
    let value = parser.value(0)?;
    parser.skip_blanks();
    if parser.at < text.len() {
        return Err(parser.error("the end of the text"));
    }
    Ok(value)
}

/// Reads the value at the beginning of a text, and ignores the text behind it, unless that touches a number.
///
/// # Errors
/// [`TypeError::Refused`] when no value is there, or it nests too deeply.
pub fn parse_first(text: &str) -> Result<Value, TypeError> {
    let mut parser = Parser { text, at: 0 };
    let value = parser.value(0)?;
    let touches = parser.peek().is_some_and(|next| !matches!(next, ' ' | '\t' | '\r' | '\n'));
    match value {
        Value::Number(_) if touches => Err(parser.error("a blank behind the number")),
        value => Ok(value),
    }
}

/// Appends a string as a JSON string with its quotes.
pub fn write_string(text: &str, out: &mut String) {
    out.push('"');
    write_escaped(text, out);
    out.push('"');
}

/// Appends the inside of a JSON string.
pub(super) fn write_escaped(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if c < ' ' => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn error(&self, expected: &str) -> TypeError {
        let before = self.text.get(..self.at).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        let text = format!("Error decoding JSON string: expected {expected} at line {line}, column {column}");
        TypeError::Refused(text)
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\n' | '\r')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        if found {
            self.at += text.len();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Result<Value, TypeError> {
        if depth > DEPTH_MAX {
            return Err(self.error("a value nested less deeply"));
        }
        self.skip_blanks();
        match self.peek() {
            Some('{') => self.object(depth),
            Some('[') => self.array(depth),
            Some('"') => self.string().map(Value::String),
            Some('-' | '0'..='9') => self.number(),
            _ if self.eat("true") => Ok(Value::Bool(true)),
            _ if self.eat("false") => Ok(Value::Bool(false)),
            _ if self.eat("null") => Ok(Value::Null),
            _ => Err(self.error("a value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, TypeError> {
        self.at += 1;
        let mut members = Vec::new();
        self.skip_blanks();
        if self.eat("}") {
            return Ok(Value::Object(members));
        }
        loop {
            self.skip_blanks();
            if self.peek() != Some('"') {
                return Err(self.error("a name in double quotes"));
            }
            let name = self.string()?;
            self.skip_blanks();
            if !self.eat(":") {
                return Err(self.error("':'"));
            }
            members.push((name, self.value(depth + 1)?));
            self.skip_blanks();
            if self.eat("}") {
                return Ok(Value::Object(members));
            }
            if !self.eat(",") {
                return Err(self.error("',' or '}'"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, TypeError> {
        self.at += 1;
        let mut elements = Vec::new();
        self.skip_blanks();
        if self.eat("]") {
            return Ok(Value::Array(elements));
        }
        loop {
            elements.push(self.value(depth + 1)?);
            self.skip_blanks();
            if self.eat("]") {
                return Ok(Value::Array(elements));
            }
            if !self.eat(",") {
                return Err(self.error("',' or ']'"));
            }
        }
    }

    fn digits(&mut self) -> Result<(), TypeError> {
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        self.at += digits;
        if digits == 0 { Err(self.error("a digit")) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<Value, TypeError> {
        let start = self.at;
        self.eat("-");
        if self.eat("0") {
            if matches!(self.peek(), Some('0'..='9')) {
                return Err(self.error("a number without leading zeros"));
            }
        } else {
            self.digits()?;
        }
        if self.eat(".") {
            self.digits()?;
        }
        if self.eat("e") || self.eat("E") {
            if !self.eat("+") {
                self.eat("-");
            }
            self.digits()?;
        }
        Ok(Value::Number(self.text.get(start..self.at).unwrap_or_default().to_owned()))
    }

    fn string(&mut self) -> Result<String, TypeError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let Some(c) = self.peek() else { return Err(self.error("the end of the string")) };
            match c {
                '"' => {
                    self.at += 1;
                    return Ok(out);
                }
                '\\' => {
                    self.at += 1;
                    out.push(self.escape()?);
                }
                c if c < ' ' => return Err(self.error("an escape in place of the control character")),
                c => {
                    self.at += c.len_utf8();
                    out.push(c);
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, TypeError> {
        let escape = self.peek();
        self.at += escape.map_or(0, char::len_utf8);
        Ok(match escape {
            Some(c @ ('"' | '\\' | '/')) => c,
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => {
                let first = self.hex4()?;
                // Half of a pair has no character: a question mark, as Java writes it.
                self.low_surrogate(first)?.or(char::from_u32(first)).unwrap_or('?')
            }
            _ => return Err(self.error("an escape")),
        })
    }

    /// The character of a pair of which the first half was read; none, with nothing read, where there is no pair.
    fn low_surrogate(&mut self, first: u32) -> Result<Option<char>, TypeError> {
        let before = self.at;
        if !(0xd800..0xdc00).contains(&first) || !self.eat("\\u") {
            return Ok(None);
        }
        let low = self.hex4()?.checked_sub(0xdc00).filter(|low| *low < 0x400);
        if low.is_none() {
            self.at = before;
        }
        Ok(low.and_then(|low| char::from_u32(0x10000 + ((first - 0xd800) << 10) + low)))
    }

    fn hex4(&mut self) -> Result<u32, TypeError> {
        let digits =
            self.rest().get(..4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let code = code.ok_or_else(|| self.error("four hexadecimal digits"))?;
        self.at += 4;
        Ok(code)
    }
}

impl Value {
    /// The simple name of the Java class that Cassandra's reader makes of the value; its messages contain it.
    pub(super) fn java_class(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "Boolean",
            Value::String(_) => "String",
            Value::Array(_) => "ArrayList",
            Value::Object(_) => "LinkedHashMap",
            Value::Number(text) if text.contains(['.', 'e', 'E']) => "Double",
            Value::Number(text) if text.parse::<i32>().is_ok() => "Integer",
            Value::Number(text) if text.parse::<i64>().is_ok() => "Long",
            Value::Number(_) => "BigInteger",
        }
    }

    /// The value as Java's `toString` shows it in messages.
    pub(super) fn java_text(&self) -> String {
        match self {
            Value::Null => "null".to_owned(),
            Value::Bool(flag) => flag.to_string(),
            Value::String(text) => text.clone(),
            Value::Number(text) if text.contains(['.', 'e', 'E']) => {
                text.parse().map_or_else(|_| text.clone(), crate::number_text::format_double)
            }
            Value::Number(text) => text.clone(),
            Value::Array(elements) => {
                format!("[{}]", elements.iter().map(Value::java_text).collect::<Vec<_>>().join(", "))
            }
            Value::Object(members) => {
                let members = members.iter().map(|(name, value)| format!("{name}={}", value.java_text()));
                format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
            }
        }
    }
}
