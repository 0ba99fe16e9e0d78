//! Filters of searches: from text (RFC 4515) to the form of messages (RFC 4511, section 4.5.1.7).

use crate::LdapError;
use crate::ber::{BOOLEAN, OCTET_STRING, SEQUENCE, group, value};

/// The longest filter in bytes, and how deep filters nest.
const LEN_MAX: usize = 64 << 10;
const DEPTH_MAX: usize = 32;

/// A filter in the form of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(Vec<u8>);

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    /// [`LdapError::Filter`] with the fault.
    pub fn parse(text: &str) -> Result<Self, LdapError> {
        let refused = |why| LdapError::Filter { filter: text.chars().take(200).collect(), why };
        if text.len() > LEN_MAX {
            return Err(refused("it is too long"));
        }
        let (filter, rest) = component(text, 0).map_err(refused)?;
        if rest.is_empty() { Ok(Self(filter)) } else { Err(refused("something follows it")) }
    }

    /// All entries.
    pub fn any() -> Self {
        Self(value(0x87, b"objectClass"))
    }

    pub(crate) fn encoded(&self) -> Vec<u8> {
        self.0.clone()
    }
}

type Parsed<'a> = Result<(Vec<u8>, &'a str), &'static str>;

/// `(…)`, and the text behind it.
fn component(text: &str, depth: usize) -> Parsed<'_> {
    if depth > DEPTH_MAX {
        return Err("it is nested too deep");
    }
    let inner = text.strip_prefix('(').ok_or("a parenthesis is missing")?;
    let (filter, rest) = match inner.chars().next() {
        Some('&') => list(0xa0, inner.split_at(1).1, depth)?,
        Some('|') => list(0xa1, inner.split_at(1).1, depth)?,
        Some('!') => {
            let (negated, rest) = component(inner.split_at(1).1, depth + 1)?;
            (value(0xa2, &negated), rest)
        }
        _ => item(inner)?,
    };
    let rest = rest.strip_prefix(')').ok_or("a parenthesis is not closed")?;
    Ok((filter, rest))
}

/// Filters in a row.
fn list(tag: u8, mut text: &str, depth: usize) -> Parsed<'_> {
    let mut parts = Vec::new();
    while text.starts_with('(') {
        let (part, rest) = component(text, depth + 1)?;
        parts.push(part);
        text = rest;
    }
    Ok((group(tag, &parts), text))
}

/// `attribute=value` and its kin.
fn item(text: &str) -> Parsed<'_> {
    let end = text.find(')').ok_or("a parenthesis is not closed")?;
    let (item, rest) = text.split_at(end);
    if item.contains('(') {
        return Err("a parenthesis inside a value must be written \\28");
    }
    let (left, right) = item.split_once('=').ok_or("a condition has no =")?;
    let (kind, attribute) = match left.chars().next_back() {
        Some(kind @ ('>' | '<' | '~' | ':')) => (Some(kind), left.split_at(left.len() - 1).0),
        _ => (None, left),
    };
    if kind == Some(':') {
        return Ok((extensible(attribute, right)?, rest));
    }
    check_attribute(attribute)?;
    let compared = |tag| -> Result<Vec<u8>, &'static str> {
        if right.contains('*') {
            return Err("a star inside a value must be written \\2a");
        }
        let parts = [value(OCTET_STRING, attribute.as_bytes()), value(OCTET_STRING, &unescaped(right)?)];
        Ok(group(tag, &parts))
    };
    let filter = match kind {
        Some('>') => compared(0xa5)?,
        Some('<') => compared(0xa6)?,
        Some(_) => compared(0xa8)?,
        None if right == "*" => value(0x87, attribute.as_bytes()),
        None if right.contains('*') => substrings(attribute, right)?,
        None => compared(0xa3)?,
    };
    Ok((filter, rest))
}

fn check_attribute(attribute: &str) -> Result<(), &'static str> {
    let fits = |found: char| found.is_ascii_alphanumeric() || matches!(found, '-' | '.' | ';' | '_');
    match !attribute.is_empty() && attribute.chars().all(fits) {
        true => Ok(()),
        false => Err("a condition has no attribute on its left"),
    }
}

