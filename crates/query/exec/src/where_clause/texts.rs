//! Texts as an index analyzes them: the terms of an equality, and the patterns of LIKE that an index of SASI finds.

use std::sync::Arc;

use bytes::Bytes;
use replica::Predicate;
use text::{Analyzer, IndexText, SasiMode, grams_of};

use crate::error::{Result, invalid, shown};

/// Terms of an equality that an index is queried for at most: each row is checked for all of them.
const TERMS_ASKED: usize = 4;
/// Terms of a pattern of LIKE at most: each row is checked for all of them.
const PATTERN_TERMS_MAX: usize = 32;

/// The places that an index is queried for: those that it has for all predicates of one of the lists.
pub type AnyOfAll = Vec<Vec<Predicate>>;

/// The terms that a text must have.
#[derive(Debug)]
pub struct TermsWanted<'a> {
    analyzer: &'a Analyzer,
    terms: Vec<Vec<u8>>,
}

impl<'a> TermsWanted<'a> {
    /// Of a text that is searched for.
    pub fn new(text: &'a IndexText, value: &[u8]) -> Self {
        let mut terms = text.query.terms_of(value);
        terms.sort_unstable();
        terms.dedup();
        Self { analyzer: &text.index, terms }
    }

    /// Whether a text has all of them. There is none that has no terms at all.
    pub fn matches(&self, value: &[u8]) -> bool {
        let (mut missing, mut is_missing) = (self.terms.len(), vec![true; self.terms.len()]);
        if missing == 0 {
            return false;
        }
        self.analyzer.terms(value, |term| {
            let found = self.terms.binary_search_by(|wanted| wanted.as_slice().cmp(term));
            if found.is_ok_and(|at| std::mem::replace(&mut is_missing[at], false)) {
                missing -= 1;
            }
            missing > 0
        });
        missing == 0
    }

    /// The predicates by which an index finds the texts: the longest terms, which are the rarest as a rule.
    pub fn predicates(&self) -> AnyOfAll {
        let mut terms: Vec<&Vec<u8>> = self.terms.iter().collect();
        if terms.is_empty() {
            return Vec::new();
        }
        terms.sort_by_key(|term| std::cmp::Reverse(term.len()));
        let asked = terms.into_iter().take(TERMS_ASKED);
        vec![asked.map(|term| Predicate::Equal(Bytes::from(term.clone()))).collect()]
    }
}

/// How an index of SASI compares texts with patterns.
#[derive(Clone, Debug)]
pub struct LikeTexts {
    /// None for texts as they are.
    pub analyzer: Option<Arc<Analyzer>>,
    /// The patterns that it finds.
    pub mode: SasiMode,
}

/// Where in a term a pattern stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// `abc`: it is the term.
    Whole,
    /// `abc%`: at the start.
    Start,
    /// `%abc`: at the end.
    End,
    /// `%abc%`: anywhere.
    Anywhere,
}

/// A pattern of LIKE that an index answers: a text matches when each of these does with one of its terms.
#[derive(Debug)]
pub struct LikePattern<'a> {
    place: Place,
    terms: Vec<Bytes>,
    analyzer: Option<&'a Analyzer>,
}

impl LikeTexts {
    /// A pattern on a column.
    ///
    /// # Errors
    /// [`ExecError::Invalid`](crate::ExecError::Invalid) when the pattern is empty, not one of the index's mode, or has too many terms.
    pub fn parse(&self, pattern: &Bytes, column: &str) -> Result<LikePattern<'_>> {
        let (place, form, text) = match &**pattern {
            [] | [b'%'] | [b'%', b'%'] => return invalid!("LIKE value can't be empty."),
            [b'%', text @ .., b'%'] => (Place::Anywhere, "%<term>%", text),
            [b'%', text @ ..] => (Place::End, "%<term>", text),
            [text @ .., b'%'] => (Place::Start, "<term>%", text),
            text => (Place::Whole, "<term>", text),
        };
        let is_tokenizing = self.analyzer.as_ref().is_some_and(|analyzer| analyzer.is_tokenizing());
        let is_found = match (self.mode, place) {
            (SasiMode::Sparse, _) => false,
            (_, Place::Whole) | (SasiMode::Prefix, Place::Start) => true,
            (SasiMode::Prefix, Place::End | Place::Anywhere) => false,
            (SasiMode::Contains, Place::Start) => !is_tokenizing,
            (SasiMode::Contains, Place::End | Place::Anywhere) => true,
        };
        if !is_found {
            let term = String::from_utf8_lossy(text);
            let shown = shown(&term);
            return invalid!("{column} LIKE '{form}' {shown} is only supported on properly indexed columns");
        }
        let terms = match &self.analyzer {
            None => vec![pattern.slice_ref(text)],
            Some(analyzer) => analyzer.terms_of(text).into_iter().map(Bytes::from).collect(),
        };
        if terms.len() > PATTERN_TERMS_MAX {
            return invalid!(
                "The pattern of LIKE on column {column} has {} terms: at most {PATTERN_TERMS_MAX} are allowed",
                terms.len()
            );
        }
        Ok(LikePattern { place, terms, analyzer: self.analyzer.as_deref() })
    }
}

