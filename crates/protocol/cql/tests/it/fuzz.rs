//! A mutation fuzzer: statements of the golden tables, changed at random. The parser never panics, and statements that
//! parse print to text that parses to the same tree.
//!
//! The corpus is `testdata/`; a text that failed once belongs there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use testkit::fuzz::hunt;

/// Pieces that are put into a statement.
const PIECES: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "<",
    ">",
    "<=",
    ">=",
    "!=",
    "=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "+=",
    "-=",
    ",",
    ".",
    "..",
    ":",
    ";",
    "?",
    "'",
    "\"",
    "\"\"",
    "''",
    "$$",
    "--",
    "//",
    "/*",
    "*/",
    "\n",
    "\t",
    " ",
    "0x",
    "0xAF",
    "1",
    "-1",
    "1.",
    "1.5e",
    "1e9",
    "1d",
    "-2h",
    "P1Y",
    "PT",
    "P0001-01-01T00:00:00",
    "NaN",
    "-NaN",
    "Infinity",
    "-Infinity",
    "550e8400-e29b-41d4-a716-446655440000",
    "a",
    "A",
    "\"A\"",
    "é",
    "\u{b5}s",
    "\0",
    "AS",
    "json",
    "DISTINCT",
    "count",
    "ttl",
    "token",
    "cast",
    "frozen",
    "list",
    "map",
    "set",
    "tuple",
    "vector",
    "int",
    "text",
    "key",
    "SELECT",
    "FROM",
    "WHERE",
    "AND",
    "IN",
    "NOT",
    "NULL",
    "IS",
    "IF",
    "EXISTS",
    "USING",
    "TTL",
    "TIMESTAMP",
    "TIMEOUT",
    "ORDER",
    "BY",
    "GROUP",
    "LIMIT",
    "PER",
    "PARTITION",
    "ALLOW",
    "FILTERING",
    "WITH",
    "PRIMARY",
    "KEY",
    "BEGIN",
    "BATCH",
    "APPLY",
    "expr",
    "(int)",
    "(a)",
    "[1]",
    "..2",
    ".a",
    ":a",
    "true",
];

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    fn of<'a>(&mut self, items: &'a [String]) -> &'a str {
        &items[self.below(items.len())]
    }

    /// A place between two characters.
    fn place(&mut self, text: &str) -> usize {
        let mut at = self.below(text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }

    /// A short range that starts and ends between characters.
    fn range(&mut self, text: &str) -> std::ops::Range<usize> {
        let start = self.place(text);
        let mut end = (start + 1 + self.below(12)).min(text.len());
        while !text.is_char_boundary(end) {
            end += 1;
        }
        start..end
    }
}

/// The statements of every table, those that are errors too.
fn corpus() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the tables are there")
        .map(|entry| entry.expect("a table").path())
        .collect();
    files.sort();
    let mut statements = Vec::new();
    for file in files {
        let table = std::fs::read_to_string(file).expect("the table is readable");
        let mut statement = String::new();
        for line in table.lines() {
            match line.strip_prefix("> ") {
                Some(part) => {
                    statement.push_str(part);
                    statement.push('\n');
                }
                None if !statement.is_empty() => statements.push(std::mem::take(&mut statement)),
                None => {}
            }
        }
    }
    assert!(statements.len() > 300, "the corpus is {} statements", statements.len());
    statements
}

fn mutate(random: &mut Random, corpus: &[String]) -> String {
    let mut text = random.of(corpus).to_owned();
    for _ in 0..=random.below(5).saturating_sub(2) {
        match random.below(7) {
            0 => {
                let range = random.range(&text);
                text.replace_range(range, "");
            }
            1 | 2 => {
                let at = random.place(&text);
                let piece = PIECES[random.below(PIECES.len())];
                text.insert_str(at, &format!(" {piece} "));
            }
            3 => {
                let range = random.range(&text);
                let piece = PIECES[random.below(PIECES.len())];
                text.replace_range(range, piece);
            }
            4 => {
                let range = random.range(&text);
                let copy = text[range].to_owned();
                let at = random.place(&text);
                text.insert_str(at, &copy);
            }
            5 => {
                let other = random.of(corpus);
                let start = random.place(other);
                let piece = other[start..].to_owned();
                let at = random.place(&text);
                text.truncate(at);
                text.push_str(&piece);
            }
            _ => {
                let other = random.of(corpus);
                let piece = other[random.range(other)].to_owned();
                let at = random.place(&text);
                text.insert_str(at, &piece);
            }
        }
    }
    text
}

/// Whether the text is a statement; panics when the parser is wrong about it.
fn check(text: &str) -> bool {
    let parsed = match cql::parse(text) {
        Ok(parsed) => parsed,
        Err(error) => {
            let lines = text.split('\n').count() as u32;
            assert!((1..=lines).contains(&error.line), "the error is outside the text: {error}");
            let line = text.split('\n').nth(error.line as usize - 1).expect("the line was counted");
            assert!(error.column as usize <= line.chars().count(), "the error is outside its line: {error}");
            assert!(error.to_string().starts_with(&format!("line {}:{} ", error.line, error.column)));
            return false;
        }
    };
    let canonical = parsed.statement.to_string();
    let again =
        cql::parse(&canonical).unwrap_or_else(|error| panic!("does not reparse: {canonical}\n{error}"));
    assert_eq!(again, parsed, "reparses to something else: {canonical}");
    assert_eq!(again.statement.to_string(), canonical);
    true
}

#[test]
fn mutated_statements() {
    let corpus = corpus();
    let (mut tried, mut parsed) = (0_u64, 0_u64);
    hunt("cql statements", |seeds| {
        let mut random = Random(seeds.next().max(1));
        for _ in 0..50 {
            let text = mutate(&mut random, &corpus);
            match catch_unwind(AssertUnwindSafe(|| check(&text))) {
                Ok(is_statement) => parsed += u64::from(is_statement),
                Err(_) => panic!("failed for {text:?}"),
            }
            tried += 1;
        }
    });
    println!("tried {tried} texts, {parsed} parsed");
    assert!(parsed > 0 && parsed < tried);
}
