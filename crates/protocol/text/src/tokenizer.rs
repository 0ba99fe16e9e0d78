//! Tokenizers: the words of a text, by Lucene's names.

use unicode_segmentation::UnicodeSegmentation;

/// Characters of the longest word, as Lucene's: a longer one is cut in words of that length.
pub(crate) const WORD_MAX: usize = 255;

/// How a text is cut in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tokenizer {
    /// The whole text is one word.
    Keyword,
    /// Words by Unicode's annex 29 that have a letter or digit.
    Standard,
    /// Letters side by side.
    Letter,
    /// Characters between white space.
    Whitespace,
    /// Parts between a character.
    Delimiter(char),
    /// Each part of a text of so many characters.
    Grams {
        /// The fewest characters.
        min: usize,
        /// The most characters.
        max: usize,
        /// From the start of the text alone.
        from_start: bool,
    },
}

impl Tokenizer {
    /// Hands the words of a text to `take`, none of them empty, until it returns false.
    pub(crate) fn split<'a>(&self, text: &'a str, take: &mut dyn FnMut(&'a str) -> bool) {
        match self {
            Self::Keyword => _ = !text.is_empty() && take(text),
            Self::Standard => each(text.unicode_words(), true, take),
            Self::Letter => each(text.split(|c: char| !c.is_alphabetic()), true, take),
            Self::Whitespace => each(text.split_whitespace(), true, take),
            Self::Delimiter(delimiter) => each(text.split(*delimiter), false, take),
            Self::Grams { min, max, from_start } => {
                grams(text, (*min, *max), *from_start, take);
            }
        }
    }
}

fn each<'a>(words: impl Iterator<Item = &'a str>, cuts: bool, take: &mut dyn FnMut(&'a str) -> bool) {
    for mut word in words {
        while cuts && word.len() > WORD_MAX {
            let Some((end, _)) = word.char_indices().nth(WORD_MAX) else { break };
            let (head, rest) = word.split_at(end);
            if !take(head) {
                return;
            }
            word = rest;
        }
        if !word.is_empty() && !take(word) {
            return;
        }
    }
}

/// The parts of a text that have from `min` to `max` characters; false when `take` wanted no more.
pub(crate) fn grams<'a>(
    text: &'a str,
    (min, max): (usize, usize),
    from_start: bool,
    take: &mut dyn FnMut(&'a str) -> bool,
) -> bool {
    for (start, _) in text.char_indices() {
        let rest = text.split_at(start).1;
        let ends = rest.char_indices().map(|(at, _)| at).skip(1).chain([rest.len()]);
        for (count, end) in (1..).zip(ends).take(max) {
            if count >= min && !take(rest.split_at(end).0) {
                return false;
            }
        }
        if from_start {
            break;
        }
    }
    true
}
