//! The grammar of queries, Lucene's for one field.
//!
//! ```text
//! query  := { clause }              between them AND, OR or nothing, which is OR
//! clause := [ "+" | "-" | NOT ] part [ "^" weight ]
//! part   := "(" query ")" | '"' words '"' [ "~" gaps ] | word [ "*" | "~" [ distance ] ]
//! ```

use super::{LEAVES_MAX, Leaf, Node, Parts, QUERY_LEN_MAX, QueryError, TextQuery, WORDS_MAX};
use crate::analyzer::Analyzer;

/// Groups in groups at most.
const DEPTH_MAX: usize = 32;
/// Edits of `word~` at most, and where none are given.
const DISTANCE_MAX: usize = 2;
/// Words that stand for several at most: an index collects the texts of each.
const EXPANDED_MAX: usize = 8;
/// The bounds of weights that multiply.
const WEIGHT_MIN: f32 = 1e-9;
const WEIGHT_MAX: f32 = 1e9;
/// Words between those of a phrase at most.
const SLOP_MAX: usize = 100;

fn refused<T>(text: impl Into<String>) -> Result<T, QueryError> {
    Err(QueryError(text.into()))
}

pub(super) fn parse(text: &str, analyzer: &Analyzer, has_positions: bool) -> Result<TextQuery, QueryError> {
    if text.len() > QUERY_LEN_MAX {
        return refused(format!(
            "A query of full text has {} bytes: at most {QUERY_LEN_MAX} are allowed",
            text.len()
        ));
    }
    let mut parser = Parser { rest: text, analyzer, has_positions, leaves: Vec::new(), words: 0, depth: 0 };
    let root = parser.clauses()?;
    if !parser.rest.is_empty() {
        return refused("A query of full text has a ')' without a '('");
    }
    Ok(TextQuery { root, leaves: parser.leaves })
}

struct Parser<'a> {
    rest: &'a str,
    analyzer: &'a Analyzer,
    has_positions: bool,
    leaves: Vec<Leaf>,
    /// How many words were read.
    words: usize,
    depth: usize,
}

/// How a clause counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Occur {
    Must,
    Should,
    MustNot,
}

