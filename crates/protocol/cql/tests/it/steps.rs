//! A statement that is parsed in steps has the result that it has as a whole.

use cql::ast::Parsed;
use cql::{Parsing, SyntaxError, parse};

/// The outcome of steps of so many statements, and how many there were.
fn in_steps(text: &str, statements_max: usize) -> (Result<Parsed, SyntaxError>, usize) {
    let mut parsing = Parsing::new(text);
    let mut steps = 1;
    loop {
        match parsing.advance(statements_max) {
            Ok(None) => steps += 1,
            Ok(Some(parsed)) => return (Ok(parsed), steps),
            Err(error) => return (Err(error), steps),
        }
    }
}

#[test]
fn steps_have_the_result_of_the_whole() {
    let insert = "INSERT INTO t (a, b) VALUES (?, 2) ";
    for text in [
        format!("BEGIN UNLOGGED BATCH {} APPLY BATCH;", insert.repeat(10)),
        format!("BEGIN BATCH USING TIMESTAMP 3 {insert}; DELETE FROM t WHERE a = 1; APPLY BATCH"),
        format!("BEGIN BATCH {insert} APPLY"),
        format!("BEGIN BATCH {} SELECT", insert.repeat(5)),
        "BEGIN BATCH APPLY BATCH".to_owned(),
        "SELECT a FROM t WHERE b = ?".to_owned(),
        "BEGIN TRANSACTION SELECT a FROM t WHERE b = 1; COMMIT TRANSACTION".to_owned(),
        String::new(),
    ] {
        let whole = parse(&text);
        for statements_max in [1, 3, 100] {
            let (stepped, steps) = in_steps(&text, statements_max);
            assert_eq!(format!("{stepped:?}"), format!("{whole:?}"), "{text}");
            if text.contains("UNLOGGED") {
                assert_eq!(steps, 10 / statements_max + 1);
            }
        }
    }
}
