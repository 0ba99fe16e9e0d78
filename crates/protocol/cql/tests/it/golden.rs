//! Golden tables: each statement of `testdata/*.txt` with its canonical text, or its error.
//!
//! A case is the statement's lines after `> `, then the expected output, then an empty line. `UPDATE=1` rewrites
//! the files with the actual output.

use std::fmt::Write;
use std::path::Path;

/// The expected result of a statement.
fn outcome(text: &str) -> String {
    let parsed = match cql::parse(text) {
        Ok(parsed) => parsed,
        Err(error) => return format!("error: {error}\n"),
    };
    let canonical = parsed.statement.to_string();
    match cql::parse(&canonical) {
        Ok(again) => {
            assert_eq!(again, parsed, "the canonical text of\n{text}\nis another statement: {canonical}")
        }
        Err(error) => panic!("the canonical text of\n{text}\nis {canonical}\nand does not parse: {error}"),
    }
    assert!(!parsed.statement.name().is_empty());
    let mut out = format!("{canonical}\n");
    if !parsed.markers.is_empty() {
        out.push_str("markers:");
        for (i, marker) in parsed.markers.iter().enumerate() {
            assert_eq!(marker.index as usize, i);
            let _ = write!(
                out,
                " {}@{}:{}",
                marker.name.as_deref().unwrap_or("?"),
                marker.pos.line,
                marker.pos.column
            );
        }
        out.push('\n');
    }
    out
}

/// The tree with its positions.
fn tree(text: &str) -> String {
    match cql::parse(text) {
        Ok(parsed) => format!("{:#?}\n", parsed.statement),
        Err(error) => format!("{error:#?}\n"),
    }
}

/// Compares every case of a file, or rewrites the file.
fn check(file: &str, outcome: impl Fn(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(file);
    let table = std::fs::read_to_string(&path).expect("the table is readable");
    let mut actual = String::new();
    let mut lines = table.lines().peekable();
    let mut cases = 0;
    while let Some(line) = lines.next() {
        if let Some(first) = line.strip_prefix("> ") {
            let mut text = first.to_owned();
            let _ = writeln!(actual, "{line}");
            while let Some(more) = lines.peek().and_then(|line| line.strip_prefix('>')) {
                let _ = writeln!(actual, ">{more}");
                text.push('\n');
                text.push_str(more.strip_prefix(' ').unwrap_or(more));
                lines.next();
            }
            while lines.peek().is_some_and(|line| !line.is_empty()) {
                lines.next();
            }
            actual.push_str(&outcome(&text));
            cases += 1;
        } else {
            let _ = writeln!(actual, "{line}");
        }
    }
    assert!(cases > 0, "{file} has no cases");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, actual).expect("the table is writable");
        return;
    }
    for (i, (actual, expected)) in actual.lines().zip(table.lines()).enumerate() {
        assert_eq!(actual, expected, "{file}:{}; UPDATE=1 rewrites the table", i + 1);
    }
    assert_eq!(actual.lines().count(), table.lines().count(), "{file}; UPDATE=1 rewrites the table");
}

#[test]
fn select() {
    check("select.txt", outcome);
}

#[test]
fn terms() {
    check("terms.txt", outcome);
}

#[test]
fn dml() {
    check("dml.txt", outcome);
}

#[test]
fn ddl() {
    check("ddl.txt", outcome);
}

#[test]
fn functions_and_views() {
    check("programs.txt", outcome);
}

#[test]
fn roles() {
    check("roles.txt", outcome);
}

#[test]
fn describe() {
    check("describe.txt", outcome);
}

#[test]
fn names() {
    check("names.txt", outcome);
}

#[test]
fn clients() {
    check("clients.txt", outcome);
}

#[test]
fn errors() {
    check("errors.txt", outcome);
}

#[test]
fn trees() {
    check("trees.txt", tree);
}
