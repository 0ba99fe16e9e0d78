//! Items from and to the text of Amazon Ion, as DynamoDB's exports have it: numbers are decimals, sets are lists with an annotation.
//!
//! The reader takes the parts of Ion that such files may use: no timestamps, S-expressions, clobs, or other annotations. Its memory is bounded by the text, whose
//! length is its caller's to limit.

use std::collections::BTreeSet;

use stdx::base64;

use crate::json::check_name;
use crate::value::NESTING_MAX;
use crate::{Item, Number, Result, Value, invalid};

/// The mark of Ion's version, before every value of an export.
pub const VERSION_MARK: &str = "$ion_1_0";
/// Values of one text. Each takes many times the memory of its shortest form.
const VALUES_MAX: usize = 400_000;
/// The annotations of sets.
const SETS: [&str; 3] = ["$dynamodb_SS", "$dynamodb_NS", "$dynamodb_BS"];
/// Symbols that are no names.
const KEYWORDS: [&str; 4] = ["null", "true", "false", "nan"];

// ---- writing

/// Appends an item.
pub fn write_item(item: &Item, out: &mut String) {
    out.push('{');
    for (at, (name, value)) in item.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_name(name, out);
        out.push(':');
        write_value(value, out);
    }
    out.push('}');
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::S(text) => write_quoted(text, '"', out),
        Value::N(number) => write_number(number, out),
        Value::B(bytes) => write_bytes(bytes, out),
        Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Value::Null => out.push_str("null"),
        Value::Ss(all) => {
            write_list(Some("$dynamodb_SS"), all, out, |text, out| write_quoted(text, '"', out))
        }
        Value::Ns(all) => write_list(Some("$dynamodb_NS"), all, out, write_number),
        Value::Bs(all) => write_list(Some("$dynamodb_BS"), all, out, |bytes, out| write_bytes(bytes, out)),
        Value::L(all) => write_list(None, all, out, write_value),
        Value::M(all) => write_item(all, out),
    }
}

fn write_list<T>(
    annotation: Option<&str>,
    all: impl IntoIterator<Item = T>,
    out: &mut String,
    write: impl Fn(T, &mut String),
) {
    if let Some(annotation) = annotation {
        out.push_str(annotation);
        out.push_str("::");
    }
    out.push('[');
    for (at, one) in all.into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write(one, out);
    }
    out.push(']');
}

fn write_bytes(bytes: &[u8], out: &mut String) {
    out.push_str("{{");
    out.push_str(&base64::encode(bytes));
    out.push_str("}}");
}

/// Appends a number as a decimal: with a point or an exponent, or it would be an integer.
fn write_number(number: &Number, out: &mut String) {
    let text = number.stored();
    match text.split_once(['E', 'e']) {
        Some((digits, exponent)) => {
            out.push_str(digits);
            out.push('d');
            out.push_str(exponent.trim_start_matches('+'));
        }
        None => {
            out.push_str(&text);
            if !text.contains('.') {
                out.push('.');
            }
        }
    }
}

/// Appends the name of a member: a symbol, in quotes unless it can do without.
fn write_name(name: &str, out: &mut String) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let starts_plain = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    if starts_plain && name.bytes().all(is_plain) && !KEYWORDS.contains(&name) {
        out.push_str(name);
    } else {
        write_quoted(name, '\'', out);
    }
}

fn write_quoted(text: &str, quote: char, out: &mut String) {
    out.push(quote);
    for one in text.chars() {
        match one {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            one if one == quote => {
                out.push('\\');
                out.push(one);
            }
            one if one < ' ' || one == '\u{7f}' => out.push_str(&format!("\\x{:02x}", u32::from(one))),
            one => out.push(one),
        }
    }
    out.push(quote);
}

// ---- reading

