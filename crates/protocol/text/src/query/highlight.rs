//! The words of a text that a query looks for, marked.

use super::{Node, Parts, TextQuery};
use crate::analyzer::Analyzer;

impl TextQuery {
    /// A text with the words that the query looks for between `open` and `close`; those behind NOT are not marked. Neither the text nor the marks
    /// are escaped.
    pub fn highlight(&self, analyzer: &Analyzer, text: &str, open: &str, close: &str) -> String {
        let mut wanted = vec![false; self.leaves().len()];
        mark_wanted(&self.root, &mut wanted);
        let (mut out, mut copied, mut marked_to) = (String::with_capacity(text.len()), 0, 0);
        analyzer.words_of(text, |start, end, term| {
            let mut leaves = self.leaves().iter().zip(&wanted);
            // Of words that overlap, the first is marked; one word may be several terms.
            if start >= marked_to && leaves.any(|(leaf, is_wanted)| *is_wanted && leaf.matches(term)) {
                for part in [text.get(copied..start), Some(open), text.get(start..end), Some(close)] {
                    out.push_str(part.unwrap_or_default());
                }
                (copied, marked_to) = (end, end);
            }
        });
        out.push_str(text.get(copied..).unwrap_or_default());
        out
    }
}

/// Notes the words whose texts a query finds.
fn mark_wanted(node: &Node, wanted: &mut [bool]) {
    let mut mark = |leaf: usize| {
        if let Some(is_wanted) = wanted.get_mut(leaf) {
            *is_wanted = true;
        }
    };
    match node {
        Node::Nothing => {}
        Node::Leaf(leaf, _) => mark(*leaf),
        Node::Phrase { leaves, .. } => leaves.iter().for_each(|leaf| mark(*leaf)),
        Node::Parts(Parts { must, should, .. }) => {
            must.iter().chain(should).for_each(|node| mark_wanted(node, wanted));
        }
    }
}
