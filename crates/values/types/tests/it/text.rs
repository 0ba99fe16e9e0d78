//! Literals, plain text and JSON of the golden values, and their way back.

use crate::golden::{table, unescape, unhex};
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

const LITERALS: &str = include_str!("../../testdata/literals.tsv");
const JSON: &str = include_str!("../../testdata/json.tsv");

fn check_answer(what: &str, ours: Result<Vec<u8>, String>, javas: &str, differences: &mut Vec<String>) {
    let javas = match javas.strip_prefix('!') {
        Some(text) => Err(unescape(text)),
        None => Ok(unhex(javas)),
    };
    if ours != javas {
        differences.push(format!("{what}: {ours:02x?} for {javas:02x?}"));
    }
}

#[test]
fn literals_and_their_refusals() {
    let mut differences = Vec::new();
    for line in LITERALS.lines().filter(|line| !line.starts_with('#')) {
        let [ty, text, expected] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let text = unescape(text);
        let parsed = match ty {
            "list<int>" => CqlType::list(CqlType::Int, false),
            "frozen<tuple<int, text>>" => CqlType::tuple([CqlType::Int, CqlType::Text]),
            native => CqlType::from_native_name(native).unwrap(),
        };
        // Java's own message of a number beyond 64 bits.
        if expected.contains("For input string") {
            assert!(parsed.from_string(&text).is_err());
            continue;
        }
        let ours = parsed.from_string(&text).map_err(|error| error.to_string());
        check_answer(&format!("{ty} '{text}'"), ours, expected, &mut differences);
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(CqlType::Timestamp.from_string_at("now", 5), Ok(5i64.to_be_bytes().to_vec()));
    assert!(CqlType::Timestamp.from_string("now").is_err());
}

#[test]
fn json_and_its_refusals() {
    let mut differences = Vec::new();
    for line in JSON.lines().filter(|line| !line.starts_with('#')) {
        let [class, text, expected] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let (ty, _) = CqlType::parse_class_name(class).unwrap();
        let value = json::parse(text).unwrap();
        let ours = ty.from_json(&value).map(Option::unwrap_or_default).map_err(|error| error.to_string());
        check_answer(&format!("{ty} {text}"), ours, expected, &mut differences);
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn json_syntax() {
    for bad in ["", "{", "[1,]", "{\"a\" 1}", "01", "1.", "\"\\x\"", "\"\u{1}\"", "tru", "1 2", "{a: 1}"] {
        assert!(json::parse(bad).is_err(), "{bad}");
    }
    assert!(json::parse(&"[".repeat(100_000)).is_err());
    let nested = format!("{}{}", "[".repeat(400), "]".repeat(400));
    assert!(json::parse(&nested).is_ok());
    // Half of a pair is a question mark, as Java's encoder writes it.
    for (text, read) in [
        ("\\ud800", "?"),
        ("\\ud83d\\ude00", "😀"),
        ("\\ud83d\\u0041", "?A"),
        ("\\ude00\\ud83d", "??"),
        ("\\ud83d\\n", "?\n"),
    ] {
        let value = json::parse(&format!("\"{text}\"")).unwrap();
        assert_eq!(CqlType::Text.from_json(&value).unwrap().as_deref(), Some(read.as_bytes()), "{text}");
    }
    let error = json::parse("{\"a\":\n  x}").unwrap_err().to_string();
    assert_eq!(error, "Error decoding JSON string: expected a value at line 2, column 3");
}

#[test]
fn addresses_as_java_reads_them() {
    let read = |text: &str| CqlType::Inet.from_string(text).map(|bytes| CqlType::Inet.to_text(&bytes));
    for (text, address) in [
        ("01.2.3.004", "1.2.3.4"),
        ("1.2.258", "1.2.1.2"),
        ("10.1", "10.0.0.1"),
        ("16909060", "1.2.3.4"),
        ("4294967295", "255.255.255.255"),
        ("fe80::1%1", "fe80:0:0:0:0:0:0:1"),
    ] {
        assert_eq!(read(text).unwrap(), address, "{text}");
    }
    for bad in [
        "256.1.1.1",
        "1.2.3.256",
        "1.2.65536",
        "1.2.3.4.5",
        "1..2",
        "1.2.3.",
        "4294967296",
        "+1.2.3.4",
        "fe80::1%",
        "1.2.3.4%1",
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
}
