//! The terms of texts, by analyzer.

use std::collections::BTreeMap;

use text::{Analyzer, Folding, GRAM_LEN, IndexText, SASI_CLASS, TERMS_MAX, grams_of};

fn terms(analyzer: &Analyzer, text: &str) -> Vec<String> {
    let terms = analyzer.terms_of(text.as_bytes());
    terms.into_iter().map(|term| String::from_utf8(term).expect("a term of a text is a text")).collect()
}

fn sasi(options: &[(&str, &str)]) -> Analyzer {
    let options: BTreeMap<String, String> =
        options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    IndexText::of_index(Some(SASI_CLASS), &options, true).expect("it analyzes").index
}

#[test]
fn built_in_analyzers() {
    let text = "The Quick-Brown foxes jumped over O'Neil's 2.5 dogs";
    for (name, expected) in [
        ("standard", "the|quick|brown|foxes|jumped|over|o'neil's|2.5|dogs"),
        ("Simple", "the|quick|brown|foxes|jumped|over|o|neil|s|dogs"),
        ("whitespace", "The|Quick-Brown|foxes|jumped|over|O'Neil's|2.5|dogs"),
        ("stop", "quick|brown|foxes|jumped|over|o|neil|s|dogs"),
        ("lowercase", "the quick-brown foxes jumped over o'neil's 2.5 dogs"),
        ("keyword", "The Quick-Brown foxes jumped over O'Neil's 2.5 dogs"),
        ("english", "quick|brown|fox|jump|over|o'neil|2.5|dog"),
    ] {
        let analyzer = Analyzer::parse(name).expect("it is built in");
        assert_eq!(terms(&analyzer, text).join("|"), expected, "{name}");
    }
    let german = Analyzer::parse("german").expect("it is built in");
    assert_eq!(terms(&german, "Die Häuser und der Hund"), ["haus", "hund"]);
    for name in [
        "arabic",
        "danish",
        "dutch",
        "finnish",
        "french",
        "hungarian",
        "italian",
        "norwegian",
        "portuguese",
        "romanian",
        "russian",
        "spanish",
        "swedish",
        "tamil",
        "turkish",
    ] {
        let analyzer = Analyzer::parse(name).expect("it is built in");
        assert!(analyzer.describe().contains("Stop("), "{name} has stop words");
    }
    let standard = Analyzer::parse("standard").expect("it is built in");
    assert_eq!(terms(&standard, "東京 café — naïve"), ["東", "京", "café", "naïve"]);
    assert_eq!(terms(&standard, " … "), [] as [&str; 0]);
}

#[test]
fn analyzers_of_json() {
    for (json, text, expected) in [
        (
            r#"{"tokenizer": {"name": "standard"}, "filters": [{"name": "porterstem"}]}"#,
            "running shoes",
            "run|shoe",
        ),
        (
            r#"{"tokenizer": {"name": "whitespace", "args": {}}, "filters": [{"name": "lowercase"}, {"name": "asciifolding"}], "charFilters": []}"#,
            "ÉTÉ été",
            "ete|ete",
        ),
        (
            r#"{"tokenizer": {"name": "NGRAM", "args": {"minGramSize": "2", "maxGramSize": 3}}}"#,
            "abc",
            "ab|abc|bc",
        ),
        (
            r#"{"tokenizer": {"name": "edgengram", "args": {"minGramSize": "1", "maxGramSize": "2"}}}"#,
            "é€x",
            "é|é€",
        ),
        (
            r#"{"tokenizer": {"name": "letter"}, "filters": [{"name": "stop", "args": {"words": "a, B"}}, {"name": "length", "args": {"min": "2"}}, {"name": "uppercase"}]}"#,
            "a b c de",
            "DE",
        ),
        (
            r#"{"tokenizer": {"name": "keyword"}, "filters": [{"name": "trim"}, {"name": "edgengram", "args": {"minGramSize": "2", "maxGramSize": "3"}}]}"#,
            " abcd ",
            "ab|abc",
        ),
        (
            r#"{"tokenizer": {"name": "standard"}, "filters": [{"name": "snowballPorter", "args": {"language": "French"}}]}"#,
            "continuellement",
            "continuel",
        ),
    ] {
        let analyzer = Analyzer::parse(json).unwrap_or_else(|error| panic!("{json}: {error}"));
        assert_eq!(terms(&analyzer, text).join("|"), expected, "{json}");
    }
}