impl Parser<'_> {
    /// Clauses up to a `)` or the end.
    fn clauses(&mut self) -> Result<Node, QueryError> {
        let mut clauses: Vec<(Occur, Node)> = Vec::new();
        loop {
            self.rest = self.rest.trim_start();
            if self.rest.is_empty() || self.rest.starts_with(')') {
                break;
            }
            let is_and = self.eat_word("AND");
            if !is_and {
                self.eat_word("OR");
            }
            let occur = match (self.eat('+'), self.eat('-') || self.eat_word("NOT")) {
                (_, true) => Occur::MustNot,
                (true, _) => Occur::Must,
                _ if is_and => Occur::Must,
                _ => Occur::Should,
            };
            // AND is of both sides.
            if is_and && let Some((before @ Occur::Should, _)) = clauses.last_mut() {
                *before = Occur::Must;
            }
            let node = self.part()?;
            clauses.push((occur, node));
        }
        // Stop words are in no index: a text need not have them, and a part of them alone finds nothing.
        let is_wanted = |(occur, _): &(Occur, Node)| *occur != Occur::MustNot;
        let was_wanted = clauses.iter().any(is_wanted);
        clauses.retain(|(_, node)| *node != Node::Nothing);
        if was_wanted && !clauses.iter().any(is_wanted) {
            return Ok(Node::Nothing);
        }
        if let [(Occur::Must | Occur::Should, _)] = clauses.as_slice() {
            return Ok(clauses.remove(0).1);
        }
        let mut parts = Parts { weight: 1.0, ..Parts::default() };
        for (occur, node) in clauses {
            match occur {
                Occur::Must => parts.must.push(node),
                Occur::Should => parts.should.push(node),
                Occur::MustNot => parts.must_not.push(node),
            }
        }
        if parts.must.is_empty() && parts.should.is_empty() {
            return match parts.must_not.is_empty() {
                true => Ok(Node::Nothing),
                false => refused(
                    "A query of full text looks for nothing: it has only words that a text must not have",
                ),
            };
        }
        Ok(Node::Parts(parts))
    }

    fn part(&mut self) -> Result<Node, QueryError> {
        self.rest = self.rest.trim_start();
        let mut node = if self.eat('(') {
            self.depth += 1;
            if self.depth > DEPTH_MAX {
                return refused(format!(
                    "A query of full text has more than {DEPTH_MAX} groups in each other"
                ));
            }
            let node = self.clauses()?;
            if !self.eat(')') {
                return refused("A query of full text has a '(' without a ')'");
            }
            self.depth -= 1;
            node
        } else if self.eat('"') {
            let Some((phrase, rest)) = self.rest.split_once('"') else {
                return refused("A phrase of a query of full text has no end");
            };
            self.rest = rest;
            let slop =
                if self.eat('~') { self.number("gaps of a phrase", SLOP_MAX)?.unwrap_or(0) } else { 0 };
            self.phrase(phrase, slop)?
        } else {
            self.word()?
        };
        if self.eat('^') {
            weigh(&mut node, self.weight()?);
        }
        Ok(node)
    }

    fn word(&mut self) -> Result<Node, QueryError> {
        let ends = |c: char| c.is_whitespace() || matches!(c, '(' | ')' | '"' | '^' | '*' | '~');
        let mut word = String::new();
        let mut characters = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((at, c)) = characters.next() {
            match c {
                '\\' => word.extend(characters.next().map(|(_, escaped)| escaped)),
                c if ends(c) => {
                    end = at;
                    break;
                }
                c => word.push(c),
            }
        }
        self.rest = self.rest.split_at(end).1;
        if word.is_empty() {
            return refused(match self.rest.chars().next() {
                Some(c) => format!("Unexpected '{c}' in a query of full text"),
                None => "A query of full text ends where a word is expected".to_owned(),
            });
        }
        if self.eat('*') {
            let prefix = self.analyzer.fold_word(&word);
            return self.leaf(Leaf::Prefix(prefix));
        }
        if self.eat('~') {
            let distance = self.number("edits of a word", DISTANCE_MAX)?.unwrap_or(DISTANCE_MAX);
            let word = self.analyzer.fold_word(&word);
            return self.leaf(Leaf::Fuzzy(word, distance));
        }
        // A word that is several terms is a phrase.
        self.phrase(&word, 0)
    }

    fn phrase(&mut self, text: &str, slop: usize) -> Result<Node, QueryError> {
        let terms = self.analyzer.terms_of(text.as_bytes());
        let mut leaves = Vec::new();
        for term in terms {
            let term = String::from_utf8_lossy(&term).into_owned();
            leaves.push(self.number_of(Leaf::Term(term))?);
        }
        match leaves.as_slice() {
            [] => Ok(Node::Nothing),
            [leaf] => Ok(Node::Leaf(*leaf, 1.0)),
            _ if !self.has_positions => {
                refused("The full-text index has no positions ('positions': 'false'), which phrases need")
            }
            _ => Ok(Node::Phrase { leaves, slop, weight: 1.0 }),
        }
    }

    fn leaf(&mut self, leaf: Leaf) -> Result<Node, QueryError> {
        if leaf.start().is_empty() {
            return Ok(Node::Nothing);
        }
        let number = self.number_of(leaf)?;
        if self.leaves.iter().filter(|leaf| !matches!(leaf, Leaf::Term(_))).count() > EXPANDED_MAX {
            return refused(format!(
                "A query of full text has more than {EXPANDED_MAX} prefixes and fuzzy words"
            ));
        }
        Ok(Node::Leaf(number, 1.0))
    }

    fn number_of(&mut self, leaf: Leaf) -> Result<usize, QueryError> {
        self.words += 1;
        if self.words > WORDS_MAX {
            return refused(format!("A query of full text has more than {WORDS_MAX} words"));
        }
        if let Some(known) = self.leaves.iter().position(|known| *known == leaf) {
            return Ok(known);
        }
        if self.leaves.len() == LEAVES_MAX {
            return refused(format!("A query of full text has more than {LEAVES_MAX} different words"));
        }
        self.leaves.push(leaf);
        Ok(self.leaves.len() - 1)
    }

    fn eat(&mut self, c: char) -> bool {
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Takes an operator in capitals that stands alone.
    fn eat_word(&mut self, word: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(word) else { return false };
        if !rest.starts_with(|c: char| c.is_whitespace() || c == '(') {
            return false;
        }
        self.rest = rest.trim_start();
        true
    }

    /// The digits that stand here; none when there are none.
    fn number(&mut self, what: &str, max: usize) -> Result<Option<usize>, QueryError> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        if digits.is_empty() {
            return Ok(None);
        }
        self.rest = rest;
        match digits.parse().ok().filter(|number| *number <= max) {
            Some(number) => Ok(Some(number)),
            None => refused(format!("The {what} in a query of full text are at most {max}")),
        }
    }

    fn weight(&mut self) -> Result<f32, QueryError> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        match digits.parse().ok().filter(|weight| (0.001..=1000.0).contains(weight)) {
            Some(weight) => Ok(weight),
            None => refused("A weight in a query of full text is a number from 0.001 to 1000"),
        }
    }
}

fn weigh(node: &mut Node, by: f32) {
    match node {
        Node::Leaf(_, weight) | Node::Phrase { weight, .. } | Node::Parts(Parts { weight, .. }) => {
            *weight = (*weight * by).clamp(WEIGHT_MIN, WEIGHT_MAX)
        }
        Node::Nothing => {}
    }
}
