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
        let mut take = |term: &[u8]| (self.has_grams && term.len() > CONTAINED_LEN_MAX) || take(term);
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

    /// Passes the entries of an index for a text to `take`: its terms and, if parts of terms are found, their n-grams.
    pub fn indexed(&self, value: &[u8], mut take: impl FnMut(&[u8])) {
        let has_grams = self.has_grams;
        let mut gram = String::new();
        self.terms(value, |term| {
            take(term);
            if has_grams && let Ok(text) = std::str::from_utf8(term) {
                for (start, _) in text.char_indices() {
                    gram.clear();
                    gram.push(GRAM_MARK);
                    gram.extend(text.split_at(start).1.chars().take(GRAM_LEN));
                    take(gram.as_bytes());
                }
            }
            true
        });
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
