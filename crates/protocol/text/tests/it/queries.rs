//! Queries of full text: which texts they find, and in which order.

use std::collections::BTreeMap;

use text::{Document, FullText, QUERY_LEN_MAX, Statistics, TextQuery};

const TEXTS: [&str; 7] = [
    "the quick brown fox jumps over the lazy dog",
    "quick quick quick",
    "a brown dog and a brown cat",
    "the dog is quick, the fox is lazy and brown",
    "quack",
    "foxes run",
    "",
];

fn index(analyzer: &str, positions: bool) -> FullText {
    let options = [("analyzer", analyzer.to_owned()), ("positions", positions.to_string())];
    FullText::of(&options.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
        .expect("options")
}

fn parse(text: &str, fulltext: &FullText) -> Result<TextQuery, String> {
    TextQuery::parse(text, &fulltext.analyzer, fulltext.has_positions).map_err(|error| error.to_string())
}

/// The texts that a query finds, the most relevant first.
fn ranked(text: &str, analyzer: &str) -> Vec<(usize, f32)> {
    let fulltext = index(analyzer, true);
    let query = parse(text, &fulltext).unwrap_or_else(|error| panic!("{text}: {error}"));
    let documents: Vec<Document> = TEXTS
        .iter()
        .map(|text| Document::new(&query, &fulltext.analyzer, text.as_bytes()).expect("a text"))
        .collect();
    let mut statistics = Statistics { with_leaf: vec![0; query.leaves().len()], ..Statistics::default() };
    for document in &documents {
        let with_leaf = document.hits.iter().map(|hit| u64::from(hit.count > 0)).collect();
        statistics.add(&Statistics { texts: 1, terms: u64::from(document.terms), with_leaf });
    }
    let mut found: Vec<(usize, f32)> = documents
        .iter()
        .enumerate()
        .filter_map(|(at, document)| Some((at, query.score(document, &statistics)?)))
        .collect();
    assert!(found.iter().all(|(_, score)| *score > 0.0), "{text}: {found:?}");
    let drivers = query.driving_leaves(&statistics.with_leaf);
    for (at, _) in &found {
        assert!(
            drivers.iter().any(|leaf| documents[*at].hits[*leaf].count > 0),
            "{text}: {at} has none of {drivers:?}"
        );
    }
    found.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    found
}

fn found(text: &str, analyzer: &str) -> Vec<usize> {
    let mut all: Vec<usize> = ranked(text, analyzer).into_iter().map(|(at, _)| at).collect();
    all.sort_unstable();
    all
}

#[test]
fn queries_find_texts() {
    for (query, expected) in [
        ("quick", &[0, 1, 3][..]),
        ("QUICK cat", &[0, 1, 2, 3]),
        ("quick OR cat", &[0, 1, 2, 3]),
        ("quick AND dog", &[0, 3]),
        ("+quick +dog", &[0, 3]),
        ("quick AND dog AND jumps", &[0]),
        ("quick -dog", &[1]),
        ("quick NOT dog", &[1]),
        ("quick AND NOT (jumps OR lazy)", &[1]),
        ("(quick OR cat) AND brown", &[0, 2, 3]),
        ("+brown quick", &[0, 2, 3]),
        ("\"brown fox\"", &[0]),
        ("\"fox brown\"", &[0; 0]),
        ("\"quick dog\"", &[]),
        ("\"quick fox\"~1", &[0, 3]),
        ("\"quick jumps\"~1", &[]),
        ("\"quick jumps\"~2", &[0]),
        ("\"quick quick\"", &[1]),
        ("qui*", &[0, 1, 3]),
        ("qu*", &[0, 1, 3, 4]),
        ("Fox*", &[0, 3, 5]),
        ("quikc~1", &[0, 1, 3]),
        ("quick~", &[0, 1, 3, 4]),
        ("wuick~", &[]),
        ("lazy,dog", &[0]),
        ("quick\\-dog", &[]),
        ("jumps^2 cat", &[0, 2]),
        ("and", &[2, 3]),
        ("nothing", &[]),
        ("", &[]),
        ("...", &[]),
        ("AND", &[2, 3]),
    ] {
        assert_eq!(found(query, "standard"), expected, "{query}");
    }
    for (query, expected) in [
        ("fox", &[0, 3, 5][..]),
        ("the", &[]),
        ("running foxes", &[0, 3, 5]),
        ("\"lazy dogs\"", &[0]),
        ("the AND dog", &[0, 2, 3]),
        ("+the +dog", &[0, 2, 3]),
        ("(the) AND dog -the", &[0, 2, 3]),
        ("the -dog", &[]),
    ] {
        assert_eq!(found(query, "english"), expected, "{query}");
    }
}

#[test]
fn the_most_relevant_texts_come_first() {
    let order = |text: &str| ranked(text, "standard").into_iter().map(|(at, _)| at).collect::<Vec<_>>();
    // More often in a shorter text.
    assert_eq!(order("quick")[0], 1);
    assert_eq!(order("brown")[0], 2);
    // A rarer word counts more.
    assert_eq!(order("quick jumps")[0], 0);
    // A weight.
    assert_eq!(order("cat^0.01 jumps")[0], 0);
    assert_eq!(order("cat^50 jumps")[0], 2);
    // BM25 by hand: 7 texts with 31 terms, three of them with the word, once in one of nine terms.
    let score = ranked("quick", "standard").into_iter().find(|(at, _)| *at == 0).expect("it is found").1;
    let terms: usize = [9, 3, 7, 10, 1, 2, 0].iter().sum();
    let (rarity, mean) = ((1.0 + 4.5 / 3.5_f64).ln(), terms as f64 / 7.0);
    let expected = rarity * 2.2 / (1.0 + 1.2 * (0.25 + 0.75 * 9.0 / mean));
    assert!((f64::from(score) - expected).abs() < 1e-5, "{score} is not {expected}");
}

#[test]
fn queries_that_are_none() {
    let standard = index("standard", true);
    for (text, expected) in [
        ("-dog", "A query of full text looks for nothing: it has only words that a text must not have"),
        ("(a", "A query of full text has a '(' without a ')'"),
        ("a)", "A query of full text has a ')' without a '('"),
        ("\"a b", "A phrase of a query of full text has no end"),
        ("a~9", "The edits of a word in a query of full text are at most 2"),
        ("\"a b\"~1000", "The gaps of a phrase in a query of full text are at most 100"),
        ("a^", "A weight in a query of full text is a number from 0.001 to 1000"),
        ("a^1001", "A weight in a query of full text is a number from 0.001 to 1000"),
        ("*", "Unexpected '*' in a query of full text"),
        ("a AND ", "A query of full text ends where a word is expected"),
    ] {
        let error = parse(text, &standard).map(|query| format!("{query:?}"));
        assert_eq!(error, Err(expected.to_owned()), "{text}");
    }
    let without = index("standard", false);
    assert!(parse("\"a b\"", &without).unwrap_err().contains("positions"));
    assert!(parse("\"a\" b", &without).is_ok());
    let many: String = (0..65).map(|n| format!("w{n} ")).collect();
    assert_eq!(parse(&many, &standard).unwrap_err(), "A query of full text has more than 64 different words");
    let again = format!("\"{}\"", "a ".repeat(513));
    assert_eq!(parse(&again, &standard).unwrap_err(), "A query of full text has more than 512 words");
    let prefixes: String = (0..9).map(|n| format!("w{n}* ")).collect();
    assert_eq!(
        parse(&prefixes, &standard).unwrap_err(),
        "A query of full text has more than 8 prefixes and fuzzy words"
    );
    let deep = "(".repeat(10_000);
    assert_eq!(
        parse(&deep, &standard).unwrap_err(),
        "A query of full text has more than 32 groups in each other"
    );
    let long = "a".repeat(QUERY_LEN_MAX + 1);
    assert!(parse(&long, &standard).unwrap_err().contains("at most 16384"));
}

/// The costliest queries of the longest texts.
#[test]
fn long_phrases_and_fuzzy_words_take_little_time() {
    let standard = index("standard", true);
    let text = "a ".repeat(65_536);
    let words = format!("{}~ ", "b".repeat(250)).repeat(65_536 / 250);
    let fuzzy: String = (0..8).map(|n| format!("{}{n}~ ", "b".repeat(250))).collect();
    for (query, text, is_found) in [
        (format!("\"{}\"", "a ".repeat(512)), &text, true),
        (fuzzy, &words, true),
        ("a^1000".to_owned(), &text, true),
    ] {
        let query = parse(&query, &standard).expect("a query");
        let document = Document::new(&query, &standard.analyzer, text.as_bytes()).expect("a text");
        assert_eq!(query.score(&document, &Statistics::default()).is_some(), is_found);
    }
    let nested =
        |word: &str, weight: &str| format!("{}{word}{}", "(".repeat(14), format!(")^{weight}").repeat(14));
    let groups = |word: &str| format!("({} b)", nested(word, "1000"));
    for heavy in
        [nested("a", "1000"), nested("a", "0.001"), groups("a"), nested(&nested("a", "0.001"), "1000")]
    {
        let query = parse(&heavy, &standard).expect("a query");
        let document = Document::new(&query, &standard.analyzer, b"a").expect("a text");
        let score = query.score(&document, &Statistics::default()).expect("it is found");
        assert!(score.is_finite() && score > 0.0, "{heavy}: {score}");
    }
}

/// Distances by the whole matrix.
#[test]
fn words_within_a_distance() {
    for (query, word, is_found) in [
        ("abcd~1", "abdc", true),
        ("abcd~1", "acbde", false),
        ("abcd~2", "acbde", true),
        ("abcd~2", "abcdef", true),
        ("abcd~2", "ab", true),
        ("abcd~2", "a", false),
        ("abcd~1", "abxcd", true),
        ("abcd~0", "abcd", true),
        ("abcdefgh~2", "abdcefhg", true),
        ("abcdefgh~2", "abdcfegx", false),
    ] {
        let standard = index("standard", true);
        let query = parse(query, &standard).expect("a query");
        assert_eq!(query.leaves()[0].matches(word), is_found, "{query:?} and {word}");
    }
}

/// Any text is a query or is refused, and takes little time.
#[test]
fn random_queries() {
    let standard = index("standard", true);
    let mut state = 7_u64;
    let mut below = |end: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % end
    };
    let parts = [
        "a", "b", "quick", " ", " ", "AND ", "OR ", "NOT ", "+", "-", "(", ")", "\"", "~", "2", "^", "*",
        "\\", "é", ".",
    ];
    let mut good = 0;
    for _ in 0..20_000 {
        let text: String = (0..below(12)).map(|_| parts[below(parts.len())]).collect();
        let Ok(query) = parse(&text, &standard) else { continue };
        good += 1;
        for words in TEXTS {
            let document = Document::new(&query, &standard.analyzer, words.as_bytes()).expect("a text");
            let score = query.score(&document, &Statistics::default());
            assert!(score.is_none_or(|score| score > 0.0), "{text} of {words}: {score:?}");
        }
    }
    assert!(good > 2_000, "{good} are no test");
}

#[test]
fn options_of_an_index() {
    let refused = |name: &str, value: &str| {
        let options = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        FullText::of(&options).unwrap_err().to_string()
    };
    assert_eq!(refused("x", "1"), "Unsupported option x for fulltext index");
    assert!(refused("analyzer", "klingon").starts_with("Invalid value 'klingon' of option 'analyzer'"));
    assert!(refused("positions", "2").starts_with("Invalid value '2' of option 'positions'"));
    for analyzer in text::FULLTEXT_ANALYZERS {
        index(analyzer, true);
    }
}
