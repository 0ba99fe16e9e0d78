//! Stop words: words that say too little to be searched for.

use std::collections::BTreeSet;

use crate::language::Language;

/// The stop words of English in Lucene's and Elasticsearch's default.
const ENGLISH: &str = "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to \
                       was will with";

/// A set of words, in lower case.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StopWords(BTreeSet<String>);

impl StopWords {
    /// Lucene's for English.
    pub(crate) fn english() -> Self {
        Self(ENGLISH.split(' ').map(str::to_owned).collect())
    }

    /// The usual ones of a language; none when there is no list.
    pub(crate) fn of_language(language: &Language) -> Option<Self> {
        if language.code == "en" {
            return Some(Self::english());
        }
        let words = stop_words::lookup(language.code)?;
        Some(Self(words.iter().map(|word| word.to_lowercase()).collect()))
    }

    /// Those of a list between commas.
    pub(crate) fn of_list(list: &str) -> Self {
        Self(list.split(',').map(|word| word.trim().to_lowercase()).filter(|word| !word.is_empty()).collect())
    }

    pub(crate) fn contains(&self, word: &str) -> bool {
        self.0.contains(word)
    }

    /// A number that differs where lists differ.
    fn digest(&self) -> u64 {
        let all: Vec<&str> = self.0.iter().map(String::as_str).collect();
        xxhash_rust::xxh3::xxh3_64(all.join("\n").as_bytes())
    }
}

/// A list by its digest, so that an index is made again when another version of it has other words.
impl std::fmt::Debug for StopWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} words {:016x}", self.0.len(), self.digest())
    }
}