impl LikePattern<'_> {
    /// Whether a text matches.
    pub fn matches(&self, value: &[u8]) -> bool {
        let fits = |found: &[u8], term: &[u8]| match self.place {
            Place::Whole => found == term,
            Place::Start => found.starts_with(term),
            Place::End => found.ends_with(term),
            Place::Anywhere => memchr::memmem::find(found, term).is_some(),
        };
        let mut left: Vec<&[u8]> = self.terms.iter().map(|term| &term[..]).collect();
        if left.is_empty() {
            return false;
        }
        let mut take = |found: &[u8]| {
            left.retain(|term| !fits(found, term));
            !left.is_empty()
        };
        match self.analyzer {
            None => _ = take(value),
            Some(analyzer) => analyzer.terms(value, take),
        }
        left.is_empty()
    }

    /// The predicates by which an index finds the texts. `is_ascii` says that all its texts are.
    pub fn predicates(&self, is_ascii: bool) -> AnyOfAll {
        let prefix = |text: &[u8]| {
            let to = behind_prefix(text, is_ascii).map(|end| (end, false));
            Predicate::Range { from: Some((Bytes::copy_from_slice(text), true)), to }
        };
        let of_term = |term: &Bytes| match self.place {
            Place::Whole => Some(vec![Predicate::Equal(term.clone())]),
            Place::Start => Some(vec![prefix(term)]),
            Place::End | Place::Anywhere => match grams_of(std::str::from_utf8(term).ok()?)? {
                Ok(grams) => {
                    Some(grams.into_iter().map(|gram| Predicate::Equal(Bytes::from(gram))).collect())
                }
                Err(start) => {
                    let to = behind_prefix(start.as_bytes(), false).map(|end| (end, false));
                    Some(vec![Predicate::Range { from: Some((Bytes::from(start), true)), to }])
                }
            },
        };
        // Each row is checked for all terms: the longest is the rarest as a rule.
        let longest = self.terms.iter().max_by_key(|term| term.len());
        longest.and_then(of_term).into_iter().collect()
    }
}

/// The least text behind all texts with a prefix; none when there is no such text.
fn behind_prefix(prefix: &[u8], is_ascii: bool) -> Option<Bytes> {
    let mut text = std::str::from_utf8(prefix).ok()?.to_owned();
    let last = if is_ascii { '\u{7f}' } else { char::MAX };
    while let Some(end) = text.pop() {
        let next = if end == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(u32::from(end) + 1) };
        if let Some(next) = next.filter(|next| *next <= last) {
            text.push(next);
            return Some(Bytes::from(text));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_the_texts_with_a_prefix_is_a_text() {
        for (prefix, is_ascii, expected) in [
            ("ab", true, Some("ac")),
            ("a\u{7f}", true, Some("b")),
            ("a\u{7f}", false, Some("a\u{80}")),
            ("ÿ", false, Some("\u{100}")),
            ("\u{d7ff}", false, Some("\u{e000}")),
            ("a\u{10ffff}", false, Some("b")),
            ("\u{10ffff}", false, None),
            ("\u{7f}", true, None),
        ] {
            let found = behind_prefix(prefix.as_bytes(), is_ascii);
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{prefix:?}");
        }
    }
}
