//! Class names, order and byte-comparable form of random values, as Cassandra has them (see `testdata/README.md`).

use std::cmp::Ordering;
use types::{CqlType, Terminator, decode_clustering, encode_clustering};

pub const VALUES: &str = include_str!("../../testdata/values.tsv");
const CLUSTERINGS: &str = include_str!("../../testdata/clusterings.tsv");

/// One value of the table.
pub struct Row {
    pub rank: u32,
    pub bytes: Vec<u8>,
    pub comparable: Option<Vec<u8>>,
    pub literal: String,
    pub json: String,
    pub string: String,
}

pub fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "odd hex {text}");
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// Undoes the escapes of the table's generator.
pub fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next().unwrap() {
            'u' => {
                let code: String = chars.by_ref().take(4).collect();
                out.push(char::from_u32(u32::from_str_radix(&code, 16).unwrap()).unwrap());
            }
            other => out.push(other),
        }
    }
    out
}

/// The types of the table with their class, CQL name and values in ascending order.
pub fn table() -> Vec<(CqlType, &'static str, &'static str, Vec<Row>)> {
    let mut types = Vec::new();
    for line in VALUES.lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('\t').collect();
        if columns[0] == "type" {
            let (ty, reversed) = CqlType::parse_class_name(columns[1]).unwrap();
            assert!(!reversed);
            types.push((ty, columns[1], columns[2], Vec::new()));
            continue;
        }
        let row = Row {
            rank: columns[0].parse().unwrap(),
            bytes: unhex(columns[1]),
            comparable: (columns[2] != "-").then(|| unhex(columns[2])),
            literal: unescape(columns[3]),
            json: unescape(columns[4]),
            string: unescape(columns[5]),
        };
        types.last_mut().unwrap().3.push(row);
    }
    assert!(types.len() > 30);
    types
}

#[test]
fn class_and_cql_names() {
    for (ty, class, cql, _) in table() {
        assert_eq!(ty.class_name(false), class);
        assert_eq!(ty.cql_name(), cql);
        let reversed = ty.class_name(true);
        assert_eq!(reversed, format!("org.apache.cassandra.db.marshal.ReversedType({class})"));
        assert_eq!(CqlType::parse_class_name(&reversed), Ok((ty, true)));
    }
}

#[test]
fn order() {
    for (ty, _, cql, rows) in table() {
        for a in &rows {
            ty.validate(&a.bytes).unwrap_or_else(|error| panic!("{cql} {:02x?}: {error}", a.bytes));
            for b in &rows {
                let order = ty.compare(&a.bytes, &b.bytes);
                assert_eq!(order, a.rank.cmp(&b.rank), "{cql} {} {}", a.literal, b.literal);
            }
        }
    }
}

#[test]
fn byte_comparable_values() {
    for (ty, _, cql, rows) in table() {
        for row in &rows {
            let mut out = Vec::new();
            let written = ty.encode_ordered(&row.bytes, false, &mut out);
            assert_eq!(written.then_some(out), row.comparable, "{cql} {:02x?}", row.bytes);
            for reversed in [false, true] {
                let mut component = Vec::new();
                ty.encode_ordered_component(Some(&row.bytes), reversed, &mut component);
                let len = component.len();
                component.push(0x38);
                let (decoded, taken) = ty.decode_ordered_component(&component, reversed).unwrap();
                let decoded = decoded.unwrap();
                assert_eq!(taken, len);
                ty.validate(&decoded).unwrap();
                let mut again = Vec::new();
                ty.encode_ordered_component(Some(&decoded), reversed, &mut again);
                assert_eq!(again, component[..len], "{cql} {}", row.literal);
                // Tuples and user types lose nulls at their end, and null and empty fall together inside them.
                let inexact = ty.any(&mut |ty| ty.is_tuple() || ty.is_udt());
                if !inexact {
                    assert_eq!(ty.compare(&decoded, &row.bytes), Ordering::Equal, "{cql} {}", row.literal);
                }
            }
        }
    }
}

#[test]
fn byte_comparable_clusterings() {
    let mut lines = 0;
    for line in CLUSTERINGS.lines().filter(|line| !line.starts_with('#')) {
        let [classes, kind, components, expected] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let types: Vec<_> =
            classes.split(';').map(|class| CqlType::parse_class_name(class).unwrap()).collect();
        let values: Vec<Option<Vec<u8>>> = if components.is_empty() && kind != "clustering" {
            Vec::new()
        } else {
            components.split(';').map(|value| (value != "-").then(|| unhex(value))).collect()
        };
        let terminator = match kind {
            "clustering" => Terminator::Clustering,
            "incl_start" | "excl_end" => Terminator::Before,
            "excl_start" | "incl_end" => Terminator::After,
            other => panic!("unknown kind {other}"),
        };
        let expected = unhex(expected);
        let borrowed: Vec<_> = values.iter().map(Option::as_deref).collect();
        // A bound of one empty component and a bound of none look the same in the table.
        if components.is_empty() && expected.len() > 1 && values.is_empty() {
            assert_eq!(encode_clustering(&types, &[Some(b"")], terminator), expected, "{line}");
            continue;
        }
        let encoded = encode_clustering(&types, &borrowed, terminator);
        assert_eq!(encoded, expected, "{line}");
        let (decoded, end) = decode_clustering(&types, &encoded).unwrap();
        assert_eq!(end, terminator);
        let decoded: Vec<_> = decoded.iter().map(Option::as_deref).collect();
        assert_eq!(encode_clustering(&types, &decoded, end), encoded, "{line}");
        lines += 1;
    }
    assert!(lines > 300);
}

const VALIDATION: &str = include_str!("../../testdata/validation.tsv");

#[test]
fn validation_and_its_messages() {
    let mut differences = Vec::new();
    for line in VALIDATION.lines().filter(|line| !line.starts_with('#')) {
        let [class, bytes, expected] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let (ty, _) = CqlType::parse_class_name(class).unwrap();
        let ours = ty.validate(&unhex(bytes));
        let same = match (&ours, expected.strip_prefix("MarshalException: ")) {
            (Err(error), Some(text)) => error.to_string() == unescape(text),
            // Where Cassandra stumbles, a refusal of our own is right.
            (Err(_), None) => expected != "ok",
            (Ok(()), _) => expected == "ok",
        };
        // Stricter on purpose: a decimal without digits, a negative count, text that is no UTF-8. And a count that the
        // bytes cannot hold is refused before the elements are looked at.
        let stricter = ours.as_ref().is_err_and(|error| {
            let text = error.to_string();
            text.starts_with("Expected 0 or at least 5 bytes")
                || text.starts_with("The data cannot be deserialized")
                || text == "String didn't validate."
                || text.starts_with("Not enough bytes to read a ") && expected.ends_with("when not allowed")
        });
        if !same && !stricter {
            differences.push(format!("{ty} {bytes}: {ours:?} for {expected}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
