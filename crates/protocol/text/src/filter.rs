//! Filters of words, by Lucene's names.

use std::borrow::Cow;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rust_stemmers::Stemmer;

use crate::folding::Folding;
use crate::language::Language;
use crate::stop::StopWords;
use crate::tokenizer::grams;

/// How a word changes; a filter may also drop it, or make several of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    /// Case, normal form, ASCII.
    Fold(Folding),
    /// White space at the ends goes.
    Trim,
    /// Stop words go.
    Stop(Arc<StopWords>),
    /// The stem of a word, by the name of the language.
    Stem(&'static str),
    /// Words with fewer or more characters go.
    Length {
        /// The fewest.
        min: usize,
        /// The most.
        max: usize,
    },
    /// Each part of a word of so many characters.
    Grams {
        /// The fewest characters.
        min: usize,
        /// The most characters.
        max: usize,
        /// From the start of the word alone.
        from_start: bool,
    },
}

/// Passes each token that the filters make of a word to `take` until that returns false; the result is then false, too. Each word takes
/// one of the `steps` left, at each filter; without any left, the result is false.
pub(crate) fn apply(
    filters: &[Filter],
    word: Cow<'_, str>,
    steps: &Cell<usize>,
    take: &mut dyn FnMut(&str) -> bool,
) -> bool {
    let Some(left) = steps.get().checked_sub(1) else { return false };
    steps.set(left);
    let Some((filter, rest)) = filters.split_first() else { return word.is_empty() || take(&word) };
    match filter {
        Filter::Fold(folding) => apply(rest, folding.apply_text(&word), steps, take),
        Filter::Trim => apply(rest, Cow::Borrowed(word.trim()), steps, take),
        Filter::Stop(words) if words.contains(&word) => true,
        Filter::Length { min, max } if !(*min..=*max).contains(&word.chars().count()) => true,
        Filter::Stop(_) | Filter::Length { .. } => apply(rest, word, steps, take),
        Filter::Stem(name) => match Language::of_name(name) {
            Some(language) => apply(rest, stem(language, word), steps, take),
            None => apply(rest, word, steps, take),
        },
        Filter::Grams { min, max, from_start } => {
            grams(&word, (*min, *max), *from_start, &mut |gram| apply(rest, Cow::Borrowed(gram), steps, take))
        }
    }
}

/// The stem of a word; the word itself where the stemmer fails, which must not end the node.
fn stem<'a>(language: &Language, word: Cow<'a, str>) -> Cow<'a, str> {
    let stem = || Stemmer::create(language.algorithm).stem(&word).into_owned();
    catch_unwind(AssertUnwindSafe(stem)).map_or(word.clone(), Cow::Owned)
}
