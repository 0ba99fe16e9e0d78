//! Printing and parsing are inverse: `parse(print(tree)) == tree`.

use proptest::prelude::*;

use crate::generate::{Entropy, shape, statement};

/// 3,000 cases, or as many as `PROPTEST_CASES` says.
fn config() -> ProptestConfig {
    let cases = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default().cases,
        None => 3_000,
    };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_printed_tree_parses_to_itself(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let made = statement(&mut Entropy::new(&bytes));
        let text = made.to_string();
        let parsed = match cql::parse(&text) {
            Ok(parsed) => parsed,
            Err(error) => return Err(TestCaseError::fail(format!("{text}\n{error}"))),
        };
        prop_assert_eq!(shape(&parsed.statement), shape(&made), "{}", text);
        prop_assert_eq!(parsed.statement.to_string(), text);
        for (i, marker) in parsed.markers.iter().enumerate() {
            prop_assert_eq!(marker.index as usize, i);
        }
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in "\\PC{0,80}") {
        let _ = cql::parse(&text);
        let _ = cql::parse_type(&text);
        let _ = cql::parse_term(&text);
    }

    #[test]
    fn a_quoted_name_is_itself(name in "\\PC{1,20}") {
        let text = format!("SELECT a AS {} FROM t", cql::ident::quote_if_needed(&name));
        let parsed = cql::parse(&text).expect("a quoted name is a name");
        let cql::ast::Statement::Select(select) = parsed.statement else { panic!("not a SELECT") };
        let cql::ast::Selection::Selectors(selectors) = select.selection else { panic!("no selectors") };
        prop_assert_eq!(&selectors[0].alias.as_ref().expect("an alias").name, &name);
    }

    #[test]
    fn a_quoted_string_is_itself(text in "(?s).{0,20}") {
        let term = cql::parse_term(&cql::ident::quote_string(&text)).expect("a quoted string is a term");
        let constant = cql::ast::TermKind::Constant(cql::ast::Constant::String(text));
        prop_assert_eq!(term.kind, constant);
    }
}

#[test]
fn secrets_are_not_in_logs() {
    for text in [
        "CREATE ROLE r WITH PASSWORD = 'sesame' AND LOGIN = true",
        "ALTER ROLE r WITH HASHED PASSWORD = 'sesame'",
        "CREATE USER u WITH PASSWORD 'sesame'",
        "ALTER USER u WITH HASHED PASSWORD 'sesame'",
    ] {
        let statement = cql::parse(text).expect("this is CQL").statement;
        assert!(statement.to_string().contains("sesame"), "{text}");
        assert!(!cql::redacted(&statement).contains("sesame"), "{text}");
        assert!(cql::redacted(&statement).contains("'***'"), "{text}");
        assert!(!format!("{statement:?}").contains("sesame"), "{text}");
    }
}
