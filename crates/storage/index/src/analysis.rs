//! Analysis of texts: how an index with `case_sensitive: false`, `normalize: true` or `ascii: true` compares them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// How a text changes before it is a term, or is compared with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// `case_sensitive: false`: lower case.
    folds_case: bool,
    /// `normalize: true`: Unicode's form NFC.
    normalizes: bool,
    /// `ascii: true`: Latin letters, digits and signs as those of ASCII that they are variants of.
    folds_to_ascii: bool,
}

/// The options of CREATE INDEX that ask for analysis, each with the value that asks for none.
pub const ANALYSIS_OPTIONS: [(&str, &str); 3] =
    [("case_sensitive", "true"), ("normalize", "false"), ("ascii", "false")];

/// Letters and signs without a decomposition, and their ASCII form.
const FOLDED: [(char, &str); 34] = [
    ('ß', "ss"),
    ('ẞ', "SS"),
    ('æ', "ae"),
    ('Æ', "AE"),
    ('œ', "oe"),
    ('Œ', "OE"),
    ('ø', "o"),
    ('Ø', "O"),
    ('đ', "d"),
    ('Đ', "D"),
    ('ð', "d"),
    ('Ð', "D"),
    ('þ', "th"),
    ('Þ', "TH"),
    ('ł', "l"),
    ('Ł', "L"),
    ('ı', "i"),
    ('ħ', "h"),
    ('Ħ', "H"),
    ('ŧ', "t"),
    ('Ŧ', "T"),
    ('ŋ', "n"),
    ('Ŋ', "N"),
    ('ĸ', "q"),
    ('‘', "'"),
    ('’', "'"),
    ('“', "\""),
    ('”', "\""),
    ('«', "\""),
    ('»', "\""),
    ('‐', "-"),
    ('–', "-"),
    ('—', "-"),
    ('⁄', "/"),
];

/// The options of a SASI index whose values are lists of parts, and its analyzer.
const ANALYZER_OPTION: &str = "analyzer_class";
const DELIMITER_ANALYZER: &str = "DelimiterAnalyzer";
/// The delimiter where none is given.
const DELIMITER_DEFAULT: char = ',';

/// The character between the parts of a text, each of which is a term, of an index with SASI's `DelimiterAnalyzer`; none of another
/// index. An analyzer counts unless `analyzed` is `false`.
pub fn delimiter_of(options: &BTreeMap<String, String>) -> Option<char> {
    let class = options.get(ANALYZER_OPTION)?.rsplit('.').next()?;
    let is_analyzed = options.get("analyzed").is_none_or(|value| value.eq_ignore_ascii_case("true"));
    let given = options.get("delimiter").map(|text| text.chars().next());
    (class == DELIMITER_ANALYZER && is_analyzed).then(|| given.flatten().unwrap_or(DELIMITER_DEFAULT))
}

/// The parts of a text; empty ones are none. Bytes that are no text are one part.
pub fn parts(value: &[u8], delimiter: char) -> impl Iterator<Item = &[u8]> {
    let text = std::str::from_utf8(value).ok();
    let split = text.into_iter().flat_map(move |text| text.split(delimiter)).map(str::as_bytes);
    let whole = text.is_none().then_some(value);
    split.chain(whole).filter(|part| !part.is_empty())
}

impl Analysis {
    /// Of the options of an index; none when texts stay as they are.
    pub fn of(options: &BTreeMap<String, String>) -> Option<Self> {
        let asks = ANALYSIS_OPTIONS.map(|(name, neutral)| {
            options.get(name).is_some_and(|value| !value.eq_ignore_ascii_case(neutral))
        });
        let [folds_case, normalizes, folds_to_ascii] = asks;
        asks.contains(&true).then_some(Self { folds_case, normalizes, folds_to_ascii })
    }

    /// A text as it is compared. Bytes that are no text stay as they are.
    pub fn apply<'a>(&self, value: &'a [u8]) -> Cow<'a, [u8]> {
        let Ok(text) = std::str::from_utf8(value) else { return Cow::Borrowed(value) };
        let mut text = Cow::Borrowed(text);
        if self.folds_case {
            text = Cow::Owned(text.to_lowercase());
        }
        if !text.is_ascii() {
            if self.normalizes {
                text = Cow::Owned(text.nfc().collect());
            }
            if self.folds_to_ascii {
                text = Cow::Owned(text.chars().map(folded).collect());
            }
        }
        match text {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }
    }
}

/// A character in ASCII, when it is a variant of something there.
fn folded(character: char) -> Cow<'static, str> {
    if let Some((_, ascii)) = FOLDED.iter().find(|(known, _)| *known == character) {
        return Cow::Borrowed(ascii);
    }
    let parts: String = std::iter::once(character).nfkd().filter(|part| !is_combining_mark(*part)).collect();
    let is_variant = parts.is_ascii() && !parts.is_empty();
    Cow::Owned(if is_variant { parts } else { character.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn analysis(names: &[&str]) -> Analysis {
        let value = |name: &str| if name == "case_sensitive" { "FALSE" } else { "True" };
        let options = names.iter().map(|name| ((*name).to_owned(), value(name).to_owned())).collect();
        Analysis::of(&options).expect("it asks for something")
    }

    #[test]
    fn a_text_with_delimiters_has_parts() {
        let options = |all: &[(&str, &str)]| {
            delimiter_of(&all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
        };
        let class = ("analyzer_class", "org.apache.cassandra.index.sasi.analyzer.DelimiterAnalyzer");
        assert_eq!(options(&[class, ("analyzed", "true"), ("delimiter", "░")]), Some('░'));
        assert_eq!(options(&[class]), Some(','));
        assert_eq!(options(&[class, ("analyzed", "false")]), None);
        assert_eq!(options(&[("delimiter", ";"), ("analyzed", "true")]), None);
        let split = |value: &[u8]| parts(value, '░').map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(split("░a=1░b░".as_bytes()), [b"a=1".to_vec(), b"b".to_vec()]);
        assert_eq!(split(b"abc"), [b"abc".to_vec()]);
        assert_eq!(split(b""), [] as [Vec<u8>; 0]);
        assert_eq!(split(b"\xff"), [b"\xff".to_vec()]);
    }

    #[test]
    fn texts_are_compared_as_the_options_say() {
        let cases: [(&[&str], &str, &str); 9] = [
            (&["case_sensitive"], "ÄBC x", "äbc x"),
            (&["case_sensitive"], "ΑΣ", "ας"),
            (&["normalize"], "A\u{308}B", "ÄB"),
            (&["ascii"], "Éclair ß ø ﬁ ① Ｗ", "Eclair ss o fi 1 W"),
            (&["ascii"], "Ångström – “x”", "Angstrom - \"x\""),
            (&["ascii"], "中文 я", "中文 я"),
            (&["case_sensitive", "ascii"], "ÉCLAIR", "eclair"),
            (&["case_sensitive", "normalize", "ascii"], "E\u{301}T", "et"),
            (&["ascii"], "", ""),
        ];
        for (names, text, expected) in cases {
            let found = analysis(names).apply(text.as_bytes()).into_owned();
            assert_eq!(String::from_utf8(found).as_deref(), Ok(expected), "{names:?} of {text}");
        }
        assert_eq!(&*analysis(&["ascii"]).apply(b"\xff"), b"\xff");
        let neutral = [("case_sensitive".to_owned(), "true".to_owned())];
        assert_eq!(Analysis::of(&BTreeMap::from(neutral)), None);
    }
}
