//! Analyzers: the terms of a text.

use std::borrow::Cow;
use std::cell::Cell;

use crate::filter::{self, Filter};
use crate::folding::Folding;
use crate::tokenizer::{Tokenizer, grams};

/// Terms of one text at most: words behind them are not searched, by an index and by a filter.
pub const TERMS_MAX: usize = 65_536;
/// Words that filters make of one text at most, those among them that a later filter drops.
const STEPS_MAX: usize = 32 * TERMS_MAX;
/// Characters of the parts by which an index finds texts that contain another one.
pub const GRAM_LEN: usize = 3;
/// Bytes of a term that has its parts in an index, at most, as SASI's: a longer one is none.
const CONTAINED_LEN_MAX: usize = 1024;
/// Characters of the terms of one text that have their parts in an index, at most: terms behind them are not searched.
const CONTAINED_CHARS_MAX: usize = 65_536;
/// Before a gram, and before no word: this is no character.
const GRAM_MARK: char = '\u{10ffff}';

/// How a text becomes terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Analyzer {
    kind: Kind,
    /// Whether an index has the grams of the terms, too.
    has_grams: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// A text is a term.
    Whole,
    /// A folded text is a term.
    Folded(Folding),
    /// Words are terms.
    Words(Words),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Words {
    tokenizer: Tokenizer,
    filters: Vec<Filter>,
}

impl Analyzer {
    /// A text is one term, folded.
    pub(crate) fn folded(folding: Folding) -> Self {
        Self { kind: Kind::Folded(folding), has_grams: false }
    }

    /// A text has several terms.
    pub(crate) fn words(tokenizer: Tokenizer, filters: Vec<Filter>) -> Self {
        Self { kind: Kind::Words(Words { tokenizer, filters }), has_grams: false }
    }

    /// The same, or one that leaves texts as they are, with grams in the index.
    pub(crate) fn with_grams(analyzer: Option<Self>) -> Self {
        let kind = analyzer.map_or(Kind::Whole, |analyzer| analyzer.kind);
        Self { kind, has_grams: true }
    }

    /// Whether a text may have other than one term.
    pub fn is_tokenizing(&self) -> bool {
        matches!(self.kind, Kind::Words(_))
    }

    /// Whether an index finds parts of terms.
    pub fn has_grams(&self) -> bool {
        self.has_grams
    }

    /// How one term is made of a text, when no words are.
    pub fn folding(&self) -> Option<Folding> {
        match self.kind {
            Kind::Folded(folding) => Some(folding),
            Kind::Whole | Kind::Words(_) => None,
        }
    }

    /// Hands the terms of a text to `take`, until it returns false. Bytes that are no text are one term.
    pub fn terms(&self, value: &[u8], mut take: impl FnMut(&[u8]) -> bool) {
        let mut chars_left = CONTAINED_CHARS_MAX;
        let mut take = |term: &[u8]| {
            if !self.has_grams {
                return take(term);
            }
            if term.len() > CONTAINED_LEN_MAX {
                return true;
            }
            // Of bytes that are no text, each counts.
            let chars = std::str::from_utf8(term).map_or(term.len(), |text| text.chars().count());
            match chars_left.checked_sub(chars) {
                None => false,
                Some(rest) => {
                    chars_left = rest;
                    take(term)
                }
            }
        };
        match &self.kind {
            Kind::Whole => _ = take(value),
            Kind::Folded(folding) => _ = take(&folding.apply(value)),
            Kind::Words(Words { tokenizer, filters }) => {
                let Ok(text) = std::str::from_utf8(value) else {
                    take(value);
                    return;
                };
                let (mut left, steps) = (TERMS_MAX, Cell::new(STEPS_MAX));
                tokenizer.split(text, &mut |word| {
                    filter::apply(filters, Cow::Borrowed(word), &steps, &mut |term| {
                        left -= 1;
                        take(term.as_bytes()) && left > 0
                    })
                });
            }
        }
    }

    /// Hands the first and the last byte, exclusive, of each word of a text with one of its terms to `take`.
    pub(crate) fn words_of(&self, text: &str, mut take: impl FnMut(usize, usize, &str)) {
        let Kind::Words(Words { tokenizer, filters }) = &self.kind else {
            self.terms(text.as_bytes(), |term| {
                take(0, text.len(), std::str::from_utf8(term).unwrap_or_default());
                true
            });
            return;
        };
        let (mut left, steps) = (TERMS_MAX, Cell::new(STEPS_MAX));
        tokenizer.split(text, &mut |word| {
            // A word is a part of the text.
            let start = word.as_ptr() as usize - text.as_ptr() as usize;
            filter::apply(filters, Cow::Borrowed(word), &steps, &mut |term| {
                left -= 1;
                take(start, start + word.len(), term);
                left > 0
            })
        });
    }

    /// A word as terms are folded, neither stemmed nor left out: the beginning of terms, or one that they are near to.
    pub fn fold_word(&self, word: &str) -> String {
        let mut folded = Cow::Borrowed(word);
        if let Kind::Words(Words { filters, .. }) = &self.kind {
            for filter in filters {
                if let Filter::Fold(folding) = filter {
                    folded = Cow::Owned(folding.apply_text(&folded).into_owned());
                }
            }
        }
        folded.into_owned()
    }