/// `begin*middle*end`.
fn substrings(attribute: &str, pattern: &str) -> Result<Vec<u8>, &'static str> {
    let parts: Vec<&str> = pattern.split('*').collect();
    let last = parts.len() - 1;
    let mut out = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        match (part.is_empty(), at) {
            (true, at) if at == 0 || at == last => {}
            (true, _) => return Err("two stars in a row"),
            (false, 0) => out.push(value(0x80, &unescaped(part)?)),
            (false, at) if at == last => out.push(value(0x82, &unescaped(part)?)),
            (false, _) => out.push(value(0x81, &unescaped(part)?)),
        }
    }
    Ok(group(0xa4, &[value(OCTET_STRING, attribute.as_bytes()), group(SEQUENCE, &out)]))
}

/// `attribute:dn:rule:=value`, the last colon of which is gone.
fn extensible(left: &str, right: &str) -> Result<Vec<u8>, &'static str> {
    let mut parts = left.split(':');
    let attribute = parts.next().unwrap_or_default();
    let (mut rule, mut names) = (None, false);
    for part in parts {
        match part {
            "dn" if !names && rule.is_none() => names = true,
            part if rule.is_none() => {
                check_attribute(part)?;
                rule = Some(part);
            }
            _ => return Err("an extensible condition has too many parts"),
        }
    }
    if attribute.is_empty() && rule.is_none() {
        return Err("an extensible condition has neither attribute nor rule");
    }
    let mut out = Vec::new();
    out.extend(rule.map(|rule| value(0x81, rule.as_bytes())));
    if !attribute.is_empty() {
        check_attribute(attribute)?;
        out.push(value(0x82, attribute.as_bytes()));
    }
    out.push(value(0x83, &unescaped(right)?));
    if names {
        out.push(value(0x84, &[0xff]));
    }
    debug_assert_ne!(BOOLEAN, 0x84, "the tag is that of the choice");
    Ok(group(0xa9, &out))
}

/// The bytes of a value, in which `\` begins two hexadecimal digits.
fn unescaped(text: &str) -> Result<Vec<u8>, &'static str> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|digit| char::from(digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err("a backslash is followed by two hexadecimal digits");
        };
        out.push(u8::try_from(high * 16 + low).unwrap_or(0));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> String {
        let filter = Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        filter.encoded().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn filters_have_the_form_of_the_specification() {
        assert_eq!(hex("(a=b)"), "a306040161040162");
        assert_eq!(hex("(a=*)"), "870161");
        assert_eq!(hex("(a=)"), "a3050401610400");
        assert_eq!(hex("(&(a=b)(!(c=d)))"), "a012a306040161040162a208a306040163040164");
        assert_eq!(hex("(|)"), "a100");
        assert_eq!(hex("(a>=1)"), "a506040161040131");
        assert_eq!(hex("(a<=1)"), "a606040161040131");
        assert_eq!(hex("(a~=1)"), "a806040161040131");
        assert_eq!(hex("(a=b*c*d)"), "a40e0401613009800162810163820164");
        assert_eq!(hex("(a=*c*)"), "a4080401613003810163");
        assert_eq!(hex("(a=\\2a\\00)"), "a3070401610402 2a00".replace(' ', ""));
        assert_eq!(hex("(a:dn:1.2:=b)"), "a90e8103312e328201618301628401ff");
        assert_eq!(hex("(:1.2:=b)"), "a9088103312e32830162");
        assert_eq!(hex("(uid=ann=x)"), "a30c0403756964 0405616e6e3d78".replace(' ', ""));
        assert_eq!(Filter::any(), Filter::parse("(objectClass=*)").unwrap());
    }

    #[test]
    fn what_is_no_filter_is_said() {
        for (text, why) in [
            ("", "parenthesis is missing"),
            ("a=b", "parenthesis is missing"),
            ("(a=b", "not closed"),
            ("(a=b))", "something follows"),
            ("(a)", "no ="),
            ("(=b)", "no attribute"),
            ("(a b=c)", "no attribute"),
            ("(a=b(c)", "must be written \\28"),
            ("(a>=b*)", "must be written \\2a"),
            ("(a=b**c)", "two stars"),
            ("(a=\\2)", "two hexadecimal digits"),
            ("(a=\\zz)", "two hexadecimal digits"),
            ("(:=b)", "neither attribute nor rule"),
            ("(a:x:y:=b)", "too many parts"),
            ("(&(a=b)c)", "not closed"),
        ] {
            let error = Filter::parse(text).expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        let deep = format!("{}(a=b){}", "(!".repeat(50), ")".repeat(50));
        assert!(Filter::parse(&deep).unwrap_err().to_string().contains("too deep"));
        assert!(Filter::parse(&"(".repeat(100_000)).unwrap_err().to_string().contains("too long"));
    }
}
