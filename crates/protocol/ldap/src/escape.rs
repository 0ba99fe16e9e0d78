//! Texts of users inside names and filters: with any content they stay one value.

use std::fmt::Write as _;

/// A value inside a distinguished name (RFC 4514, section 2.4).
pub(crate) fn in_name(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, found) in text.char_indices() {
        let edge = (at == 0 && matches!(found, ' ' | '#')) || (at + 1 == text.len() && found == ' ');
        let special = matches!(found, '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=' | '\0'..='\x1f');
        if edge || special {
            let _ = write!(out, "\\{:02X}", u32::from(found));
        } else {
            out.push(found);
        }
    }
    out
}

/// A value inside a filter (RFC 4515, section 3).
pub(crate) fn in_filter(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for found in text.chars() {
        if matches!(found, '*' | '(' | ')' | '\\' | '\0') {
            let _ = write!(out, "\\{:02x}", u32::from(found));
        } else {
            out.push(found);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_stays_one_value() {
        assert_eq!(in_name("ann,ou=admins"), "ann\\2Cou\\3Dadmins");
        assert_eq!(in_name(" a b "), "\\20a b\\20");
        assert_eq!(in_name("#1"), "\\231");
        assert_eq!(in_name("a\\\"+<>;\n\0"), "a\\5C\\22\\2B\\3C\\3E\\3B\\0A\\00");
        assert_eq!(in_name("é"), "é");
        assert_eq!(in_filter("*)(uid=*"), "\\2a\\29\\28uid=\\2a");
        assert_eq!(in_filter("a\\2a\0é"), "a\\5c2a\\00é");
    }
}