    /// The terms of a text, one behind the other.
    pub fn terms_of(&self, value: &[u8]) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        self.terms(value, |term| {
            out.push(term.to_vec());
            true
        });
        out
    }

    /// Passes the entries of an index for a text to `take`: its terms and, if parts of terms are found, their n-grams, each once.
    pub fn indexed(&self, value: &[u8], mut take: impl FnMut(&[u8])) {
        let has_grams = self.has_grams;
        let mut grams: Vec<[Option<char>; GRAM_LEN]> = Vec::new();
        self.terms(value, |term| {
            take(term);
            if has_grams && let Ok(text) = std::str::from_utf8(term) {
                let mut rest = text.chars();
                while !rest.as_str().is_empty() {
                    let mut chars = rest.clone();
                    grams.push(std::array::from_fn(|_| chars.next()));
                    rest.next();
                }
            }
            true
        });
        grams.sort_unstable();
        grams.dedup();
        let mut marked = String::new();
        for gram in grams {
            marked.clear();
            marked.push(GRAM_MARK);
            marked.extend(gram.into_iter().flatten());
            take(marked.as_bytes());
        }
    }

    /// Text that differs where the terms of an index differ.
    pub fn describe(&self) -> String {
        let mut out = match &self.kind {
            Kind::Whole => String::new(),
            Kind::Folded(Folding { case, normalizes, folds_to_ascii }) => {
                let folds_case = match case {
                    crate::Case::Kept => "false",
                    crate::Case::Lower => "true",
                    crate::Case::Upper => "upper",
                    crate::Case::LowerEach => "each",
                };
                // As an earlier version wrote it, whose indexes stay.
                format!(
                    "|Analysis {{ folds_case: {folds_case}, normalizes: {normalizes}, folds_to_ascii: {folds_to_ascii} }}"
                )
            }
            Kind::Words(Words { tokenizer: Tokenizer::Delimiter(delimiter), filters })
                if filters.is_empty() =>
            {
                format!("|by {delimiter:?}")
            }
            Kind::Words(words) => {
                let versions = [char::UNICODE_VERSION, unicode_normalization::UNICODE_VERSION];
                let segments = unicode_segmentation::UNICODE_VERSION;
                format!("|{words:?} of {versions:?} {segments:?}")
            }
        };
        if self.has_grams {
            out.push_str("|grams");
            if self.is_tokenizing() {
                out.push_str(&format!(" of {CONTAINED_CHARS_MAX}"));
            }
        }
        out
    }
}

/// By which an index that has grams finds the terms that contain a text: terms of the index that each of them has, or the beginning of
/// one that each has. None for the empty text.
pub fn grams_of(text: &str) -> Option<Result<Vec<String>, String>> {
    let marked = |gram: &str| format!("{GRAM_MARK}{gram}");
    let mut all = Vec::new();
    grams(text, (GRAM_LEN, GRAM_LEN), false, &mut |gram| {
        all.push(gram);
        true
    });
    if all.is_empty() {
        return (!text.is_empty()).then(|| Err(marked(text)));
    }
    // Side by side they have all characters, with the last one.
    let last = all.len() - 1;
    let mut chosen: Vec<String> =
        all.iter().step_by(GRAM_LEN).take(GRAMS_ASKED - 1).map(|gram| marked(gram)).collect();
    chosen.extend(all.get(last).map(|gram| marked(gram)));
    chosen.dedup();
    Some(Ok(chosen))
}

/// Grams of a text that an index is queried for, at most.
const GRAMS_ASKED: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Analyzer {
        Analyzer::with_grams(Some(Analyzer::words(Tokenizer::Delimiter(' '), Vec::new())))
    }

    #[test]
    fn a_part_of_terms_is_indexed_once() {
        let mut found = Vec::new();
        words().indexed("abab abab".as_bytes(), |term| {
            found.push(String::from_utf8(term.to_vec()).expect("text"))
        });
        let marked = |gram: &str| format!("{GRAM_MARK}{gram}");
        let grams = ["aba", "ab", "bab", "b"].map(marked);
        assert_eq!(found.iter().filter(|term| *term == "abab").count(), 2);
        for gram in &grams {
            assert_eq!(found.iter().filter(|term| *term == gram).count(), 1, "{gram}");
        }
        assert_eq!(found.len(), 2 + grams.len());
    }

    /// A text of 6 MB of words has the parts of its first words, and a filter finds no others, either.
    #[test]
    fn parts_of_a_long_text_are_bounded() {
        let text: String = (0..6_000).map(|word| format!("{word:0>1000} ")).collect();
        let (analyzer, mut count, mut grams) = (words(), 0, 0);
        analyzer.indexed(text.as_bytes(), |term| match term.starts_with(GRAM_MARK.to_string().as_bytes()) {
            true => grams += 1,
            false => count += 1,
        });
        assert_eq!((count, analyzer.terms_of(text.as_bytes()).len()), (65, 65));
        assert!((3..1_000).contains(&grams), "{grams} different parts");
        // Without parts, there are as many as the terms of a text may be.
        let plain = Analyzer::words(Tokenizer::Delimiter(' '), Vec::new());
        assert_eq!(plain.terms_of(text.as_bytes()).len(), 6_000);
        assert_ne!(analyzer.describe(), format!("{}|grams", plain.describe()));
    }
}
