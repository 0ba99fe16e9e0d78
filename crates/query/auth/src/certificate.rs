//! The role that a certificate names by its subject or alternative names: ScyllaDB's `auth_certificate_role_queries`.

use regex::{Regex, RegexBuilder};

/// The most queries, and the most memory of one that is compiled, in bytes.
const QUERIES_MAX: usize = 64;
const QUERY_BYTES_MAX: usize = 1 << 20;

/// The text of a certificate that is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Subject,
    AlternativeNames,
}

/// Queries in the order in which they are tried.
#[derive(Clone, Debug)]
pub struct RoleQueries(Vec<(Source, Regex)>);

impl RoleQueries {
    /// Reads queries, one a line: `SUBJECT` or `ALTNAME`, a blank, and a regular expression with one group, which is the role.
    ///
    /// # Errors
    /// The line that is none, with the reason.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let queries: Vec<_> = lines.map(query).collect::<Result<_, _>>()?;
        match queries.len() {
            0 => Err("expected at least one query".to_owned()),
            1..=QUERIES_MAX => Ok(Self(queries)),
            len => Err(format!("{len} queries are more than {QUERIES_MAX}")),
        }
    }

    /// The role, by the first query that matches; none when none does, or the role would have no name.
    pub fn role(&self, subject: &str, alternative_names: &str) -> Option<String> {
        let found = self.0.iter().find_map(|(source, query)| {
            let text = match source {
                Source::Subject => subject,
                Source::AlternativeNames => alternative_names,
            };
            query.captures(text)?.get(1).map(|role| role.as_str().to_owned())
        });
        found.filter(|role| !role.is_empty())
    }
}

fn query(line: &str) -> Result<(Source, Regex), String> {
    let (source, expression) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let source = match source.to_ascii_uppercase().as_str() {
        "SUBJECT" => Source::Subject,
        "ALTNAME" => Source::AlternativeNames,
        _ => return Err(format!("{source:?} is no source; expected SUBJECT or ALTNAME")),
    };
    let expression = expression.trim();
    let built = RegexBuilder::new(expression).size_limit(QUERY_BYTES_MAX).build();
    let built = built.map_err(|error| format!("{expression:?} is no regular expression: {error}"))?;
    match built.captures_len() {
        2 => Ok((source, built)),
        len => Err(format!("{expression:?} has {} groups; expected one, the role", len - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_query_that_matches_gives_the_role() {
        let queries = RoleQueries::parse(
            "SUBJECT OU=([a-z]+)\n\n  altname URI=spiffe://torc/([^,]+)\nSUBJECT CN=([^,\\s]+)",
        );
        let queries = queries.expect("three queries");
        let role = |subject, names| queries.role(subject, names);
        assert_eq!(role("CN=ann,OU=web", "").as_deref(), Some("web"));
        assert_eq!(role("CN=ann", "DNS=x,URI=spiffe://torc/bob,URI=y").as_deref(), Some("bob"));
        assert_eq!(role("CN=ann,O=x", "DNS=x").as_deref(), Some("ann"));
        assert_eq!(role("O=x", "CN=ann"), None);
        let empty = RoleQueries::parse("SUBJECT CN=(.*)$").expect("a query");
        assert_eq!(empty.role("CN=", ""), None, "a role has a name");
    }

    #[test]
    fn what_is_no_query_is_named() {
        for (text, said) in [
            ("", "at least one"),
            ("ISSUER CN=(.*)", "\"ISSUER\" is no source"),
            ("SUBJECT", "has 0 groups"),
            ("SUBJECT CN=.*", "has 0 groups"),
            ("SUBJECT CN=(a)(b)", "has 2 groups"),
            ("SUBJECT CN=(", "is no regular expression"),
            ("SUBJECT (a{1000}{1000}{1000})", "is no regular expression"),
        ] {
            let error = RoleQueries::parse(text).expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(RoleQueries::parse(&"SUBJECT (a)\n".repeat(65)).unwrap_err().contains("more than 64"));
    }
}
