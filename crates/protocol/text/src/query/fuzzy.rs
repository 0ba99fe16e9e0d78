//! The distance of words.

/// Whether so many insertions, deletions, replacements and swaps of neighbours lead from one word to the other.
pub(super) fn is_within(from: &str, to: &str, distance: usize) -> bool {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    if from.len().abs_diff(to.len()) > distance {
        return false;
    }
    // Cells of the matrix that are further than the distance from its diagonal are too far, and not computed.
    let too_far = distance + 1;
    let (mut before_last, mut row) = (vec![too_far; to.len() + 1], vec![too_far; to.len() + 1]);
    let mut last: Vec<usize> = (0..=to.len()).map(|at| at.min(too_far)).collect();
    for (i, a) in from.iter().enumerate() {
        let (begin, end) = (i.saturating_sub(distance), (i + distance + 1).min(to.len()));
        // The cells beside the band, which the next rows look at.
        row[begin] = if begin == 0 { (i + 1).min(too_far) } else { too_far };
        if let Some(behind) = row.get_mut(end + 1) {
            *behind = too_far;
        }
        for j in begin..end {
            let b = to[j];
            let mut least = (last[j] + usize::from(*a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == b {
                least = least.min(before_last[j - 1] + 1);
            }
            row[j + 1] = least.min(too_far);
        }
        if row[begin..=end].iter().all(|least| *least > distance) {
            return false;
        }
        std::mem::swap(&mut before_last, &mut last);
        std::mem::swap(&mut last, &mut row);
    }
    last[to.len()] <= distance
}