/// The item in the member `Item` of the structure that a text has, behind marks of the version.
///
/// # Errors
/// When the text is something else, or a value is none of an item's.
pub fn read_record(text: &str) -> Result<Item> {
    let mut reader = Reader { text, at: 0, values: 0 };
    loop {
        reader.skip_space()?;
        if !reader.take(VERSION_MARK) {
            break;
        }
    }
    // The structure and the item are no values of the item.
    let Value::M(mut record) = reader.value(0, 2)? else { return invalid!("Ion: it is no structure") };
    reader.skip_space()?;
    if !reader.rest().is_empty() {
        return reader.error("there is something behind the structure");
    }
    match record.remove("Item") {
        Some(Value::M(item)) => Ok(item),
        Some(_) => invalid!("Ion: Item is no structure"),
        None => invalid!("Ion: the structure has no Item"),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    values: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Takes the next character.
    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    /// Takes this text, if it is next.
    fn take(&mut self, token: &str) -> bool {
        let is_next = self.rest().starts_with(token);
        if is_next {
            self.at += token.len();
        }
        is_next
    }

    fn error<T>(&self, what: &str) -> Result<T> {
        invalid!("Ion: {what}, at byte {}", self.at)
    }

    /// Takes white space and comments.
    fn skip_space(&mut self) -> Result<()> {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start_matches([' ', '\t', '\r', '\n', '\u{b}', '\u{c}', '\u{feff}']);
            self.at += rest.len() - trimmed.len();
            if self.take("//") {
                self.at += self.rest().find(['\n', '\r']).unwrap_or(self.rest().len());
            } else if self.take("/*") {
                match self.rest().find("*/") {
                    Some(end) => self.at += end + 2,
                    None => return self.error("a comment has no end"),
                }
            } else {
                return Ok(());
            }
        }
    }

    /// A value `depth` deep in others, of which the first `outer` are none of the item.
    fn value(&mut self, depth: usize, outer: usize) -> Result<Value> {
        if let Some(value) = self.scalar()? {
            return Ok(value);
        }
        let is_too_deep = depth >= NESTING_MAX + outer;
        match self.peek() {
            Some('{' | '[') if is_too_deep => invalid!("Nesting Levels have exceeded supported limits"),
            Some('{') => self.members(depth, outer).map(Value::M),
            Some('[') => self.list(depth, outer).map(Value::L),
            Some('$' | '_' | 'a'..='z' | 'A'..='Z') => self.symbol_or_set(),
            _ => self.error("a value is expected"),
        }
    }

    /// A string, number or blob; none where something else is next.
    fn scalar(&mut self) -> Result<Option<Value>> {
        self.skip_space()?;
        self.values += 1;
        if self.values > VALUES_MAX {
            return invalid!("Ion: there are more than {VALUES_MAX} values");
        }
        Ok(Some(match self.peek() {
            Some('"') => Value::S(self.string()?),
            Some('\'') if self.rest().starts_with("'''") => Value::S(self.long_strings()?),
            Some('{') if self.take("{{") => Value::B(self.bytes()?),
            Some('-' | '0'..='9') => Value::N(self.number()?),
            _ => return Ok(None),
        }))
    }

    fn symbol(&mut self) -> &'a str {
        let rest = self.rest();
        let is_part = |one: char| one.is_ascii_alphanumeric() || one == '_' || one == '$';
        let symbol = rest.get(..rest.find(|one| !is_part(one)).unwrap_or(rest.len())).unwrap_or_default();
        self.at += symbol.len();
        symbol
    }

    fn symbol_or_set(&mut self) -> Result<Value> {
        let symbol = self.symbol();
        match symbol {
            "true" => return Ok(Value::Bool(true)),
            "false" => return Ok(Value::Bool(false)),
            "null" => {
                // With a type, which an item's null has not.
                if self.take(".") {
                    self.symbol();
                }
                return Ok(Value::Null);
            }
            _ => {}
        }
        self.skip_space()?;
        if !SETS.contains(&symbol) || !self.take("::") {
            return self.error("a symbol is no value of an item, nor are annotations but those of sets");
        }
        self.skip_space()?;
        if self.peek() != Some('[') {
            return self.error("a set is no list");
        }
        self.set(symbol)
    }

    fn set(&mut self, kind: &str) -> Result<Value> {
        let (mut texts, mut numbers, mut bytes, mut count) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), 0);
        self.elements(']', |reader| {
            count += 1;
            match (kind, reader.scalar()?) {
                ("$dynamodb_SS", Some(Value::S(text))) => texts.insert(text),
                ("$dynamodb_NS", Some(Value::N(number))) => numbers.insert(number),
                ("$dynamodb_BS", Some(Value::B(one))) => bytes.insert(one),
                _ => return reader.error("a member of a set is of another type"),
            };
            Ok(())
        })?;
        let set = match kind {
            "$dynamodb_SS" => (texts.len(), Value::Ss(texts)),
            "$dynamodb_NS" => (numbers.len(), Value::Ns(numbers)),
            _ => (bytes.len(), Value::Bs(bytes)),
        };
        match set {
            (0, _) => self.error("a set is empty"),
            (len, _) if len != count => self.error("a set has a member twice"),
            (_, set) => Ok(set),
        }
    }

    /// The elements of a list or structure, from its bracket to its end.
    fn elements(&mut self, end: char, mut element: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.next();
        loop {
            self.skip_space()?;
            if self.peek() == Some(end) {
                self.next();
                return Ok(());
            }
            element(self)?;
            self.skip_space()?;
            match self.peek() {
                Some(',') => {
                    self.next();
                }
                Some(other) if other == end => {}
                _ => return self.error("a comma or an end is expected"),
            }
        }
    }

    fn list(&mut self, depth: usize, outer: usize) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        self.elements(']', |reader| {
            all.push(reader.value(depth + 1, outer)?);
            Ok(())
        })?;
        Ok(all)
    }

    fn members(&mut self, depth: usize, outer: usize) -> Result<Item> {
        let mut all = Item::new();
        self.elements('}', |reader| {
            let name = match reader.peek() {
                Some('"') => reader.string()?,
                Some('\'') if reader.rest().starts_with("'''") => reader.long_strings()?,
                Some('\'') => reader.quoted('\'')?,
                _ => match reader.symbol() {
                    "" => return reader.error("a name is expected"),
                    name if KEYWORDS.contains(&name) || name.starts_with('$') => {
                        return reader.error("a name that needs quotes has none");
                    }
                    name => name.to_owned(),
                },
            };
            check_name(&name)?;
            reader.skip_space()?;
            if !reader.take(":") || reader.peek() == Some(':') {
                return reader.error("a colon is expected behind a name");
            }
            let value = reader.value(depth + 1, outer)?;
            match all.insert(name, value) {
                None => Ok(()),
                Some(_) => reader.error("a structure has a name twice"),
            }
        })?;
        Ok(all)
    }

    fn string(&mut self) -> Result<String> {
        self.quoted('"')
    }

    /// A text in quotes of one character.
    fn quoted(&mut self, quote: char) -> Result<String> {
        self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                None | Some('\n' | '\r') => return self.error("a text has no end"),
                Some(one) if one == quote => return Ok(text),
                Some('\\') => self.escaped(&mut text)?,
                Some(one) => text.push(one),
            }
        }
    }

    /// Texts in three quotes, which are one.
    fn long_strings(&mut self) -> Result<String> {
        let mut text = String::new();
        while self.take("'''") {
            while !self.take("'''") {
                match self.next() {
                    None => return self.error("a text has no end"),
                    Some('\\') => self.escaped(&mut text)?,
                    Some(one) => text.push(one),
                }
            }
            self.skip_space()?;
        }
        Ok(text)
    }

    /// The rest of an escape.
    fn escaped(&mut self, text: &mut String) -> Result<()> {
        let one = match self.next() {
            Some('0') => '\0',
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('t') => '\t',
            Some('n') => '\n',
            Some('f') => '\u{c}',
            Some('r') => '\r',
            Some('v') => '\u{b}',
            Some(one @ ('"' | '\'' | '?' | '\\' | '/')) => one,
            Some('\n') => return Ok(()),
            Some('\r') => {
                self.take("\n");
                return Ok(());
            }
            Some('x') => self.code(2)?,
            Some('u') => self.code(4)?,
            Some('U') => self.code(8)?,
            _ => return self.error("an escape is none of Ion"),
        };
        text.push(one);
        Ok(())
    }

    /// A character by so many hexadecimal digits; with four, by two such escapes where it needs them.
    fn code(&mut self, digits: usize) -> Result<char> {
        let high = self.hexadecimal(digits)?;
        let is_half = digits == 4 && (0xd800..0xdc00).contains(&high);
        let code = match is_half && self.take("\\u") {
            true => {
                let low = self.hexadecimal(4)?;
                let is_low = (0xdc00..0xe000).contains(&low);
                if is_low { 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00) } else { u32::MAX }
            }
            false => high,
        };
        char::from_u32(code).map_or_else(|| self.error("an escape is no character"), Ok)
    }

    fn hexadecimal(&mut self, digits: usize) -> Result<u32> {
        let text = self.rest().get(..digits).filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let Some(code) = text.and_then(|text| u32::from_str_radix(text, 16).ok()) else {
            return self.error("an escape lacks hexadecimal digits");
        };
        self.at += digits;
        Ok(code)
    }

    /// A blob behind its brackets.
    fn bytes(&mut self) -> Result<Vec<u8>> {
        let rest = self.rest();
        let Some(end) = rest.find("}}") else { return self.error("a blob has no end") };
        let text: String = rest.get(..end).unwrap_or_default().split_ascii_whitespace().collect();
        match base64::decode(&text) {
            Some(bytes) => {
                self.at += end + 2;
                Ok(bytes)
            }
            None => self.error("a blob is no base64"),
        }
    }

    /// An integer, decimal or float.
    fn number(&mut self) -> Result<Number> {
        let rest = self.rest();
        let is_part = |one: char| one.is_ascii_alphanumeric() || matches!(one, '.' | '_' | '+' | '-');
        let text = rest.get(..rest.find(|one| !is_part(one)).unwrap_or(rest.len())).unwrap_or_default();
        let (digits, exponent) = match text.split_once(['d', 'D', 'e', 'E']) {
            Some((digits, exponent)) => (digits, Some(exponent)),
            None => (text, None),
        };
        let unsigned = digits.strip_prefix('-').unwrap_or(digits);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let are_digits = |text: &str| {
            text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_') && !text.contains("__")
        };
        let is_number = !whole.is_empty()
            && are_digits(whole)
            && are_digits(fraction)
            // It would be octal elsewhere.
            && (whole.len() == 1 || !whole.starts_with('0'))
            && ![whole, fraction].iter().any(|part| part.starts_with('_') || part.ends_with('_'))
            && exponent.is_none_or(|exponent| {
                let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
            });
        if !is_number {
            return self.error("a number is none of an item");
        }
        let sign = if digits.len() > unsigned.len() { "-" } else { "" };
        let point = if fraction.is_empty() { "" } else { "." };
        let exponent = exponent.map(|exponent| format!("E{exponent}")).unwrap_or_default();
        let plain = format!("{sign}{whole}{point}{fraction}{exponent}").replace('_', "");
        let number = Number::parse(&plain)?;
        self.at += text.len();
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn item(text: &str) -> Item {
        json::read_item(&serde_json::from_str(text).expect("JSON")).expect("an item")
    }

    fn written(item: &Item) -> String {
        let mut out = String::new();
        write_item(item, &mut out);
        out
    }

    #[test]
    fn items_are_written_as_aws_does() {
        let book = item(
            r#"{"Authors":{"SS":["Author1","Author2"]},"Id":{"N":"103"},"InPublication":{"BOOL":false},"Price":{"N":"2000.5"},
                "Title":{"S":"Book 103 \"Title\""},"none":{"NULL":true},"sizes":{"NS":["1","2.5"]},"raw":{"B":"AAEC"},"raws":{"BS":["AA=="]},
                "more":{"M":{"the list":{"L":[{"N":"-1"},{"L":[]}]},"null":{"S":"a\nb"}}},"small":{"N":"1e-100"}}"#,
        );
        assert_eq!(
            written(&book),
            "{Authors:$dynamodb_SS::[\"Author1\",\"Author2\"],Id:103.,InPublication:false,Price:2000.5,\
             Title:\"Book 103 \\\"Title\\\"\",more:{'null':\"a\\nb\",'the list':[-1.,[]]},none:null,raw:{{AAEC}},\
             raws:$dynamodb_BS::[{{AA==}}],sizes:$dynamodb_NS::[1.,2.5],small:1d-100}"
        );
        assert_eq!(read_record(&format!("$ion_1_0 {{Item:{}}}", written(&book))), Ok(book));
    }

    #[test]
    fn other_forms_of_the_same_are_read() {
        let text = "$ion_1_0 { other: 5, 'Item' : { // a comment\n \"p\" : \"\\x41\\u00e9\\U0001F600\\ud83d\\ude00\\/\", /* and */ 'q r':'''a\n''' '''b''',\n\
                    n: 1_000, m: -0.5, d: 12.5d-1, e: 2e3, z: 0, t: null.string, f: true, b: {{ AA\n== }}, }}";
        let read = read_record(text).expect("it is an item");
        let wanted = item(
            r#"{"p":{"S":"Aé😀😀/"},"q r":{"S":"a\nb"},"n":{"N":"1000"},"m":{"N":"-0.5"},"d":{"N":"1.25"},"e":{"N":"2000"},
                "z":{"N":"0"},"t":{"NULL":true},"f":{"BOOL":true},"b":{"B":"AA=="}}"#,
        );
        assert_eq!(read, wanted);
    }

    #[test]
    fn hostile_texts_are_refused() {
        for value in [
            "",
            "[",
            "{",
            "{a}",
            "{a:}",
            "{a:1 b:2}",
            "{a:1,a:2}",
            "{'':1}",
            "{null:1}",
            "{$1:1}",
            "{a::1}",
            "\"",
            "\"a\n\"",
            "\"\\q\"",
            "\"\\x4\"",
            "\"\\ud83d\"",
            "\"\\ud83d\\u0041\"",
            "\"\\udc00\"",
            "\"\\UFFFFFFFF\"",
            "\"\\u00é\"",
            "'''a",
            "'a'",
            "/* ",
            "{{",
            "{{*}}",
            "{{\"clob\"}}",
            "{{'''c'''}}",
            "0x1f",
            "0b1",
            "01",
            "1__0",
            "_1",
            "1_",
            "1.5.5",
            "1d",
            "1d+",
            "--1",
            "+1",
            "1e5d5",
            ".5",
            "nan",
            "+inf",
            "2026-11-28",
            "2026-11-28T00:00Z",
            "(a b)",
            "symbol",
            "x::1",
            "$dynamodb_SS::5",
            "$dynamodb_SS::[]",
            "$dynamodb_SS::[\"a\",\"a\"]",
            "$dynamodb_SS::[1]",
            "$dynamodb_NS::[\"a\"]",
            "$dynamodb_NS::[[1]]",
            "$dynamodb_XS::[1]",
            "$dynamodb_SS",
            "1d200",
            "123456789012345678901234567890123456789.",
            "true1",
            "[1,,2]",
            "[,1]",
        ] {
            let text = format!("$ion_1_0 {{Item:{{p:{value}}}}}");
            assert!(read_record(&text).is_err(), "{text}");
            assert!(read_record(&text[..text.len() - 2]).is_err(), "{text} without its ends");
        }
        for text in [
            "",
            "$ion_1_0",
            "5",
            "[]",
            "{}",
            "{Item:5}",
            "{Item:{}} 5",
            "{item:{}}",
            "\u{0}",
            "$ion_1_1 {Item:{}}",
        ] {
            assert!(read_record(text).is_err(), "{text}");
        }
        for (open, close) in [("[", "]"), ("{a:", "}"), ("{a:[", "]}"), ("$dynamodb_NS::[", "]")] {
            let deep =
                |levels: usize| format!("{{Item:{{p:{}1{}}}}}", open.repeat(levels), close.repeat(levels));
            assert!(read_record(&deep(100_000)).is_err(), "{open}: no stack is used up");
        }
        let lists = |levels: usize| {
            read_record(&format!("{{Item:{{p:{}{}}}}}", "[".repeat(levels), "]".repeat(levels)))
        };
        assert!(lists(NESTING_MAX).is_ok() && lists(NESTING_MAX + 1).is_err());
        let many = format!("{{Item:{{p:[{}]}}}}", "1,".repeat(VALUES_MAX));
        assert!(read_record(&many).expect_err("too many").to_string().contains("400000"));
    }

    /// Numbers by a seed.
    fn random(seed: &mut u64, below: u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) % below
    }

    fn text(seed: &mut u64) -> String {
        let letters =
            ['a', '"', '\'', '\\', '\n', '\r', '\0', '\u{7f}', 'é', '😀', '{', '}', ':', ' ', '$', '/', '*'];
        (0..random(seed, 6)).map(|_| letters[random(seed, letters.len() as u64) as usize]).collect()
    }

    fn number(seed: &mut u64) -> Number {
        let digits = random(seed, 1 << 30);
        let exponent = random(seed, 160) as i64 - 80;
        Number::parse(&format!("{}{digits}e{exponent}", ["", "-"][random(seed, 2) as usize]))
            .expect("a number")
    }

    fn value(seed: &mut u64, depth: usize) -> Value {
        match random(seed, if depth > 4 { 8 } else { 10 }) {
            0 => Value::S(text(seed)),
            1 => Value::N(number(seed)),
            2 => Value::B(text(seed).into_bytes()),
            3 => Value::Bool(random(seed, 2) == 0),
            4 => Value::Null,
            5 => Value::Ss((0..=random(seed, 3)).map(|_| text(seed)).collect()),
            6 => Value::Ns((0..=random(seed, 3)).map(|_| number(seed)).collect()),
            7 => Value::Bs((0..=random(seed, 3)).map(|_| text(seed).into_bytes()).collect()),
            8 => Value::L((0..random(seed, 4)).map(|_| value(seed, depth + 1)).collect()),
            _ => Value::M(
                (0..random(seed, 4))
                    .map(|at| (format!("{at}{}", text(seed)), value(seed, depth + 1)))
                    .collect(),
            ),
        }
    }

    #[test]
    fn random_items_are_read_as_they_were_written_and_damage_is_no_panic() {
        let mut seed = 5;
        for _ in 0..2000 {
            let item: Item =
                (0..random(&mut seed, 5)).map(|at| (format!("n{at}"), value(&mut seed, 0))).collect();
            let line = format!("$ion_1_0 {{Item:{}}}", written(&item));
            assert!(!line.contains('\n'), "an item is a line");
            assert_eq!(read_record(&line).as_ref(), Ok(&item), "{line}");
            let mut damaged: Vec<char> = line.chars().collect();
            let at = random(&mut seed, damaged.len() as u64) as usize;
            damaged[at] = ['"', '\'', '{', '}', '[', '\\', '0', ':'][random(&mut seed, 8) as usize];
            let _ = read_record(&damaged.into_iter().collect::<String>());
        }
    }
}
