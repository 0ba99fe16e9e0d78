//! The last repair of each range of a table: `tombstone_gc = {'mode': 'repair'}` purges by it, and metrics show its age.

use crate::Seconds;

/// Ranges of tokens with the time of their last repair. A value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// `(after, upto, at)`: tokens above `after` up to `upto`; ascending, apart, neighbours with one time joined.
    ranges: Vec<(i64, i64, Seconds)>,
}

impl Repaired {
    /// From ranges in any order.
    pub fn new(ranges: impl IntoIterator<Item = (i64, i64, Seconds)>) -> Self {
        let mut out = Self::default();
        ranges.into_iter().for_each(|(after, upto, at)| out.insert(after, upto, at));
        out
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> &[(i64, i64, Seconds)] {
        &self.ranges
    }

    /// Takes down that the tokens above `after` up to `upto` were repaired at `at`. An earlier time never replaces a later one.
    pub fn insert(&mut self, after: i64, upto: i64, at: Seconds) {
        if after >= upto {
            return;
        }
        let mut out: Vec<(i64, i64, Seconds)> = Vec::with_capacity(self.ranges.len() + 2);
        let mut push = |after: i64, upto: i64, at: Seconds| {
            if after >= upto {
                return;
            }
            match out.last_mut() {
                Some(last) if last.1 == after && last.2 == at => last.1 = upto,
                _ => out.push((after, upto, at)),
            }
        };
        let mut from = after;
        for &(known_after, known_upto, known_at) in &self.ranges {
            if known_after >= upto {
                // The last part of the new range lies before it.
                push(from, upto, at);
                from = upto;
            }
            push(known_after, known_upto.min(after), known_at);
            if known_after < upto && known_upto > after {
                push(from, known_after, at);
                push(known_after.max(after), known_upto.min(upto), known_at.max(at));
                from = known_upto.min(upto);
            }
            push(known_after.max(upto), known_upto, known_at);
        }
        push(from, upto, at);
        self.ranges = out;
    }

    /// When a token was repaired last; 0 for never.
    pub fn at(&self, token: i64) -> Seconds {
        let at = self.ranges.partition_point(|(_, upto, _)| *upto < token);
        match self.ranges.get(at) {
            Some((after, _, time)) if *after < token => *time,
            _ => 0,
        }
    }

    /// When the part of a range was repaired for which that is longest ago; 0 when some part never was.
    pub fn oldest(&self, after: i64, upto: i64) -> Seconds {
        let (mut from, mut oldest) = (after, Seconds::MAX);
        for &(known_after, known_upto, at) in &self.ranges {
            if known_upto <= from {
                continue;
            }
            if from >= upto || known_after > from {
                break;
            }
            oldest = oldest.min(at);
            from = known_upto;
        }
        if from >= upto { oldest } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equals_a_list_of_tokens(
            repairs in prop::collection::vec((0i64..30, 0i64..30, 1u32..5), 0..12),
            asked in (0i64..30, 0i64..30),
        ) {
            let mut list = [0u32; 31];
            let mut repaired = Repaired::default();
            for (a, b, at) in repairs {
                let (after, upto) = (a.min(b), a.max(b));
                repaired.insert(after, upto, at);
                list.iter_mut().zip(0i64..).filter(|(_, token)| after < *token && *token <= upto)
                    .for_each(|(known, _)| *known = at.max(*known));
            }
            for token in 0i64..31 {
                prop_assert_eq!(repaired.at(token), list[token as usize], "token {}", token);
            }
            let (after, upto) = (asked.0.min(asked.1), asked.0.max(asked.1) + 1);
            let oldest = ((after + 1)..=upto).map(|token| list[token as usize]).min().unwrap();
            prop_assert_eq!(repaired.oldest(after, upto), oldest);
            let ranges = repaired.ranges();
            prop_assert!(ranges.windows(2).all(|w| w[0].1 < w[1].0 || w[0].1 == w[1].0 && w[0].2 != w[1].2));
            prop_assert_eq!(Repaired::new(ranges.iter().rev().copied()), repaired);
        }
    }
}