#[test]
fn analyzers_of_sasi() {
    let class = |name: &'static str| ("analyzer_class", name);
    for (options, text, expected) in [
        (&[class("a.NonTokenizingAnalyzer"), ("case_sensitive", "false")][..], "Aé B", "aé b"),
        (&[class("a.NonTokenizingAnalyzer"), ("normalize_uppercase", "true")], "Aé B", "AÉ B"),
        (&[class("a.NonTokenizingAnalyzer")], "A\u{308}", "Ä"),
        (&[class("a.DelimiterAnalyzer"), ("delimiter", "░")], "░a=1░b░", "a=1|b"),
        (&[class("a.DelimiterAnalyzer")], "a,b", "a|b"),
        (&[("analyzed", "true")], "The Dogs ran", "The|Dogs|ran"),
        (
            &[
                class("a.StandardAnalyzer"),
                ("tokenization_locale", "en_US"),
                ("tokenization_skip_stop_words", "true"),
                ("tokenization_enable_stemming", "true"),
                ("tokenization_normalize_lowercase", "true"),
            ],
            "The Dogs ran",
            "dog|ran",
        ),
    ] {
        assert_eq!(terms(&sasi(options), text).join("|"), expected, "{options:?}");
    }
    let none = BTreeMap::from([("analyzed".to_owned(), "false".to_owned())]);
    assert_eq!(IndexText::of_index(Some(SASI_CLASS), &none, true), None);
}

/// An index with grams finds each text by each part of it.
#[test]
fn grams_find_the_parts_of_a_text() {
    let analyzer = sasi(&[("mode", "CONTAINS")]);
    let text = "añb ab€abc";
    let mut indexed = Vec::new();
    analyzer.indexed(text.as_bytes(), |term| indexed.push(String::from_utf8(term.to_vec()).expect("a text")));
    assert!(indexed.contains(&text.to_owned()), "{indexed:?}");
    let characters: Vec<char> = text.chars().collect();
    for start in 0..characters.len() {
        for end in start + 1..=characters.len() {
            let part: String = characters[start..end].iter().collect();
            match grams_of(&part).expect("it is not empty") {
                Ok(grams) => {
                    assert!(end - start >= GRAM_LEN && grams.len() <= 4, "{part}");
                    assert!(grams.iter().all(|gram| indexed.contains(gram)), "{part}: {grams:?}");
                }
                Err(prefix) => assert!(indexed.iter().any(|term| term.starts_with(&prefix)), "{part}"),
            }
        }
    }
    assert_eq!(grams_of(""), None);
    assert!(!indexed.contains(&grams_of("zzz").unwrap().unwrap()[0]));
}

/// Time and terms of a text have limits, and so have the terms whose parts are found.
#[test]
fn long_texts() {
    let standard = Analyzer::parse("standard").expect("it is built in");
    let long = "a ".repeat(10 << 20);
    assert_eq!(standard.terms_of(long.as_bytes()).len(), TERMS_MAX);
    let grams = r#"{"tokenizer": {"name": "ngram", "args": {"minGramSize": 1, "maxGramSize": 32}}, "filters": [{"name": "ngram", "args": {"maxGramSize": 32}}]}"#;
    let grams = Analyzer::parse(grams).expect("it is one");
    assert_eq!(grams.terms_of(long.as_bytes()).len(), TERMS_MAX);
    let word = "x".repeat(1000);
    let lengths: Vec<usize> = terms(&standard, &word).iter().map(String::len).collect();
    assert_eq!(lengths, [255, 255, 255, 235]);
    let analyzer = sasi(&[("mode", "CONTAINS")]);
    let count = |len: usize| {
        let mut count = 0;
        analyzer.indexed("x".repeat(len).as_bytes(), |_| count += 1);
        count
    };
    // Its only parts are of one to three characters, each once.
    assert_eq!((count(1024), count(1025)), (4, 0));
    assert_eq!(standard.terms_of(b"\xff"), [b"\xff".to_vec()]);
}

