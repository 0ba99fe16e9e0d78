//! The tokens whose partitions a compaction keeps, when a node does not own all of them any more. Pure.

/// Ranges of tokens, ascending, none of which touches the next; both ends are in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedRanges(Vec<(i64, i64)>);

impl OwnedRanges {
    /// Of ranges from a token (not included) to another (included); where the second is not greater, the range goes around the
    /// ring's end.
    pub fn new(ranges: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let mut all = Vec::new();
        for (after, upto) in ranges {
            if after < upto {
                all.push((after + 1, upto));
                continue;
            }
            all.push((i64::MIN, upto));
            if after < i64::MAX {
                all.push((after + 1, i64::MAX));
            }
        }
        all.sort_unstable();
        let mut merged: Vec<(i64, i64)> = Vec::new();
        for (first, last) in all {
            match merged.last_mut() {
                Some(before) if before.1 == i64::MAX || first <= before.1 + 1 => {
                    before.1 = before.1.max(last)
                }
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// Whether a token is kept.
    pub fn contains(&self, token: i64) -> bool {
        self.contains_all(token, token)
    }

    /// Whether all tokens from one to another are kept, both included.
    pub fn contains_all(&self, first: i64, last: i64) -> bool {
        let at = self.0.partition_point(|(_, end)| *end < first);
        self.0.get(at).is_some_and(|(begin, end)| *begin <= first && last <= *end)
    }

    /// The data that is kept of the tokens from one to another, all ends included.
    pub fn within(&self, first: i64, last: i64) -> Vec<(i64, i64)> {
        let met = self.0.iter().filter(|(begin, end)| *end >= first && *begin <= last);
        met.map(|(begin, end)| (first.max(*begin), last.min(*end))).collect()
    }

    /// The data that is not kept of the tokens from one to another, all ends included.
    pub fn gaps(&self, first: i64, last: i64) -> Vec<(i64, i64)> {
        let mut gaps = Vec::new();
        let mut from = Some(first);
        for (begin, end) in &self.0 {
            let Some(next) = from.filter(|next| *next <= last) else { return gaps };
            if next < *begin {
                gaps.push((next, last.min(*begin - 1)));
            }
            from = if *end < next { from } else { end.checked_add(1) };
        }
        gaps.extend(from.filter(|next| *next <= last).map(|next| (next, last)));
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        let kept = OwnedRanges::new([(10, 20), (20, 30), (90, -90)]);
        assert!(kept.contains_all(11, 30) && kept.contains_all(91, i64::MAX));
        assert!(kept.contains_all(i64::MIN, -90) && !kept.contains(-89));
        assert!(!kept.contains(10) && !kept.contains(31) && !kept.contains_all(20, 91));
        assert!(!OwnedRanges::new([]).contains(0));
        assert!(OwnedRanges::new([(5, 5)]).contains_all(i64::MIN, i64::MAX), "one token has the whole ring");
        assert!(OwnedRanges::new([(i64::MAX, i64::MAX)]).contains_all(i64::MIN, i64::MAX));
    }

    #[test]
    fn a_token_is_kept_when_a_range_contains_it_and_in_a_gap_otherwise() {
        let has = |(after, upto): (i64, i64), token: i64| {
            if after < upto { after < token && token <= upto } else { token <= upto || token > after }
        };
        let ends = || (-3..=3).flat_map(|after| (-3..=3).map(move |upto| (after, upto)));
        for (one, other) in ends().flat_map(|one| ends().map(move |other| (one, other))) {
            let kept = OwnedRanges::new([one, other]);
            let gaps = kept.gaps(-5, 5);
            for token in -5..=5 {
                let expected = has(one, token) || has(other, token);
                assert_eq!(kept.contains(token), expected, "{token} of {one:?} and {other:?}");
                let within = kept.within(-5, 5).iter().any(|(first, last)| *first <= token && token <= *last);
                assert_eq!(within, expected, "{token} within {one:?} and {other:?}");
                let in_gap = gaps.iter().any(|(first, last)| *first <= token && token <= *last);
                assert_eq!(in_gap, !expected, "{token} between {one:?} and {other:?}: {gaps:?}");
            }
        }
    }
}
