//! Statements as logs and traces may show them: without the passwords of roles.

use std::borrow::Cow;

/// Stands in place of a password and all that follows it.
const REDACTED: &str = " *******";

fn find(text: &str, word: &str) -> Option<usize> {
    text.as_bytes().windows(word.len()).position(|window| window.eq_ignore_ascii_case(word.as_bytes()))
}

/// The text of a statement; of one that gives a role a password, the part before it.
pub(crate) fn redacted(text: &str) -> Cow<'_, str> {
    const PASSWORD: &str = "password";
    let Some(at) = find(text, PASSWORD) else { return Cow::Borrowed(text) };
    let has = |word| find(text, word).is_some();
    if (has("role") || has("user")) && (has("create") || has("alter")) {
        // The word is ASCII, so that its end is one of a character.
        return Cow::Owned(format!("{}{REDACTED}", &text[..at + PASSWORD.len()]));
    }
    Cow::Borrowed(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_cut_off() {
        for (text, shown) in [
            ("CREATE ROLE a WITH PASSWORD = 's3' AND LOGIN = true", "CREATE ROLE a WITH PASSWORD *******"),
            ("/* ü */ alter user \"Ä\" with password 's3'", "/* ü */ alter user \"Ä\" with password *******"),
            ("ALTER ROLE a WITH HASHED PASSWORD='s3'", "ALTER ROLE a WITH HASHED PASSWORD *******"),
            (
                "ALTER ROLE a WITH LOGIN = true AND PASSWORD='s3'",
                "ALTER ROLE a WITH LOGIN = true AND PASSWORD *******",
            ),
            ("SELECT password FROM t", "SELECT password FROM t"),
            ("LIST ROLES", "LIST ROLES"),
            ("", ""),
        ] {
            assert_eq!(redacted(text), shown);
        }
    }
}