/// An index is made again when its description changes.
#[test]
fn descriptions() {
    let describe = |options: &[(&str, &str)]| {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Analyzer::describe(&IndexText::of_index(None, &options.collect(), true).expect("it analyzes").index)
    };
    // As the versions before wrote it.
    assert_eq!(
        describe(&[("case_sensitive", "false"), ("ascii", "true")]),
        "|Analysis { folds_case: true, normalizes: false, folds_to_ascii: true }"
    );
    assert_eq!(sasi(&[("analyzer_class", "a.DelimiterAnalyzer")]).describe(), "|by ','");
    assert_ne!(describe(&[("index_analyzer", "english")]), describe(&[("index_analyzer", "german")]));
    assert_ne!(describe(&[("index_analyzer", "stop")]), describe(&[("index_analyzer", "simple")]));
    let options = BTreeMap::from([("ascii".to_owned(), "true".to_owned())]);
    assert!(Folding::of(&options).is_some());
}

/// No word ends the process, in whichever language: the stemmers are not ours.
#[test]
fn stemmers_take_any_word() {
    let languages = [
        ("arabic", "ابتثجحخدذرزسشصضطظعغفقكلمنهويةىءآأؤإئ"),
        ("danish", "abdeghiklmnorstuvyæøå"),
        ("dutch", "abdeghijklmnorstuvyëïéèäö"),
        ("english", "abcdeghiklmnoprstuvwxyz'"),
        ("finnish", "aeghijklmnorstuvyäö"),
        ("french", "abcdeghilmnoqrstuvyzéèêëàâîïôûç"),
        ("german", "abcdefghiklmnorstuvzäöüß"),
        ("hungarian", "abdefgijklmnoprstuvzáéíóöőúüű"),
        ("italian", "abcdeghilmnoqrstuvzàèéìòù"),
        ("norwegian", "adefghiklmnorstuvyæøå"),
        ("portuguese", "abcdeghilmnoqrstuvzáâãàçéêíóôõú"),
        ("romanian", "abcdeghilmnoprstuvzăâîşţ"),
        ("russian", "абвгдежзийклмнопрстуфхцчшщъыьэюяё"),
        ("spanish", "abcdeghijlmnoqrstuvyzáéíóúñü"),
        ("swedish", "abdefghiklmnorstuvyäöå"),
        ("tamil", "அஆஇஈஉஊஎஏஐஒஓஔகஙசஞடணதநபமயரலவழளறனாிீுூெேைொோௌ்"),
        ("turkish", "abcçdefgğhıijklmnoöprsştuüvyz"),
    ];
    let mut state = 11_u64;
    let mut below = |end: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % end
    };
    for (name, alphabet) in languages {
        let json = format!(
            r#"{{"tokenizer": {{"name": "keyword"}}, "filters": [{{"name": "snowballporter", "args": {{"language": "{name}"}}}}]}}"#
        );
        let analyzer = Analyzer::parse(&json).expect("a stemmer");
        let letters: Vec<char> = alphabet.chars().collect();
        for _ in 0..20_000 {
            let word: String = (0..1 + below(14)).map(|_| letters[below(letters.len())]).collect();
            assert!(terms(&analyzer, &word).len() <= 1, "{name}: {word}");
        }
    }
    assert!(Analyzer::parse("greek").is_err());
}

/// N-grams that a later filter drops take time, too.
#[test]
fn filters_that_drop_their_words_end() {
    let gram = r#"{"name": "ngram", "args": {"minGramSize": "1", "maxGramSize": "32"}}"#;
    let json = |filters: &str| {
        format!(
            r#"{{"tokenizer": {{"name": "ngram", "args": {{"minGramSize": "1", "maxGramSize": "32"}}}}, "filters": [{filters}]}}"#
        )
    };
    let length = r#"{"name": "length", "args": {"min": "33"}}"#;
    let analyzer = Analyzer::parse(&json(&format!("{gram}, {length}"))).expect("one filter of n-grams");
    assert_eq!(terms(&analyzer, &"x".repeat(1 << 20)), [] as [&str; 0]);
    let error = Analyzer::parse(&json(&format!("{gram}, {gram}"))).unwrap_err().to_string();
    assert!(error.contains("more than one filter of n-grams"), "{error}");
}

/// A capital sigma folds alike at each place of a word, so that the beginning of a word begins its terms.
#[test]
fn words_fold_as_their_parts_do() {
    let standard = Analyzer::parse("standard").expect("it is built in");
    assert_eq!(terms(&standard, "ΟΔΥΣΣΕΑΣ"), ["οδυσσεασ"]);
    assert_eq!(standard.fold_word("ΟΔΥΣ"), "οδυσ");
}
