//! The distance of words.

/// Whether so many insertions, deletions, replacements and swaps of neighbours lead from one word to the other.
pub(super) fn is_within(from: &str, to: &str, distance: usize) -> bool {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    if from.len().abs_diff(to.len()) > distance {
        return false;
    }
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut row = Vec::with_capacity(last.len());
        row.push(i + 1);
        for (j, b) in to.iter().enumerate() {
            let mut least = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                least = least.min(before_last[j - 1] + 1);
            }
            row.push(least);
        }
        if row.iter().all(|least| *least > distance) {
            return false;
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[to.len()] <= distance
}
