//! Quoting of names and strings, so that the printed form reads back as the same name or string.

use crate::keyword::{Class, Keyword};

/// `name` as CQL: bare when it is a lower-case word that is not reserved, else in double quotes. This is
/// Cassandra's rule for DESCRIBE, but `true` and `false` are quoted too, since bare they would be constants.
pub fn quote_if_needed(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 2);
    push_name(&mut out, name);
    out
}

/// `text` as a string constant: in single quotes, with those inside doubled.
pub fn quote_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push_quoted(&mut out, text, '\'');
    out
}

/// Whether `word` is in Cassandra's list of reserved keywords, in any case.
pub fn is_reserved(word: &str) -> bool {
    Keyword::find(word.as_bytes()).is_some_and(|keyword| keyword.class() == Class::Reserved)
}

/// Whether `name` has the form of an unquoted name in lower case (it may still be a keyword).
pub(crate) fn is_plain(name: &str) -> bool {
    name.as_bytes().first().is_some_and(u8::is_ascii_lowercase)
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// The keyword that the plain name is.
pub(crate) fn keyword(name: &str) -> Option<Keyword> {
    Keyword::find(name.as_bytes())
}

/// [`quote_if_needed`] onto the end of `out`.
pub(crate) fn push_name(out: &mut String, name: &str) {
    push_name_if(out, name, |keyword| keyword.is_name());
}

/// `name`, bare when it is plain and either no keyword or one that `allowed` lets through.
pub(crate) fn push_name_if(out: &mut String, name: &str, allowed: impl FnOnce(Keyword) -> bool) {
    if is_plain(name) && keyword(name).is_none_or(allowed) {
        out.push_str(name);
    } else {
        push_quoted(out, name, '"');
    }
}

/// `text` between two `quote`s, with those inside doubled.
pub(crate) fn push_quoted(out: &mut String, text: &str, quote: char) {
    out.push(quote);
    for (i, piece) in text.split(quote).enumerate() {
        if i > 0 {
            out.push(quote);
            out.push(quote);
        }
        out.push_str(piece);
    }
    out.push(quote);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_only_when_they_must() {
        let cases = [
            ("a", "a"),
            ("a_1", "a_1"),
            ("Abc", "\"Abc\""),
            ("1a", "\"1a\""),
            ("_a", "\"_a\""),
            ("", "\"\""),
            ("a b", "\"a b\""),
            ("a\"b", "\"a\"\"b\""),
            ("select", "\"select\""),
            ("table", "\"table\""),
            ("ttl", "ttl"),
            ("key", "key"),
            ("timestamp", "timestamp"),
            ("true", "\"true\""),
            ("nan", "\"nan\""),
            ("é", "\"é\""),
        ];
        for (name, quoted) in cases {
            assert_eq!(quote_if_needed(name), quoted);
        }
    }

    #[test]
    fn strings_double_their_quotes() {
        assert_eq!(quote_string(""), "''");
        assert_eq!(quote_string("it's"), "'it''s'");
        assert_eq!(quote_string("''"), "''''''");
    }
}
