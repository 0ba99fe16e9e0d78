//! Literals, plain text and JSON of the golden values, and their way back.

use crate::golden::table;
use types::{CqlType, json};

/// Numbers of a text that differ only in digits that do not matter: Java before 19 does not always write the shortest
/// text of a float.
fn same_but_for_float_digits(ours: &str, javas: &str) -> bool {
    let numbers = |text: &str| {
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | 'E');
        let split: Vec<String> = text.split(|c| !is_part(c)).map(str::to_owned).collect();
        split
    };
    let (a, b) = (numbers(ours), numbers(javas));
    a.len() == b.len()
        && a.iter().zip(&b).all(|(a, b)| {
            a == b
                || (a.len() <= b.len() && a.parse::<f64>() == b.parse::<f64>())
                || (a.len() <= b.len() && a.parse::<f32>() == b.parse::<f32>())
        })
}

#[test]
fn literals_text_and_json() {
    let mut longer = 0;
    let mut rows_seen = 0;
    for (ty, _, cql, rows) in table() {
        let floats = ty.any(&mut |ty| matches!(ty, CqlType::Float | CqlType::Double));
        for row in rows {
            rows_seen += 1;
            // Cassandra cannot show a few values: it fails on fields that a tuple leaves out.
            for (ours, javas) in [
                (ty.format(&row.bytes), &row.literal),
                (ty.to_json(&row.bytes), &row.json),
                (ty.to_text(&row.bytes), &row.string),
            ] {
                if javas.starts_with('!') || ours == *javas {
                    continue;
                }
                assert!(floats && same_but_for_float_digits(&ours, javas), "{cql}: {ours} for {javas}");
                longer += 1;
            }
        }
    }
    assert!(longer * 20 < rows_seen, "{longer} of {rows_seen} texts differ from Java's");
}

#[test]
fn text_comes_back() {
    for (ty, _, cql, rows) in table() {
        for row in rows {
            // Text does not tell null from a field that is left out, nor a backslash before a colon from an escape.
            let exact = !ty.any(&mut |ty| ty.is_tuple() || ty.is_udt());
            let blank = ty == CqlType::Boolean && row.bytes.is_empty();
            if exact && !blank && !(ty == CqlType::Timestamp && row.string.starts_with(['+', '-'])) {
                let back =
                    ty.from_string(&ty.to_text(&row.bytes)).unwrap_or_else(|error| panic!("{cql}: {error}"));
                let nan = row.string == "NaN";
                assert!(back == row.bytes || nan, "{cql} {}", row.string);
            }
            let json = ty.to_json(&row.bytes);
            let parsed = json::parse(&json).unwrap_or_else(|error| panic!("{json}: {error}"));
            let lossy = ty.any(&mut |ty| {
                ty.is_tuple()
                    || ty.is_udt()
                    || matches!(ty, CqlType::Float | CqlType::Double | CqlType::Decimal)
            });
            let unreadable = row.json.contains("\"+") || row.json.contains("\"-") && ty == CqlType::Timestamp;
            if !lossy && !unreadable && !row.bytes.is_empty() {
                let back = ty.from_json(&parsed).unwrap_or_else(|error| panic!("{cql} {json}: {error}"));
                assert_eq!(back.as_deref(), Some(&row.bytes[..]), "{cql} {json}");
            }
        }
    }
}
