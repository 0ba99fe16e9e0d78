//! Options of indexes: which are taken, which are refused and in which words.

use std::collections::BTreeMap;

use text::{Analyzer, AnalyzerError, IndexText, Sasi, SasiMode};

fn options(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

const CLASS: &str = "org.apache.cassandra.index.sasi.analyzer.";

fn sasi(class: &str, rest: &[(&str, &str)]) -> Result<Sasi, AnalyzerError> {
    let mut all = options(rest);
    if !class.is_empty() {
        all.insert("analyzer_class".to_owned(), format!("{CLASS}{class}"));
    }
    Sasi::of(&all, true, "text")
}

#[test]
fn modes_of_sasi() {
    let mode =
        |text: &str, is_text| Sasi::of(&options(&[("mode", text)]), is_text, "int").map(|sasi| sasi.mode);
    assert_eq!(mode("contains", true), Ok(SasiMode::Contains));
    assert_eq!(mode("SPARSE", false), Ok(SasiMode::Sparse));
    assert_eq!(mode("PREFIX", false), Ok(SasiMode::Prefix));
    let invalid = |text: &str| AnalyzerError::Invalid(text.to_owned());
    assert_eq!(mode("SPARSE", true), Err(invalid("SPARSE mode is only supported on non-literal columns.")));
    assert_eq!(mode("x", true), Err(invalid("Incorrect index mode: x")));
    let sparse = Sasi::of(&options(&[("mode", "SPARSE"), ("analyzed", "true")]), false, "int");
    assert_eq!(sparse, Err(invalid("SPARSE mode doesn't support analyzers.")));
}

#[test]
fn analyzers_of_sasi_are_refused_by_name() {
    let invalid = |text: &str| Err::<Sasi, _>(AnalyzerError::Invalid(text.to_owned()));
    assert_eq!(
        sasi("NonTokenizingAnalyzer", &[("case_sensitive", "false"), ("normalize_lowercase", "true")]),
        invalid(
            "case_sensitive option cannot be specified together with either normalize_lowercase or normalize_uppercase"
        )
    );
    let both = "Options to normalize terms cannot be both uppercase and lowercase at the same time";
    let cases = [("tokenization_normalize_lowercase", "true"), ("tokenization_normalize_uppercase", "true")];
    assert_eq!(sasi("StandardAnalyzer", &cases), invalid(both));
    assert_eq!(sasi("X", &[]), invalid(&format!("Invalid analyzer class option specified [{CLASS}X]")));
    assert_eq!(
        sasi("DelimiterAnalyzer", &[("delimiter", "ab")]),
        invalid("Only single character delimiters supported, was ab")
    );
    let class = format!("{CLASS}StandardAnalyzer");
    let on_number = Sasi::of(&options(&[("analyzer_class", &class)]), false, "int");
    assert_eq!(on_number, invalid("StandardAnalyzer does not support type int"));
    for (name, value) in [("is_literal", "false"), ("max_compaction_flush_memory_in_mb", "1"), ("x", "1")] {
        let refused = sasi("", &[(name, value)]).unwrap_err().to_string();
        assert_eq!(refused, format!("The option '{name}' of a SASI index is not supported"));
    }
    let locale = [("tokenization_locale", "ja"), ("tokenization_enable_stemming", "true")];
    let refused = sasi("StandardAnalyzer", &locale).unwrap_err().to_string();
    assert_eq!(refused, "A stemmer of the locale 'ja' is not supported");
}

#[test]
fn options_of_sasi_without_effect_are_named() {
    let idle = |class: &str, rest: &[(&str, &str)]| sasi(class, rest).expect("it is taken").idle;
    let stem = ("tokenization_enable_stemming", "true");
    assert_eq!(idle("NonTokenizingAnalyzer", &[stem]), ["tokenization_enable_stemming"]);
    assert_eq!(idle("StandardAnalyzer", &[stem]), ["tokenization_enable_stemming"]);
    assert_eq!(idle("StandardAnalyzer", &[stem, ("tokenization_locale", "en")]), [] as [&str; 0]);
    assert_eq!(idle("StandardAnalyzer", &[("tokenization_locale", "en")]), ["tokenization_locale"]);
    assert_eq!(idle("NonTokenizingAnalyzer", &[("case_sensitive", "false")]), [] as [&str; 0]);
    let not = [("analyzed", "false"), ("case_sensitive", "false")];
    assert_eq!(idle("NonTokenizingAnalyzer", &not), ["case_sensitive"]);
    assert_eq!(idle("", &[("delimiter", ";")]), ["delimiter"]);
}

#[test]
fn analyzers_of_sai() {
    let of = |all: &[(&str, &str)]| IndexText::of_sai(&options(all));
    assert_eq!(of(&[]), Ok(None));
    assert_eq!(of(&[("case_sensitive", "true")]), Ok(None));
    let refused = of(&[("query_analyzer", "standard")]).unwrap_err().to_string();
    assert_eq!(refused, "query_analyzer needs index_analyzer");
    let refused = of(&[("index_analyzer", "standard"), ("ascii", "true")]).unwrap_err().to_string();
    assert_eq!(refused, "index_analyzer does not go with case_sensitive, normalize and ascii");
    let two = of(&[("index_analyzer", "standard"), ("query_analyzer", "WHITESPACE")]).unwrap().unwrap();
    assert_ne!(two.index, two.query);
}

/// Each refusal names the invalid option.
#[test]
fn definitions_that_are_no_analyzers() {
    for (text, expected) in [
        ("", "The analyzer '' is not supported"),
        ("nothing", "The analyzer 'nothing' is not supported"),
        ("{", "The analyzer is not valid JSON: EOF while parsing an object at line 1 column 1"),
        ("[]", "The analyzer is not a JSON object"),
        ("{}", "An analyzer needs a tokenizer"),
        (r#"{"tokenizer": 1}"#, "A tokenizer is not a JSON object"),
        (r#"{"tokenizer": {}}"#, "A tokenizer needs a name"),
        (r#"{"tokenizer": {"name": "japanese"}}"#, "The tokenizer 'japanese' is not supported"),
        (r#"{"tokenizer": {"name": "standard", "x": 1}}"#, "Unexpected field 'x' of a tokenizer"),
        (
            r#"{"tokenizer": {"name": "standard", "args": {"maxTokenLength": "3"}}}"#,
            "The argument 'maxTokenLength' of the tokenizer 'standard' is not supported",
        ),
        (r#"{"tokenizer": {"name": "standard"}, "y": 1}"#, "Unexpected field 'y' of an analyzer"),
        (
            r#"{"tokenizer": {"name": "standard"}, "charFilters": [{"name": "htmlstrip"}]}"#,
            "A filter of characters of an analyzer is not supported",
        ),
        (
            r#"{"tokenizer": {"name": "standard"}, "filters": [{"name": "synonym"}]}"#,
            "The filter 'synonym' of an analyzer is not supported",
        ),
        (
            r#"{"tokenizer": {"name": "standard"}, "filters": [{"name": "snowballporter", "args": {"language": "Elvish"}}]}"#,
            "A stemmer of the language 'Elvish' is not supported",
        ),
        (
            r#"{"tokenizer": {"name": "ngram", "args": {"minGramSize": "4", "maxGramSize": "3"}}}"#,
            "minGramSize of the tokenizer 'ngram' is greater than maxGramSize",
        ),
        (
            r#"{"tokenizer": {"name": "ngram", "args": {"maxGramSize": 1000000}}}"#,
            "The argument 'maxGramSize' of the tokenizer 'ngram' must be a number from 1 to 32",
        ),
    ] {
        assert_eq!(Analyzer::parse(text).unwrap_err().to_string(), expected, "{text}");
    }
    let filters = vec![r#"{"name": "trim"}"#; 17].join(",");
    let many = format!(r#"{{"tokenizer": {{"name": "keyword"}}, "filters": [{filters}]}}"#);
    let refused = Analyzer::parse(&many).unwrap_err().to_string();
    assert_eq!(refused, "An analyzer has 17 filters: at most 16 are allowed");
    // Deep nesting is an error and no overflow of the stack.
    let deep = format!("{{\"tokenizer\": {}", "[".repeat(100_000));
    assert!(Analyzer::parse(&deep).is_err());
}
