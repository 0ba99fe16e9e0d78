//! Texts as an index compares them: analyzers, which make terms of a text, from the options of an index (pure).
//!
//! An analyzer is a function of the options and of the text alone: the terms of an index, the check of a row that it found, and the
//! analysis of a statement's text are made by the same one, so that the answer of an index is the answer of a filter.

mod analyzer;
mod filter;
mod folding;
mod fulltext;
mod index;
mod json;
mod language;
mod query;
mod sasi;
mod stop;
mod tokenizer;

pub use analyzer::{Analyzer, GRAM_LEN, TERMS_MAX, grams_of};
pub use folding::{Case, FOLDING_OPTIONS, Folding};
pub use fulltext::{FULLTEXT_ANALYZERS, FULLTEXT_CLASS, FullText};
pub use index::{IndexText, SASI_CLASS};
pub use json::ANALYZER_OPTIONS;
pub use query::{Document, Hit, LEAVES_MAX, Leaf, QUERY_LEN_MAX, QueryError, Statistics, TextQuery};
pub use sasi::{Sasi, SasiMode};

/// Options of an analyzer that mean none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnalyzerError {
    /// They are not those of an analyzer; in Cassandra's words where they are its options.
    #[error("{0}")]
    Invalid(String),
    /// Known to Lucene or Cassandra, and not to Torc.
    #[error("{0} is not supported")]
    Unsupported(String),
}
