//! BM25: how relevant a text is to a query (Robertson and Zaragoza, 2009, with Lucene's inverse document frequency).

use super::{Leaf, Node, Parts, TextQuery};
use crate::analyzer::Analyzer;

const K1: f64 = 1.2;
const B: f64 = 0.75;

/// Figures of all texts that a query is compared with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// How many texts there are.
    pub texts: u64,
    /// How many terms they have together.
    pub terms: u64,
    /// How many of them have each word of the query; of a word that is a term.
    pub with_leaf: Vec<u64>,
}

impl Statistics {
    /// Adds those of other texts.
    pub fn add(&mut self, other: &Self) {
        self.texts = self.texts.saturating_add(other.texts);
        self.terms = self.terms.saturating_add(other.terms);
        self.with_leaf.resize(self.with_leaf.len().max(other.with_leaf.len()), 0);
        for (count, more) in self.with_leaf.iter_mut().zip(&other.with_leaf) {
            *count = count.saturating_add(*more);
        }
    }

    /// The weight of a word: the rarer the greater, and above 0.
    fn rarity(&self, leaf: usize) -> f64 {
        let with = self.with_leaf.get(leaf).copied().unwrap_or(0) as f64;
        // Texts are counted with their older versions, and not at one moment.
        let all = (self.texts as f64).max(with);
        (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
    }
}

/// The places of a word of a query in a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hit {
    /// How often it is there.
    pub count: u32,
    /// At which terms of the text; may be empty where no phrase has the word.
    pub positions: Vec<u32>,
}

/// A text as a query sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// How many terms it has.
    pub terms: u32,
    /// Of each word of the query.
    pub hits: Vec<Hit>,
}

impl Document {
    /// Of a text; none when its bytes are no text.
    pub fn new(query: &TextQuery, analyzer: &Analyzer, value: &[u8]) -> Option<Self> {
        std::str::from_utf8(value).ok()?;
        let mut document = Self { terms: 0, hits: vec![Hit::default(); query.leaves().len()] };
        analyzer.terms(value, |term| {
            let term = std::str::from_utf8(term).unwrap_or_default();
            for (leaf, hit) in query.leaves().iter().zip(&mut document.hits) {
                if leaf.matches(term) {
                    hit.count += 1;
                    hit.positions.push(document.terms);
                }
            }
            document.terms += 1;
            true
        });
        Some(document)
    }

    fn hit(&self, leaf: usize) -> Option<&Hit> {
        self.hits.get(leaf).filter(|hit| hit.count > 0)
    }
}

impl TextQuery {
    /// How relevant a text is, above 0; none when the query does not find it.
    pub fn score(&self, document: &Document, statistics: &Statistics) -> Option<f32> {
        let mean = statistics.terms as f64 / (statistics.texts as f64).max(1.0);
        let length = f64::from(document.terms) / mean.max(1.0);
        Scorer { query: self, document, statistics, length }.of(&self.root).map(finite)
    }
}

/// A score in the range of its type: weights of nested groups multiply.
fn finite(score: f64) -> f32 {
    let score = score as f32;
    if score.is_nan() { f32::MIN_POSITIVE } else { score.clamp(f32::MIN_POSITIVE, f32::MAX) }
}

struct Scorer<'a> {
    query: &'a TextQuery,
    document: &'a Document,
    statistics: &'a Statistics,
    /// Its length, in mean lengths.
    length: f64,
}

impl Scorer<'_> {
    fn of(&self, node: &Node) -> Option<f64> {
        match node {
            Node::Nothing => None,
            Node::Leaf(leaf, weight) => {
                let hit = self.document.hit(*leaf)?;
                let score = match self.query.leaves().get(*leaf)? {
                    Leaf::Term(_) => self.weighted(self.statistics.rarity(*leaf), hit.count),
                    // How many texts have which of its terms is not known.
                    Leaf::Prefix(_) | Leaf::Fuzzy(..) => 1.0,
                };
                Some(score * f64::from(*weight))
            }
            Node::Phrase { leaves, slop, weight } => {
                let hits: Option<Vec<&Hit>> = leaves.iter().map(|leaf| self.document.hit(*leaf)).collect();
                let count = phrases(&hits?, *slop);
                let rarity = leaves.iter().map(|leaf| self.statistics.rarity(*leaf)).sum();
                (count > 0).then(|| self.weighted(rarity, count) * f64::from(*weight))
            }
            Node::Parts(Parts { must, should, must_not, weight }) => {
                if must_not.iter().any(|node| self.of(node).is_some()) {
                    return None;
                }
                let needed: Option<f64> = must.iter().map(|node| self.of(node)).sum();
                let mut found = !must.is_empty();
                let mut score = needed?;
                for more in should.iter().filter_map(|node| self.of(node)) {
                    found = true;
                    score += more;
                }
                found.then_some(score * f64::from(*weight))
            }
        }
    }

    fn weighted(&self, rarity: f64, count: u32) -> f64 {
        let count = f64::from(count);
        rarity * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * self.length))
    }
}

/// How many times words are one behind the other, with so many others between them at most.
fn phrases(hits: &[&Hit], slop: usize) -> u32 {
    let Some((first, rest)) = hits.split_first() else { return 0 };
    let mut count = 0;
    // Of each word the place that is looked at: a later start never looks at an earlier one.
    let mut nexts = vec![0; rest.len()];
    for start in &first.positions {
        let (mut at, mut left) = (*start, slop as u32);
        let is_one = rest.iter().zip(&mut nexts).all(|(hit, next)| {
            while hit.positions.get(*next).is_some_and(|position| *position <= at) {
                *next += 1;
            }
            match hit.positions.get(*next) {
                Some(position) if position - at - 1 <= left => {
                    left -= position - at - 1;
                    at = *position;
                    true
                }
                _ => false,
            }
        });
        count += u32::from(is_one);
    }
    count
}
