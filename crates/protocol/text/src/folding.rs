//! Folding of texts: letters to one case, to one form of Unicode, and to ASCII.

use std::borrow::Cow;
use std::collections::BTreeMap;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// The letter case that texts get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Case {
    /// As they are.
    #[default]
    Kept,
    /// Lower case, as Java's for texts: a sigma at the end of a word is a final one.
    Lower,
    /// Lower case of each character by itself, as Lucene's: a word folds as its parts do.
    LowerEach,
    /// Upper case.
    Upper,
}

/// How a text changes before it is a term, or is compared with one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Folding {
    /// Letter case.
    pub case: Case,
    /// Unicode's form NFC.
    pub normalizes: bool,
    /// Latin letters, digits and signs as those of ASCII that they are variants of.
    pub folds_to_ascii: bool,
}

/// The options of SAI that ask for folding, each with the value that asks for none.
pub const FOLDING_OPTIONS: [(&str, &str); 3] =
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

impl Folding {
    /// Of the options of an index of SAI; none when texts stay as they are.
    pub fn of(options: &BTreeMap<String, String>) -> Option<Self> {
        let asks = FOLDING_OPTIONS.map(|(name, neutral)| {
            options.get(name).is_some_and(|value| !value.eq_ignore_ascii_case(neutral))
        });
        let [folds_case, normalizes, folds_to_ascii] = asks;
        let case = if folds_case { Case::Lower } else { Case::Kept };
        asks.contains(&true).then_some(Self { case, normalizes, folds_to_ascii })
    }

    /// A text as it is compared. Bytes that are no text stay as they are.
    pub fn apply<'a>(&self, value: &'a [u8]) -> Cow<'a, [u8]> {
        let Ok(text) = std::str::from_utf8(value) else { return Cow::Borrowed(value) };
        match self.apply_text(text) {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }
    }

    /// As [`Folding::apply`], of a text.
    pub fn apply_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = match self.case {
            Case::Kept => Cow::Borrowed(text),
            Case::Lower => Cow::Owned(text.to_lowercase()),
            Case::LowerEach => Cow::Owned(text.chars().flat_map(char::to_lowercase).collect()),
            Case::Upper => Cow::Owned(text.to_uppercase()),
        };
        if !text.is_ascii() {
            if self.normalizes {
                text = Cow::Owned(text.nfc().collect());
            }
            if self.folds_to_ascii {
                text = Cow::Owned(text.chars().map(folded).collect());
            }
        }
        text
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

    fn folding(names: &[&str]) -> Folding {
        let value = |name: &str| if name == "case_sensitive" { "FALSE" } else { "True" };
        let options = names.iter().map(|name| ((*name).to_owned(), value(name).to_owned())).collect();
        Folding::of(&options).expect("it asks for something")
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
            let found = folding(names).apply(text.as_bytes()).into_owned();
            assert_eq!(String::from_utf8(found).as_deref(), Ok(expected), "{names:?} of {text}");
        }
        assert_eq!(&*folding(&["ascii"]).apply(b"\xff"), b"\xff");
        let neutral = [("case_sensitive".to_owned(), "true".to_owned())];
        assert_eq!(Folding::of(&BTreeMap::from(neutral)), None);
    }
}
