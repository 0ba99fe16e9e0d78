//! Numbers and values: reading, refusal and storage.

use items::{Error, Item, Number, Value, json, stored};

fn number(text: &str) -> Number {
    Number::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> String {
    Number::parse(text).expect_err(text).to_string()
}

#[test]
fn numbers_are_read_and_shown() {
    for (text, shown) in [
        ("0", "0"),
        ("-0.00", "0"),
        ("0e999999999999", "0"),
        ("007", "7"),
        ("1.50", "1.5"),
        ("-12.3e1", "-123"),
        (".5", "0.5"),
        ("5.", "5"),
        ("1e3", "1000"),
        ("1E-3", "0.001"),
        ("12345678901234567890123456789012345678", "12345678901234567890123456789012345678"),
        ("0.00012345678901234567890123456789012345678", "0.00012345678901234567890123456789012345678"),
    ] {
        assert_eq!(number(text).to_string(), shown);
        assert_eq!(number(shown), number(text));
    }
    assert_eq!(number("1e125").to_string().len(), 126);
    assert_eq!(number("-9.9999999999999999999999999999999999999e125").to_string().len(), 127);
    assert_eq!(number("1e-130").to_string().len(), 132);
}

#[test]
fn numbers_out_of_bounds_are_refused_in_linear_time() {
    assert!(refused("1e126").starts_with("Number overflow"));
    assert!(refused("1e-131").starts_with("Number underflow"));
    assert!(
        refused("123456789012345678901234567890123456789").starts_with("Attempting to store more than 38")
    );
    assert!(refused(&"9".repeat(1_000_000)).starts_with("Number overflow"));
    assert!(refused(&format!("0.{}1", "0".repeat(1_000_000))).starts_with("Number underflow"));
    assert!(refused(&format!("0.1{}1", "0".repeat(1_000_000))).starts_with("Attempting to store more"));
    assert_eq!(
        number(&format!("{}7{}", "0".repeat(1_000_000), ".0".to_owned() + &"0".repeat(1000))),
        number("7")
    );
    assert!(refused(&format!("1e{}", "9".repeat(1_000_000))).starts_with("Number overflow"));
    for text in ["", "-", "+", ".", "e1", "1e", "1e+", "1.2.3", "0x10", "NaN", "1 ", "١", "--1", "1e1.5"] {
        assert!(refused(text).starts_with("The parameter cannot be converted to a numeric value"), "{text}");
    }
}

#[test]
fn sums_are_exact_or_refused() {
    let sum = |a: &str, b: &str| number(a).add(&number(b)).map(|sum| sum.to_string());
    let difference = |a: &str, b: &str| number(a).subtract(&number(b)).map(|sum| sum.to_string());
    assert_eq!(sum("0.1", "0.2").unwrap(), "0.3");
    assert_eq!(sum("1", "-1").unwrap(), "0");
    assert_eq!(difference("1", "3").unwrap(), "-2");
    assert_eq!(difference("0", "3").unwrap(), "-3");
    assert_eq!(difference("5", "0").unwrap(), "5");
    assert_eq!(sum("99999999999999999999999999999999999999", "1").unwrap(), format!("1{}", "0".repeat(38)));
    assert_eq!(sum("1e37", "1").unwrap(), "10000000000000000000000000000000000001");
    assert!(sum("1e38", "1").is_err());
    assert!(sum("1e125", "1e-130").is_err());
    assert!(sum("9.9e125", "9.9e125").is_err(), "too large");
    assert_eq!(difference("1e38", "1").unwrap(), "9".repeat(38));
}

#[test]
fn numbers_keep_order_and_bytes() {
    let sorted = [
        "-1e125",
        "-12",
        "-1.5",
        "-1e-130",
        "0",
        "1e-130",
        "0.9",
        "1",
        "1.0000001",
        "9",
        "10",
        "12",
        "1e38",
        "1e125",
    ];
    for (at, a) in sorted.iter().enumerate() {
        for (other, b) in sorted.iter().enumerate() {
            assert_eq!(number(a).cmp(&number(b)), at.cmp(&other), "{a} {b}");
        }
        assert_eq!(Number::from_decimal(&number(a).to_decimal()), Some(number(a)), "{a}");
    }
    // As Java's BigDecimal: scale, then the unscaled integer.
    for (text, bytes) in [
        ("0", &[0, 0, 0, 0, 0][..]),
        ("127", &[0, 0, 0, 0, 127]),
        ("128", &[0, 0, 0, 0, 0, 128]),
        ("-128", &[0, 0, 0, 0, 128]),
        ("-129", &[0, 0, 0, 0, 0xff, 0x7f]),
        ("10.0", &[0, 0, 0, 0, 10]),
        ("1.5", &[0, 0, 0, 1, 15]),
        ("1e40", &[0xff, 0xff, 0xff, 0xd8, 1]),
    ] {
        assert_eq!(number(text).to_decimal(), bytes, "{text}");
    }
    assert_eq!(Number::from_decimal(&[0, 0, 0, 1, 100]), Some(number("10")), "as CQL may write it");
    assert_eq!(Number::from_decimal(&[0x80, 0, 0, 0, 1]), None);
    assert_eq!(Number::from_decimal(&[0, 0, 0]), None);
}

fn read(text: &str) -> Result<Value, Error> {
    json::read_value(&serde_json::from_str(text).unwrap())
}

#[test]
fn values_come_back_from_json_and_from_storage() {
    for text in [
        r#"{"S":"a"}"#,
        r#"{"S":""}"#,
        r#"{"N":"-1.5"}"#,
        r#"{"B":"AAE="}"#,
        r#"{"BOOL":false}"#,
        r#"{"NULL":true}"#,
        r#"{"SS":["a","b"]}"#,
        r#"{"NS":["1","2"]}"#,
        r#"{"BS":["AA==","AQ=="]}"#,
        r#"{"L":[]}"#,
        r#"{"L":[{"N":"1"},{"M":{"x":{"S":"y"}}}]}"#,
        r#"{"M":{}}"#,
    ] {
        let value = read(text).unwrap();
        assert_eq!(json::value(&value).to_string(), text);
        let stored = stored::encode(&value);
        assert_eq!(stored::decode(&stored), Some(value.clone()));
        let mut shown = String::from("before ");
        assert_eq!(stored::write_json(&stored, &mut shown), Some(value.size()));
        assert_eq!(shown, format!("before {text}"));
    }
    // Within documents, numbers of many zeros are stored in about the bytes that they count for; those of before stay readable.
    for (text, inner) in [
        ("1E125", "1E125"),
        ("-1E-130", "-1E-130"),
        ("12.5", "12.5"),
        ("100000000000", "1E11"),
        ("10000000000", "10000000000"),
        ("-0.00000000123", "-123E-11"),
        ("12345678901234567890123456789012345678E80", "12345678901234567890123456789012345678E80"),
        ("1234567890123456789012345678901234567.8", "1234567890123456789012345678901234567.8"),
    ] {
        let value = Value::L(vec![Value::N(number(text)), Value::Ns([number(text)].into())]);
        let bytes = stored::encode(&value);
        let expected = format!(r#"{{"L":[{{"N":"{inner}"}},{{"NS":["{inner}"]}}]}}"#);
        assert_eq!(std::str::from_utf8(&bytes[1..]), Ok(expected.as_str()));
        assert_eq!(stored::decode(&bytes), Some(value.clone()));
        let before = [&[4], json::value(&value).to_string().as_bytes()].concat();
        assert_eq!(stored::decode(&before), Some(value.clone()));
        let mut shown = String::new();
        assert_eq!(stored::write_json(&bytes, &mut shown), Some(value.size()));
        assert_eq!(shown, json::value(&value).to_string());
    }
    for wrong in [&[][..], &[0, 0xff], &[3], &[4, b'{'], &[9], &[2]] {
        assert_eq!(stored::decode(wrong), None);
        let mut shown = String::new();
        assert_eq!((stored::write_json(wrong, &mut shown), shown.as_str()), (None, ""));
    }
}

#[test]
fn values_that_are_none_are_refused() {
    for (text, message) in [
        ("{}", "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes"),
        (
            r#"{"S":"a","N":"1"}"#,
            "Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes",
        ),
        (r#"{"SS":[]}"#, "One or more parameter values were invalid: An string set  may not be empty"),
        (
            r#"{"SS":["a","a"]}"#,
            "One or more parameter values were invalid: Input collection [a, a] contains duplicates.",
        ),
        (r#"{"NS":["1","1.0"]}"#, "Input collection contains duplicates"),
        (
            r#"{"BS":["AA==","AA=="]}"#,
            "One or more parameter values were invalid: Input collection [AA==, AA==]of type BS contains duplicates.",
        ),
        (
            r#"{"NULL":false}"#,
            "One or more parameter values were invalid: Null attribute value types must have the value of true",
        ),
        (r#"{"S":5}"#, "NUMBER_VALUE cannot be converted to String"),
        (r#"{"B":"%"}"#, "Invalid base64-encoded string"),
        (r#"{"L":5}"#, "Unexpected field type"),
    ] {
        assert_eq!(read(text).unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn nesting_has_a_limit() {
    let nested = |levels: usize| {
        let open = r#"{"L":["#.repeat(levels);
        read(&format!("{open}{{\"S\":\"x\"}}{}", "]}".repeat(levels)))
    };
    assert_eq!(nested(32).unwrap().depth(), 32);
    assert_eq!(nested(33).unwrap_err().to_string(), "Nesting Levels have exceeded supported limits");
}

#[test]
fn the_text_of_an_item_is_that_of_its_tree() {
    let item = serde_json::json!({
        "plain": { "S": "text" }, "esc\"aped\\\n\u{1}\u{7f}\u{2028}é": { "S": "\t\"\\/\u{8}\u{c}\r\u{1f}" }, "empty": { "S": "" },
        "n": { "N": "-1.5E-100" }, "large": { "N": "1E125" }, "b": { "B": "AAEC/w==" }, "t": { "BOOL": true }, "f": { "BOOL": false },
        "null": { "NULL": true }, "ss": { "SS": ["a\"", "b"] }, "ns": { "NS": ["1", "2E10"] }, "bs": { "BS": ["AA==", "AQ=="] },
        "l": { "L": [{ "L": [] }, { "M": { "j": { "S": "x" }, "k": { "NULL": true } } }, { "N": "0" }] }, "m": { "M": {} }
    });
    let item = json::read_item(&item).expect("an item");
    let mut text = String::new();
    json::write_item(&item, &mut text);
    assert_eq!(text, json::item(&item).to_string());
}

/// As many as an expression may have, of the largest item: when each took a product of both lengths, this took minutes.
#[test]
fn bytes_are_found_in_bytes_in_linear_time() {
    let item = Item::from([("b".to_owned(), Value::B(vec![0; 390_000]))]);
    let mut part = vec![0; 195_000];
    part.push(1);
    let values = serde_json::json!({ ":b": { "B": stdx::base64::encode(&part) } });
    let text = vec!["contains(b, :b)"; 100].join(" OR ");
    let given = [("ConditionExpression", true)];
    let names =
        items::Substitutions::read(None, Some(&values), &given, &["ConditionExpression"]).expect("values");
    let condition = items::Condition::parse(&text, "ConditionExpression", &names).expect("a condition");
    let begun = std::time::Instant::now();
    assert!(!condition.holds(&item));
    assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{:?}", begun.elapsed());
}

/// As AWS counts them.
#[test]
fn numbers_have_the_sizes_that_items_count() {
    for (text, size) in [
        ("0", 1),
        ("-0", 1),
        ("1", 2),
        ("12", 2),
        ("123", 3),
        ("1234", 3),
        ("12345678901234567890123456789012345678", 20),
        ("100", 2),
        ("1010", 3),
        ("0.0000001", 2),
        ("1E125", 2),
        ("1E-100", 2),
        ("15", 2),
        ("1.5", 3),
        ("1.234", 4),
        ("3.14159", 5),
        ("123456", 4),
        ("100.5", 4),
        ("0.15", 2),
        ("-42", 3),
    ] {
        assert_eq!(number(text).size(), size, "{text}");
    }
}
