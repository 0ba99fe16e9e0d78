//! Queries of full text: their grammar, and the score of a text (BM25).

mod fuzzy;
mod highlight;
mod parse;
mod score;

pub use score::{Document, Hit, Statistics};

use crate::analyzer::Analyzer;

/// The longest query, bytes.
pub const QUERY_LEN_MAX: usize = 16 << 10;
/// Different words of a query at most.
pub const LEAVES_MAX: usize = 64;
/// Words of a query at most, each as often as it is there.
pub const WORDS_MAX: usize = 512;

/// A query that cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct QueryError(pub(crate) String);

/// The words that a query looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// A term.
    Term(String),
    /// All terms that begin so: `wor*`.
    Prefix(String),
    /// All terms with the first character of this one, and with so many insertions, deletions, replacements and swaps of neighbours at
    /// most: `word~2`.
    Fuzzy(String, usize),
}

impl Leaf {
    /// Whether a term is one of them.
    pub fn matches(&self, term: &str) -> bool {
        match self {
            Self::Term(wanted) => term == wanted,
            Self::Prefix(prefix) => term.starts_with(prefix.as_str()),
            Self::Fuzzy(word, distance) => {
                term.chars().next() == word.chars().next() && fuzzy::is_within(word, term, *distance)
            }
        }
    }

    /// The beginning that all of its terms have.
    pub fn start(&self) -> &str {
        match self {
            Self::Term(word) | Self::Prefix(word) => word,
            Self::Fuzzy(word, _) => word.split_at(word.chars().next().map_or(0, char::len_utf8)).0,
        }
    }
}

/// A part of a query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    /// A word, by its number, and its weight.
    Leaf(usize, f32),
    /// Words one behind the other, with so many others between them at most.
    Phrase { leaves: Vec<usize>, slop: usize, weight: f32 },
    /// Parts that a text must have, that add to its score, and that it must not have.
    Parts(Parts),
    /// It finds no text: all words of the part are stop words.
    Nothing,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Parts {
    pub(crate) must: Vec<Node>,
    pub(crate) should: Vec<Node>,
    pub(crate) must_not: Vec<Node>,
    /// Of a group with a weight.
    pub(crate) weight: f32,
}

/// A query of full text.
#[derive(Clone, Debug, PartialEq)]
pub struct TextQuery {
    pub(crate) root: Node,
    leaves: Vec<Leaf>,
}

impl TextQuery {
    /// Reads a query: words, of which a text has at least one, `"phrases"`, `"with gaps"~2`, `prefix*`, `fuzzy~1`, `+must`, `-must_not`, AND, OR,
    /// NOT, parentheses and weights (`word^2`).
    ///
    /// # Errors
    /// When the text is none, is too long, or looks for nothing; when it has a phrase, and `has_positions` says that the index has no
    /// positions.
    pub fn parse(text: &str, analyzer: &Analyzer, has_positions: bool) -> Result<Self, QueryError> {
        parse::parse(text, analyzer, has_positions)
    }

    /// The words that it looks for.
    pub fn leaves(&self) -> &[Leaf] {
        &self.leaves
    }

    /// The words of which every text that it finds has one, those that the fewest texts have, where `counts` says how many texts have each.
    pub fn driving_leaves(&self, counts: &[u64]) -> Vec<usize> {
        drivers(&self.root, counts).map_or_else(Vec::new, |(_, leaves)| leaves)
    }
}

/// The words of a part of which each of its texts has one, and how many texts these are; none when it has no texts.
fn drivers(node: &Node, counts: &[u64]) -> Option<(u64, Vec<usize>)> {
    let count = |leaf: &usize| counts.get(*leaf).copied().unwrap_or(0);
    match node {
        Node::Nothing => None,
        Node::Leaf(leaf, _) => Some((count(leaf), vec![*leaf])),
        Node::Phrase { leaves, .. } => {
            let least = leaves.iter().min_by_key(|leaf| count(leaf))?;
            Some((count(least), vec![*least]))
        }
        Node::Parts(Parts { must, .. }) if !must.is_empty() => {
            let all: Option<Vec<_>> = must.iter().map(|node| drivers(node, counts)).collect();
            all?.into_iter().min_by_key(|(count, _)| *count)
        }
        Node::Parts(Parts { should, .. }) => {
            let all = should.iter().filter_map(|node| drivers(node, counts));
            all.reduce(|(count, mut leaves), (other, more)| {
                leaves.extend(more);
                (count.saturating_add(other), leaves)
            })
        }
    }
}
