//! Finds the keyword that a misspelled word was meant to be.

/// The first of the expected keywords (in upper case) that is closest to `found`, if any is close.
pub(crate) fn nearest(found: &str, expected: &[&'static str]) -> Option<&'static str> {
    if found.len() < 2 || found.len() > 24 {
        return None;
    }
    let found = found.to_ascii_uppercase();
    let mut best: Option<(usize, &'static str)> = None;
    for &candidate in expected {
        if !candidate.bytes().all(|b| b.is_ascii_uppercase() || b == b'_') {
            continue;
        }
        let distance = distance(found.as_bytes(), candidate.as_bytes());
        let allowed = if candidate.len() >= 5 { 2 } else { 1 };
        if distance > 0 && distance <= allowed && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, keyword)| keyword)
}

/// How many insertions, deletions, replacements and swaps of neighbours lead from one word to the other.
#[expect(clippy::indexing_slicing, reason = "rows have a place more than the word has letters")]
fn distance(from: &[u8], to: &[u8]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let mut cost = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                cost = cost.min(before_last[j - 1] + 1);
            }
            row.push(cost);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_misspelled_keyword() {
        let expected = ["FROM", "WHERE", "'('", "an identifier", "LIMIT", "AS"];
        assert_eq!(nearest("form", &expected), Some("FROM"));
        assert_eq!(nearest("WEHRE", &expected), Some("WHERE"));
        assert_eq!(nearest("limt", &expected), Some("LIMIT"));
        assert_eq!(nearest("banana", &expected), None);
        assert_eq!(nearest("identifier", &expected), None);
    }

    #[test]
    fn counts_edits() {
        assert_eq!(distance(b"FORM", b"FROM"), 1);
        assert_eq!(distance(b"", b"ABC"), 3);
        assert_eq!(distance(b"SELECT", b"SELECT"), 0);
        assert_eq!(distance(b"SELCT", b"SELECT"), 1);
    }
}
